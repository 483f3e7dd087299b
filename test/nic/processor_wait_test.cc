// A client waits for its processor: it polls, gives its core away, sleeps, and is woken.

#include "nic/processor_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "nic/short_wait.h"
#include "rdma/monotonic_clock.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace processor_wait_test {

/// A client and its processor in two threads. The client sleeps as soon as it may.
class ProcessorWaits : public testing::TestWithParam<PortMemory::Client> {
 protected:
  /// Waits, and fails if nobody woke it.
  void wait_out(ProcessorWait& wait) {
    wait.set_longest_sleep(60'000'000'000);
    while (!wait.is_over()) static_cast<void>(wait.rest());
  }
  /// So long the processor takes, or until the client has announced its sleep.
  void take_time() {
    NicWords& words = memory_.words();
    if (random_.chance(0.3)) {
      for (int i = 0; i < 10'000 && words.client_waits.load(std::memory_order_relaxed) == 0; ++i) {
      }
    }
    for (std::uint64_t i = random_.below(300); i > 0; --i) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  PortMemory memory_ = std::move(PortMemory::make(GetParam()).value());
  Waiter waiter_{short_wait()};
  SeededRandom random_{7};
  std::uint64_t rung_ = 0;
};

TEST_P(ProcessorWaits, NoWakeUpForAnAnswerIsLost) {
  constexpr std::uint64_t kQuestions = 3000;
  NicWords& words = memory_.words();
  std::atomic<std::uint64_t> asked = 0;
  std::thread processor([&] {
    for (std::uint64_t i = 1; i <= kQuestions; ++i) {
      while (asked.load(std::memory_order_acquire) != i) std::this_thread::yield();
      take_time();
      words.answer = 3 * i;
      words.answered.store(i, std::memory_order_seq_cst);
      memory_.wake_from_wait(rung_);
    }
  });
  const std::uint64_t begin_ns = monotonic_ns();
  for (std::uint64_t i = 1; i <= kQuestions; ++i) {
    asked.store(i, std::memory_order_release);
    ProcessorWait wait(memory_, waiter_, i);
    wait_out(wait);
    ASSERT_EQ(words.answer, 3 * i);
  }
  processor.join();
  EXPECT_LT(elapsed_ns(monotonic_ns(), begin_ns), 60'000'000'000) << "a lost wake-up";
  EXPECT_GT(memory_.ring_counters().client.sleeps, 0U);
  EXPECT_GT(rung_, 0U);
  EXPECT_LE(rung_, memory_.ring_counters().client.sleeps);
  EXPECT_EQ(words.client_waits, 0U);
}

TEST_P(ProcessorWaits, NoWakeUpForRoomIsLost) {
  constexpr std::uint64_t kCommands = 5000;
  RingProducer commands = memory_.command_producer();
  std::thread processor([&] {
    RingConsumer ring = memory_.command_consumer();
    for (std::uint64_t taken = 0; taken < kCommands;) {
      RingConsumer::Record record;
      for (std::uint64_t some = 1 + random_.below(32); some > 0 && ring.header() != 0; --some) {
        EXPECT_TRUE(ring.parse(ring.header(), record));
        std::uint64_t number = 0;
        std::memcpy(&number, record.payload.data(), sizeof number);
        EXPECT_EQ(number, taken++);
        ring.advance(record);
      }
      take_time();
      if (ring.unreleased_bytes() > 0 && ring.release()) memory_.wake_from_wait(rung_);
    }
  });
  const std::uint64_t begin_ns = monotonic_ns();
  SeededRandom lengths(8);
  for (std::uint64_t i = 0; i < kCommands; ++i) {
    const std::size_t length_bytes = sizeof i + lengths.below(kInlineBytes);
    ProcessorWait wait(memory_, waiter_, commands, length_bytes);
    wait_out(wait);
    std::memcpy(commands.payload(), &i, sizeof i);
    commands.publish(RecordKind::kMessage, length_bytes);
  }
  processor.join();
  EXPECT_LT(elapsed_ns(monotonic_ns(), begin_ns), 60'000'000'000) << "a lost wake-up";
  EXPECT_GT(rung_, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, ProcessorWaits,
                         testing::Values(PortMemory::Client::kHere, PortMemory::Client::kElsewhere));

}  // namespace processor_wait_test
}  // namespace ch3_offload
