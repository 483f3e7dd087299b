// The fake provider passes the contract suite in several tempers, and does what its configuration says.

#include <cstdlib>

#include "rdma/checked/checksum.h"
#include "rdma/checked/checksummed_world.h"
#include "rdma/fake_world.h"
#include "rdma/provider_contract.h"

namespace ch3_offload {
namespace {

/// A world that also checks that the suite keeps to the contract.
class CheckedWorld final : public ContractWorld {
 public:
  CheckedWorld(const FakeConfig& config, std::size_t size) : world_(config, size) {}
  ~CheckedWorld() override { EXPECT_EQ(world_.network().violations(), std::vector<std::string>{}); }
  std::size_t size() const override { return world_.size(); }
  Provider& at(PeerId peer) override { return world_.at(peer); }
  bool alive(PeerId peer) const override { return world_.alive(peer); }
  void step() override { world_.step(); }
  void settle() override { world_.settle(); }
  void kill(PeerId peer) override { world_.kill(peer); }

 private:
  FakeWorld world_;
};

constexpr std::uint32_t kSlots = 128;  // The suite sends 100 that nobody polls.

std::unique_ptr<ContractWorld> make_calm(std::size_t size) {
  FakeConfig config;
  config.slots_per_pair = kSlots;
  return std::make_unique<CheckedWorld>(config, size);
}
/// Some messages are late, slots are short, and those of every other process are shorter still.
std::unique_ptr<ContractWorld> make_slow_and_narrow(std::size_t size) {
  FakeConfig config;
  config.max_slot_bytes = 300;
  config.odd_slot_bytes = 256;
  config.slots_per_pair = kSlots;
  config.slow_probability = 0.1;
  return std::make_unique<CheckedWorld>(config, size);
}
std::unique_ptr<ContractWorld> make_without_writes(std::size_t size) {
  FakeConfig config;
  config.slots_per_pair = kSlots;
  config.write = false;
  return std::make_unique<CheckedWorld>(config, size);
}

/// The others can show nothing of the provider that this one does not, but for their own code in the fake.
std::vector<ContractParam> configurations() {
  std::vector<ContractParam> some = {{"SlowAndNarrow", &make_slow_and_narrow}};
  if (have_checksums()) some.push_back({"Checksums", &with_checksums<&make_calm>});
  if (std::getenv("CH3_OFFLOAD_CHECK_ALL") != nullptr) {
    some.push_back({"Calm", &make_calm});
    some.push_back({.name = "WithoutWrites", .make = &make_without_writes, .writes = false});
  }
  for (ContractParam& configuration : some) configuration.sleeps = configuration.has_secrets = false;
  return some;
}
INSTANTIATE_PROVIDER_CONTRACT(Fake, configurations());

/// Two connected processes and the little that the tests below do with them.
struct Pair {
  explicit Pair(const FakeConfig& config, std::size_t size = 2) : world(config, size), sinks(size) {
    connect(kA, kB);
    connect(kB, kA);
  }
  void connect(PeerId from, PeerId to) {
    EXPECT_TRUE(endpoints.connect(world.at(from), from, to, world.at(to).local_address()).ok());
  }
  /// Posts a write from A to B.
  Status write(const std::byte* source, std::size_t length, const MemoryRegion& from, RemoteMemory to,
               std::uint32_t id = 0) {
    return world.at(kA).write(endpoints.of(kA, kB), source, length, from, to, Immediate{id}, WorkId{id});
  }
  Status send(PeerId from, PeerId to, const std::vector<std::byte>& bytes) {
    std::span<std::byte> slot;
    const Status status = world.at(from).reserve(endpoints.of(from, to), bytes.size(), slot);
    if (status != Status::kOk) return status;
    std::memcpy(slot.data(), bytes.data(), bytes.size());
    world.at(from).commit(endpoints.of(from, to), bytes.size());
    return Status::kOk;
  }
  void run() {
    do {
      for (std::uint32_t i = 0; i < sinks.size(); ++i) {
        if (world.alive(PeerId{i})) world.at(PeerId{i}).poll(sinks[i], 1000);
      }
    } while (world.network().advance());
    for (std::uint32_t i = 0; i < sinks.size(); ++i) {
      if (world.alive(PeerId{i})) world.at(PeerId{i}).poll(sinks[i], 1000);
    }
  }
  const std::vector<std::string>& violations() { return world.network().violations(); }

  FakeWorld world;
  Endpoints endpoints;
  std::vector<RecordingSink> sinks;
};

/// A pair in which A may write from its memory to that of B.
struct WritingPair : Pair {
  explicit WritingPair(const FakeConfig& config, std::size_t length = 100, std::size_t target_length = 100)
      : Pair(config), source(length, std::byte{1}), target(target_length) {
    EXPECT_EQ(world.at(kA).register_memory(source.data(), length, Access::kWrite, from), Status::kOk);
    EXPECT_EQ(world.at(kB).register_memory(target.data(), target_length, Access::kWrite, to), Status::kOk);
  }
  Status write(std::size_t length, std::uint32_t id = 0) {
    return Pair::write(source.data(), length, from,
                       {reinterpret_cast<std::uintptr_t>(target.data()), to.remote_key}, id);
  }

