// Operations on target entries from end to end: each kind, each way of its data, what is refused, and
// failures.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>

#include "engine/target_world.h"

namespace ch3_offload {
namespace engine_target_test {

constexpr std::size_t kShort = 100;
constexpr std::size_t kLong = 100'000;

class EngineTarget : public TargetWorld {
 protected:
  template <class T>
  static std::vector<std::byte> bytes_of(T value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  template <class T>
  static T value_of(const std::vector<std::byte>& bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  void put_long() {
    std::vector<std::byte> memory(kLong);
    append(1, entry_of(memory));
    auto data = pattern(kLong);
    ASSERT_EQ(start(0, 1, put_from(0, data)), Status::kOk);
    settle();
    EXPECT_EQ(memory, data);
  }
  /// To an entry that forbids acknowledgements, from a peer and from the process itself, short and long.
  void put_untold() {
    std::vector<std::byte> memory(kLong);
    append(1, entry_of(memory, kNoAcknowledgement));
    auto small = pattern(kShort), large = pattern(kLong);
    for (const std::uint32_t from : {0u, 1u}) {
      for (std::vector<std::byte>* const data : {&small, &large}) {
        for (const auto wanted : {TargetAcknowledgement::kFull, TargetAcknowledgement::kCounting,
                                  TargetAcknowledgement::kCompleted}) {
          TargetRequest request = put_from(from, *data);
          request.acknowledgement = wanted;
          request.source.options |= kCountAck;
          ASSERT_EQ(start(from, 1, request), Status::kOk);
          settle();
          EXPECT_EQ(begun(from), "send 0");
          EXPECT_EQ(came(1), "put " + std::to_string(data->size()));
          EXPECT_EQ(at(from).interface->counted(at(from).initiator_counter), (TargetCount{0, 0}));
          EXPECT_TRUE(at(from).engine->idle()) << "the operation is over";
        }
      }
    }
    // What is refused is told.
    TargetRequest request = put_from(0, small);
    request.table = kTable + 1;
    ASSERT_EQ(start(0, 1, request), Status::kOk);
    settle();
    EXPECT_EQ(take(0, at(0).initiator_queue).size(), 2u);
  }
  TargetRequest atomic_from(std::uint32_t i, std::vector<std::byte>& memory, TargetOperation operation,
                            AtomicOperation atomic, AtomicType type) {
    TargetRequest request = put_from(i, memory);
    request.operation = operation;
    request.atomic_operation = atomic;
    request.atomic_type = type;
    return request;
  }
};

// ---- puts ----

TEST_F(EngineTarget, AShortPutArrivesInItsSlot) {
  make();
  std::vector<std::byte> memory(kShort + 10);
  append(1, entry_of(memory));
  auto data = pattern(kShort);
  TargetRequest request = put_from(0, data);
  request.offset_bytes = 10;
  request.header_data = 77;
  request.bits = MatchBits{5};
  int cookie = 0;
  request.cookie = &cookie;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin() + 10));
  const auto came = take(1, at(1).target_queue);
  ASSERT_EQ(in_words(came), "put 100");
  EXPECT_EQ(came[0].header.header_data, 77u);
  EXPECT_EQ(came[0].header.key.bits, MatchBits{5});
  EXPECT_EQ(came[0].header.key.initiator, make_logical_id(0));
  EXPECT_EQ(came[0].header.offset_bytes, 10u);
  EXPECT_EQ(came[0].start, memory.data() + 10);
  const auto begun = take(0, at(0).initiator_queue);
  ASSERT_EQ(in_words(begun), "send 0, ack 100");
  EXPECT_EQ(begun[1].header.offset_bytes, 10u);
  EXPECT_EQ(begun[1].cookie, &cookie);
}

TEST_F(EngineTarget, AnEntryMayForbidAcknowledgements) {
  make();
  put_untold();
}

TEST_F(EngineTarget, AnEntryMayForbidAcknowledgementsWhereNothingIsWritten) {
  network_config.write = false;
  make();
  put_untold();
}

TEST_F(EngineTarget, ALongPutIsWritten) {
  make();
  put_long();
  EXPECT_EQ(came(1), "put 100000");
  EXPECT_EQ(begun(0), "send 0, ack 100000");
  EXPECT_EQ(at(0).engine->counters().bulk_written, 1u);
  EXPECT_EQ(at(0).provider->regions() + at(1).provider->regions(), 0u);
}

TEST_F(EngineTarget, ALongPutGoesThroughSlotsWhereNothingIsWritten) {
  network_config.write = false;
  make();
  put_long();
  EXPECT_EQ(begun(0), "send 0, ack 100000");
  EXPECT_EQ(at(0).engine->counters().bulk_bounced, 1u);
}

TEST_F(EngineTarget, ALongPutIsCutToTheRoomOfTheEntry) {
  make();
  std::vector<std::byte> memory(kLong);
  TargetDescription entry = entry_of(memory);
  entry.length_bytes = 60'000;
  append(1, entry);
  auto data = pattern(kLong);
  TargetRequest request = put_from(0, data);
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 60'000, memory.begin()));
  EXPECT_EQ(std::count(memory.begin() + 60'000, memory.end(), std::byte{0}), 40'000);
  EXPECT_EQ(begun(0), "send 0, ack 60000");
  request.offset_bytes = 60'000;  // No room at all: there is nothing to clear.
  request.acknowledgement = TargetAcknowledgement::kNone;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "send 0");
  EXPECT_EQ(came(1), "put 60000, put 0");
}

TEST_F(EngineTarget, APutWithoutAnAcknowledgementEndsWhenItHasLeft) {
  make();
  std::vector<std::byte> memory(kLong);
  append(1, entry_of(memory));
  for (const std::size_t length : {std::size_t{0}, kShort, kLong}) {
    auto data = pattern(length);
    TargetRequest request = put_from(0, data);
    request.acknowledgement = TargetAcknowledgement::kNone;
    ASSERT_EQ(start(0, 1, request), Status::kOk);
    settle();
    EXPECT_EQ(begun(0), "send 0");
    EXPECT_EQ(came(1), "put " + std::to_string(length));
  }
}

TEST_F(EngineTarget, PutsOfAnInitiatorMatchInTheOrderInWhichTheyWereMade) {
  network_config.slots_per_pair = 2;
  make();
  std::vector<std::vector<std::byte>> memories(40, std::vector<std::byte>(kLong));
  for (auto& memory : memories) append(1, entry_of(memory, kUseOnce | kNoUnlinkEvent));
  std::vector<std::vector<std::byte>> data;
  for (std::size_t i = 0; i < memories.size(); ++i) data.push_back(pattern(i % 3 == 0 ? kLong : i, i));
  for (auto& each : data) ASSERT_EQ(start(0, 1, put_from(0, each)), Status::kOk);
  settle();
  for (std::size_t i = 0; i < memories.size(); ++i)
    EXPECT_TRUE(std::equal(data[i].begin(), data[i].end(), memories[i].begin())) << i;
}

TEST_F(EngineTarget, AnUnexpectedLongPutIsToldWhenItsDataIsThere) {
  make();
  std::vector<std::byte> memory(kLong);
  append(1, entry_of(memory, kNoCommEvent), TargetListKind::kOverflow);
  auto data = pattern(kLong);
  ASSERT_EQ(start(0, 1, put_from(0, data)), Status::kOk);
  while (table(1).waiting_headers() == 0) step();
  append(1, entry_of(memory));
  EXPECT_EQ(came(1), "");
  settle();
  EXPECT_EQ(came(1), "put-overflow 100000");
}

// ---- gets ----

TEST_F(EngineTarget, AGetReturnsTheMemoryOfAnEntry) {
  for (const bool write : {true, false}) {
    processes.clear();
    cards.clear();
    network_config.write = write;
    make();
    auto memory = pattern(kLong);
    append(1, entry_of(memory));
    for (const std::size_t length : {std::size_t{0}, kShort, kLong}) {
      std::vector<std::byte> data(length);
      ASSERT_EQ(start(0, 1, get_from(0, data)), Status::kOk);
      settle();
      EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin()));
      EXPECT_EQ(begun(0), "reply " + std::to_string(length));
      EXPECT_EQ(came(1), "get " + std::to_string(length));
    }
    EXPECT_EQ(at(1).engine->counters().bulk_written, write ? 1u : 0u);
    EXPECT_EQ(at(0).provider->regions() + at(1).provider->regions(), 0u);
  }
}

