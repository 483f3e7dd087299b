// The fake verbs device: errors of its users, and what breaks on demand.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "rdma/verbs/fake_verbs_world.h"

namespace ch3_offload::fake_verbs {
namespace {

using FakeVerbsFault = FakeVerbs;

TEST_F(FakeVerbsFault, ErrorStateFlushesEverythingInOrder) {
  connect({.shared = false});
  one_->post_receive(5);
  one_->post_receive(6);
  for (std::uint64_t i = 0; i < 3; ++i) one_->post({.id = i, .flags = 0});
  EXPECT_EQ(one_->enter(IBV_QPS_ERR), 0);
  expect_flushed(*one_, {0, 1, 2, 5, 6});
  EXPECT_EQ(one_->post({.id = 8}), 0);
  EXPECT_EQ(one_->post_receive(9), 0);
  expect_flushed(*one_, {8, 9});
  EXPECT_EQ(counters().flushed, 7u);
}

TEST_F(FakeVerbsFault, FieldsOfAFailedCompletionAreRubbish) {
  connect();
  one_->enter(IBV_QPS_ERR);
  one_->post({.id = 8});
  ibv_wc work{};
  ASSERT_EQ(ibv_poll_cq(one_->queue, 1, &work), 1);
  EXPECT_NE(work.byte_len, 0u);
  EXPECT_NE(work.wc_flags, 0u);
}

TEST_F(FakeVerbsFault, LocalKeyIsChecked) {
  for (int wrong = 0; wrong < 4; ++wrong) {
    connect();
    other_->post_receive(0);
    ibv_sge part = {.addr = reinterpret_cast<std::uintptr_t>(one_->buffer.data()),
                    .length = 16,
                    .lkey = one_->region->lkey};
    if (wrong == 0) part.lkey = one_->region->rkey;
    if (wrong == 1) part.addr += ConnectionEnd::kBufferBytes - 15;
    if (wrong == 2) part.addr -= 1;
    if (wrong == 3) part.lkey = other_->region->lkey;  // Of another domain.
    ibv_send_wr request{};
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(one_->pair, &request, &bad), 0);
    EXPECT_EQ(one_->poll_one().status, IBV_WC_LOC_PROT_ERR) << wrong;
    EXPECT_EQ(one_->state(), IBV_QPS_ERR);
    EXPECT_EQ(other_->state(), IBV_QPS_RTS);
  }
}

TEST_F(FakeVerbsFault, RemoteKeyIsCheckedAndBreaksBothEnds) {
  for (int wrong = 0; wrong < 4; ++wrong) {
    connect();
    ConnectionEnd::Work work = one_->write_to(*other_, 1, 100);
    if (wrong == 0) work.remote_key = other_->region->lkey;
    if (wrong == 1) work.remote_address += ConnectionEnd::kBufferBytes - 99;
    if (wrong == 2) work.remote_key = one_->region->rkey;
    if (wrong == 3) work.remote_key = other_->slot_region->rkey;
    ASSERT_EQ(one_->post(work), 0);
    EXPECT_EQ(one_->poll_one().status, IBV_WC_REM_ACCESS_ERR) << wrong;
    EXPECT_EQ(one_->state(), IBV_QPS_ERR);
    EXPECT_EQ(other_->state(), IBV_QPS_ERR);
    EXPECT_EQ(take_event(*other_), IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(take_event(*other_), IBV_EVENT_QP_LAST_WQE_REACHED);
  }
}

TEST_F(FakeVerbsFault, DeregisteredKeyIsDead) {
  connect();
  std::vector<char> memory(100);
  ibv_mr* const region = ibv_reg_mr(other_->domain, memory.data(), memory.size(), ConnectionEnd::kRemote);
  ConnectionEnd::Work work = one_->write_to(*other_, 1, 100);
  work.remote_address = reinterpret_cast<std::uintptr_t>(memory.data());
  work.remote_key = region->rkey;
  ASSERT_EQ(one_->post(work), 0);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_dereg_mr(region), 0);
  ASSERT_EQ(one_->post(work), 0);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(FakeVerbsFault, ReceiveThatIsTooShortBreaksBothEnds) {
  connect();
  other_->post_receive(4, 10);
  one_->post({.id = 1, .length = 11});
  const ibv_wc arrived = other_->poll_one();
  EXPECT_EQ(arrived.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(arrived.wr_id, 4u);
  EXPECT_EQ(one_->poll_one().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(other_->state(), IBV_QPS_ERR);
}

TEST_F(FakeVerbsFault, LongerThanThePortAllowsIsALengthError) {
  adjust([](Config& config) { config.devices[0].ports[0].max_message_bytes = 1000; });
  connect();
  one_->post(one_->write_to(*other_, 1, 1000));
  EXPECT_EQ(one_->poll_one().status, IBV_WC_SUCCESS);
  one_->post(one_->write_to(*other_, 1, 1001));
  EXPECT_EQ(one_->poll_one().status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(FakeVerbsFault, KilledQueuePairReportsIt) {
  connect();
  EXPECT_FALSE(kill_queue_pair("fake0", 0xABCDEF));
  one_->post({.id = 1});
  EXPECT_TRUE(kill_queue_pair("fake0", one_->pair->qp_num));
  EXPECT_EQ(take_event(*one_), IBV_EVENT_QP_FATAL);
  expect_flushed(*one_, {1});
}

TEST_F(FakeVerbsFault, KilledDeviceDoesNothingAnyMore) {
  connect();
  one_->post({.id = 1});
  kill_device("fake0");
  EXPECT_EQ(take_event(*one_), IBV_EVENT_DEVICE_FATAL);
  expect_flushed(*one_, {1});
  EXPECT_EQ(one_->post({.id = 2}), EIO);
  EXPECT_EQ(one_->post_receive(2), EIO);
  EXPECT_EQ(ibv_alloc_pd(one_->context), nullptr);
  EXPECT_EQ(errno, EIO);
}

TEST_F(FakeVerbsFault, FullCompletionQueueIsReported) {
  connect({.completions = 2});
  for (std::uint64_t i = 0; i < 3; ++i) other_->post_receive(i);
  for (std::uint64_t i = 0; i < 3; ++i) one_->post({.id = i, .flags = 0});
  EXPECT_EQ(counters().overflows, 1u);
  EXPECT_EQ(take_event(*other_), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(other_->poll().size(), 2u);
}

TEST_F(FakeVerbsFault, NthCallFailsOnDemand) {
  connect();
  fail_call("ibv_reg_mr", 2, ENOMEM);
  char memory[64];
  for (int i = 0; i < 3; ++i) {
    ibv_mr* const region = ibv_reg_mr(one_->domain, memory, sizeof memory, ConnectionEnd::kLocal);
    EXPECT_EQ(region == nullptr, i == 1);
    if (region == nullptr) {
      EXPECT_EQ(errno, ENOMEM);
    } else {
      EXPECT_EQ(ibv_dereg_mr(region), 0);
    }
  }
  fail_call("ibv_post_send", 1, EAGAIN, 2);
  EXPECT_EQ(one_->post({.id = 1}), EAGAIN);
  EXPECT_EQ(one_->post({.id = 1}), EAGAIN);
  EXPECT_EQ(one_->post({.id = 1}), 0);
}

TEST_F(FakeVerbsFault, CompletionsOfADestroyedQueuePairStayOrGo) {
  for (const bool purge : {false, true}) {
    adjust([&](Config& config) { config.purge_destroyed = purge; });
    connect();
    other_->post_receive(0);
    one_->post({.id = 1});
    ibv_destroy_qp(one_->pair);
    one_->pair = nullptr;
    EXPECT_EQ(one_->poll().size(), purge ? 0u : 1u);
  }
}

}  // namespace
}  // namespace ch3_offload::fake_verbs
