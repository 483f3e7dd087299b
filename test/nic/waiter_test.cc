// The one wait, over things that a test scripts: when it pauses, announces, looks again and sleeps.

#include "nic/waiter.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "nic/short_wait.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {
namespace waiter_test {

using Step = WaitPolicy::Step;

/// A sleeper and its waker in one thread. The waker publishes work at the call of the sleeper that the test
/// names, and rings if a sleep is announced.
class Things {
 public:
  std::size_t turn() noexcept {
    pass();
    const std::size_t found = work;
    work = 0;
    return found;
  }
  Step arm() noexcept {
    EXPECT_FALSE(is_armed);
    pass();
    is_armed = refusal == Step::kSleep;
    if (is_armed) ++armings;
    return refusal;
  }
  void disarm() noexcept {
    EXPECT_TRUE(is_armed);
    pass();
    is_armed = false;
  }
  void look() noexcept { ++looks; }
  void pause(Step step) noexcept {
    EXPECT_FALSE(is_armed);
    pass();
    pauses.push_back(step);
  }
  void sleep(SleepSet& set) noexcept {
    EXPECT_TRUE(is_armed);
    EXPECT_EQ(set.size(), 0U) << "what ended the last sleep";
    pass();
    set.add(bell.get());
    if (work == 0 || is_rung) ++sleeps;
    EXPECT_TRUE(work == 0 || is_rung) << "a lost wake-up";
  }

  std::size_t calls = 0;
  std::size_t publishes_at = SIZE_MAX;
  std::size_t work = 0;
  bool is_armed = false, is_rung = false;
  Step refusal = Step::kSleep;  ///< What arm() returns.
  int looks = 0, armings = 0, sleeps = 0;
  std::vector<Step> pauses;
  const FileDescriptor bell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

 private:
  void pass() noexcept {
    if (calls++ != publishes_at) return;
    ++work;
    is_rung = is_armed;
  }
};

TEST(Waiter, WorkIsFoundWhereverItComes) {
  // The calls of two rounds that sleep: turn, arm, turn, sleep, disarm.
  for (std::size_t when = 0; when < 10; ++when) {
    Things things;
    things.publishes_at = when;
    Waiter waiter(short_wait());
    waiter.begin();
    for (int round = 0; round < 4; ++round) waiter.round(things);
    EXPECT_GT(things.calls, when);
    EXPECT_EQ(things.work, 0U) << when;
    EXPECT_FALSE(things.is_armed);
    EXPECT_EQ(things.sleeps, things.armings - (when % 5 == 2 || when % 5 == 1 ? 1 : 0)) << when;
  }
}

TEST(Waiter, WhoeverCannotBeArmedSaysWhatIsDoneInstead) {
  Things things;
  Waiter waiter(short_wait());
  waiter.begin();
  for (const Step refusal : {Step::kPoll, Step::kYield}) {
    things.refusal = refusal;
    EXPECT_EQ(waiter.next(things), refusal);
    waiter.round(things);
  }
  EXPECT_EQ(things.pauses, (std::vector<Step>{Step::kPoll, Step::kYield}));
  EXPECT_EQ(things.sleeps, 0);
}

TEST(Waiter, WhoeverTakesStepsSleepsByItself) {
  Things things;
  Waiter waiter(short_wait());
  waiter.begin();
  ASSERT_EQ(waiter.next(things), Step::kSleep);
  EXPECT_TRUE(things.is_armed);
  EXPECT_EQ(things.calls, 1U);
  waiter.end_sleep(things);
  EXPECT_FALSE(things.is_armed);
}

std::uint64_t steps_ns = 0;

/// The clock passes a microsecond with each look at it.
TEST(Waiter, PausesBeforeItSleepsAndLooksWherePeersAre) {
  constexpr auto kNothing = []() noexcept { return std::uint64_t{0}; };
  const WaitPolicy policy(100, 2, {4, 4}, {[]() noexcept { return steps_ns += 1000; }, kNothing, kNothing});
  Things things;
  Waiter waiter(policy);
  waiter.begin();
  while (things.sleeps == 0 && things.calls < 10'000) waiter.round(things);
  EXPECT_EQ(things.sleeps, 1);
  EXPECT_GE(things.looks, 1);
  EXPECT_NE(std::ranges::find(things.pauses, Step::kPoll), things.pauses.end());
  EXPECT_NE(std::ranges::find(things.pauses, Step::kYield), things.pauses.end());
  EXPECT_EQ(std::ranges::find(things.pauses, Step::kLook), things.pauses.end());
  EXPECT_FALSE(waiter.is_crowded());
  waiter.begin({100, 8, {4, 4}, {[]() noexcept { return steps_ns += 1000; }, kNothing, kNothing}});
  EXPECT_TRUE(waiter.is_crowded());
}

TEST(SleepSet, EndsByADescriptorOrByTime) {
  const FileDescriptor first(eventfd(0, EFD_CLOEXEC)), second(eventfd(0, EFD_CLOEXEC));
  SleepSet set;
  set.add(-1);
  EXPECT_EQ(set.size(), 0U);
  EXPECT_EQ(set.due_ns(), UINT64_MAX);
  EXPECT_FALSE(set.sleep(0)) << "nothing to wait for, and no time";
  set.add(first.get());
  set.add(second.get());
  set.end_after(UINT64_MAX);
  set.end_after(2'000'000);
  set.end_after(60'000'000'000);
  EXPECT_FALSE(set.sleep()) << "it was due";
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(second.get(), &one, sizeof one), 8);
  EXPECT_FALSE(set.sleep(60'000)) << "it is not the first";
  ASSERT_EQ(::write(first.get(), &one, sizeof one), 8);
  set.clear();
  set.add(first.get());
  EXPECT_EQ(set.due_ns(), UINT64_MAX);
  EXPECT_TRUE(set.sleep());
}

}  // namespace waiter_test
}  // namespace ch3_offload
