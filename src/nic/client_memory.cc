#include "nic/client_memory.h"

#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/payload_layout.h"

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

Payload ClientMemory::Part::payload() noexcept {
  static constexpr PayloadLayout kCopied{
      .kind = PayloadLayout::Kind::kPacked, .pack = &pack, .unpack = &unpack};
  if (shared_.address != nullptr) return {shared_.address, named_.length_bytes, nullptr};
  return {reinterpret_cast<std::byte*>(this), named_.length_bytes, &kCopied};
}

void ClientMemory::Part::pack(const void* context, std::size_t offset_bytes, std::byte* destination,
                              std::size_t length_bytes) noexcept {
  const_cast<Part*>(static_cast<const Part*>(context))->move(offset_bytes, destination, length_bytes, false);
}

void ClientMemory::Part::unpack(void* context, std::size_t offset_bytes, const std::byte* source,
                                std::size_t length_bytes) noexcept {
  Part& part = *static_cast<Part*>(context);
  if (part.keeps_bytes_ == 0 || !part.keep(offset_bytes, source, length_bytes))
    part.write(offset_bytes, source, length_bytes);
}

void ClientMemory::Part::write(std::size_t offset_bytes, const std::byte* source,
                               std::size_t length_bytes) noexcept {
  move(offset_bytes, const_cast<std::byte*>(source), length_bytes, true);
}

/// Keeps the bytes. False: they belong to the client's memory, and so does what was kept before.
bool ClientMemory::Part::keep(std::size_t offset_bytes, const std::byte* source,
                              std::size_t length_bytes) noexcept {
  if (offset_bytes == 0 && kept_ == nullptr && length_bytes > 0 && length_bytes <= keeps_bytes_) {
    kept_.reset(new (std::nothrow) std::byte[length_bytes]);
    if (kept_ != nullptr) {
      std::memcpy(kept_.get(), source, length_bytes);
      kept_bytes_ = length_bytes;
      return true;
    }
  }
  if (kept_ != nullptr) write(0, kept_.get(), kept_bytes_);
  kept_.reset();
  kept_bytes_ = keeps_bytes_ = 0;
  return false;
}

void ClientMemory::Part::move(std::size_t offset_bytes, std::byte* here, std::size_t length_bytes,
                              bool is_write) noexcept {
  std::array<iovec, kMostRuns> runs;
  std::size_t count = 0, bytes = 0;
  const auto flush = [&] {
    const iovec local{here, bytes};
    if (!memory_->is_broken()) {
      const ssize_t moved = is_write ? process_vm_writev(memory_->pid_, &local, 1, runs.data(), count, 0)
                                     : process_vm_readv(memory_->pid_, &local, 1, runs.data(), count, 0);
      if (moved != static_cast<ssize_t>(bytes))
        memory_->fail(is_write ? "write to" : "read", reinterpret_cast<std::uint64_t>(runs[0].iov_base),
                      bytes, moved < 0 ? errno : EFAULT);
    }
    if (!is_write && memory_->is_broken()) std::memset(here, 0, bytes);
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
  if (copies_ == KernelCopies::kRefused) return false;
  if (named.layout == nullptr) return true;
  PayloadLayout& layout = part.layout_;
  if (!read(reinterpret_cast<std::uint64_t>(named.layout), &layout, sizeof layout))
    return true;  // It is broken.
  if (layout.kind != PayloadLayout::Kind::kPieces || layout.piece_count == 0 ||
      layout.piece_count > kMostPieces)
    return false;
  part.pieces_.resize(layout.piece_count);
  if (!read(reinterpret_cast<std::uint64_t>(layout.pieces), part.pieces_.data(),
            layout.piece_count * sizeof(Piece)))
    return true;
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
  const iovec local{to, length_bytes};
  const iovec remote{reinterpret_cast<void*>(address), length_bytes};
  const ssize_t moved = is_broken() ? -1 : process_vm_readv(pid_, &local, 1, &remote, 1, 0);
  if (moved == static_cast<ssize_t>(length_bytes)) return true;
  fail("read", address, length_bytes, moved < 0 ? errno : EFAULT);
  return false;
}

void ClientMemory::fail(const char* what, std::uint64_t address, std::size_t length_bytes,
                        int error) noexcept {
  outlet_.silence();
  if (std::exchange(is_broken_, true)) return;
  std::array<char, 256> text;
  std::snprintf(text.data(), text.size(),
                "cannot %s %zu bytes at 0x%llx of this process (%s): a buffer that it has given is not there",
                what, length_bytes, static_cast<unsigned long long>(address), std::strerror(error));
  try {
    reason_ = text.data();
  } catch (const std::bad_alloc&) {  // is_broken_ says it.
  }
}

}  // namespace ch3_offload
