#include "nic/client_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/payload_layout.h"
#include "rdma/cycle_clock.h"
#include "rdma/shm/shm_connection.h"

namespace ch3_offload {
namespace {

/// Runs that one system call moves.
constexpr std::size_t kMostRuns = 64;
/// Runs so close are read with what is between them: a page costs the kernel less than a few runs.
constexpr std::size_t kCloseBytes = 512;
constexpr std::size_t kBetweenBytes = std::size_t{16} << 10;
/// Pieces of an element. The client packs what has more than 64, so a list so long is rubbish.
constexpr std::uint32_t kMostPieces = 4096;
/// No address is higher, and no length greater. Bytes.
constexpr std::uint64_t kAddressLimit = std::uint64_t{1} << 56;
/// Whether it may be the distance between two addresses.
constexpr bool is_in_range(std::ptrdiff_t distance) noexcept {
  constexpr auto kLimit = static_cast<std::ptrdiff_t>(kAddressLimit);
  return distance > -kLimit && distance < kLimit;
}

}  // namespace

// Copies by the kernel.

MemoryCopier& MemoryCopier::kernel() noexcept {
  static MemoryCopier copier;
  return copier;
}

ssize_t MemoryCopier::copy(pid_t pid, const iovec& here, std::span<const iovec> there,
                           bool is_write) noexcept {
  return is_write ? process_vm_writev(pid, &here, 1, there.data(), there.size(), 0)
                  : process_vm_readv(pid, &here, 1, there.data(), there.size(), 0);
}

namespace {

/// Calls `call(thread)` for the threads of a process other than its first one, until one returns true. Listed
/// each time: the number of a thread that ends may soon be another's.
template <class Call>
bool for_other_threads(pid_t pid, const Call& call) noexcept {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/task", static_cast<int>(pid));
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir(path.data()), &::closedir);
  while (const dirent* const one = threads == nullptr ? nullptr : ::readdir(threads.get())) {
    const int thread = std::atoi(one->d_name);
    if (thread > 0 && thread != pid && call(pid_t{thread})) return true;
  }
  return false;
}

}  // namespace

ssize_t MemoryCopier::copy_by_any_thread(pid_t pid, const iovec& here, std::span<const iovec> there,
                                         bool is_write) noexcept {
  ssize_t moved = copy(pid, here, there, is_write);
  if (moved >= 0 || errno != ESRCH) [[likely]]
    return moved;
  const auto copy_by = [&](pid_t thread) {
    moved = copy(thread, here, there, is_write);
    return moved >= 0 || errno != ESRCH;
  };
  if (for_other_threads(pid, copy_by)) return moved;
  errno = ESRCH;
  return -1;
}

/// A file of the process in /proc, also after its first thread has ended, if `is_it(file)`.
template <class IsIt>
static FileDescriptor open_of_process(pid_t pid, const char* name, int flags, const IsIt& is_it) noexcept {
  FileDescriptor file;
  const auto open_of = [&](pid_t thread) {
    std::array<char, 64> path;
    std::snprintf(path.data(), path.size(), "/proc/%d/task/%d/%s", static_cast<int>(pid),
                  static_cast<int>(thread), name);
    file = FileDescriptor(::open(path.data(), flags | O_CLOEXEC));
    if (file.valid() && !is_it(file)) file = {};
    return file.valid();
  };
  if (!open_of(pid)) static_cast<void>(for_other_threads(pid, open_of));
  return file;
}

FileDescriptor open_memory(pid_t pid) noexcept {
  // Older kernels open that of a thread that has ended, too: it is empty. Otherwise address 0 is no end.
  const auto is_of_living = [](const FileDescriptor& memory) {
    std::byte none{};
    return ::pread(memory.get(), &none, 1, 0) != 0;
  };
  return open_of_process(pid, "mem", O_RDWR, is_of_living);
}

FileDescriptor open_pages(pid_t pid) noexcept {
  if (!has_our_pids(pid)) return {};
  return open_of_process(pid, "pagemap", O_RDONLY, [](const FileDescriptor&) { return true; });
}

