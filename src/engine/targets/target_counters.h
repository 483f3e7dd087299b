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
  bool is_live(CounterId id) const noexcept;

  /// REQUIRES: is_live(id), as what follows.
  TargetCount read(CounterId id) const noexcept;
  /// Both return what it has counted then.
  TargetCount add(CounterId id, const TargetCount& amount) noexcept;
  TargetCount set(CounterId id, const TargetCount& count) noexcept;

 private:
  struct Place {
    std::uint32_t generation = 0;  ///< Odd: it is in use.
    std::uint32_t next_free = 0;   ///< Index + 1. 0: none.
  };

  const std::span<TargetCounterWords> words_;
  std::vector<Place> places_;
  std::uint32_t free_ = 0;  ///< Index + 1. 0: none.
};

}  // namespace ch3_offload
