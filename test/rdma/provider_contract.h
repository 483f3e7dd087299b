// The executable form of rdma/provider.h: every provider passes these suites.
//
// Include it in one source file of a test program, link test/libcontract.a, implement ContractWorld
// (contract_world.h), and name the configurations with INSTANTIATE_PROVIDER_CONTRACT. A suite is instantiated for
// the configurations that it applies to, as ContractParam says, and for no others. So a skip means something: a
// provider that should be able to write says that it cannot on this machine.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rdma/contract_world.h"

namespace ch3_offload {

std::string contract_name(const testing::TestParamInfo<ContractParam>& info);

/// Those of `configurations` that have `trait`, and `other`, too.
std::vector<ContractParam> those_with(bool ContractParam::*trait, bool ContractParam::*other,
                                      const std::vector<ContractParam>& configurations);

#define INSTANTIATE_CONTRACT_SUITE(prefix, suite, trait, other, configurations)                    \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);                                            \
  INSTANTIATE_TEST_SUITE_P(                                                                        \
      prefix, suite,                                                                               \
      testing::ValuesIn(those_with(&ContractParam::trait, &ContractParam::other, configurations)), \
      contract_name)

/// Instantiates every suite for those of `configurations`, a std::vector<ContractParam>, that it applies to.
/// The names of the tests begin with `prefix`.
#define INSTANTIATE_PROVIDER_CONTRACT(prefix, configurations)                                           \
  INSTANTIATE_TEST_SUITE_P(prefix, ProviderContract, testing::ValuesIn(configurations), contract_name); \
  INSTANTIATE_CONTRACT_SUITE(prefix, ProviderSecrets, has_secrets, has_secrets, configurations);        \
  INSTANTIATE_CONTRACT_SUITE(prefix, ProviderWrites, writes, writes, configurations);                   \
  INSTANTIATE_CONTRACT_SUITE(prefix, ProviderSleep, sleeps, sleeps, configurations);                    \
  INSTANTIATE_CONTRACT_SUITE(prefix, ProviderSleepWithWrites, sleeps, writes, configurations)

inline constexpr PeerId kA{0};
inline constexpr PeerId kB{1};
inline constexpr PeerId kC{2};

class ProviderContract : public testing::TestWithParam<ContractParam> {
 protected:
  using Kind = RecordingSink::Kind;
  static constexpr std::size_t kBudget = 64;
  static constexpr int kWaitMs = 60'000;  ///< Longer than any loaded machine needs; a hang otherwise.

  void make_world(std::size_t size) {
    world_.reset();  // Before the next one is made: they may share a device.
    world_ = GetParam().make(size);
    ASSERT_NE(world_, nullptr);
    ASSERT_EQ(world_->size(), size);
    sinks_ = std::vector<RecordingSink>(size);
    endpoints_.clear();
  }

  Provider& at(PeerId peer) { return world_->at(peer); }
  Registrar& registrar(PeerId peer) { return world_->registrar(peer); }
  RecordingSink& sink(PeerId peer) { return sinks_[index_of(peer)]; }
  /// REQUIRES: they are connected.
  std::size_t max_slot(PeerId from, PeerId to) { return at(from).max_slot_bytes(endpoint(from, to)); }

  [[nodiscard]] Result<Endpoint*> connect(PeerId from, PeerId to) {
    return endpoints_.connect(at(from), from, to, at(to).local_address());
  }
  /// REQUIRES: `from` has connected to `to`.
  Endpoint& endpoint(PeerId from, PeerId to) { return endpoints_.of(from, to); }
  void connect_both(PeerId one, PeerId other) {
    ASSERT_TRUE(connect(one, other).ok());
    ASSERT_TRUE(connect(other, one).ok());
  }

