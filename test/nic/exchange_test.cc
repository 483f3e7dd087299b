// The exchange passes the contract of providers: within a node, and between nodes over the fake network.

#include "nic/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "nic/host_driver.h"
#include "rdma/fake_provider.h"
#include "rdma/provider_contract.h"

namespace ch3_offload {
namespace {

/// `nodes` exchanges, among which the processes are dealt.
class ExchangeWorld final : public ContractWorld {
 public:
  ExchangeWorld(std::size_t size, std::size_t nodes, const FakeConfig& config) : network_(config) {
    for (std::uint32_t i = 0; i < nodes && i < size; ++i) {
      Node& node = *nodes_.emplace_back(std::make_unique<Node>());
      if (nodes > 1) node.network = network_.make_provider(PeerId{i});
      node.exchange =
          std::make_unique<Exchange>(PeerId{i}, static_cast<std::uint32_t>(size), node.network.get());
    }
    for (std::uint32_t i = 0; i < size; ++i) ports_.push_back(node_of(i).exchange->attach(PeerId{i}));
  }
  ~ExchangeWorld() override {
    ports_.clear();
    EXPECT_EQ(network_.violations(), std::vector<std::string>{});
  }
  std::size_t size() const override { return ports_.size(); }
  Provider& at(PeerId peer) override { return *ports_[index_of(peer)]; }
  Registrar& registrar(PeerId peer) override {
    if (nodes_.size() == 1) return ports_[index_of(peer)]->node_memory();
    return *ports_[index_of(peer)];
  }
  bool alive(PeerId peer) const override { return ports_[index_of(peer)] != nullptr; }
  void step() override {
    network_.advance();
    for (const auto& node : nodes_) node->exchange->poll();
  }
  void settle() override {
    for (int i = 0; i < 2000; ++i) step();
  }
  void kill(PeerId peer) override { ports_[index_of(peer)].reset(); }

 private:
  struct Node {
    std::unique_ptr<Provider> network;
    std::unique_ptr<Exchange> exchange;
  };
  Node& node_of(std::uint32_t rank) { return *nodes_[rank % nodes_.size()]; }

  FakeNetwork network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<ExchangePort>> ports_;
};

std::unique_ptr<ContractWorld> make_one_node(std::size_t size) {
  return std::make_unique<ExchangeWorld>(size, 1, FakeConfig{});
}
FakeConfig network_config(bool has_writes) {
  FakeConfig config;
  config.slots_per_pair = 128;  // The suite sends 100 that nobody polls.
  config.write = has_writes;
  config.slow_probability = 0.05;
  return config;
}
std::unique_ptr<ContractWorld> make_node_each(std::size_t size) {
  return std::make_unique<ExchangeWorld>(size, size, network_config(true));
}
std::unique_ptr<ContractWorld> make_two_nodes(std::size_t size) {
  return std::make_unique<ExchangeWorld>(size, 2, network_config(false));
}

std::vector<ContractParam> configurations() {
  std::vector<ContractParam> all = {{.name = "OneNode", .make = &make_one_node},
                                    {.name = "NodeEach", .make = &make_node_each},
                                    {.name = "TwoNodes", .make = &make_two_nodes}};
  for (ContractParam& one : all) one.sleeps = one.has_secrets = false;
  all[0].serves_all = true;
  all[2].writes = false;  // What is registered for writes depends on the peer's node.
  all[2].refuses = true;
  return all;
}
INSTANTIATE_PROVIDER_CONTRACT(Exchange, configurations());

/// A connection with little room.
FakeConfig narrow() {
  FakeConfig config;
  config.slots_per_pair = 4;
  config.write = false;
  return config;
}

/// Processes 0 and 1 are on node 0, all others on node 1, whose connection has little room.
class ExchangeShares : public testing::Test {
 protected:
  static constexpr std::uint32_t kProcesses = 4;

