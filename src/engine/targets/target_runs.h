// Runs of a target's memory, of equal length and distance, that one operation uses.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ch3_offload {

struct TargetRuns {
  std::uint64_t block_bytes = 0;   ///< Of each run. 0: the memory is one run, and the stride means nothing.
  std::uint64_t stride_bytes = 0;  ///< From one run's beginning to the next one's.

  bool are_many() const noexcept { return block_bytes != 0; }

  /// From the first byte to the last, of runs that hold `length_bytes`. 0: they hold no whole number of runs,
  /// or none, the runs overlap, or no memory is so long.
  std::uint64_t span_bytes(std::uint64_t length_bytes) const noexcept {
    constexpr std::uint64_t kLongest = UINT64_MAX / 2;
    if (block_bytes == 0 || stride_bytes < block_bytes || stride_bytes > kLongest || length_bytes == 0 ||
        length_bytes % block_bytes != 0)
      return 0;
    const std::uint64_t others = length_bytes / block_bytes - 1;
    if (others > (kLongest - block_bytes) / stride_bytes) return 0;
    return others * stride_bytes + block_bytes;
  }

  /// Calls `move` with each run, or part of one, that holds some of the `length_bytes` of data from
  /// `offset_bytes` on: where it begins, from the first run's beginning, and how long it is.
  template <class Move>
  void for_each(std::size_t offset_bytes, std::size_t length_bytes, Move move) const noexcept {
    std::size_t run = offset_bytes / block_bytes * stride_bytes;
    std::size_t skipped = offset_bytes % block_bytes;
    for (; length_bytes > 0; run += stride_bytes, skipped = 0) {
      const std::size_t part = std::min<std::size_t>(block_bytes - skipped, length_bytes);
      move(run + skipped, part);
      length_bytes -= part;
    }
  }
};

}  // namespace ch3_offload
