// What the shm provider does without memory: a connection is made later, and nobody is lost.
//
// Its program replaces operator new (counting_allocator.h).

#include <gtest/gtest.h>

#include <chrono>
#include <new>

#include "counting_allocator.h"
#include "rdma/shm/shm_world.h"

namespace ch3_offload {
namespace {

using allocator::Shortage;

constexpr PeerId kA{0};
constexpr PeerId kB{1};
constexpr PeerId kStranger{77};

class CountingSink final : public Sink {
 public:
  Delivery on_message(PeerId, std::span<const std::byte>) noexcept override {
    ++messages;
    return Delivery::kTaken;
  }
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
  void on_write_done(PeerId, WorkId, Status) noexcept override {}
  void on_peer_down(PeerId, Status) noexcept override { ++downs; }
  int messages = 0, downs = 0;
};

class ShmAllocation : public testing::Test {
 protected:
  void make() {
    for (const PeerId self : {kA, kB}) {
      ShmConfig config;
      config.self = self;
      config.job_secret = test_secret();
      config.bulk = BulkMethod::kStream;
      config.shortage_limit_ms = shortage_limit_ms;
      providers_[index_of(self)] = make_shm(config);
      addresses_[index_of(self)] = at(self).local_address();
      sinks_[index_of(self)] = {};
    }
  }
  std::uint64_t shortage_limit_ms = ShmConfig{}.shortage_limit_ms;
  ShmProvider& at(PeerId peer) { return *providers_[index_of(peer)]; }
  CountingSink& sink(PeerId peer) { return sinks_[index_of(peer)]; }
  void poll_both(int times) {
    for (; times > 0; --times)
      for (const PeerId peer : {kA, kB}) at(peer).poll(sink(peer), 64);
  }
  template <class Condition>
  bool poll_until(Condition done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done() && std::chrono::steady_clock::now() < end) poll_both(16);
    return done();
  }
  /// False: there was no memory for it.
  bool connect(PeerId from, PeerId to) {
    try {
      Result<Endpoint*> connected = at(from).connect(to, addresses_[index_of(to)]);
      EXPECT_TRUE(connected.ok() || connected.error().status == Status::kNoMemory) << connected.error().message;
      if (connected.ok()) endpoints_[index_of(from)] = connected.value();
      return connected.ok();
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  /// Sends to the other process.
  void send(PeerId from) {
    std::span<std::byte> slot;
    Endpoint& endpoint = *endpoints_[index_of(from)];
    ASSERT_EQ(at(from).reserve(endpoint, 8, slot), Status::kOk);
    at(from).commit(endpoint, 8);
  }
  /// The housekeeping of an idle poll comes every 20 us: so long that it came a few times.
  void poll_for_a_while() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
    while (std::chrono::steady_clock::now() < end) poll_both(1);
  }

 private:
  std::unique_ptr<ShmProvider> providers_[2];
  std::string addresses_[2];
  Endpoint* endpoints_[2] = {};  ///< Of the other process. nullptr: not connected.
  CountingSink sinks_[2];
};

/// Memory runs out at each allocation in turn, and comes back.
TEST_F(ShmAllocation, AConnectionThatLacksMemoryIsMadeLater) {
  std::uint64_t memory = 0;
  for (bool sufficed = false; !sufficed; ++memory) {
    ASSERT_LT(memory, 1000u);
    make();
    bool a_to_b = false, b_to_a = false;
    {
      const Shortage shortage(memory);
      a_to_b = connect(kA, kB);
      if (a_to_b) send(kA);
      poll_for_a_while();
      b_to_a = connect(kB, kA);
      if (b_to_a) send(kB);
      poll_for_a_while();
      sufficed = allocator::left > 0;
    }
    if (!a_to_b) {
      ASSERT_TRUE(connect(kA, kB)) << memory;
      send(kA);
    }
    if (!b_to_a) {
      ASSERT_TRUE(connect(kB, kA)) << memory;
      send(kB);
    }
    ASSERT_TRUE(poll_until([&] { return sink(kA).messages == 1 && sink(kB).messages == 1; })) << memory;
    EXPECT_EQ(sink(kA).downs + sink(kB).downs, 0) << memory;
  }
  EXPECT_GT(memory, 10u);
}

/// One connection that is not accepted, and one whose Hello is not taken.
TEST_F(ShmAllocation, AConnectionThatWaitsTooLongForMemoryIsRefused) {
  shortage_limit_ms = 300;
  for (const std::uint64_t memory : {0, 1}) {
    make();
    ASSERT_TRUE(connect(kA, kB));
    send(kA);
    {
      const Shortage shortage(memory);
      ASSERT_TRUE(poll_until([&] { return sink(kA).downs == 1; })) << memory;
    }
    poll_for_a_while();
    EXPECT_EQ(sink(kB).messages, 0);
  }
}

TEST_F(ShmAllocation, AnEndNeedsNoMemory) {
  make();
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_TRUE(connect(kB, kA));
  send(kA);
  poll_for_a_while();
  {
    const Shortage shortage;
    EXPECT_FALSE(at(kA).end(kStranger));
    EXPECT_TRUE(at(kA).end(kB));
    poll_for_a_while();
  }
  EXPECT_TRUE(poll_until([&] { return sink(kA).downs == 1 && sink(kB).downs == 1; }));
  EXPECT_EQ(sink(kB).messages, 1);
}

}  // namespace
}  // namespace ch3_offload
