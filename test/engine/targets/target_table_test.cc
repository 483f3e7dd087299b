// The rules of Portals 4.3 for one index of the portal table, one by one.

#include "engine/targets/target_table.h"

#include <gtest/gtest.h>

#include "engine/targets/target_entries.h"

namespace ch3_offload {
namespace {

constexpr CounterId kCounter{9};

TEST(TargetTable, APutFindsAnEntryAndItsMemory) {
  TableWorld world;
  const TargetDescription entry = entry_for(5, 1);
  world.append(entry);
  const TargetPlacement placement = world.run(put_of(5, 8, 20));
  EXPECT_EQ(placement.start(), entry.start + 20);
  EXPECT_EQ(placement.length_bytes, 8u);
  ASSERT_EQ(world.listener.events.size(), 1u);
  const TargetEvent& event = world.listener.events.front();
  EXPECT_EQ(event.start, entry.start + 20);
  EXPECT_EQ(event.length_bytes, 8u);
  EXPECT_EQ(event.header.offset_bytes, 20u);
  EXPECT_EQ(event.header.key.initiator, kAlice);
  EXPECT_EQ(world.events(), "put 1");
}

TEST(TargetTable, EachOperationHasItsEvent) {
  TableWorld world;
  world.append(entry_for(5, 1, kAllowGet));
  for (const auto operation : {TargetOperation::kPut, TargetOperation::kGet, TargetOperation::kAtomic,
                               TargetOperation::kFetchAtomic, TargetOperation::kSwap}) {
    TargetHeader header = put_of(5);
    header.operation = operation;
    world.run(header);
  }
  EXPECT_EQ(world.events(), "put 1, get 1, atomic 1, fetch-atomic 1, fetch-atomic 1");
}

TEST(TargetTable, AListEntryTakesWhateverComes) {
  TableWorld world;
  TargetDescription entry = entry_for(0, 1);
  entry.ignore = kIgnoreKey;
  world.append(entry);
  EXPECT_FALSE(world.run(put_of(5, 8, 0, kAlice)).is_refused());
  EXPECT_FALSE(world.run(put_of(77, 8, 0, kBob)).is_refused());
}

// TargetPlacement.

TEST(TargetTable, WhatDoesNotFitIsCut) {
  TableWorld world;
  world.append(entry_for(5, 1));
  EXPECT_EQ(world.run(put_of(5, 60, 70)).length_bytes, 30u);
  EXPECT_EQ(world.run(put_of(5, 60, 100)).length_bytes, 0u);
  const TargetPlacement outside = world.run(put_of(5, 60, UINT64_MAX));
  EXPECT_EQ(outside.length_bytes, 0u);
  EXPECT_EQ(outside.start(), outside.entry->its.start + 100);
}

TEST(TargetTable, AnEntryMayCoverTheWholeAddressSpace) {
  TableWorld world;
  TargetDescription entry = entry_for(5, 1);
  entry.start = nullptr;
  entry.length_bytes = UINT64_MAX;
  world.append(entry);
  const TargetPlacement placement = world.run(put_of(5, 8, 0x1234));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(placement.start()), 0x1234u);
  EXPECT_EQ(placement.length_bytes, 8u);
}

TEST(TargetTable, ALocallyManagedOffsetAdvancesByWhatHadRoom) {
  TableWorld world;
  world.append(entry_for(5, 1, kManageLocal));
  EXPECT_EQ(world.run(put_of(5, 30, 90)).offset_bytes, 0u);
  EXPECT_EQ(world.run(put_of(5, 30)).offset_bytes, 30u);
  EXPECT_EQ(world.run(put_of(5, 50)).length_bytes, 40u);
  const TargetPlacement full = world.run(put_of(5, 1));
  EXPECT_EQ(full.offset_bytes, 100u);
  EXPECT_EQ(full.length_bytes, 0u);
  EXPECT_EQ(world.events(), "put 1, put 1, put 1, put 1");
}

TEST(TargetTable, OffsetsAreDecidedWhenHeadersArrive) {
  TableWorld world;
  world.append(entry_for(5, 1, kManageLocal));
  const TargetHeader header = put_of(5, 30);
  const TargetPlacement first = world.table.arrive(header);
  const TargetPlacement second = world.table.arrive(header);
  world.table.finish(second, header, TargetFailure::kNone);
  world.table.finish(first, header, TargetFailure::kNone);
  EXPECT_EQ(first.offset_bytes, 0u);
  EXPECT_EQ(second.offset_bytes, 30u);
}

TEST(TargetTable, TooLittleRoomUnlinks) {
  TableWorld world;
  TargetDescription entry = entry_for(5, 1, kManageLocal);
  entry.min_free_bytes = 40;
  const TargetId id = world.append(entry);
  EXPECT_FALSE(world.run(put_of(5, 60)).unlinks);
  EXPECT_TRUE(world.run(put_of(5, 1)).unlinks);
  EXPECT_EQ(world.events(), "put 1, put 1, auto-unlink 1");
  EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kDropped);
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kUnknown);
}

