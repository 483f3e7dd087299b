// A few engines with one Portals interface each, over the fake network: for the tests of operations on target
// entries. Deterministic.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/target_request.h"
#include "engine/targets/recording_listener.h"
#include "engine/targets/target_interface.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {

/// One process: an engine, its interface, a queue and a counter for what it begins, and others for what
/// comes.
struct TargetProcess {
  std::unique_ptr<FakeProvider> provider;
  // What the interface tells.
  std::unique_ptr<TargetBoard> board = std::make_unique<TargetBoard>();
  std::map<QueueId, std::unique_ptr<TargetEventMemory>> queues;
  std::unique_ptr<Engine> engine;  ///< Null: dead, or the test speaks for it.
  TargetInterface* interface = nullptr;

  QueueId make_queue(std::size_t events, std::size_t tables) {
    auto memory = TargetEventMemory::make(events, tables);
    const QueueId id = interface->make_queue(memory->ring);
    queues[id] = std::move(memory);
    return id;
  }
  QueueId initiator_queue{};
  QueueId target_queue{};
  CounterId initiator_counter{};
  CounterId target_counter{};
  std::map<std::uint32_t, Status> failures;  ///< Of peers.
};

class TargetWorld : public testing::Test {
 protected:
  static constexpr std::uint16_t kTable = 3;

  TargetWorld() { network_config.least_delay_ns = network_config.most_delay_ns = 1000; }
  ~TargetWorld() override {
    if (network == nullptr || violations_expected) return;
    EXPECT_EQ(network->violations(), std::vector<std::string>{});
  }

  void make(std::uint32_t size = 2) {
    network = std::make_unique<FakeNetwork>(network_config);
    for (std::uint32_t i = 0; i < size; ++i) {
      auto process = std::make_unique<TargetProcess>();
      process->provider = network->make_provider(PeerId{i});
      EngineConfig config;
      config.self = PeerId{i};
      config.senders = size;
      config.self_copy_bytes = self_copy_bytes;
      Provider* const providers[] = {provider_of(i, *process->provider)};
      process->engine = std::make_unique<Engine>(config, providers);
      cards.push_back(process->engine->card());
      TargetInterface* const interface = process->engine->open_targets(0, interface_config, *process->board);
      ASSERT_NE(interface, nullptr);
      process->interface = interface;
      process->initiator_queue = process->make_queue(queue_events, interface_config.most_tables);
      process->target_queue = process->make_queue(queue_events, interface_config.most_tables);
      process->initiator_counter = interface->make_counter();
      process->target_counter = interface->make_counter();
      ASSERT_EQ(interface->make_table(kTable, process->target_queue, has_flow_control), Status::kOk);
      processes.push_back(std::move(process));
    }
  }
  /// What an engine takes for its provider.
  virtual Provider* provider_of(std::uint32_t, FakeProvider& provider) { return &provider; }

  TargetProcess& at(std::uint32_t i) { return *processes[i]; }
  TargetTable& table(std::uint32_t i) { return *at(i).interface->table(kTable); }

  /// An entry for anything that is sent to `memory`, unless the options say otherwise.
  TargetDescription entry_of(std::vector<std::byte>& memory, std::uint32_t options = 0) {
    TargetDescription entry;
    entry.start = memory.data();
    entry.length_bytes = memory.size();
    entry.options = kAllowPut | kAllowGet | kNoLinkEvent | options;
    return entry;
  }
  TargetId append(std::uint32_t i, const TargetDescription& entry,
                  TargetListKind list = TargetListKind::kPriority) {
    TargetId id{};
    EXPECT_EQ(table(i).append(entry, list, id), Status::kOk);
    return id;
  }

