// A job of more processes than one may have queue pairs: what does not depend on the machine.

#include "rdma/verbs/many_peers.h"

#include <gtest/gtest.h>

#include "rdma/verbs/fake_verbs.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kProcesses = 600;
constexpr std::uint32_t kPeers = kProcesses - 1;
constexpr std::size_t kListeners = 1;
constexpr std::size_t kMostDescriptors =
    kListeners + SocketIntroducer::kMostDials + SocketIntroducer::kMostGuests;

class ManyPeersTest : public testing::Test {
 protected:
  void make(const ManyPeers::Conditions& conditions) {
    Result<std::unique_ptr<ManyPeers>> made = ManyPeers::make(conditions);
    ASSERT_TRUE(made.ok()) << made.error().message;
    job_ = std::move(made.value());
  }
  void TearDown() override {
    if (job_ != nullptr) {
      EXPECT_EQ(job_->errors(), std::vector<std::string>{});
    }
    job_.reset();
    EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks();
    EXPECT_EQ(fake_verbs::violations(), std::vector<std::string>{});
    EXPECT_EQ(fake_verbs::counters().overflows, 0u);
  }
  /// Exchanges messages three times. All links but the last few are recycled each time, and none breaks.
  void check_exchanges() {
    const std::uint32_t most_queue_pairs = RailConfig{}.most_queue_pairs;
    for (int i = 0; i < 3; ++i) {
      const ManyPeers::Phase phase = job_->exchange();
      EXPECT_EQ(phase.lost, 0u);
      EXPECT_GE(phase.made, kPeers - most_queue_pairs);
      EXPECT_GE(phase.parked, kPeers - most_queue_pairs);
      EXPECT_LE(phase.most_descriptors, kMostDescriptors);
      EXPECT_LE(job_->subject().figures().queue_pairs, most_queue_pairs);
    }
  }

  std::unique_ptr<ManyPeers> job_;
};

TEST_F(ManyPeersTest, AllToAllRecyclesLinksAndLosesNoMessage) {
  make({.processes = kProcesses});
  check_exchanges();
}

TEST_F(ManyPeersTest, AllPeersMayDialAtOnce) {
  make({.processes = kProcesses, .begun_at_once = kProcesses});
  check_exchanges();
}

TEST_F(ManyPeersTest, ADeviceThatDoesNotTellTheLastReceiveServes) {
  make({.processes = kProcesses, .tells_last_receive = false});
  check_exchanges();
}

TEST_F(ManyPeersTest, AnIdleJobSendsNothing) {
  make({.processes = kProcesses, .peer_timeout_ms = 2000});
  job_->exchange();
  job_->come_to_rest();
  const ManyPeers::Phase phase = job_->rest(1, /*awaits=*/false);
  EXPECT_EQ(phase.device_messages, 0u);
  EXPECT_EQ(phase.probes, 0u);
  EXPECT_EQ(phase.credit_messages, 0u);
  EXPECT_EQ(phase.dials, 0u);
  EXPECT_EQ(phase.accepted, 0u);
  EXPECT_EQ(phase.most_descriptors, kListeners);
}

TEST_F(ManyPeersTest, APeerTakesLittleMemory) {
  constexpr std::int64_t kUnknownBytes = 64;
  constexpr std::int64_t kConnectedBytes = 4096;
  make({.processes = kProcesses});
  const std::int64_t at_first = ManyPeers::subject_heap_bytes();
  job_->exchange();
  job_->exchange();
  EXPECT_LE(job_->heap_for_last_peer(), kUnknownBytes * kPeers);
  EXPECT_LE(job_->heap_for_connecting(), kConnectedBytes * kPeers);
  EXPECT_LE(ManyPeers::subject_heap_bytes() - at_first, kConnectedBytes * kPeers);
}

}  // namespace
}  // namespace ch3_offload
