#include "nic/wait_policy.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace wait_policy_test {

using Step = WaitPolicy::Step;

constexpr std::uint64_t kMicrosecond = 1000;
constexpr std::uint64_t kMillisecond = 1000 * kMicrosecond;

// The simulated machine. A poll takes `poll_ns_`, a turn of the others on our core `turn_ns_`, and meanwhile
// other threads of the process use `others_share_` cores.
std::uint64_t clock_ns;
std::uint64_t others_ns;
std::uint64_t switches;

class Waiting : public testing::Test {
 protected:
  Waiting() {
    clock_ns = kMillisecond;
    others_ns = 0;
    switches = 0;
  }

  static constexpr WaitPolicy::Clocks kClocks{[]() noexcept { return clock_ns; },
                                              []() noexcept { return others_ns; },
                                              []() noexcept { return switches; }};

  /// `processes` on `cores` of a node, unbound.
  static WaitPolicy policy(std::int64_t longest_us, std::uint32_t processes, std::uint32_t cores) {
    return WaitPolicy(longest_us, processes, {cores, cores}, kClocks);
  }

  void pass(std::uint64_t length_ns) const {
    clock_ns += length_ns;
    others_ns += static_cast<std::uint64_t>(others_share_ * static_cast<double>(length_ns));
  }

  void give_core_away() const {
    pass(turn_ns_);
    if (someone_runs_) ++switches;
  }

  /// Polls in vain until the policy says sleep; returns how long that took.
  std::uint64_t poll_out(WaitPolicy& policy) {
    const std::uint64_t began_ns = clock_ns;
    for (;;) {
      switch (policy.next()) {
        case Step::kPoll: break;
        case Step::kLook: ++looks_; break;
        case Step::kYield:
          ++yields_;
          give_core_away();
          break;
        case Step::kSleep: return clock_ns - began_ns;
      }
      pass(poll_ns_);
    }
  }

  /// A wait that finds nothing before it sleeps.
  std::uint64_t spin_out(WaitPolicy& policy) {
    yields_ = 0;
    looks_ = 0;
    policy.begin();
    return poll_out(policy);
  }

  /// In a wait of its own.
  void sleep_for(WaitPolicy& policy, std::uint64_t length_ns) {
    policy.begin();
    policy.sleeps();
    pass(length_ns);
    policy.wakes();
  }

  /// A wait whose message is there after the first turn.
  void find_after_turn(WaitPolicy& policy) {
    policy.begin();
    if (policy.next() == Step::kYield) give_core_away();
    policy.found();
  }

  std::uint64_t poll_ns_ = 100;
  std::uint64_t turn_ns_ = kMicrosecond;
  double others_share_ = 0;
  bool someone_runs_ = true;
  std::uint32_t yields_ = 0;
  std::uint32_t looks_ = 0;
};

TEST_F(Waiting, OnItsOwnCoreItLooksNowAndThenWhetherSomebodyHasCome) {
  WaitPolicy roomy = policy(-1, 2, 2);
  const std::uint64_t waited_us = spin_out(roomy) / kMicrosecond;
  EXPECT_GE(looks_, waited_us / 200);
  EXPECT_LE(looks_, waited_us / 100 + 1);
}

TEST_F(Waiting, TheFirstLookComesBeforeTheFirstTurn) {
  WaitPolicy roomy = policy(-1, 2, 2);
  roomy.begin();
  Step step = Step::kPoll;
  while ((step = roomy.next()) == Step::kPoll) pass(poll_ns_);
  EXPECT_EQ(step, Step::kLook);
}

TEST_F(Waiting, WhoHasNoCoreToGoToDoesNotLook) {
  WaitPolicy crowded = policy(500, 8, 4);
  spin_out(crowded);
  EXPECT_EQ(looks_, 0u);
  WaitPolicy bound(500, 2, {2, 1}, kClocks);
  spin_out(bound);
  EXPECT_EQ(looks_, 0u);
}

