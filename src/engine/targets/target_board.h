// What a network processor tells the client of its target entries without being asked: rings of events,
// counting events and status registers, in memory that both see.
//
// The client makes the memory. Nothing here depends on where it is mapped, but for the addresses in the
// events, which are the client's.
//
// Threads: each word has one writer. The processor writes, but for TargetEventRing::taken.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/targets/target_events.h"

namespace ch3_offload {

/// A counting event. A reader that wants both numbers reads `success` first: then it misses no failure that
/// came before those successes. A change that sets both is seen in two steps, success first.
struct alignas(64) TargetCounterWords {
  std::atomic<std::uint64_t> success{0};
  std::atomic<std::uint64_t> failure{0};
};

/// The status registers of PtlNIStatus().
struct alignas(64) TargetRegisterWords {
  std::atomic<std::uint64_t> drops{0};
  std::atomic<std::uint64_t> permission_violations{0};
  std::atomic<std::uint64_t> operation_violations{0};
};

inline constexpr std::size_t kMostTargetCounters = 2048;  ///< Of an interface.

/// Where a counting event is on the board. Another one may have the place when this one is freed.
/// REQUIRES: not kNoCounter.
constexpr std::size_t counter_index(CounterId id) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(id)) - 1;
}

struct TargetBoard {
  TargetRegisterWords registers;
  TargetCounterWords counters[kMostTargetCounters];  ///< By counter_index().
};

/// How far an event queue was written and read: positions that never go back.
struct TargetEventWords {
  alignas(64) std::atomic<std::uint64_t> written{0};  ///< The processor's.
  alignas(64) std::atomic<std::uint64_t> taken{0};    ///< The client's.
};

/// An event queue: a ring with one writer and one reader (target_event_ring.h). An event that finds it full
/// is dropped, and the next one that has room says so. This says where it is, and is not shared itself.
struct TargetEventRing {
  struct Slot {
    TargetEvent event;
    bool lost_before = false;  ///< Events between this one and the one before it were dropped.
  };
  TargetEventWords* words = nullptr;
  Slot* slots = nullptr;
  std::uint64_t capacity = 0;    ///< `reservable`, and one for each table that may be disabled.
  std::uint64_t reservable = 0;  ///< What the user asked for. Not 0.
};

}  // namespace ch3_offload
