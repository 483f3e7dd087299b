// The provider contract on the shm provider, in its configurations; then what only this provider meets.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "rdma/checked/checksum.h"
#include "rdma/checked/checksummed_world.h"
#include "rdma/renumbered_world.h"
#include "rdma/shm/shm_fixture.h"

namespace ch3_offload {
namespace {

std::unique_ptr<ContractWorld> make_world(std::size_t size, std::size_t ring_bytes, BulkMethod bulk) {
  ShmConfig config;
  config.ring_bytes = ring_bytes;
  config.bulk = bulk;
  return std::make_unique<ShmWorld>(size, config);
}
std::unique_ptr<ContractWorld> streaming(std::size_t size) {
  return make_world(size, ShmConfig{}.ring_bytes, BulkMethod::kStream);
}
std::unique_ptr<ContractWorld> writing(std::size_t size) {
  return make_world(size, ShmConfig{}.ring_bytes, BulkMethod::kCma);
}
std::unique_ptr<ContractWorld> smallest_ring(std::size_t size) {
  return make_world(size, kLeastRingBytes, BulkMethod::kCma);
}

/// Rings begin with a small window and grow.
std::unique_ptr<ContractWorld> growing(std::size_t size) {
  ShmConfig config;
  config.bulk = BulkMethod::kStream;
  config.memory_bytes = std::size_t{1} << 20;
  return std::make_unique<ShmWorld>(size, config);
}
/// Rings may not grow, and slots are short.
std::unique_ptr<ContractWorld> least_memory(std::size_t size) {
  ShmConfig config;
  config.bulk = BulkMethod::kCma;
  config.memory_bytes = 1;
  return std::make_unique<ShmWorld>(size, config);
}

/// The processes have no common numbers.
std::unique_ptr<ContractWorld> renumbered(std::size_t size) {
  ShmConfig config;
  config.bulk = BulkMethod::kCma;
  return std::make_unique<RenumberedWorld>(std::make_unique<ShmWorld>(size, config, Numbering::kOwn));
}

std::vector<ContractParam> configurations() {
  std::vector<ContractParam> some = {{.name = "Streaming", .make = &streaming, .writes = false},
                                     {"Writing", &writing},
                                     {.name = "Growing", .make = &growing, .writes = false},
                                     {"LeastMemory", &least_memory},
                                     {"SmallestRing", &smallest_ring},
                                     {.name = "Renumbered", .make = &renumbered, .has_secrets = false}};
  if (have_checksums()) some.push_back({"Checksums", &with_checksums<&writing>});
  return some;
}
INSTANTIATE_PROVIDER_CONTRACT(Shm, configurations());

TEST_F(ShmProviderTest, PagesOf64KiBAreSupportedAndGreaterOnesRefused) {
  static_assert(kRingControlBytes % (64 << 10) == 0 && kLeastRingBytes % (64 << 10) == 0);
  pretended_page_bytes = 64 << 10;
  EXPECT_NE(make_shm({}), nullptr);
  pretended_page_bytes = 128 << 10;
  const Result<std::unique_ptr<ShmProvider>> refused = ShmProvider::create({});
  pretended_page_bytes = 0;
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("pages of 131072 bytes"), std::string::npos);
}

TEST_F(ShmProviderTest, ASlotFlowsInARingThatMayNotGrow) {
  ShmConfig config;
  config.memory_bytes = 1;
  EXPECT_EQ(make_shm(config)->capabilities().max_slot_bytes, longest_payload_in_window(kFirstWindowBytes));
  EXPECT_EQ(make_shm({})->capabilities().max_slot_bytes, kChunkBytes - kRecordHeaderBytes);
}

TEST(BulkCopy, OpensTheProcessToItsPeersWhereYamaAsksForItOnly) {
  const std::string file = testing::TempDir() + "/ptrace_scope." + std::to_string(::getpid());
  const auto calls_at = [&](const char* scope) {
    std::FILE* out = std::fopen(file.c_str(), "w");
    EXPECT_NE(out, nullptr);
    std::fputs(scope, out);
    std::fclose(out);
    opened_to_all = 0;
    let_peers_write(file.c_str());
    return opened_to_all;
  };
  EXPECT_EQ(calls_at("0\n"), 0);
  EXPECT_EQ(calls_at("1\n"), 1);
  EXPECT_EQ(calls_at("2\n"), 0);
  ::unlink(file.c_str());
  opened_to_all = 0;
  let_peers_write(file.c_str());
  EXPECT_EQ(opened_to_all, 0);
}

TEST_F(ShmProviderTest, AWriteToAPeerThatIsDyingFails) {
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_TRUE(connect(kB, kA));
  poll_for_ms(kB, 5);
  poll_for_ms(kA, 5);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(try_send(kB, kA), Status::kOk);
  kill(kB);
  // Its end is seen first; what it had sent is delivered in small doses.
  SmallWrite write;
  std::size_t delivered = 0;
  while (sink(kA).count(RecordingSink::Kind::kPeerDown) == 0) {
    EXPECT_EQ(write.post(at(kA), endpoint(kA, kB)), Status::kPeerFailed) << delivered;
    at(kA).arm();
    delivered += at(kA).poll(sink(kA), 10);
    at(kA).disarm();
  }
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kMessage), 100u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kWriteDone), 0u);
}

