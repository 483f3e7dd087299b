// Windows of MPI over target entries: three processes with engines over the fake network, which are ranks of one job.

#include "ch3_offload/windows.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "nic/host_driver.h"
#include "nic/host_targets.h"
#include "nic/rank_book.h"
#include "nic/shared_arena.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kRanks = 3;
constexpr std::size_t kAtomicBytes = 1024;

struct Rank {
  std::unique_ptr<FakeProvider> provider;
  std::unique_ptr<HostDriver> driver;
  std::unique_ptr<RankBook> book;
  std::unique_ptr<HostTargets> targets;
  std::unique_ptr<Windows> windows;
};

class WindowsTest : public testing::Test {
 protected:
  WindowsTest() {
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      Rank& rank = ranks[i];
      rank.provider = network.make_provider(PeerId{i});
      EngineConfig config;
      config.self = PeerId{i};
      config.senders = kRanks;
      Provider* const providers[] = {rank.provider.get()};
      rank.driver = std::make_unique<HostDriver>(config, providers);
      rank.book = std::make_unique<RankBook>(PeerId{i}, kRanks, UserId{1});
      rank.targets = std::make_unique<HostTargets>(*rank.driver, *rank.book);
      auto made = Windows::create(*rank.targets, kAtomicBytes);
      EXPECT_TRUE(made.ok());
      rank.windows = std::move(made.value());
    }
  }

  Windows& at(std::uint32_t i) { return *ranks[i].windows; }
  void progress(std::uint32_t i) {
    Rank& rank = ranks[i];
    if (rank.driver == nullptr) return;
    Event event;
    while (rank.driver->next_event(event))
      if (event.kind == Event::Kind::kCardWanted)
        rank.driver->introduce(event.peer, ranks[index_of(event.peer)].driver->card());
    static_cast<void>(rank.targets->progress());
  }
  void settle() {
    for (int i = 0; i < 300; ++i) {
      network.advance();
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) progress(rank);
    }
  }
  void kill(std::uint32_t i) {
    Rank& rank = ranks[i];
    network.kill(PeerId{i});
    rank.windows.reset();
    rank.targets.reset();
    rank.driver.reset();
    rank.provider.reset();
  }
  Windows::Id expose(std::uint32_t i, std::vector<std::byte>& memory) {
    Windows::Id id = 0;
    EXPECT_EQ(at(i).expose(memory, id), Status::kOk);
    return id;
  }

  static Payload payload(void* address, std::size_t length_bytes) {
    return {static_cast<std::byte*>(address), length_bytes, nullptr};
  }
  TargetRequest put(std::vector<std::byte>& data, std::uint64_t offset_bytes = 0) {
    TargetRequest request;
    request.operation = TargetOperation::kPut;
    request.source.memory = payload(data.data(), data.size());
    request.offset_bytes = offset_bytes;
    request.cookie = data.data();
    return request;
  }
  TargetRequest get(std::vector<std::byte>& data) {
    TargetRequest request;
    request.operation = TargetOperation::kGet;
    request.destination.memory = payload(data.data(), data.size());
    request.cookie = data.data();
    return request;
  }
  TargetRequest add(std::int64_t& source, std::int64_t& result) {
    TargetRequest request;
    request.operation = TargetOperation::kFetchAtomic;
    request.atomic_operation = AtomicOperation::kSum;
    request.atomic_type = AtomicType::kInt64;
    request.source.memory = payload(&source, sizeof source);
    request.destination.memory = payload(&result, sizeof result);
    request.cookie = &result;
    return request;
  }
  TargetRequest of_lock(TargetOperation operation) {
    TargetRequest request;
    request.operation = operation;
    request.cookie = this;
    return request;
  }
  /// The status of the only operation that is over. kAgain: none is.
  Status over(std::uint32_t i, const void* cookie) {
    Windows::Done done, more;
    if (!at(i).next(done)) return Status::kAgain;
    EXPECT_EQ(done.cookie, cookie);
    EXPECT_FALSE(at(i).next(more));
    return done.status;
  }

  FakeNetwork network{FakeConfig{}};
  Rank ranks[kRanks];
};