  /// The classes of the two that send.
  explicit ExchangeShares(TrafficClass one = TrafficClass::kDefault,
                          TrafficClass other = TrafficClass::kDefault)
      : network_(narrow()) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      providers_[i] = network_.make_provider(PeerId{2 * i});
      nodes_[i] = std::make_unique<Exchange>(PeerId{2 * i}, kProcesses, providers_[i].get());
    }
    for (std::uint32_t i = 0; i < kProcesses; ++i)
      ports_[i] = nodes_[i / 2]->attach(PeerId{i}, i == 0 ? one : other);
    for (std::uint32_t i = 0; i < 2; ++i) {
      auto endpoint = ports_[i]->connect(PeerId{2 + i}, ports_[2 + i]->local_address());
      EXPECT_TRUE(endpoint.ok());
      endpoints_[i] = endpoint.value();
    }
  }
  ~ExchangeShares() override {
    for (auto& port : ports_) port.reset();
  }

  /// Sends until there is no room. Returns how many bytes went.
  std::size_t send_all(std::uint32_t from, std::size_t length_bytes, int most = 1 << 20) {
    std::size_t sent_bytes = 0;
    for (std::span<std::byte> slot; most > 0; --most, sent_bytes += length_bytes) {
      if (ports_[from]->reserve(*endpoints_[from], length_bytes, slot) != Status::kOk) break;
      std::memset(slot.data(), 1, length_bytes);
      ports_[from]->commit(*endpoints_[from], length_bytes);
    }
    return sent_bytes;
  }
  void turn() {
    network_.advance();
    for (auto& node : nodes_) node->poll();
    for (std::uint32_t i = 2; i < kProcesses; ++i) ports_[i]->poll(sink_, 64);
  }

  /// Both send all the time, the first one longer messages. Of all bytes that leave the node.
  double share_of_first() {
    const std::size_t longest = ports_[0]->max_slot_bytes(*endpoints_[0]);
    for (int i = 0; i < 200'000 && sink_.taken[0] + sink_.taken[1] < (64u << 20); ++i) {
      send_all(0, longest);
      send_all(1, 200);
      turn();
    }
    // Each message has its frame.
    const auto with_frames = [](std::size_t bytes, std::size_t message) {
      return static_cast<double>(bytes) * static_cast<double>(message + sizeof(ExchangeFrame)) /
             static_cast<double>(message);
    };
    const double one = with_frames(sink_.taken[0], longest), other = with_frames(sink_.taken[1], 200);
    EXPECT_GT(one + other, 8 << 20);
    return one / (one + other);
  }

  struct Taker final : Sink {
    Delivery on_message(PeerId from, std::span<const std::byte> bytes) noexcept override {
      taken[index_of(from)] += bytes.size();
      return Delivery::kTaken;
    }
    void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
    void on_write_done(PeerId, WorkId, Status) noexcept override {}
    void on_peer_down(PeerId, Status) noexcept override {}
    std::array<std::size_t, kProcesses> taken{};
  };

  FakeNetwork network_;
  std::array<std::unique_ptr<Provider>, 2> providers_;
  std::array<std::unique_ptr<Exchange>, 2> nodes_;
  std::array<std::unique_ptr<ExchangePort>, kProcesses> ports_;
  std::array<Endpoint*, 2> endpoints_{};
  Taker sink_;
};

/// The one that is always asked first does not take it all, nor the one with longer messages.
TEST_F(ExchangeShares, OfProcessesThatSendAllTheTimeAreEqualInBytes) {
  EXPECT_NEAR(share_of_first(), 0.5, 0.025);
}

