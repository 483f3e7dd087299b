// A counter that many threads add to and few read, without a line that they all write to.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ch3_offload {

/// Threads: all from any. Each keeps to one of 16 lines, given out in turn to all threads there ever were. Exact while no two threads
/// add to one line at the same time; where they do, what one of them adds may be lost.
class ShardedCounter {
 public:
  void increment() noexcept {
    std::atomic<std::uint64_t>& mine = shards_[shard_of_this_thread()].count;
    mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  std::uint64_t sum() const noexcept {
    std::uint64_t all = 0;
    for (const Shard& shard : shards_) all += shard.count.load(std::memory_order_relaxed);
    return all;
  }

 private:
  static constexpr std::size_t kShards = 16;
  struct alignas(64) Shard {
    std::atomic<std::uint64_t> count{0};
  };

  static std::size_t shard_of_this_thread() noexcept {
    // Initial-exec: a plain load in a shared library, too. 0: none yet.
    [[gnu::tls_model("initial-exec")]] static constinit thread_local std::size_t number = 0;
    static constinit std::atomic<std::size_t> threads{0};
    if (number == 0) [[unlikely]]
      number = threads.fetch_add(1, std::memory_order_relaxed) % kShards + 1;
    return number - 1;
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace ch3_offload