TEST_F(ShmProviderTest, WhatSomebodySaidWhoIsDeadBeforeWeLookedIsDelivered) {
  ASSERT_TRUE(connect(kB, kA));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(try_send(kB, kA), Status::kOk);
  kill(kB);
  EXPECT_TRUE(at(kA).end(kB));  // It still waits to be accepted.
  while (sink(kA).count(RecordingSink::Kind::kPeerDown) == 0) at(kA).poll(sink(kA), 10);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kMessage), 100u);
  EXPECT_FALSE(at(kA).end(kB));
}

/// A forked child must not look like its parent.
TEST_F(ShmProviderTest, AChildThatLivesOnDoesNotHideADeath) {
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_TRUE(connect(kB, kA));
  poll_for_ms(kB, 5);
  poll_for_ms(kA, 5);
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  kill(kB);
  for (int ms = 0; ms < kWaitMs && sink(kA).count(RecordingSink::Kind::kPeerDown) == 0; ++ms)
    poll_for_ms(kA, 1);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown), 1u);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(ShmProviderTest, AnEndThatBeginsWhileAnotherIsToldIsToldToo) {
  HandMadeReceiver hostile(at(kA).local_address());
  constexpr PeerId kHostile{2};
  ASSERT_TRUE(connect(kA, kHostile, hostile.address()));
  hostile.take_connection();
  hostile.control().consumer_position = std::uint64_t{1} << 60;  // More than was ever sent.
  ASSERT_TRUE(connect(kB, kA));
  ASSERT_EQ(try_send(kB, kA), Status::kOk);
  kill(kB);
  sink(kA).reaction = [&](const RecordingSink::Event&) {
    std::span<std::byte> slot;
    Endpoint& to = endpoint(kA, kHostile);
    while (at(kA).reserve(to, 8, slot) == Status::kOk) at(kA).commit(to, 8);
  };
  ASSERT_TRUE(at(kA).end(kB));
  poll_for_ms(kA, 5);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kMessage), 1u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, kB), 1u);
  EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, kHostile), 1u);
  EXPECT_EQ(sink(kA).events.back().status, Status::kProtocol);
}

TEST_F(ShmProviderTest, APeerKeepsTheNamesThatItCameWith) {
  constexpr PeerId kPeer{2};
  HandMadeReceiver receiver(at(kA).local_address());
  const PeerNames names{PeerId{9}, PeerId{4}};
  ASSERT_TRUE(at(kA).connect(kPeer, receiver.address(), names).ok());
  const Result<Endpoint*> other = at(kA).connect(kPeer, receiver.address(), PeerNames{PeerId{8}, PeerId{4}});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().status, Status::kUnreachable);
  HandMadeSender impostor(at(kA).local_address(), kPeer, kA, *ShmAddress::parse(receiver.address()));
  poll_for_ms(kA, 5);
  EXPECT_TRUE(impostor.sees_the_end());
  HandMadeSender right(at(kA).local_address(), kPeer, kA, *ShmAddress::parse(receiver.address()), names);
  poll_for_ms(kA, 5);
  EXPECT_TRUE(right.take_welcome());
}

/// Who knows the secret can only say that it listens elsewhere. That harms the connection with itself.
TEST_F(ShmProviderTest, AnAddressWhereNobodyListensIsThatOfADeadProcess) {
  constexpr PeerId kHostile{2};
  const ShmAddress nowhere{ShmAddress::parse(at(kA).local_address())->node_id, {1, 2}};
  HandMadeSender sender(at(kA).local_address(), kHostile, kA, nowhere);
  poll_for_ms(kA, 5);
  EXPECT_EQ(at(kA).address_of(kHostile), nowhere.to_string());
  const Result<Endpoint*> elsewhere = at(kA).connect(kHostile, at(kB).local_address());
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_EQ(elsewhere.error().status, Status::kUnreachable);
  const Result<Endpoint*> there = at(kA).connect(kHostile, nowhere.to_string());
  ASSERT_FALSE(there.ok());
  EXPECT_EQ(there.error().status, Status::kPeerFailed);
  EXPECT_EQ(at(kA).address_of(kHostile), nowhere.to_string());
}

