// The end of an interface while operations are at every stage, at the initiator and at the target.
// Deterministic: the interface is closed after each number of steps of the network, until nothing is left to
// interrupt.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/target_world.h"

namespace ch3_offload {
namespace {

constexpr std::byte kMine{0xEE};  ///< What the client writes into its memory when it is its own again.

struct CloseCase {
  const char* name;
  TargetOperation operation;
  std::size_t length_bytes;
  bool has_write;
  std::size_t slots = 64;
};

void PrintTo(const CloseCase& one, std::ostream* out) { *out << one.name; }

class TargetClose : public TargetWorld {
 protected:
  std::vector<std::unique_ptr<TargetBoard>> boards;
  std::vector<TargetInterface*> interfaces;

  void begin() {
    if (network != nullptr) {
      EXPECT_EQ(network->violations(), std::vector<std::string>{});
    }
    processes.clear();
    cards.clear();
    make();
  }
  void close(std::uint32_t i) {
    at(i).engine->close_targets(0);
    at(i).interface = nullptr;
    for (int steps = 0; steps < 1000 && !at(i).engine->targets_are_closed(0); ++steps) step();
    EXPECT_TRUE(at(i).engine->targets_are_closed(0));
    at(i).queues.clear();
  }
  void reopen(std::uint32_t i) {
    TargetProcess& process = at(i);
    process.interface = process.engine->open_targets(0, interface_config, *process.board);
    ASSERT_NE(process.interface, nullptr);
    process.initiator_queue = process.make_queue(queue_events, interface_config.most_tables);
    process.target_queue = process.make_queue(queue_events, interface_config.most_tables);
    process.initiator_counter = process.interface->make_counter();
    process.target_counter = process.interface->make_counter();
    ASSERT_EQ(process.interface->make_table(kTable, process.target_queue, false), Status::kOk);
  }
  TargetRequest request_of(const CloseCase& one, std::vector<std::byte>& source,
                           std::vector<std::byte>& destination) {
    TargetRequest request = put_from(0, source);
    request.operation = one.operation;
    request.atomic_operation = AtomicOperation::kSum;
    request.atomic_type = AtomicType::kUint8;
    if (request.is_get()) request.source = {};
    if (request.returns_data()) request.destination = origin_of(0, destination);
    return request;
  }
  void fill(std::vector<std::byte>& memory) { std::ranges::fill(memory, kMine); }
  void expect_mine(const std::vector<std::byte>& memory) {
    EXPECT_EQ(std::ranges::count(memory, kMine), static_cast<std::ptrdiff_t>(memory.size()))
        << "something has touched it";
  }
  void expect_all_well() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at(i).failures.empty());
      EXPECT_EQ(at(i).provider->regions(), 0u);
      EXPECT_TRUE(at(i).engine->at_rest());
    }
  }
  /// Both interfaces are open, and work.
  void expect_put_works() {
    std::vector<std::byte> memory(20'000), data = pattern(20'000, 5);
    append(1, entry_of(memory));
    take(0, at(0).initiator_queue);
    ASSERT_EQ(start(0, 1, put_from(0, data)), Status::kOk);
    settle();
    EXPECT_EQ(begun(0), "send 0, ack 20000");
    EXPECT_EQ(memory, data);
  }
};

class TargetCloseAt : public TargetClose, public testing::WithParamInterface<CloseCase> {
 protected:
  TargetCloseAt() {
    network_config.write = GetParam().has_write;
    network_config.write_threshold_bytes = 1000;
    network_config.slots_per_pair = static_cast<std::uint32_t>(GetParam().slots);
    network_config.max_slot_bytes = 2048;
  }
};