TEST_F(Waiting, PollsAtLeastItsTimeBeforeItSleeps) {
  WaitPolicy roomy = policy(50, 2, 4);
  EXPECT_GE(spin_out(roomy), 50 * kMicrosecond);
  WaitPolicy crowded = policy(500, 8, 4);
  EXPECT_GE(spin_out(crowded), 500 * kMicrosecond);
}

TEST_F(Waiting, ZeroMeansSleepAtOnce) {
  WaitPolicy roomy = policy(0, 2, 4);
  EXPECT_EQ(roomy.next(), Step::kSleep);
  WaitPolicy crowded = policy(0, 8, 4);
  EXPECT_EQ(crowded.next(), Step::kSleep);
}

TEST_F(Waiting, OnItsOwnCoreItOutwaitsAPartnerThatIsMillisecondsLate) {
  WaitPolicy roomy = policy(-1, 2, 2);
  EXPECT_GE(spin_out(roomy), 10 * kMillisecond);
}

TEST_F(Waiting, OnItsOwnCoreShortWaitsMakeNoSystemCall) {
  WaitPolicy roomy = policy(-1, 2, 2);
  roomy.begin();
  for (std::uint64_t waited_ns = 0; waited_ns < 4 * kMicrosecond; waited_ns += poll_ns_) {
    EXPECT_EQ(roomy.next(), Step::kPoll);
    pass(poll_ns_);
  }
}

TEST_F(Waiting, OnItsOwnCoreLongWaitsLetOtherThreadsRun) {
  WaitPolicy roomy = policy(-1, 2, 2);
  const std::uint64_t took_ns = spin_out(roomy);
  EXPECT_GE(yields_, took_ns / (10 * kMicrosecond));
}

TEST_F(Waiting, BusyThreadsOfTheProcessTakeTheCore) {
  others_share_ = 1;
  WaitPolicy two_cores_for_two = policy(-1, 2, 2);
  EXPECT_LT(spin_out(two_cores_for_two), 3 * kMillisecond);
  WaitPolicy four_cores_for_two = policy(-1, 2, 4);
  EXPECT_GE(spin_out(four_cores_for_two), 10 * kMillisecond) << "there is a core for the other thread";
  others_share_ = 2;
  EXPECT_LT(spin_out(four_cores_for_two), 3 * kMillisecond);
}

TEST_F(Waiting, ProcessorTimeOfOthersThatFallsALittleIsNoUse) {
  WaitPolicy roomy(-1, 2, {2, 2},
                   {[]() noexcept { return clock_ns; }, []() noexcept { return --others_ns; },
                    []() noexcept { return switches; }});
  others_ns = kMillisecond;
  EXPECT_GE(spin_out(roomy), 10 * kMillisecond);
}

TEST_F(Waiting, AThreadBoundToOneCoreLeavesOthersToTheirs) {
  others_share_ = 3;
  WaitPolicy bound(-1, 2, {8, 1}, kClocks);
  EXPECT_GE(spin_out(bound), 10 * kMillisecond);
}

TEST_F(Waiting, LongSleepsShortenThePolling) {
  WaitPolicy roomy = policy(-1, 2, 4);
  const std::uint64_t first = spin_out(roomy);
  for (int i = 0; i < 20; ++i) sleep_for(roomy, 100 * kMillisecond);
  EXPECT_LT(spin_out(roomy), first / 10);
}

TEST_F(Waiting, AWaitCutIntoManySleepsCountsOnce) {
  WaitPolicy roomy = policy(-1, 2, 4);
  const std::uint64_t first = roomy.spin_ns();
  roomy.begin();
  for (int i = 0; i < 20; ++i) {
    roomy.sleeps();
    pass(100 * kMillisecond);
    roomy.wakes();
    EXPECT_LT(poll_out(roomy), first / 100) << "it does not poll in full after each";
  }
  EXPECT_EQ(roomy.spin_ns(), first / 2);
  EXPECT_GE(spin_out(roomy), first / 2) << "the next wait does";
}

