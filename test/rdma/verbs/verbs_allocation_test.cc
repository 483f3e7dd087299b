// What the verbs provider allocates and registers: nothing on the message path, little for a peer, slots for
// all peers together.
//
// Its program replaces operator new (counting_allocator.h). The fake device lives in it, too: what it
// allocates for a connection is measured with connections that the provider does not know of.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <new>

#include "counting_allocator.h"
#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

using allocator::allocations;
using allocator::live_bytes;

class CountingSink final : public Sink {
 public:
  Delivery on_message(PeerId, std::span<const std::byte>) noexcept override {
    ++messages;
    return Delivery::kTaken;
  }
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override { ++arrived; }
  void on_write_done(PeerId, WorkId, Status) noexcept override { ++written; }
  void on_peer_down(PeerId, Status) noexcept override { ++down; }
  std::size_t messages = 0, arrived = 0, written = 0, down = 0;
};

class VerbsAllocation : public VerbsProviders {
 protected:
  std::size_t registered(std::size_t peers) {
    make(peers + 1);
    for (std::uint32_t peer = 1; peer <= peers; ++peer) establish(0, peer);
    return at(0).figures().registered_slot_bytes;
  }
};

TEST_F(VerbsAllocation, NothingOnTheMessagePath) {
  make(2);
  establish(0, 1);
  std::vector<std::byte> memory(4096);
  MemoryRegion source, target;
  ASSERT_EQ(at(0).register_memory(memory.data(), 2048, Access::kRead, source), Status::kOk);
  ASSERT_EQ(at(1).register_memory(memory.data() + 2048, 2048, Access::kWrite, target), Status::kOk);
  CountingSink sinks[2];
  const std::vector<std::byte> message(100);
  std::size_t sent = 0, written = 0;
  const auto exchange = [&](std::size_t rounds) {
    for (std::size_t i = 0; i < rounds; ++i) {
      for (std::uint32_t from = 0; from < 2; ++from)
        for (int n = 0; n < 5; ++n) sent += try_send(from, 1 - from, message) == Status::kOk;
      while (at(0).write(endpoint(0, 1), memory.data(), 2048, source,
                         {reinterpret_cast<std::uintptr_t>(memory.data() + 2048), target.remote_key},
                         Immediate{1}, WorkId{1}) == Status::kOk)
        ++written;
      for (std::uint32_t self = 0; self < 2; ++self) {
        at(self).poll(sinks[self], 64);
        static_cast<void>(at(self).arm());
        at(self).poll(sinks[self], 64);
        at(self).disarm();
      }
    }
  };
  exchange(500);  // Windows grow, and slabs come.
  const std::size_t before = sent;
  const std::uint64_t allocated = allocations;
  exchange(500);
  EXPECT_EQ(allocations, allocated);
  EXPECT_GT(sent, before + 1000);
  EXPECT_GT(written, 100u);
  at(0).deregister_memory(source);
  at(1).deregister_memory(target);
}

/// Memory runs out at each allocation in turn while a connection is set up, the fake device's included, and
/// comes back. A try again takes its time: `check --all` has each allocation, others every fifth.
TEST_F(VerbsAllocation, AConnectionThatLacksMemoryIsMadeLater) {
  const std::uint64_t step = std::getenv("CH3_OFFLOAD_CHECK_ALL") != nullptr ? 1 : 5;
  std::uint64_t memory = 0;
  for (bool sufficed = false; !sufficed; memory += step) {
    ASSERT_LT(memory, 1000u);
    make(2);
    CountingSink sinks[2];
    const std::string addresses[2] = {at(0).local_address(), at(1).local_address()};
    const std::vector<std::byte> message(8);
    for (std::uint32_t self = 0; self < 2; ++self)  // So that the table needs no memory later.
      endpoints_.note(PeerId{self}, PeerId{1 - self}, nullptr);
    const auto connect = [&](std::uint32_t from) {
      try {
        return try_connect(from, 1 - from, addresses[1 - from]).ok();
      } catch (const std::bad_alloc&) {
        return false;
      }
    };
    const auto poll_until = [&](auto done, int wait_ms) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
      while (!done() && std::chrono::steady_clock::now() < end)
        for (std::uint32_t self = 0; self < 2; ++self) at(self).poll(sinks[self], 64);
      return done();
    };
    bool connected[2] = {}, sent[2] = {};
    const auto arrived = [&] { return sinks[0].messages == 1 && sinks[1].messages == 1; };
    {
      const allocator::Shortage shortage(memory);
      for (std::uint32_t self = 0; self < 2; ++self) {
        connected[self] = connect(self);
        sent[self] = connected[self] && try_send(self, 1 - self, message) == Status::kOk;
      }
      poll_until(arrived, 5);
      sufficed = allocator::left > 0;
    }
    for (std::uint32_t self = 0; self < 2; ++self) {
      ASSERT_TRUE(connected[self] || connect(self)) << memory;
      if (sent[self]) continue;
      ASSERT_EQ(try_send(self, 1 - self, message), Status::kOk);
    }
    ASSERT_TRUE(poll_until(arrived, kWaitMs)) << memory;
    EXPECT_EQ(sinks[0].down + sinks[1].down, 0u) << memory;
  }
  EXPECT_GT(memory, 10u);
}

