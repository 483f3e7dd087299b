// What the TCP provider does beyond the contract: introductions that are given up, the end of a process, what
// it says when it cannot be made, many peers, children that forked, and its counters.

#include "rdma/tcp/tcp_provider.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rdma/few_descriptors.h"
#include "rdma/tcp/hostile_tcp_fixture.h"

namespace ch3_offload {
namespace {

using Bytes = std::vector<std::byte>;

// Introductions

/// The acceptor is a process that behaves, except that it gives introductions up.
class TcpIntroductions : public TcpPeersThatLie {};

TEST_F(TcpIntroductions, AnAcceptorThatGivesUpAfterTheReadyIsDialledAgainAndNothingIsLostOrDoubled) {
  make(1);
  const Peer peer = make_hostile();
  Region source = make_region(0, 1000);
  source.bytes = Pattern(9).bytes(1000);
  connect(0, kHostile, peer->address.to_string());
  Bytes expected = bytes_of(
      sealed(
          {.record = {1000, TcpRecordKind::kWrite, {}}, .immediate = 5, .remote_key = 77, .address = 0x1234}),
      source.bytes);
  const auto send_another = [&] {
    const Bytes message = Pattern(expected.size()).bytes(100);
    ASSERT_EQ(try_send(0, kHostile, message), Status::kOk);
    const Bytes record = slot_bytes(message);
    expected.insert(expected.end(), record.begin(), record.end());
  };
  ASSERT_EQ(at(0).write(endpoint(0, kHostile), source.bytes.data(), 1000, source.memory,
                        {0x1234, RemoteKey{77}}, Immediate{5}, WorkId{6}),
            Status::kOk);
  for (int round = 0; round < 6; ++round) {
    send_another();
    ASSERT_NO_FATAL_FAILURE(be_dialled(*peer));
    send_another();
    run_a_while();
    EXPECT_FALSE(peer->receive_bytes(1)) << "nothing is said before the welcome";
    peer->close(/*resets=*/round % 2 != 0);
  }
  ASSERT_NO_FATAL_FAILURE(be_dialled(*peer));
  EXPECT_TRUE(sink(0).events.empty());
  welcome(*peer);
  send_another();
  EXPECT_EQ(answer_bytes(*peer, expected.size()), expected);
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kWriteDone) == 1; }));
  run_a_while();
  EXPECT_FALSE(peer->receive_bytes(1)) << "nothing comes twice";
  ASSERT_EQ(sink(0).events.size(), 1u);
  EXPECT_EQ(sink(0).events[0].status, Status::kOk);
  EXPECT_EQ(at(0).counters().network_connections, 1u);
  EXPECT_EQ(at(0).counters().network_connections_lost, 0u) << "none of them had stood";
  EXPECT_TRUE(world_->lines.empty());
}

TEST_F(TcpIntroductions, AnAcceptorThatDiesAfterTheReadyIsDead) {
  make(1);
  Peer peer = make_acceptor();
  ASSERT_EQ(try_send(0, kHostile, Pattern(1).bytes(10)), Status::kOk);
  peer.reset();
  expect_down(Status::kPeerFailed, 0);
}

TEST_F(TcpIntroductions, TheAcceptorMayDialAfterItGaveUp) {
  make(1);
  const Peer peer = make_acceptor();
  ASSERT_EQ(try_send(0, kHostile, Pattern(1).bytes(10)), Status::kOk);
  // The first connection still stands at process 0, which waits for the welcome.
  const FileDescriptor old = std::move(peer->socket);
  ASSERT_NO_FATAL_FAILURE(dial(*peer));
  EXPECT_EQ(answer_bytes(*peer, 18), slot_bytes(Pattern(1).bytes(10)));
  peer->send(slot_bytes(Pattern(2).bytes(10)));
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kMessage) == 1; }));
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  EXPECT_EQ(at(0).counters().network_connections, 1u);
}

TEST_F(TcpIntroductions, AHelloThatIsRepeatedWhileTheConnectionStandsIsRefused) {
  make(2);
  const Peer peer = make_dialled();
  for (int i = 0; i < 3; ++i) {
    HostileTcpPeer repeated(PeerId{kHostile}, tcp_test_secret());
    repeated.address = peer->address;
    repeated.dial(at(0).local_address());
    repeated.send(repeated.hello(PeerId{0}));
    const std::optional<Frame> reply = answer(repeated);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->kind, FrameKind::kRefuse);
    EXPECT_EQ(reply->as<RefuseBody>().reason, static_cast<std::uint32_t>(Refusal::kStranger));
  }
  peer->send(slot_bytes(Pattern(2).bytes(10)));
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kMessage) == 1; }));
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  EXPECT_EQ(at(0).counters().network_connections_made, 1u);
  expect_bystander_unharmed();
}