TEST(TargetTable, AnEntryForOneUseIsUnlinkedByIt) {
  TableWorld world;
  world.append(entry_for(5, 1, kUseOnce));
  world.append(entry_for(5, 2, kUseOnce | kNoUnlinkEvent));
  world.run(put_of(5));
  world.run(put_of(5));
  EXPECT_EQ(world.events(), "put 1, auto-unlink 1, put 2");
  EXPECT_TRUE(world.table.is_unused());
}

// Order.

TEST(TargetTable, ThePriorityListIsSearchedToItsEndFirst) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  world.append(entry_for(6, 2));
  world.append(entry_for(5, 3));
  world.run(put_of(5));
  EXPECT_EQ(world.events(), "put 3");
}

TEST(TargetTable, AViolationEndsTheSearch) {
  TableWorld world;
  TargetDescription others = entry_for(5, 1);
  others.user = UserId{7};
  world.append(others);
  world.append(entry_for(5, 2));
  EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kPermissionViolation);
  TargetHeader own = put_of(5);
  own.user = UserId{7};
  EXPECT_FALSE(world.run(own).is_refused());
  own.operation = TargetOperation::kGet;
  EXPECT_EQ(world.run(own).failure, TargetFailure::kOperationViolation);
  EXPECT_EQ(world.resources.registers.permission_violations, 1u);
  EXPECT_EQ(world.resources.registers.operation_violations, 1u);
  EXPECT_EQ(world.resources.registers.drops, 0u);
  EXPECT_EQ(world.events(), "put 1");
}

TEST(TargetTable, AFetchNeedsPutAndGet) {
  TableWorld world;
  world.append(entry_for(5, 1));
  TargetDescription for_gets = entry_for(6, 2, kAllowGet);
  for_gets.options &= ~kAllowPut;
  world.append(for_gets);
  for (const auto operation : {TargetOperation::kFetchAtomic, TargetOperation::kSwap})
    for (const std::uint64_t bits : {5, 6}) {
      TargetHeader header = put_of(bits);
      header.operation = operation;
      EXPECT_EQ(world.run(header).failure, TargetFailure::kOperationViolation);
    }
  EXPECT_EQ(world.run(put_of(6)).failure, TargetFailure::kOperationViolation);
}

TEST(TargetTable, AViolationInTheOverflowListKeepsNoHeader) {
  TableWorld world;
  TargetDescription others = entry_for(5, 1, kUseOnce);
  others.user = UserId{7};
  world.append(others, kOverflowList);
  EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kPermissionViolation);
  EXPECT_EQ(world.table.waiting_headers(), 0u);
  EXPECT_EQ(world.table.size(kOverflowList), 1u);
}

TEST(TargetTable, WhatMatchesNothingIsDropped) {
  TableWorld world;
  EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kDropped);
  EXPECT_EQ(world.resources.registers.drops, 1u);
  EXPECT_EQ(world.events(), "");
}

