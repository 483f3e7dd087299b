// The fences between a client's commands and its processor's sleep.

#include "nic/fencing.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace ch3_offload {
namespace {

/// Store buffering: without the sleeper's fence, both sides miss the other's store in some hundredths of the
/// rounds.
TEST(Fencing, OfTwoThreadsOneSeesTheOthersStore) {
  constexpr int kRounds = 5000;
  const Fencing fencing = fencing_of_threads();
  alignas(64) std::atomic<int> published{0};
  alignas(64) std::atomic<int> sleeps{0};
  alignas(64) std::atomic<int> begun{0};
  alignas(64) std::atomic<int> ended{0};
  /// What the store of what is published has to wait for: lines that the sleeper has just read.
  struct alignas(64) Line {
    std::atomic<int> word{0};
  };
  std::array<Line, 4> before;
  bool is_sleep_seen = false;
  const auto await = [](const std::atomic<int>& what, int round) {
    for (int polls = 0; what.load() < round;)
      if (++polls > 10'000) std::this_thread::yield();
  };
  std::thread client([&] {
    for (int round = 1; round <= kRounds; ++round) {
      await(begun, round);
      for (Line& line : before) line.word.store(round, std::memory_order_relaxed);
      if (fencing == Fencing::kAsymmetric) {
        published.store(round, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
      } else {
        published.store(round, std::memory_order_seq_cst);
      }
      is_sleep_seen = sleeps.load(std::memory_order_seq_cst) == round;
      ended.store(round);
    }
  });
  int missed = 0, unfenced = 0;
  for (int round = 1; round <= kRounds; ++round) {
    for (const Line& line : before) static_cast<void>(line.word.load(std::memory_order_relaxed));
    begun.store(round);
    // The two stores come at different distances.
    for (int i = 0; i < 4 * (round % 64); ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    sleeps.store(round, std::memory_order_seq_cst);
    unfenced += !fence_sleeper(fencing);
    const bool is_work_seen = published.load(std::memory_order_seq_cst) == round;
    await(ended, round);
    missed += !is_work_seen && !is_sleep_seen;
  }
  client.join();
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(unfenced, 0);
}

TEST(Fencing, AFullFenceNeedsNothingOfTheKernel) { EXPECT_TRUE(fence_sleeper(Fencing::kFull)); }

}  // namespace
}  // namespace ch3_offload
