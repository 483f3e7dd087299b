// Two ends of a connection over the fake verbs device, and the check that a test leaves nothing behind.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/fake_verbs_connection_end.h"

namespace ch3_offload::fake_verbs {

class FakeVerbs : public testing::Test {
 protected:
  // A busy machine must not make a transfer that waits look like one that failed.
  FakeVerbs() { reset({.retry_timeout = std::chrono::seconds(20)}); }
  ~FakeVerbs() override {
    one_.reset();
    other_.reset();
    EXPECT_TRUE(leaks().none()) << leaks();
    EXPECT_EQ(violations(), expected_violations_);
  }

  void connect(const ConnectionOptions& options = {}) {
    one_ = std::make_unique<ConnectionEnd>(options);
    other_ = std::make_unique<ConnectionEnd>(options);
    one_->connect(*other_);
    other_->connect(*one_);
  }

  /// These work requests, in this order, and no more.
  static void expect_flushed(ConnectionEnd& end, const std::vector<std::uint64_t>& ids) {
    for (const std::uint64_t id : ids) {
      const ibv_wc work = end.poll_one();
      EXPECT_EQ(work.status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(work.wr_id, id);
      EXPECT_EQ(work.qp_num, end.pair->qp_num);
    }
    EXPECT_TRUE(end.poll().empty());
  }

  /// The next asynchronous event, which must wait; acknowledged.
  static ibv_event_type take_event(ConnectionEnd& end) {
    pollfd entry = {.fd = end.context->async_fd, .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&entry, 1, 1000), 1);
    ibv_async_event event{};
    EXPECT_EQ(ibv_get_async_event(end.context, &event), 0);
    ibv_ack_async_event(&event);
    return event.event_type;
  }

  std::unique_ptr<ConnectionEnd> one_;
  std::unique_ptr<ConnectionEnd> other_;
  std::vector<std::string> expected_violations_;
};

}  // namespace ch3_offload::fake_verbs
