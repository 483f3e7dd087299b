// The clock of time-outs.

#pragma once

#include <chrono>
#include <cstdint>

namespace ch3_offload {

/// Nanoseconds since some moment; never goes back.
inline std::uint64_t monotonic_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

}  // namespace ch3_offload
