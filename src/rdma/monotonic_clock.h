// The clock of time-outs.

#pragma once

#include <chrono>
#include <cstdint>

namespace ch3_offload {

/// Nanoseconds since some moment; never goes back.
inline std::uint64_t monotonic_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

/// From `since_ns` to `now_ns`; 0 where that moment came after `now_ns` was read: one reading serves many.
constexpr std::uint64_t elapsed_ns(std::uint64_t now_ns, std::uint64_t since_ns) noexcept {
  return now_ns > since_ns ? now_ns - since_ns : 0;
}

}  // namespace ch3_offload
