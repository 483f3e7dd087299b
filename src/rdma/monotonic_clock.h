// The clock for time-outs.

#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>

namespace ch3_offload {

/// Nanoseconds since an arbitrary moment. Never decreases.
inline std::uint64_t monotonic_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

/// Time from `since_ns` to `now_ns`. Returns 0 if `since_ns` is later, which happens when a caller reads the
/// clock once, as `now_ns`, and then compares it with moments that were taken after that reading.
constexpr std::uint64_t elapsed_ns(std::uint64_t now_ns, std::uint64_t since_ns) noexcept {
  return now_ns > since_ns ? now_ns - since_ns : 0;
}

/// A time of poll(2), rounded up, so that what is due then is due. -1, without end: UINT64_MAX.
constexpr int poll_ms(std::uint64_t due_ns) noexcept {
  if (due_ns == UINT64_MAX) return -1;
  return static_cast<int>(std::min<std::uint64_t>(due_ns / 1'000'000 + 1, INT_MAX));
}

}  // namespace ch3_offload