ssize_t MemoryCopier::copy_by_file(const FileDescriptor& memory, const iovec& here,
                                   std::span<const iovec> there, bool is_write) noexcept {
  auto* const from = static_cast<std::byte*>(here.iov_base);
  std::size_t done = 0;
  for (const iovec& one : there) {
    for (std::size_t in_one = 0; in_one < one.iov_len;) {
      const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(one.iov_base) + in_one);
      const std::size_t length = one.iov_len - in_one;
      const ssize_t moved = is_write ? ::pwrite(memory.get(), from + done, length, at)
                                     : ::pread(memory.get(), from + done, length, at);
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) {
        // As process_vm_readv() says it: nothing is there, or the process has ended.
        errno = moved == 0 ? ESRCH : errno == EIO ? EFAULT : errno;
        return -1;
      }
      in_one += static_cast<std::size_t>(moved);
      done += static_cast<std::size_t>(moved);
    }
  }
  return static_cast<ssize_t>(done);
}

bool MemoryCopier::may_have(pid_t pid, const iovec& there, bool is_write) noexcept {
  std::array<char, 256> line;
  std::snprintf(line.data(), line.size(), "/proc/%d/maps", static_cast<int>(pid));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen(line.data(), "re"), &std::fclose);
  if (maps == nullptr) return true;
  auto wanted = reinterpret_cast<std::uint64_t>(there.iov_base);
  const std::uint64_t end = wanted + there.iov_len;
  bool is_empty = true;
  while (std::fgets(line.data(), line.size(), maps.get()) != nullptr) {
    unsigned long long from = 0, to = 0;
    char reads = 0, writes = 0;
    if (std::sscanf(line.data(), "%llx-%llx %c%c", &from, &to, &reads, &writes) != 4) continue;
    is_empty = false;
    if (to <= wanted) continue;
    if (from > wanted || (is_write ? writes != 'w' : reads != 'r')) return false;
    wanted = to;
    if (wanted >= end) return true;
  }
  return is_empty;
}

/// So long after a late page others are expected. And what is late, where others could go on meanwhile.
constexpr std::uint64_t kSlow = 50'000 * CycleClock::kAbout20Microseconds;
constexpr std::uint64_t kLate = 50 * CycleClock::kAbout20Microseconds;

ClientMemory::Copied ClientMemory::copy(const iovec& here, std::span<const iovec> there,
                                        bool is_write) noexcept {
  if (is_broken()) return Copied::kBroken;
  if (is_write && has_ended()) return Copied::kBroken;
  if (slow_until_ != 0) [[unlikely]] {
    if (CycleClock::now() > slow_until_)
      slow_until_ = 0;
    else
      copier_.give_way();
  }
  const std::uint64_t began = CycleClock::now();
  is_copying_ = true;
  const ssize_t moved = move(here, there, is_write);
  is_copying_ = false;
  refusal_ = moved < 0 ? errno : EFAULT;
  if (std::exchange(was_late_, false)) [[unlikely]] {
    const std::uint64_t now = CycleClock::now();
    if (now - began > kLate) slow_until_ = now + kSlow;
  }
  if (!is_write && has_ended()) return Copied::kBroken;
  if (moved == static_cast<ssize_t>(here.iov_len)) [[likely]]
    return Copied::kDone;
  if (refusal_ != EFAULT) {
    is_refused_ = is_refused_ || refusal_ != ENOMEM;
    return Copied::kRefused;
  }
  for (const iovec& one : there) {
    is_copying_ = true;
    const bool may_have = copier_.may_have(pid_, one, is_write);
    is_copying_ = false;
    if (may_have) continue;
    fail_to(is_write ? "write to" : "read", reinterpret_cast<std::uint64_t>(one.iov_base), here.iov_len);
    return Copied::kBroken;
  }
  return Copied::kRefused;
}