  std::vector<std::byte> source;
  std::vector<std::byte> target;
  MemoryRegion from;
  MemoryRegion to;
};

const std::vector<std::byte> kHello(8, std::byte{'h'});
using Kind = RecordingSink::Kind;

TEST(FakeNetwork, TheSameSeedGivesTheSameRun) {
  std::vector<std::uint64_t> ends;
  for (const std::uint64_t seed : {7, 7, 8}) {
    FakeConfig config;
    config.seed = seed;
    config.again_probability = 0.3;
    Pair pair(config);
    std::uint64_t refused = 0;
    for (int i = 0; i < 50; ++i) refused += pair.send(kA, kB, kHello) == Status::kAgain;
    pair.run();
    ends.push_back(pair.world.network().now_ns() * 100 + refused);
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_NE(ends[0], ends[2]);
}

TEST(FakeNetwork, MessagesOfDifferentPairsOvertakeEachOther) {
  bool overtaken = false;
  for (std::uint64_t seed = 1; seed < 50 && !overtaken; ++seed) {
    FakeConfig config;
    config.seed = seed;
    Pair pair(config, 3);
    pair.connect(kC, kB);
    ASSERT_EQ(pair.send(kA, kB, kHello), Status::kOk);
    ASSERT_EQ(pair.send(kC, kB, kHello), Status::kOk);
    pair.run();
    ASSERT_EQ(pair.sinks[1].events.size(), 2u);
    overtaken = pair.sinks[1].events[0].peer == kC;
  }
  EXPECT_TRUE(overtaken);
}

TEST(FakeNetwork, AWriteCopiesWhenItIsDelivered) {
  WritingPair pair(FakeConfig{});
  ASSERT_EQ(pair.write(100), Status::kOk);
  pair.source[50] = std::byte{2};  // Too early: the other side sees it.
  pair.run();
  EXPECT_EQ(pair.target[50], std::byte{2});
  EXPECT_EQ(pair.target[49], std::byte{1});
  EXPECT_TRUE(pair.violations().empty());
}

TEST(FakeNetwork, AWriteToMemoryThatIsNoLongerRegisteredIsAViolation) {
  WritingPair pair(FakeConfig{});
  ASSERT_EQ(pair.write(100), Status::kOk);
  pair.world.at(kB).deregister_memory(pair.to);
  pair.run();
  EXPECT_EQ(pair.target[0], std::byte{0});
  EXPECT_EQ(pair.violations().size(), 1u);
  EXPECT_EQ(pair.sinks[0].events.front().kind, Kind::kWriteDone);
  EXPECT_EQ(pair.sinks[0].events.front().status, Status::kPeerFailed);
  EXPECT_EQ(pair.sinks[0].events.back().kind, Kind::kPeerDown);
}

TEST(FakeNetwork, AWriteBeyondTheEndOfARegionIsAViolation) {
  WritingPair pair(FakeConfig{}, 100, 50);
  ASSERT_EQ(pair.write(51), Status::kOk);
  pair.run();
  EXPECT_EQ(pair.violations().size(), 1u);
}

TEST(FakeNetwork, EveryWriteIsAnsweredBeforeThePeerIsDown) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    FakeConfig config;
    config.seed = seed;
    WritingPair pair(config, 1000, 1000);
    std::uint32_t posted = 0;
    for (; posted < 10; ++posted) {
      ASSERT_EQ(pair.write(1000, posted), Status::kOk);
      if (posted % 2 == 0) pair.world.network().advance();
    }
    if (seed % 2 == 0) {
      pair.world.kill(kB);
    } else {
      pair.world.network().break_connection(kA, kB);
    }
    if (pair.write(10, 99) == Status::kOk) ++posted;
    pair.run();
    ASSERT_EQ(pair.sinks[0].events.size(), posted + 1);
    EXPECT_EQ(pair.sinks[0].events.back().kind, Kind::kPeerDown);
    std::size_t completed = 0;
    for (const auto& event : pair.sinks[0].events) completed += event.status == Status::kOk;
    if (seed % 2 == 1) {
      EXPECT_LE(completed, pair.sinks[1].count(Kind::kWriteArrived));
    }
    EXPECT_EQ(pair.violations(), std::vector<std::string>{});
  }
}

TEST(FakeNetwork, ADyingSendersMessagesAreLostFromSomePointOn) {
  std::size_t fewest = 100;
  std::size_t most = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    FakeConfig config;
    config.seed = seed;
    Pair pair(config);
    for (std::uint8_t i = 0; i < 20; ++i) ASSERT_EQ(pair.send(kA, kB, {std::byte{i}}), Status::kOk);
    pair.world.kill(kA);
    pair.run();
    const std::size_t arrived = pair.sinks[1].count(Kind::kMessage);
    for (std::size_t i = 0; i < arrived; ++i) EXPECT_EQ(pair.sinks[1].events[i].bytes[0], std::byte(i));
    EXPECT_EQ(pair.sinks[1].events.back().kind, Kind::kPeerDown);
    fewest = std::min(fewest, arrived);
    most = std::max(most, arrived);
  }
  EXPECT_LT(fewest, 5u);
  EXPECT_GT(most, 15u);
}

