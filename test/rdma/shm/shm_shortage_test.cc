// What the shm provider does while the kernel refuses it something: it tries again, or refuses in time.

#include <fcntl.h>
#include <sys/resource.h>

#include <thread>
#include <vector>

#include "rdma/shm/shm_fixture.h"

namespace ch3_offload {
namespace {

/// Takes all descriptors that the process may have but `left` ones.
class Shortage {
 public:
  explicit Shortage(int left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 256;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    for (FileDescriptor taken(::dup(0)); taken.valid(); taken = FileDescriptor(::dup(0)))
      taken_.push_back(std::move(taken));
    EXPECT_EQ(errno, EMFILE);
    for (int i = 0; i < left; ++i) taken_.pop_back();
  }
  ~Shortage() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<FileDescriptor> taken_;
};

TEST_F(ShmProviderTest, AHelloThatCannotBeSentIsSentLater) {
  for (const int error_number : {ETOOMANYREFS, ENOBUFS, ENOMEM}) {
    SetUp();
    sink(kB).events.clear();
    failing_send = {error_number, 2};
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_EQ(try_send(kA, kB), Status::kOk);
    ASSERT_TRUE(poll_both_until([&] { return sink(kB).events.size() == 1; }));
    EXPECT_EQ(sink(kB).events[0].kind, RecordingSink::Kind::kMessage);
    EXPECT_EQ(failing_send.failed, 2);
  }
}

TEST_F(ShmProviderTest, AConnectionThatTheKernelHasNoMemoryForIsMadeLater) {
  for (const int error_number : {ENOBUFS, ENOMEM}) {
    SetUp();
    for (const PeerId peer : {kA, kB}) sink(peer).events.clear();
    failing_connect = {error_number, 2};
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_EQ(try_send(kA, kB), Status::kOk);
    ASSERT_TRUE(poll_both_until([&] { return sink(kB).events.size() == 1; }));
    EXPECT_EQ(sink(kB).events[0].kind, RecordingSink::Kind::kMessage);
    EXPECT_EQ(sink(kA).events.size(), 0u);
    EXPECT_EQ(failing_connect.failed, 2);
  }
}

TEST_F(ShmProviderTest, ARingThatTheKernelHasNoMemoryForGrowsLater) {
  memory_bytes = std::size_t{1} << 20;
  for (const int error_number : {ENOMEM, EFAULT}) {
    SetUp();
    sink(kB).events.clear();
    ASSERT_TRUE(connect(kA, kB));
    failing_populate = {error_number, 1'000'000};
    std::size_t sent = 0, more = 0;
    while (try_send(kA, kB) == Status::kOk) ++sent;
    EXPECT_GT(failing_populate.failed, 0);
    failing_populate = {};
    while (try_send(kA, kB) == Status::kOk) ++more;
    EXPECT_GT(more, 0u);
    ASSERT_TRUE(poll_both_until([&] { return sink(kB).events.size() == sent + more; }));
  }
}

TEST_F(ShmProviderTest, WhatCameInTheTravellingRecordIsAnsweredThereAfterAShortage) {
  const PeerId from = smaller(), to = greater();
  sink(to).holds = true;
  ASSERT_TRUE(connect(from, to));
  ASSERT_EQ(try_send(from, to), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return !sink(to).held.empty(); }));
  poll(to);  // It is held no longer.
  {
    const Shortage shortage(0);
    EXPECT_FALSE(connect(to, from));
  }
  ASSERT_TRUE(connect(to, from));
  std::span<std::byte> slot;
  ASSERT_EQ(at(to).reserve(endpoint(to, from), 8, slot), Status::kOk);
  EXPECT_EQ(slot.data(), sink(to).held.data());
}