  std::size_t poll(PeerId peer) { return at(peer).poll(sink(peer), kBudget); }
  /// Returns how much was found.
  std::size_t poll_all() {
    std::size_t found = 0;
    for (std::uint32_t i = 0; i < world_->size(); ++i)
      if (world_->alive(PeerId{i})) found += poll(PeerId{i});
    world_->step();
    return found;
  }
  /// Polls everybody until `done()` says true (it is not asked again), now and then while nobody finds
  /// anything; false: not in time.
  template <class Condition>
  bool run_until(Condition done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (std::chrono::steady_clock::now() < deadline) {
      std::size_t found = 0;
      for (int i = 0; i < 64; ++i) {
        if (done()) return true;
        found += poll_all();
      }
      if (found == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return done();
  }
  /// Polls everybody long enough that something unwanted would have shown.
  void run_a_while() {
    for (int i = 0; i < 200; ++i) {
      poll_all();
      if (i % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  using Commit = void (Provider::*)(Endpoint&, std::size_t) noexcept;
  /// One try to send.
  Status try_send(PeerId from, PeerId to, std::span<const std::byte> message,
                  Commit commit = &Provider::commit) {
    std::span<std::byte> slot;
    const Status status = at(from).reserve(endpoint(from, to), message.size(), slot);
    if (status != Status::kOk) return status;
    EXPECT_EQ(slot.size(), message.size());
    std::memcpy(slot.data(), message.data(), message.size());
    (at(from).*commit)(endpoint(from, to), message.size());
    return Status::kOk;
  }
  /// Likewise, as a part of what follows.
  Status try_send_part(PeerId from, PeerId to, std::span<const std::byte> message) {
    return try_send(from, to, message, &Provider::commit_part);
  }
  /// Polls `peer` alone. Returns whether it gets that many messages, or more, in time.
  bool gets_messages(PeerId peer, std::size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (sink(peer).count(Kind::kMessage) < count && std::chrono::steady_clock::now() < deadline) {
      poll(peer);
      world_->step();
    }
    return sink(peer).count(Kind::kMessage) >= count;
  }
  /// Sends, polling everybody while there is no room.
  void send(PeerId from, PeerId to, std::span<const std::byte> message) {
    Status status = Status::kAgain;
    ASSERT_TRUE(run_until([&] { return (status = try_send(from, to, message)) != Status::kAgain; }));
    ASSERT_EQ(status, Status::kOk);
  }
  /// Sends small messages without polling until there is no room; returns how many went.
  std::size_t fill(PeerId from, PeerId to, std::size_t length) {
    Pattern pattern(7);
    for (std::size_t sent = 0;; ++sent) {
      const Status status = try_send(from, to, pattern.bytes(length));
      if (status == Status::kAgain) return sent;
      EXPECT_EQ(status, Status::kOk);
      if (status != Status::kOk || sent > 1'000'000) return sent;
    }
  }

  /// B sends A messages that arrive and that A does not look at, over a connection that stands. Returns how many B has sent
  /// in all, the first of which A has taken.
  std::size_t arrive_unseen() {
    send(kB, kA, Pattern(0).bytes(10));
    send(kA, kB, Pattern(0).bytes(10));
    EXPECT_TRUE(run_until([&] { return sink(kA).events.size() == 1 && sink(kB).events.size() == 1; }));
    std::size_t sent = 1;
    while (sent < 40 && try_send(kB, kA, Pattern(sent).bytes(100)) == Status::kOk) ++sent;
    // What B still keeps leaves: its link may not have been complete.
    for (int turn = 0; turn < 4; ++turn) {
      poll(kB);
      world_->step();
      world_->settle();
    }
    return sent;
  }

  /// REQUIRES: on_peer_down() of `to` was called at `from`. Its endpoint is still valid.
  void expect_takes_nothing(PeerId from, PeerId to) {
    Endpoint& dead = endpoint(from, to);
    std::span<std::byte> slot;
    EXPECT_EQ(at(from).reserve(dead, 8, slot), Status::kPeerFailed);
    EXPECT_GE(at(from).max_slot_bytes(dead), 128u);
    if (at(from).capabilities().write) {
      Region region = make_region(from, 8);
      EXPECT_EQ(at(from).write(dead, region.bytes.data(), 8, region.memory, {}, Immediate{}, WorkId{}),
                Status::kPeerFailed);
      registrar(from).deregister_memory(region.memory);
    }
    if (ch3_offload_lane_t* const lane = at(from).lane(dead)) {
      std::uint64_t sent_short = 0;
      lane->length_limit = lane->books.credit_bytes = 1000;
      lane->sent_short = &sent_short;
      EXPECT_EQ(ch3_offload_lane_send(lane, 0, 0, 0, "12345678", 8), CH3_OFFLOAD_LANE_CLOSED);
    }
    at(from).nudge(dead);
  }

  struct Region {
    std::vector<std::byte> bytes;
    MemoryRegion memory;
  };
  Region make_region(PeerId peer, std::size_t length) {
    Region region{std::vector<std::byte>(std::max<std::size_t>(length, 1)), {}};
    EXPECT_EQ(registrar(peer).register_memory(region.bytes.data(), region.bytes.size(), Access::kWrite,
                                              region.memory),
              Status::kOk);
    return region;
  }
  static RemoteMemory remote(const Region& region, std::size_t offset = 0) {
    return {reinterpret_cast<std::uintptr_t>(region.bytes.data()) + offset, region.memory.remote_key};
  }
  /// Writes all of `source` (or its first `length`), polling while there is no room.
  Status write(PeerId from, PeerId to, const Region& source, std::size_t length, const Region& target,
               std::uint32_t id) {
    Status status = Status::kAgain;
    sink(to).writer = from;
    run_until([&] {
      status = at(from).write(endpoint(from, to), source.bytes.data(), length, source.memory, remote(target),
                              Immediate{id}, WorkId{id});
      return status != Status::kAgain;
    });
    return status;
  }
  /// Writes from A to B and forgets it: the connection stands, and writes work.
  void write_once() {
    Region source = make_region(kA, 8);
    Region target = make_region(kB, 8);
    ASSERT_EQ(write(kA, kB, source, 8, target, 0), Status::kOk);
    ASSERT_TRUE(
        run_until([&] { return sink(kA).count(Kind::kWriteDone) == 1 && written_bytes(kB, 0) == 8; }));
    ASSERT_EQ(sink(kA).events.back().status, Status::kOk);
    registrar(kA).deregister_memory(source.memory);
    registrar(kB).deregister_memory(target.memory);
    sink(kA).events.clear();
    sink(kB).events.clear();
  }
  /// What arrived at `peer` of the write with `immediate`, all parts together.
  std::size_t written_bytes(PeerId peer, std::uint32_t immediate) {
    std::size_t bytes = 0;
    for (const RecordingSink::Event& event : sink(peer).events)
      if (event.kind == Kind::kWriteArrived && event.immediate == Immediate{immediate})
        bytes += event.length_bytes;
    return bytes;
  }

  static bool readable(int descriptor, int timeout_ms) {
    pollfd entry{descriptor, POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  /// Polls and arms until `peer` has nothing to do. False: it never comes to rest.
  bool put_to_sleep(PeerId peer) {
    for (int i = 0; i < 1000; ++i) {
      while (poll(peer) != 0) {
      }
      if (falls_asleep(peer)) return true;
    }
    return false;
  }
  /// False: there is something to do, or there was; it is awake.
  bool falls_asleep(PeerId peer) {
    if (at(peer).arm() && poll(peer) == 0 && !readable(at(peer).descriptor(), 0)) return true;
    at(peer).disarm();
    return false;
  }
  /// `from` sends messages of `length` until there is no room for `lacked` bytes, and falls asleep. Begins anew
  /// if it hears of room first: acknowledgements that were on their way may bring some.
  bool put_full_to_sleep(PeerId from, PeerId to, std::size_t length, std::size_t lacked) {
    for (int i = 0; i < 1000; ++i) {
      fill(from, to, length);
      world_->settle();
      while (poll(from) != 0) {
      }
      std::span<std::byte> slot;
      if (at(from).reserve(endpoint(from, to), lacked, slot) == Status::kAgain && falls_asleep(from))
        return true;
    }
    return false;
  }

  /// Lets `receiver` take its messages one by one until `sleeper`'s descriptor is readable. False: it took all
  /// of them, and nobody woke the sleeper.
  bool readable_while_drained(PeerId sleeper, PeerId receiver) {
    // What is on its way takes some time on a network. TCP sends again what its peer's host had to drop (many
    // short messages need more of its memory than they have bytes), after 200 ms, 400 ms, 800 ms and so on.
    // Of a time in which the machine stands still, 10 ms count.
    using Clock = std::chrono::steady_clock;
    constexpr Clock::duration kLongest = std::chrono::milliseconds(kWaitMs);
    constexpr Clock::duration kLongestOfALook = std::chrono::milliseconds(10);
    Clock::duration waited{};
    for (Clock::time_point before = Clock::now(); waited < kLongest;) {
      if (readable(at(sleeper).descriptor(), 0)) return true;
      if (at(receiver).poll(sink(receiver), 1) != 0) waited = {};
      const Clock::time_point now = Clock::now();
      waited += std::min(now - std::exchange(before, now), kLongestOfALook);
    }
    return readable(at(sleeper).descriptor(), 0);
  }

  std::unique_ptr<ContractWorld> world_;
  std::vector<RecordingSink> sinks_;
  Endpoints endpoints_;
};

/// Of a provider that has secrets.
class ProviderSecrets : public ProviderContract {};

/// Of a provider that writes. What it says it can do must work: only if it says that it cannot here, these are skipped.
class ProviderWrites : public ProviderContract {
 protected:
  void SetUp() override {
    make_world(1);
    if (!HasFatalFailure() && !at(kA).capabilities().write)
      GTEST_SKIP() << "the provider says that it cannot write on this machine";
  }
};

/// Of a provider that has a descriptor to sleep on.
class ProviderSleep : public ProviderContract {};

class ProviderSleepWithWrites : public ProviderWrites {};

}  // namespace ch3_offload