TEST_F(EngineTarget, AGetIsCutToTheRoomOfTheEntry) {
  make();
  auto memory = pattern(kLong);
  append(1, entry_of(memory));
  std::vector<std::byte> data(kLong);
  TargetRequest request = get_from(0, data);
  request.offset_bytes = 30'000;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  const auto events = take(0, at(0).initiator_queue);
  ASSERT_EQ(in_words(events), "reply 70000");
  EXPECT_EQ(events[0].header.offset_bytes, 30'000u);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 70'000, memory.begin() + 30'000));
  request.offset_bytes = kLong;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "reply 0");
}

TEST_F(EngineTarget, AnEntryThatIsReadIsInUseUntilTheDataHasLeft) {
  make();
  auto memory = pattern(kLong);
  const TargetId id = append(1, entry_of(memory));
  std::vector<std::byte> data(kLong);
  ASSERT_EQ(start(0, 1, get_from(0, data)), Status::kOk);
  while (table(1).in_flight() == 0) step();
  EXPECT_EQ(table(1).unlink(id), TargetTable::Unlinked::kInUse);
  settle();
  EXPECT_EQ(table(1).unlink(id), TargetTable::Unlinked::kOk);
}

// ---- atomic operations ----

TEST_F(EngineTarget, AnAtomicChangesTheTarget) {
  make();
  auto memory = bytes_of(std::uint64_t{40});
  append(1, entry_of(memory));
  auto data = bytes_of(std::uint64_t{2});
  ASSERT_EQ(
      start(0, 1, atomic_from(0, data, TargetOperation::kAtomic, AtomicOperation::kSum, AtomicType::kUint64)),
      Status::kOk);
  settle();
  EXPECT_EQ(value_of<std::uint64_t>(memory), 42u);
  EXPECT_EQ(came(1), "atomic 8");
  EXPECT_EQ(begun(0), "send 0, ack 8");
}

