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

}  // namespace
}  // namespace ch3_offload
