// Spin, then sleep: how long a waiting process polls before it sleeps.
//
// The spin follows what paid off. A wait that ended while spinning, or soon after falling asleep, lets
// the next one spin longer; a wait that slept for long makes the next spin shorter, and hardly spins again itself
// (alarms of its own may cut it into many sleeps). Where processes
// outnumber cores, spinning keeps the awaited process from running, so the spin is next to nothing.
//
// Threads: one at a time.

#pragma once

#include <cstdint>

namespace ch3_offload {

/// Cores that the processes of this node share. At least 1.
std::uint32_t cores_of_node() noexcept;

class WaitPolicy {
 public:
  /// `longest_us`: the longest spin; -1: chosen here. `processes` share `cores` of this node
  /// (0 processes: unknown).
  WaitPolicy(std::int64_t longest_us, std::uint32_t processes, std::uint32_t cores) noexcept;

  /// A wait begins.
  void begin() noexcept;

  /// Polling found nothing: whether to sleep now. Reads the clock every few calls only.
  bool should_sleep(std::uint64_t (*now_ns)() noexcept) noexcept;

  /// Sleeping begins and ends at these times. REQUIRES: should_sleep() said so.
  void sleeps(std::uint64_t now_ns) noexcept { slept_at_ns_ = now_ns; }
  void wakes(std::uint64_t now_ns) noexcept;

  /// Something happened while spinning: the spin starts anew.
  void found() noexcept;

  std::uint64_t spin_ns() const noexcept { return spin_ns_; }

 private:
  void spin_anew() noexcept;

  static constexpr std::uint32_t kPollsPerClock = 16;

  const std::uint64_t longest_ns_;
  const std::uint64_t shortest_ns_;
  std::uint64_t spin_ns_;          ///< Of the next wait.
  std::uint64_t began_at_ns_ = 0;  ///< Of this spin; 0: no clock was read yet.
  std::uint64_t slept_at_ns_ = 0;
  std::uint32_t polls_ = 0;  ///< Since the clock was read.
  bool slept_long_ = false;  ///< In this wait.
};

}  // namespace ch3_offload
