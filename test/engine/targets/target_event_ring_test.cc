// The two ends of an event queue.

#include "engine/targets/target_event_ring.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "engine/targets/target_entries.h"

namespace ch3_offload {
namespace {

TargetEvent event_of(std::uintptr_t cookie, TargetEventKind kind = TargetEventKind::kPut) {
  TargetEvent event;
  event.kind = kind;
  event.cookie = reinterpret_cast<void*>(cookie);
  return event;
}

class EventRing : public testing::Test {
 protected:
  void make(std::size_t events, std::size_t tables = 0) {
    memory = TargetEventMemory::make(events, tables);
    ASSERT_TRUE(writer.attach(memory->ring));
  }
  /// The oldest `most` events.
  std::string take(int most = 1000) {
    std::string text;
    TargetEvent event;
    bool lost = false;
    TargetEventReader reader(memory->ring);
    for (; most > 0 && reader.take(event, lost); --most)
      text += std::string(text.empty() ? "" : ", ") + (lost ? "lost " : "") + short_form(event);
    return text;
  }

  std::unique_ptr<TargetEventMemory> memory;
  TargetEventWriter writer;
};

TEST_F(EventRing, GivesItsEventsInOrder) {
  make(3);
  EXPECT_TRUE(TargetEventReader(memory->ring).empty());
  for (std::uintptr_t i = 1; i <= 3; ++i) writer.push(event_of(i));
  EXPECT_FALSE(TargetEventReader(memory->ring).empty());
  EXPECT_EQ(take(2), "put 1, put 2");
  writer.push(event_of(4));
  writer.push(event_of(5));
  EXPECT_EQ(take(), "put 3, put 4, put 5");
}

TEST_F(EventRing, WhatFindsItFullIsDroppedAndTheNextThatHasRoomSaysSo) {
  make(2);
  for (std::uintptr_t i = 1; i <= 5; ++i) writer.push(event_of(i));
  EXPECT_EQ(take(1), "put 1");
  writer.push(event_of(6));
  EXPECT_EQ(take(), "put 2, lost put 6");
  writer.push(event_of(7));
  EXPECT_EQ(take(), "put 7");
}

TEST_F(EventRing, ADisabledEventHasRoomOfItsOwn) {
  make(2, 1);
  writer.push(event_of(1));
  writer.push(event_of(2));
  writer.push(event_of(3, TargetEventKind::kTableDisabled));
  writer.push(event_of(4));
  writer.push(event_of(5, TargetEventKind::kTableDisabled));
  EXPECT_EQ(take(2), "put 1, put 2");
  writer.push(event_of(6));
  EXPECT_EQ(take(), "table-disabled 3, lost put 6");
}

TEST_F(EventRing, WhatIsReservedIsNobodyElses) {
  make(3, 1);
  EXPECT_TRUE(writer.reserve(2));
  EXPECT_FALSE(writer.reserve(2));
  writer.push(event_of(1));
  writer.push(event_of(2));  // Dropped: the other two are reserved.
  writer.push(event_of(3, TargetEventKind::kTableDisabled));
  writer.unreserve(2);
  writer.push(event_of(4));
  writer.push(event_of(5));
  EXPECT_EQ(take(), "put 1, lost table-disabled 3, put 4, put 5");
}

TEST_F(EventRing, FlowControlLooksAtWhatTheClientHasTaken) {
  make(2, 1);
  writer.push(event_of(1));
  writer.push(event_of(2));
  writer.push(event_of(3, TargetEventKind::kTableDisabled));
  EXPECT_FALSE(writer.reserve(1));
  EXPECT_EQ(take(1), "put 1");
  EXPECT_TRUE(writer.reserve(1));
  EXPECT_FALSE(writer.reserve(1));
  EXPECT_EQ(take(1), "put 2");
  EXPECT_TRUE(writer.reserve(1)) << "the disabled event does not count";
}

TEST_F(EventRing, AReaderInAnotherThreadTakesEachEventOnce) {
  constexpr std::uintptr_t kEvents = 200'000;
  make(64);
  std::uintptr_t expected = 1;
  bool is_in_order = true, has_lost = false;
  std::thread reader([&] {
    TargetEventReader end(memory->ring);
    TargetEvent event;
    bool lost = false;
    while (expected <= kEvents) {
      if (!end.take(event, lost)) {
        std::this_thread::yield();
        continue;
      }
      has_lost = has_lost || lost;
      is_in_order = is_in_order && reinterpret_cast<std::uintptr_t>(event.cookie) == expected;
      ++expected;
    }
  });
  for (std::uintptr_t i = 1; i <= kEvents; ++i) {
    while (!writer.reserve(1)) std::this_thread::yield();
    writer.unreserve(1);
    writer.push(event_of(i));
  }
  reader.join();
  EXPECT_TRUE(is_in_order);
  EXPECT_FALSE(has_lost);
}

}  // namespace
}  // namespace ch3_offload