TEST_F(TcpIntroductions, OneThatIsNotBroughtToItsEndMakesNoPeer) {
  make(2);
  for (int steps = 0; steps < 3; ++steps) {
    const Peer peer = make_hostile();
    peer->dial(at(0).local_address());
    if (steps > 0) {
      peer->send(peer->hello(PeerId{0}));
      expect_answer(*peer, FrameKind::kHello);
    }
    if (steps > 1) {
      peer->send(make_frame(kTcpProtocol, FrameKind::kOffer));
      expect_answer(*peer, FrameKind::kOffer);
    }
  }
  run_a_while();
  EXPECT_EQ(at(0).counters().network_connections_made, 0u);
  expect_bystander_unharmed();
}

TEST_F(TcpIntroductions, BothMayDialAtOnce) {
  for (int round = 0; round < 50; ++round) {
    make(2);
    connect(0, 1);
    if (round % 3 == 0) poll(0);
    if (round % 5 == 0) poll(1);
    connect(1, 0);
    if (round % 2 == 0) poll(1);
    ASSERT_EQ(try_send(0, 1, Pattern(1).bytes(10)), Status::kOk);
    ASSERT_EQ(try_send(1, 0, Pattern(2).bytes(10)), Status::kOk);
    ASSERT_TRUE(run_until([&] {
      return sink(0).count(Kind::kMessage) == 1 && sink(1).count(Kind::kMessage) == 1;
    })) << round;
    EXPECT_EQ(at(0).counters().network_connections, 1u);
    EXPECT_EQ(at(1).counters().network_connections, 1u);
    EXPECT_EQ(sink(0).events.size() + sink(1).events.size(), 2u);
  }
}

// The end of a process

class TcpEnd : public TcpProviders {
 protected:
  /// Process 0 leaves step by step, and 1 polls after every `steps_of_a_poll` of its steps. 0: it does not.
  void leave(int steps_of_a_poll) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int step = 1; !at(0).leave(); ++step) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      if (steps_of_a_poll != 0 && step % steps_of_a_poll == 0) poll(1);
    }
    EXPECT_TRUE(at(0).leave());
    world_->leave(PeerId{0});
  }
};

TEST_F(TcpEnd, WithoutPeersItIsOverAtOnce) {
  make(1);
  EXPECT_TRUE(at(0).leave());
}

TEST_F(TcpEnd, MessagesThatWereSentArriveThoughTheProcessHasLeftBeforeThePeerPolls) {
  make(2);
  establish(0, 1);
  sink(1).events.clear();
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_EQ(try_send(0, 1, Pattern(i).bytes(50)), Status::kOk);
  leave(0);
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kPeerDown) == 1; }));
  ASSERT_EQ(sink(1).events.size(), 101u);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(sink(1).events[i].bytes, Pattern(i).bytes(50));
  EXPECT_TRUE(world_->lines.empty());
}

TEST_F(TcpEnd, AMessageToAPeerThatIsNotMetYetArrives) {
  make(2);
  connect(0, 1);
  ASSERT_EQ(try_send(0, 1, Pattern(1).bytes(50)), Status::kOk);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(at(0).leave());
  leave(3);
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kPeerDown) == 1; }));
  ASSERT_EQ(sink(1).count(Kind::kMessage), 1u);
  EXPECT_EQ(sink(1).events[0].bytes, Pattern(1).bytes(50));
}