/// Another thread fills the slot meanwhile. Nothing may happen to the connection whose slot it is.
TEST_F(ExchangeShares, TheNetworkWaitsForALateProcessThatFillsASlotOfIt) {
  std::span<std::byte> slot;
  ASSERT_EQ(ports_[0]->reserve(*endpoints_[0], 100, slot), Status::kOk);
  ports_[0]->be_late();
  EXPECT_TRUE(nodes_[0]->is_slot_late());
  EXPECT_EQ(send_all(1, 200, 1), 200u);
  for (int i = 0; i < 10; ++i) {
    network_.advance();
    EXPECT_EQ(nodes_[0]->poll(true), 0u);
    nodes_[1]->poll();
  }
  std::memset(slot.data(), 1, 100);
  ports_[0]->commit(*endpoints_[0], 100);
  EXPECT_FALSE(nodes_[0]->is_slot_late());
  for (int i = 0; i < 10; ++i) turn();
  EXPECT_EQ(sink_.taken[0], 100u);
  EXPECT_EQ(sink_.taken[1], 200u);
  // Its next messages take no slots of the network before they are whole.
  ASSERT_EQ(ports_[0]->reserve(*endpoints_[0], 100, slot), Status::kOk);
  ports_[0]->be_late();
  EXPECT_FALSE(nodes_[0]->is_slot_late());
  EXPECT_EQ(send_all(1, 200, 1), 200u);
  ports_[0]->commit(*endpoints_[0], 100);
  for (int i = 0; i < 10; ++i) turn();
  EXPECT_EQ(sink_.taken[0], 200u);
  EXPECT_EQ(sink_.taken[1], 400u);
}

/// What a process does not take waits at its node up to a limit, and then at the sender.
TEST_F(ExchangeShares, ASenderIsStoppedByTheReceiverThatTakesNothingAndByNoOther) {
  constexpr std::size_t kStopBytes = std::size_t{1} << 20;
  const std::size_t longest = ports_[0]->max_slot_bytes(*endpoints_[0]);
  const auto turn_without_2 = [&] {
    network_.advance();
    for (auto& node : nodes_) node->poll();
    ports_[3]->poll(sink_, 64);
  };
  std::size_t stopped_bytes = 0;
  for (int quiet = 0; quiet < 100; ++quiet) {
    const std::size_t sent_bytes = send_all(0, longest);
    if (sent_bytes > 0) quiet = 0;
    stopped_bytes += sent_bytes;
    ASSERT_LT(stopped_bytes, 2 * kStopBytes);
    turn_without_2();
  }
  EXPECT_GE(stopped_bytes, kStopBytes);
  EXPECT_LE(stopped_bytes, kStopBytes + 16 * longest) << "what was on its way when kStop was sent";
  // Its neighbour takes what the other process sends.
  std::size_t other_bytes = 0;
  for (int i = 0; i < 1000; ++i) {
    other_bytes += send_all(1, 200);
    turn_without_2();
  }
  EXPECT_GT(other_bytes, 1000 * 200U);
  for (int i = 0; i < 10; ++i) turn_without_2();
  EXPECT_EQ(sink_.taken[1], other_bytes);
  EXPECT_EQ(send_all(0, longest), 0U);
  // It takes again: nothing was lost, and the sender goes on.
  for (int i = 0; i < 1000 && sink_.taken[0] < 4 * kStopBytes; ++i) {
    stopped_bytes += send_all(0, longest);
    turn();
  }
  for (int i = 0; i < 10; ++i) turn();
  EXPECT_GE(stopped_bytes, 4 * kStopBytes);
  EXPECT_EQ(sink_.taken[0], stopped_bytes);
}

/// A process of class latency, and one of class bulk.
class ExchangeSharesOfClasses : public ExchangeShares {
 protected:
  ExchangeSharesOfClasses() : ExchangeShares(TrafficClass::kBulk, TrafficClass::kLatency) {}
};

TEST_F(ExchangeSharesOfClasses, AreTheirWeights) { EXPECT_NEAR(share_of_first(), 0.2, 0.01); }

/// While one sends all it can, eight bytes of the other leave within a round.
TEST_F(ExchangeShares, AnotherIsNotHeldUpForMoreThanARound) {
  const std::size_t longest = ports_[0]->max_slot_bytes(*endpoints_[0]);
  std::size_t worst_bytes = 0;
  for (int i = 0; i < 200; ++i) {
    for (int turns = 0; turns < 50 + i % 7; ++turns) {
      send_all(0, longest);
      turn();
    }
    std::size_t before_bytes = send_all(0, longest);
    while (send_all(1, 8, 1) == 0) {
      turn();
      before_bytes += send_all(0, longest);
    }
    worst_bytes = std::max(worst_bytes, before_bytes);
  }
  EXPECT_LE(worst_bytes, static_cast<std::size_t>(Exchange::quantum_bytes(TrafficClass::kDefault)) + longest);
}

