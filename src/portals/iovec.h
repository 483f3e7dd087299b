// Arrays of ptl_iovec_t as pieces of the engine, with addresses for offsets.
//
// Threads: any. Reads the array only.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "portals/portals4.h"

namespace ch3_offload::portals {

// The two are the same bytes; only the type of the address differs.
static_assert(sizeof(Piece) == sizeof(ptl_iovec_t) && sizeof(std::ptrdiff_t) == sizeof(void*) &&
              offsetof(Piece, length_bytes) == offsetof(ptl_iovec_t, iov_len));

/// The array itself. A piece may be empty.
inline const Piece* pieces_of(const void* array) noexcept { return static_cast<const Piece*>(array); }

/// The length of all parts together. Nothing: there is no array, or the sum does not fit.
inline std::optional<std::uint64_t> length_of_iovec(const void* array, std::size_t count) noexcept {
  if (array == nullptr && count > 0) return std::nullopt;
  const auto* const parts = static_cast<const ptl_iovec_t*>(array);
  std::uint64_t length_bytes = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (__builtin_add_overflow(length_bytes, parts[i].iov_len, &length_bytes)) return std::nullopt;
  return length_bytes;
}

}  // namespace ch3_offload::portals