TEST_F(TcpEnd, LongWritesArriveThoughThePeerPollsLate) {
  constexpr std::size_t kWrites = 20, kLength = std::size_t{1} << 20;
  make(2);
  establish(0, 1);
  sink(1).events.clear();
  std::vector<Region> sources, targets;
  for (std::uint32_t i = 0; i < kWrites; ++i) {
    sources.push_back(make_region(0, kLength));
    sources.back().bytes = Pattern(i).bytes(kLength);
    targets.push_back(make_region(1, kLength));
    ASSERT_EQ(at(0).register_memory(sources[i].bytes.data(), kLength, Access::kRead, sources[i].memory),
              Status::kOk);
    ASSERT_EQ(at(0).write(endpoint(0, 1), sources[i].bytes.data(), kLength, sources[i].memory,
                          targets[i].remote(), Immediate{i}, WorkId{i}),
              Status::kOk);
  }
  ASSERT_EQ(try_send(0, 1, Pattern(99).bytes(50)), Status::kOk);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(at(0).leave());  // 1 does not poll.
  leave(7);
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kPeerDown) == 1; }));
  EXPECT_EQ(sink(1).count(Kind::kMessage), 1u);
  std::size_t arrived_bytes = 0;
  for (const RecordingSink::Event& event : sink(1).events) arrived_bytes += event.length_bytes;
  EXPECT_EQ(arrived_bytes, kWrites * kLength);
  for (std::uint32_t i = 0; i < kWrites; ++i) EXPECT_EQ(targets[i].bytes, sources[i].bytes) << i;
}

/// What a process has not read when it leaves does not take what it has sent with it.
TEST_F(TcpEnd, WhatAPeerHasSentMeanwhileDoesNotResetTheConnection) {
  make(2);
  establish(0, 1);
  sink(1).events.clear();
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(try_send(0, 1, Pattern(i).bytes(50)), Status::kOk);
    ASSERT_EQ(try_send(1, 0, Pattern(i).bytes(50)), Status::kOk);
  }
  leave(0);
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kPeerDown) == 1; }));
  EXPECT_EQ(sink(1).count(Kind::kMessage), 20u);
}

TEST_F(TcpEnd, ADeadPeerIsNotWaitedFor) {
  make(2);
  establish(0, 1);
  const Region source = make_region(0, std::size_t{4} << 20);
  const Region target = make_region(1, std::size_t{4} << 20);
  for (std::uint32_t i = 0; i < 4; ++i)
    ASSERT_EQ(at(0).write(endpoint(0, 1), source.bytes.data(), source.bytes.size(), source.memory,
                          target.remote(), Immediate{i}, WorkId{i}),
              Status::kOk);
  EXPECT_FALSE(at(0).leave());
  world_->kill(PeerId{1});
  leave(0);
}

TEST_F(TcpEnd, APeerThatWasKilledBeforeItWasMetIsNotWaitedFor) {
  make(2);
  connect(0, 1);
  ASSERT_EQ(try_send(0, 1, Pattern(1).bytes(50)), Status::kOk);
  world_->kill(PeerId{1});
  leave(0);
}