/// The receiver would take it for a death if the connection ended after the Hello.
TEST_F(ShmProviderTest, AConnectionThatCannotBeWatchedIsMadeLater) {
  for (const int error_number : {ENOMEM, ENOSPC}) {
    SetUp();
    for (const PeerId peer : {kA, kB}) sink(peer).events.clear();
    failing_watch = {error_number, 2};
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_EQ(try_send(kA, kB), Status::kOk);
    failing_watch.times = std::min(failing_watch.times, 1);
    ASSERT_TRUE(poll_both_until([&] { return sink(kB).events.size() == 1; }));
    EXPECT_EQ(sink(kB).events[0].kind, RecordingSink::Kind::kMessage);
    EXPECT_EQ(sink(kA).events.size(), 0u);
  }
}

/// Another thread polls while one sleeps: it reads the alarm, and is still short of something afterwards.
TEST_F(ShmProviderTest, NobodySleepsOverWhatIsStillShort) {
  ASSERT_TRUE(connect(kA, kB));
  failing_send = {ETOOMANYREFS, 1'000'000};
  ASSERT_TRUE(put_to_sleep(kB));
  failing_send = {};
  ASSERT_TRUE(is_readable(kB, kWaitMs));
  failing_watch = {ENOMEM, 1};
  EXPECT_EQ(poll(kB), 0u);
  EXPECT_EQ(failing_watch.failed, 1);
  EXPECT_TRUE(is_readable(kB, kWaitMs)) << "nobody tries again";
}

/// As above: the other thread reads the alarm of an end that cannot be told yet.
TEST_F(ShmProviderTest, NobodySleepsOverAnEndThatIsYetToBeTold) {
  HandMadeSender sender(at(kA).local_address(), PeerId{2}, kA);
  poll_for_ms(kA, 5);
  sender.control().producer_copying = 1;
  ASSERT_TRUE(put_to_sleep(kA));
  ASSERT_TRUE(at(kA).end(PeerId{2}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(is_readable(kA, kWaitMs)) << "nobody looks whether it still copies";
    EXPECT_EQ(poll(kA), 0u);
  }
  sender.control().producer_copying = 0;
  EXPECT_TRUE(is_readable(kA, kWaitMs));
  EXPECT_EQ(poll(kA), 1u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, PeerId{2}), 1u);
}

TEST_F(ShmProviderTest, AWelcomeThatCannotBeSentIsSentLater) {
  ASSERT_TRUE(connect(kA, kB));
  std::size_t sent = 0;
  while (try_send(kA, kB) == Status::kOk) ++sent;
  ASSERT_TRUE(put_to_sleep(kA));
  failing_send = {ETOOMANYREFS, 1'000'000};
  ASSERT_TRUE(put_to_sleep(kB));
  EXPECT_EQ(sink(kB).events.size(), sent);
  EXPECT_FALSE(is_readable(kA, 0)) << "it was told of room before the Welcome";
  failing_send = {};
  ASSERT_TRUE(is_readable(kB, kWaitMs)) << "nobody tries again";
  at(kB).disarm();
  poll_for_ms(kB, 5);
  EXPECT_TRUE(is_readable(kA, kWaitMs));
  poll_for_ms(kA, 5);
  EXPECT_TRUE(sink(kA).events.empty());
  ASSERT_TRUE(put_to_sleep(kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  EXPECT_TRUE(is_readable(kB, kWaitMs));
}

TEST_F(ShmProviderTest, AConnectionWaitsUntilThereAreDescriptors) {
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  {
    const Shortage shortage(0);
    poll_for_ms(kB, 50);
    EXPECT_NE(log(kB).find("ulimit -n"), std::string::npos) << log(kB);
    ASSERT_TRUE(put_to_sleep(kB)) << "a connection that cannot be taken must not keep it awake";
  }
  ASSERT_TRUE(is_readable(kB, kWaitMs)) << "nobody looked whether there are descriptors again";
  at(kB).disarm();
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kMessage), 1u);
  poll_for_ms(kA, 5);
  EXPECT_TRUE(sink(kA).events.empty()) << "a living peer was taken for dead";
}

TEST_F(ShmProviderTest, OneDescriptorIsEnoughForAConnection) {
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  const Shortage shortage(1);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kMessage), 1u);
  poll_for_ms(kA, 5);
  EXPECT_TRUE(sink(kA).events.empty());
}