bool ClientMemory::is_present(std::uint64_t address, std::size_t length_bytes) const noexcept {
  // Documentation/admin-guide/mm/pagemap.rst: a word for each page, whose highest bit says so.
  constexpr std::uint64_t kIsPresent = std::uint64_t{1} << 63;
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::array<std::uint64_t, 512> words;
  for (std::uint64_t page = address / page_bytes, end = (address + length_bytes - 1) / page_bytes + 1;
       page < end;) {
    const auto some = std::span(words).first(std::min<std::size_t>(words.size(), end - page));
    if (::pread(pages_.get(), some.data(), some.size_bytes(),
                static_cast<off_t>(page * sizeof(std::uint64_t))) != static_cast<ssize_t>(some.size_bytes()))
      return false;
    if (!std::ranges::all_of(some, [](std::uint64_t word) { return (word & kIsPresent) != 0; })) return false;
    page += some.size();
  }
  return true;
}

bool ClientMemory::has_ended() noexcept {
  if (!has_hung_up(socket_)) [[likely]]
    return false;
  fail("it has ended");
  return true;
}

/// By the kernel, whichever way it allows. As MemoryCopier::copy().
ssize_t ClientMemory::move(const iovec& here, std::span<const iovec> there, bool is_write) noexcept {
  if (!uses_file_) [[likely]] {
    const ssize_t moved = copier_.copy_by_any_thread(pid_, here, there, is_write);
    if (moved >= 0 || errno == EFAULT || errno == ENOMEM || !file_.valid()) [[likely]]
      return moved;
    uses_file_ = true;
  }
  return copier_.copy_by_file(file_, here, there, is_write);
}

void ClientMemory::fail(std::string_view reason) noexcept {
  outlet_.silence();
  if (std::exchange(is_broken_, true)) return;
  try {
    reason_ = reason;
  } catch (const std::bad_alloc&) {  // is_broken_ says it.
  }
}

/// As `refusal_` says.
void ClientMemory::fail_to(const char* do_what, std::uint64_t address, std::size_t length_bytes) noexcept {
  std::array<char, 256> text;
  std::snprintf(text.data(), text.size(), "cannot %s %zu bytes at 0x%llx of this process (%s)%s", do_what,
                length_bytes, static_cast<unsigned long long>(address), std::strerror(refusal_),
                refusal_ == EFAULT ? ": a buffer that it has given is not there" : "");
  fail(text.data());
}

// Payloads.

Payload ClientMemory::Part::payload() noexcept {
  static constexpr FetchedLayout kCopied{
      {.kind = PayloadLayout::Kind::kFetched, .pack = &pack, .unpack = &unpack},
      &try_pack,
      &pack_runs,
      &unpack_runs};
  if (shared_.address != nullptr) return {shared_.address, named_.length_bytes, nullptr};
  return {reinterpret_cast<std::byte*>(this), named_.length_bytes, &kCopied};
}

bool ClientMemory::Part::try_pack(const void* context, std::size_t offset_bytes, std::byte* destination,
                                  std::size_t length_bytes) noexcept {
  Part& part = *const_cast<Part*>(static_cast<const Part*>(context));
  if (part.read(offset_bytes, destination, length_bytes)) [[likely]]
    return true;
  if (part.memory_->is_broken() || !part.is_message()) {
    pack(context, offset_bytes, destination, length_bytes);
    return true;
  }
  const std::size_t wanted = part.drop_read(offset_bytes);
  if (part.is_wanted_ && part.wanted_.offset_bytes == wanted) return false;
  part.wanted_.offset_bytes = wanted;
  try {
    part.memory_->wanted_.push_back(part.wanted_);
    part.is_wanted_ = true;
  } catch (const std::bad_alloc&) {  // The next time.
  }
  return false;
}

void ClientMemory::Part::pack(const void* context, std::size_t offset_bytes, std::byte* destination,
                              std::size_t length_bytes) noexcept {
  Part& part = *const_cast<Part*>(static_cast<const Part*>(context));
  if (part.read(offset_bytes, destination, length_bytes)) return;
  part.memory_->fail_to("read", reinterpret_cast<std::uint64_t>(part.named_.address), length_bytes);
  std::memset(destination, 0, length_bytes);
}

