// The fake verbs device through the API that its users know: what arrives, in which order, and what is
// reported.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <numeric>

#include "rdma/verbs/fake_verbs_world.h"

namespace ch3_offload::fake_verbs {
namespace {

TEST_F(FakeVerbs, SendArrivesInThePostedReceive) {
  connect();
  other_->post_receive(7);
  one_->fill("hello");
  ASSERT_EQ(one_->post({.id = 1, .length = 5}), 0);
  const ibv_wc sent = one_->poll_one();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 1u);
  EXPECT_EQ(sent.qp_num, one_->pair->qp_num);
  const ibv_wc arrived = other_->poll_one();
  EXPECT_EQ(arrived.status, IBV_WC_SUCCESS);
  EXPECT_EQ(arrived.opcode, IBV_WC_RECV);
  EXPECT_EQ(arrived.wr_id, 7u);
  EXPECT_EQ(arrived.byte_len, 5u);
  EXPECT_EQ(arrived.qp_num, other_->pair->qp_num);
  EXPECT_EQ(arrived.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(other_->received(7, 5), "hello");
}

TEST_F(FakeVerbs, InlineSendTakesItsBytesWhenPosted) {
  connect();
  one_->fill("early");
  ASSERT_EQ(one_->post({.id = 1, .length = 5, .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED}), 0);
  one_->fill("later");
  other_->post_receive(0);
  EXPECT_EQ(other_->poll_one().byte_len, 5u);
  EXPECT_EQ(other_->received(0, 5), "early");
}

TEST_F(FakeVerbs, OtherSendsTakeTheirBytesWhenTransferred) {
  connect();
  one_->fill("early");
  ASSERT_EQ(one_->post({.id = 1, .length = 5}), 0);
  one_->fill("later");
  other_->post_receive(0);
  EXPECT_EQ(other_->poll_one().byte_len, 5u);
  EXPECT_EQ(other_->received(0, 5), "later");
}

TEST_F(FakeVerbs, WriteLandsWithoutAWord) {
  connect();
  one_->fill("written");
  ASSERT_EQ(one_->post(one_->write_to(*other_, 1, 7, 100)), 0);
  const ibv_wc sent = one_->poll_one();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(other_->text(7, 100), "written");
  EXPECT_TRUE(other_->poll().empty());
}

TEST_F(FakeVerbs, WriteWithImmediateTakesAReceive) {
  connect();
  other_->post_receive(3);
  one_->fill("written");
  ConnectionEnd::Work work = one_->write_to(*other_, 1, 7);
  work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  work.immediate = 0x01020304;
  ASSERT_EQ(one_->post(work), 0);
  EXPECT_EQ(one_->poll_one().opcode, IBV_WC_RDMA_WRITE);
  const ibv_wc arrived = other_->poll_one();
  EXPECT_EQ(arrived.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(arrived.wr_id, 3u);
  EXPECT_EQ(arrived.byte_len, 7u);
  EXPECT_EQ(arrived.wc_flags & IBV_WC_WITH_IMM, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(arrived.imm_data, 0x01020304u);
  EXPECT_EQ(other_->text(7), "written");
}

TEST_F(FakeVerbs, ReceivesOfAQueuePairsOwnWork) {
  connect({.shared = false});
  other_->post_receive(2);
  ASSERT_EQ(one_->post({.id = 1, .opcode = IBV_WR_SEND_WITH_IMM, .immediate = 9}), 0);
  const ibv_wc arrived = other_->poll_one();
  EXPECT_EQ(arrived.byte_len, 0u);
  EXPECT_EQ(arrived.imm_data, 9u);
}

TEST_F(FakeVerbs, TrafficGoesBothWaysInOrder) {
  connect();
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(one_->post_receive(i), 0);
    ASSERT_EQ(other_->post_receive(i), 0);
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(one_->post({.id = i, .length = i, .flags = 0}), 0);
    ASSERT_EQ(other_->post({.id = i, .length = 8 + i, .flags = 0}), 0);
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(other_->poll_one().byte_len, i);
    EXPECT_EQ(one_->poll_one().byte_len, 8 + i);
  }
}

TEST_F(FakeVerbs, ManyPacketsWrapTheSequenceNumber) {
  connect();
  std::iota(one_->buffer.begin(), one_->buffer.end(), 1);
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(one_->post(one_->write_to(*other_, 1, ConnectionEnd::kBufferBytes)), 0);  // 16 packets each.
    EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(one_->buffer, other_->buffer);
}

TEST_F(FakeVerbs, UnsignaledSendsHoldTheQueueUntilALaterCompletionIsPolled) {
  connect({.sends = 4});
  for (std::uint64_t i = 0; i < 5; ++i) other_->post_receive(i);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(one_->post({.id = i, .flags = 0}), 0);
  ASSERT_EQ(one_->post({.id = 3}), 0);
  EXPECT_EQ(other_->poll().size(), 4u);  // They arrived all the same.
  EXPECT_EQ(one_->post({.id = 4}), ENOMEM);
  ASSERT_EQ(one_->poll().size(), 1u);
  for (std::uint64_t i = 4; i < 8; ++i) EXPECT_EQ(one_->post({.id = i}), 0);
  EXPECT_EQ(one_->post({.id = 8}), ENOMEM);
}

TEST_F(FakeVerbs, ASendWaitsForAReceive) {
  connect();
  ASSERT_EQ(one_->post({.id = 1, .length = 4}), 0);
  ASSERT_EQ(one_->post({.id = 2, .length = 5}), 0);
  EXPECT_TRUE(one_->poll().empty());
  EXPECT_EQ(counters().receiver_not_ready, 1u);
  other_->post_receive(0);
  EXPECT_EQ(other_->poll_one().byte_len, 4u);
  EXPECT_EQ(one_->poll_one().wr_id, 1u);
  other_->post_receive(1);
  EXPECT_EQ(other_->poll_one().byte_len, 5u);
  EXPECT_EQ(one_->poll_one().wr_id, 2u);
}

TEST_F(FakeVerbs, AWriteNeedsNoReceiveButStaysInOrder) {
  connect();
  ASSERT_EQ(one_->post({.id = 1, .length = 4}), 0);
  one_->fill("written");
  ASSERT_EQ(one_->post(one_->write_to(*other_, 2, 7)), 0);
  EXPECT_TRUE(one_->poll().empty());
  EXPECT_NE(other_->text(7), "written");
  other_->post_receive(0);
  EXPECT_EQ(one_->poll_one().wr_id, 1u);
  EXPECT_EQ(one_->poll_one().wr_id, 2u);
  EXPECT_EQ(other_->text(7), "written");
}

TEST_F(FakeVerbs, ASendWaitsForItsPeerToBeConnected) {
  one_ = std::make_unique<ConnectionEnd>();
  other_ = std::make_unique<ConnectionEnd>();
  other_->post_receive(0);
  one_->connect(*other_);
  ASSERT_EQ(one_->post({.id = 1, .length = 4}), 0);
  EXPECT_TRUE(one_->poll().empty());
  other_->initialize();
  EXPECT_TRUE(one_->poll().empty());
  EXPECT_EQ(other_->ready_to_receive(*one_), 0);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
  EXPECT_EQ(other_->poll_one().byte_len, 4u);
}

TEST_F(FakeVerbs, AQueuePairMayBeItsOwnPeer) {
  one_ = std::make_unique<ConnectionEnd>();
  one_->connect(*one_);
  one_->post_receive(0);
  ASSERT_EQ(one_->post({.id = 1, .length = 4}), 0);
  EXPECT_EQ(one_->poll().size(), 2u);
  ConnectionEnd::Work work = one_->write_to(*one_, 2, 4);
  work.remote_key = 1;
  ASSERT_EQ(one_->post(work), 0);
  EXPECT_EQ(one_->poll().size(), 1u);
  EXPECT_EQ(one_->state(), IBV_QPS_ERR);
}

TEST_F(FakeVerbs, DevicesOfInfiniBandAreFoundByLid) {
  Config config;
  config.devices = {{.name = "ib0", .ports = {infiniband_port(17)}},
                    {.name = "ib1", .ports = {infiniband_port(18)}}};
  reset(config);
  one_ = std::make_unique<ConnectionEnd>(ConnectionOptions{.device = 0});
  other_ = std::make_unique<ConnectionEnd>(ConnectionOptions{.device = 1});
  one_->connect(*other_);
  other_->connect(*one_);
  other_->post_receive(0);
  ASSERT_EQ(one_->post({.id = 1, .length = 4}), 0);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
  EXPECT_EQ(other_->poll_one().byte_len, 4u);
}

TEST_F(FakeVerbs, TamperMayChangeWhatArrives) {
  connect();
  adjust([](Config& config) {
    config.tamper = [](Config::Transfer& transfer, std::span<std::byte> bytes) {
      transfer.immediate = 5;
      bytes[0] = std::byte{'J'};
    };
  });
  other_->post_receive(0);
  one_->fill("hello");
  ASSERT_EQ(one_->post({.id = 1, .length = 5, .opcode = IBV_WR_SEND_WITH_IMM, .immediate = 9}), 0);
  EXPECT_EQ(other_->poll_one().imm_data, 5u);
  EXPECT_EQ(other_->received(0, 5), "Jello");
  EXPECT_EQ(one_->text(5), "hello");
}

TEST_F(FakeVerbs, CountersTellWhatWasDelivered) {
  connect();
  for (std::uint64_t i = 0; i < 3; ++i) other_->post_receive(i);
  one_->post({.id = 1, .length = 10});
  one_->post({.id = 2, .length = 5, .flags = IBV_SEND_INLINE});
  one_->post(one_->write_to(*other_, 3, 100));
  ConnectionEnd::Work work = one_->write_to(*other_, 4, 1000);
  work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  one_->post(work);
  const Counters now = counters();
  EXPECT_EQ(now.post_send_calls, 4u);
  EXPECT_EQ(now.sends, 2u);
  EXPECT_EQ(now.inline_sends, 1u);
  EXPECT_EQ(now.writes, 1u);
  EXPECT_EQ(now.writes_with_immediate, 1u);
  EXPECT_EQ(now.bytes, 1115u);
  EXPECT_EQ(now.receives_posted, 3u);
  EXPECT_EQ(now.registered_bytes, 2 * (ConnectionEnd::kBufferBytes + ConnectionEnd::kSlotBytes * 256));
}

}  // namespace
}  // namespace ch3_offload::fake_verbs
