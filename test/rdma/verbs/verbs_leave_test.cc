// The end of a provider, step by step: Provider::leave().

#include <chrono>

#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

using Clock = std::chrono::steady_clock;

/// Process 0 leaves.
class VerbsLeave : public VerbsProviders {
 protected:
  /// Returns whether it is over.
  bool leave() {
    const auto begin = Clock::now();
    const bool is_over = at(0).leave();
    longest_ = std::max(longest_, Clock::now() - begin);
    return is_over;
  }
  void end() {
    const auto begin = Clock::now();
    world_->leave(PeerId{0});
    longest_ = std::max(longest_, Clock::now() - begin);
  }

  Clock::duration longest_{};  ///< Of all steps.
};

TEST_F(VerbsLeave, WithoutPeersItIsOverAtOnce) {
  make(1);
  EXPECT_TRUE(leave());
}

TEST_F(VerbsLeave, WhatWasSentArrivesAndThePeerIsTold) {
  make(2, patient_config());
  establish(0, 1);
  ASSERT_EQ(try_send(0, 1, Pattern(3).bytes(20)), Status::kOk);
  const auto deadline = Clock::now() + std::chrono::milliseconds(kWaitMs);
  while (!leave() && Clock::now() < deadline) poll(1);
  EXPECT_TRUE(leave());
  end();
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kPeerDown) == 1; }));
  EXPECT_EQ(sink(1).count(Kind::kMessage), 2u);
}

TEST_F(VerbsLeave, NoStepWaitsForAPeerThatDoesNotAnswer) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  connect(0, 1);
  ASSERT_EQ(try_send(0, 1, Pattern(3).bytes(20)), Status::kOk);  // No link yet.
  const auto begin = Clock::now();
  while (!leave()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(1000));
  end();
  EXPECT_LT(longest_, std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace ch3_offload