INSTANTIATE_TEST_SUITE_P(Stages, TargetCloseAt,
                         testing::Values(CloseCase{"ShortPut", TargetOperation::kPut, 100, true},
                                         CloseCase{"WrittenPut", TargetOperation::kPut, 30'000, true},
                                         CloseCase{"BouncedPut", TargetOperation::kPut, 30'000, false, 2},
                                         CloseCase{"ShortGet", TargetOperation::kGet, 100, true},
                                         CloseCase{"WrittenGet", TargetOperation::kGet, 30'000, true},
                                         CloseCase{"BouncedGet", TargetOperation::kGet, 30'000, false, 2},
                                         CloseCase{"FetchAtomic", TargetOperation::kFetchAtomic, 1000, true}),
                         [](const testing::TestParamInfo<CloseCase>& one) {
                           return std::string(one.param.name);
                         });

TEST_P(TargetCloseAt, TheInitiatorClosesAndItsMemoryIsItsOwn) {
  int interrupted = 0;
  for (int steps = 0; steps < 60 && !HasFailure(); ++steps) {
    SCOPED_TRACE("after " + std::to_string(steps) + " steps");
    begin();
    std::vector<std::byte> memory = pattern(GetParam().length_bytes, 3), before = memory;
    std::vector<std::byte> source = pattern(GetParam().length_bytes), data = source;
    std::vector<std::byte> destination(GetParam().length_bytes);
    append(1, entry_of(memory));
    ASSERT_EQ(start(0, 1, request_of(GetParam(), source, destination)), Status::kOk);
    for (int i = 0; i < steps; ++i) step();
    interrupted +=
        begun(0).find(GetParam().operation == TargetOperation::kPut ? "ack" : "reply") == std::string::npos;
    close(0);
    fill(source);
    fill(destination);
    settle();
    expect_mine(source);
    expect_mine(destination);
    EXPECT_EQ(table(1).in_flight(), 0u);
    if (GetParam().operation == TargetOperation::kPut) {
      // The target has all of it, or has heard that it failed, or nothing of it.
      const std::string heard = came(1);
      if (heard == "put " + std::to_string(memory.size())) {
        EXPECT_EQ(memory, data);
      } else if (heard.empty()) {
        EXPECT_EQ(memory, before);
      } else {
        EXPECT_EQ(heard, "put undeliverable " + std::to_string(memory.size()));
      }
    }
    expect_all_well();
    table(1).search({}, TargetTable::SearchMode::kDelete);
    ASSERT_EQ(at(1).interface->table(kTable)->in_flight(), 0u);
    reopen(0);
    std::vector<std::byte> small = pattern(8);
    ASSERT_EQ(start(0, 1, put_from(0, small)), Status::kOk);
    settle();
    EXPECT_EQ(begun(0), "send 0, ack 8");
  }
  EXPECT_GT(interrupted, 2);
}

TEST_P(TargetCloseAt, TheTargetClosesAndItsMemoryIsItsOwn) {
  int refused = 0;
  for (int steps = 0; steps < 60 && !HasFailure(); ++steps) {
    SCOPED_TRACE("after " + std::to_string(steps) + " steps");
    begin();
    std::vector<std::byte> memory = pattern(GetParam().length_bytes, 3), before = memory;
    std::vector<std::byte> source = pattern(GetParam().length_bytes);
    std::vector<std::byte> destination(GetParam().length_bytes);
    append(1, entry_of(memory));
    ASSERT_EQ(start(0, 1, request_of(GetParam(), source, destination)), Status::kOk);
    for (int i = 0; i < steps; ++i) step();
    close(1);
    fill(memory);
    settle();
    expect_mine(memory);
    // The initiator hears of each end once.
    const std::string sends = GetParam().operation == TargetOperation::kGet ? "" : "send 0, ";
    const std::string answer = GetParam().operation == TargetOperation::kPut ? "ack" : "reply";
    const std::string heard = begun(0);
    const bool was_refused = heard == sends + answer + " dropped 0";
    refused += was_refused;
    if (!was_refused) {
      EXPECT_EQ(heard, sends + answer + " " + std::to_string(memory.size()));
    }
    if (!was_refused && GetParam().operation == TargetOperation::kGet) {
      EXPECT_EQ(destination, before);
    }
    expect_all_well();
    reopen(1);
    expect_put_works();
  }
  EXPECT_GT(refused, 0);
}

TEST_F(TargetClose, TriggeredOperationsEndWithTheirInterface) {
  begin();
  std::vector<std::byte> data = pattern(8), memory(8);
  append(1, entry_of(memory));
  const TargetCountChange adds{TargetCountChange::Kind::kAdd, at(0).initiator_counter, {1, 0}};
  ASSERT_EQ(at(0).engine->trigger({at(0).initiator_counter, 1}, PeerId{1}, put_from(0, data)), Status::kOk);
  ASSERT_EQ(at(0).interface->trigger({at(0).target_counter, 0}, adds), Status::kOk);
  ASSERT_EQ(at(0).interface->trigger({at(0).target_counter, 0}, adds), Status::kOk);
  EXPECT_FALSE(at(0).engine->at_rest()) << "something is due";
  close(0);
  EXPECT_TRUE(at(0).engine->at_rest());
  settle();
  EXPECT_EQ(memory, std::vector<std::byte>(8));
}

TEST_F(TargetClose, AnotherInterfaceGoesOn) {
  begin();
  for (std::uint32_t i = 0; i < 2; ++i) {
    auto other = std::make_unique<TargetBoard>();
    TargetInterface* const interface = at(i).engine->open_targets(1, interface_config, *other);
    ASSERT_EQ(interface->make_table(kTable, kNoQueue, false), Status::kOk);
    boards.push_back(std::move(other));
    interfaces.push_back(interface);
  }
  std::vector<std::byte> memory(30'000), data = pattern(30'000);
  TargetId id{};
  ASSERT_EQ(interfaces[1]->table(kTable)->append(entry_of(memory), TargetListKind::kPriority, id),
            Status::kOk);
  TargetRequest request = put_from(0, data);
  request.interface = 1;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  step();
  close(0);
  close(1);
  settle();
  EXPECT_EQ(memory, data);
  processes.clear();  // Before the boards.
}

TEST_F(TargetClose, APeerThatDiesEndsTheWait) {
  network_config.write_threshold_bytes = 1000;
  begin();
  std::vector<std::byte> memory = pattern(30'000), destination(30'000);
  append(1, entry_of(memory));
  ASSERT_EQ(start(0, 1, get_from(0, destination)), Status::kOk);
  for (int i = 0; i < 20 && at(0).provider->regions() == 0; ++i) progress(0), network->advance();
  ASSERT_EQ(at(0).provider->regions(), 1u) << "the peer may write to it";
  at(0).engine->close_targets(0);
  EXPECT_FALSE(at(0).engine->targets_are_closed(0));
  EXPECT_EQ(at(0).engine->open_targets(0, interface_config, *at(0).board), nullptr) << "not yet";
  kill(1);
  settle();
  EXPECT_TRUE(at(0).engine->targets_are_closed(0));
  EXPECT_EQ(at(0).provider->regions(), 0u);
}

TEST_F(TargetClose, ALongPutToOneselfIsForgotten) {
  self_copy_bytes = 1000;
  begin();
  std::vector<std::byte> memory(20'000), data = pattern(20'000);
  append(0, entry_of(memory));
  ASSERT_EQ(start(0, 0, put_from(0, data)), Status::kOk);
  ASSERT_TRUE(progress(0));
  close(0);
  fill(memory);
  fill(data);
  settle();
  expect_mine(memory);
  expect_all_well();
  reopen(0);
  expect_put_works();
}

}  // namespace
}  // namespace ch3_offload