// Unexpected headers.

TEST(TargetTable, AnAppendedEntryTakesTheOldestHeader) {
  TableWorld world;
  const TargetDescription overflow = entry_for(5, 1, kManageLocal);
  world.append(overflow, kOverflowList);
  world.run(put_of(5, 10));
  world.run(put_of(5, 20));
  EXPECT_EQ(world.events(), "put 1, put 1");
  EXPECT_EQ(world.append(entry_for(5, 2, kUseOnce)), kNoTarget);
  EXPECT_EQ(world.last_status, Status::kOk);
  ASSERT_FALSE(world.listener.events.empty());
  const TargetEvent event = world.listener.events.front();
  EXPECT_EQ(event.start, overflow.start);
  EXPECT_EQ(event.length_bytes, 10u);
  EXPECT_EQ(event.list, kOverflowList);
  EXPECT_EQ(world.events(), "put-overflow 2, auto-unlink 2");
  EXPECT_EQ(world.table.waiting_headers(), 1u);
}

TEST(TargetTable, APersistentEntryTakesAllHeadersAndThenLinks) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  for (const std::uint64_t length : {1, 2, 3}) world.run(put_of(5, length));
  world.run(put_of(5, 200));
  world.events();
  TargetDescription entry = entry_for(5, 2, kNoTruncate);
  entry.options &= ~kNoLinkEvent;
  const TargetId id = world.append(entry);
  std::vector<std::uint64_t> lengths;
  for (const TargetEvent& event : world.listener.events) lengths.push_back(event.length_bytes);
  EXPECT_EQ(lengths, (std::vector<std::uint64_t>{1, 2, 3, 0}));
  EXPECT_EQ(world.events(), "put-overflow 2, put-overflow 2, put-overflow 2, link 2");
  EXPECT_EQ(world.table.waiting_headers(), 1u);  // It does not fit.
  world.run(put_of(5));
  EXPECT_EQ(world.events(), "put 2");
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kOk);
}

TEST(TargetTable, HeadersAdvanceTheOffsetOfAnEntryThatWantsThat) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  world.run(put_of(5, 30));
  world.events();
  TargetDescription entry = entry_for(5, 2, kManageLocal | kAdvanceByUnexpected);
  entry.min_free_bytes = 70;
  world.append(entry);
  EXPECT_EQ(world.run(put_of(5, 8)).offset_bytes, 30u);
  EXPECT_EQ(world.events(), "put-overflow 2, put 2, auto-unlink 2");
}

TEST(TargetTable, AnEntryThatHeadersUseUpNeverLinks) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  for (int i = 0; i < 3; ++i) world.run(put_of(5, 30));
  world.events();
  TargetDescription entry = entry_for(5, 2, kManageLocal | kAdvanceByUnexpected);
  entry.options &= ~kNoLinkEvent;
  entry.min_free_bytes = 50;
  EXPECT_EQ(world.append(entry), kNoTarget);
  EXPECT_EQ(world.events(), "put-overflow 2, put-overflow 2, auto-unlink 2");
  EXPECT_EQ(world.table.waiting_headers(), 1u);
  EXPECT_EQ(world.table.size(kPriorityList), 0u);
}

TEST(TargetTable, AnEntryOfTheOverflowListTakesNoHeader) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  world.run(put_of(5));
  world.append(entry_for(5, 2, kUseOnce), kOverflowList);
  EXPECT_EQ(world.table.waiting_headers(), 1u);
  EXPECT_EQ(world.table.size(kOverflowList), 2u);
}

TEST(TargetTable, NoPermissionIsAskedOfAHeader) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  world.run(put_of(5));
  world.events();
  TargetDescription entry = entry_for(5, 2, kUseOnce | kNoUnlinkEvent);
  entry.user = UserId{7};
  entry.options &= ~kAllowPut;
  world.append(entry);
  EXPECT_EQ(world.events(), "put-overflow 2");
}

