// Processes with modules over a fake network, or over the exchange of a node's processor: what a client of MPI does
// with its port, for tests of ModuleRunner.
//
// Each client keeps a receive posted for what modules deliver, and one for troubles.
//
// Threads: one.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "modules/module_message.h"
#include "nic/exchange.h"
#include "nic/host_driver.h"
#include "nic/stepped_rings.h"
#include "rdma/fake_provider.h"
#include "rdma/monotonic_clock.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {

class ModuleWorld {
 public:
  enum class Driver : std::uint8_t { kHost, kThread, kProcess };
  struct Delivery {
    std::uint32_t root = 0, tag = 0;
    std::string payload;
    Status status = Status::kOk;
  };
  static constexpr std::uint32_t kGroup = 77;
  static constexpr std::uint64_t kDataBits = std::uint64_t{5} << 32, kControlBits = std::uint64_t{6} << 32;
  static constexpr std::size_t kRoomBytes = std::size_t{1} << 20;

  /// `config`: what an engine's of a test differs in from the others.
  ModuleWorld(Driver driver, std::uint32_t size, std::uint64_t seed, const EngineConfig& config = {})
      : driver_(driver), size_(size), config_(config), network_(fake(seed)) {
    if (driver == Driver::kProcess) exchange_ = std::make_unique<Exchange>(PeerId{0}, size, nullptr);
    for (std::uint32_t i = 0; i < size; ++i) make_process(i, seed);
  }
  ~ModuleWorld() {
    for (auto& process : processes_) {
      if (process->provider != nullptr) network_.kill(PeerId{process->id});
      process->host.reset();
      process->rings.reset();
      process->outlet.reset();
    }
  }
  ModuleWorld(const ModuleWorld&) = delete;
  ModuleWorld& operator=(const ModuleWorld&) = delete;

