#include "nic/wait_policy.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ch3_offload {

namespace {

// A core of its own: polling costs nobody anything.
constexpr std::uint64_t kRoomyLongestNs = 20'000'000;
constexpr std::uint64_t kRoomyShortestNs = 5'000;
constexpr std::uint64_t kFirstYieldNs = 5'000;  // Most waits end before; a system call would only delay them.
constexpr std::uint64_t kLookAtOthersNs =
    1'000'000;                                   // How often the time of the process's other threads is read.
constexpr std::uint64_t kPeersLookNs = 100'000;  // A look reads a cache line of each peer of the node.

// Processes outnumber cores: a turn takes about a microsecond for each process on the core.
constexpr std::uint64_t kCrowdedNs = 50'000;
constexpr std::uint32_t kFewestTurns = 8;

// The core is not given away. A sleep and its wake-up cost some microseconds on each side: below kSoon after
// falling asleep, polling on would have been better.
constexpr std::uint64_t kWaryRoomyNs = 1'000'000;
constexpr std::uint64_t kWaryCrowdedNs = 500;  // A handful of polls.
constexpr std::uint64_t kSoonNs = 20'000;

constexpr std::uint32_t kPollsPerClock = 16;

// "SLOW TURN". Other waiting processes hold the core for microseconds each, a program that computes for
// the rest of its time slice: some milliseconds.
constexpr std::uint64_t kSlowTurnNs = 1'000'000;
// "IDLE TURN". Whoever we waited for needed our core, if he was done in this time after we had gone to sleep.
constexpr std::uint64_t kShortSleepNs = 200'000;
// So many turns after which the message was there make up for one that was slow or idle.
constexpr std::uint32_t kDoubt = 16;
constexpr std::uint32_t kMostDoubt = 24;
// Short at first: a job that starts sees slow turns, too. Each relapse, which comes within kRelapseNs or
// within the last length of caution, doubles it.
constexpr std::uint64_t kWaryShortestNs = 20'000'000;
constexpr std::uint64_t kWaryLongestNs = 8'000'000'000;
constexpr std::uint64_t kRelapseNs = 500'000'000;

/// Cores that this process's other threads may use while one spins.
double spare_cores(std::uint32_t processes, Cores cores) noexcept {
  // Bound to one core: threads that share it show as slow turns, others are elsewhere.
  if (cores.of_process == 1) return std::numeric_limits<double>::infinity();
  const double share = static_cast<double>(cores.of_node) / std::max(processes, 1U);
  return std::max(std::min(share, static_cast<double>(cores.of_process)) - 1, 0.0);
}

}  // namespace

WaitPolicy::Spin WaitPolicy::willing(std::int64_t longest_us, bool is_crowded) noexcept {
  const std::uint64_t longest_ns = longest_us >= 0 ? static_cast<std::uint64_t>(longest_us) * 1000
                                   : is_crowded    ? kCrowdedNs
                                                   : kRoomyLongestNs;
  // Turns are cheap: where cores are shared there is nothing to adapt.
  const std::uint64_t shortest_ns = is_crowded ? longest_ns : std::min(longest_ns, kRoomyShortestNs);
  return {longest_ns, shortest_ns, std::max(longest_ns, kSoonNs), is_crowded ? kWaryCrowdedNs : shortest_ns,
          longest_ns};
}

WaitPolicy::Spin WaitPolicy::wary(std::int64_t longest_us, bool is_crowded) noexcept {
  const std::uint64_t longest_ns = longest_us >= 0 ? static_cast<std::uint64_t>(longest_us) * 1000
                                   : is_crowded    ? kWaryCrowdedNs
                                                   : kWaryRoomyNs;
  const std::uint64_t shortest_ns = std::min(longest_ns, kRoomyShortestNs);
  return {longest_ns, shortest_ns, kSoonNs, shortest_ns, longest_ns};
}

WaitPolicy::WaitPolicy(std::int64_t longest_us, std::uint32_t processes, Cores cores, Clocks clocks) noexcept
    : clocks_(clocks),
      is_crowded_(processes > cores.of_node),
      may_part_(!is_crowded_ && cores.of_process > 1),
      spare_cores_(spare_cores(processes, cores)),
      spin_(willing(longest_us, is_crowded_)),
      wary_spin_(wary(longest_us, is_crowded_)) {}

void WaitPolicy::begin() noexcept {
  slept_long_ = false;
  spin_anew();
}

void WaitPolicy::spin_anew() noexcept {
  began_at_ns_ = 0;
  yielded_at_ns_ = 0;
  looked_at_ns_ = 0;
  polls_ = 0;
  turns_ = 0;
}

WaitPolicy::Step WaitPolicy::next() noexcept {
  if (spin_.longest_ns == 0) return Step::kSleep;
  const bool reads_clock = began_at_ns_ == 0 || yielded_at_ns_ != 0 || ++polls_ >= kPollsPerClock;
  if (!reads_clock) return Step::kPoll;
  polls_ = 0;
  return next_at(clocks_.now_ns());
}

