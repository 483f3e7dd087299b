// The fake verbs device through the API that its users know.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <thread>

#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/fake_verbs_endpoint.h"

namespace ch3_offload::fake_verbs {
namespace {

using namespace std::chrono_literals;

class FakeVerbs : public testing::Test {
 protected:
  FakeVerbs() { reset(); }
  ~FakeVerbs() override {
    one_.reset();
    other_.reset();
    EXPECT_TRUE(leaks().none()) << leaks();
    EXPECT_EQ(violations(), std::vector<std::string>{});
  }

  void connect(const EndpointOptions& options = {}) {
    one_ = std::make_unique<Endpoint>(options);
    other_ = std::make_unique<Endpoint>(options);
    one_->connect(*other_);
    other_->connect(*one_);
  }

  std::unique_ptr<Endpoint> one_;
  std::unique_ptr<Endpoint> other_;
};

TEST_F(FakeVerbs, SendArrivesInThePostedReceive) {
  connect();
  other_->post_receive(7);
  one_->fill("hello");
  ASSERT_EQ(one_->post({.id = 1, .length = 5}), 0);
  const ibv_wc sent = one_->poll_one();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 1u);
  const ibv_wc arrived = other_->poll_one();
  EXPECT_EQ(arrived.status, IBV_WC_SUCCESS);
  EXPECT_EQ(arrived.opcode, IBV_WC_RECV);
  EXPECT_EQ(arrived.wr_id, 7u);
  EXPECT_EQ(arrived.byte_len, 5u);
  EXPECT_EQ(arrived.qp_num, other_->pair->qp_num);
  EXPECT_EQ(arrived.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(other_->received(7, 5), "hello");
}

}  // namespace
}  // namespace ch3_offload::fake_verbs