TEST_F(Waiting, SleepsThatPollingWouldHaveSavedLengthenItAgain) {
  WaitPolicy roomy = policy(-1, 2, 4);
  for (int i = 0; i < 20; ++i) sleep_for(roomy, 100 * kMillisecond);
  ASSERT_LT(roomy.spin_ns(), kMillisecond);
  sleep_for(roomy, 5 * kMillisecond);
  EXPECT_GE(roomy.spin_ns(), 5 * kMillisecond) << "one is enough";
}

TEST_F(Waiting, PollingThatPaidOffGrowsUpToTheLongest) {
  WaitPolicy roomy = policy(100, 2, 4);
  for (int i = 0; i < 20; ++i) sleep_for(roomy, 10 * kMillisecond);
  for (int i = 0; i < 1000; ++i) {
    roomy.begin();
    (void)roomy.next();
    roomy.found();
  }
  EXPECT_EQ(roomy.spin_ns(), 100 * kMicrosecond);
}

TEST_F(Waiting, WhereProcessesOutnumberCoresEachFruitlessPollGivesTheCoreAway) {
  WaitPolicy crowded = policy(-1, 8, 2);
  EXPECT_TRUE(crowded.is_crowded());
  crowded.begin();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(crowded.next(), Step::kYield);
    pass(turn_ns_ + poll_ns_);
  }
}

TEST_F(Waiting, WhereProcessesOutnumberCoresAWaitOfMillisecondsSleeps) {
  WaitPolicy crowded = policy(-1, 8, 2);
  for (int i = 0; i < 20; ++i) EXPECT_LT(spin_out(crowded), 100 * kMicrosecond);
  EXPECT_GE(spin_out(crowded), 50 * kMicrosecond) << "long waits do not change that";
}

TEST_F(Waiting, EveryoneOnTheCoreHasHadSomeTurnsBeforeItSleeps) {
  WaitPolicy crowded = policy(-1, 32, 2);
  turn_ns_ = 30 * kMicrosecond;
  (void)spin_out(crowded);
  EXPECT_GE(yields_, 4U);
  EXPECT_LT(yields_, 20U);
}

TEST_F(Waiting, AfterALongSleepItHardlyPollsAgain) {
  WaitPolicy crowded = policy(-1, 8, 2);
  (void)spin_out(crowded);
  crowded.sleeps();
  pass(kMillisecond);
  crowded.wakes();
  EXPECT_LT(poll_out(crowded), 10 * kMicrosecond);
}

TEST_F(Waiting, ASlowTurnThatFoundNothingEndsInASleep) {
  WaitPolicy crowded = policy(-1, 8, 2);
  turn_ns_ = 4 * kMillisecond;
  (void)spin_out(crowded);
  EXPECT_EQ(yields_, 1U);
  (void)spin_out(crowded);
  EXPECT_EQ(yields_, 1U) << "the next wait tries again";
}

