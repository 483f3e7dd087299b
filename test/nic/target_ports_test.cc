// What every driver of the second client's port keeps.

#include <gtest/gtest.h>

#include "nic/target_ports_world.h"

namespace ch3_offload {
namespace {

class TargetPorts : public TargetPortsWorld, public testing::WithParamInterface<TargetDriver> {
 protected:
  TargetPorts() : TargetPortsWorld(GetParam()) {}
};

std::string driver_name(const testing::TestParamInfo<TargetDriver>& info) {
  switch (info.param) {
    case TargetDriver::kHost: return "Host";
    case TargetDriver::kStepped: return "Stepped";
    case TargetDriver::kOther: return "Other";
    default: return "Thread";
  }
}
INSTANTIATE_TEST_SUITE_P(Drivers, TargetPorts,
                         testing::Values(TargetDriver::kHost, TargetDriver::kStepped, TargetDriver::kOther,
                                         TargetDriver::kThread),
                         driver_name);

TEST_P(TargetPorts, APutArrivesAndIsAcknowledged) {
  make();
  for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{5000}, std::size_t{1} << 20}) {
    std::vector<std::byte> memory(length), data = pattern(length);
    const TargetId entry = append(1, entry_of(1, memory));
    ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
    expect_begun(0, "send 0, ack " + std::to_string(length));
    expect_came(1, "put " + std::to_string(length));
    EXPECT_EQ(memory, data);
    EXPECT_EQ(came_events.back().header.key.initiator, process_of(0));
    EXPECT_EQ(came_events.back().header.user, UserId{1000});
    EXPECT_EQ(port(1).unlink(0, kTable, entry), TargetTable::Unlinked::kOk);
    EXPECT_EQ(port(1).unlink(0, kTable, entry), TargetTable::Unlinked::kUnknown);
  }
}

class TargetPortsOfAnotherProcess : public TargetPortsWorld {
 protected:
  TargetPortsOfAnotherProcess() : TargetPortsWorld(TargetDriver::kOther) {}
};

/// The processor would need a copy by the kernel for them.
TEST_F(TargetPortsOfAnotherProcess, TheBytesOfAShortSourceAreInItsCommand) {
  make();
  for (const std::size_t length : {std::size_t{8}, kMostVolatileBytes}) {
    std::vector<std::byte> memory(length), data = pattern(length);
    const std::vector<std::byte> given = data;
    const TargetId entry = append(1, entry_of(1, memory));
    ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
    data.assign(length, std::byte{});
    expect_begun(0, "send 0, ack " + std::to_string(length));
    expect_came(1, "put " + std::to_string(length));
    EXPECT_EQ(memory, given);
    EXPECT_EQ(port(1).unlink(0, kTable, entry), TargetTable::Unlinked::kOk);
  }
}

TEST_P(TargetPorts, AGetAndAnAtomicBringBackWhatWasThere) {
  make();
  std::vector<std::byte> memory = pattern(300'000), got(300'000), sum(8), old(8, std::byte{9});
  TargetDescription entry = entry_of(1, memory);
  entry.ignore = {MatchBits{0}, kAnyProcess};
  append(1, entry);
  ASSERT_EQ(port(0).request(process_of(1), get_from(0, got)), Status::kOk);
  expect_begun(0, "reply 300000");
  expect_came(1, "get 300000");
  EXPECT_EQ(got, memory);

  TargetDescription counter = entry_of(1, sum);
  counter.key.bits = MatchBits{7};
  counter.ignore = {MatchBits{0}, kAnyProcess};
  append(1, counter);
  std::vector<std::byte> operand(8);
  operand[0] = std::byte{5};
  TargetRequest request = sum_from(0, operand, old);
  request.bits = MatchBits{7};
  ASSERT_EQ(port(0).request(process_of(1), request), Status::kOk);
  expect_begun(0, "send 0, reply 8");
  expect_came(1, "fetch-atomic 8");
  EXPECT_EQ(old, std::vector<std::byte>(8));
  EXPECT_EQ(sum, operand);
}