TEST_F(ShmProviderTest, AConnectionThatWaitsTooLongForADescriptorIsRefused) {
  shortage_limit_ms = 100;
  SetUp();
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  const Shortage shortage(0);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kA).events.empty() && !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kPeerDown), 1u) << "it may wait for that peer";
  EXPECT_EQ(sink(kB).events[0].status, Status::kUnreachable);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown), 1u);
  EXPECT_NE(log(kB).find("refused"), std::string::npos) << log(kB);
}

/// Nothing is lost while a connection cannot be made. If it can never be, that is an end, and no wait.
TEST_F(ShmProviderTest, WhoCannotConnectTriesAgainForAWhile) {
  shortage_limit_ms = 100;
  SetUp();
  const std::string address = at(kB).local_address();
  {
    const Shortage shortage(0);
    EXPECT_EQ(at(kA).connect(kB, address).error().status, Status::kAgain);
    EXPECT_NE(log(kA).find("ulimit -n"), std::string::npos) << log(kA);
    std::this_thread::sleep_for(std::chrono::milliseconds(shortage_limit_ms));
    EXPECT_EQ(at(kA).connect(kB, address).error().status, Status::kUnreachable);
  }
  EXPECT_TRUE(at(kA).connect(kB, address).ok());
}

TEST_F(ShmProviderTest, TimeInWhichNobodyPolledIsNoShortage) {
  shortage_limit_ms = 400;
  SetUp();
  ASSERT_TRUE(connect(kA, kB));
  {
    const Shortage shortage(0);
    poll_for_ms(kB, 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * shortage_limit_ms));
    poll_for_ms(kB, 20);
    EXPECT_TRUE(sink(kB).events.empty());
    EXPECT_EQ(log(kB).find("refused"), std::string::npos) << log(kB);
  }
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_EQ(sink(kB).count(RecordingSink::Kind::kMessage), 1u);
}

TEST_F(ShmProviderTest, AWelcomeNeedsNoDescriptorThatIsLeft) {
  ASSERT_TRUE(connect(kA, kB));
  poll_for_ms(kB, 5);
  const Shortage shortage(0);
  poll_for_ms(kA, 50);
  EXPECT_NE(log(kA).find("ulimit -n"), std::string::npos) << log(kA);
  ASSERT_TRUE(put_to_sleep(kA));
  EXPECT_TRUE(sink(kA).events.empty()) << "a living peer was taken for one that breaks the protocol";
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return sink(kB).count(RecordingSink::Kind::kMessage) == 1; }));
  ASSERT_TRUE(put_to_sleep(kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  EXPECT_TRUE(is_readable(kB, kWaitMs));
  ASSERT_TRUE(put_to_sleep(kA));
  kill(kB);
  EXPECT_TRUE(is_readable(kA, kWaitMs)) << "the connection is not watched any more";
}

/// RULE ONE CONNECTION: what the other has closed makes room for the one that stays.
TEST_F(ShmProviderTest, AConnectionThatStaysNeedsNoDescriptorThatIsLeft) {
  const PeerId keeper = at(kA).local_address() < at(kB).local_address() ? kA : kB;
  const PeerId other = keeper == kA ? kB : kA;
  ASSERT_TRUE(connect(other, keeper));
  for (const PeerId peer : {keeper, other}) poll_for_ms(peer, 5);
  ASSERT_TRUE(connect(keeper, other));
  const Shortage shortage(0);
  ASSERT_EQ(try_send(keeper, other), Status::kOk);
  ASSERT_EQ(try_send(other, keeper), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kA).events.empty() && !sink(kB).events.empty(); }));
  poll_for_ms(other, 5);
  for (const PeerId peer : {kA, kB}) {
    EXPECT_EQ(sink(peer).count(RecordingSink::Kind::kMessage), 1u);
    EXPECT_EQ(sink(peer).events.size(), 1u) << "a living peer was taken for dead";
  }
  ASSERT_TRUE(put_to_sleep(keeper));
  ASSERT_EQ(try_send(other, keeper), Status::kOk);
  EXPECT_TRUE(is_readable(keeper, kWaitMs));
}

}  // namespace
}  // namespace ch3_offload
