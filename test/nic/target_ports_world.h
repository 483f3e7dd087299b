// Two or more processes with a port of the second client each, in one address space. Every driver is one
// world:
//
//   host     HostTargets over the fake network
//   stepped  RingTargets and TargetServer over the fake network, in turns of the test's thread
//   other    the same, and the processor sees the client's memory as that of another process
//   thread   ThreadDriver over shared memory

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/targets/recording_listener.h"
#include "nic/fake_process_book.h"
#include "nic/host_targets.h"
#include "nic/other_memory.h"
#include "nic/ring_targets.h"
#include "nic/short_wait.h"
#include "nic/target_driver.h"
#include "nic/target_server.h"
#include "nic/thread_driver.h"
#include "rdma/fake_provider.h"
#include "rdma/shm/shm_world.h"

namespace ch3_offload {

inline ProcessId process_of(std::uint32_t i) { return make_physical_id(0x7F000001, 100 + i); }
/// In an interface with ranks, they are in the reverse order.
inline std::uint32_t rank_of(std::uint32_t i, std::uint32_t size) { return size - 1 - i; }

/// A process with its port. The test calls the port's functions, and step().
class TargetSide {
 public:
  virtual ~TargetSide() = default;
  virtual TargetPort& port() = 0;
  /// Lets the processor work. Returns whether something happened.
  virtual bool step() = 0;
};

/// What all sides over the fake network have.
class FakeSide : public TargetSide {
 public:
  FakeSide(Provider& provider, const EngineConfig& config) {
    Provider* const providers[] = {&provider};
    driver = std::make_unique<HostDriver>(config, providers);
  }
  std::unique_ptr<HostDriver> driver;
  std::unique_ptr<FakeProcessBook> book;
  std::unique_ptr<HostTargets> targets;
  virtual void meet(std::uint32_t self, const std::vector<FakeProcessBook::Member>& members) {
    meet(self, members, nullptr);
  }
  TargetPort& port() override { return *targets; }
  bool step() override {
    for (Event event; driver->next_event(event);) {
    }
    return targets->progress() > 0;
  }

 protected:
  void meet(std::uint32_t self, const std::vector<FakeProcessBook::Member>& members, ClientMemory* client) {
    book = std::make_unique<FakeProcessBook>(self, members);
    targets = std::make_unique<HostTargets>(*driver, *book, client);
  }
};

class SteppedSide final : public FakeSide {
 public:
  /// `other`: the memory of its client in another process. Null: it is in this one.
  SteppedSide(Provider& provider, const EngineConfig& config, OtherMemory* other = nullptr)
      : FakeSide(provider, config), other_(other) {}
  ~SteppedSide() override {
    if (targets != nullptr) targets->close_all();
  }
  struct Client final : RingTargets {
    Client(PortMemory& memory, SteppedSide& its_side)
        : RingTargets(memory, short_wait(),
                      its_side.other_ == nullptr ? ShortSource::kRead : ShortSource::kGiven),
          side(its_side) {}
    std::shared_ptr<ToldMemory> told_memory() noexcept override {
      if (side.other_ == nullptr) return RingTargets::told_memory();
      return side.other_->told();
    }
    void rest_in(ProcessorWait&) noexcept override {
      side.server->turn();
      if (!side.server->is_refused()) return;
      std::fputs("the processor refuses its client, which waits for it\n", stderr);
      std::abort();
    }
    SteppedSide& side;
  };
  void meet(std::uint32_t self, const std::vector<FakeProcessBook::Member>& members) override {
    FakeSide::meet(self, members, other_ == nullptr ? nullptr : &other_->client());
    server = std::make_unique<TargetServer>(*targets, memory);
    client = std::make_unique<Client>(memory, *this);
  }
  TargetPort& port() override { return *client; }
  bool step() override {
    std::size_t happened = server->turn();
    for (Event event; driver->next_event(event);) {
    }
    happened += driver->progress();
    return happened + server->turn() + client->progress() > 0;
  }
  PortMemory memory = std::move(PortMemory::make().value());
  std::unique_ptr<TargetServer> server;
  std::unique_ptr<Client> client;

