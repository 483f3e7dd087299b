// The fake verbs device: what does not get through, or late.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "rdma/verbs/fake_verbs_world.h"

namespace ch3_offload::fake_verbs {
namespace {

using namespace std::chrono_literals;

class FakeVerbsLoss : public FakeVerbs {
 protected:
  static void give_up_soon() {
    adjust([](Config& config) { config.retry_timeout = 20ms; });
  }
};

TEST_F(FakeVerbsLoss, PeerThatIsNeverConnectedExceedsTheRetries) {
  give_up_soon();
  one_ = std::make_unique<ConnectionEnd>();
  other_ = std::make_unique<ConnectionEnd>();
  one_->connect(*other_);
  one_->post({.id = 1, .length = 4, .flags = 0});
  one_->post({.id = 2, .length = 4, .flags = 0});
  EXPECT_EQ(one_->state(), IBV_QPS_RTS);
  const ibv_wc work = one_->poll_one();
  EXPECT_EQ(work.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(work.wr_id, 1u);
  expect_flushed(*one_, {2});
  EXPECT_EQ(one_->state(), IBV_QPS_ERR);
  EXPECT_EQ(one_->pair->state, IBV_QPS_ERR);  // By the query.
}

TEST_F(FakeVerbsLoss, TimeoutZeroNeverGivesUp) {
  give_up_soon();
  connect({.timeout = 0});
  other_->enter(IBV_QPS_ERR);
  one_->post({.id = 1});
  std::this_thread::sleep_for(40ms);
  EXPECT_TRUE(one_->poll().empty());
}

TEST_F(FakeVerbsLoss, MissingReceiveExceedsFiniteRetries) {
  give_up_soon();
  connect({.rnr_retry = 3});
  one_->post({.id = 1});
  EXPECT_EQ(one_->poll_one().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(FakeVerbsLoss, MissingReceiveIsWaitedForWithRetrySeven) {
  give_up_soon();
  connect();
  one_->post({.id = 1});
  std::this_thread::sleep_for(40ms);
  EXPECT_TRUE(one_->poll().empty());
  other_->post_receive(0);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
}

TEST_F(FakeVerbsLoss, DestroyedPeerIsMissed) {
  give_up_soon();
  connect();
  ibv_destroy_qp(other_->pair);
  other_->pair = nullptr;
  one_->post({.id = 1});
  EXPECT_EQ(one_->poll_one().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(FakeVerbsLoss, NumbersNextOwnerDoesNotGetOldTraffic) {
  give_up_soon();
  adjust([](Config& config) { config.devices[0].lowest_number_first = true; });
  connect();
  const std::uint32_t number = other_->pair->qp_num;
  ibv_destroy_qp(other_->pair);
  other_->psn = 0x1234;
  one_->psn = 0x777;  // Of the connection that the new one expects.
  other_->make_pair();
  EXPECT_EQ(other_->pair->qp_num, number);
  other_->connect(*one_);
  other_->post_receive(0);
  one_->post({.id = 1});
  EXPECT_EQ(one_->poll_one().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(other_->poll().empty());
}

TEST_F(FakeVerbsLoss, LinkDownStopsTrafficAndIsReported) {
  connect();
  other_->post_receive(0);
  set_link("fake0", false);
  EXPECT_EQ(take_event(*one_), IBV_EVENT_PORT_ERR);
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(one_->context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  one_->post({.id = 1});
  EXPECT_TRUE(one_->poll().empty());
  set_link("fake0", true);
  EXPECT_EQ(take_event(*one_), IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
}

TEST_F(FakeVerbsLoss, SilentPortLosesEverything) {
  give_up_soon();
  connect();
  other_->post_receive(0);
  set_silent("fake0", true);
  one_->post({.id = 1});
  EXPECT_EQ(one_->poll_one().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(other_->poll().empty());
}

TEST_F(FakeVerbsLoss, LossOnceIsRepairedByARetry) {
  connect();
  other_->post_receive(0);
  drop_next(1, Loss::kOnce);
  one_->post({.id = 1});
  EXPECT_EQ(counters().lost, 1u);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
}

TEST_F(FakeVerbsLoss, LostDataTearsAWrite) {
  give_up_soon();
  connect();
  other_->post_receive(0);
  std::fill(one_->buffer.begin(), one_->buffer.end(), 'x');
  drop_next(1, Loss::kData);
  one_->post(one_->write_to(*other_, 1, 10000));
  one_->post({.id = 2});
  EXPECT_EQ(one_->poll_one().status, IBV_WC_RETRY_EXC_ERR);
  expect_flushed(*one_, {2});
  EXPECT_TRUE(other_->poll().empty());
  EXPECT_EQ(other_->buffer[4095], 'x');
  EXPECT_EQ(other_->buffer[4096], '\0');
}

TEST_F(FakeVerbsLoss, LostAcknowledgementHidesWhatArrived) {
  give_up_soon();
  connect();
  other_->post_receive(0);
  other_->post_receive(1);
  drop_next(1, Loss::kAcknowledge);
  one_->post({.id = 1});
  one_->post({.id = 2});
  EXPECT_EQ(other_->poll().size(), 2u);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_RETRY_EXC_ERR);
  expect_flushed(*one_, {2});
}

TEST_F(FakeVerbsLoss, ChangeOfASourceBeforeItsCompletionIsNoticed) {
  adjust([](Config& config) { config.acknowledge_delay = 1ms; });
  connect();
  one_->post(one_->write_to(*other_, 77, 100));
  one_->fill("too early");
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
  ASSERT_EQ(violations().size(), 1u);
  EXPECT_NE(violations()[0].find("work request 77"), std::string::npos);
  expected_violations_ = violations();
}

TEST_F(FakeVerbsLoss, DelaysPostponeDeliveryAndCompletion) {
  adjust([](Config& config) {
    config.transfer_delay = 3ms;
    config.acknowledge_delay = 3ms;
  });
  connect();
  other_->post_receive(0);
  const auto begin = std::chrono::steady_clock::now();
  one_->post({.id = 1, .length = 8});
  EXPECT_EQ(other_->poll_one().byte_len, 8u);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3ms);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 6ms);
}

}  // namespace
}  // namespace ch3_offload::fake_verbs
