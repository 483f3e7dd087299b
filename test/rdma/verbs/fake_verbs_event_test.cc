// The fake verbs device: completion and asynchronous events, their descriptors, and threads.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "rdma/verbs/fake_verbs_world.h"

namespace ch3_offload::fake_verbs {
namespace {

using namespace std::chrono_literals;

class FakeVerbsEvent : public FakeVerbs {
 protected:
  static bool readable(int descriptor, int timeout_ms = 0) {
    pollfd entry = {.fd = descriptor, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  static void unblock(int descriptor) {
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  }
};

TEST_F(FakeVerbsEvent, NotificationComesOncePerRequestForWhatComesLater) {
  connect();
  unblock(other_->channel->fd);
  for (std::uint64_t i = 0; i < 4; ++i) other_->post_receive(i);
  one_->post({.flags = 0});
  EXPECT_EQ(ibv_req_notify_cq(other_->queue, 0), 0);
  EXPECT_FALSE(readable(other_->channel->fd));  // Not for what was there.
  one_->post({.flags = 0});
  one_->post({.flags = 0});
  EXPECT_TRUE(readable(other_->channel->fd));
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(other_->channel, &queue, &context), 0);
  EXPECT_EQ(queue, other_->queue);
  EXPECT_EQ(context, other_.get());
  EXPECT_FALSE(readable(other_->channel->fd));
  EXPECT_EQ(ibv_get_cq_event(other_->channel, &queue, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
  ibv_destroy_qp(other_->pair);
  other_->pair = nullptr;
  EXPECT_EQ(ibv_destroy_cq(queue), EBUSY);
  EXPECT_EQ(violations().size(), 1u);
  expected_violations_ = violations();
  ibv_ack_cq_events(queue, 1);
}

TEST_F(FakeVerbsEvent, SolicitedNotificationIgnoresTheRest) {
  connect();
  for (std::uint64_t i = 0; i < 2; ++i) other_->post_receive(i);
  EXPECT_EQ(ibv_req_notify_cq(other_->queue, 1), 0);
  one_->post({.flags = 0});
  EXPECT_FALSE(readable(other_->channel->fd));
  one_->post({.flags = IBV_SEND_SOLICITED});
  EXPECT_TRUE(readable(other_->channel->fd));
}

TEST_F(FakeVerbsEvent, SharedQueueReportsItsLimitOnce) {
  connect();
  unblock(other_->context->async_fd);
  for (std::uint64_t i = 0; i < 4; ++i) other_->post_receive(i);
  ibv_srq_attr limit = {.max_wr = 0, .max_sge = 0, .srq_limit = 3};
  EXPECT_EQ(ibv_modify_srq(other_->shared, &limit, IBV_SRQ_LIMIT), 0);
  one_->post({.flags = 0});
  EXPECT_FALSE(readable(other_->context->async_fd));  // 3 are left.
  one_->post({.flags = 0});
  EXPECT_TRUE(readable(other_->context->async_fd));
  one_->post({.flags = 0});
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(other_->context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, other_->shared);
  EXPECT_EQ(ibv_get_async_event(other_->context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(ibv_query_srq(other_->shared, &limit), 0);
  EXPECT_EQ(limit.srq_limit, 0u);
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = other_->shared;
  ibv_ack_async_event(&event);
}

TEST_F(FakeVerbsEvent, SharedQueueBelowItsLimitReportsItWhenArmed) {
  for (const bool at_once : {true, false}) {
    adjust([&](Config& config) { config.limit_event_when_armed = at_once; });
    connect();
    other_->post_receive(0);
    other_->post_receive(1);
    ibv_srq_attr limit = {.max_wr = 0, .max_sge = 0, .srq_limit = 3};
    EXPECT_EQ(ibv_modify_srq(other_->shared, &limit, IBV_SRQ_LIMIT), 0);
    EXPECT_EQ(readable(other_->context->async_fd), at_once);
    one_->post({.flags = 0});
    EXPECT_EQ(take_event(*other_), IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_FALSE(readable(other_->context->async_fd));
  }
}

TEST_F(FakeVerbsEvent, LastReceiveAndFirstMessageAreReportedIfConfigured) {
  for (const bool reported : {false, true}) {
    adjust([&](Config& config) {
      config.last_wqe_event = reported;
      config.communication_established = reported;
    });
    one_ = std::make_unique<ConnectionEnd>();
    other_ = std::make_unique<ConnectionEnd>();
    one_->connect(*other_);
    other_->initialize();
    EXPECT_EQ(other_->ready_to_receive(*one_), 0);
    other_->post_receive(0);
    other_->post_receive(1);
    one_->post({.flags = 0});
    one_->post({.flags = 0});
    EXPECT_EQ(other_->poll().size(), 2u);
    EXPECT_EQ(other_->enter(IBV_QPS_ERR), 0);
    if (reported) {
      EXPECT_EQ(take_event(*other_), IBV_EVENT_COMM_EST);
      EXPECT_EQ(take_event(*other_), IBV_EVENT_QP_LAST_WQE_REACHED);
    }
    EXPECT_FALSE(readable(other_->context->async_fd));
  }
}

TEST_F(FakeVerbsEvent, PortEventsReachEveryContext) {
  connect();
  raise_event("fake0", IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(take_event(*one_), IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(take_event(*other_), IBV_EVENT_GID_CHANGE);
}

TEST_F(FakeVerbsEvent, EventsOfADestroyedObjectVanish) {
  connect();
  one_->enter(IBV_QPS_ERR);  // LAST_WQE_REACHED
  EXPECT_TRUE(readable(one_->context->async_fd));
  ibv_destroy_qp(one_->pair);
  one_->pair = nullptr;
  EXPECT_FALSE(readable(one_->context->async_fd));
}

TEST_F(FakeVerbsEvent, SleeperIsWokenByWhatCouldNotGoOnAtOnce) {
  adjust([](Config& config) { config.transfer_delay = 10ms; });
  connect();
  other_->post_receive(0);
  EXPECT_EQ(ibv_req_notify_cq(other_->queue, 0), 0);
  one_->post({.flags = 0});
  EXPECT_FALSE(readable(other_->channel->fd));
  EXPECT_TRUE(readable(other_->channel->fd, 1000));  // No call is made meanwhile.
}

TEST_F(FakeVerbsEvent, ThreadsWithDevicesOfTheirOwn) {
  connect();
  constexpr int kMessages = 2000;
  const auto run = [](ConnectionEnd& me) {
    for (std::uint64_t i = 0; i < 8; ++i) me.post_receive(i);
    int sent = 0, done = 0, received = 0;
    while (done < kMessages || received < kMessages) {
      if (sent < kMessages && sent - done < 8) {
        me.buffer[0] = static_cast<char>(sent);
        EXPECT_EQ(me.post({.length = 1, .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED}), 0);
        ++sent;
      }
      ibv_wc work;
      if (ibv_poll_cq(me.queue, 1, &work) == 0) continue;
      ASSERT_EQ(work.status, IBV_WC_SUCCESS);
      if (work.opcode == IBV_WC_SEND) {
        ++done;
        continue;
      }
      EXPECT_EQ(me.slots[work.wr_id * ConnectionEnd::kSlotBytes], static_cast<char>(received));
      ++received;
      me.post_receive(work.wr_id);
    }
  };
  std::thread thread([&] { run(*one_); });
  run(*other_);
  thread.join();
}

TEST_F(FakeVerbsEvent, BlockingEventCallWaits) {
  connect();
  other_->post_receive(0);
  EXPECT_EQ(ibv_req_notify_cq(other_->queue, 0), 0);
  std::thread thread([&] {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(other_->channel, &queue, &context), 0);
    ibv_ack_cq_events(queue, 1);
  });
  std::this_thread::sleep_for(5ms);
  one_->post({.flags = 0});
  thread.join();
}

}  // namespace
}  // namespace ch3_offload::fake_verbs
