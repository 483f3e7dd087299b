// The pool: objects by id, and ids that tell what is gone.

#include "engine/pool.h"

#include <gtest/gtest.h>

#include <set>

namespace ch3_offload {
namespace {

struct Thing {
  std::uint64_t pool_id = 0;
  int value = 7;
};

TEST(Pool, AnIdNamesItsObjectUntilThatIsGivenBack) {
  Pool<Thing> pool;
  std::set<Thing*> things;
  for (int i = 0; i < 1000; ++i) {
    Thing* const thing = pool.take();
    ASSERT_TRUE(things.insert(thing).second);
    EXPECT_EQ(thing->value, 7);
    thing->value = i;
    EXPECT_EQ(pool.find(thing->pool_id), thing);
  }
  EXPECT_EQ(pool.live(), 1000u);
  for (Thing* const thing : things) {
    const std::uint64_t id = thing->pool_id;
    pool.give_back(*thing);
    EXPECT_EQ(pool.find(id), nullptr);
  }
  EXPECT_EQ(pool.live(), 0u);
  for (const std::uint64_t invented : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{999}, UINT64_MAX}) {
    EXPECT_EQ(pool.find(invented), nullptr);
  }
}

TEST(Pool, ObjectsThatAreReservedAreTakenWithoutMore) {
  Pool<Thing> pool;
  EXPECT_TRUE(pool.reserve(100));
  std::set<Thing*> reserved;
  for (int i = 0; i < 100; ++i) reserved.insert(pool.take());
  EXPECT_EQ(reserved.size(), 100u);
  EXPECT_EQ(pool.live(), 100u);
  EXPECT_FALSE(pool.reserve(std::size_t{Pool<Thing>::kMaxObjects} + 1));
}

TEST(Pool, TheObjectThatWasUsedLastIsTakenFirst) {
  Pool<Thing> pool;
  Thing* const first = pool.take();
  Thing* const second = pool.take();
  pool.give_back(*first);
  pool.give_back(*second);
  EXPECT_EQ(pool.take(), second);
  EXPECT_EQ(pool.take(), first);
}

/// An id grows with each use of its object: none comes again, and what was an id before names nothing.
TEST(Pool, AMillionUsesOfOneObjectHaveAMillionIds) {
  Pool<Thing> pool;
  std::uint64_t last = 0;
  std::uint64_t early = 0;
  for (int i = 0; i < 1 << 20; ++i) {
    Thing* const thing = pool.take();
    ASSERT_GT(thing->pool_id, last);
    ASSERT_EQ(thing->pool_id >> Pool<Thing>::kIndexBits & 3, 0u) << "these bits are the user's";
    last = thing->pool_id;
    if (i == 10) early = last;
    ASSERT_TRUE(i <= 10 || pool.find(early) == nullptr);
    pool.give_back(*thing);
  }
}

/// A receiver of many senders may have that many messages: memory is the limit, not the ids.
TEST(Pool, MoreThan16MillionObjectsHaveIds) {
  struct Small {
    std::uint64_t pool_id = 0;
  };
  constexpr std::uint32_t kObjects = (1U << 24) + 1;
  Pool<Small> pool;
  for (std::uint32_t i = 0; i < kObjects; ++i) ASSERT_NE(pool.take(), nullptr) << i;
  EXPECT_EQ(pool.live(), kObjects);
  Small* const last = pool.take();
  EXPECT_EQ(pool.find(last->pool_id), last);
}

}  // namespace
}  // namespace ch3_offload