TEST_P(TargetPorts, AProcessAddressesItself) {
  make(1);
  std::vector<std::byte> memory(100), data = pattern(100);
  append(0, entry_of(0, memory));
  ASSERT_EQ(port(0).request(process_of(0), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack 100");
  expect_came(0, "put 100");
  EXPECT_EQ(memory, data);
  EXPECT_EQ(came_events.back().header.key.initiator, process_of(0));
}

TEST_P(TargetPorts, WithRanksInitiatorsAreRanks) {
  make(3);
  std::vector<ProcessId> ranks(3);
  for (std::uint32_t i = 0; i < 3; ++i) ranks[rank_of(i, 3)] = process_of(i);
  EXPECT_EQ(port(1).set_ranks(0, ranks), Status::kOk);
  std::vector<std::byte> memory(8), data = pattern(8);
  TargetDescription entry = entry_of(1, memory);
  entry.key.initiator = make_logical_id(rank_of(2, 3));
  entry.ignore.initiator = kExactProcess;
  append(1, entry);
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack dropped 0");
  ASSERT_EQ(port(2).request(process_of(1), put_from(2, data)), Status::kOk);
  expect_begun(2, "send 0, ack 8");
  expect_came(1, "put 8");
  EXPECT_EQ(came_events.back().header.key.initiator, make_logical_id(rank_of(2, 3)));
  EXPECT_EQ(clients[1].board->registers.drops.load(), 1u);
}

TEST_P(TargetPorts, CountersCountAndChange) {
  make();
  std::vector<std::byte> memory(100), data = pattern(50);
  append(1, entry_of(1, memory, kCountComm | kCountBytes));
  TargetRequest request = put_from(0, data, kCountAck | kNoSendEvent);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(port(0).request(process_of(1), request), Status::kOk);
  EXPECT_TRUE(is_counted(0, clients[0].begun_counter, 3));
  EXPECT_TRUE(is_counted(1, clients[1].came_counter, 150));
  port(1).change_counter(0, {TargetCountChange::Kind::kAdd, clients[1].came_counter, {7, 2}});
  EXPECT_EQ(counted(1, clients[1].came_counter), (TargetCount{157, 2}));
  port(1).change_counter(0, {TargetCountChange::Kind::kSet, clients[1].came_counter, {0, 0}});
  EXPECT_EQ(counted(1, clients[1].came_counter), TargetCount{});
  port(1).free_counter(0, clients[1].came_counter);
  port(1).change_counter(0, {TargetCountChange::Kind::kAdd, clients[1].came_counter, {7, 2}});
  EXPECT_EQ(counted(1, clients[1].came_counter), TargetCount{}) << "it is gone";
}

/// 0 puts to 1, whose counter then puts to 2, whose counter puts back to 0.
TEST_P(TargetPorts, TriggeredPutsGoRound) {
  make(3);
  std::vector<std::vector<std::byte>> memories(3, std::vector<std::byte>(64));
  for (std::uint32_t i = 0; i < 3; ++i) append(i, entry_of(i, memories[i], kCountComm));
  std::vector<std::byte> data = pattern(64);
  for (const std::uint32_t i : {1U, 2U}) {
    TargetRequest on = put_from(i, memories[i], kNoSendEvent);
    on.acknowledgement = TargetAcknowledgement::kNone;
    ASSERT_EQ(port(i).trigger({clients[i].came_counter, 1}, process_of((i + 1) % 3), on), Status::kOk);
  }
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  EXPECT_TRUE(is_counted(0, clients[0].came_counter, 1));
  EXPECT_EQ(memories[0], data);
}

TEST_P(TargetPorts, ATriggerThatIsReachedFiresNowAndOneThatIsCancelledNever) {
  make(1);
  const CounterId first = clients[0].begun_counter, second = clients[0].came_counter;
  const auto adds = [](CounterId counter) {
    return TargetCountChange{TargetCountChange::Kind::kAdd, counter, {1, 0}};
  };
  ASSERT_EQ(port(0).trigger({first, 0}, 0, adds(second)), Status::kOk);
  EXPECT_EQ(counted(0, second), (TargetCount{1, 0}));
  ASSERT_EQ(port(0).trigger({first, 2}, 0, adds(second)), Status::kOk);
  port(0).cancel_triggered(0, first);
  port(0).change_counter(0, {TargetCountChange::Kind::kSet, first, {5, 0}});
  EXPECT_EQ(counted(0, second), (TargetCount{1, 0}));
  EXPECT_EQ(port(0).trigger({kNoCounter, 1}, 0, adds(second)), Status::kUnsupported);
}

/// Each fires the other: the processor goes on with all else.
TEST_P(TargetPorts, ACycleOfTriggersHangsNobody) {
  interface_config.limits.most_triggered = 5000;
  make();
  const CounterId first = clients[0].begun_counter, second = clients[0].came_counter;
  for (std::uint64_t i = 1; i <= 2000; ++i) {
    ASSERT_EQ(
        port(0).trigger({first, i}, 0, TargetCountChange{TargetCountChange::Kind::kAdd, second, {1, 0}}),
        Status::kOk);
    ASSERT_EQ(
        port(0).trigger({second, i}, 0, TargetCountChange{TargetCountChange::Kind::kAdd, first, {1, 0}}),
        Status::kOk);
  }
  port(0).change_counter(0, {TargetCountChange::Kind::kAdd, first, {1, 0}});
  EXPECT_TRUE(is_counted(0, first, 2001));
  EXPECT_EQ(counted(0, second), (TargetCount{2000, 0}));
}

TEST_P(TargetPorts, TriggeredEntriesLinkAndUnlink) {
  make();
  std::vector<std::byte> memory(8), data = pattern(8);
  TargetDescription entry = entry_of(1, memory);
  entry.options &= ~kNoLinkEvent;
  TargetId id{};
  const CounterId counter = clients[1].begun_counter;
  ASSERT_EQ(port(1).trigger_append({counter, 1}, 0, kTable, TargetListKind::kPriority, entry, id),
            Status::kOk);
  ASSERT_NE(id, kNoTarget);
  ASSERT_EQ(port(1).trigger_unlink({counter, 2}, 0, kTable, id), Status::kOk);
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack dropped 0");
  port(1).change_counter(0, {TargetCountChange::Kind::kAdd, counter, {1, 0}});
  expect_came(1, "link 0");
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack 8");
  expect_came(1, "put 8");
  port(1).change_counter(0, {TargetCountChange::Kind::kAdd, counter, {1, 0}});
  EXPECT_EQ(port(1).unlink(0, kTable, id), TargetTable::Unlinked::kUnknown);
  EXPECT_EQ(port(1).trigger_append({counter, 1}, 0, 9, TargetListKind::kPriority, entry, id),
            Status::kUnsupported);
}

TEST_P(TargetPorts, AsManyTriggersWaitAsMay) {
  interface_config.limits.most_triggered = 3;
  make(1);
  const TargetCountChange change{TargetCountChange::Kind::kAdd, clients[0].came_counter, {1, 0}};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(port(0).trigger({clients[0].begun_counter, 9}, 0, change), Status::kOk);
  EXPECT_EQ(port(0).trigger({clients[0].begun_counter, 9}, 0, change), Status::kNoMemory);
}

TEST_P(TargetPorts, TablesAndSearches) {
  make(1);
  EXPECT_EQ(port(0).make_table(0, kTable, kNoQueue, false), Status::kAgain);
  EXPECT_EQ(port(0).make_table(0, 5000, kNoQueue, false), Status::kUnsupported);
  EXPECT_EQ(port(0).make_table(0, 9, kNoQueue, true), Status::kUnsupported);
  EXPECT_EQ(port(0).free_table(0, 9), Status::kUnsupported);
  port(0).search(0, kTable, TargetTable::SearchMode::kOnly, {});
  expect_came(0, "search no-match 0");
  EXPECT_TRUE(port(0).disable_table(0, kTable));
  std::vector<std::byte> memory(8), data = pattern(8);
  append(0, entry_of(0, memory));
  ASSERT_EQ(port(0).request(process_of(0), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack table-disabled 0");
  port(0).enable_table(0, kTable);
  EXPECT_EQ(port(0).free_table(0, kTable), Status::kAgain);
  TargetId id{};
  EXPECT_EQ(port(0).append(0, 9, TargetListKind::kPriority, {}, id), Status::kUnsupported);
}

TEST_P(TargetPorts, AnInterfaceThatIsClosedIsNoneAndCanBeOpenedAgain) {
  make();
  EXPECT_EQ(port(1).open(0, {}, *clients[1].board), Status::kAgain);
  EXPECT_EQ(port(1).open(kTargetInterfaces, {}, *clients[1].board), Status::kUnsupported);
  std::vector<std::byte> memory(8), data = pattern(8);
  append(1, entry_of(1, memory));
  close(1);
  EXPECT_TRUE(port(1).close(0));
  EXPECT_TRUE(port(1).close(17));
  EXPECT_EQ(port(1).make_counter(0), kNoCounter);
  EXPECT_EQ(port(1).make_queue(0, clients[1].came->ring), kNoQueue);
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack dropped 0");
  EXPECT_EQ(memory, std::vector<std::byte>(8));
  open(1);
  append(1, entry_of(1, memory));
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack 8");
  expect_came(1, "put 8");
  EXPECT_EQ(came_events.back().header.key.initiator, process_of(0)) << "it is still known";
}

TEST_P(TargetPorts, WhatCannotBeReachedIsUndeliverable) {
  make(1);
  std::vector<std::byte> data = pattern(8);
  const ProcessId nobody = make_physical_id(1, 2);
  ASSERT_EQ(port(0).request(nobody, put_from(0, data)), Status::kOk);
  expect_begun(0, "send undeliverable 0, ack undeliverable 0");
}

/// It is refused at once, or its events say so.
TEST_P(TargetPorts, AnOperationThatIsNoneIsRefused) {
  make();
  std::vector<std::byte> operand(8), old(8);
  TargetRequest request = sum_from(0, operand, old);
  request.destination.memory.length_bytes = 4;
  if (port(0).request(process_of(1), request) == Status::kOk)
    expect_begun(0, "send undeliverable 0, reply undeliverable 0");
  EXPECT_EQ(port(0).trigger({clients[0].begun_counter, 1}, process_of(1), request), Status::kUnsupported);
  request.interface = 3;
  EXPECT_EQ(port(0).trigger({clients[0].begun_counter, 1}, process_of(1), request), Status::kUnsupported);
}

}  // namespace
}  // namespace ch3_offload
