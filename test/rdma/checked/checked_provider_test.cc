// Checksums over the fake network, which damages what it carries; and peers that send nonsense with right
// ones.

#include "rdma/checked/checked_provider.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "rdma/checked/checksum.h"
#include "rdma/contract_world.h"
#include "rdma/fake_provider.h"

namespace ch3_offload::checked_provider_test {
namespace {

using Kind = RecordingSink::Kind;
constexpr PeerId kA{0};
constexpr PeerId kB{1};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(checksum({}), 0u);
  EXPECT_EQ(checksum(bytes_of("123456789")), 0xE306'9283u);  // The check value of the catalogues.
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(checksum(zeros), 0x8A91'36AAu);  // RFC 3720, B.4.
}

/// Two processes that have connected to each other.
class CheckedProviderTest : public testing::Test {
 protected:
  void make(const FakeConfig& config = {}) {
    network = std::make_unique<FakeNetwork>(config);
    for (std::size_t i = 0; i < 2; ++i) {
      sides[i].below = network->make_provider(PeerId{static_cast<std::uint32_t>(i)});
      const Log log([](void* lines, LogScope,
                       const char* line) { static_cast<std::vector<std::string>*>(lines)->push_back(line); },
                    &sides[i].lines);
      sides[i].provider = std::make_unique<CheckedProvider>(*sides[i].below, log);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const PeerId other{static_cast<std::uint32_t>(1 - i)};
      const Result<Endpoint*> made =
          sides[i].provider->connect(other, sides[1 - i].provider->local_address());
      ASSERT_TRUE(made.ok()) << made.error().message;
      sides[i].to = made.value();
    }
  }
  void TearDown() override {
    if (network == nullptr) return;
    EXPECT_EQ(network->violations(), std::vector<std::string>{});
    for (Side& side : sides) side.provider.reset();
  }

  /// Process 0 writes `sent`, so many bytes of 1, to `landed` in process 1.
  void write(std::size_t length_bytes) {
    sent.assign(length_bytes, std::byte{1});
    landed.assign(length_bytes, std::byte{});
    ASSERT_EQ(a().provider->register_memory(sent.data(), length_bytes, Access::kRead, sent_region),
              Status::kOk);
    ASSERT_EQ(b().provider->register_memory(landed.data(), length_bytes, Access::kWrite, landed_region),
              Status::kOk);
    ASSERT_EQ(a().provider->write(*a().to, sent.data(), length_bytes, sent_region,
                                  {reinterpret_cast<std::uintptr_t>(landed.data()), landed_region.remote_key},
                                  Immediate{7}, WorkId{9}),
              Status::kOk);
  }

  struct Side {
    std::unique_ptr<FakeProvider> below;
    std::vector<std::string> lines;
    std::unique_ptr<CheckedProvider> provider;
    RecordingSink sink;
    Endpoint* to = nullptr;
  };
  std::vector<std::byte> sent, landed;
  MemoryRegion sent_region, landed_region;

  Side& a() { return sides[0]; }
  Side& b() { return sides[1]; }

  static Status try_send(Side& from, std::span<const std::byte> message) {
    std::span<std::byte> slot;
    const Status status = from.provider->reserve(*from.to, message.size(), slot);
    if (status != Status::kOk) return status;
    std::memcpy(slot.data(), message.data(), message.size());
    from.provider->commit(*from.to, message.size());
    return Status::kOk;
  }
  void step() {
    for (Side& side : sides) side.provider->poll(side.sink, 8);
    network->advance();
  }
  void send(Side& from, std::span<const std::byte> message) {
    Status status = Status::kAgain;
    for (int i = 0; i < 100'000 && (status = try_send(from, message)) == Status::kAgain; ++i) step();
    ASSERT_EQ(status, Status::kOk);
  }
  void run(int steps = 2000) {
    for (int i = 0; i < steps; ++i) step();
  }

  /// As the peer's CheckedProvider would send it. Numbers in `header` count from the first frame.
  void inject(PeerId from, CheckedHeader header, std::span<const std::byte> body) {
    header.number += kFirstFrame;
    header.received += kFirstFrame;
    std::vector<std::byte> frame(sizeof header + body.size());
    std::memcpy(frame.data(), &header, sizeof header);
    if (!body.empty()) std::memcpy(frame.data() + sizeof header, body.data(), body.size());
    header.checksum = checksum(std::span(frame).subspan(4));
    std::memcpy(frame.data(), &header, sizeof header);
    network->inject(from, from == kA ? kB : kA, frame);
  }
  template <class Body>
  void inject(CheckedKind kind, const Body& body, std::uint32_t number = 0, std::uint32_t received = 0) {
    inject(kA, {0, number, received, kind, {}}, std::as_bytes(std::span(&body, 1)));
  }
  void expect_b_ends_it() {
    run();
    EXPECT_EQ(b().sink.count(Kind::kPeerDown), 1u);
    ASSERT_EQ(b().lines.size(), 1u);
    EXPECT_NE(b().lines[0].find("the connection with it ends"), std::string::npos) << b().lines[0];
  }

  std::unique_ptr<FakeNetwork> network;
  Side sides[2];
};

TEST_F(CheckedProviderTest, WhatIsDamagedComesAgainInOrder) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    FakeConfig config;
    config.seed = seed;
    config.damaged_message_probability = seed % 3 == 0 ? 0.3 : 0.05;
    config.again_probability = seed % 2 == 0 ? 0.3 : 0;
    config.slots_per_pair = seed % 5 == 0 ? 1 : 16;
    make(config);
    constexpr std::uint32_t kMessages = 300;
    for (std::uint32_t n = 0; n < kMessages; ++n) {
      ASSERT_NO_FATAL_FAILURE(send(a(), Pattern(n).bytes(1 + n * 7 % 3000)));
      if (n % 3 == 0) ASSERT_NO_FATAL_FAILURE(send(b(), Pattern(n).bytes(1 + n * 5 % 1000)));
    }
    for (int i = 0;
         i < 200'000 && (b().sink.events.size() < kMessages || a().sink.events.size() < kMessages / 3); ++i)
      step();
    ASSERT_EQ(b().sink.events.size(), kMessages) << seed;
    ASSERT_EQ(a().sink.events.size(), kMessages / 3) << seed;
    for (std::uint32_t n = 0; n < kMessages; ++n)
      ASSERT_EQ(b().sink.events[n].bytes, Pattern(n).bytes(1 + n * 7 % 3000)) << seed << " " << n;
    for (std::uint32_t n = 0; n < kMessages; n += 3)
      ASSERT_EQ(a().sink.events[n / 3].bytes, Pattern(n).bytes(1 + n * 5 % 1000)) << seed << " " << n;
    run(100);  // Acknowledgements are damaged, too.
    EXPECT_GT(network->damaged(), 0u);
    EXPECT_EQ(a().provider->counters().damaged + b().provider->counters().damaged, network->damaged());
    EXPECT_GT(a().provider->counters().network_sent_again, 0u);
    for (int i = 0; i < 10'000 && !(a().provider->is_settled() && b().provider->is_settled()); ++i) step();
    EXPECT_TRUE(a().provider->is_settled() && b().provider->is_settled()) << seed;
    EXPECT_NE(b().lines.at(0).find("from process 0 arrived damaged"), std::string::npos) << b().lines[0];
    TearDown();
    for (Side& side : sides) side = {};
    network.reset();
  }
}

TEST_F(CheckedProviderTest, ADamagedWriteIsWrittenAgain) {
  FakeConfig config;
  config.damaged_write_probability = 0.4;
  config.damaged_message_probability = 0.1;
  make(config);
  constexpr std::size_t kLength = 5000;
  constexpr std::uint32_t kWrites = 100;
  std::vector<std::byte> source(kLength * kWrites);
  std::vector<std::byte> target(source.size());
  Pattern(1).fill(source);
  MemoryRegion from;
  MemoryRegion to;
  ASSERT_EQ(a().provider->register_memory(source.data(), source.size(), Access::kRead, from), Status::kOk);
  ASSERT_EQ(b().provider->register_memory(target.data(), target.size(), Access::kWrite, to), Status::kOk);
  std::uint32_t right = 0;
  std::size_t seen = 0;
  const auto step_and_look = [&] {
    step();
    for (; seen < b().sink.events.size(); ++seen) {
      const auto n = static_cast<std::size_t>(b().sink.events[seen].immediate);
      EXPECT_EQ(b().sink.events[seen].length_bytes, kLength);
      right += std::memcmp(source.data() + n * kLength, target.data() + n * kLength, kLength) == 0;
    }
  };
  for (std::uint32_t n = 0; n < kWrites; ++n) {
    Status status = Status::kAgain;
    for (int i = 0; i < 10'000 && status == Status::kAgain; ++i) {
      status =
          a().provider->write(*a().to, source.data() + n * kLength, kLength, from,
                              {reinterpret_cast<std::uintptr_t>(target.data() + n * kLength), to.remote_key},
                              Immediate{n}, WorkId{n});
      step_and_look();
    }
    ASSERT_EQ(status, Status::kOk);
  }
  for (int i = 0; i < 100'000 && a().sink.count(Kind::kWriteDone) < kWrites; ++i) step_and_look();
  EXPECT_EQ(a().sink.count(Kind::kWriteDone), kWrites);
  EXPECT_EQ(b().sink.count(Kind::kWriteArrived), kWrites) << "once each";
  EXPECT_EQ(right, kWrites) << "when it is told, it is right";
  EXPECT_EQ(source, target);
  EXPECT_GT(b().provider->counters().damaged, 0u);
  a().provider->deregister_memory(from);
  b().provider->deregister_memory(to);
}

TEST_F(CheckedProviderTest, AWriteIsDoneWhenTheReceiverHasFoundItRight) {
  make();
  ASSERT_NO_FATAL_FAILURE(write(100));
  for (int i = 0; i < 100; ++i) {
    a().provider->poll(a().sink, 8);
    network->advance();
  }
  EXPECT_TRUE(a().sink.events.empty()) << "the receiver has not looked";
  run(100);
  ASSERT_EQ(a().sink.events.size(), 1u);
  EXPECT_EQ(a().sink.events[0].work, WorkId{9});
  ASSERT_EQ(b().sink.events.size(), 1u);
  EXPECT_EQ(b().sink.events[0].immediate, Immediate{7});
  a().provider->deregister_memory(sent_region);
  b().provider->deregister_memory(landed_region);
}

TEST_F(CheckedProviderTest, AWriteThatNobodyAnsweredFailsWithItsPeer) {
  make();
  std::vector<std::byte> memory(100);
  MemoryRegion from;
  MemoryRegion to;
  ASSERT_EQ(a().provider->register_memory(memory.data(), 100, Access::kRead, from), Status::kOk);
  std::vector<std::byte> target(100);
  ASSERT_EQ(b().provider->register_memory(target.data(), 100, Access::kWrite, to), Status::kOk);
  ASSERT_EQ(a().provider->write(*a().to, memory.data(), 100, from,
                                {reinterpret_cast<std::uintptr_t>(target.data()), to.remote_key},
                                Immediate{7}, WorkId{9}),
            Status::kOk);
  for (int i = 0; i < 100; ++i) {
    a().provider->poll(a().sink, 8);
    network->advance();
  }
  b().provider.reset();
  b().below.reset();
  for (int i = 0; i < 100; ++i) {
    a().provider->poll(a().sink, 8);
    network->advance();
  }
  ASSERT_EQ(a().sink.events.size(), 2u);
  EXPECT_EQ(a().sink.events[0].kind, Kind::kWriteDone);
  EXPECT_EQ(a().sink.events[0].status, Status::kPeerFailed);
  EXPECT_EQ(a().sink.events[1].kind, Kind::kPeerDown);
  a().provider->deregister_memory(from);
}

/// Windows and entries may change while they are read for somebody.
TEST_F(CheckedProviderTest, ASourceThatChangesIsWrittenAgainAndInTheEndNotCompared) {
  for (const bool changes_always : {false, true}) {
    make();
    ASSERT_NO_FATAL_FAILURE(write(3000));
    // The fake copies when it delivers: what was summed up is not what is written.
    sent[5] = std::byte{2};
    for (int i = 0; i < 10'000 && a().sink.events.empty(); ++i) {
      if (changes_always) sent[6] = static_cast<std::byte>(i);
      step();
    }
    ASSERT_EQ(a().sink.events.size(), 1u);
    EXPECT_EQ(a().sink.events[0].status, Status::kOk);
    EXPECT_EQ(b().sink.count(Kind::kWriteArrived), 1u);
    EXPECT_EQ(landed[5], std::byte{2});
    EXPECT_EQ(b().provider->counters().damaged, changes_always ? 3u : 1u);
    a().provider->deregister_memory(sent_region);
    b().provider->deregister_memory(landed_region);
    TearDown();
    for (Side& side : sides) side = {};
    network.reset();
  }
}

TEST_F(CheckedProviderTest, AWriteThatIsAlwaysWrongEndsTheConnection) {
  FakeConfig config;
  config.damaged_write_probability = 1;
  make(config);
  ASSERT_NO_FATAL_FAILURE(write(100));
  run(10'000);
  EXPECT_EQ(b().sink.count(Kind::kWriteArrived), 0u);
  ASSERT_EQ(a().sink.events.size(), 2u);
  EXPECT_EQ(a().sink.events[0].kind, Kind::kWriteDone);
  EXPECT_EQ(a().sink.events[0].status, Status::kPeerFailed);
  EXPECT_EQ(a().sink.events[1].kind, Kind::kPeerDown);
  EXPECT_NE(a().lines.back().find("all that is written to it is damaged"), std::string::npos);
  a().provider->deregister_memory(sent_region);
  b().provider->deregister_memory(landed_region);
}

TEST_F(CheckedProviderTest, AWayThatDamagesEverythingIsGivenUp) {
  FakeConfig config;
  config.damaged_message_probability = 1;
  make(config);
  ASSERT_EQ(try_send(a(), Pattern(1).bytes(10)), Status::kOk);
  run(20'000);
  EXPECT_EQ(b().sink.count(Kind::kMessage), 0u);
  EXPECT_EQ(b().sink.count(Kind::kPeerDown) + a().sink.count(Kind::kPeerDown), 2u);
  std::string lines;
  for (const Side& side : sides)
    for (const std::string& line : side.lines) lines += line + "\n";
  EXPECT_NE(lines.find("all that comes from it is damaged; the connection with it ends"), std::string::npos)
      << lines;
}

/// A process that only receives says what it has, without having connected.
TEST_F(CheckedProviderTest, WhoOnlyReceivesIsAnsweredFor) {
  make();
  b().provider.reset();
  b().provider = std::make_unique<CheckedProvider>(*b().below, Log(nullptr, nullptr));
  for (std::uint32_t n = 0; n < 1000; ++n) ASSERT_NO_FATAL_FAILURE(send(a(), Pattern(n).bytes(3000)));
  run(1000);
  EXPECT_EQ(b().sink.count(Kind::kMessage), 1000u) << "more than is kept";
}

TEST_F(CheckedProviderTest, OneWithoutChecksumsIsNotReached) {
  make();
  EXPECT_FALSE(a().provider->reaches(b().below->local_address()));
  EXPECT_FALSE(b().below->reaches(a().provider->local_address()));
  const Result<Endpoint*> made = a().provider->connect(kB, b().below->local_address());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().status, Status::kUnreachable);
}

// Nonsense with a right checksum

TEST_F(CheckedProviderTest, AShortFrameIsADamagedOne) {
  make();
  const std::byte few[] = {std::byte{1}, std::byte{2}};
  network->inject(kA, kB, few);
  run(100);
  EXPECT_EQ(b().provider->counters().damaged, 1u);
  ASSERT_NO_FATAL_FAILURE(send(a(), Pattern(3).bytes(10)));
  run(100);
  EXPECT_EQ(b().sink.count(Kind::kMessage), 1u);
}

TEST_F(CheckedProviderTest, AnUnknownKindEndsTheConnection) {
  for (const unsigned kind : {0u, static_cast<unsigned>(CheckedKind::kEnd), 255u}) {
    make();
    inject(kA, {0, 0, 0, static_cast<CheckedKind>(kind), {}}, bytes_of("x"));
    expect_b_ends_it();
    TearDown();
    for (Side& side : sides) side = {};
    network.reset();
  }
}

TEST_F(CheckedProviderTest, WhoHasReceivedWhatWasNotSentIsEnded) {
  make();
  inject(kA, {0, 0, 1, CheckedKind::kReceived, {}}, {});
  expect_b_ends_it();
}

TEST_F(CheckedProviderTest, AFrameWithoutItsBodyEndsTheConnection) {
  for (const auto kind :
       {CheckedKind::kMessage, CheckedKind::kWritten, CheckedKind::kRight, CheckedKind::kWrong}) {
    make();
    inject(kA, {0, 0, 0, kind, {}}, {});
    expect_b_ends_it();
    TearDown();
    for (Side& side : sides) side = {};
    network.reset();
  }
}

TEST_F(CheckedProviderTest, AnAnswerToNoWriteEndsTheConnection) {
  for (const std::uint32_t write : {0u, 255u, 256u, UINT32_MAX}) {
    make();
    inject(CheckedKind::kRight, CheckedAnswer{write});
    expect_b_ends_it();
    TearDown();
    for (Side& side : sides) side = {};
    network.reset();
  }
}

/// Nothing is read but memory that peers may write to. What is not granted, the sink judges.
TEST_F(CheckedProviderTest, AWriteToWhatIsNotGrantedIsNotLookedAt) {
  make();
  std::vector<std::byte> memory(100);
  MemoryRegion region;
  ASSERT_EQ(b().provider->register_memory(memory.data(), 100, Access::kWrite, region), Status::kOk);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto key = static_cast<std::uint64_t>(region.remote_key);
  const CheckedWritten wild[] = {{16, key, 100, 5, 0, 0},          {address, key, 101, 5, 0, 0},
                                 {address + 1, key, 100, 5, 0, 0}, {address - 1, key, 8, 5, 0, 0},
                                 {address, key + 99, 8, 5, 0, 0},  {address + 50, key, UINT64_MAX, 5, 0, 0},
                                 {UINT64_MAX, key, 100, 5, 0, 0}};
  std::uint32_t number = 0;
  for (const CheckedWritten& written : wild) {
    if (written.length_bytes != UINT64_MAX)
      network->inject_immediate(kA, kB, Immediate{5}, static_cast<std::size_t>(written.length_bytes));
    inject(CheckedKind::kWritten, written, number++);
    for (int i = 0; i < 50; ++i) {  // The real process 0 would not understand the answers.
      b().provider->poll(b().sink, 8);
      network->advance();
    }
  }
  EXPECT_EQ(b().provider->counters().damaged, 0u);
  EXPECT_EQ(b().sink.count(Kind::kWriteArrived), std::size(wild) - 1);
  b().provider->deregister_memory(region);
}

TEST_F(CheckedProviderTest, WritesThatAreToldAndDoNotComeEndTheConnection) {
  make();
  for (std::uint32_t n = 0; n < 5000; ++n)
    inject(CheckedKind::kWritten, CheckedWritten{16, 1, 100, 5, n, 0, 0}, n);
  run(3000);
  EXPECT_EQ(b().sink.count(Kind::kPeerDown), 1u);
  EXPECT_EQ(b().sink.count(Kind::kWriteArrived), 0u);
  EXPECT_NE(b().lines.back().find("it speaks of writes that do not come"), std::string::npos);
}

/// The sink says that nothing lands there: it judges who writes.
TEST_F(CheckedProviderTest, MemoryThatNoWriteLandsInIsNotLookedAt) {
  make();
  std::vector<std::byte> memory(100);
  MemoryRegion region;
  ASSERT_EQ(b().provider->register_memory(memory.data(), 100, Access::kWrite, region), Status::kOk);
  const CheckedWritten written{reinterpret_cast<std::uintptr_t>(memory.data()),
                               static_cast<std::uint64_t>(region.remote_key),
                               100,
                               5,
                               0,
                               1,
                               0};
  for (const bool lands : {false, true}) {
    b().sink.lands = lands;
    network->inject_immediate(kA, kB, Immediate{5}, 100);
    inject(CheckedKind::kWritten, written, lands ? 1 : 0);
    for (int i = 0; i < 50; ++i) {
      b().provider->poll(b().sink, 8);
      network->advance();
    }
    EXPECT_EQ(b().provider->counters().damaged, lands ? 1u : 0u) << "its checksum is wrong";
    EXPECT_EQ(b().sink.count(Kind::kWriteArrived), 1u);
  }
  b().provider->deregister_memory(region);
}

TEST_F(CheckedProviderTest, EndlessWritesEndTheConnection) {
  make();
  for (std::uint32_t n = 0; n < 5000; ++n) network->inject_immediate(kA, kB, Immediate{n}, 1);
  run(2000);
  for (std::uint32_t n = 0; n < 5000 && b().sink.count(Kind::kPeerDown) == 0; ++n) step();
  EXPECT_EQ(b().sink.count(Kind::kPeerDown), 1u);
  EXPECT_EQ(b().sink.count(Kind::kWriteArrived), 0u);
}

}  // namespace
}  // namespace ch3_offload::checked_provider_test