TEST_F(EngineTarget, AFetchAtomicReturnsTheOldValue) {
  make();
  auto memory = bytes_of(std::int32_t{40});
  append(1, entry_of(memory));
  auto data = bytes_of(std::int32_t{-2});
  std::vector<std::byte> old(4);
  TargetRequest request =
      atomic_from(0, data, TargetOperation::kFetchAtomic, AtomicOperation::kMin, AtomicType::kInt32);
  request.destination = origin_of(0, old);
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(value_of<std::int32_t>(memory), -2);
  EXPECT_EQ(value_of<std::int32_t>(old), 40);
  EXPECT_EQ(came(1), "fetch-atomic 4");
  EXPECT_EQ(begun(0), "send 0, reply 4");
}

/// MPI_NO_OP is such a fetch, and the memory's owner may store to it meanwhile. Here the memory is read-only.
TEST_F(EngineTarget, AFetchThatChangesNothingDoesNotWrite) {
  make();
  struct Unmap {
    void operator()(void* page) const { ::munmap(page, 4096); }
  };
  const std::unique_ptr<void, Unmap> page(
      ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(page.get(), MAP_FAILED);
  std::vector<std::byte> zeros(8), old = pattern(8);
  TargetDescription entry = entry_of(zeros);
  entry.start = static_cast<std::byte*>(page.get());
  for (const std::uint32_t target : {1u, 0u}) {
    append(target, entry);
    TargetRequest request =
        atomic_from(0, zeros, TargetOperation::kFetchAtomic, AtomicOperation::kBitOr, AtomicType::kUint8);
    request.destination = origin_of(0, old);
    ASSERT_EQ(start(0, target, request), Status::kOk);
    settle();
    EXPECT_EQ(old, zeros);
    old = pattern(8);
  }
}

TEST_F(EngineTarget, ASwapMayDependOnAnOperand) {
  make();
  auto memory = bytes_of(std::uint64_t{40});
  append(1, entry_of(memory));
  auto data = bytes_of(std::uint64_t{7});
  std::vector<std::byte> old(8);
  TargetRequest request =
      atomic_from(0, data, TargetOperation::kSwap, AtomicOperation::kCompareSwap, AtomicType::kUint64);
  request.destination = origin_of(0, old);
  const auto run = [&](std::uint64_t operand) {
    std::memcpy(request.operand.data(), &operand, sizeof operand);
    ASSERT_EQ(start(0, 1, request), Status::kOk);
    settle();
    EXPECT_EQ(value_of<std::uint64_t>(old), 40u);
  };
  run(41);
  EXPECT_EQ(value_of<std::uint64_t>(memory), 40u);
  run(40);
  EXPECT_EQ(value_of<std::uint64_t>(memory), 7u);
}

TEST_F(EngineTarget, ALongFetchReturnsWhatWasThereWhenItArrived) {
  make();
  auto memory = pattern(3000);
  const auto before = memory;
  append(1, entry_of(memory));
  auto data = pattern(3000, 9);
  std::vector<std::byte> old(3000);
  TargetRequest request =
      atomic_from(0, data, TargetOperation::kSwap, AtomicOperation::kSwap, AtomicType::kUint8);
  request.destination = origin_of(0, old);
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(old, before);
  EXPECT_EQ(memory, data);
}

TEST_F(EngineTarget, AnAtomicThatDoesNotFitASlotFails) {
  make();
  auto data = pattern(5000);
  ASSERT_EQ(
      start(0, 1, atomic_from(0, data, TargetOperation::kAtomic, AtomicOperation::kSum, AtomicType::kUint8)),
      Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "send undeliverable 0, ack undeliverable 0");
  EXPECT_EQ(at(0).failures.size(), 0u);
}

TEST_F(EngineTarget, WhatThereIsNotIsRefusedAtOnce) {
  make();
  auto data = pattern(8);
  const auto refused = [&](const TargetRequest& request) {
    return start(0, 1, request) == Status::kUnsupported;
  };
  using enum TargetOperation;
  EXPECT_TRUE(refused(atomic_from(0, data, kAtomic, AtomicOperation::kBitOr, AtomicType::kDouble)));
  EXPECT_TRUE(refused(atomic_from(0, data, kAtomic, AtomicOperation::kSwap, AtomicType::kUint64)));
  EXPECT_TRUE(refused(atomic_from(0, data, kSwap, AtomicOperation::kSum, AtomicType::kUint64)));
  EXPECT_TRUE(refused(atomic_from(0, data, kAtomic, AtomicOperation::kSum, AtomicType::kLongDouble)));
  EXPECT_TRUE(refused(atomic_from(0, data, kFetchAtomic, AtomicOperation::kSum, AtomicType::kUint64)));
  TargetRequest request = put_from(0, data);
  request.interface = 1;
  EXPECT_TRUE(refused(request));
  request.interface = 200;
  EXPECT_TRUE(refused(request));
  EXPECT_EQ(at(0).engine->open_targets(0, {}, *at(0).board), nullptr);
  EXPECT_EQ(at(0).engine->open_targets(kTargetInterfaces, {}, *at(0).board), nullptr);
}

// ---- what is told ----

TEST_F(EngineTarget, CountsCountWhatTheOriginWants) {
  make();
  std::vector<std::byte> memory(50);
  append(1, entry_of(memory));
  auto data = pattern(kShort);
  TargetRequest request = put_from(0, data);
  request.acknowledgement = TargetAcknowledgement::kCounting;
  request.source.options = kNoSendEvent | kCountSend | kCountAck;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "");
  EXPECT_EQ(begun_count(0), (TargetCount{2, 0}));
  request.source.options |= kCountOriginBytes;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun_count(0), (TargetCount{2 + 100 + 50, 0}));
  request.table = 9;  // There is none.
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun_count(0), (TargetCount{252, 1}));
  request.acknowledgement = TargetAcknowledgement::kCompleted;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun_count(0), (TargetCount{452, 1}));
}