 private:
  OtherMemory* const other_;
};

class ThreadSide final : public TargetSide {
 public:
  ThreadSide(Provider& provider, const EngineConfig& config) {
    Provider* const providers[] = {&provider};
    Result<std::shared_ptr<NicThread>> thread = NicThread::start(short_wait());
    EXPECT_TRUE(thread.ok());
    auto made = ThreadDriver::create(config, providers, thread.value(), short_wait());
    EXPECT_TRUE(made.ok());
    driver = std::move(made.value());
    EXPECT_FALSE(driver->start().has_value());
  }
  ~ThreadSide() override {
    driver->detach_targets();
    driver->stop();
  }
  void meet(std::uint32_t self, const std::vector<FakeProcessBook::Member>& members) {
    self_ = self;
    members_ = members;
    attach();
  }
  /// With a new book.
  void attach() {
    book = std::make_unique<FakeProcessBook>(self_, members_);
    attach(*book);
  }
  void attach(ProcessBook& its_book) {
    auto attached = driver->attach_targets(its_book);
    ASSERT_TRUE(attached.ok());
    its_port = attached.value();
  }
  void detach() {
    its_port = nullptr;
    driver->detach_targets();
  }
  TargetPort& port() override { return *its_port; }
  bool step() override {
    const bool moved = its_port != nullptr && its_port->progress() > 0;
    std::this_thread::yield();
    return moved;
  }
  std::unique_ptr<ThreadDriver> driver;
  std::unique_ptr<FakeProcessBook> book;
  TargetPort* its_port = nullptr;

 private:
  std::uint32_t self_ = 0;
  std::vector<FakeProcessBook::Member> members_;
};

/// A process of the world: its port, and an open interface with a queue, a counting event and a table.
struct TargetClient {
  std::unique_ptr<TargetSide> side;
  TargetBoardMemory board;
  std::unique_ptr<TargetEventMemory> begun, came;
  QueueId begun_queue{}, came_queue{};
  CounterId begun_counter{}, came_counter{};
  TargetPort& port() { return side->port(); }
};

class TargetPortsWorld : public testing::Test {
 protected:
  static constexpr std::uint16_t kTable = 2;

  explicit TargetPortsWorld(TargetDriver driver) : driver_(driver) {
    network_config.least_delay_ns = network_config.most_delay_ns = 1000;
  }
  ~TargetPortsWorld() override {
    for (TargetClient& one : clients) one.side.reset();  // Before the memory that they are told in.
    for (const auto& other : others) EXPECT_FALSE(other->client().is_broken()) << other->client().reason();
    if (network == nullptr) return;
    EXPECT_EQ(network->violations(), std::vector<std::string>{});
  }

  void make(std::uint32_t size = 2) {
    EngineConfig config;
    config.senders = size;
    config.first_book_peer = PeerId{0};
    std::vector<FakeProcessBook::Member> members;
    if (driver_ == TargetDriver::kThread)
      shm = std::make_unique<ShmWorld>(size, ShmConfig{});
    else
      network = std::make_unique<FakeNetwork>(network_config);
    for (std::uint32_t i = 0; i < size; ++i) {
      config.self = PeerId{i};
      clients.emplace_back();
      std::string card;
      if (driver_ == TargetDriver::kThread) {
        auto made = std::make_unique<ThreadSide>(shm->at(PeerId{i}), config);
        card = made->driver->card();
        clients.back().side = std::move(made);
      } else {
        providers.push_back(network->make_provider(PeerId{i}));
        std::unique_ptr<FakeSide> made;
        if (driver_ == TargetDriver::kHost)
          made = std::make_unique<FakeSide>(*providers.back(), config);
        else if (driver_ == TargetDriver::kStepped)
          made = std::make_unique<SteppedSide>(*providers.back(), config);
        else
          made = make_other(i, size, config);
        card = made->driver->card();
        clients.back().side = std::move(made);
      }
      members.push_back({process_of(i), UserId{1000}, card});
    }
    for (std::uint32_t i = 0; i < size; ++i) {
      if (driver_ == TargetDriver::kThread)
        static_cast<ThreadSide&>(*clients[i].side).meet(i, members);
      else
        static_cast<FakeSide&>(*clients[i].side).meet(i, members);
      open(i);
    }
  }
  std::unique_ptr<FakeSide> make_other(std::uint32_t i, std::uint32_t size, const EngineConfig& config) {
    others.push_back(std::make_unique<OtherMemory>(i, size));
    return std::make_unique<SteppedSide>(*providers.back(), config, others.back().get());
  }
  /// Interface 0, and what is in it.
  void open(std::uint32_t i) {
    TargetClient& one = clients[i];
    one.board = make_board(one.port().told_memory());
    one.begun = TargetEventMemory::make(one.port().told_memory(), 1000, 64);
    one.came = TargetEventMemory::make(one.port().told_memory(), 1000, 64);
    ASSERT_EQ(one.port().open(0, interface_config, *one.board), Status::kOk);
    one.begun_queue = one.port().make_queue(0, one.begun->ring);
    one.came_queue = one.port().make_queue(0, one.came->ring);
    one.begun_counter = one.port().make_counter(0);
    one.came_counter = one.port().make_counter(0);
    ASSERT_EQ(one.port().make_table(0, kTable, one.came_queue, false), Status::kOk);
  }
  TargetPort& port(std::uint32_t i) { return clients[i].port(); }