/// Engines: process 0 is on node 0, 1 and 2 are on node 1, whose connection has little room.
class ExchangeEngines : public testing::Test {
 protected:
  static constexpr std::uint32_t kProcesses = 3;
  static constexpr std::size_t kLength = 1000;

  ExchangeEngines() : network_(narrow()) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      providers_[i] = network_.make_provider(PeerId{i});
      nodes_[i] = std::make_unique<Exchange>(PeerId{i}, kProcesses, providers_[i].get());
    }
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      ports_[i] = nodes_[std::min(i, 1U)]->attach(PeerId{i});
      EngineConfig config;
      config.self = PeerId{i};
      config.senders = kProcesses;
      Provider* const provider = ports_[i].get();
      engines_[i] = std::make_unique<HostDriver>(config, std::span(&provider, 1));
    }
  }
  ~ExchangeEngines() override {
    for (auto& engine : engines_) engine.reset();
    for (auto& port : ports_) port.reset();
  }

  void send(std::uint32_t to) {
    OperationId operation;
    Status status;
    static_cast<void>(engines_[0]->send(PeerId{to}, SendMode::kStandard, kKey,
                                        {bytes_.data(), kLength, nullptr}, 0, nullptr, operation, status));
    ASSERT_EQ(status, Status::kOk);
  }
  void receive(std::uint32_t at) {
    OperationId operation;
    Envelope envelope;
    ASSERT_EQ(engines_[at]->post_receive(kKey, kIgnoreNothing, {room_.data(), kLength, nullptr}, nullptr,
                                         operation, envelope),
              Progressed::kPending);
  }
  void step() {
    network_.advance();
    for (auto& node : nodes_) node->poll();
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      take_events(i);
      engines_[i]->progress();
      take_events(i);
    }
  }
  void take_events(std::uint32_t i) {
    for (Event event; engines_[i]->next_event(event);) {
      received_[i] += event.kind == Event::Kind::kReceiveDone;
      if (event.kind == Event::Kind::kCardWanted)
        engines_[i]->introduce(event.peer, engines_[index_of(event.peer)]->card());
    }
  }

  static constexpr MatchKey kKey = make_match_key(1, 0, 0);
  std::array<std::byte, kLength> bytes_{}, room_{};
  FakeNetwork network_;
  std::array<std::unique_ptr<Provider>, 2> providers_;
  std::array<std::unique_ptr<Exchange>, 2> nodes_;
  std::array<std::unique_ptr<ExchangePort>, kProcesses> ports_;
  std::array<std::unique_ptr<HostDriver>, kProcesses> engines_;
  std::array<int, kProcesses> received_{};
};