TEST_F(EngineTarget, SuccessesThatAnOriginDoesNotWantAreNotTold) {
  make();
  std::vector<std::byte> memory(kShort);
  append(1, entry_of(memory));
  auto data = pattern(kShort);
  TargetRequest request = put_from(0, data);
  request.source.options = kNoOriginSuccessEvent;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "");
  request.table = 9;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "ack dropped 0");
}

// ---- what is refused ----

TEST_F(EngineTarget, ARefusalSaysWhyAndChangesNothing) {
  make();
  std::vector<std::byte> memory(kLong);
  TargetDescription others = entry_of(memory);
  others.ignore.bits = MatchBits{0};
  others.key.bits = MatchBits{1};
  others.user = UserId{99};
  append(1, others);
  TargetDescription for_gets = others;
  for_gets.key.bits = MatchBits{2};
  for_gets.user = kAnyUser;
  for_gets.options &= ~kAllowPut;
  append(1, for_gets);
  for (const std::size_t length : {kShort, kLong}) {
    auto data = pattern(length);
    TargetRequest request = put_from(0, data);
    for (const std::uint64_t bits : {1, 2, 3}) {
      request.bits = MatchBits{bits};
      ASSERT_EQ(start(0, 1, request), Status::kOk);
    }
    settle();
    EXPECT_EQ(begun(0), length == kShort ? "send 0, send 0, send 0, ack permission-violation 0, ack "
                                           "operation-violation 0, ack dropped 0"
                                         : "send 0, ack permission-violation 0, send 0, ack "
                                           "operation-violation 0, send 0, ack dropped 0");
  }
  std::vector<std::byte> data(kLong);
  TargetRequest request = get_from(0, data);
  request.bits = MatchBits{1};
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "reply permission-violation 0");
  table(1).disable();
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "reply table-disabled 0");
  EXPECT_EQ(came(1), "");
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), static_cast<std::ptrdiff_t>(kLong));
  const TargetRegisterWords& registers = at(1).board->registers;
  EXPECT_EQ(registers.permission_violations, 3u);
  EXPECT_EQ(registers.operation_violations, 2u);
  EXPECT_EQ(registers.drops, 3u);
}