  bool step() {
    bool moved = network != nullptr && network->advance();
    for (TargetClient& one : clients)
      if (one.side != nullptr) moved |= one.side->step();
    return moved;
  }
  /// Lets time pass until that is so. Returns whether it is.
  bool until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < end) step();
    return condition();
  }

  static std::vector<std::byte> pattern(std::size_t length_bytes, std::uint64_t seed = 1) {
    std::vector<std::byte> bytes(length_bytes);
    for (std::size_t i = 0; i < length_bytes; ++i)
      bytes[i] = static_cast<std::byte>(((i + seed) * 2654435761U + seed * 97) >> 11);
    return bytes;
  }
  TargetDescription entry_of(std::uint32_t i, std::vector<std::byte>& memory, std::uint32_t options = 0) {
    TargetDescription entry;
    entry.start = memory.data();
    entry.length_bytes = memory.size();
    entry.options = kAllowPut | kAllowGet | kNoLinkEvent | options;
    entry.counter = clients[i].came_counter;
    return entry;
  }
  TargetId append(std::uint32_t i, const TargetDescription& entry) {
    TargetId id{};
    EXPECT_EQ(port(i).append(0, kTable, TargetListKind::kPriority, entry, id), Status::kOk);
    return id;
  }
  TargetOrigin origin_of(std::uint32_t i, std::vector<std::byte>& memory, std::uint32_t options = 0) {
    return {
        {memory.data(), memory.size(), nullptr}, options, clients[i].begun_queue, clients[i].begun_counter};
  }
  TargetRequest put_from(std::uint32_t i, std::vector<std::byte>& memory, std::uint32_t options = 0) {
    TargetRequest request;
    request.table = kTable;
    request.acknowledgement = TargetAcknowledgement::kFull;
    request.source = origin_of(i, memory, options);
    return request;
  }
  TargetRequest get_from(std::uint32_t i, std::vector<std::byte>& memory, std::uint32_t options = 0) {
    TargetRequest request;
    request.operation = TargetOperation::kGet;
    request.table = kTable;
    request.destination = origin_of(i, memory, options);
    return request;
  }
  TargetRequest sum_from(std::uint32_t i, std::vector<std::byte>& operand, std::vector<std::byte>& old) {
    TargetRequest request = put_from(i, operand);
    request.operation = TargetOperation::kFetchAtomic;
    request.atomic_operation = AtomicOperation::kSum;
    request.atomic_type = AtomicType::kUint64;
    request.destination = origin_of(i, old);
    return request;
  }

  static std::string take(TargetEventMemory& memory, std::vector<TargetEvent>* events = nullptr) {
    std::string text;
    TargetEvent event;
    bool lost = false;
    while (TargetEventReader(memory.ring).take(event, lost)) {
      EXPECT_FALSE(lost);
      if (events != nullptr) events->push_back(event);
      text += (text.empty() ? "" : ", ") + std::string(name_of(event.kind)) + name_of(event.failure) + " " +
              std::to_string(event.length_bytes);
    }
    return text;
  }
  /// What has come of requests, and what came for entries.
  std::string begun(std::uint32_t i) { return begun_[i] += (take_begun(i)); }
  std::string take_begun(std::uint32_t i) {
    const std::string text = take(*clients[i].begun);
    return text.empty() || begun_[i].empty() ? text : ", " + text;
  }
  std::string came(std::uint32_t i) {
    const std::string text = take(*clients[i].came, &came_events);
    return came_[i] += text.empty() || came_[i].empty() ? text : ", " + text;
  }
  void expect_begun(std::uint32_t i, const std::string& words) {
    EXPECT_TRUE(until([&] { return begun(i) == words; })) << begun(i);
    begun_[i].clear();
  }
  void expect_came(std::uint32_t i, const std::string& words) {
    EXPECT_TRUE(until([&] { return came(i) == words; })) << came(i);
    came_[i].clear();
  }
  TargetCount counted(std::uint32_t i, CounterId counter) {
    const TargetCounterWords& words = clients[i].board->counters[counter_index(counter)];
    const std::uint64_t success = words.success.load(std::memory_order_acquire);
    return {success, words.failure.load(std::memory_order_acquire)};
  }
  bool is_counted(std::uint32_t i, CounterId counter, std::uint64_t success) {
    return until([&] { return counted(i, counter).success >= success; });
  }
  void close(std::uint32_t i) {
    EXPECT_TRUE(until([&] { return port(i).close(0); }));
  }

  const TargetDriver driver_;
  FakeConfig network_config;
  TargetInterfaceConfig interface_config;
  std::unique_ptr<FakeNetwork> network;
  std::unique_ptr<ShmWorld> shm;
  std::vector<std::unique_ptr<FakeProvider>> providers;
  std::vector<std::unique_ptr<OtherMemory>> others;  ///< By process, if there are such.
  std::vector<TargetClient> clients;                 ///< Those that have died have no side.
  std::vector<TargetEvent> came_events;

 private:
  std::map<std::uint32_t, std::string> begun_, came_;
};

}  // namespace ch3_offload
