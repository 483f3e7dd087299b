// Reads and writes payloads, one byte range of the message at a time.
//
// Of pieces, nothing is kept from one range to the next: ranges may come in any order. The client's functions
// (kPacked) keep a cursor in their context: each range begins where the one before it ended, or at 0.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/engine.h"
#include "rdma/ch3_offload_copy.h"

namespace ch3_offload {

/// Calls `move` with each run of memory that holds a part of the `length` bytes from `offset` on, of a
/// payload in pieces. Reads and writes none of that memory. REQUIRES: the range is not empty and within the
/// payload.
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

/// As gather(), try_gather() and scatter(), of a payload with a layout. REQUIRES: the range is not empty and
/// within the payload.
bool try_gather_layout(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept;
void gather_layout(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept;
void scatter_layout(const Payload& payload, std::size_t offset, std::span<const std::byte> part) noexcept;

/// Copies payload[offset, offset + out.size()) out; the caller keeps it in bounds.
inline void gather(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept {
  if (out.empty()) return;
  if (payload.layout == nullptr) {
    ch3_offload_copy(out.data(), payload.address + offset, out.size());
  } else {
    gather_layout(payload, offset, out);
  }
}

/// As gather(). False: the bytes are not here yet (FetchedLayout), and `out` holds nothing.
[[nodiscard]] inline bool try_gather(const Payload& payload, std::size_t offset,
                                     std::span<std::byte> out) noexcept {
  if (payload.layout != nullptr && !out.empty()) return try_gather_layout(payload, offset, out);
  gather(payload, offset, out);
  return true;
}

/// Copies `part` into the payload at `offset`; what is beyond its capacity is dropped.
inline void scatter(const Payload& payload, std::size_t offset, std::span<const std::byte> part) noexcept {
  if (offset >= payload.length_bytes || part.empty()) return;
  const auto fitting = part.first(std::min(part.size(), payload.length_bytes - offset));
  if (payload.layout == nullptr) [[likely]] {
    ch3_offload_copy(payload.address + offset, fitting.data(), fitting.size());
  } else {
    scatter_layout(payload, offset, fitting);
  }
}

/// How much of a payload goes into its next slot: all that fits, or whole pages if these take 63 of 64 bytes
/// of the room. Then each part is as far from its place in its slot, modulo a page, as the first part is from
/// its own (rdma/ch3_offload_copy.h).
inline std::size_t part_bytes(std::size_t max_slot_bytes, std::size_t header_bytes,
                              std::size_t remaining_bytes) noexcept {
  const std::size_t room = max_slot_bytes - header_bytes;
  if (remaining_bytes <= room) return remaining_bytes;
  const std::size_t beyond_page = room % CH3_OFFLOAD_COPY_PAGE_BYTES;
  return beyond_page < room / 64 ? room - beyond_page : room;
}

/// Copies `length` bytes of the payloads from `offset` on. Only payloads without a layout may overlap.
/// Returns how many it has copied. These are fewer if the next ones are not here yet (FetchedLayout): the
/// caller then goes on from there later. REQUIRES: they are within both.
[[nodiscard]] std::size_t copy_range(const Payload& from, const Payload& to, std::size_t offset,
                                     std::size_t length) noexcept;

}  // namespace ch3_offload
