#include "ch3_offload/partitions.h"

#include <algorithm>
#include <numeric>

namespace ch3_offload {

std::uint64_t cut_partitions(std::uint64_t bytes, std::uint64_t partition_bytes,
                             std::uint64_t element_bytes) noexcept {
  if (bytes == 0) return 0;
  // The least common multiple divides `bytes`, so that it cannot overflow.
  const std::uint64_t unit = std::lcm(partition_bytes, element_bytes);
  const std::uint64_t units = bytes / unit;
  const auto up = [](std::uint64_t value, std::uint64_t divisor) {
    return value / divisor + (value % divisor != 0);
  };
  const std::uint64_t units_each =
      std::max(up(kLeastPartitionedMessageBytes, unit), up(units, kMostPartitionedMessages));
  return std::min(units_each, units) * unit;
}

}  // namespace ch3_offload