std::vector<std::byte> bytes_of(std::size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

/// A processor that maps what the client shares.
struct MappingProcessor final : SharesMemory {
  bool share(const std::byte*, std::size_t, const FileDescriptor&) noexcept override { return true; }
  void unshare(const std::byte*) noexcept override {}
};

TEST_F(WindowsTest, WhatTheProcessorHasNotMappedIsStagedIfItIsShortOrOutOfTheKernelsReach) {
  constexpr std::size_t kLong = Windows::kMostStagedBytes + 1;
  using Access = Windows::Access;
  MappingProcessor processor;
  SharedArena mapped(processor);
  ranks[0].windows.reset();
  auto made = Windows::create(*ranks[0].targets, kAtomicBytes, &mapped);
  ASSERT_TRUE(made.ok());
  const Windows& windows = *made.value();
  std::vector<std::byte> memory(kLong);
  EXPECT_FALSE(windows.should_stage(memory.data(), 0, Access::kResult));
  EXPECT_TRUE(windows.should_stage(memory.data(), 1, Access::kResult));
  EXPECT_TRUE(windows.should_stage(memory.data(), kLong - 1, Access::kResult));
  EXPECT_FALSE(windows.should_stage(memory.data(), kLong, Access::kResult));
  EXPECT_FALSE(windows.should_stage(memory.data(), kMostVolatileBytes, Access::kSource));
  EXPECT_TRUE(windows.should_stage(memory.data(), kMostVolatileBytes + 1, Access::kSource));
  EXPECT_FALSE(windows.should_stage(memory.data(), kLong, Access::kSource));
  std::byte* const block = mapped.allocate(kLong);
  EXPECT_FALSE(windows.should_stage(block, 8, Access::kResult));
  EXPECT_FALSE(windows.should_stage(block, kLong, Access::kSource));

  void* const no_access = ::mmap(nullptr, kLong, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(no_access, MAP_FAILED);
  const Mapping unreachable(static_cast<std::byte*>(no_access), kLong);
  EXPECT_TRUE(windows.should_stage(unreachable.address(), kLong, Access::kSource));
  EXPECT_TRUE(windows.should_stage(unreachable.address(), kLong, Access::kResult));
  Windows::Id id = 0;
  EXPECT_EQ(made.value()->expose({unreachable.address(), kLong}, id), Status::kUnsupported);
  EXPECT_EQ(made.value()->expose(memory, id), Status::kOk);
}

TEST_F(WindowsTest, PutsAndGetsOfAllLengthsArrive) {
  auto memory = bytes_of(100'000, 0);
  const Windows::Id id = expose(1, memory);
  for (const std::size_t length : {std::size_t{1}, std::size_t{1000}, std::size_t{90'000}}) {
    auto data = bytes_of(length, 7), got = bytes_of(length + 10, 0), expected = bytes_of(10, 0);
    TargetRequest request = put(data, 10);
    ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
    EXPECT_EQ(over(0, data.data()), Status::kAgain);
    settle();
    ASSERT_EQ(over(0, data.data()), Status::kOk);
    request = get(got);
    ASSERT_EQ(at(2).begin(1, id, request), Status::kOk);
    settle();
    ASSERT_EQ(over(2, got.data()), Status::kOk);
    expected.insert(expected.end(), data.begin(), data.end());
    EXPECT_EQ(got, expected);
  }
}

/// From another process, and from its own. Short ones, and one that does not fit a slot.
TEST_F(WindowsTest, RunsOfEqualLengthAndDistanceArriveTogether) {
  for (const std::uint32_t origin : {0U, 1U})
    for (const std::size_t count : {std::size_t{2}, std::size_t{100}, std::size_t{20'000}}) {
      auto memory = bytes_of(10 + count * 24, 1), expected = memory;
      const Windows::Id id = expose(1, memory);
      std::vector<std::byte> data(count * 8), got(count * 8);
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<std::byte>(i * 5);
        expected[10 + i / 8 * 24 + i % 8] = data[i];
      }
      TargetRequest request = put(data, 10);
      request.runs = {8, 24};
      ASSERT_EQ(at(origin).begin(1, id, request), Status::kOk);
      settle();
      ASSERT_EQ(over(origin, data.data()), Status::kOk);
      EXPECT_EQ(memory, expected);

      request = get(got);
      request.offset_bytes = 10;
      request.runs = {8, 24};
      ASSERT_EQ(at(origin).begin(1, id, request), Status::kOk);
      settle();
      ASSERT_EQ(over(origin, got.data()), Status::kOk);
      EXPECT_EQ(got, data);
      ASSERT_EQ(at(1).withdraw(id), Status::kOk);
    }
}

TEST_F(WindowsTest, AnAtomicChangesRunsAndNothingBetween) {
  std::vector<std::byte> memory(8 * 16);
  std::int64_t words[16], ones[5], old[5];
  for (int i = 0; i < 16; ++i) words[i] = 100 * i;
  std::memcpy(memory.data(), words, sizeof words);
  std::fill(std::begin(ones), std::end(ones), 1);
  const Windows::Id id = expose(1, memory);
  for (const std::uint32_t origin : {0U, 1U}) {
    TargetRequest request = add(ones[0], old[0]);
    request.source.memory.length_bytes = request.destination.memory.length_bytes = sizeof ones;
    request.offset_bytes = 8;
    request.runs = {8, 24};
    ASSERT_EQ(at(origin).begin(1, id, request), Status::kOk);
    settle();
    ASSERT_EQ(over(origin, &old[0]), Status::kOk);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(old[i], words[1 + 3 * i]++);
    EXPECT_EQ(std::memcmp(memory.data(), words, sizeof words), 0);
  }
}

TEST_F(WindowsTest, RunsThatDoNotLieInTheWindowHaveNoEffect) {
  auto memory = bytes_of(100, 1), data = bytes_of(20, 9);
  const Windows::Id id = expose(1, memory);
  const auto outcome = [&](std::uint32_t origin, std::uint64_t offset, TargetRuns runs) {
    TargetRequest request = put(data, offset);
    request.runs = runs;
    if (const Status status = at(origin).begin(1, id, request); status != Status::kOk) return status;
    settle();
    return over(origin, data.data());
  };
  for (const std::uint32_t origin : {0U, 1U}) {
    EXPECT_EQ(outcome(origin, 0, {4, 25}), Status::kTruncated) << "the last run ends behind it";
    EXPECT_EQ(outcome(origin, 1, {4, 24}), Status::kTruncated) << "by one byte";
    EXPECT_EQ(outcome(origin, UINT64_MAX - 3, {4, 8}), Status::kTruncated);
    EXPECT_EQ(outcome(origin, 0, {4, std::uint64_t{1} << 60}), Status::kTruncated);
    for (const TargetRuns unsound : {TargetRuns{3, 8}, TargetRuns{4, 3}, TargetRuns{40, 80},
                                     TargetRuns{4, UINT64_MAX / 2}, TargetRuns{4, UINT64_MAX}})
      EXPECT_EQ(outcome(origin, 0, unsound), Status::kUnsupported) << unsound.block_bytes;
  }
  EXPECT_EQ(memory, bytes_of(100, 1));
  EXPECT_EQ(outcome(0, 0, {4, 24}), Status::kOk) << "the last run ends where it does";
}

TEST_F(WindowsTest, AProcessMayNameItself) {
  auto memory = bytes_of(64, 0);
  const Windows::Id id = expose(0, memory);
  std::int64_t one = 5, old = -1;
  TargetRequest request = add(one, old);
  ASSERT_EQ(at(0).begin(0, id, request), Status::kOk);
  settle();
  ASSERT_EQ(over(0, &old), Status::kOk);
  EXPECT_EQ(old, 0);
  EXPECT_EQ(memory[0], std::byte{5});
}

TEST_F(WindowsTest, AllProcessesMayAddToOneCounter) {
  auto memory = bytes_of(8, 0);
  const Windows::Id id = expose(1, memory);
  constexpr int kTimes = 50;
  std::int64_t one = 1;
  std::vector<std::int64_t> old(kRanks * kTimes, -1);
  for (std::uint32_t i = 0; i < old.size(); ++i) {
    TargetRequest request = add(one, old[i]);
    ASSERT_EQ(at(i % kRanks).begin(1, id, request), Status::kOk);
  }
  settle();
  std::sort(old.begin(), old.end());
  for (std::uint32_t i = 0; i < old.size(); ++i) EXPECT_EQ(old[i], i);
}

TEST_F(WindowsTest, WhatDoesNotLieInTheWindowHasNoEffect) {
  auto memory = bytes_of(100, 1), data = bytes_of(20, 9), got = bytes_of(101, 0);
  const Windows::Id id = expose(1, memory);
  TargetRequest request = put(data, 81);
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  settle();
  EXPECT_EQ(over(0, data.data()), Status::kTruncated);
  request = get(got);
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  settle();
  EXPECT_EQ(over(0, got.data()), Status::kTruncated);
  request = put(data);
  ASSERT_EQ(at(0).begin(1, id + 1, request), Status::kOk);
  settle();
  EXPECT_EQ(over(0, data.data()), Status::kTruncated) << "there is no such window";
  EXPECT_EQ(memory, bytes_of(100, 1));
  EXPECT_EQ(got, bytes_of(101, 0));
}

TEST_F(WindowsTest, AWindowThatIsLockedIsNotWithdrawn) {
  auto memory = bytes_of(8, 0);
  const Windows::Id id = expose(1, memory);
  TargetRequest request = of_lock(TargetOperation::kLockExclusive);
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  settle();
  ASSERT_EQ(over(0, this), Status::kOk);
  EXPECT_EQ(at(1).withdraw(id), Status::kAgain);
  request = of_lock(TargetOperation::kUnlock);
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  settle();
  EXPECT_EQ(over(0, this), Status::kAgain) << "an unlock is not told";
  EXPECT_EQ(at(1).withdraw(id), Status::kOk);
  EXPECT_EQ(expose(1, memory), id) << "its number is free";
}

TEST_F(WindowsTest, NoMoreAreUnderWayThanHaveRoomForTheirEvents) {
  auto memory = bytes_of(8, 0), data = bytes_of(8, 3);
  const Windows::Id id = expose(1, memory);
  TargetRequest request = put(data);
  for (std::size_t i = 0; i < Windows::kMostUnderWay; ++i)
    ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  EXPECT_EQ(at(0).begin(1, id, request), Status::kAgain);
  std::size_t ended = 0;
  Windows::Done done;
  for (int i = 0; i < 100 && ended < Windows::kMostUnderWay; ++i) {
    settle();
    for (; at(0).next(done); ++ended) EXPECT_EQ(done.status, Status::kOk);
  }
  EXPECT_EQ(ended, Windows::kMostUnderWay);
  EXPECT_EQ(at(0).begin(1, id, request), Status::kOk);
}

TEST_F(WindowsTest, OperationsOnADeadProcessFailOnceEach) {
  auto memory = bytes_of(8, 0), data = bytes_of(8, 3), got = bytes_of(50'000, 0);
  const Windows::Id id = expose(1, memory);
  TargetRequest request = put(data);
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  settle();
  ASSERT_EQ(over(0, data.data()), Status::kOk);
  kill(1);
  request = get(got);
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  settle();
  EXPECT_EQ(over(0, got.data()), Status::kPeerFailed);
  request = put(data);
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk) << "it is told as others are";
  settle();
  EXPECT_EQ(over(0, data.data()), Status::kPeerFailed);
  EXPECT_EQ(at(0).begin(kRanks, id, request), Status::kUnreachable) << "there is no such rank";
}

TEST_F(WindowsTest, TheLockOfADeadHolderIsRefused) {
  auto memory = bytes_of(8, 0);
  const Windows::Id id = expose(1, memory);
  TargetRequest request = of_lock(TargetOperation::kLockExclusive);
  ASSERT_EQ(at(2).begin(1, id, request), Status::kOk);
  settle();
  ASSERT_EQ(at(0).begin(1, id, request), Status::kOk);
  settle();
  EXPECT_EQ(over(0, this), Status::kAgain);
  kill(2);
  settle();
  EXPECT_EQ(over(0, this), Status::kPeerFailed);
  EXPECT_EQ(at(1).withdraw(id), Status::kOk);
}

}  // namespace
}  // namespace ch3_offload
