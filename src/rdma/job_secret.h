// A secret that all processes of a job share. It is distributed through the process manager.

#pragma once

#include <array>
#include <cstddef>

namespace ch3_offload {

using JobSecret = std::array<std::byte, 16>;

/// Compares two secrets in a time that does not depend on their bytes.
inline bool equal_in_constant_time(const JobSecret& one, const JobSecret& other) noexcept {
  std::byte difference{};
  for (std::size_t i = 0; i < one.size(); ++i) difference |= one[i] ^ other[i];
  return difference == std::byte{};
}

}  // namespace ch3_offload