TEST_F(Waiting, MessagesThatWaitedForSlowTurnsEndTheGivingAway) {
  WaitPolicy crowded = policy(-1, 8, 2);
  turn_ns_ = 4 * kMillisecond;
  const std::uint64_t began_ns = clock_ns;
  std::uint64_t lost_ns = 0;
  for (int i = 0; clock_ns - began_ns < 20'000 * kMillisecond; ++i) {
    ASSERT_LT(i, 1'000'000);
    const std::uint64_t wait_began_ns = clock_ns;
    find_after_turn(crowded);
    lost_ns += clock_ns - wait_began_ns;
    pass(50 * kMicrosecond);
  }
  EXPECT_LT(lost_ns, 20'000 * kMillisecond / 200) << "less than 0.5 % of the time";
}

TEST_F(Waiting, OneSlowTurnAmongQuickOnesChangesNothing) {
  WaitPolicy crowded = policy(-1, 8, 2);
  for (int phase = 0; phase < 100; ++phase) {
    turn_ns_ = 4 * kMillisecond;  // The others still compute.
    find_after_turn(crowded);
    turn_ns_ = kMicrosecond;
    for (int i = 0; i < 40; ++i) {
      crowded.begin();
      ASSERT_EQ(crowded.next(), Step::kYield);
      pass(turn_ns_);
      crowded.found();
    }
  }
}

TEST_F(Waiting, GivingAwayIsTriedAgainWhenTheOtherProgramIsGone) {
  WaitPolicy crowded = policy(-1, 8, 2);
  turn_ns_ = 4 * kMillisecond;
  for (int i = 0; i < 5; ++i) find_after_turn(crowded);
  crowded.begin();
  ASSERT_NE(crowded.next(), Step::kYield);
  pass(10'000 * kMillisecond);
  crowded.begin();
  EXPECT_EQ(crowded.next(), Step::kYield);
}

TEST_F(Waiting, AfterTheFirstSlowTurnsGivingAwayIsTriedAgainSoon) {
  WaitPolicy crowded = policy(-1, 8, 2);
  turn_ns_ = 4 * kMillisecond;
  for (int i = 0; i < 2; ++i) find_after_turn(crowded);
  crowded.begin();
  ASSERT_NE(crowded.next(), Step::kYield);
  pass(25 * kMillisecond);
  crowded.begin();
  EXPECT_EQ(crowded.next(), Step::kYield);
}

TEST_F(Waiting, SlowTurnsOfALongTimeSliceAreARelapse) {
  WaitPolicy crowded = policy(-1, 8, 2);
  turn_ns_ = 30 * kMillisecond;  // Longer than the first time of caution.
  const std::uint64_t began_ns = clock_ns;
  std::uint64_t lost_ns = 0;
  while (clock_ns - began_ns < 20'000 * kMillisecond) {
    const std::uint64_t wait_began_ns = clock_ns;
    find_after_turn(crowded);
    lost_ns += clock_ns - wait_began_ns;
    pass(50 * kMicrosecond);
  }
  EXPECT_LT(lost_ns, 20'000 * kMillisecond / 20);
}

TEST_F(Waiting, TurnsThatNobodyTakesEndTheGivingAway) {
  WaitPolicy crowded = policy(-1, 8, 2);
  someone_runs_ = false;
  std::uint32_t waits_with_turns = 0;
  for (int i = 0; i < 100; ++i) {
    (void)spin_out(crowded);
    waits_with_turns += yields_ != 0;
    crowded.sleeps();
    pass(20 * kMicrosecond);
    crowded.wakes();
  }
  EXPECT_LT(waits_with_turns, 10U);
}

TEST_F(Waiting, TurnsThatOthersTakeMayEndInShortSleeps) {
  WaitPolicy crowded = policy(-1, 8, 2);
  for (int i = 0; i < 100; ++i) {
    (void)spin_out(crowded);
    EXPECT_NE(yields_, 0U);
    crowded.sleeps();
    pass(20 * kMicrosecond);
    crowded.wakes();
  }
}

TEST_F(Waiting, AloneOnACoreItMayWaitLongForThoseOnOthers) {
  WaitPolicy crowded = policy(-1, 8, 2);
  someone_runs_ = false;
  for (int i = 0; i < 100; ++i) {
    (void)spin_out(crowded);
    EXPECT_NE(yields_, 0U);
    crowded.sleeps();
    pass(5 * kMillisecond);
    crowded.wakes();
  }
}

TEST_F(Waiting, BesideABusyProgramOnItsOwnCoreItPollsForAMillisecondAtMost) {
  WaitPolicy roomy = policy(-1, 2, 2);
  turn_ns_ = 4 * kMillisecond;
  for (int i = 0; i < 5; ++i) {
    roomy.begin();
    Step step = Step::kPoll;
    while ((step = roomy.next()) == Step::kPoll || step == Step::kLook) pass(poll_ns_);
    pass(turn_ns_);
    roomy.found();
  }
  EXPECT_LE(spin_out(roomy), kMillisecond + 10 * kMicrosecond);
  EXPECT_EQ(yields_, 0U);
}

}  // namespace wait_policy_test
}  // namespace ch3_offload
