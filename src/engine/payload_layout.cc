#include "engine/payload_layout.h"

#include <array>
#include <cstdint>

namespace ch3_offload {

namespace {

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
    std::memcpy(to, from, length);
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

/// Calls `move` with each run of memory that holds a part of the `length` bytes from `offset` on.
template <class Move>
inline void for_each_run(const Payload& payload, std::size_t offset, std::size_t length, Move move) noexcept {
  const PayloadLayout& layout = *payload.layout;
  const Piece* const end = layout.pieces + layout.piece_count;
  const Piece* piece = layout.pieces;
  // An address by itself may be null, and the pieces absolute (MPI_BOTTOM): so this is no pointer yet.
  auto element = reinterpret_cast<std::intptr_t>(payload.address);
  std::size_t skipped = 0;  // Of the piece.
  if (offset > 0) {
    element += static_cast<std::intptr_t>(offset / layout.element_bytes) * layout.extent_bytes;
    for (skipped = offset % layout.element_bytes; skipped >= piece->length_bytes; ++piece)
      skipped -= piece->length_bytes;
  }
  for (;;) {
    const std::size_t run = std::min(piece->length_bytes - skipped, length);
    const std::intptr_t memory = element + piece->offset_bytes + static_cast<std::intptr_t>(skipped);
    move(reinterpret_cast<std::byte*>(memory), run);
    length -= run;
    if (length == 0) return;
    skipped = 0;
    if (++piece == end) {
      piece = layout.pieces;
      element += layout.extent_bytes;
    }
  }
}

}  // namespace

void gather_layout(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept {
  if (payload.layout->kind == PayloadLayout::Kind::kPacked)
    return payload.layout->pack(payload.address, offset, out.data(), out.size());
  std::byte* to = out.data();
  for_each_run(payload, offset, out.size(), [&](const std::byte* memory, std::size_t length) {
    copy(to, memory, length);
    to += length;
  });
}

void scatter_layout(const Payload& payload, std::size_t offset, std::span<const std::byte> part) noexcept {
  if (payload.layout->kind == PayloadLayout::Kind::kPacked)
    return payload.layout->unpack(payload.address, offset, part.data(), part.size());
  const std::byte* from = part.data();
  for_each_run(payload, offset, part.size(), [&](std::byte* memory, std::size_t length) {
    copy(memory, from, length);
    from += length;
  });
}

}  // namespace ch3_offload
