// A second client in another process: what its processor reaches of its memory, and what of it the processor
// does not believe.

#include "nic/target_addresses.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "nic/process_targets.h"
#include "nic/target_ports_world.h"

namespace ch3_offload {
namespace {

class TargetAddressesTest : public TargetPortsWorld {
 protected:
  TargetAddressesTest() : TargetPortsWorld(TargetDriver::kOther) {}

  /// Memory that the process shares with its processor.
  std::span<std::byte> shared(std::uint32_t i, std::size_t length_bytes) {
    std::byte* const block = others[i]->told()->allocate(length_bytes);
    EXPECT_NE(block, nullptr);
    return {block, length_bytes};
  }
  static TargetOrigin with(TargetOrigin origin, std::span<std::byte> memory) {
    origin.memory = {memory.data(), memory.size(), nullptr};
    return origin;
  }
  SteppedSide& side(std::uint32_t i) { return static_cast<SteppedSide&>(*clients[i].side); }
};

TEST_F(TargetAddressesTest, SharedMemoryIsReachedWhereItIsMapped) {
  make();
  for (const std::size_t length : {std::size_t{8}, std::size_t{5000}, std::size_t{1} << 20}) {
    const auto memory = shared(1, length), source = shared(0, length), back = shared(0, length);
    std::vector<std::byte> data = pattern(length), none;
    std::ranges::copy(data, source.begin());
    std::ranges::fill(memory, std::byte{});
    TargetDescription entry = entry_of(1, none);
    entry.start = memory.data();
    entry.length_bytes = length;
    const TargetId id = append(1, entry);
    TargetRequest put = put_from(0, none);
    put.source = with(put.source, source);
    ASSERT_EQ(port(0).request(process_of(1), put), Status::kOk);
    expect_begun(0, "send 0, ack " + std::to_string(length));
    expect_came(1, "put " + std::to_string(length));
    EXPECT_TRUE(std::ranges::equal(memory, data));
    EXPECT_EQ(came_events.back().start, memory.data()) << "addresses in events are the client's";
    TargetRequest get = get_from(0, none);
    get.destination = with(get.destination, back);
    ASSERT_EQ(port(0).request(process_of(1), get), Status::kOk);
    expect_begun(0, "reply " + std::to_string(length));
    expect_came(1, "get " + std::to_string(length));
    EXPECT_TRUE(std::ranges::equal(back, data));
    EXPECT_EQ(port(1).unlink(0, kTable, id), TargetTable::Unlinked::kOk);
  }
}

/// The processor keeps what an entry, a board and a ring use.
TEST_F(TargetAddressesTest, WhatIsTakenBackIsHarmlessAsLongAsItIsUsed) {
  make();
  constexpr std::size_t kBytes = std::size_t{128} << 20;  // The arena keeps no block so long.
  const auto memory = shared(1, kBytes);
  std::vector<std::byte> data = pattern(100'000), none;
  TargetDescription entry = entry_of(1, none);
  entry.start = memory.data();
  entry.length_bytes = kBytes;
  append(1, entry);
  others[1]->told()->give_back(memory.data());
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack 100000");
  expect_came(1, "put 100000");
}

TEST_F(TargetAddressesTest, EntriesAndRequestsInPieces) {
  make();
  std::vector<std::byte> first(3000), second(5000), data = pattern(10'000), back(8000);
  const Piece of_entry[] = {{reinterpret_cast<std::ptrdiff_t>(first.data()), first.size()},
                            {reinterpret_cast<std::ptrdiff_t>(second.data()), second.size()}};
  PayloadLayout entry_layout{.kind = PayloadLayout::Kind::kPieces, .piece_count = 2, .pieces = of_entry};
  entry_layout.element_bytes = entry_layout.extent_bytes = 8000;
  TargetDescription entry = entry_of(1, first);
  entry.start = nullptr;
  entry.length_bytes = 8000;
  entry.layout = &entry_layout;
  append(1, entry);
  // The middle 8,000 bytes of `data`, the second half of them first.
  const Piece of_source[] = {{5000, 4000}, {1000, 4000}};
  PayloadLayout source_layout{.kind = PayloadLayout::Kind::kPieces, .piece_count = 2, .pieces = of_source};
  source_layout.element_bytes = 8000;
  TargetRequest put = put_from(0, data);
  put.source.memory = {data.data(), 8000, &source_layout};
  put.offset_bytes = 0;
  ASSERT_EQ(port(0).request(process_of(1), put), Status::kOk);
  expect_begun(0, "send 0, ack 8000");
  expect_came(1, "put 8000");
  EXPECT_EQ(came_events.back().start, first.data());
  EXPECT_EQ(std::memcmp(first.data(), data.data() + 5000, 3000), 0);
  EXPECT_EQ(std::memcmp(second.data(), data.data() + 8000, 1000), 0);
  EXPECT_EQ(std::memcmp(second.data() + 1000, data.data() + 1000, 4000), 0);
  TargetRequest get = get_from(0, back);
  get.destination.memory.length_bytes = 100;
  get.offset_bytes = 2950;
  ASSERT_EQ(port(0).request(process_of(1), get), Status::kOk);
  expect_begun(0, "reply 100");
  expect_came(1, "get 100");
  EXPECT_EQ(came_events.back().start, first.data() + 2950);
  EXPECT_EQ(std::memcmp(back.data(), first.data() + 2950, 50), 0);
  EXPECT_EQ(std::memcmp(back.data() + 50, second.data(), 50), 0);
}

/// Private and shared memory behind the same entry.
TEST_F(TargetAddressesTest, AnEntryMayCoverTheWholeAddressSpace) {
  make();
  const auto memory = shared(1, 8);
  std::vector<std::byte> own(8), operand(8), old(8), none;
  std::ranges::fill(memory, std::byte{});
  operand[0] = std::byte{5};
  TargetDescription entry = entry_of(1, none);
  entry.start = nullptr;
  entry.length_bytes = UINT64_MAX;
  append(1, entry);
  for (std::byte* const at : {memory.data(), own.data()}) {
    for (std::uint8_t before = 0; before < 10; before += 5) {
      TargetRequest add = sum_from(0, operand, old);
      add.offset_bytes = reinterpret_cast<std::uint64_t>(at);
      ASSERT_EQ(port(0).request(process_of(1), add), Status::kOk);
      expect_begun(0, "send 0, reply 8");
      EXPECT_EQ(old[0], std::byte{before});
    }
    EXPECT_EQ(at[0], std::byte{10});
    EXPECT_TRUE(until([&] { return !came(1).empty(); }));
    EXPECT_EQ(came_events.back().start, at);
  }
}

/// The source may change as soon as request() has returned.
TEST_F(TargetAddressesTest, AVolatileSourceIsNotRead) {
  make();
  std::vector<std::byte> memory(8), data = pattern(8);
  append(1, entry_of(1, memory));
  TargetRequest put = put_from(0, data, kVolatile);
  std::memcpy(put.volatile_bytes.data(), data.data(), data.size());
  put.source.memory.address = reinterpret_cast<std::byte*>(8);
  ASSERT_EQ(port(0).request(process_of(1), put), Status::kOk);
  expect_begun(0, "send 0, ack 8");
  EXPECT_EQ(memory, data);
}

TEST_F(TargetAddressesTest, ATriggeredRequestKeepsItsMemory) {
  make();
  std::vector<std::byte> memory(100'000), data = pattern(100'000);
  append(1, entry_of(1, memory));
  ASSERT_EQ(port(0).trigger({clients[0].came_counter, 1}, process_of(1), put_from(0, data)), Status::kOk);
  port(0).change_counter(0, {TargetCountChange::Kind::kAdd, clients[0].came_counter, {1, 0}});
  expect_begun(0, "send 0, ack 100000");
  EXPECT_EQ(memory, data);
}

TEST_F(TargetAddressesTest, WhereTheClientIsToldMustBeShared) {
  make(1);
  const auto own_board = std::make_unique<TargetBoard>();
  const auto own_ring = TargetEventMemory::make(10, 1);
  EXPECT_EQ(port(0).open(1, {}, *own_board), Status::kUnsupported);
  EXPECT_EQ(port(0).make_queue(0, own_ring->ring), kNoQueue);
  const TargetBoardMemory board = make_board(others[0]->told());
  TargetInterfaceConfig greedy;
  greedy.limits.most_headers = std::size_t{1} << 40;
  EXPECT_EQ(port(0).open(1, greedy, *board), Status::kUnsupported);
  EXPECT_EQ(port(0).open(1, {}, *board), Status::kOk);
  close(0);
  EXPECT_TRUE(port(0).close(1));
}

TEST_F(TargetAddressesTest, ARingIsNoLongerThanItsMemory) {
  make(1);
  const auto memory = TargetEventMemory::make(others[0]->told(), 10, 0);
  TargetEventRing ring = memory->ring;
  for (const std::uint64_t capacity : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, UINT64_MAX,
                                       UINT64_MAX / sizeof(TargetEventRing::Slot) + 2}) {
    ring.capacity = capacity;
    EXPECT_EQ(port(0).make_queue(0, ring), kNoQueue) << capacity;
  }
  ring = memory->ring;
  ring.reservable = ring.capacity + 1;
  EXPECT_EQ(port(0).make_queue(0, ring), kNoQueue);
  ring = memory->ring;
  ring.words = nullptr;
  EXPECT_EQ(port(0).make_queue(0, ring), kNoQueue);
  EXPECT_NE(port(0).make_queue(0, memory->ring), kNoQueue);
  std::vector<QueueId> queues;
  for (QueueId one{}; (one = port(0).make_queue(0, memory->ring)) != kNoQueue;) queues.push_back(one);
  EXPECT_EQ(queues.size(), TargetAddresses::kMostQueues - 3) << "those of the world, and one";
  port(0).free_queue(0, queues.back());
  EXPECT_NE(port(0).make_queue(0, memory->ring), kNoQueue);
  close(0);
}

/// The positions, counts and slots are the client's to spoil.
TEST_F(TargetAddressesTest, AClientThatOverwritesWhatItIsToldHarmsOnlyItself) {
  make();
  std::vector<std::byte> memory(8), data = pattern(8);
  append(1, entry_of(1, memory, kCountComm));
  TargetEventRing& ring = clients[1].came->ring;
  for (const std::uint64_t rubbish : {UINT64_MAX, std::uint64_t{1} << 63, std::uint64_t{0}}) {
    ring.words->taken = rubbish;
    ring.words->written = rubbish + 1;
    std::memset(static_cast<void*>(ring.slots), 0xFF, ring.capacity * sizeof *ring.slots);
    std::memset(static_cast<void*>(clients[1].board.get()), 0xFF, sizeof(TargetBoard));
    for (int i = 0; i < 1500; ++i) {
      ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
      expect_begun(0, "send 0, ack 8");
    }
  }
  EXPECT_EQ(memory, data);
}

/// What the driver of a process does when its processor has ended.
struct FakeNicd final : NicdProcess, SharesMemory {
  void rest_in(ProcessorWait&) noexcept override { ++waits; }
  void check_processor() noexcept override { ++checks; }
  int connection() const noexcept override { return 17; }
  bool share(const std::byte*, std::size_t, const FileDescriptor&) noexcept override {
    shared += can_share ? 1 : 0;
    return can_share;
  }
  void unshare(const std::byte*) noexcept override { --shared; }
  bool can_share = true;
  unsigned waits = 0, checks = 0, shared = 0;
};

TEST(ProcessTargets, LookAtTheirProcessor) {
  FakeNicd nicd;
  PortMemory memory = std::move(PortMemory::make().value());
  ProcessTargets port(memory, short_wait(), nicd, nicd);
  EXPECT_EQ(port.descriptors().back(), 17);
  EXPECT_TRUE(port.arm());
  EXPECT_EQ(nicd.checks, 1u) << "before each sleep";
  port.disarm();
  for (int i = 0; i < 100'000; ++i) port.progress();
  EXPECT_GT(nicd.checks, 1u) << "and after many fruitless turns";
  nicd.checks = 0;
  memory.words().told = 1;
  EXPECT_EQ(port.progress(), 1u);
  EXPECT_EQ(nicd.checks, 0u);
}

TEST(ProcessTargets, MakeMemoryThatTheProcessorSeesAndThatOutlivesThem) {
  FakeNicd nicd;
  PortMemory memory = std::move(PortMemory::make().value());
  auto port = std::make_unique<ProcessTargets>(memory, short_wait(), nicd, nicd);
  TargetBoardMemory board = make_board(port->told_memory());
  ASSERT_NE(board, nullptr);
  EXPECT_EQ(nicd.shared, 1u);
  nicd.can_share = false;
  EXPECT_EQ(port->told_memory()->allocate(std::size_t{1} << 20), nullptr);
  port.reset();
  EXPECT_EQ(nicd.shared, 0u);
  board->registers.drops = 1;
}

}  // namespace
}  // namespace ch3_offload
