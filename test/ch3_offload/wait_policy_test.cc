#include "ch3_offload/wait_policy.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

std::uint64_t clock_ns = 1'000'000;
std::uint64_t now() noexcept { return clock_ns; }

/// Polls in vain until the policy says sleep; returns how long that took, at `step_ns` a poll.
std::uint64_t spin_out(WaitPolicy& policy, std::uint64_t step_ns = 100) {
  const std::uint64_t began = clock_ns;
  policy.begin();
  while (!policy.should_sleep(now)) clock_ns += step_ns;
  return clock_ns - began;
}

/// In a wait of its own.
void sleep_for(WaitPolicy& policy, std::uint64_t length_ns) {
  policy.begin();
  policy.sleeps(clock_ns);
  clock_ns += length_ns;
  policy.wakes(clock_ns);
}

TEST(WaitPolicy, SpinsAtLeastItsSpinBeforeItSleeps) {
  WaitPolicy policy(50, 2, 4);
  EXPECT_GE(spin_out(policy), 50'000U);
}

TEST(WaitPolicy, ZeroMeansSleepAtOnce) {
  WaitPolicy policy(0, 2, 4);
  EXPECT_TRUE(policy.should_sleep(now));
}

TEST(WaitPolicy, LongSleepsShortenTheSpin) {
  WaitPolicy policy(-1, 2, 4);
  const std::uint64_t first = spin_out(policy);
  for (int i = 0; i < 20; ++i) sleep_for(policy, 10'000'000);
  EXPECT_LT(spin_out(policy), first / 10);
}

TEST(WaitPolicy, AWaitCutIntoManySleepsCountsOnce) {
  WaitPolicy policy(-1, 2, 4);
  const std::uint64_t first = policy.spin_ns();
  policy.begin();
  for (int i = 0; i < 20; ++i) {
    policy.sleeps(clock_ns);
    clock_ns += 10'000'000;
    policy.wakes(clock_ns);
    const std::uint64_t woke = clock_ns;
    while (!policy.should_sleep(now)) clock_ns += 100;
    EXPECT_LT(clock_ns - woke, first / 100) << "it does not spin in full after each";
  }
  EXPECT_EQ(policy.spin_ns(), first / 2);
  EXPECT_GE(spin_out(policy), first / 2) << "the next wait does";
}

TEST(WaitPolicy, ShortSleepsLengthenTheSpinAgain) {
  WaitPolicy policy(-1, 2, 4);
  for (int i = 0; i < 20; ++i) sleep_for(policy, 10'000'000);
  const std::uint64_t shortened = policy.spin_ns();
  for (int i = 0; i < 20; ++i) sleep_for(policy, 1'000);
  EXPECT_GT(policy.spin_ns(), shortened * 10);
}

TEST(WaitPolicy, SpinThatPaidOffGrowsUpToTheLongest) {
  WaitPolicy policy(100, 2, 4);
  for (int i = 0; i < 20; ++i) sleep_for(policy, 10'000'000);
  for (int i = 0; i < 1000; ++i) {
    policy.begin();
    (void)policy.should_sleep(now);
    policy.found();
  }
  EXPECT_EQ(policy.spin_ns(), 100'000U);
}

TEST(WaitPolicy, CrowdedNodesHardlySpin) {
  WaitPolicy crowded(-1, 8, 2);
  WaitPolicy roomy(-1, 2, 2);
  EXPECT_LT(crowded.spin_ns() * 100, roomy.spin_ns());
}

}  // namespace
}  // namespace ch3_offload
