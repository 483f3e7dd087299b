// A network interface without an engine: its tables, queues and counters, and who its peers are.

#include "engine/targets/target_interface.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "engine/targets/target_entries.h"

namespace ch3_offload {
namespace {

class Interface : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(interface.prepare(), Status::kOk); }

  QueueId make_queue(std::size_t events) {
    memory = TargetEventMemory::make(events, 4);
    return interface.make_queue(memory->ring);
  }
  /// The kinds of all events of the queue that was made last.
  std::string events() {
    std::string text;
    TargetEvent event;
    bool lost = false;
    while (TargetEventReader(memory->ring).take(event, lost))
      text += std::string(text.empty() ? "" : ", ") + (lost ? "lost " : "") + short_form(event);
    return text;
  }
  /// An entry whose link event is told.
  static TargetDescription told_entry(std::uint64_t bits, std::uintptr_t cookie) {
    TargetDescription entry = entry_for(bits, cookie);
    entry.options &= ~kNoLinkEvent;
    return entry;
  }
  /// What the client sees.
  TargetCount on_board(CounterId id) {
    const TargetCounterWords& words = board.counters[counter_index(id)];
    return {words.success.load(), words.failure.load()};
  }
  static TargetCountChange adds(CounterId counter, std::uint64_t success) {
    return {TargetCountChange::Kind::kAdd, counter, {success, 0}};
  }

  std::unique_ptr<TargetEventMemory> memory;
  TargetBoard board;
  std::size_t due = 0;
  TargetInterface interface { {{100, 100, 100}, 4, UserId{7}}, board, due };
};

TEST_F(Interface, AQueueThatIsGoneIsToldNothing) {
  const QueueId queue = make_queue(1);
  interface.free_queue(queue);
  interface.tell(queue, {});
  interface.tell(kNoQueue, {});
  EXPECT_EQ(events(), "");
  EXPECT_EQ(interface.told(), 0u);
  EXPECT_NE(make_queue(1), queue);
}

TEST_F(Interface, WhoWasNotIdentifiedIsRefusedWhereAllAre) {
  TargetInterface strict{{{100, 100, 100}, 4, UserId{7}, true}, board, due};
  ASSERT_EQ(strict.prepare(), Status::kOk);
  ASSERT_EQ(strict.make_table(2, kNoQueue, false), Status::kOk);
  TargetId id{};
  ASSERT_EQ(strict.table(2)->append(entry_for(1, 0), TargetListKind::kPriority, id), Status::kOk);
  TargetHeader header;
  header.key.bits = MatchBits{1};
  EXPECT_EQ(strict.arrive(5, 2, header).failure, TargetFailure::kPermissionViolation);
  ASSERT_TRUE(strict.identify(5, make_logical_id(3), UserId{7}));
  EXPECT_EQ(strict.arrive(5, 2, header).failure, TargetFailure::kNone);
  EXPECT_EQ(header.key.initiator, make_logical_id(3));
}

TEST_F(Interface, ARingWithoutRoomForWhatItSaysIsNoQueue) {
  TargetEventRing ring;
  EXPECT_EQ(interface.make_queue(ring), kNoQueue);
  memory = TargetEventMemory::make(3, 0);
  memory->ring.reservable = 4;
  EXPECT_EQ(interface.make_queue(memory->ring), kNoQueue);
}

TEST_F(Interface, ACounterCountsOnTheBoardUntilItIsFreed) {
  const CounterId id = interface.make_counter();
  interface.count(id, true, 5);
  interface.count(id, false, 1);
  EXPECT_EQ(on_board(id), (TargetCount{5, 1}));
  interface.change_counter(adds(id, 3));
  EXPECT_EQ(on_board(id), (TargetCount{8, 1}));
  interface.change_counter({TargetCountChange::Kind::kSet, id, {1, 2}});
  EXPECT_EQ(on_board(id), (TargetCount{1, 2}));
  EXPECT_EQ(interface.told(), 4u);
  interface.free_counter(id);
  interface.count(id, true, 1);
  interface.change_counter(adds(id, 1));
  EXPECT_EQ(interface.counted(id), TargetCount{});
  EXPECT_EQ(interface.told(), 4u);
  const CounterId next = interface.make_counter();
  EXPECT_EQ(counter_index(next), counter_index(id)) << "the place is free";
  EXPECT_EQ(on_board(next), TargetCount{});
  interface.count(id, true, 1);
  EXPECT_EQ(on_board(next), TargetCount{}) << "a stale name counts nothing";
}