TEST(TargetTable, NoHeaderIsKeptIfTheOverflowEntrySaysSo) {
  TableWorld world;
  world.append(entry_for(5, 1, kNoUnexpectedHeader | kUseOnce), kOverflowList);
  world.run(put_of(5));
  EXPECT_EQ(world.table.waiting_headers(), 0u);
  EXPECT_EQ(world.events(), "put 1, auto-unlink 1, auto-free 1");
}

TEST(TargetTable, AHeaderWithoutItsDataIsTakenAndToldLater) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  const TargetHeader header = put_of(5);
  const TargetPlacement placement = world.table.arrive(header);
  EXPECT_EQ(world.append(entry_for(5, 2, kUseOnce)), kNoTarget);
  EXPECT_EQ(world.events(), "");
  EXPECT_EQ(world.table.waiting_headers(), 0u);
  world.table.finish(placement, header, TargetFailure::kNone);
  EXPECT_EQ(world.events(), "put 1, put-overflow 2, auto-unlink 2");
}

TEST(TargetTable, AHeaderWhoseDataFailsIsForgotten) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  const TargetHeader header = put_of(5);
  const TargetPlacement lost = world.table.arrive(header);
  world.table.finish(lost, header, TargetFailure::kUndeliverable);
  EXPECT_EQ(world.table.waiting_headers(), 0u);
  const TargetPlacement taken = world.table.arrive(header);
  world.append(entry_for(5, 2, kUseOnce));
  world.table.finish(taken, header, TargetFailure::kUndeliverable);
  EXPECT_EQ(world.events(),
            "put undeliverable 1, put undeliverable 1, put-overflow undeliverable 2, auto-unlink 2");
  EXPECT_EQ(world.resources.headers(), 0u);
}

TEST(TargetTable, WithoutHeadersAnOperationIsDropped) {
  TableWorld world({}, {10, 1, 10});
  world.append(entry_for(5, 1, kManageLocal), kOverflowList);
  EXPECT_FALSE(world.run(put_of(5)).is_refused());
  EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kDropped);
  EXPECT_EQ(world.resources.registers.drops, 1u);
  world.append(entry_for(5, 2, kUseOnce));
  EXPECT_EQ(world.run(put_of(5)).offset_bytes, 8u);
}

// Unlinking.

TEST(TargetTable, AnEntryInUseIsNotUnlinked) {
  TableWorld world;
  const TargetId id = world.append(entry_for(5, 1));
  const TargetHeader header = put_of(5);
  const TargetPlacement placement = world.table.arrive(header);
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kInUse);
  world.table.finish(placement, header, TargetFailure::kNone);
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kOk);
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kUnknown);
  EXPECT_EQ(world.events(), "put 1");
}

TEST(TargetTable, AnOverflowEntryWithHeadersIsInUse) {
  TableWorld world;
  const TargetId id = world.append(entry_for(5, 1), kOverflowList);
  world.run(put_of(5));
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kInUse);
  world.append(entry_for(5, 2, kUseOnce));
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kOk);
}

TEST(TargetTable, AnEntryThatAwaitsAnOverflowEventIsInUse) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  const TargetHeader header = put_of(5);
  const TargetPlacement placement = world.table.arrive(header);
  const TargetId id = world.append(entry_for(5, 2));
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kInUse);
  world.table.finish(placement, header, TargetFailure::kNone);
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kOk);
}

TEST(TargetTable, AnEntryOfAnotherTableIsUnknown) {
  TableWorld world;
  TargetTable other({7, true, false}, world.resources, world.listener);
  TargetId id{};
  ASSERT_EQ(other.append(entry_for(5, 1), kPriorityList, id), Status::kOk);
  EXPECT_EQ(world.table.unlink(id), TargetTable::Unlinked::kUnknown);
  EXPECT_EQ(world.table.unlink(kNoTarget), TargetTable::Unlinked::kUnknown);
  EXPECT_EQ(other.unlink(id), TargetTable::Unlinked::kOk);
}

