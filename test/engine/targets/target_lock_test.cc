// The lock of a table: a random model test against a list that is walked, and the ends of holders.

#include "engine/targets/target_lock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ch3_offload {
namespace {

using Mode = TargetLock::Mode;

std::vector<std::uint32_t> granted(TargetLock& lock) {
  std::vector<std::uint32_t> questions;
  for (TargetLock::Waiter waiter; lock.take_granted(waiter);) questions.push_back(waiter.question);
  return questions;
}

std::vector<std::uint32_t> refused(TargetLock& lock) {
  std::vector<std::uint32_t> questions;
  for (TargetLock::Waiter waiter; lock.take_refused(waiter);) questions.push_back(waiter.question);
  return questions;
}

using Questions = std::vector<std::uint32_t>;

TEST(TargetLock, ReadersShareAndAWriterWaitsForAll) {
  TargetLock lock;
  EXPECT_TRUE(lock.is_idle());
  ASSERT_TRUE(lock.ask({1, 10, Mode::kShared}));
  ASSERT_TRUE(lock.ask({2, 20, Mode::kShared}));
  ASSERT_TRUE(lock.ask({3, 30, Mode::kExclusive}));
  EXPECT_EQ(granted(lock), (Questions{10, 20}));
  EXPECT_TRUE(lock.give_back(1));
  EXPECT_EQ(granted(lock), Questions{});
  EXPECT_TRUE(lock.give_back(2));
  EXPECT_EQ(granted(lock), Questions{30});
  EXPECT_FALSE(lock.is_idle());
  EXPECT_TRUE(lock.give_back(3));
  EXPECT_TRUE(lock.is_idle());
}

TEST(TargetLock, AReaderDoesNotOvertakeAWriterThatWaits) {
  TargetLock lock;
  ASSERT_TRUE(lock.ask({1, 10, Mode::kShared}));
  ASSERT_TRUE(lock.ask({2, 20, Mode::kExclusive}));
  ASSERT_TRUE(lock.ask({3, 30, Mode::kShared}));
  EXPECT_EQ(granted(lock), Questions{10});
  ASSERT_TRUE(lock.give_back(1));
  EXPECT_EQ(granted(lock), Questions{20});
  ASSERT_TRUE(lock.give_back(2));
  EXPECT_EQ(granted(lock), Questions{30});
}

TEST(TargetLock, WhoHasItOrWaitsMustNotAskAgain) {
  TargetLock lock;
  ASSERT_TRUE(lock.ask({1, 10, Mode::kExclusive}));
  EXPECT_FALSE(lock.ask({1, 11, Mode::kShared})) << "it waits";
  ASSERT_EQ(granted(lock), Questions{10});
  EXPECT_FALSE(lock.ask({1, 12, Mode::kShared})) << "it has it";
  EXPECT_FALSE(lock.give_back(2)) << "it is another's";
  ASSERT_TRUE(lock.ask({2, 20, Mode::kShared}));
  EXPECT_FALSE(lock.give_back(2)) << "it waits";
}

TEST(TargetLock, AHolderThatDiesBreaksIt) {
  TargetLock lock;
  ASSERT_TRUE(lock.ask({1, 10, Mode::kShared}));
  ASSERT_TRUE(lock.ask({2, 20, Mode::kShared}));
  ASSERT_TRUE(lock.ask({3, 30, Mode::kExclusive}));
  ASSERT_EQ(granted(lock), (Questions{10, 20}));
  EXPECT_EQ(refused(lock), Questions{});
  lock.forget(1);
  EXPECT_EQ(granted(lock), Questions{});
  EXPECT_EQ(refused(lock), Questions{30});
  EXPECT_TRUE(lock.give_back(2)) << "the other one has it still";
  ASSERT_TRUE(lock.ask({4, 40, Mode::kShared}));
  EXPECT_EQ(granted(lock), Questions{});
  EXPECT_EQ(refused(lock), Questions{40});
  EXPECT_TRUE(lock.is_idle());
}

TEST(TargetLock, AWaiterThatDiesIsForgotten) {
  TargetLock lock;
  ASSERT_TRUE(lock.ask({1, 10, Mode::kExclusive}));
  ASSERT_TRUE(lock.ask({2, 20, Mode::kExclusive}));
  ASSERT_TRUE(lock.ask({3, 30, Mode::kExclusive}));
  ASSERT_EQ(granted(lock), Questions{10});
  lock.forget(2);
  ASSERT_TRUE(lock.give_back(1));
  EXPECT_EQ(granted(lock), Questions{30});
  EXPECT_EQ(refused(lock), Questions{});
}

/// What the lock should do, by walking a list.
struct Model {
  struct Asked {
    TargetLock::Waiter waiter;
    bool has = false;
  };
  std::vector<Asked> all;  ///< The oldest first.

  bool knows(std::uint32_t peer) const {
    return std::any_of(all.begin(), all.end(), [&](const Asked& one) { return one.waiter.peer == peer; });
  }
  Questions grant() {
    Questions questions;
    for (Asked& one : all) {
      if (one.has) continue;
      const bool is_free = std::none_of(all.begin(), all.end(), [&](const Asked& other) {
        return other.has && (other.waiter.mode == Mode::kExclusive || one.waiter.mode == Mode::kExclusive);
      });
      if (!is_free) break;
      one.has = true;
      questions.push_back(one.waiter.question);
    }
    return questions;
  }
};

TEST(TargetLock, DoesWhatAListDoes) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    TargetLock lock;
    Model model;
    std::uint32_t question = 0;
    for (int step = 0; step < 2000; ++step) {
      const std::uint32_t peer = random() % 12;
      const bool has = std::any_of(model.all.begin(), model.all.end(), [&](const Model::Asked& one) {
        return one.waiter.peer == peer && one.has;
      });
      if (random() % 2 == 0) {
        const TargetLock::Waiter waiter{peer, ++question,
                                        random() % 3 == 0 ? Mode::kExclusive : Mode::kShared};
        const bool may = !model.knows(peer);
        ASSERT_EQ(lock.ask(waiter), may);
        if (may) model.all.push_back({waiter});
      } else {
        ASSERT_EQ(lock.give_back(peer), has);
        if (has) std::erase_if(model.all, [&](const Model::Asked& one) { return one.waiter.peer == peer; });
      }
      ASSERT_EQ(granted(lock), model.grant());
      ASSERT_EQ(lock.is_idle(), model.all.empty());
    }
  }
}

}  // namespace
}  // namespace ch3_offload
