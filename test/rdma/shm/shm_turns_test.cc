// may_have_work(), by which a process that shares its core looks for work between two turns.

#include <gtest/gtest.h>

#include <vector>

#include "rdma/contract_world.h"
#include "rdma/shm/shm_world.h"

namespace ch3_offload {
namespace {

constexpr PeerId kReader{0};

class ShmTurns : public testing::Test {
 protected:
  /// All others are connected with the reader, and nothing is on its way.
  void make(std::uint32_t size) {
    world_ = std::make_unique<ShmWorld>(size, ShmConfig{});
    sinks_.resize(size);
    for (std::uint32_t i = 1; i < size; ++i) {
      ASSERT_TRUE(
          endpoints_.connect(world_->at(PeerId{i}), PeerId{i}, kReader, reader().local_address()).ok());
      ASSERT_EQ(send(PeerId{i}), Status::kOk);
    }
    while (sinks_[0].events.size() < size - 1) poll_all();
    // Housekeeping has connected both sides by then, and answers have arrived.
    for (int i = 0; i < 1000; ++i) poll_all();
  }

  Provider& reader() { return world_->at(kReader); }
  Status send(PeerId from) {
    std::span<std::byte> slot;
    const Status status = world_->at(from).reserve(endpoints_.of(from, kReader), 8, slot);
    if (status == Status::kOk) world_->at(from).commit(endpoints_.of(from, kReader), 8);
    return status;
  }
  std::size_t poll(PeerId peer) { return world_->at(peer).poll(sinks_[index_of(peer)], 64); }
  void poll_all() {
    for (std::uint32_t i = 0; i < sinks_.size(); ++i) poll(PeerId{i});
  }

  std::unique_ptr<ShmWorld> world_;
  std::vector<RecordingSink> sinks_;
  Endpoints endpoints_;
};

TEST_F(ShmTurns, WithoutTrafficThereIsNoWork) {
  make(4);
  EXPECT_FALSE(reader().may_have_work());
}

TEST_F(ShmTurns, AMessageIsWorkUntilItIsDelivered) {
  make(2);
  ASSERT_EQ(send(PeerId{1}), Status::kOk);
  EXPECT_TRUE(reader().may_have_work());
  EXPECT_EQ(poll(kReader), 1U);
  EXPECT_FALSE(reader().may_have_work());
}

/// One poll looks at some of the rings only. It finds what was seen.
TEST_F(ShmTurns, TheNextPollFindsWhatWasSeenInAnyRing) {
  constexpr std::uint32_t kSize = 40;
  make(kSize);
  for (std::uint32_t i = 1; i < kSize; ++i) {
    ASSERT_EQ(send(PeerId{i}), Status::kOk);
    ASSERT_TRUE(reader().may_have_work());
    ASSERT_EQ(poll(kReader), 1U) << "from " << i;
    ASSERT_FALSE(reader().may_have_work());
  }
}

/// What comes in a row is delivered in a row. The number is that of the rings: with more than eight of them, bits say
/// which ones to look at.
class ShmRuns : public ShmTurns, public testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override { make(GetParam()); }
  void send_three() {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(send(PeerId{1}), Status::kOk);
  }
};
INSTANTIATE_TEST_SUITE_P(Rings, ShmRuns, testing::Values(2, 40));

TEST_P(ShmRuns, AfterAPauseAMessageComesAlone) {
  for (int pause = 0; pause < 3; ++pause) {
    send_three();
    EXPECT_EQ(poll(kReader), 1U);
    EXPECT_TRUE(reader().may_have_work());
    EXPECT_EQ(poll(kReader), 2U);
    EXPECT_FALSE(reader().may_have_work());
    send_three();
    EXPECT_EQ(poll(kReader), 3U) << "without a pause";
    EXPECT_EQ(poll(kReader), 0U);
  }
}

/// What ends a sleep is one byte, for all messages together.
TEST_P(ShmRuns, DuringASleepAllAreDelivered) {
  ASSERT_TRUE(reader().arm());
  ASSERT_EQ(poll(kReader), 0U);
  const std::size_t before = sinks_[0].events.size();
  send_three();
  poll(kReader);
  EXPECT_EQ(sinks_[0].events.size(), before + 3);
  reader().disarm();
}

}  // namespace
}  // namespace ch3_offload