void ClientMemory::Part::pack_runs(const void* context, std::size_t first_bytes, const TargetRuns& runs,
                                   std::size_t offset_bytes, std::byte* destination,
                                   std::size_t length_bytes) noexcept {
  Part& part = *const_cast<Part*>(static_cast<const Part*>(context));
  if (part.move(first_bytes, runs, offset_bytes, destination, length_bytes, false)) return;
  part.memory_->fail_to("read", reinterpret_cast<std::uint64_t>(part.named_.address), length_bytes);
  std::memset(destination, 0, length_bytes);
}

void ClientMemory::Part::unpack_runs(void* context, std::size_t first_bytes, const TargetRuns& runs,
                                     std::size_t offset_bytes, const std::byte* source,
                                     std::size_t length_bytes) noexcept {
  Part& part = *static_cast<Part*>(context);
  auto* const here = const_cast<std::byte*>(source);
  if (part.move(first_bytes, runs, offset_bytes, here, length_bytes, true)) return;
  part.memory_->fail_to("write to", reinterpret_cast<std::uint64_t>(part.named_.address), length_bytes);
}

void ClientMemory::Part::unpack(void* context, std::size_t offset_bytes, const std::byte* source,
                                std::size_t length_bytes) noexcept {
  Part& part = *static_cast<Part*>(context);
  if (part.keeps_bytes_ == 0 || !part.keep_first(offset_bytes, source, length_bytes))
    part.write(offset_bytes, source, length_bytes);
}

bool ClientMemory::Part::read(std::size_t offset_bytes, std::byte* destination,
                              std::size_t length_bytes) noexcept {
  if (given_.address == nullptr) [[likely]]
    return !is_away_ && move(0, {}, offset_bytes, destination, length_bytes, false);
  const std::size_t from = offset_bytes - given_from_;  // Great, if it lies before that.
  if (from > given_bytes_ || length_bytes > given_bytes_ - from) return false;
  std::memcpy(destination, given_.address + from, length_bytes);
  return true;
}

std::optional<ClientMemory::Part::Place> ClientMemory::Part::place() const noexcept {
  const bool can_be_copied = is_message() && !is_away_ && given_.address == nullptr &&
                             named_.layout == nullptr && memory_->pages_.valid();
  if (!can_be_copied) return {};
  return Place{memory_, reinterpret_cast<std::uint64_t>(named_.address), wanted_.operation};
}

bool ClientMemory::Part::give(std::size_t offset_bytes, std::uint64_t address, std::uint64_t length_bytes) {
  ClientShares::Found found = memory_->shares_.find(address, length_bytes);
  if (found.address == nullptr) return false;
  if (!held_.empty() && offset_bytes == given_from_ + held_.size()) {  // What is read next lies in both.
    give(offset_bytes, {found.address, length_bytes});
    return true;
  }
  is_wanted_ = false;
  is_away_ = true;  // What is given comes from one copy.
  given_ = std::move(found);
  given_from_ = offset_bytes;
  given_bytes_ = length_bytes;
  held_ = {};
  return true;
}

void ClientMemory::Part::give(std::size_t offset_bytes, std::span<const std::byte> bytes) {
  if (!is_wanted_ || offset_bytes != wanted_.offset_bytes) return;
  if (held_.empty() || offset_bytes != given_from_ + held_.size()) {
    held_.clear();
    given_from_ = offset_bytes;
  }
  held_.insert(held_.end(), bytes.begin(), bytes.end());
  is_wanted_ = false;
  is_away_ = true;
  given_ = {held_.data(), nullptr};
  given_bytes_ = held_.size();
}

/// Of held_, only what is from that offset on will be read. Returns from where on more is wanted.
std::size_t ClientMemory::Part::drop_read(std::size_t offset_bytes) noexcept {
  const std::size_t read = offset_bytes - given_from_;  // Great, if it lies before that.
  if (held_.empty() || read > held_.size()) return offset_bytes;
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(read));
  given_from_ = offset_bytes;
  given_bytes_ = held_.size();
  return given_from_ + given_bytes_;
}