TEST_F(Interface, ThereAreAsManyCountersAsTheBoardHas) {
  std::set<std::size_t> places;
  for (std::size_t i = 0; i < kMostTargetCounters; ++i)
    EXPECT_TRUE(places.insert(counter_index(interface.make_counter())).second);
  EXPECT_EQ(*places.rbegin(), kMostTargetCounters - 1);
  EXPECT_EQ(interface.make_counter(), kNoCounter);
  for (const std::uint64_t invented :
       {std::uint64_t{1}, std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 5000})
    interface.free_counter(CounterId{invented});
  EXPECT_EQ(interface.make_counter(), kNoCounter);
}

TEST_F(Interface, AChangeByATriggerFiresTheNext) {
  const CounterId first = interface.make_counter(), second = interface.make_counter();
  ASSERT_EQ(interface.trigger({first, 2}, adds(second, 1)), Status::kOk);
  ASSERT_EQ(interface.trigger({second, 1}, adds(first, 10)), Status::kOk);
  interface.count(first, true, 1);
  EXPECT_EQ(due, 0u);
  interface.count(first, false, 1);
  EXPECT_EQ(due, 1u) << "failures reach a threshold, too";
  TriggeredAction action;
  ASSERT_TRUE(interface.take_due(action));
  interface.change_counter(std::get<TargetCountChange>(action));
  ASSERT_TRUE(interface.take_due(action));
  EXPECT_EQ(std::get<TargetCountChange>(action).counter, first);
  EXPECT_FALSE(interface.take_due(action));
}

TEST_F(Interface, WhatWaitsForACounterIsForgottenWithItAndByACancel) {
  const CounterId one = interface.make_counter(), other = interface.make_counter();
  EXPECT_EQ(interface.trigger({kNoCounter, 0}, adds(one, 1)), Status::kUnsupported);
  ASSERT_EQ(interface.trigger({one, 1}, adds(other, 1)), Status::kOk);
  ASSERT_EQ(interface.trigger({other, 1}, adds(one, 1)), Status::kOk);
  interface.cancel_triggered(one);
  EXPECT_EQ(interface.triggered(), 1u);
  interface.count(one, true, 1);
  EXPECT_EQ(due, 0u);
  interface.free_counter(other);
  EXPECT_EQ(interface.triggered(), 0u);
  EXPECT_EQ(interface.trigger({other, 1}, adds(one, 1)), Status::kUnsupported);
  const CounterId next = interface.make_counter();
  interface.count(next, true, 1);
  EXPECT_EQ(due, 0u);
}

TEST_F(Interface, ATriggeredEntryHasItsNameAtOnceAndLinksLater) {
  ASSERT_EQ(interface.make_table(1, make_queue(20), false), Status::kOk);
  const CounterId counter = interface.make_counter();
  TargetId id{}, other{};
  EXPECT_EQ(interface.trigger_append({counter, 1}, 2, kPriorityList, told_entry(5, 1), id),
            Status::kUnsupported);
  EXPECT_EQ(interface.trigger_append({kNoCounter, 1}, 1, kPriorityList, told_entry(5, 1), id),
            Status::kUnsupported);
  EXPECT_EQ(id, kNoTarget);
  EXPECT_TRUE(interface.table(1)->is_unused()) << "nothing was kept";
  ASSERT_EQ(interface.trigger_append({counter, 1}, 1, kPriorityList, told_entry(5, 1), id), Status::kOk);
  ASSERT_EQ(interface.trigger({counter, 2}, TriggeredUnlink{1, id}), Status::kOk);
  TargetHeader header = put_of(5);
  EXPECT_EQ(interface.arrive(0, 1, header).failure, TargetFailure::kDropped);
  EXPECT_EQ(interface.table(1)->unlink(id), TargetTable::Unlinked::kInUse);
  EXPECT_EQ(interface.free_table(1), Status::kAgain);
  const auto run_due = [&] {
    for (TriggeredAction action; interface.take_due(action);) interface.carry_out(action);
  };
  interface.count(counter, true, 1);
  run_due();
  EXPECT_EQ(events(), "link 1");
  const TargetPlacement placement = interface.arrive(0, 1, header);
  EXPECT_FALSE(placement.is_refused());
  interface.table(1)->finish(placement, header, TargetFailure::kNone);
  interface.count(counter, true, 1);
  run_due();
  EXPECT_EQ(interface.table(1)->unlink(id), TargetTable::Unlinked::kUnknown) << "it was unlinked";
  // One that is forgotten is gone, too.
  ASSERT_EQ(interface.trigger_append({counter, 9}, 1, kPriorityList, told_entry(5, 2), other), Status::kOk);
  interface.cancel_triggered(counter);
  EXPECT_EQ(interface.table(1)->unlink(other), TargetTable::Unlinked::kUnknown);
  EXPECT_EQ(interface.free_table(1), Status::kOk);
}