  /// `turned`: rank r is process size - 1 - r.
  void open(bool turned = false) {
    turned_ = turned;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      ModuleOpening opening;
      opening.data_bits = kDataBits;
      opening.control_bits = kControlBits;
      opening.rank = rank;
      opening.size = size_;
      opening.peer_count = turned ? size_ : 0;
      std::string payload(reinterpret_cast<const char*>(&opening), sizeof opening);
      for (std::uint32_t i = 0; i < opening.peer_count; ++i) {
        const std::uint32_t number = process_of(i);
        payload.append(reinterpret_cast<const char*>(&number), sizeof number);
      }
      EXPECT_EQ(ask(rank, ModuleMessageKind::kOpen, "", payload), "");
      await_delivery(rank);
      await_trouble(rank);
    }
  }
  /// Opens another group in the process of rank 0, which has rank 0 there, too. Returns the answer.
  std::string try_to_open(std::uint32_t group, std::uint32_t size, const std::vector<std::uint32_t>& peers) {
    ModuleOpening opening;
    opening.control_bits = kControlBits;
    opening.size = size;
    opening.peer_count = static_cast<std::uint32_t>(peers.size());
    std::string payload(reinterpret_cast<const char*>(&opening), sizeof opening);
    if (!peers.empty())
      payload.append(reinterpret_cast<const char*>(peers.data()), peers.size() * sizeof peers[0]);
    return ask(0, ModuleMessageKind::kOpen, "", payload, group);
  }
  /// In all processes.
  void load(std::string_view name, std::string_view text) {
    for (std::uint32_t rank = 0; rank < size_; ++rank)
      EXPECT_EQ(ask(rank, ModuleMessageKind::kLoad, name, text), "");
  }
  /// Asks the processor of that rank, and returns the answer.
  std::string ask(std::uint32_t rank, ModuleMessageKind kind, std::string_view name, std::string_view payload,
                  std::uint32_t group = kGroup) {
    ModuleHeader header = header_of(rank, kind, name);
    header.group = group;
    header.tag = ++ticket_;
    Receive& answer = receive(rank, {kControlBits | ticket_, rank}, kIgnoreNothing);
    send(rank, process_of(rank), header, payload);
    turn_until([&] { return answer.is_done; });
    return answer.is_done ? text_of(answer) : "(no answer)";
  }
  /// Gives a message to the module in the process of rank `to`.
  void give(std::uint32_t from, std::uint32_t to, std::string_view name, std::uint32_t root,
            std::uint32_t tag, std::string_view payload) {
    ModuleHeader header = header_of(from, ModuleMessageKind::kData, name);
    header.root = root;
    header.tag = tag;
    send(from, process_of(to), header, payload);
  }
  ModuleHeader header_of(std::uint32_t rank, ModuleMessageKind kind, std::string_view name) const {
    ModuleHeader header;
    header.kind = kind;
    header.group = kGroup;
    header.source = header.root = rank;
    header.set_name(name);
    return header;
  }
  void send(std::uint32_t from, std::uint32_t to_process, const ModuleHeader& header,
            std::string_view payload) {
    std::string whole(reinterpret_cast<const char*>(&header), sizeof header);
    whole.append(payload);
    const bool is_request = header.kind > ModuleMessageKind::kTrouble;
    send_bytes(from, to_process, std::move(whole), is_request ? kProgramRequestKey : kProgramKey);
  }
  void send_bytes(std::uint32_t from, std::uint32_t to_process, std::string whole,
                  const MatchKey& key = kProgramKey) {
    sent_.push_back(std::move(whole));
    std::string& kept = sent_.back();
    OperationId operation;
    Status status;
    static_cast<void>(port(from).send(PeerId{to_process}, SendMode::kStandard, key,
                                      {reinterpret_cast<std::byte*>(kept.data()), kept.size(), nullptr}, 0,
                                      nullptr, operation, status));
  }

  void turn() {
    for (auto& process : processes_) {
      if (!process->is_alive || !process->has_turns) continue;
      Port& its = process->host != nullptr ? static_cast<Port&>(*process->host) : *process->rings;
      for (Event event; its.next_event(event);) take(*process, event);  // Of commands.
      its.progress();
      for (Event event; its.next_event(event);) take(*process, event);
    }
    if (exchange_ != nullptr) exchange_->poll();
    network_.advance();
  }
  /// Takes turns until the condition holds, for a minute at most. Turns are not counted: if the machine stands
  /// still during an activation, modules wait for as long afterwards.
  template <class Condition>
  void turn_until(const Condition& is_fulfilled) {
    const std::uint64_t began_ns = monotonic_ns();
    while (!is_fulfilled() && elapsed_ns(monotonic_ns(), began_ns) < 60'000'000'000) turn();
  }
  /// Until `count` were delivered in all, or for long.
  void run_until_delivered(std::size_t count) {
    turn_until([&] { return delivered() >= count; });
    run();
  }
  /// Until nothing happens any more, as far as one can see. Modules that have used up their time wait.
  void run() {
    for (int i = 0; i < 600 || (i < 50'000 && is_busy()); ++i) turn();
  }
  bool is_busy() const {
    return std::ranges::any_of(processes_, [](const auto& one) {
      const HostDriver* const its = one->host != nullptr    ? one->host.get()
                                    : one->rings != nullptr ? &one->rings->host
                                                            : nullptr;
      return its != nullptr && one->has_turns && !its->at_rest();
    });
  }
  std::size_t delivered() const {
    std::size_t all = 0;
    for (const auto& process : processes_) all += process->deliveries.size();
    return all;
  }
  const std::vector<Delivery>& deliveries(std::uint32_t rank) {
    return processes_[process_of(rank)]->deliveries;
  }
  const std::vector<std::string>& troubles(std::uint32_t rank) {
    return processes_[process_of(rank)]->troubles;
  }
  const std::vector<std::string>& warnings(std::uint32_t rank) {
    return processes_[process_of(rank)]->warnings;
  }

  /// What was delivered last at that rank is the last one to be taken.
  void receives_no_more(std::uint32_t rank) { processes_[process_of(rank)]->receives_no_more = true; }

  /// From now on its port has no turns.
  /// REQUIRES: Driver::kHost.
  HostDriver& host(std::uint32_t rank) { return *processes_[process_of(rank)]->host; }
  void stops(std::uint32_t rank) { processes_[process_of(rank)]->has_turns = false; }

  /// `is_told`: by the process manager, to all.
  void kill(std::uint32_t rank, bool is_told = true) {
    Process& dead = *processes_[process_of(rank)];
    dead.is_alive = false;
    if (dead.provider != nullptr) network_.kill(PeerId{dead.id});
    dead.host.reset();
    dead.rings.reset();
    dead.outlet.reset();
    dead.provider.reset();
    for (std::uint32_t other = 0; is_told && other < size_; ++other)
      if (processes_[other]->is_alive) port(rank_of(other)).fail_peer(PeerId{dead.id});
  }
  Port& port(std::uint32_t rank) {
    Process& process = *processes_[process_of(rank)];
    if (process.host != nullptr) return *process.host;
    return *process.rings;
  }

 private:
  struct Receive {
    std::string room;
    MatchKey key{}, ignore{};
    Envelope envelope{};
    bool is_done = false;
    int use = 0;  ///< 1: deliveries; 2: troubles.
  };
  struct Process {
    std::uint32_t id = 0;
    bool is_alive = true;
    bool has_turns = true;
    bool receives_no_more = false;
    std::unique_ptr<FakeProvider> provider;
    std::unique_ptr<ExchangePort> outlet;
    std::unique_ptr<OtherProcess> memory;
    std::unique_ptr<HostDriver> host;
    std::unique_ptr<SteppedRings> rings;
    std::list<Receive> receives;
    std::vector<Delivery> deliveries;
    std::vector<std::string> troubles, warnings;
  };

  static FakeConfig fake(std::uint64_t seed) {
    FakeConfig fake;
    fake.seed = seed;
    fake.slots_per_pair = 8;
    fake.again_probability = 0.1;
    fake.slow_probability = 0.05;
    return fake;
  }
  std::uint32_t process_of(std::uint32_t rank) const noexcept { return turned_ ? size_ - 1 - rank : rank; }
  std::uint32_t rank_of(std::uint32_t process) const noexcept { return process_of(process); }

  void make_process(std::uint32_t id, std::uint64_t seed) {
    auto process = std::make_unique<Process>();
    process->id = id;
    EngineConfig engine = config_;
    engine.self = PeerId{id};
    engine.senders = size_;
    engine.eager_limit_bytes = 2048;
    if (driver_ != Driver::kHost) engine.self_copy_bytes = 1024;
    Provider* provider = nullptr;
    if (driver_ == Driver::kProcess) {
      process->outlet = exchange_->attach(PeerId{id});
      process->memory = std::make_unique<OtherProcess>(size_, *process->outlet);
      engine.landing_numbers = process->outlet->landing_numbers();
      provider = process->outlet.get();
    } else {
      process->provider = network_.make_provider(PeerId{id});
      provider = process->provider.get();
    }
    Provider* const providers[] = {provider};
    if (driver_ == Driver::kHost)
      process->host = std::make_unique<HostDriver>(engine, providers);
    else
      process->rings = std::make_unique<SteppedRings>(engine, providers, seed + id, process->memory.get());
    cards_.push_back(process->host != nullptr ? process->host->card() : process->rings->card());
    processes_.push_back(std::move(process));
  }

  Receive& receive(std::uint32_t rank, const MatchKey& key, const MatchKey& ignore, int use = 0) {
    Process& process = *processes_[process_of(rank)];
    Receive& one = process.receives.emplace_back();
    one.room.resize(use == 1 ? kRoomBytes : 4096);
    one.key = key;
    one.ignore = ignore;
    one.use = use;
    post(process, one);
    return one;
  }
  void post(Process& process, Receive& one) {
    OperationId operation;
    const Payload payload{reinterpret_cast<std::byte*>(one.room.data()), one.room.size(), nullptr};
    if (port(rank_of(process.id)).post_receive(one.key, one.ignore, payload, &one, operation, one.envelope) ==
        Progressed::kDone)
      ended(process, one);
  }
  void await_delivery(std::uint32_t rank) { receive(rank, {kDataBits, 0}, kIgnoreInitiatorAndTag, 1); }
  void await_trouble(std::uint32_t rank) {
    receive(rank, {kControlBits | kModuleTroubleTag, rank}, kIgnoreNothing, 2);
  }
  static std::string text_of(const Receive& one) {
    return one.room.substr(0, std::min(one.room.size(), one.envelope.length_bytes));
  }
  void ended(Process& process, Receive& one) {
    one.is_done = true;
    if (one.use == 0) return;
    if (one.use == 1)
      process.deliveries.push_back({one.envelope.key.initiator,
                                    static_cast<std::uint32_t>(one.envelope.key.bits), text_of(one),
                                    one.envelope.status});
    else
      process.troubles.push_back(text_of(one));
    if (one.use != 1 || !process.receives_no_more) post(process, one);
  }
  void take(Process& process, const Event& event) {
    switch (event.kind) {
      case Event::Kind::kCardWanted:
        port(rank_of(process.id)).introduce(event.peer, cards_[index_of(event.peer)]);
        break;
      case Event::Kind::kReceiveDone: {
        auto& one = *static_cast<Receive*>(event.cookie);
        one.envelope = {event.key, event.length_bytes, event.status};
        ended(process, one);
        break;
      }
      case Event::Kind::kWarning:
        process.warnings.emplace_back(reinterpret_cast<const char*>(event.bytes), event.length_bytes);
        break;
      default: break;
    }
  }

  const Driver driver_;
  const std::uint32_t size_;
  const EngineConfig config_;
  FakeNetwork network_;
  std::unique_ptr<Exchange> exchange_;
  bool turned_ = false;
  std::uint32_t ticket_ = 0;
  std::vector<std::string> cards_;
  std::deque<std::string> sent_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace ch3_offload