void ClientMemory::Part::write(std::size_t offset_bytes, const std::byte* source,
                               std::size_t length_bytes) noexcept {
  if (!is_away_ && move(0, {}, offset_bytes, const_cast<std::byte*>(source), length_bytes, true)) return;
  if (memory_->is_broken()) return;
  if (is_message()) return keep(offset_bytes, source, length_bytes);
  memory_->fail_to("write to", reinterpret_cast<std::uint64_t>(named_.address), length_bytes);
}

/// Keeps the bytes, behind those that were kept before, or in their place. They come in order.
void ClientMemory::Part::keep(std::size_t offset_bytes, const std::byte* source,
                              std::size_t length_bytes) noexcept {
  if (kept_.empty()) kept_from_ = offset_bytes;
  const std::size_t at = offset_bytes - kept_from_;
  is_lost_ = is_lost_ || offset_bytes < kept_from_ || at > kept_.size();
  if (is_lost_) return;
  try {
    kept_.resize(at);
    kept_.insert(kept_.end(), source, source + length_bytes);
  } catch (const std::bad_alloc&) {
    is_lost_ = true;
  }
}

/// Keeps a short message. False: the bytes belong to the client's memory, and so does what was kept before.
bool ClientMemory::Part::keep_first(std::size_t offset_bytes, const std::byte* source,
                                    std::size_t length_bytes) noexcept {
  if (offset_bytes == 0 && kept_.empty() && length_bytes > 0 && length_bytes <= keeps_bytes_) {
    try {
      kept_.assign(source, source + length_bytes);
      return true;
    } catch (const std::bad_alloc&) {  // Then as a long one.
    }
  }
  keeps_bytes_ = 0;
  if (const std::vector<std::byte> first = std::exchange(kept_, {}); !first.empty())
    write(0, first.data(), first.size());
  return false;
}

/// Reads data in runs with what is between them, in few calls. False: the kernel refuses.
bool ClientMemory::Part::read_between(std::size_t first_bytes, const TargetRuns& runs,
                                      std::size_t offset_bytes, std::byte* here,
                                      std::size_t length_bytes) noexcept {
  std::array<std::byte, kBetweenBytes> span;
  const std::size_t at_once = span.size() / runs.stride_bytes * runs.block_bytes;
  const auto place = [&](std::size_t offset) {
    return offset / runs.block_bytes * runs.stride_bytes + offset % runs.block_bytes;
  };
  for (const std::size_t end = offset_bytes + length_bytes; offset_bytes < end;) {
    const std::size_t part = std::min(at_once - offset_bytes % runs.block_bytes, end - offset_bytes);
    const std::size_t from = place(offset_bytes), bytes = place(offset_bytes + part - 1) + 1 - from;
    const iovec there{
        reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(named_.address) + first_bytes + from),
        bytes};
    if (memory_->copy({span.data(), bytes}, {&there, 1}, false) != Copied::kDone) return false;
    runs.for_each(offset_bytes, part, [&](std::size_t run, std::size_t length) {
      std::memcpy(here, span.data() + (run - from), length);
      here += length;
    });
    offset_bytes += part;
  }
  return true;
}

/// By the kernel. False: it refuses, or there is no such memory.
bool ClientMemory::Part::move(std::size_t first_bytes, const TargetRuns& runs, std::size_t offset_bytes,
                              std::byte* here, std::size_t length_bytes, bool is_write) noexcept {
  if (!is_write && runs.are_many() && runs.stride_bytes <= kCloseBytes && named_.layout == nullptr &&
      read_between(first_bytes, runs, offset_bytes, here, length_bytes))
    return true;
  std::array<iovec, kMostRuns> places;
  std::size_t count = 0, bytes = 0;
  const auto flush = [&] {
    if (!is_away_ && memory_->copy({here, bytes}, {places.data(), count}, is_write) != Copied::kDone)
      is_away_ = true;
    here += bytes;
    count = bytes = 0;
  };
  const auto add = [&](std::byte* memory, std::size_t length) {
    places[count++] = {memory, length};
    bytes += length;
    if (count == places.size()) flush();
  };
  const auto add_range = [&](std::size_t from, std::size_t length) {
    if (named_.layout == nullptr)
      // Nothing is known of the address: no pointer arithmetic.
      add(reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(named_.address) + from), length);
    else
      for_each_run(named_, from, length, add);
  };
  if (runs.are_many())
    runs.for_each(offset_bytes, length_bytes,
                  [&](std::size_t from, std::size_t length) { add_range(first_bytes + from, length); });
  else
    add_range(offset_bytes, length_bytes);
  if (count > 0) flush();
  if (!is_away_) [[likely]]
    return true;
  // The memory of an entry may be there the next time, and must be asked again: it cannot wait.
  is_away_ = is_message();
  return false;
}