TEST_F(Interface, ATriggeredEntryThatFindsItsListFullIsDropped) {
  const auto its_board = std::make_unique<TargetBoard>();
  TargetInterface small{{{10, 10, 1}, 4, UserId{7}}, *its_board, due};
  ASSERT_EQ(small.prepare(), Status::kOk);
  memory = TargetEventMemory::make(10, 4);
  ASSERT_EQ(small.make_table(1, small.make_queue(memory->ring), false), Status::kOk);
  TargetId first{}, last{};
  ASSERT_EQ(small.table(1)->append(told_entry(5, 1), kPriorityList, first), Status::kOk);
  ASSERT_EQ(small.trigger_append({small.make_counter(), 0}, 1, kPriorityList, told_entry(5, 2), last),
            Status::kOk);
  for (TriggeredAction action; small.take_due(action);) small.carry_out(action);
  EXPECT_EQ(events(), "link 1, link dropped 2");
  EXPECT_EQ(small.table(1)->unlink(last), TargetTable::Unlinked::kUnknown);
  EXPECT_EQ(small.resources().entries(), 1u);
}

TEST_F(Interface, ATableIsMadeOnceAndFreedWhenNothingUsesIt) {
  EXPECT_EQ(interface.make_table(4, kNoQueue, false), Status::kUnsupported);
  EXPECT_EQ(interface.make_table(1, kNoQueue, true), Status::kUnsupported);
  EXPECT_EQ(interface.make_table(1, kNoQueue, false), Status::kOk);
  EXPECT_EQ(interface.make_table(1, kNoQueue, false), Status::kAgain);
  TargetId id{};
  ASSERT_EQ(interface.table(1)->append(entry_for(5, 1), kPriorityList, id), Status::kOk);
  EXPECT_EQ(interface.free_table(1), Status::kAgain);
  interface.table(1)->unlink(id);
  EXPECT_EQ(interface.free_table(1), Status::kOk);
  EXPECT_EQ(interface.free_table(1), Status::kUnsupported);
  EXPECT_EQ(interface.table(1), nullptr);
}

TEST_F(Interface, WithoutATableAnOperationIsDropped) {
  TargetHeader header = put_of(5);
  EXPECT_EQ(interface.arrive(0, 2, header).failure, TargetFailure::kDropped);
  EXPECT_EQ(interface.arrive(0, UINT32_MAX, header).failure, TargetFailure::kDropped);
  EXPECT_EQ(interface.resources().registers.drops.load(), 2u);
}

TEST_F(Interface, APeerIsItsNumberAndOfTheSameUserUnlessTheClientSaysOtherwise) {
  ASSERT_EQ(interface.make_table(0, kNoQueue, false), Status::kOk);
  TargetDescription entry = entry_for(5, 1);
  entry.user = UserId{7};
  TargetId id{};
  ASSERT_EQ(interface.table(0)->append(entry, kPriorityList, id), Status::kOk);
  TargetHeader header = put_of(5, 8, 0, kBob);  // What it says of itself does not count.
  const TargetPlacement own = interface.arrive(3, 0, header);
  EXPECT_EQ(own.failure, TargetFailure::kNone);
  EXPECT_EQ(header.key.initiator, make_logical_id(3));
  interface.table(0)->finish(own, header, TargetFailure::kNone);
  ASSERT_TRUE(interface.identify(3, make_physical_id(1, 2), UserId{8}));
  EXPECT_EQ(interface.arrive(3, 0, header).failure, TargetFailure::kPermissionViolation);
  EXPECT_EQ(header.key.initiator, make_physical_id(1, 2));
}

TEST_F(Interface, FlowControlKeepsRoomForEventsInTheQueue) {
  const QueueId queue = make_queue(2);
  ASSERT_EQ(interface.make_table(0, queue, true), Status::kOk);
  TargetId id{};
  ASSERT_EQ(interface.table(0)->append(entry_for(5, 1), kPriorityList, id), Status::kOk);
  TargetHeader header = put_of(5);
  const TargetPlacement first = interface.arrive(3, 0, header);
  const TargetPlacement second = interface.arrive(3, 0, header);
  EXPECT_EQ(interface.arrive(3, 0, header).failure, TargetFailure::kTableDisabled);
  interface.table(0)->finish(first, header, TargetFailure::kNone);
  interface.table(0)->finish(second, header, TargetFailure::kNone);
  EXPECT_EQ(events(), "put 1, put 1, table-disabled 0");
  interface.table(0)->enable();
  EXPECT_FALSE(interface.arrive(3, 0, header).is_refused());
}

}  // namespace
}  // namespace ch3_offload
