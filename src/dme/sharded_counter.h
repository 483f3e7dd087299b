// A counter for many writing threads and few readers. Up to 16 writers share no cache line.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ch3_offload {

/// Threads: Any thread may call any function. There are 16 shards, each in its own cache line. Threads get a
/// shard in turn, in the order of their first increment(), and keep it. The sum is exact unless two threads
/// with the same shard increment at the same time: then one increment may be lost.
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
    // The thread's shard, counted from 1. 0: it has none yet. The TLS model initial-exec makes the access a
    // plain load in a shared library, too.
    [[gnu::tls_model("initial-exec")]] static constinit thread_local std::size_t number = 0;
    static constinit std::atomic<std::size_t> threads{0};
    if (number == 0) [[unlikely]]
      number = threads.fetch_add(1, std::memory_order_relaxed) % kShards + 1;
    return number - 1;
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace ch3_offload
