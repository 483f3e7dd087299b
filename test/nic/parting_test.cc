#include "nic/parting.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <vector>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace parting_test {

constexpr std::uint64_t kMillisecond = 1'000'000;

// The simulated machine, as the process that looks sees it.
std::uint64_t clock_ns;
std::uint32_t runs_on;
ProcessorSet mask;
std::vector<std::uint32_t> moves;
bool may_move;
std::uint64_t move_takes_ns;
const WaitingPlace* own_at_move;  // What the peers see when the process moves.
std::optional<std::uint32_t> said_at_move;

constexpr Parting::Machine kMachine{
    []() noexcept { return clock_ns; },
    []() noexcept -> std::optional<std::uint32_t> { return runs_on; },
    [] { return mask; },
    [](std::uint32_t processor, const ProcessorSet& allowed) noexcept {
      EXPECT_EQ(allowed, mask);
      if (own_at_move != nullptr) said_at_move = own_at_move->processor();
      if (!may_move) return false;
      runs_on = processor;
      clock_ns += move_takes_ns;
      moves.push_back(processor);
      return true;
    },
};

class PartingTest : public testing::Test {
 protected:
  PartingTest() {
    clock_ns = 1000 * kMillisecond;
    runs_on = 0;
    mask = {0, 1};
    moves.clear();
    may_move = true;
    move_takes_ns = 0;
    own_at_move = nullptr;
    said_at_move.reset();
    for (std::size_t i = 0; i < peers_.size(); ++i) pointers_[i] = &peers_[i];
  }

  /// Of the process, whose peers are the first `count` of peers_.
  bool look(std::size_t count = 1) { return parting_.look({&own_, std::span(pointers_).first(count)}); }

  /// The scheduler brings both to processor 0 again, and they wait for each other for `length_ns`. Returns
  /// after how long the process has parted; `length_ns`: it has not.
  std::uint64_t meet(std::uint64_t length_ns) {
    constexpr std::uint64_t kBetweenLooksNs = 100'000;
    runs_on = 0;
    for (std::uint64_t met_ns = 0; met_ns < length_ns;
         met_ns += kBetweenLooksNs, clock_ns += kBetweenLooksNs) {
      peers_[0].say(0, clock_ns);
      if (look()) return met_ns;
    }
    return length_ns;
  }

  Parting parting_{kMachine};
  WaitingPlace own_;
  std::array<WaitingPlace, 40> peers_;
  std::array<const WaitingPlace*, 40> pointers_;
};

TEST_F(PartingTest, LeavesAProcessorOnWhichAPeerWaits) {
  peers_[0].say(0, clock_ns);
  EXPECT_TRUE(look());
  EXPECT_EQ(moves, std::vector<std::uint32_t>{1});
  EXPECT_EQ(parting_.partings(), 1u);
}

TEST_F(PartingTest, SaysWhereItWaits) {
  runs_on = 7;
  EXPECT_FALSE(look());
  EXPECT_EQ(own_.processor_since(clock_ns, kMillisecond), 7u);
}

TEST_F(PartingTest, StaysWhereNobodyElseWaits) {
  peers_[0].say(1, clock_ns);
  EXPECT_FALSE(look(2));  // Of the other one, nothing is known.
  EXPECT_TRUE(moves.empty());
}

TEST_F(PartingTest, StaysWhereAPeerWaitedLongAgo) {
  peers_[0].say(0, clock_ns);
  clock_ns += 20 * kMillisecond;
  EXPECT_FALSE(look());
}

// One processor runs one of the two at a time. No numbers are compared: either may be the one.
TEST_F(PartingTest, OnlyOneOfTwoMoves) {
  WaitingPlace other;
  Parting of_other(kMachine);
  const WaitingPlace* const own_place = &own_;
  const WaitingPlace* const other_place = &other;
  own_at_move = own_place;
  EXPECT_FALSE(of_other.look({&other, {&own_place, 1}}));
  EXPECT_TRUE(parting_.look({&own_, {&other_place, 1}}));
  EXPECT_EQ(said_at_move, 1u) << "said before it moves, because the other one runs meanwhile";
  runs_on = 0;  // The other one's processor.
  EXPECT_FALSE(of_other.look({&other, {&own_place, 1}}));
  EXPECT_EQ(moves.size(), 1u);
}