TEST(TargetTable, AutoFreeComesAfterAutoUnlinkAndTheLastHeader) {
  TableWorld world;
  world.append(entry_for(5, 1, kUseOnce), kOverflowList);
  world.run(put_of(5));
  EXPECT_EQ(world.events(), "put 1, auto-unlink 1");
  EXPECT_FALSE(world.table.is_unused());
  world.append(entry_for(5, 2, kUseOnce | kNoUnlinkEvent));
  EXPECT_EQ(world.events(), "put-overflow 2, auto-free 1");
  EXPECT_TRUE(world.table.is_unused());
}

TEST(TargetTable, AutoFreeWaitsForEveryHeader) {
  TableWorld world;
  TargetDescription entry = entry_for(5, 1, kManageLocal);
  entry.min_free_bytes = 90;
  world.append(entry, kOverflowList);
  world.run(put_of(5, 10));
  world.run(put_of(5, 10));
  EXPECT_EQ(world.events(), "put 1, put 1, auto-unlink 1");
  world.append(entry_for(5, 2, kUseOnce | kNoUnlinkEvent));
  EXPECT_EQ(world.events(), "put-overflow 2");
  world.append(entry_for(5, 3, kUseOnce | kNoUnlinkEvent));
  EXPECT_EQ(world.events(), "put-overflow 3, auto-free 1");
}

TEST(TargetTable, AutoFreeComesAfterTheLastOperationInFlight) {
  TableWorld world;
  TargetDescription entry = entry_for(5, 1, kManageLocal | kNoUnexpectedHeader);
  entry.min_free_bytes = 90;
  world.append(entry, kOverflowList);
  const TargetHeader header = put_of(5, 10);
  const TargetPlacement first = world.table.arrive(header);
  const TargetPlacement second = world.table.arrive(header);
  EXPECT_TRUE(second.unlinks);
  world.table.finish(second, header, TargetFailure::kNone);
  EXPECT_EQ(world.events(), "put 1, auto-unlink 1");
  world.table.finish(first, header, TargetFailure::kNone);
  EXPECT_EQ(world.events(), "put 1, auto-free 1");
}

TEST(TargetTable, AnEntryThatTheClientUnlinksIsNotAutoFreed) {
  TableWorld world;
  world.table.unlink(world.append(entry_for(5, 1), kOverflowList));
  EXPECT_EQ(world.events(), "");
}

// Searches.

TEST(TargetTable, ASearchLeavesWhatItFinds) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  world.run(put_of(5, 10));
  world.run(put_of(5, 20));
  world.events();
  world.table.search(entry_for(5, 2, kUseOnce), TargetTable::SearchMode::kOnly);
  EXPECT_EQ(world.listener.events.front().header.length_bytes, 10u);
  EXPECT_EQ(world.events(), "search 2");
  world.table.search(entry_for(5, 2), TargetTable::SearchMode::kOnly);
  EXPECT_EQ(world.events(), "search 2, search 2");
  EXPECT_EQ(world.table.waiting_headers(), 2u);
  world.table.search(entry_for(6, 2), TargetTable::SearchMode::kOnly);
  EXPECT_EQ(world.events(), "search no-match 2");
}

TEST(TargetTable, ASearchMayDeleteWhatItFinds) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  for (int i = 0; i < 3; ++i) world.run(put_of(5));
  world.events();
  world.table.search(entry_for(5, 2, kUseOnce), TargetTable::SearchMode::kDelete);
  EXPECT_EQ(world.events(), "put-overflow 2");
  world.table.search(entry_for(5, 3), TargetTable::SearchMode::kDelete);
  EXPECT_EQ(world.events(), "put-overflow 3, put-overflow 3");
  world.table.search(entry_for(5, 4), TargetTable::SearchMode::kDelete);
  EXPECT_EQ(world.events(), "search no-match 4");
  EXPECT_EQ(world.table.size(kPriorityList), 0u);
}

