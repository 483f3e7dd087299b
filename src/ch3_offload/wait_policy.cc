#include "ch3_offload/wait_policy.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ch3_offload {

namespace {

// A sleep and its wake-up cost some microseconds on each side: below kSoon after falling asleep, spinning
// on would have been better.
constexpr std::uint64_t kSoonNs = 20'000;
constexpr std::uint64_t kRoomyLongestNs = 1'000'000;  // Every process has a core.
constexpr std::uint64_t kRoomyShortestNs = 5'000;
constexpr std::uint64_t kCrowdedNs = 500;  // Processes outnumber cores: a handful of polls.

std::uint64_t longest(std::int64_t longest_us, std::uint32_t processes, std::uint32_t cores) noexcept {
  if (longest_us >= 0) return static_cast<std::uint64_t>(longest_us) * 1000;
  return processes > cores ? kCrowdedNs : kRoomyLongestNs;
}

/// Processors a process may run on; 0: cannot tell.
int usable_cores(pid_t process) noexcept {
  cpu_set_t set;
  return sched_getaffinity(process, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

std::uint32_t cores_of_node() noexcept {
  // Launchers often bind each process to cores of its own, but not themselves: their cores are the job's.
  constexpr pid_t kSelf = 0;
  return static_cast<std::uint32_t>(std::max({usable_cores(kSelf), usable_cores(getppid()), 1}));
}

WaitPolicy::WaitPolicy(std::int64_t longest_us, std::uint32_t processes, std::uint32_t cores) noexcept
    : longest_ns_(longest(longest_us, processes, cores)),
      shortest_ns_(std::min(longest_ns_, kRoomyShortestNs)),
      spin_ns_(longest_ns_) {}

void WaitPolicy::begin() noexcept {
  slept_long_ = false;
  spin_anew();
}

void WaitPolicy::spin_anew() noexcept {
  began_at_ns_ = 0;
  polls_ = 0;
}

bool WaitPolicy::should_sleep(std::uint64_t (*now_ns)() noexcept) noexcept {
  if (longest_ns_ == 0) return true;
  if (began_at_ns_ != 0 && ++polls_ < kPollsPerClock) return false;
  polls_ = 0;
  const std::uint64_t now = now_ns();
  if (began_at_ns_ == 0) began_at_ns_ = now;
  return now - began_at_ns_ >= (slept_long_ ? shortest_ns_ : spin_ns_);
}

void WaitPolicy::wakes(std::uint64_t now_ns) noexcept {
  const std::uint64_t slept_ns = now_ns - slept_at_ns_;
  if (slept_ns < kSoonNs)
    spin_ns_ = std::min(spin_ns_ * 2 + 1, longest_ns_);
  else if (!std::exchange(slept_long_, true))
    spin_ns_ = std::max(spin_ns_ / 2, shortest_ns_);
  spin_anew();
}

void WaitPolicy::found() noexcept {
  slept_long_ = false;
  if (began_at_ns_ == 0) return;  // At once: nothing to learn.
  spin_ns_ = std::min(spin_ns_ + spin_ns_ / 8 + 1, longest_ns_);
  spin_anew();
}

}  // namespace ch3_offload
