// A network interface without an engine: its tables, queues and counters, and who its peers are.

#include "engine/targets/target_interface.h"

#include <gtest/gtest.h>

#include "engine/targets/target_entries.h"

namespace ch3_offload {
namespace {

class Interface : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(interface.prepare(), Status::kOk); }

  /// The kinds of all events of a queue.
  std::string events(QueueId queue) {
    std::string text;
    TargetEvent event;
    bool lost = false;
    while (interface.next_event(queue, event, lost))
      text += std::string(text.empty() ? "" : ", ") + (lost ? "lost " : "") + short_form(event);
    return text;
  }

  TargetInterface interface {
    {
      {100, 100, 100}, 4, UserId { 7 }
    }
  };
};

TEST_F(Interface, AQueueGivesItsEventsInOrder) {
  const QueueId queue = interface.make_queue(10);
  for (std::uintptr_t cookie = 1; cookie <= 3; ++cookie) {
    TargetEvent event;
    event.cookie = reinterpret_cast<void*>(cookie);
    interface.tell(queue, event);
  }
  EXPECT_EQ(events(queue), "put 1, put 2, put 3");
}

TEST_F(Interface, AQueueThatIsFullLosesItsOldestEvents) {
  const QueueId queue = interface.make_queue(1);  // And one for each table.
  for (std::uintptr_t cookie = 1; cookie <= 8; ++cookie) {
    TargetEvent event;
    event.cookie = reinterpret_cast<void*>(cookie);
    interface.tell(queue, event);
  }
  EXPECT_EQ(events(queue), "lost put 4, put 5, put 6, put 7, put 8");
  EXPECT_EQ(events(queue), "");
}

TEST_F(Interface, AQueueThatIsGoneIsToldNothing) {
  const QueueId queue = interface.make_queue(1);
  interface.free_queue(queue);
  interface.tell(queue, {});
  interface.tell(kNoQueue, {});
  EXPECT_EQ(events(queue), "");
  EXPECT_NE(interface.make_queue(1), queue);
}

TEST_F(Interface, ACounterCountsUntilItIsFreed) {
  const CounterId id = interface.make_counter();
  interface.count(id, true, 5);
  interface.count(id, false, 1);
  ASSERT_NE(interface.counter(id), nullptr);
  EXPECT_EQ(*interface.counter(id), (TargetCount{5, 1}));
  interface.free_counter(id);
  interface.count(id, true, 1);
  EXPECT_EQ(interface.counter(id), nullptr);
  EXPECT_EQ(*interface.counter(interface.make_counter()), (TargetCount{0, 0}));
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
  EXPECT_EQ(interface.resources().registers.drops, 2u);
}

TEST_F(Interface, APeerIsItsNumberAndOfTheSameUserUnlessTheClientSaysOtherwise) {
  ASSERT_EQ(interface.make_table(0, kNoQueue, false), Status::kOk);
  TargetDescription entry = entry_for(5, 1);
  entry.user = UserId{7};
  TargetId id{};
  ASSERT_EQ(interface.table(0)->append(entry, kPriorityList, id), Status::kOk);
  TargetHeader header = put_of(5, 8, 0, kBob);  // What it says of itself does not count.
  const Placement own = interface.arrive(3, 0, header);
  EXPECT_EQ(own.failure, TargetFailure::kNone);
  EXPECT_EQ(header.key.initiator, make_logical_id(3));
  interface.table(0)->finish(own, header, TargetFailure::kNone);
  ASSERT_TRUE(interface.identify(3, make_physical_id(1, 2), UserId{8}));
  EXPECT_EQ(interface.arrive(3, 0, header).failure, TargetFailure::kPermissionViolation);
  EXPECT_EQ(header.key.initiator, make_physical_id(1, 2));
}

TEST_F(Interface, FlowControlKeepsRoomForEventsInTheQueue) {
  const QueueId queue = interface.make_queue(2);
  ASSERT_EQ(interface.make_table(0, queue, true), Status::kOk);
  TargetId id{};
  ASSERT_EQ(interface.table(0)->append(entry_for(5, 1), kPriorityList, id), Status::kOk);
  TargetHeader header = put_of(5);
  const Placement first = interface.arrive(3, 0, header);
  const Placement second = interface.arrive(3, 0, header);
  EXPECT_EQ(interface.arrive(3, 0, header).failure, TargetFailure::kTableDisabled);
  interface.table(0)->finish(first, header, TargetFailure::kNone);
  interface.table(0)->finish(second, header, TargetFailure::kNone);
  EXPECT_EQ(events(queue), "put 1, put 1, table-disabled 0");
  interface.table(0)->enable();
  EXPECT_FALSE(interface.arrive(3, 0, header).is_refused());
}

}  // namespace
}  // namespace ch3_offload
