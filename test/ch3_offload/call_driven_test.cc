// A channel moves the other client of its process, and sleeps with it.

#include "ch3_offload/call_driven.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "ch3_offload/channel.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {
namespace {

using Step = WaitPolicy::Step;
using namespace std::chrono_literals;

/// Counts what the channel asks.
class FakeClient final : public CallDriven {
 public:
  ~FakeClient() { reset_call_driven(); }
  std::size_t work_for_other() noexcept override {
    ++works;
    if (to_do == 0) return 0;
    --to_do;
    return 1;
  }
  bool begin_sleep(SleepSet& set) noexcept override {
    if (to_do > 0) return false;
    ++sleepers;
    set.add(bell.get());
    set.end_after(due_ns);
    return true;
  }
  void end_sleep() noexcept override { --sleepers; }
  void ring() {
    const std::uint64_t one = 1;
    ASSERT_EQ(write(bell.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  const FileDescriptor bell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::uint64_t due_ns = UINT64_MAX;
  int works = 0, to_do = 0, sleepers = 0;
};

class CallDrivenTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.job_size = config.local_size = 2;
    config.nic = GetParam();
    config.spin_us = 0;  // It sleeps at once.
    Result<std::unique_ptr<Channel>> made = Channel::create(config);
    ASSERT_TRUE(made.ok()) << made.error().message;
    channel = std::move(made.value());
  }
  /// Polls until the policy says something else.
  Step next_step() {
    for (int i = 0; i < 1'000'000; ++i) {
      const Step step = channel->next_step();
      if (step == Step::kSleep) return step;
      channel->progress();
    }
    return Step::kPoll;
  }

  FakeClient client;
  std::unique_ptr<Channel> channel;
};
INSTANTIATE_TEST_SUITE_P(, CallDrivenTest, testing::Values("host", "thread"),
                         [](const testing::TestParamInfo<const char*>& nic) { return std::string(nic.param); });

TEST_P(CallDrivenTest, IsMovedByProgressAsLongAsItIsThere) {
  channel->progress();
  EXPECT_EQ(client.works, 0);
  set_call_driven(client);
  client.to_do = 2;
  EXPECT_GE(channel->progress(), 1U);
  EXPECT_GE(channel->progress(), 1U);
  EXPECT_EQ(client.to_do, 0);
  EXPECT_EQ(client.works, 2);
  EXPECT_TRUE(channel->may_have_work());
  reset_call_driven();
  channel->progress();
  channel->progress();
  EXPECT_EQ(client.works, 2);
}

TEST_P(CallDrivenTest, IsFoundByAChannelThatComesLater) {
  channel.reset();
  set_call_driven(client);
  SetUp();
  channel->progress();
  EXPECT_EQ(client.works, 1);
}

TEST_P(CallDrivenTest, KnowsOfEachSleep) {
  set_call_driven(client);
  channel->wait_begin();
  ASSERT_EQ(next_step(), Step::kSleep);
  EXPECT_EQ(client.sleepers, 1);
  channel->progress();
  client.ring();
  channel->sleep(-1);  // Returns: it has rung.
  channel->awake();
  EXPECT_EQ(client.sleepers, 0);
}

TEST_P(CallDrivenTest, KeepsTheChannelAwakeWhileItHasWork) {
  set_call_driven(client);
  client.to_do = 1'000'000'000;
  channel->wait_begin();
  for (int i = 0; i < 1000; ++i) ASSERT_NE(channel->next_step(), Step::kSleep);
  EXPECT_EQ(client.sleepers, 0);
  client.to_do = 0;
  EXPECT_EQ(next_step(), Step::kSleep);
  channel->awake();
}

/// A progress hook may wait within the last look of an outer wait.
TEST_P(CallDrivenTest, ANestedWaitLeavesNoSleeper) {
  set_call_driven(client);
  channel->wait_begin();
  ASSERT_EQ(next_step(), Step::kSleep);
  channel->sleep(0);  // Takes the wake-up that the client's coming was.
  ASSERT_EQ(next_step(), Step::kSleep);
  EXPECT_EQ(client.sleepers, 1);
  channel->awake();
  channel->sleep(-1);  // The outer wait's. Returns.
  channel->awake();
  EXPECT_EQ(client.sleepers, 0);
}

TEST_P(CallDrivenTest, ANestedWaitThatMayNotSleepKeepsTheOuterOneAwake) {
  set_call_driven(client);
  channel->wait_begin();
  ASSERT_EQ(next_step(), Step::kSleep);
  channel->sleep(0);  // As above.
  client.to_do = 1;
  ASSERT_NE(channel->next_step(), Step::kSleep);
  EXPECT_EQ(client.sleepers, 0);
  channel->sleep(-1);  // The outer wait's. Returns.
  channel->awake();
}

TEST_P(CallDrivenTest, EndsASleepWhenItIsDue) {
  set_call_driven(client);
  client.due_ns = 2'000'000;
  channel->wait_begin();
  ASSERT_EQ(next_step(), Step::kSleep);
  channel->sleep(-1);
  channel->awake();
}

TEST_P(CallDrivenTest, EndsASleepThatDoesNotKnowOfIt) {
  channel->wait_begin();
  ASSERT_EQ(next_step(), Step::kSleep);
  std::thread other([this] {
    std::this_thread::sleep_for(5ms);
    set_call_driven(client);
  });
  channel->sleep(-1);
  channel->awake();
  other.join();
  EXPECT_EQ(client.sleepers, 0);
  channel->progress();
  EXPECT_GE(client.works, 1);
}

TEST_P(CallDrivenTest, MayGoDuringASleep) {
  set_call_driven(client);
  channel->wait_begin();
  ASSERT_EQ(next_step(), Step::kSleep);
  reset_call_driven();
  channel->awake();
  EXPECT_EQ(client.sleepers, 0);
  ASSERT_EQ(next_step(), Step::kSleep);
  EXPECT_EQ(client.sleepers, 0);
  channel->awake();
}

}  // namespace
}  // namespace ch3_offload
