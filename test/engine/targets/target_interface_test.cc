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
