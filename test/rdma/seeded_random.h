// Random numbers that are the same on every machine and library: splitmix64 (Steele, Lea, Flood 2014).
//
// std::mt19937_64 would do, but its distributions differ between standard libraries and its state is
// 2.5 KiB. Used by the fake provider, the simulation and the unit tests.

#pragma once

#include <cstddef>
#include <cstdint>

namespace ch3_offload {

/// One round of splitmix64: spreads a counter over 64 bits.
constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
  value += 0x9E37'79B9'7F4A'7C15U;
  value = (value ^ value >> 30) * 0xBF58'476D'1CE4'E5B9U;
  value = (value ^ value >> 27) * 0x94D0'49BB'1331'11EBU;
  return value ^ value >> 31;
}

class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed) noexcept : state_(mix64(seed)) {}

  std::uint64_t next() noexcept {
    const std::uint64_t result = mix64(state_);
    state_ += 0x9E37'79B9'7F4A'7C15U;
    return result;
  }
  /// 0 .. bound - 1. REQUIRES: bound is not 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }
  /// least .. most, both possible.
  std::uint64_t between(std::uint64_t least, std::uint64_t most) noexcept {
    return least + below(most - least + 1);
  }
  bool chance(double probability) noexcept {
    return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
  }

 private:
  std::uint64_t state_;
};

}  // namespace ch3_offload