TEST_F(VerbsAllocation, AnEndNeedsNoMemory) {
  make(2);
  establish(0, 1);
  CountingSink sinks[2];
  {
    const allocator::Shortage shortage;
    EXPECT_FALSE(at(0).end(PeerId{5}));
    EXPECT_TRUE(at(0).end(PeerId{1}));
    for (int i = 0; i < 500 && sinks[0].down == 0; ++i) {
      at(0).poll(sinks[0], 64);
      std::this_thread::sleep_for(kIdle);  // The goodbye takes its time.
    }
  }
  EXPECT_EQ(sinks[0].down, 1u);
}

TEST_F(VerbsAllocation, LittleForAPeer) {
  constexpr std::uint32_t kFew = 4;
  constexpr std::uint32_t kMany = 100;
  make(kMany + 1);
  const auto live_with = [&](std::uint32_t peers) {
    for (std::uint32_t peer = 1; peer <= peers; ++peer) {
      establish(0, peer);
      sink(0).events.clear();
      sink(peer).events.clear();
    }
    run_for(60);  // What was only for the introduction is gone.
    return live_bytes.load();
  };
  const std::int64_t few = live_with(kFew);
  const std::int64_t many = live_with(kMany);
  // Both ends of each connection are in this process, and so is the fake device's part of it.
  std::int64_t of_the_device = live_bytes;
  {
    Result<DeviceContext> context = open_verbs_device("fake0");
    const ProtectionDomain domain(ibv_alloc_pd(context.value().get()));
    const CompletionQueue queue(ibv_create_cq(context.value().get(), 10, nullptr, nullptr, 0));
    std::vector<QueuePair> pairs;
    pairs.reserve(10);
    of_the_device = live_bytes;
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {.max_send_wr = Link::kSendQueueDepth,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 256};
    for (int i = 0; i < 10; ++i) pairs.emplace_back(ibv_create_qp(domain.get(), &attributes));
    of_the_device = (live_bytes - of_the_device) / 10;
  }
  const std::int64_t of_a_connection = (many - few) / (kMany - kFew);
  const std::int64_t of_a_peer = of_a_connection / 2 - of_the_device;
  RecordProperty("bytes_of_a_peer", static_cast<int>(of_a_peer));
  std::printf("a peer: %lld bytes (with the fake's %lld: %lld)\n", static_cast<long long>(of_a_peer),
              static_cast<long long>(of_the_device), static_cast<long long>(of_a_connection / 2));
  EXPECT_GT(of_a_peer, 500);
  EXPECT_LE(of_a_peer, 4096);
}

TEST_F(VerbsAllocation, RegisteredSlotsDoNotGrowWithPeersBeyondTheirBound) {
  const std::size_t bound = (2048 + 512) * std::size_t{8192};
  const std::size_t two = registered(2);
  const std::size_t many = registered(16);
  const std::size_t most = registered(64);
  std::printf("registered slots: %zu KiB with 2 peers, %zu with 16, %zu with 64; bound %zu\n", two / 1024,
              many / 1024, most / 1024, bound / 1024);
  EXPECT_LE(two, 2u * 64 * 8192);
  EXPECT_LE(two, many);
  EXPECT_LE(many, most);
  EXPECT_LE(most, bound);
}

TEST_F(VerbsAllocation, TheBoundHoldsForAnyNumberOfPeers) {
  VerbsConfig config;
  config.rail.most_receive_slots = 128;
  config.most_send_slots = 64;
  config.rail.slot_bytes = 512;
  for (const std::size_t peers : {std::size_t{2}, std::size_t{16}, std::size_t{64}}) {
    make(peers + 1, config);
    for (std::uint32_t peer = 1; peer <= peers; ++peer) establish(0, peer);
    for (int i = 0; i < 300; ++i) {
      for (std::uint32_t peer = 1; peer <= peers; ++peer) {
        static_cast<void>(try_send(peer, 0, Pattern(1).bytes(100)) == Status::kOk);
        static_cast<void>(try_send(0, peer, Pattern(1).bytes(100)) == Status::kOk);
      }
      poll_all();
    }
    EXPECT_LE(at(0).figures().registered_slot_bytes, (128u + 64) * 512) << peers;
    EXPECT_LE(at(0).figures().queue_pairs, 128u / 8);
  }
}

}  // namespace
}  // namespace ch3_offload
