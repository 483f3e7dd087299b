// A clock that costs a few cycles to read. It tells that about 2 or 20 microseconds have passed, nothing
// finer.

#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ch3_offload {

class CycleClock {
 public:
#if defined(__x86_64__)
  static std::uint64_t now() noexcept { return __rdtsc(); }
  /// In ticks of now(). 13 to 33 microseconds on processors whose counter runs at 1.5 to 4 GHz.
  static constexpr std::uint64_t kAbout20Microseconds = 50'000;
#else
  static std::uint64_t now() noexcept {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }
  static constexpr std::uint64_t kAbout20Microseconds = 20'000;
#endif
  static constexpr std::uint64_t kAbout2Microseconds = kAbout20Microseconds / 10;
};

}  // namespace ch3_offload