WaitPolicy::Step WaitPolicy::next_at(std::uint64_t now_ns) noexcept {
  if (began_at_ns_ == 0) {
    began_at_ns_ = now_ns;
    if (is_wary_ && now_ns >= wary_until_ns_) is_wary_ = false;
  }
  if (yielded_at_ns_ != 0 && end_turn(now_ns, false)) return Step::kSleep;

  const std::uint64_t spun_ns = now_ns - began_at_ns_;
  if (may_part_ && spun_ns >= kFirstYieldNs && now_ns >= looks_at_ns_) {
    looks_at_ns_ = now_ns + kPeersLookNs;
    polls_ = kPollsPerClock;  // The look takes time: the next step reads the clock.
    return Step::kLook;
  }
  const bool is_spent = spun_ns >= (slept_long_ ? spin().again_ns : spin().now_ns);
  if (is_wary_) return is_spent ? Step::kSleep : Step::kPoll;
  if (is_crowded_) {
    if (is_spent && (slept_long_ || turns_ >= kFewestTurns)) return Step::kSleep;
  } else {
    if (is_spent || others_need_the_core(now_ns)) return Step::kSleep;
    if (spun_ns < kFirstYieldNs) return Step::kPoll;
  }
  ++turns_;
  ++turns_before_;
  yielded_at_ns_ = now_ns;
  return Step::kYield;
}

/// The turn that we gave away is over, and a poll after it has `found` something or not. True: it was a
/// slow one.
/// "SLOW TURN".
bool WaitPolicy::end_turn(std::uint64_t now_ns, bool found) noexcept {
  const std::uint64_t took_ns = now_ns - std::exchange(yielded_at_ns_, 0);
  const bool is_slow = took_ns >= kSlowTurnNs;
  if (found && is_slow)
    doubt(now_ns);
  else if (found && doubt_ > 0)
    --doubt_;
  return is_slow;
}

/// A turn did harm. After some of them, the core is not given away for a while.
void WaitPolicy::doubt(std::uint64_t now_ns) noexcept {
  doubt_ += kDoubt;
  if (doubt_ <= kMostDoubt) return;
  doubt_ = 0;
  const std::uint64_t passed_ns = now_ns - wary_until_ns_;
  const bool is_relapse = wary_length_ns_ != 0 && passed_ns < std::max(wary_length_ns_, kRelapseNs);
  wary_length_ns_ = is_relapse ? std::min(2 * wary_length_ns_, kWaryLongestNs) : kWaryShortestNs;
  wary_until_ns_ = now_ns + wary_length_ns_;
  is_wary_ = true;
}

/// "IDLE TURN": whether nobody else ran in most turns since this was asked last.
bool WaitPolicy::turns_were_idle() noexcept {
  const std::uint64_t switches = clocks_.switches();
  const std::uint64_t others_ran = switches - std::exchange(switches_before_, switches);
  return others_ran < std::exchange(turns_before_, 0) / 4;
}

/// Whether other threads of this process are so busy that they need this thread's core.
bool WaitPolicy::others_need_the_core(std::uint64_t now_ns) noexcept {
  if (looked_at_ns_ == 0 && now_ns - began_at_ns_ < kLookAtOthersNs) return false;
  const std::uint64_t passed_ns = now_ns - looked_at_ns_;
  if (passed_ns < kLookAtOthersNs) return false;
  const std::uint64_t others_ns = clocks_.others_ns();
  const std::uint64_t before_ns = std::exchange(others_at_ns_, others_ns);
  const std::uint64_t used_ns =
      others_ns - std::min(before_ns, others_ns);               // A difference of two clocks: it may fall.
  if (std::exchange(looked_at_ns_, now_ns) == 0) return false;  // The first look: nothing to compare with.
  constexpr double kHalfACore = 0.5;
  return static_cast<double>(used_ns) > (spare_cores_ + kHalfACore) * static_cast<double>(passed_ns);
}

void WaitPolicy::wakes() noexcept {
  const std::uint64_t now_ns = clocks_.now_ns();
  const std::uint64_t slept_ns = now_ns - slept_at_ns_;
  if (is_crowded_ && turns_ >= kFewestTurns && slept_ns < kShortSleepNs && turns_were_idle()) doubt(now_ns);
  Spin& its = spin();
  if (slept_ns < its.soon_ns)
    its.now_ns = std::min(std::max(its.now_ns, slept_ns) * 2 + 1, its.longest_ns);
  else if (!std::exchange(slept_long_, true))
    its.now_ns = std::max(its.now_ns / 2, its.shortest_ns);
  spin_anew();
}

void WaitPolicy::found() noexcept {
  slept_long_ = false;
  if (began_at_ns_ == 0) return;  // At once: nothing to learn.
  if (yielded_at_ns_ != 0) static_cast<void>(end_turn(clocks_.now_ns(), true));
  Spin& its = spin();
  its.now_ns = std::min(its.now_ns + its.now_ns / 8 + 1, its.longest_ns);
  spin_anew();
}

}  // namespace ch3_offload