TEST(FakeNetwork, RefusalsFollowTheConfiguration) {
  FakeConfig config;
  config.registration_refused_probability = 0.5;
  config.again_probability = 0.5;
  config.pinned_budget_bytes = 1000;
  config.slots_per_pair = 10;
  Pair pair(config);
  std::vector<std::byte> memory(2000);
  MemoryRegion region;
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pair.world.at(kA).register_memory(memory.data(), 1001, Access::kWrite, region),
              Status::kNoMemory);
    if (pair.world.at(kA).register_memory(memory.data(), 1000, Access::kWrite, region) == Status::kOk) {
      EXPECT_EQ(pair.world.at(kA).register_memory(memory.data(), 1, Access::kWrite, region),
                Status::kNoMemory);
      pair.world.at(kA).deregister_memory(region);
    } else {
      ++refused;
    }
  }
  EXPECT_TRUE(refused > 20 && refused < 80) << refused;
  std::size_t sent = 0;
  for (int i = 0; i < 100; ++i) sent += pair.send(kA, kB, kHello) == Status::kOk;
  EXPECT_EQ(sent, 10u);
  pair.run();
  EXPECT_EQ(pair.sinks[1].events.size(), 10u);
}

TEST(FakeNetwork, PairsWithoutWriteOrConnectionStayThatWay) {
  FakeConfig config;
  config.pair_without_write_probability = 1;
  Pair pair(config);
  std::vector<std::byte> memory(8);
  MemoryRegion region;
  ASSERT_EQ(pair.world.at(kA).register_memory(memory.data(), 8, Access::kWrite, region), Status::kOk);
  EXPECT_EQ(pair.write(memory.data(), 8, region, {}), Status::kUnsupported);
  config.pair_without_connection_probability = 1;
  FakeWorld world(config, 2);
  const Result<Endpoint*> result = world.at(kA).connect(kB, world.at(kB).local_address());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().status, Status::kUnreachable);
}

TEST(FakeNetwork, InjectedBytesArriveInOrderWithRealOnes) {
  Pair pair(FakeConfig{});
  ASSERT_EQ(pair.send(kA, kB, {std::byte{1}}), Status::kOk);
  const std::byte forged[] = {std::byte{2}};
  pair.world.network().inject(kA, kB, forged);
  pair.world.network().inject_immediate(kA, kB, Immediate{77}, 5);
  ASSERT_EQ(pair.send(kA, kB, {std::byte{3}}), Status::kOk);
  pair.run();
  ASSERT_EQ(pair.sinks[1].events.size(), 4u);
  EXPECT_EQ(pair.sinks[1].events[1].bytes[0], std::byte{2});
  EXPECT_EQ(pair.sinks[1].events[2].immediate, Immediate{77});
  EXPECT_EQ(pair.sinks[1].events[2].length_bytes, 5u);
  EXPECT_EQ(pair.sinks[1].events[3].bytes[0], std::byte{3});
}

TEST(FakeNetwork, BreachesOfTheContractAreWrittenDown) {
  Pair pair(FakeConfig{}, 3);
  std::span<std::byte> slot;
  Endpoint& to_b = pair.endpoints.of(kA, kB);
  static_cast<void>(pair.world.at(kB).reserve(to_b, 8, slot));
  EXPECT_EQ(pair.violations().size(), 1u) << "another provider's endpoint";
  ASSERT_EQ(pair.world.at(kA).reserve(to_b, 8, slot), Status::kOk);
  pair.world.at(kA).commit(to_b, 9);
  EXPECT_EQ(pair.violations().size(), 2u) << "more than was reserved";
  pair.world.at(kA).commit(to_b, 8);
  pair.world.at(kA).commit(to_b, 8);
  EXPECT_EQ(pair.violations().size(), 3u) << "nothing is reserved";
  pair.sinks[1].reaction = [&](const auto&) { pair.world.at(kB).poll(pair.sinks[1], 1); };
  ASSERT_EQ(pair.send(kA, kB, kHello), Status::kOk);
  pair.run();
  EXPECT_EQ(pair.violations().size(), 5u);
}

}  // namespace
}  // namespace ch3_offload
