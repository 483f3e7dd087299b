#include "active_messages/regions.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace ch3_offload::active_messages {
namespace {

/// Before the memory, so that that begins on a page of any size that Linux has.
constexpr std::size_t kFirstBytes = 65'536;
constexpr std::size_t kMostRegionBytes = std::size_t{1} << 46;

std::size_t file_bytes(std::uint64_t length_bytes) noexcept {
  return kFirstBytes + static_cast<std::size_t>((length_bytes + kFirstBytes - 1) / kFirstBytes * kFirstBytes);
}

bool draw(std::uint64_t& key) noexcept { return ::getrandom(&key, sizeof key, 0) == sizeof key; }

/// Maps the file of a region of this node. None: it cannot be reached, or is not that region's.
Mapping map_region(const RegionName& name) noexcept {
  if (name.file == RegionName::kNoFile || name.length_bytes > kMostRegionBytes) return {};
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%u/fd/%u", name.os_process, name.file);
  // A descriptor that only names the file does nothing to it, whatever it is.
  const FileDescriptor named(::open(path.data(), O_PATH | O_CLOEXEC));
  struct stat status {};
  if (!named.valid() || ::fstat(named.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::snprintf(path.data(), path.size(), "/proc/thread-self/fd/%d", named.get());
  const FileDescriptor file(::open(path.data(), O_RDWR | O_CLOEXEC));
  const std::size_t length = file_bytes(name.length_bytes);
  if (!file.valid() || !is_sealed_file(file, length)) return {};
  try {
    Result<Mapping> mapped = map_shared(file, length, MapAccess::kReadWrite);
    if (!mapped.ok()) return {};
    std::uint64_t key = 0;
    std::memcpy(&key, mapped.value().address(), sizeof key);
    if (key == name.key) return std::move(mapped.value());
  } catch (const std::bad_alloc&) {
  }
  return {};
}

int code_of(const ptl_event_t& event, std::uint64_t length_bytes) noexcept {
  switch (event.ni_fail_type) {
    case PTL_NI_OK: return event.mlength == length_bytes ? CH3_OFFLOAD_AM_OK : CH3_OFFLOAD_AM_FAIL;
    case PTL_NI_UNDELIVERABLE: return CH3_OFFLOAD_AM_PEER_DEAD;
    case PTL_NI_DROPPED: return CH3_OFFLOAD_AM_UNKNOWN;
    default: return CH3_OFFLOAD_AM_FAIL;
  }
}

}  // namespace

std::byte* Remote::memory() const noexcept {
  return mapping.valid() ? mapping.address() + kFirstBytes : nullptr;
}

int Regions::open(ptl_handle_ni_t ni, ptl_process_t self, ptl_uid_t user) {
  ni_ = ni;
  self_ = self;
  user_ = user;
  // Of each transfer: PTL_EVENT_SEND if it fails, and its end.
  int code = PtlEQAlloc(ni, 2 * kMostTransfers, &queue_);
  if (code == PTL_OK) code = PtlPTAlloc(ni, 0, PTL_EQ_NONE, PTL_PT_ANY, &table_);
  ptl_md_t all{};
  all.length = PTL_SIZE_MAX;
  all.options = PTL_MD_EVENT_SEND_DISABLE;
  all.eq_handle = queue_;
  all.ct_handle = PTL_CT_NONE;
  if (code == PTL_OK) code = PtlMDBind(ni, &all, &memory_);
  return code;
}

bool Regions::close() noexcept {
  if (in_use_ > finished_) return false;
  while (!regions_.empty())
    if (free(regions_.front()) != CH3_OFFLOAD_AM_OK) return false;
  if (table_ != PTL_PT_ANY && PtlPTFree(ni_, table_) == PTL_IN_USE) return false;
  table_ = PTL_PT_ANY;
  if (memory_ != PTL_INVALID_HANDLE) PtlMDRelease(memory_);
  memory_ = PTL_INVALID_HANDLE;
  if (queue_ != PTL_EQ_NONE) PtlEQFree(queue_);
  queue_ = PTL_EQ_NONE;
  return true;
}

int Regions::allocate(std::size_t length, Region*& region) {
  if (length == 0) return CH3_OFFLOAD_AM_INVALID;
  if (length > kMostRegionBytes) return CH3_OFFLOAD_AM_NO_MEMORY;
  Region made;
  const std::size_t bytes = file_bytes(length);
  Result<FileDescriptor> file = make_reserved_file("ch3-offload-region", bytes);
  if (!file.ok()) return CH3_OFFLOAD_AM_NO_MEMORY;
  Result<Mapping> mapping = map_shared(file.value(), bytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return CH3_OFFLOAD_AM_NO_MEMORY;
  made.file = std::move(file.value());
  made.mapping = std::move(mapping.value());
  made.start = made.mapping.address() + kFirstBytes;
  made.name.length_bytes = length;
  made.name.file = static_cast<std::uint32_t>(made.file.get());
  return add(std::move(made), region);
}

int Regions::expose(void* start, std::size_t length, Region*& region) {
  if (length == 0) return CH3_OFFLOAD_AM_INVALID;
  Region made;
  made.start = static_cast<std::byte*>(start);
  made.name.length_bytes = length;
  return add(std::move(made), region);
}

int Regions::add(Region region, Region*& added) {
  if (!draw(region.name.key)) return CH3_OFFLOAD_AM_FAIL;
  region.regions = this;
  region.name.nid = self_.phys.nid;
  region.name.pid = self_.phys.pid;
  region.name.table = table_;
  region.name.os_process = static_cast<std::uint32_t>(::getpid());
  if (region.mapping.valid()) std::memcpy(region.mapping.address(), &region.name.key, sizeof region.name.key);
  ptl_me_t entry{};
  entry.start = region.start;
  entry.length = region.name.length_bytes;
  entry.ct_handle = PTL_CT_NONE;
  entry.uid = user_;
  entry.options = PTL_ME_OP_PUT | PTL_ME_OP_GET;
  entry.match_id.phys = {PTL_NID_ANY, PTL_PID_ANY};
  entry.match_bits = region.name.key;
  regions_.push_back(std::move(region));
  Region& its = regions_.back();
  const int code = PtlMEAppend(ni_, table_, &entry, PTL_PRIORITY_LIST, nullptr, &its.entry);
  if (code != PTL_OK) {
    regions_.pop_back();
    return code == PTL_NO_SPACE || code == PTL_LIST_TOO_LONG ? CH3_OFFLOAD_AM_NO_MEMORY : CH3_OFFLOAD_AM_FAIL;
  }
  added = &its;
  return CH3_OFFLOAD_AM_OK;
}

int Regions::free(Region& region) noexcept {
  if (PtlMEUnlink(region.entry) == PTL_IN_USE) return CH3_OFFLOAD_AM_AGAIN;
  regions_.remove_if([&](const Region& one) { return &one == &region; });
  return CH3_OFFLOAD_AM_OK;
}

int Regions::attach(const RegionName& name, Remote*& remote) {
  Remote made;
  made.regions = this;
  made.name = name;
  if (name.nid == self_.phys.nid) made.mapping = map_region(name);
  remotes_.push_back(std::move(made));
  remote = &remotes_.back();
  return CH3_OFFLOAD_AM_OK;
}

int Regions::detach(Remote& remote) noexcept {
  if (remote.transfers > 0) return CH3_OFFLOAD_AM_AGAIN;
  remotes_.remove_if([&](const Remote& one) { return &one == &remote; });
  return CH3_OFFLOAD_AM_OK;
}

Regions::Transfer* Regions::make(Remote& remote, std::size_t length, ch3_offload_am_done_t* done,
                                 void* context) noexcept {
  const auto unused = std::find_if(transfers_.begin(), transfers_.end(),
                                   [](const Transfer& one) { return one.remote == nullptr; });
  if (unused == transfers_.end()) return nullptr;
  *unused = {&remote, done, context, length, false};
  ++remote.transfers;
  ++in_use_;
  return &*unused;
}

int Regions::put(Remote& remote, std::size_t offset, const void* from, std::size_t length,
                 ch3_offload_am_done_t* done, void* context) noexcept {
  const std::uint64_t whole = remote.name.length_bytes;
  if (offset > whole || length > whole - offset) return CH3_OFFLOAD_AM_INVALID;
  Transfer* const transfer = make(remote, length, done, context);
  if (transfer == nullptr) return CH3_OFFLOAD_AM_AGAIN;
  if (std::byte* const memory = remote.memory(); memory != nullptr) {
    if (length > 0) std::memcpy(memory + offset, from, length);
    transfer->is_finished = true;
    ++finished_;
    return CH3_OFFLOAD_AM_OK;
  }
  ptl_process_t process;
  process.phys = {remote.name.nid, remote.name.pid};
  return began(*transfer, PtlPut(memory_, reinterpret_cast<std::uintptr_t>(from), length, PTL_ACK_REQ,
                                 process, remote.name.table, remote.name.key, offset, transfer, 0));
}

int Regions::get(Remote& remote, std::size_t offset, void* to, std::size_t length,
                 ch3_offload_am_done_t* done, void* context) noexcept {
  const std::uint64_t whole = remote.name.length_bytes;
  if (offset > whole || length > whole - offset) return CH3_OFFLOAD_AM_INVALID;
  Transfer* const transfer = make(remote, length, done, context);
  if (transfer == nullptr) return CH3_OFFLOAD_AM_AGAIN;
  if (const std::byte* const memory = remote.memory(); memory != nullptr) {
    if (length > 0) std::memcpy(to, memory + offset, length);
    transfer->is_finished = true;
    ++finished_;
    return CH3_OFFLOAD_AM_OK;
  }
  ptl_process_t process;
  process.phys = {remote.name.nid, remote.name.pid};
  return began(*transfer, PtlGet(memory_, reinterpret_cast<std::uintptr_t>(to), length, process,
                                 remote.name.table, remote.name.key, offset, transfer));
}

/// If it has not begun, it is as if it had not been asked for.
int Regions::began(Transfer& transfer, int ptl_code) noexcept {
  if (ptl_code == PTL_OK) return CH3_OFFLOAD_AM_OK;
  transfer.done = nullptr;
  finish(transfer, CH3_OFFLOAD_AM_OK);
  switch (ptl_code) {
    case PTL_NO_SPACE: return CH3_OFFLOAD_AM_AGAIN;
    case PTL_FAIL: return CH3_OFFLOAD_AM_PEER_DEAD;
    default: return CH3_OFFLOAD_AM_INVALID;  // Longer than max_msg_size, or a name with a wrong table.
  }
}

void Regions::finish(Transfer& transfer, int code) noexcept {
  const Transfer its = transfer;
  transfer = {};
  --its.remote->transfers;
  --in_use_;
  if (its.done != nullptr) its.done(its.context, code);
}

void Regions::take(const ptl_event_t& event) noexcept {
  if (event.type != PTL_EVENT_ACK && event.type != PTL_EVENT_REPLY) return;
  Transfer& transfer = *static_cast<Transfer*>(event.user_ptr);
  finish(transfer, code_of(event, transfer.length_bytes));
}

std::size_t Regions::tell_finished() noexcept {
  if (finished_ == 0) return 0;
  // What the program begins meanwhile is told in the next turn.
  std::array<bool, kMostTransfers> were_finished;
  for (std::size_t i = 0; i < kMostTransfers; ++i) were_finished[i] = transfers_[i].is_finished;
  const std::size_t number = std::exchange(finished_, 0);
  for (std::size_t i = 0; i < kMostTransfers; ++i)
    if (were_finished[i]) finish(transfers_[i], CH3_OFFLOAD_AM_OK);
  return number;
}

}  // namespace ch3_offload::active_messages
