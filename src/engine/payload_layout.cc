#include "engine/payload_layout.h"

#include <array>
#include <cstdint>

namespace ch3_offload {

namespace {

/// Between two buffers that are both not contiguous. Bytes.
constexpr std::size_t kPieceBytes = 4096;

/// Copies `length` bytes by two runs of kBytes, which overlap unless there are twice as many.
template <std::size_t kBytes>
inline void copy_by_two(std::byte* to, const std::byte* from, std::size_t length) noexcept {
  std::array<std::byte, kBytes> first, last;
  std::memcpy(first.data(), from, kBytes);
  std::memcpy(last.data(), from + length - kBytes, kBytes);
  std::memcpy(to, first.data(), kBytes);
  std::memcpy(to + length - kBytes, last.data(), kBytes);
}

/// A piece of up to 64 bytes is not worth a call.
inline void copy(std::byte* to, const std::byte* from, std::size_t length) noexcept {
  if (length == 8) {
    std::memcpy(to, from, 8);
  } else if (length > 64) {
    ch3_offload_copy(to, from, length);
  } else if (length > 32) {
    copy_by_two<32>(to, from, length);
  } else if (length > 16) {
    copy_by_two<16>(to, from, length);
  } else if (length >= 8) {
    copy_by_two<8>(to, from, length);
  } else if (length >= 4) {
    copy_by_two<4>(to, from, length);
  } else {
    for (std::size_t i = 0; i < length; ++i) to[i] = from[i];
  }
}

}  // namespace

void gather_layout(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept {
  if (payload.layout->kind != PayloadLayout::Kind::kPieces)
    return payload.layout->pack(payload.address, offset, out.data(), out.size());
  std::byte* to = out.data();
  for_each_run(payload, offset, out.size(), [&](const std::byte* memory, std::size_t length) {
    copy(to, memory, length);
    to += length;
  });
}

bool try_gather_layout(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept {
  if (payload.layout->kind == PayloadLayout::Kind::kFetched)
    return static_cast<const FetchedLayout*>(payload.layout)
        ->try_pack(payload.address, offset, out.data(), out.size());
  gather_layout(payload, offset, out);
  return true;
}

void scatter_layout(const Payload& payload, std::size_t offset, std::span<const std::byte> part) noexcept {
  if (payload.layout->kind != PayloadLayout::Kind::kPieces)
    return payload.layout->unpack(payload.address, offset, part.data(), part.size());
  const std::byte* from = part.data();
  for_each_run(payload, offset, part.size(), [&](std::byte* memory, std::size_t length) {
    copy(memory, from, length);
    from += length;
  });
}

std::size_t copy_range(const Payload& from, const Payload& to, std::size_t offset,
                       std::size_t length) noexcept {
  if (from.layout == nullptr && to.layout == nullptr) {
    if (length > 0) std::memmove(to.address + offset, from.address + offset, length);
    return length;
  }
  if (from.layout == nullptr) {
    scatter(to, offset, {from.address + offset, length});
    return length;
  }
  if (to.layout == nullptr) return try_gather(from, offset, {to.address + offset, length}) ? length : 0;
  std::array<std::byte, kPieceBytes> piece;
  std::size_t copied = 0;
  while (copied < length) {
    const auto part = std::span(piece).first(std::min(kPieceBytes, length - copied));
    if (!try_gather(from, offset + copied, part)) break;
    scatter(to, offset + copied, part);
    copied += part.size();
  }
  return copied;
}

}  // namespace ch3_offload