/// Both streams of a process share its part of the connection.
TEST_F(ExchangeEngines, AStreamToOneProcessDoesNotHoldUpAMessageToItsNeighbour) {
  for (std::uint32_t to : {1U, 2U}) {
    receive(to);
    send(to);
  }
  for (int i = 0; i < 1000 && received_[1] + received_[2] < 2; ++i) step();
  ASSERT_EQ(received_[2], 1);
  constexpr int kMany = 1000;
  for (int i = 0; i < kMany; ++i) receive(1);
  for (int i = 0; i < kMany; ++i) send(1);
  receive(2);
  for (int i = 0; i < 10; ++i) step();
  const int before = received_[1];
  send(2);
  for (int i = 0; i < 10'000 && received_[2] < 2; ++i) step();
  EXPECT_EQ(received_[2], 2);
  EXPECT_LT(received_[1] - before, 20);
  for (int i = 0; i < 10'000 && received_[1] < 1 + kMany; ++i) step();
  EXPECT_EQ(received_[1], 1 + kMany);
}

/// Two processes of a node, and memory of the second that the first writes to.
class ExchangeWrites : public testing::Test {
 protected:
  struct News final : Sink {
    Delivery on_message(PeerId, std::span<const std::byte>) noexcept override { return Delivery::kTaken; }
    void on_write_arrived(PeerId, Immediate, std::size_t length_bytes) noexcept override {
      arrived_bytes += length_bytes;
    }
    void on_write_done(PeerId, WorkId, Status status) noexcept override { done.push_back(status); }
    void on_peer_down(PeerId, Status) noexcept override { ++down; }
    std::size_t arrived_bytes = 0;
    std::vector<Status> done;
    int down = 0;
  };

  ExchangeWrites() : exchange_(PeerId{0}, 2, nullptr) {
    for (std::uint32_t i = 0; i < 2; ++i) ports_[i] = exchange_.attach(PeerId{i});
    for (std::uint32_t i = 0; i < 2; ++i)
      endpoints_[i] = ports_[i]->connect(PeerId{1 - i}, ports_[1 - i]->local_address()).value();
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 7);
    EXPECT_EQ(ports_[1]->node_memory().register_memory(room_.data(), room_.size(), Access::kWrite, region_),
              Status::kOk);
  }
  RemoteMemory destination(std::size_t offset_bytes = 0) const {
    return {reinterpret_cast<std::uint64_t>(room_.data()) + offset_bytes, region_.remote_key};
  }
  Status write(std::size_t length_bytes, RemoteMemory to) {
    return ports_[0]->write(*endpoints_[0], source_.data(), length_bytes, {}, to, Immediate{1}, WorkId{1});
  }
  void poll() {
    for (std::size_t i = 0; i < 2; ++i)
      if (ports_[i] != nullptr) ports_[i]->poll(news_[i], 64);
  }
  bool is_untouched() const {
    return std::ranges::all_of(room_, [](std::byte byte) { return byte == std::byte{}; });
  }

  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  Exchange exchange_;
  std::array<std::unique_ptr<ExchangePort>, 2> ports_;
  std::array<Endpoint*, 2> endpoints_{};
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes), room_ = std::vector<std::byte>(kBytes);
  MemoryRegion region_;
  std::array<News, 2> news_;
};

/// Whoever else is served in the same turn waits for no more than the process's share.
TEST_F(ExchangeWrites, ALongWriteMovesInPiecesOfTheClassesShare) {
  ASSERT_EQ(write(kBytes, destination()), Status::kOk);
  std::size_t turns = 0;
  for (; news_[0].done.empty() && turns < 1000; ++turns) poll();
  EXPECT_EQ(turns, kBytes / Exchange::quantum_bytes(TrafficClass::kDefault));
  EXPECT_EQ(news_[1].arrived_bytes, kBytes);
  EXPECT_EQ(room_, source_);
}

TEST_F(ExchangeWrites, AShortWriteDoesNotWaitForALongOne) {
  ASSERT_EQ(write(kBytes, destination()), Status::kOk);
  ASSERT_EQ(write(8, destination()), Status::kOk);
  poll();
  poll();
  EXPECT_EQ(news_[0].done.size(), 1u);
  EXPECT_LT(news_[1].arrived_bytes, kBytes);
}

TEST_F(ExchangeWrites, NothingIsWrittenOutsideOfRegisteredMemory) {
  ASSERT_EQ(write(kBytes, destination(1)), Status::kOk);
  ASSERT_EQ(write(8, destination(kBytes - 7)), Status::kOk);
  ASSERT_EQ(write(8, {destination().address - 1, region_.remote_key}), Status::kOk);
  ASSERT_EQ(write(8, {destination().address, RemoteKey{}}), Status::kOk);
  ASSERT_EQ(write(8, {destination().address, RemoteKey{static_cast<std::uint64_t>(region_.remote_key) + 1}}),
            Status::kOk);
  poll();
  EXPECT_EQ(news_[0].done, std::vector<Status>(5, Status::kPeerFailed));
  EXPECT_EQ(news_[1].arrived_bytes, 0u);
  EXPECT_TRUE(is_untouched());
}

TEST_F(ExchangeWrites, AKeyIsWorthNothingOnceItsMemoryIsDeregistered) {
  const RemoteMemory stale = destination();
  ports_[1]->node_memory().deregister_memory(region_);
  ASSERT_EQ(ports_[1]->node_memory().register_memory(room_.data(), room_.size(), Access::kWrite, region_),
            Status::kOk);
  ASSERT_EQ(write(8, stale), Status::kOk);
  poll();
  EXPECT_EQ(news_[0].done, std::vector<Status>{Status::kPeerFailed});
  EXPECT_TRUE(is_untouched());
}