bool ClientMemory::take(const Payload& named, Part& part) {
  const auto address = reinterpret_cast<std::uint64_t>(named.address);
  if (named.length_bytes >= kAddressLimit || address >= kAddressLimit) return false;
  part.memory_ = this;
  part.named_ = named;
  part.named_.layout = nullptr;
  part.shared_ = {};
  if (named.layout == nullptr) part.shared_ = shares_.find(address, named.length_bytes);
  if (part.shared_.address != nullptr || named.length_bytes == 0) return true;
  // The client was told to share what it names for target entries.
  if (!part.is_message() && !may_copy()) return false;
  part.is_away_ = part.is_message() && (!may_copy() || is_refused_);
  if (named.layout == nullptr || part.is_away_) return true;
  // A layout that cannot be read: only the client knows what it is, or it is broken.
  PayloadLayout& layout = part.layout_;
  if (!read(reinterpret_cast<std::uint64_t>(named.layout), &layout, sizeof layout))
    return part.is_away_ = true;
  if (layout.kind != PayloadLayout::Kind::kPieces || layout.piece_count == 0 ||
      layout.piece_count > kMostPieces)
    return false;
  part.pieces_.resize(layout.piece_count);
  if (!read(reinterpret_cast<std::uint64_t>(layout.pieces), part.pieces_.data(),
            layout.piece_count * sizeof(Piece)))
    return part.is_away_ = true;
  std::size_t element_bytes = 0;
  for (const Piece& piece : part.pieces_) {
    if (piece.length_bytes == 0 || piece.length_bytes >= kAddressLimit || !is_in_range(piece.offset_bytes))
      return false;
    element_bytes += piece.length_bytes;
    if (element_bytes >= kAddressLimit) return false;
  }
  if (element_bytes != layout.element_bytes || !is_in_range(layout.extent_bytes)) return false;
  // So that no sum of them overflows.
  const std::uint64_t elements = named.length_bytes / element_bytes + 1;
  const auto extent = static_cast<std::uint64_t>(std::abs(layout.extent_bytes));
  if (extent != 0 && elements >= kAddressLimit / extent) return false;
  layout.pieces = part.pieces_.data();
  layout.pack = nullptr;
  layout.unpack = nullptr;
  part.named_.layout = &layout;
  return true;
}

bool ClientMemory::take_entry(const Payload& named, Part& part) {
  if (named.layout != nullptr) return take(named, part);
  part.memory_ = this;
  part.named_ = named;
  part.shared_ = shares_.find(reinterpret_cast<std::uint64_t>(named.address), named.length_bytes);
  return part.shared_.address != nullptr || named.length_bytes == 0 || may_copy();
}

ClientMemory::Part ClientMemory::place(const Payload& named) noexcept {
  Part part;
  part.memory_ = this;
  if (named.layout == nullptr)
    part.shared_ = shares_.find(reinterpret_cast<std::uint64_t>(named.address), named.length_bytes);
  if (part.shared_.address != nullptr) part.named_ = named;
  return part;
}

bool ClientMemory::read(std::uint64_t address, void* to, std::size_t length_bytes) noexcept {
  const iovec there{reinterpret_cast<void*>(address), length_bytes};
  return copy({to, length_bytes}, {&there, 1}, false) == Copied::kDone;
}

}  // namespace ch3_offload
