// The target table and the allocator: what arrives allocates nothing, and without memory nothing is lost.
//
// Its program replaces operator new (counting_allocator.h).

#include <gtest/gtest.h>

#include "counting_allocator.h"
#include "engine/targets/target_entries.h"

namespace ch3_offload {
namespace {

using allocator::allocations;

/// Records nothing: recording allocates.
class DeafListener final : public TargetListener {
 public:
  std::uint64_t events = 0;
  void on_event(const TargetEvent&) noexcept override { ++events; }
  void on_count(CounterId, bool, std::uint64_t) noexcept override {}
  bool reserve(std::size_t) noexcept override { return true; }
  void unreserve(std::size_t) noexcept override {}
};

class TargetsAndMemory : public testing::Test {
 protected:
  static constexpr std::uint64_t kHeaders = 500;

  void SetUp() override { ASSERT_EQ(resources.prepare(), Status::kOk); }

  void run(const TargetHeader& header) {
    const TargetPlacement placement = table.arrive(header);
    ASSERT_FALSE(placement.is_refused());
    table.finish(placement, header, TargetFailure::kNone);
  }

  DeafListener listener;
  TargetRegisterWords registers;
  TargetResources resources{{1000, kHeaders, 1000}, registers};
  TargetTable table{{}, resources, listener};
  TargetId id{};
};

TEST_F(TargetsAndMemory, AnArrivalAllocatesNothing) {
  ASSERT_EQ(table.append(entry_for(1, 1), kPriorityList, id), Status::kOk);
  TargetDescription overflow = entry_for(0, 2);
  overflow.ignore = kIgnoreKey;
  ASSERT_EQ(table.append(overflow, kOverflowList, id), Status::kOk);
  const std::uint64_t before = allocations;
  for (std::uint64_t i = 0; i < kHeaders; ++i) {
    run(put_of(1));
    run(put_of(2 + i));
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(table.waiting_headers(), kHeaders);
}

TEST_F(TargetsAndMemory, WithoutMemoryHeadersAreFoundByAWalk) {
  TargetDescription overflow = entry_for(0, 2);
  overflow.ignore = kIgnoreKey;
  ASSERT_EQ(table.append(overflow, kOverflowList, id), Status::kOk);
  for (std::uint64_t i = 0; i < kHeaders; ++i) run(put_of(i));
  const allocator::Shortage shortage;
  for (std::uint64_t i = 0; i < kHeaders; ++i)
    table.search(entry_for(i, 3, kUseOnce), TargetTable::SearchMode::kDelete);
  EXPECT_EQ(table.waiting_headers(), 0u);
}

TEST_F(TargetsAndMemory, WithoutMemoryAMaskHasNoTable) {
  for (std::uint64_t i = 0; i < 10; ++i)  // The pool has entries.
    ASSERT_EQ(table.append(entry_for(i, 1, kUseOnce), kPriorityList, id), Status::kOk);
  for (std::uint64_t i = 0; i < 10; ++i) run(put_of(i));
  const allocator::Shortage shortage;
  TargetDescription entry = entry_for(8, 1, kUseOnce);
  entry.ignore.bits = MatchBits{7};
  ASSERT_EQ(table.append(entry, kPriorityList, id), Status::kOk);
  run(put_of(13));
  EXPECT_TRUE(table.is_unused());
}

TEST_F(TargetsAndMemory, WithoutMemoryAnEntryIsRefusedAndNothingIsLost) {
  TargetDescription overflow = entry_for(5, 2);
  ASSERT_EQ(table.append(overflow, kOverflowList, id), Status::kOk);
  run(put_of(5));
  const std::uint64_t events_before = listener.events;
  {
    const allocator::Shortage shortage;
    Status status = Status::kOk;
    for (std::uint64_t i = 0; i < 100 && status == Status::kOk; ++i)
      status = table.append(entry_for(9, 1), kPriorityList, id);
    EXPECT_EQ(status, Status::kNoMemory);
    EXPECT_EQ(table.append(entry_for(5, 1), kPriorityList, id), Status::kNoMemory);
  }
  EXPECT_EQ(listener.events, events_before);
  EXPECT_EQ(table.waiting_headers(), 1u);
}

TEST(TargetResources, WithoutMemoryForAllHeadersNothingIsPrepared) {
  TargetRegisterWords registers;
  const allocator::Shortage shortage(3);
  EXPECT_EQ(TargetResources({10, 1000, 10}, registers).prepare(), Status::kNoMemory);
}

}  // namespace
}  // namespace ch3_offload
