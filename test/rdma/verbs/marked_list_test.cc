// A list of what waits for something.

#include "rdma/verbs/marked_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace ch3_offload {
namespace {

struct Waiter {
  bool waits = false;
  int visits = 0;
};
using Waiters = MarkedList<Waiter, &Waiter::waits>;

TEST(MarkedList, HoldsAMemberOnce) {
  Waiters list;
  list.make_room(2);
  EXPECT_TRUE(list.empty());
  Waiter one, other;
  list.add(one);
  list.add(one);
  EXPECT_EQ(list.size(), 1u);
  EXPECT_TRUE(one.waits);
  EXPECT_FALSE(other.waits);
  list.add(other);
  EXPECT_EQ(list.size(), 2u);
  EXPECT_FALSE(list.empty());
}

TEST(MarkedList, DrainVisitsAllInTheirOrderAndTakesThemOut) {
  Waiters list;
  Waiter waiters[3];
  list.make_room(3);
  for (const int i : {2, 0, 1}) list.add(waiters[i]);
  std::vector<Waiter*> visited;
  list.drain([&](Waiter& waiter) {
    EXPECT_FALSE(waiter.waits);
    visited.push_back(&waiter);
  });
  EXPECT_EQ(visited, (std::vector<Waiter*>{&waiters[2], &waiters[0], &waiters[1]}));
  EXPECT_TRUE(list.empty());
  list.drain([](Waiter&) { ADD_FAILURE() << "nobody is there"; });
}

TEST(MarkedList, WhoIsAddedDuringADrainIsVisitedNextTime) {
  Waiters list;
  Waiter again, later;
  list.make_room(2);
  list.add(again);
  const auto visit = [&](Waiter& waiter) {
    ++waiter.visits;
    list.add(again);
    list.add(later);
  };
  list.drain(visit);
  EXPECT_EQ(again.visits, 1);
  EXPECT_EQ(later.visits, 0);
  EXPECT_EQ(list.size(), 2u);
  EXPECT_TRUE(again.waits && later.waits);
  list.drain(visit);
  EXPECT_EQ(again.visits, 2);
  EXPECT_EQ(later.visits, 1);
}

/// `again` is added before its turn comes. It is visited in this drain, and not in the next one.
TEST(MarkedList, WhoIsStillToBeVisitedIsNotAddedAgain) {
  Waiters list;
  Waiter first, again;
  list.make_room(2);
  list.add(first);
  list.add(again);
  list.drain([&](Waiter& waiter) {
    ++waiter.visits;
    if (&waiter == &first) list.add(again);
  });
  EXPECT_EQ(again.visits, 1);
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace ch3_offload