  TargetOrigin origin_of(std::uint32_t i, std::vector<std::byte>& memory, std::uint32_t options = 0) {
    return {{memory.data(), memory.size(), nullptr}, options, at(i).initiator_queue, at(i).initiator_counter};
  }
  TargetRequest put_from(std::uint32_t i, std::vector<std::byte>& memory) {
    TargetRequest request;
    request.table = kTable;
    request.acknowledgement = TargetAcknowledgement::kFull;
    request.source = origin_of(i, memory);
    return request;
  }
  TargetRequest get_from(std::uint32_t i, std::vector<std::byte>& memory) {
    TargetRequest request;
    request.operation = TargetOperation::kGet;
    request.table = kTable;
    request.destination = origin_of(i, memory);
    return request;
  }
  Status start(std::uint32_t from, std::uint32_t to, const TargetRequest& request) {
    return at(from).engine->request(PeerId{to}, request);
  }

  static std::vector<std::byte> pattern(std::size_t length_bytes, std::uint64_t seed = 1) {
    std::vector<std::byte> bytes(length_bytes);
    for (std::size_t i = 0; i < length_bytes; ++i)
      bytes[i] = static_cast<std::byte>(((i + seed) * 2654435761U + seed * 97) >> 11);
    return bytes;
  }

  /// Returns whether something moved.
  bool progress(std::uint32_t i) {
    Engine* const engine = at(i).engine.get();
    if (engine == nullptr) return false;
    take_news(i);
    const bool moved = engine->progress() > 0;
    take_news(i);
    return moved;
  }
  void take_news(std::uint32_t i) {
    Event event;
    while (at(i).engine->next_event(event)) {
      if (event.kind == Event::Kind::kCardWanted)
        at(i).engine->introduce(event.peer, cards[index_of(event.peer)]);
      if (event.kind == Event::Kind::kPeerFailed) at(i).failures[index_of(event.peer)] = event.status;
    }
  }
  bool step() {
    bool moved = network->advance();
    for (std::uint32_t i = 0; i < processes.size(); ++i) moved |= progress(i);
    return moved;
  }
  /// Lets time pass until nothing moves any more. A network that refuses at random needs more quiet steps.
  void settle() {
    const int most_quiet = network_config.again_probability > 0 ? 100 : 3;
    for (int quiet = 0; quiet < most_quiet;) quiet = step() ? 0 : quiet + 1;
  }

  /// Takes all events of a queue.
  std::vector<TargetEvent> take(std::uint32_t i, QueueId queue) {
    std::vector<TargetEvent> events;
    TargetEvent event;
    bool lost = false;
    TargetEventReader reader(at(i).queues[queue]->ring);
    while (reader.take(event, lost)) {
      EXPECT_FALSE(lost);
      events.push_back(event);
    }
    return events;
  }
  /// "put 5, get 8": kinds, failures and lengths.
  static std::string in_words(const std::vector<TargetEvent>& events) {
    std::string text;
    for (const TargetEvent& event : events)
      text += (text.empty() ? "" : ", ") + std::string(name_of(event.kind)) + name_of(event.failure) + " " +
              std::to_string(event.length_bytes);
    return text;
  }
  std::string begun(std::uint32_t i) { return in_words(take(i, at(i).initiator_queue)); }
  std::string came(std::uint32_t i) { return in_words(take(i, at(i).target_queue)); }
  TargetCount begun_count(std::uint32_t i) { return at(i).interface->counted(at(i).initiator_counter); }

  void kill(std::uint32_t i) {
    network->kill(PeerId{i});
    at(i).engine.reset();
    at(i).provider.reset();
  }

  FakeConfig network_config;
  TargetInterfaceConfig interface_config;
  std::size_t queue_events = 500;
  std::size_t self_copy_bytes = SIZE_MAX;
  bool has_flow_control = false;
  bool violations_expected = false;  ///< The test forges messages that make honest providers err.
  std::unique_ptr<FakeNetwork> network;
  std::vector<std::string> cards;
  std::vector<std::unique_ptr<TargetProcess>> processes;
};

}  // namespace ch3_offload