/// In the middle of a long write.
TEST_F(ExchangeWrites, AProcessThatHasGoneIsWrittenToNoMore) {
  ASSERT_EQ(write(kBytes, destination()), Status::kOk);
  poll();
  ports_[1].reset();
  room_ = std::vector<std::byte>(kBytes);
  for (int i = 0; i < 4; ++i) poll();
  EXPECT_EQ(news_[0].done, std::vector<Status>{Status::kPeerFailed});
  EXPECT_EQ(news_[0].down, 1);
  EXPECT_TRUE(is_untouched());
}

TEST_F(ExchangeWrites, AProcessThatWillHaveNoMoreIsWrittenToNoMore) {
  ASSERT_EQ(write(kBytes, destination()), Status::kOk);
  ASSERT_TRUE(ports_[1]->end(PeerId{0}));
  for (int i = 0; i < 4; ++i) poll();
  EXPECT_EQ(news_[0].done, std::vector<Status>{Status::kPeerFailed});
  EXPECT_EQ(news_[1].down, 1);
  EXPECT_TRUE(is_untouched());
}

TEST_F(ExchangeWrites, AProcessWhoseMemoryIsBrokenWritesNothing) {
  ASSERT_EQ(write(8, destination()), Status::kOk);
  ports_[0]->silence();
  poll();
  EXPECT_TRUE(news_[0].done.empty());
  EXPECT_TRUE(is_untouched());
}

TEST_F(ExchangeWrites, MoreThanFitWaitForRoom) {
  Status status = Status::kOk;
  std::size_t given = 0;
  for (; given < 1000; ++given)
    if ((status = write(8, destination(8 * given))) != Status::kOk) break;
  EXPECT_EQ(status, Status::kAgain);
  EXPECT_FALSE(ports_[0]->arm());
  poll();
  EXPECT_EQ(news_[0].done.size(), given);
  EXPECT_EQ(write(8, destination()), Status::kOk);
}

/// Process 0 is on node 0, 1 and 2 are on node 1, 3 is on node 2. 0 writes to memory of 2.
class ExchangeNetworkWrites : public testing::Test {
 protected:
  static constexpr std::uint32_t kProcesses = 4;
  static constexpr std::size_t kBytes = 1'300'000;  // Three parts.
  static constexpr std::uint32_t node_of(std::uint32_t rank) { return rank == 0 ? 0 : rank == 3 ? 2 : 1; }

  struct News final : Sink {
    Delivery on_message(PeerId, std::span<const std::byte>) noexcept override { return Delivery::kTaken; }
    void on_write_arrived(PeerId from, Immediate, std::size_t length_bytes) noexcept override {
      arrived_from = from;
      arrived_bytes += length_bytes;
    }
    std::optional<PeerId> writer_of(Immediate) const noexcept override { return granted_to; }
    void on_write_done(PeerId to, WorkId work, Status status) noexcept override {
      EXPECT_EQ(to, PeerId{2});
      EXPECT_EQ(work, WorkId{77});
      done.push_back(status);
    }
    void on_peer_down(PeerId peer, Status) noexcept override { down.push_back(peer); }
    std::optional<PeerId> granted_to;
    PeerId arrived_from{};
    std::size_t arrived_bytes = 0;
    std::vector<Status> done;
    std::vector<PeerId> down;
  };

