// The counting events of a Portals network interface. Their numbers are on the board (target_board.h), where
// the client reads them.
//
// Threads: one. Allocation: prepare().

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/targets/target_board.h"
#include "rdma/status.h"

namespace ch3_offload {

/// What a counting event has counted.
struct TargetCount {
  std::uint64_t success = 0;
  std::uint64_t failure = 0;
  /// What thresholds are compared with.
  std::uint64_t sum() const noexcept { return success + failure; }
  friend bool operator==(const TargetCount&, const TargetCount&) noexcept = default;
};

/// A change of a counting event by its client.
struct TargetCountChange {
  enum class Kind : std::uint8_t { kSet, kAdd };
  Kind kind{};
  CounterId counter = kNoCounter;
  TargetCount amount{};
};

class TargetCounters {
 public:
  /// `words` outlive the counters.
  explicit TargetCounters(std::span<TargetCounterWords> words) noexcept : words_(words) {}

  /// To be called once, before any other function. kNoMemory.
  Status prepare() noexcept;

  /// A counting event at 0. kNoCounter: there are as many as may be.
  CounterId make() noexcept;
  /// Returns false if there is none.
  bool free(CounterId id) noexcept;
  bool is_live(CounterId id) const noexcept {
    if (id == kNoCounter || counter_index(id) >= places_.size()) return false;
    const auto generation = static_cast<std::uint32_t>(static_cast<std::uint64_t>(id) >> 32);
    return generation % 2 == 1 && places_[counter_index(id)].generation == generation;
  }

  /// REQUIRES: is_live(id), as what follows.
  TargetCount read(CounterId id) const noexcept {
    const TargetCounterWords& words = words_[counter_index(id)];
    return {load(words.success), load(words.failure)};
  }
  /// Both return what it has counted then.
  TargetCount add(CounterId id, const TargetCount& amount) noexcept {
    const TargetCount before = read(id);
    return set(id, {before.success + amount.success, before.failure + amount.failure});
  }
  TargetCount set(CounterId id, const TargetCount& count) noexcept {
    TargetCounterWords& words = words_[counter_index(id)];
    store(words.failure, count.failure);
    store(words.success, count.success);
    return count;
  }

 private:
  struct Place {
    std::uint32_t generation = 0;  ///< Odd: it is in use.
    std::uint32_t next_free = 0;   ///< Index + 1. 0: none.
  };

  /// Release: whoever sees a count sees the data that was counted. A failure is stored before the successes
  /// after it, so a reader of both reads `success` first.
  static void store(std::atomic<std::uint64_t>& word, std::uint64_t number) noexcept {
    word.store(number, std::memory_order_release);
  }
  /// The processor alone writes it.
  static std::uint64_t load(const std::atomic<std::uint64_t>& word) noexcept {
    return word.load(std::memory_order_relaxed);
  }

  const std::span<TargetCounterWords> words_;
  std::vector<Place> places_;
  std::uint32_t free_ = 0;  ///< Index + 1. 0: none.
};

}  // namespace ch3_offload
