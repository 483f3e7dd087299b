#include "nic/staged_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace ch3_offload {
namespace staged_schedule_test {

class StagedScheduleTest : public testing::Test {
 protected:
  bool plan(std::size_t most_bytes = 1 << 20) {
    const auto is_shared = [this](const std::byte* address, std::size_t) {
      return address == shared_.data() || address == cut_;
    };
    const auto make = [this](std::size_t length_bytes) {
      block_.assign(length_bytes, std::byte{0xEE});
      return has_room_ ? block_.data() : nullptr;
    };
    return staged_.plan(steps_, is_shared, make, most_bytes);
  }
  void add(StepKind kind, const std::byte* from, std::byte* to, std::size_t length_bytes) {
    ScheduleStep step;
    step.kind = kind;
    step.from = from;
    step.to = to;
    step.length_bytes = length_bytes;
    steps_.push_back(step);
  }
  bool is_in_block(const std::byte* address) {
    return address >= block_.data() && address < block_.data() + block_.size();
  }

  std::array<std::byte, 300> memory_{};
  std::array<std::byte, 100> shared_{};
  std::vector<ScheduleStep> steps_;
  std::vector<std::byte> block_;
  bool has_room_ = true;
  const std::byte* cut_ = nullptr;  ///< Shared, too.
  StagedSchedule staged_;
};

TEST_F(StagedScheduleTest, ShowsOverlappingMemoryOnce) {
  for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i);
  add(StepKind::kSend, memory_.data() + 10, nullptr, 50);
  add(StepKind::kSend, memory_.data() + 40, nullptr, 40);
  add(StepKind::kCombine, memory_.data() + 200, memory_.data() + 100, 20);
  ASSERT_TRUE(plan());
  const auto steps = staged_.copy_in();
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[1].from, steps[0].from + 30);
  for (const std::byte* const address : {steps[0].from, steps[1].from, steps[2].from})
    EXPECT_TRUE(is_in_block(address));
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(steps[0].from[i], memory_[10 + i]);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(steps[1].from[i], memory_[40 + i]);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(steps[2].from[i], memory_[200 + i]);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(steps[2].to[i], memory_[100 + i]) << "it is read, too";
}

TEST_F(StagedScheduleTest, BringsBackWhatIsWrittenAndNothingElse) {
  memory_.fill(std::byte{1});
  add(StepKind::kReceive, nullptr, memory_.data() + 20, 30);
  add(StepKind::kReceive, nullptr, memory_.data() + 50, 30);
  add(StepKind::kSend, memory_.data() + 70, nullptr, 60);
  add(StepKind::kReceive, nullptr, memory_.data() + 20, 10);
  add(StepKind::kReceive, nullptr, nullptr, 0);
  ASSERT_TRUE(plan());
  const auto steps = staged_.copy_in();
  for (std::byte& one : block_) one = std::byte{7};
  EXPECT_EQ(steps[4].to, nullptr);
  staged_.copy_out();
  for (std::size_t i = 0; i < memory_.size(); ++i)
    EXPECT_EQ(memory_[i], std::byte{i >= 20 && i < 80 ? std::uint8_t{7} : std::uint8_t{1}}) << i;
}

TEST_F(StagedScheduleTest, DoesNotBringWhatIsWrittenFirst) {
  memory_.fill(std::byte{1});
  add(StepKind::kReceive, nullptr, memory_.data(), 100);
  add(StepKind::kSend, memory_.data() + 30, nullptr, 70);
  ASSERT_TRUE(plan());
  EXPECT_EQ(staged_.copy_in()[1].from[0], std::byte{0xEE});
}

TEST_F(StagedScheduleTest, LeavesSharedMemoryWhereItIs) {
  add(StepKind::kCopy, shared_.data(), memory_.data(), 100);
  ASSERT_TRUE(plan());
  const auto steps = staged_.copy_in();
  EXPECT_EQ(steps[0].from, shared_.data());
  EXPECT_TRUE(is_in_block(steps[0].to));
  steps_.clear();
  add(StepKind::kSend, shared_.data(), nullptr, 100);
  has_room_ = false;
  EXPECT_TRUE(plan()) << "nothing is to be staged";
  EXPECT_EQ(staged_.copy_in()[0].from, shared_.data());
}

TEST_F(StagedScheduleTest, RefusesMemoryThatIsPartlyShared) {
  for (const std::size_t begin : {0U, 60U, 100U}) {
    steps_.clear();
    cut_ = memory_.data() + begin;
    add(StepKind::kSend, memory_.data() + 50, nullptr, 50);
    add(StepKind::kSend, cut_, nullptr, 60);
    EXPECT_EQ(plan(), begin == 100) << begin;
  }
}

TEST_F(StagedScheduleTest, BringsBackWhatIsCombined) {
  memory_.fill(std::byte{1});
  add(StepKind::kCombine, memory_.data() + 200, memory_.data() + 100, 20);
  add(StepKind::kCopy, memory_.data() + 100, memory_.data(), 20);
  ASSERT_TRUE(plan());
  const auto steps = staged_.copy_in();
  std::fill_n(steps[0].to, 20, std::byte{7});
  std::fill_n(steps[1].to, 20, std::byte{8});
  staged_.copy_out();
  EXPECT_EQ(memory_[119], std::byte{7});
  EXPECT_EQ(memory_[120], std::byte{1});
  EXPECT_EQ(memory_[19], std::byte{8});
  EXPECT_EQ(memory_[20], std::byte{1});
  EXPECT_EQ(memory_[200], std::byte{1});
}

TEST_F(StagedScheduleTest, StagesNoMoreThanItMay) {
  add(StepKind::kSend, memory_.data(), nullptr, 100);
  add(StepKind::kSend, memory_.data() + 150, nullptr, 100);
  EXPECT_TRUE(plan(256));
  EXPECT_FALSE(plan(255));
  EXPECT_FALSE(plan(99));
  has_room_ = false;
  EXPECT_FALSE(plan());
  has_room_ = true;
  static constexpr PayloadLayout kPieces{.kind = PayloadLayout::Kind::kPieces};
  steps_[1].layout = &kPieces;
  EXPECT_FALSE(plan());
}

}  // namespace staged_schedule_test
}  // namespace ch3_offload
