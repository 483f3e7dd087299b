#include "nic/client_memory.h"

#include <dirent.h>
#include <sys/uio.h>

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

ssize_t MemoryCopier::copy_by_any_thread(pid_t pid, const iovec& here, std::span<const iovec> there,
                                         bool is_write) noexcept {
  ssize_t moved = copy(pid, here, there, is_write);
  if (moved >= 0 || errno != ESRCH) [[likely]]
    return moved;
  // Its first thread may have ended. Listed each time: the number of one that ends may soon be another's.
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/task", static_cast<int>(pid));
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir(path.data()), &::closedir);
  while (const dirent* const one = threads == nullptr ? nullptr : ::readdir(threads.get())) {
    const int thread = std::atoi(one->d_name);
    if (thread <= 0 || thread == pid) continue;
    moved = copy(thread, here, there, is_write);
    if (moved >= 0 || errno != ESRCH) return moved;
  }
  errno = ESRCH;
  return -1;
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
  // Then its pid may be another program's.
  const auto has_left = [this] {
    if (!has_hung_up(socket_)) [[likely]]
      return false;
    fail("it has ended");
    return true;
  };
  if (is_write && has_left()) return Copied::kBroken;
  if (slow_until_ != 0) [[unlikely]] {
    if (CycleClock::now() > slow_until_)
      slow_until_ = 0;
    else
      copier_.give_way();
  }
  const std::uint64_t began = CycleClock::now();
  is_copying_ = true;
  const ssize_t moved = copier_.copy_by_any_thread(pid_, here, there, is_write);
  is_copying_ = false;
  refusal_ = moved < 0 ? errno : EFAULT;
  if (std::exchange(was_late_, false)) [[unlikely]] {
    const std::uint64_t now = CycleClock::now();
    if (now - began > kLate) slow_until_ = now + kSlow;
  }
  if (!is_write && has_left()) return Copied::kBroken;
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
      {.kind = PayloadLayout::Kind::kFetched, .pack = &pack, .unpack = &unpack}, &try_pack};
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
  if (part.is_wanted_ && part.wanted_.offset_bytes == offset_bytes) return false;
  part.wanted_.offset_bytes = offset_bytes;
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

void ClientMemory::Part::unpack(void* context, std::size_t offset_bytes, const std::byte* source,
                                std::size_t length_bytes) noexcept {
  Part& part = *static_cast<Part*>(context);
  if (part.keeps_bytes_ == 0 || !part.keep_first(offset_bytes, source, length_bytes))
    part.write(offset_bytes, source, length_bytes);
}

bool ClientMemory::Part::read(std::size_t offset_bytes, std::byte* destination,
                              std::size_t length_bytes) noexcept {
  if (given_.address == nullptr) [[likely]]
    return !is_away_ && move(offset_bytes, destination, length_bytes, false);
  const std::size_t from = offset_bytes - given_from_;  // Great, if it lies before that.
  if (from > given_bytes_ || length_bytes > given_bytes_ - from) return false;
  std::memcpy(destination, given_.address + from, length_bytes);
  return true;
}

bool ClientMemory::Part::give(std::size_t offset_bytes, std::uint64_t address,
                              std::uint64_t length_bytes) noexcept {
  is_wanted_ = false;
  is_away_ = true;  // What is given comes from one copy.
  given_ = memory_->shares_.find(address, length_bytes);
  given_from_ = offset_bytes;
  given_bytes_ = length_bytes;
  return given_.address != nullptr;
}

void ClientMemory::Part::write(std::size_t offset_bytes, const std::byte* source,
                               std::size_t length_bytes) noexcept {
  if (!is_away_ && move(offset_bytes, const_cast<std::byte*>(source), length_bytes, true)) return;
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

/// By the kernel. False: it refuses, or there is no such memory.
bool ClientMemory::Part::move(std::size_t offset_bytes, std::byte* here, std::size_t length_bytes,
                              bool is_write) noexcept {
  std::array<iovec, kMostRuns> runs;
  std::size_t count = 0, bytes = 0;
  const auto flush = [&] {
    if (!is_away_ && memory_->copy({here, bytes}, {runs.data(), count}, is_write) != Copied::kDone)
      is_away_ = true;
    here += bytes;
    count = bytes = 0;
  };
  const auto add = [&](std::byte* memory, std::size_t length) {
    runs[count++] = {memory, length};
    bytes += length;
    if (count == runs.size()) flush();
  };
  if (named_.layout == nullptr)
    // Nothing is known of the address: no pointer arithmetic.
    add(reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(named_.address) + offset_bytes),
        length_bytes);
  else
    for_each_run(named_, offset_bytes, length_bytes, add);
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
