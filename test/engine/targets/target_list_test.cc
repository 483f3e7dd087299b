// A list of target entries: which entry takes an operation, and how many are looked at for that.

#include "engine/targets/target_list.h"

#include <gtest/gtest.h>

#include <deque>

#include "engine/targets/target_entries.h"

namespace ch3_offload {
namespace {

class TargetLists : public testing::Test {
 protected:
  TargetEntry& append(const TargetDescription& description) {
    TargetEntry& entry = entries_.emplace_back();
    entry.its = description;
    list.append(entry);
    return entry;
  }
  TargetEntry& append(std::uint64_t bits, std::uint64_t ignored, ProcessId initiator, ProcessId any) {
    TargetDescription description = entry_for(bits, 0);
    description.key.initiator = initiator;
    description.ignore = {MatchBits{ignored}, any};
    return append(description);
  }

  TargetList list;

 private:
  std::deque<TargetEntry> entries_;
};

TEST_F(TargetLists, TheOldestOfAllMasksTakesAnOperation) {
  TargetEntry& any_bits = append(0, UINT64_MAX, kAlice, kExactProcess);
  TargetEntry& exact = append(5, 0, kAlice, kExactProcess);
  TargetEntry& anybody = append(5, 0, kBob, kAnyProcess);
  EXPECT_EQ(list.find(put_of(5)), &any_bits);
  list.remove(any_bits);
  EXPECT_EQ(list.find(put_of(5)), &exact);
  list.remove(exact);
  EXPECT_EQ(list.find(put_of(5)), &anybody);
  EXPECT_EQ(list.find(put_of(6)), nullptr);
  list.remove(anybody);
  EXPECT_EQ(list.find(put_of(5)), nullptr);
  EXPECT_EQ(list.size(), 0u);
}

TEST_F(TargetLists, AnInitiatorIsExactOrAnyInEachHalf) {
  const ProcessId other_pid = make_physical_id(7, 9);
  const ProcessId other_nid = make_physical_id(8, 1);
  TargetEntry& exact = append(5, 0, make_physical_id(7, 1), kExactProcess);
  TargetEntry& any_pid = append(5, 0, make_physical_id(7, 0), kAnyPid);
  TargetEntry& any_nid = append(5, 0, make_physical_id(0, 1), kAnyNid);
  EXPECT_EQ(list.find(put_of(5, 8, 0, make_physical_id(7, 1))), &exact);
  EXPECT_EQ(list.find(put_of(5, 8, 0, other_pid)), &any_pid);
  EXPECT_EQ(list.find(put_of(5, 8, 0, other_nid)), &any_nid);
  EXPECT_EQ(list.find(put_of(5, 8, 0, make_physical_id(8, 9))), nullptr);
}

TEST_F(TargetLists, OneThatCannotTakeAnOperationIsPassedOver) {
  TargetDescription small = entry_for(5, 0, kNoTruncate);
  small.length_bytes = 10;
  append(small);
  TargetEntry& large = append(entry_for(5, 0, kNoTruncate));
  EXPECT_EQ(list.find(put_of(5, 11)), &large);
  EXPECT_EQ(list.find(put_of(5, 10, 1)), &large);
  EXPECT_NE(list.find(put_of(5, 10)), &large);
  EXPECT_EQ(list.find(put_of(5, 101)), nullptr);
}

TEST_F(TargetLists, AnOffsetThatWrapsAroundDoesNotFit) {
  append(entry_for(5, 0, kNoTruncate));
  EXPECT_EQ(list.find(put_of(5, 8, UINT64_MAX - 3)), nullptr);
  EXPECT_EQ(list.find(put_of(5, UINT64_MAX, 1)), nullptr);
  EXPECT_EQ(list.find(put_of(5, 0, 101)), nullptr);
  EXPECT_NE(list.find(put_of(5, 0, 100)), nullptr);
}

TEST_F(TargetLists, TenThousandInitiatorsUnderOneMaskCostOneLook) {
  constexpr std::uint32_t kEntries = 10'000;
  for (std::uint32_t i = 0; i < kEntries; ++i) append(5, 0, make_physical_id(i, 3), kExactProcess);
  for (std::uint32_t i = 0; i < kEntries; ++i)
    ASSERT_NE(list.find(put_of(5, 8, 0, make_physical_id(i, 3))), nullptr);
  EXPECT_EQ(list.looked_at(), kEntries);
}

TEST_F(TargetLists, TenThousandEntriesUnderSixtyFourMasksCostAtMostTwoLooksEach) {
  constexpr std::uint64_t kEntries = 10'000;
  for (std::uint64_t i = 0; i < kEntries; ++i)
    append(i << 6, std::uint64_t{1} << i % TargetList::kMostMasks, kAlice, kExactProcess);
  for (std::uint64_t i = 0; i < kEntries; ++i) ASSERT_NE(list.find(put_of(i << 6)), nullptr);
  EXPECT_LE(list.looked_at(), 2 * kEntries);
}

TEST_F(TargetLists, MasksBeyondTheTablesAreSearchedInOrder) {
  constexpr std::uint64_t kMasks = TargetList::kMostMasks + 10;
  std::vector<TargetEntry*> entries;
  for (std::uint64_t mask = 1; mask <= kMasks; ++mask)
    entries.push_back(&append(0xF000, mask, kAlice, kExactProcess));
  for (TargetEntry* const entry : entries) {
    EXPECT_EQ(list.find(put_of(0xF000)), entry);
    list.remove(*entry);
  }
  EXPECT_EQ(list.find(put_of(0xF000)), nullptr);
}

/// Whoever has too many masks makes no search long.
TEST_F(TargetLists, TheMasksBeyondTheTablesAreBounded) {
  std::uint64_t mask = 1;
  std::vector<TargetEntry*> entries;
  for (; list.takes({MatchBits{mask}, kExactProcess}); ++mask)
    entries.push_back(&append(0xF000, mask, kAlice, kExactProcess));
  EXPECT_EQ(entries.size(), TargetList::kMostMasks + TargetList::kMostUnkeyed);
  EXPECT_TRUE(list.takes({MatchBits{1}, kExactProcess})) << "it has a table";
  list.remove(*entries.back());
  EXPECT_TRUE(list.takes({MatchBits{mask}, kExactProcess}));
  entries.back() = &append(0xF000, mask, kAlice, kExactProcess);
  EXPECT_FALSE(list.takes({MatchBits{mask + 1}, kExactProcess}));
  list.remove(*entries[5]);
  EXPECT_TRUE(list.takes({MatchBits{mask + 1}, kExactProcess})) << "its table serves another mask";
}

TEST_F(TargetLists, ATableThatIsEmptyServesAnotherMask) {
  for (std::uint64_t mask = 1; mask <= TargetList::kMostMasks; ++mask)
    list.remove(append(0xF000, mask, kAlice, kExactProcess));
  for (std::uint64_t i = 0; i < 1000; ++i) append(i << 12, 0xFFF, kAlice, kExactProcess);
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_NE(list.find(put_of(i << 12)), nullptr);
  EXPECT_EQ(list.looked_at(), 1000u);
}

}  // namespace
}  // namespace ch3_offload