TEST_F(ShmProviderTest, WhoConnectsMustListenWhereItWasConnectedTo) {
  HandMadeReceiver receiver(at(kA).local_address());
  constexpr PeerId kPeer{2};
  ASSERT_TRUE(connect(kA, kPeer, receiver.address()));
  HandMadeSender impostor(at(kA).local_address(), kPeer, kA);
  poll_for_ms(kA, 5);
  EXPECT_TRUE(impostor.sees_the_end());
  EXPECT_NE(log(kA).find("not the process that this one has connected to"), std::string::npos) << log(kA);
  EXPECT_EQ(at(kA).address_of(kPeer), receiver.address());
  HandMadeSender right(at(kA).local_address(), kPeer, kA, *ShmAddress::parse(receiver.address()));
  poll_for_ms(kA, 5);
  EXPECT_TRUE(right.take_welcome());
}

TEST_F(ShmProviderTest, AnEndIsToldWhenThePeerCopiesNoMore) {
  for (const bool dies : {false, true}) {
    const PeerId peer{dies ? 3u : 2u};
    HandMadeSender sender(at(kA).local_address(), peer, kA);
    poll_for_ms(kA, 5);
    sender.control().producer_copying = 1;
    ASSERT_TRUE(at(kA).end(peer));
    poll_for_ms(kA, 5);
    EXPECT_TRUE(sender.sees_the_end());
    EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, peer), 0u) << "it may still write to our memory";
    EXPECT_FALSE(at(kA).arm());
    at(kA).disarm();
    if (dies)
      sender.die();
    else
      sender.control().producer_copying = 0;
    poll_for_ms(kA, 5);
    EXPECT_EQ(sink(kA).count(RecordingSink::Kind::kPeerDown, peer), 1u);
  }
}

TEST_F(ShmProviderTest, WhoCopiesSaysSo) {
  HandMadeReceiver receiver(at(kA).local_address());
  constexpr PeerId kReceiver{2};
  ASSERT_TRUE(connect(kA, kReceiver, receiver.address()));
  receiver.take_connection();
  std::vector<std::uint32_t> words;
  at_copy = [&] { words.push_back(receiver.control().producer_copying); };
  EXPECT_EQ(SmallWrite().post(at(kA), endpoint(kA, kReceiver)), Status::kOk);
  EXPECT_EQ(words, std::vector<std::uint32_t>{1});
  EXPECT_EQ(receiver.control().producer_copying, 0u);
}

TEST_F(ShmProviderTest, ASignalDuringAWriteDoesNotLookLikeADeath) {
  ASSERT_TRUE(connect(kA, kB));
  failing_poll = {EINTR, 1};
  EXPECT_EQ(SmallWrite().post(at(kA), endpoint(kA, kB)), Status::kOk);
  EXPECT_EQ(failing_poll.failed, 1);
}

TEST_F(ShmProviderTest, AWriteToAProcessThatEndsIsNoRefusalToWarnOf) {
  ASSERT_TRUE(connect(kA, kB));
  failing_copy = {ESRCH, 1};
  EXPECT_EQ(SmallWrite().post(at(kA), endpoint(kA, kB)), Status::kUnsupported);
  EXPECT_EQ(log(kA), "");
}

TEST_F(ShmProviderTest, AWriteThatTheKernelForbidsIsAWarningOfTheNode) {
  ASSERT_TRUE(connect(kA, kB));
  failing_copy = {EPERM, 1};
  EXPECT_EQ(SmallWrite().post(at(kA), endpoint(kA, kB)), Status::kUnsupported);
  EXPECT_EQ(log(kA),
            "of the node: shm: process_vm_writev to peer 1 refused: Operation not permitted; using streamed "
            "copies");
}

TEST_F(ShmProviderTest, AWriteToMemoryThatCannotBeReachedIsRefusedAndNoMore) {
  ASSERT_TRUE(connect(kA, kB));
  for (int i = 0; i < 2; ++i) {
    std::byte source{};
    EXPECT_EQ(at(kA).write(endpoint(kA, kB), &source, 1, {}, {4096, {}}, Immediate{1}, WorkId{1}),
              Status::kUnsupported);
  }
  EXPECT_NE(log(kA).find("streamed copies"), std::string::npos) << log(kA);
  EXPECT_EQ(log(kA).find("of the node"), std::string::npos) << "other memory may be reached";
  EXPECT_EQ(log(kA).find("streamed"), log(kA).rfind("streamed")) << "once";
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  ASSERT_TRUE(poll_both_until([&] { return !sink(kB).events.empty(); }));
  EXPECT_TRUE(sink(kA).events.empty()) << "the connection stands";
}

}  // namespace
}  // namespace ch3_offload