TEST_F(TcpEnd, APeerThatReadsNothingIsWaitedForNotLongerThanTheTimeOut) {
  TcpConfig config = patient_tcp_config();
  config.peer_timeout_ms = 1000;
  make(2, config);
  establish(0, 1);
  const Region source = make_region(0, std::size_t{20} << 20);
  const Region target = make_region(1, std::size_t{20} << 20);
  ASSERT_EQ(at(0).write(endpoint(0, 1), source.bytes.data(), source.bytes.size(), source.memory,
                        target.remote(), Immediate{}, WorkId{}),
            Status::kOk);
  const auto begin = std::chrono::steady_clock::now();
  leave(0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

// Parts

TEST_F(TcpProviders, PartsWaitForTheRest) {
  make(2);
  establish(0, 1);
  sink(1).events.clear();
  for (const std::uint64_t number : {1u, 2u})
    ASSERT_EQ(try_send(0, 1, Pattern(number).bytes(1000), &Provider::commit_part), Status::kOk);
  for (int i = 0; i < 20; ++i) {
    poll_now(1);
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  EXPECT_TRUE(sink(1).events.empty()) << "the rest was to follow at once";
  ASSERT_EQ(try_send(0, 1, Pattern(3).bytes(1000)), Status::kOk);
  world_->settle();
  poll_now(1);
  ASSERT_EQ(sink(1).events.size(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(sink(1).events[i].bytes, Pattern(i + 1).bytes(1000));
}

// Time

class TcpTime : public TcpProviders {};

/// Its kernel has no room and answers probes. Between two of them is soon more time than the time-out.
TEST_F(TcpTime, APeerThatComputesForLongerThanTheTimeOutIsNotDead) {
  TcpConfig config = patient_tcp_config();
  config.peer_timeout_ms = 1000;
  make(3, config);
  establish(0, 1);
  establish(0, 2);  // Idle.
  sink(1).events.clear();
  constexpr std::size_t kLength = std::size_t{20} << 20;
  Region source = make_region(0, kLength);
  source.bytes = Pattern(3).bytes(kLength);
  const Region target = make_region(1, kLength);
  ASSERT_EQ(at(0).write(endpoint(0, 1), source.bytes.data(), kLength, source.memory, target.remote(),
                        Immediate{}, WorkId{}),
            Status::kOk);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(3200)) {
    poll(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kWriteDone) == 1; }));
  std::size_t arrived_bytes = 0;
  ASSERT_TRUE(run_until([&] {
    arrived_bytes = 0;
    for (const RecordingSink::Event& event : sink(1).events) arrived_bytes += event.length_bytes;
    return arrived_bytes == kLength;
  }));
  EXPECT_EQ(target.bytes, source.bytes);
  EXPECT_TRUE(world_->lines.empty());
}

/// A stranger may connect and say nothing, and stay: that must not cost each poll a system call.
TEST_F(TcpTime, ASilentConnectionDoesNotMakeEachPollLook) {
  make(2);
  establish(0, 1);
  HostileTcpPeer stranger(PeerId{9}, tcp_test_secret());
  stranger.dial(at(0).local_address());
  run_a_while();
  constexpr int kPolls = 200'000;
  const std::uint64_t before = at(0).looks();
  for (int i = 0; i < kPolls; ++i) poll(0);
  const std::uint64_t looks = at(0).looks() - before;
  EXPECT_GT(looks, 0u);
  EXPECT_LT(looks, kPolls / 2);
  stranger.send(stranger.hello(PeerId{0}));
  std::optional<Frame> reply;
  ASSERT_TRUE(run_until([&] { return (reply = stranger.receive()) || stranger.closed; }));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, FrameKind::kHello);
}

/// Nobody waits for ever for a peer that cannot be dialled.
TEST_F(TcpTime, WithoutADescriptorForTheTimeOutAPeerIsDownAndTheLogSaysWhatToDo) {
  TcpConfig config = patient_tcp_config();
  config.peer_timeout_ms = 1000;
  make(2, config);
  {
    const FewDescriptors none(0);
    connect(0, 1);
    EXPECT_EQ(try_send(0, 1, Pattern(1).bytes(10)), Status::kOk);
    EXPECT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown, PeerId{1}) == 1; }));
  }
  EXPECT_EQ(lines_with("raise it with ulimit -n"), 1u);
  EXPECT_EQ(lines_with("tcp: for 1 s there was no descriptor or memory to dial a process"), 1u);
}

// What it says when it cannot be made

std::string why_not(const TcpConfig& config) {
  const Result<std::unique_ptr<Provider>> provider = make_tcp_provider(config);
  return provider.ok() ? "it can" : provider.error().message;
}

TEST(TcpProviderErrors, AnInterfaceThatIsNotThere) {
  TcpConfig config = patient_tcp_config();
  config.interface = "eth77";
  const std::string why = why_not(config);
  EXPECT_TRUE(why.starts_with("tcp: 'eth77' matches no network interface, and no address, that is up"))
      << why;
  EXPECT_EQ(make_tcp_provider(config).error().status, Status::kUnsupported);
}

TEST(TcpProviderErrors, LoopbackWhereOthersAreOnOtherNodes) {
  TcpConfig config = patient_tcp_config();
  config.loopback_serves = false;
  const std::string why = why_not(config);
  EXPECT_TRUE(why.starts_with("tcp: '127.0.0.1' stands for a loopback address")) << why;
}

TEST(TcpProviderErrors, NoPortOfTheRangeIsFree) {
  const std::unique_ptr<TcpProvider> first = make_tcp(patient_tcp_config());
  const std::uint16_t port = TcpAddress::parse(first->local_address())->port;
  TcpConfig config = patient_tcp_config();
  config.first_port = config.last_port = port;
  const std::string number = std::to_string(port);
  EXPECT_EQ(why_not(config), "tcp: no TCP port from " + number + " to " + number +
                                 " is free at 127.0.0.1 (1 tried): the range needs at least one port for "
                                 "each process on the node");
  EXPECT_EQ(make_tcp_provider(config).error().status, Status::kDeviceFailed);
}