  ExchangeNetworkWrites() {
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      providers_[i] = network_.make_provider(PeerId{i});
      nodes_[i] = std::make_unique<Exchange>(PeerId{i}, kProcesses, providers_[i].get());
    }
    for (std::uint32_t i = 0; i < kProcesses; ++i) ports_[i] = nodes_[node_of(i)]->attach(PeerId{i});
    to_2_ = ports_[0]->connect(PeerId{2}, ports_[2]->local_address()).value();
    for (std::size_t i = 0; i < kBytes; ++i) source_[i] = static_cast<std::byte>(i * 7);
    EXPECT_EQ(ports_[0]->register_memory(source_.data(), kBytes, Access::kRead, from_), Status::kOk);
    EXPECT_EQ(ports_[2]->register_memory(room_.data(), kBytes, Access::kWrite, region_), Status::kOk);
    immediate_ = Immediate{ports_[2]->landing_numbers().base + 5};
    news_[2].granted_to = PeerId{0};
    turns();  // They have met.
  }
  ~ExchangeNetworkWrites() override {
    for (auto& port : ports_) port.reset();
    EXPECT_EQ(network_.violations(), std::vector<std::string>{});
  }
  Status write() {
    return ports_[0]->write(*to_2_, source_.data(), kBytes, from_,
                            {reinterpret_cast<std::uint64_t>(room_.data()), region_.remote_key}, immediate_,
                            WorkId{77});
  }
  void turn() {
    network_.advance();
    for (auto& node : nodes_) {
      if (node != nullptr) node->poll();
    }
    for (std::uint32_t i = 0; i < kProcesses; ++i)
      if (ports_[i] != nullptr) ports_[i]->poll(news_[i], 64);
  }
  void turns(int count = 2000) {
    for (int i = 0; i < count; ++i) turn();
  }

  /// Lets time pass. When 0 hears that 2 is down, its write is over. When 2 hears that 0 is down, nothing is
  /// written any more.
  void expect_down() {
    std::vector<std::byte> room_then;
    for (int i = 0; i < 2000; ++i) {
      turn();
      if (!news_[0].down.empty()) ASSERT_EQ(news_[0].done.size(), 1u);
      if (!news_[2].down.empty() && room_then.empty()) room_then = room_;
    }
    EXPECT_EQ(news_[2].down, std::vector<PeerId>{PeerId{0}});
    EXPECT_EQ(room_then, room_);
    EXPECT_NE(room_.front(), room_[1]) << "the first part was under way";
  }

  FakeNetwork network_{FakeConfig{}};
  std::array<std::unique_ptr<Provider>, 3> providers_;
  std::array<std::unique_ptr<Exchange>, 3> nodes_;
  std::array<std::unique_ptr<ExchangePort>, kProcesses> ports_;
  Endpoint* to_2_ = nullptr;
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes), room_ = std::vector<std::byte>(kBytes);
  MemoryRegion from_, region_;
  Immediate immediate_{};
  std::array<News, kProcesses> news_;
};

TEST_F(ExchangeNetworkWrites, ArriveAtThePortThatTheImmediateNames) {
  ASSERT_EQ(write(), Status::kOk);
  turns();
  EXPECT_EQ(news_[0].done, std::vector<Status>{Status::kOk});
  EXPECT_EQ(news_[2].arrived_bytes, kBytes);
  EXPECT_EQ(news_[2].arrived_from, PeerId{0});
  EXPECT_EQ(room_, source_);
  EXPECT_EQ(news_[1].arrived_bytes, 0u);
}

/// The numbers of ports are no secret: what another node was not granted ends the connection with it alone.
TEST_F(ExchangeNetworkWrites, OfANodeToWhichTheyWereNotGrantedEndItsConnection) {
  news_[2].granted_to = PeerId{3};
  ASSERT_TRUE(ports_[2]->connect(PeerId{3}, ports_[3]->local_address()).ok());
  turns();
  ASSERT_EQ(write(), Status::kOk);
  turns();
  EXPECT_EQ(news_[2].arrived_bytes, 0u);
  EXPECT_EQ(news_[2].down, std::vector<PeerId>{PeerId{0}});
  EXPECT_EQ(news_[0].down, std::vector<PeerId>{PeerId{2}});
  EXPECT_TRUE(news_[3].down.empty());
}

/// Whoever hears that the other one is down reuses the memory.
TEST_F(ExchangeNetworkWrites, AreOverBeforeTheWriterEndsTheConnection) {
  ASSERT_EQ(write(), Status::kOk);
  ASSERT_TRUE(ports_[0]->end(PeerId{2}));
  EXPECT_EQ(write(), Status::kPeerFailed);
  expect_down();
  EXPECT_EQ(news_[0].down, std::vector<PeerId>{PeerId{2}});
}