TEST(TargetTable, ASearchCountsWhatItFindsAndWhereItEnds) {
  TableWorld world;
  world.append(entry_for(5, 1), kOverflowList);
  for (int i = 0; i < 2; ++i) world.run(put_of(5, 10));
  TargetDescription seeker = entry_for(5, 2, kUseOnce | kCountOverflow);
  seeker.counter = kCounter;
  world.table.search(seeker, TargetTable::SearchMode::kOnly);
  EXPECT_EQ(world.listener.counters[kCounter], std::pair(std::uint64_t{1}, std::uint64_t{0}));
  seeker.options &= ~kUseOnce;
  seeker.options |= kCountBytes;
  world.table.search(seeker, TargetTable::SearchMode::kDelete);
  EXPECT_EQ(world.listener.counters[kCounter], std::pair(std::uint64_t{21}, std::uint64_t{1}));
  world.table.search(seeker, TargetTable::SearchMode::kOnly);
  EXPECT_EQ(world.listener.counters[kCounter], std::pair(std::uint64_t{21}, std::uint64_t{2}));
  EXPECT_EQ(world.resources.registers.drops, 0u);
}

// Which events come.

TEST(TargetTable, EventsThatAnEntryDoesNotWantDoNotCome) {
  TableWorld world;
  world.append(entry_for(5, 1, kUseOnce | kNoCommEvent | kNoUnlinkEvent), kOverflowList);
  world.append(entry_for(6, 2, kNoSuccessEvent));
  const TargetHeader header = put_of(6);
  world.run(put_of(5));
  world.run(header);
  world.append(entry_for(5, 3, kUseOnce | kNoOverflowEvent | kNoUnlinkEvent));
  world.table.search(entry_for(5, 4, kNoCommEvent), TargetTable::SearchMode::kOnly);
  EXPECT_EQ(world.events(), "");
  world.table.finish(world.table.arrive(header), header, TargetFailure::kUndeliverable);
  EXPECT_EQ(world.events(), "put undeliverable 2");
}

TEST(TargetTable, WithoutAnEventQueueOnlyCountersCount) {
  TableWorld world({0, false, false});
  TargetDescription entry = entry_for(5, 1, kCountComm | kCountBytes);
  entry.options &= ~kNoLinkEvent;
  entry.counter = kCounter;
  world.append(entry);
  const TargetHeader header = put_of(5, 30, 90);
  world.run(header);
  world.table.finish(world.table.arrive(header), header, TargetFailure::kUndeliverable);
  EXPECT_EQ(world.listener.counters[kCounter], std::pair(std::uint64_t{10}, std::uint64_t{1}));
  EXPECT_EQ(world.events(), "");
}

TEST(TargetTable, OverflowEventsAreCountedApart) {
  TableWorld world;
  TargetDescription overflow = entry_for(5, 1, kCountOverflow);
  overflow.counter = kCounter;
  world.append(overflow, kOverflowList);
  world.run(put_of(5));
  EXPECT_TRUE(world.listener.counters.empty());
  TargetDescription entry = entry_for(5, 2, kCountOverflow | kUseOnce);
  entry.counter = kCounter;
  world.append(entry);
  EXPECT_EQ(world.listener.counters[kCounter].first, 1u);
}

// Limits.

TEST(TargetTable, MoreEntriesThanThereMayBeAreRefused) {
  TableWorld world({}, {2, 1, 10});
  world.append(entry_for(5, 1));
  const TargetId second = world.append(entry_for(5, 2));
  EXPECT_EQ(world.append(entry_for(5, 3)), kNoTarget);
  EXPECT_EQ(world.last_status, Status::kNoMemory);
  world.table.unlink(second);
  EXPECT_NE(world.append(entry_for(5, 3)), kNoTarget);
}