TEST(TcpProviderErrors, APortOfTheRangeIsUsed) {
  std::uint16_t port = 0;
  { port = TcpAddress::parse(make_tcp(patient_tcp_config())->local_address())->port; }
  TcpConfig config = patient_tcp_config();
  config.first_port = port;
  config.last_port = static_cast<std::uint16_t>(std::min(65535, port + 50));
  const std::unique_ptr<TcpProvider> provider = make_tcp(config);
  ASSERT_NE(provider, nullptr);
  const std::uint16_t chosen = TcpAddress::parse(provider->local_address())->port;
  EXPECT_GE(chosen, config.first_port);
  EXPECT_LE(chosen, config.last_port);
}

// Peers

class TcpManyPeers : public TcpProviders {};

TEST_F(TcpManyPeers, AHundredTalkWithOne) {
  constexpr std::uint32_t kProcesses = 101;
  make(kProcesses);
  for (std::uint32_t i = 1; i < kProcesses; ++i) {
    i % 2 == 0 ? connect(0, i) : connect(i, 0);  // The other one answers later.
    ASSERT_EQ(i % 2 == 0 ? try_send(0, i, Pattern(i).bytes(100)) : try_send(i, 0, Pattern(i).bytes(100)),
              Status::kOk);
  }
  ASSERT_TRUE(run_until([&] {
    if (sink(0).events.size() < kProcesses / 2) return false;
    for (std::uint32_t i = 2; i < kProcesses; i += 2)
      if (sink(i).events.empty()) return false;
    return true;
  }));
  for (std::uint32_t i = 1; i < kProcesses; ++i) {
    i % 2 == 0 ? connect(i, 0) : connect(0, i);
    ASSERT_EQ(i % 2 == 0 ? try_send(i, 0, Pattern(i).bytes(100)) : try_send(0, i, Pattern(i).bytes(100)),
              Status::kOk);
  }
  ASSERT_TRUE(run_until([&] {
    if (sink(0).events.size() < kProcesses - 1) return false;
    for (std::uint32_t i = 1; i < kProcesses; ++i)
      if (sink(i).events.empty()) return false;
    return true;
  }));
  for (std::uint32_t i = 1; i < kProcesses; ++i) {
    EXPECT_EQ(sink(0).count(Kind::kMessage, PeerId{i}), 1u) << i;
    ASSERT_EQ(sink(i).events.size(), 1u) << i;
    EXPECT_EQ(sink(i).events[0].bytes, Pattern(i).bytes(100));
  }
  EXPECT_EQ(at(0).counters().network_connections, kProcesses - 1);
  EXPECT_EQ(at(0).counters().network_connections_made, kProcesses - 1);
}

class TcpForks : public TcpProviders {};

/// Python's multiprocessing forks: the child must not hide its parent's death.
TEST_F(TcpForks, AChildDoesNotKeepItsParentsConnectionsAlive) {
  make(2);
  establish(0, 1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) ::pause();
  world_->kill(PeerId{1});
  EXPECT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown, PeerId{1}) == 1; }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

class TcpCounters : public TcpProviders {};

TEST_F(TcpCounters, CountConnections) {
  make(3);
  EXPECT_EQ(at(0).counters().network_connections, 0u);
  EXPECT_EQ(at(0).counters().network_connections_made, 0u);
  establish(0, 1);
  establish(0, 2);
  EXPECT_EQ(at(0).counters().network_connections, 2u);
  EXPECT_EQ(at(0).counters().network_connections_made, 2u);
  EXPECT_EQ(at(0).counters().network_connections_lost, 0u);
  EXPECT_EQ(at(1).counters().network_connections, 1u);
  world_->kill(PeerId{1});
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) == 1; }));
  EXPECT_EQ(at(0).counters().network_connections, 1u);
  EXPECT_EQ(at(0).counters().network_connections_made, 2u);
  EXPECT_EQ(at(0).counters().network_connections_lost, 1u);
  EXPECT_TRUE(at(0).end(PeerId{2}));
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) == 2; }));
  EXPECT_EQ(at(0).counters().network_connections, 0u);
  EXPECT_EQ(at(0).counters().network_connections_lost, 1u) << "it was ended, not lost";
  EXPECT_EQ(at(0).counters().network_registered_bytes, 0u);
}

}  // namespace
}  // namespace ch3_offload
