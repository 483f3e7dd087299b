// What waits for counting events, and the order in which it becomes due.

#include "engine/targets/target_triggers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ch3_offload {
namespace {

class Triggers : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(triggers.prepare(4), Status::kOk); }

  /// An action with that number.
  static TriggeredAction numbered(std::uint64_t number) {
    return TargetCountChange{TargetCountChange::Kind::kSet, kNoCounter, {number, 0}};
  }
  Status try_add(std::size_t counter, std::uint64_t threshold, std::uint64_t number, std::uint64_t sum = 0) {
    return triggers.add(counter, sum, threshold, numbered(number));
  }
  void add(std::size_t counter, std::uint64_t threshold, std::uint64_t number, std::uint64_t sum = 0) {
    EXPECT_EQ(try_add(counter, threshold, number, sum), Status::kOk);
  }
  /// The numbers of what is due.
  std::vector<std::uint64_t> take() {
    std::vector<std::uint64_t> numbers;
    TriggeredAction action;
    while (triggers.take(action)) numbers.push_back(std::get<TargetCountChange>(action).amount.success);
    return numbers;
  }
  using Numbers = std::vector<std::uint64_t>;

  std::size_t due = 5;  ///< Others', too.
  TargetTriggers triggers{6, due};
};

TEST_F(Triggers, BecomeDueInTheOrderOfThresholdsThenOfCalls) {
  add(1, 5, 50);
  add(1, 3, 30);
  add(1, 5, 51);
  add(1, 3, 31);
  add(1, 9, 90);
  triggers.reached(1, 2);
  EXPECT_EQ(take(), Numbers{});
  triggers.reached(1, 5);
  EXPECT_EQ(due, 9u);
  EXPECT_EQ(take(), (Numbers{30, 31, 50, 51}));
  EXPECT_EQ(due, 5u);
  triggers.reached(1, 100);
  EXPECT_EQ(take(), Numbers{90});
}

TEST_F(Triggers, AThresholdThatIsReachedIsDueNow) {
  add(0, 7, 1, 8);
  add(0, 0, 2, 0);
  EXPECT_EQ(take(), (Numbers{1, 2}));
}

TEST_F(Triggers, WaitForTheirOwnCounterOnly) {
  add(0, 1, 1);
  add(3, 1, 2);
  triggers.reached(3, 1);
  EXPECT_EQ(take(), Numbers{2});
  triggers.reached(0, 1);
  EXPECT_EQ(take(), Numbers{1});
}

TEST_F(Triggers, AreBoundedWhetherTheyWaitOrAreDue) {
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(try_add(0, i % 2, i), Status::kOk);
  EXPECT_EQ(triggers.live(), 6u);
  EXPECT_EQ(try_add(0, 1, 6), Status::kNoMemory);
  EXPECT_EQ(try_add(0, 0, 6), Status::kNoMemory);
  EXPECT_EQ(take(), (Numbers{0, 2, 4}));
  EXPECT_EQ(try_add(0, 1, 6), Status::kOk);
}

TEST_F(Triggers, ACancelForgetsWhatWaitsAndNotWhatIsDue) {
  add(2, 1, 1);
  add(2, 2, 2);
  triggers.reached(2, 1);
  triggers.cancel(2);
  triggers.reached(2, 9);
  EXPECT_EQ(take(), Numbers{1});
  EXPECT_EQ(triggers.live(), 0u);
}

TEST(TriggersTogether, ThoseThatEndAreNotCounted) {
  std::size_t due = 0;
  {
    TargetTriggers triggers(6, due);
    ASSERT_EQ(triggers.prepare(1), Status::kOk);
    ASSERT_EQ(triggers.add(0, 1, 1, {}), Status::kOk);
    EXPECT_EQ(due, 1u);
  }
  EXPECT_EQ(due, 0u);
}

/// Against a sorted list.
TEST(TriggersTogether, OrderIsThatOfAStableSort) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::size_t due = 0;
    TargetTriggers triggers(1000, due);
    ASSERT_EQ(triggers.prepare(1), Status::kOk);
    struct Added {
      std::uint64_t threshold, number;
    };
    std::vector<Added> expected;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const std::uint64_t threshold = 1 + random() % 10;
      expected.push_back({threshold, i});
      ASSERT_EQ(triggers.add(0, 0, threshold, TargetCountChange{{}, kNoCounter, {i, 0}}), Status::kOk);
    }
    std::ranges::stable_sort(expected, {}, &Added::threshold);
    for (std::uint64_t sum = 1; sum <= 10; ++sum) triggers.reached(0, sum);
    TriggeredAction action;
    for (const Added& one : expected) {
      ASSERT_TRUE(triggers.take(action));
      EXPECT_EQ(std::get<TargetCountChange>(action).amount.success, one.number);
    }
    EXPECT_FALSE(triggers.take(action));
  }
}

}  // namespace
}  // namespace ch3_offload
