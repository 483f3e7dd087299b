// Reads and writes payloads, one byte range of the message at a time.
//
// Of pieces, nothing is kept from one range to the next: ranges may come in any order. The client's functions
// (kPacked) keep a cursor in their context: each range begins where the one before it ended, or at 0.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "engine/engine.h"

namespace ch3_offload {

/// As gather() and scatter(), of a payload with a layout. REQUIRES: the range is not empty and within the
/// payload.
void gather_layout(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept;
void scatter_layout(const Payload& payload, std::size_t offset, std::span<const std::byte> part) noexcept;

/// Copies payload[offset, offset + out.size()) out; the caller keeps it in bounds.
inline void gather(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept {
  if (out.empty()) return;
  if (payload.layout == nullptr) {
    std::memcpy(out.data(), payload.address + offset, out.size());
  } else {
    gather_layout(payload, offset, out);
  }
}

/// Copies `part` into the payload at `offset`; what is beyond its capacity is dropped.
inline void scatter(const Payload& payload, std::size_t offset, std::span<const std::byte> part) noexcept {
  if (offset >= payload.length_bytes || part.empty()) return;
  const auto fitting = part.first(std::min(part.size(), payload.length_bytes - offset));
  if (payload.layout == nullptr) [[likely]] {
    std::memcpy(payload.address + offset, fitting.data(), fitting.size());
  } else {
    scatter_layout(payload, offset, fitting);
  }
}

}  // namespace ch3_offload
