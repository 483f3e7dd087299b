// The fences between a client's commands and its processor's sleep.

#include "nic/fencing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "nic/port_memory.h"

namespace ch3_offload {
namespace {

/// Store buffering: without the sleeper's fence, both sides miss the other's store in some of the rounds.
TEST(Fencing, ACommandIsSeenByTheSleeperOrRings) {
  constexpr int kRounds = 5000;
  PortMemory memory = std::move(PortMemory::make().value());
  memory.set_fencing(fencing_of_threads());
  RingProducer commands = memory.command_producer();
  RingConsumer taken = memory.command_consumer();
  alignas(64) std::atomic<int> begun{0};
  alignas(64) std::atomic<int> ended{0};
  std::uint64_t rung = 0, rung_before = 0;
  const auto await = [](const std::atomic<int>& what, int round) {
    for (int polls = 0; what.load() < round;)
      if (++polls > 10'000) std::this_thread::yield();
  };
  std::thread client([&] {
    for (int round = 1; round <= kRounds; ++round) {
      await(begun, round);
      ASSERT_TRUE(commands.has_room(8));
      *reinterpret_cast<std::uint64_t*>(commands.payload()) = static_cast<std::uint64_t>(round);
      memory.publish_command(commands, 8, rung);
      ended.store(round);
    }
  });
  int missed = 0, unfenced = 0;
  for (int round = 1; round <= kRounds; ++round) {
    // The processor looks at the line all the time.
    for (int i = 0; i < 3; ++i) ASSERT_EQ(taken.header(), 0u);
    begun.store(round);
    // The two stores come at different distances.
    for (int i = 0; i < 4 * (round % 64); ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    unfenced += !memory.announce_nic_sleep();
    const bool is_work_seen = taken.header(std::memory_order_seq_cst) != 0;
    await(ended, round);
    missed += !is_work_seen && rung == rung_before;
    rung_before = rung;
    PortMemory::quiet(memory.words().nic_sleeps, memory.nic_bell());
    RingConsumer::Record record;
    ASSERT_TRUE(taken.parse(taken.header(), record));
    taken.advance(record);
    static_cast<void>(taken.release());
  }
  client.join();
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(unfenced, 0);
}

TEST(Fencing, AFullFenceNeedsNothingOfTheKernel) { EXPECT_TRUE(fence_sleeper(Fencing::kFull)); }

}  // namespace
}  // namespace ch3_offload