TEST_F(PartingTest, NeverLeavesItsMask) {
  mask = {0};
  peers_[0].say(0, clock_ns);
  EXPECT_FALSE(look());
  EXPECT_TRUE(moves.empty());
  EXPECT_EQ(own_.processor(), 0u);
}

TEST_F(PartingTest, GoesWhereNoPeerIsAndToTheNextOfThese) {
  mask = {0, 1, 2, 5, 6};
  runs_on = 2;
  peers_[0].say(2, clock_ns);
  peers_[1].say(5, clock_ns - 900 * kMillisecond);  // It computes: the last that is known.
  EXPECT_TRUE(look(2));
  EXPECT_EQ(moves.back(), 6u);

  clock_ns += 10 * kMillisecond;
  peers_[0].say(6, clock_ns);
  EXPECT_TRUE(look(2));
  EXPECT_EQ(moves.back(), 0u) << "behind the last comes the first";
}

TEST_F(PartingTest, StaysWhereEveryOtherProcessorHasAPeer) {
  mask = {0, 1, 2};
  for (std::uint32_t i = 0; i < 3; ++i) peers_[i].say(i, clock_ns);
  EXPECT_FALSE(look(3));
  EXPECT_TRUE(moves.empty());
}

TEST_F(PartingTest, FindsEachOfManyPeersAfterSomeLooks) {
  for (auto& peer : peers_) peer.say(1, clock_ns);
  mask = {0, 1, 2};
  peers_[33].say(0, clock_ns);
  int looks = 1;
  while (!look(peers_.size()) && looks < 10) ++looks;
  EXPECT_LE(looks, 3);
  EXPECT_EQ(moves, std::vector<std::uint32_t>{2});
}

TEST_F(PartingTest, WhereMovingHelpedItMovesAtOnceTheNextTime) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(meet(kMillisecond), 0u);
    clock_ns += 20 * kMillisecond;
  }
}

TEST_F(PartingTest, WhereMovingDoesNotHelpItBecomesRare) {
  EXPECT_EQ(meet(kMillisecond), 0u);
  std::uint64_t last_ns = 0;
  for (int i = 0; i < 8; ++i) {
    clock_ns += 10'000;  // The scheduler undoes it at once.
    const std::uint64_t stayed_ns = meet(500 * kMillisecond);
    EXPECT_GT(stayed_ns, last_ns);
    last_ns = stayed_ns;
  }
  EXPECT_GT(last_ns, 100 * kMillisecond);
}

TEST_F(PartingTest, AfterALongMoveItStaysForASecond) {
  move_takes_ns = 900 * kMillisecond;
  peers_[0].say(0, clock_ns);
  ASSERT_TRUE(look());
  move_takes_ns = 0;
  clock_ns += 200 * kMillisecond;  // A move that had helped for so long would be followed by another at once.
  const std::uint64_t stayed_ns = meet(2'000 * kMillisecond);
  EXPECT_GT(stayed_ns, 700 * kMillisecond);
  EXPECT_LT(stayed_ns, 900 * kMillisecond);
}

TEST_F(PartingTest, WhoMayNotMoveSaysThatHeIsHereAndTriesRarely) {
  may_move = false;
  EXPECT_EQ(meet(kMillisecond), kMillisecond);
  EXPECT_EQ(own_.processor(), 0u);
  EXPECT_EQ(parting_.partings(), 0u);
}

TEST_F(PartingTest, WithoutPlacesItDoesNothing) { EXPECT_FALSE(parting_.look({})); }

TEST(PartingOfThisMachine, KeepsTheAffinityMask) {
  const ProcessorSet before = affinity_of(0);
  if (before.size() < 2) GTEST_SKIP() << "one processor";
  WaitingPlace own, peer;
  const WaitingPlace* const peers = &peer;
  Parting parting;
  // The scheduler may move this thread between the two lines.
  for (int i = 0; i < 1000 && parting.partings() == 0; ++i) {
    peer.say(static_cast<std::uint32_t>(sched_getcpu()), monotonic_ns());
    parting.look({&own, {&peers, 1}});
  }
  EXPECT_EQ(parting.partings(), 1u);
  EXPECT_NE(own.processor(), peer.processor());
  EXPECT_EQ(affinity_of(0), before);
}

}  // namespace parting_test
}  // namespace ch3_offload