TEST_F(EngineTarget, ALongPutThatNobodyAcknowledgesIsRefusedAllTheSame) {
  make();
  auto data = pattern(kLong);
  TargetRequest request = put_from(0, data);
  request.acknowledgement = TargetAcknowledgement::kNone;
  ASSERT_EQ(start(0, 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "send 0");
}

TEST_F(EngineTarget, FlowControlTellsBothSides) {
  has_flow_control = true;
  make();
  auto data = pattern(kShort);
  ASSERT_EQ(start(0, 1, put_from(0, data)), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "send 0, ack table-disabled 0");
  EXPECT_EQ(came(1), "table-disabled 0");
  std::vector<std::byte> memory(kShort);
  append(1, entry_of(memory));
  table(1).enable();
  ASSERT_EQ(start(0, 1, put_from(0, data)), Status::kOk);
  settle();
  EXPECT_EQ(begun(0), "send 0, ack 100");
}

// ---- answers ----

TEST_F(EngineTarget, AnAnswerSaysWhichListHasTheEntry) {
  for (const TargetListKind list : {TargetListKind::kPriority, TargetListKind::kOverflow}) {
    processes.clear();
    cards.clear();
    make();
    std::vector<std::byte> memory(kLong);
    std::vector<std::byte> old(8);
    for (const std::uint32_t to : {0U, 1U}) {
      append(to, entry_of(memory, kNoUnexpectedHeader), list);
      for (const std::size_t length : {std::size_t{0}, kShort, kLong}) {
        auto data = pattern(length);
        ASSERT_EQ(start(0, to, put_from(0, data)), Status::kOk);
        settle();
        ASSERT_EQ(start(0, to, get_from(0, data)), Status::kOk);
        settle();
      }
      auto one = bytes_of(std::uint64_t{1});
      TargetRequest request =
          atomic_from(0, one, TargetOperation::kFetchAtomic, AtomicOperation::kSum, AtomicType::kUint64);
      request.destination = origin_of(0, old);
      ASSERT_EQ(start(0, to, request), Status::kOk);
      settle();
    }
    int answers = 0;
    for (const TargetEvent& event : take(0, at(0).initiator_queue)) {
      if (event.kind == TargetEventKind::kSend) continue;
      EXPECT_EQ(event.list, list) << name_of(event.kind) << event.length_bytes;
      ++answers;
    }
    EXPECT_EQ(answers, 14);
  }
}

// ---- a process and itself ----

TEST_F(EngineTarget, AProcessReachesItsOwnEntries) {
  make(1);
  std::vector<std::byte> memory(kLong);
  append(0, entry_of(memory));
  auto data = pattern(kLong);
  ASSERT_EQ(start(0, 0, put_from(0, data)), Status::kOk);
  EXPECT_EQ(memory, data);
  EXPECT_EQ(came(0), "put 100000");
  EXPECT_EQ(begun(0), "send 0, ack 100000");
  std::vector<std::byte> copy(kLong);
  ASSERT_EQ(start(0, 0, get_from(0, copy)), Status::kOk);
  EXPECT_EQ(copy, data);
  EXPECT_EQ(begun(0), "reply 100000");
  auto one = bytes_of(std::uint64_t{1});
  std::vector<std::byte> old(8);
  TargetRequest request =
      atomic_from(0, one, TargetOperation::kFetchAtomic, AtomicOperation::kSum, AtomicType::kUint64);
  request.destination = origin_of(0, old);
  ASSERT_EQ(start(0, 0, request), Status::kOk);
  EXPECT_EQ(value_of<std::uint64_t>(old) + 1, value_of<std::uint64_t>(memory));
  EXPECT_EQ(begun(0), "send 0, reply 8");
  request.table = 9;
  ASSERT_EQ(start(0, 0, request), Status::kOk);
  EXPECT_EQ(begun(0), "send 0, reply dropped 0");
}

TEST_F(EngineTarget, AProcessMayPutWithinTheMemoryOfAnEntry) {
  make(1);
  auto memory = pattern(kLong);
  const auto before = memory;
  append(0, entry_of(memory));
  TargetRequest request = put_from(0, memory);
  request.source.memory.length_bytes = kLong - 1000;
  request.offset_bytes = 1000;
  ASSERT_EQ(start(0, 0, request), Status::kOk);
  EXPECT_TRUE(std::equal(memory.begin() + 1000, memory.end(), before.begin()));
}

TEST_F(EngineTarget, LongOperationsOnOneselfTakeTurns) {
  self_copy_bytes = 30'000;
  make(1);
  std::vector<std::byte> memory(kLong), copy(kLong);
  const TargetId id = append(0, entry_of(memory));
  auto data = pattern(kLong);
  ASSERT_EQ(start(0, 0, put_from(0, data)), Status::kOk);
  ASSERT_EQ(start(0, 0, get_from(0, copy)), Status::kOk);
  EXPECT_EQ(begun(0), "");
  EXPECT_EQ(table(0).unlink(id), TargetTable::Unlinked::kInUse);
  int turns = 0;
  while (table(0).in_flight() > 0) {
    ASSERT_TRUE(progress(0));
    ++turns;
  }
  EXPECT_EQ(turns, 8);  // 4 of each.
  EXPECT_EQ(memory, data);
  EXPECT_EQ(copy, data);  // Each part of the get follows that of the put.
  EXPECT_EQ(came(0), "put 100000, get 100000");
  EXPECT_EQ(begun(0), "send 0, ack 100000, reply 100000");
  EXPECT_TRUE(at(0).engine->at_rest());
  EXPECT_EQ(table(0).unlink(id), TargetTable::Unlinked::kOk);
}

TEST_F(EngineTarget, AnAtomicOnOneselfThatIsTooLongForATurnFails) {
  self_copy_bytes = 80;
  make(1);
  std::vector<std::byte> memory(88);
  append(0, entry_of(memory));
  std::vector<std::byte> ones(88, std::byte{1});
  ASSERT_EQ(
      start(0, 0, atomic_from(0, ones, TargetOperation::kAtomic, AtomicOperation::kSum, AtomicType::kUint8)),
      Status::kOk);
  EXPECT_EQ(begun(0), "send undeliverable 0, ack undeliverable 0");
  EXPECT_EQ(memory, std::vector<std::byte>(88));
  ones.resize(80);
  ASSERT_EQ(
      start(0, 0, atomic_from(0, ones, TargetOperation::kAtomic, AtomicOperation::kSum, AtomicType::kUint8)),
      Status::kOk);
  EXPECT_EQ(begun(0), "send 0, ack 80");
  EXPECT_EQ(memory[79], std::byte{1});
}

// ---- failures ----

TEST_F(EngineTarget, AnInitiatorHearsOfTheDeathOfItsTarget) {
  make();
  std::vector<std::byte> memory(kLong);
  append(1, entry_of(memory));
  auto put = pattern(kShort);
  auto long_put = pattern(kLong);
  std::vector<std::byte> get(kLong);
  ASSERT_EQ(start(0, 1, put_from(0, put)), Status::kOk);
  settle();
  begun(0);
  kill(1);
  ASSERT_EQ(start(0, 1, put_from(0, put)), Status::kOk);
  ASSERT_EQ(start(0, 1, put_from(0, long_put)), Status::kOk);
  ASSERT_EQ(start(0, 1, get_from(0, get)), Status::kOk);
  settle();
  EXPECT_EQ(begun(0),
            "send 0, ack undeliverable 0, send undeliverable 0, ack undeliverable 0, reply undeliverable 0");
  EXPECT_EQ(at(0).failures.size(), 1u);
  EXPECT_EQ(start(0, 1, put_from(0, put)), Status::kPeerFailed);
  EXPECT_EQ(at(0).provider->regions(), 0u);
}

TEST_F(EngineTarget, ATargetHearsOfTheDeathOfAnInitiatorWhoseDataIsDue) {
  make();
  std::vector<std::byte> memory(kLong);
  const TargetId id = append(1, entry_of(memory));
  auto data = pattern(kLong);
  ASSERT_EQ(start(0, 1, put_from(0, data)), Status::kOk);
  while (table(1).in_flight() == 0) step();
  kill(0);
  settle();
  EXPECT_EQ(came(1), "put undeliverable 100000");
  EXPECT_EQ(table(1).unlink(id), TargetTable::Unlinked::kOk);
  EXPECT_EQ(at(1).provider->regions(), 0u);
}

TEST_F(EngineTarget, ATargetHearsOfTheDeathOfAnInitiatorThatItHadToAnswer) {
  network_config.slots_per_pair = 1;
  make();
  auto memory = pattern(kLong);
  const TargetId id = append(1, entry_of(memory));
  std::vector<std::byte> data(kLong);
  ASSERT_EQ(start(0, 1, get_from(0, data)), Status::kOk);
  while (table(1).in_flight() == 0) step();
  kill(0);
  settle();
  EXPECT_EQ(came(1), "get undeliverable 100000");
  EXPECT_EQ(table(1).unlink(id), TargetTable::Unlinked::kOk);
}

TEST_F(EngineTarget, MessagesGoOnBesideOperations) {
  make();
  std::vector<std::byte> memory(kLong);
  append(1, entry_of(memory));
  auto data = pattern(kLong);
  auto message = pattern(kLong, 5);
  std::vector<std::byte> received(kLong);
  ASSERT_EQ(start(0, 1, put_from(0, data)), Status::kOk);
  OperationId operation{};
  Status status = Status::kOk;
  Envelope envelope;
  const MatchKey key = make_match_key(1, 0, 2);
  EXPECT_EQ(at(0).engine->send(PeerId{1}, SendMode::kStandard, key, {message.data(), kLong, nullptr}, 0,
                               nullptr, operation, status),
            Progressed::kPending);
  EXPECT_EQ(at(1).engine->post_receive(key, kIgnoreNothing, {received.data(), kLong, nullptr}, nullptr,
                                       operation, envelope),
            Progressed::kPending);
  settle();
  EXPECT_EQ(memory, data);
  EXPECT_EQ(received, message);
}

}  // namespace engine_target_test
}  // namespace ch3_offload