TEST_F(ExchangeNetworkWrites, AreOverBeforeTheOtherOneHearsThatItHasEndedIt) {
  ASSERT_EQ(write(), Status::kOk);
  ASSERT_TRUE(ports_[2]->end(PeerId{0}));
  expect_down();
  EXPECT_EQ(news_[0].down, std::vector<PeerId>{PeerId{2}});
}

TEST_F(ExchangeNetworkWrites, OfAProcessThatDiesAreOverBeforeTheOtherOneHearsOfIt) {
  ASSERT_EQ(write(), Status::kOk);
  ports_[0] = nullptr;
  expect_down();
  EXPECT_TRUE(nodes_[0]->at_rest());
}

/// The memory of a client that has died: how it is kept.
class Kept {
 public:
  Kept(FakeProvider& provider, std::vector<std::byte>& bytes)
      : memory_(bytes.data(), [this, &provider, &bytes](const void*) {
          regions_at_end_ = provider.regions();
          provider.memory_gone(bytes.data(), bytes.size());  // From now on its use is a violation.
        }) {}
  std::shared_ptr<const void> give() { return std::move(memory_); }
  /// How many regions were registered when it was unmapped. Nothing: it is mapped.
  std::optional<std::size_t> regions_at_end() const { return regions_at_end_; }

 private:
  std::optional<std::size_t> regions_at_end_;
  std::shared_ptr<const void> memory_;
};

TEST_F(ExchangeNetworkWrites, ToAProcessThatHasDiedLandUntilItsPeerHasHeardOfIt) {
  Kept room(*static_cast<FakeProvider*>(providers_[1].get()), room_);
  ASSERT_EQ(write(), Status::kOk);
  ports_[2]->keep(room.give());
  ports_[2] = nullptr;
  while (news_[0].down.empty()) {
    EXPECT_EQ(room.regions_at_end(), std::nullopt);
    turn();
  }
  turns();
  EXPECT_EQ(room.regions_at_end(), 0u);
  EXPECT_TRUE(news_[1].down.empty());
}

/// Its turn is not over: it is destroyed later.
TEST_F(ExchangeNetworkWrites, ToAProcessThatHasDiedInTheMidstOfItsTurnLandLikewise) {
  Kept room(*static_cast<FakeProvider*>(providers_[1].get()), room_);
  ASSERT_EQ(write(), Status::kOk);
  ports_[2]->say_ended();
  while (news_[0].down.empty()) turn();
  turns();
  ports_[2]->keep(room.give());
  ports_[2] = nullptr;
  EXPECT_EQ(room.regions_at_end(), 0u);
}

TEST_F(ExchangeNetworkWrites, OfAProcessThatDiesReadItsMemoryUntilTheyAreOver) {
  Kept source(*static_cast<FakeProvider*>(providers_[0].get()), source_);
  ASSERT_EQ(write(), Status::kOk);
  ports_[0]->keep(source.give());
  ports_[0] = nullptr;
  EXPECT_EQ(source.regions_at_end(), std::nullopt);
  turns();
  EXPECT_EQ(source.regions_at_end(), 0u);
}

TEST_F(ExchangeNetworkWrites, OfANodeThatIsDownNeedNoMemoryOfAProcessThatHasDied) {
  Kept room(*static_cast<FakeProvider*>(providers_[1].get()), room_);
  ASSERT_EQ(write(), Status::kOk);
  ports_[2]->keep(room.give());
  ports_[2] = nullptr;
  ports_[0] = nullptr;
  nodes_[0] = nullptr;
  providers_[0] = nullptr;
  turns();
  EXPECT_EQ(room.regions_at_end(), 0u);
}

TEST_F(ExchangeNetworkWrites, ToAProcessThatHasDiedEnd) {
  ASSERT_EQ(write(), Status::kOk);
  ports_[2] = nullptr;
  turns();
  EXPECT_EQ(news_[0].done.size(), 1u);
  EXPECT_EQ(news_[0].down, std::vector<PeerId>{PeerId{2}});
  EXPECT_EQ(write(), Status::kPeerFailed);
}

}  // namespace
}  // namespace ch3_offload