TEST(TargetTable, AListThatIsFullTakesOnlyWhatNeverLinks) {
  TableWorld world({}, {10, 10, 1});
  world.append(entry_for(5, 1), kOverflowList);
  world.append(entry_for(6, 2));
  world.run(put_of(5));
  world.events();
  EXPECT_EQ(world.append(entry_for(5, 3)), kNoTarget);
  EXPECT_EQ(world.last_status, Status::kAgain);
  world.append(entry_for(7, 4, kUseOnce));
  EXPECT_EQ(world.last_status, Status::kAgain);
  EXPECT_EQ(world.events(), "");
  world.append(entry_for(5, 5, kUseOnce));
  EXPECT_EQ(world.last_status, Status::kOk);
  EXPECT_EQ(world.events(), "put-overflow 5, auto-unlink 5");
}

// Disabled tables and flow control.

TEST(TargetTable, ADisabledTableTakesNothing) {
  TableWorld world;
  world.append(entry_for(5, 1));
  const TargetHeader header = put_of(5);
  const TargetPlacement placement = world.table.arrive(header);
  world.table.disable();
  EXPECT_EQ(world.run(header).failure, TargetFailure::kTableDisabled);
  EXPECT_EQ(world.resources.registers.drops, 1u);
  EXPECT_EQ(world.table.in_flight(), 1u);
  world.table.finish(placement, header, TargetFailure::kNone);
  EXPECT_EQ(world.table.in_flight(), 0u);
  world.table.enable();
  EXPECT_FALSE(world.run(header).is_refused());
  EXPECT_EQ(world.events(), "put 1, put 1");
}

TEST(TargetTable, FlowControlDisablesATableWithoutAnEntry) {
  TableWorld world({0, true, true});
  EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kTableDisabled);
  EXPECT_FALSE(world.table.is_enabled());
  EXPECT_EQ(world.events(), "table-disabled 0");
  world.append(entry_for(5, 1));
  EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kTableDisabled);
  EXPECT_EQ(world.events(), "");
  world.table.enable();
  EXPECT_FALSE(world.run(put_of(5)).is_refused());
  EXPECT_EQ(world.listener.reserved(), 0u);
}

TEST(TargetTable, TheDisabledEventComesAfterTheLastOperationInFlight) {
  TableWorld world({0, true, true});
  world.append(entry_for(5, 1));
  const TargetHeader header = put_of(5);
  const TargetPlacement placement = world.table.arrive(header);
  EXPECT_EQ(world.run(put_of(6)).failure, TargetFailure::kTableDisabled);
  EXPECT_EQ(world.events(), "");
  world.table.finish(placement, header, TargetFailure::kNone);
  EXPECT_EQ(world.events(), "put 1, table-disabled 0");
}

TEST(TargetTable, FlowControlDisablesATableWithoutHeaders) {
  for (const std::uint32_t option : {0U, kNoFlowControlEvent}) {
    TableWorld world({0, true, true}, {10, 1, 10});
    world.append(entry_for(5, 1, option), kOverflowList);
    world.run(put_of(5));
    EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kTableDisabled);
    EXPECT_EQ(world.events(), option == 0 ? "put 1, table-disabled 0" : "put 1");
  }
}

TEST(TargetTable, FlowControlDisablesATableWithoutRoomForItsEvents) {
  TableWorld world({0, true, true});
  world.append(entry_for(5, 1, kUseOnce), kOverflowList);
  for (world.listener.capacity = 0; world.listener.capacity < 3; ++world.listener.capacity) {
    EXPECT_EQ(world.run(put_of(5)).failure, TargetFailure::kTableDisabled);
    EXPECT_EQ(world.listener.reserved(), 0u);
    EXPECT_EQ(world.events(), "table-disabled 0");
    world.table.enable();
  }
  EXPECT_FALSE(world.run(put_of(5)).is_refused());
  EXPECT_EQ(world.listener.reserved(), 1u);  // For the auto-free event.
  EXPECT_EQ(world.events(), "put 1, auto-unlink 1");
  world.append(entry_for(5, 2, kUseOnce | kNoUnlinkEvent));
  EXPECT_EQ(world.listener.reserved(), 0u);
  EXPECT_EQ(world.events(), "put-overflow 2, auto-free 1");
}

}  // namespace
}  // namespace ch3_offload
