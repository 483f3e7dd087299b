// Triggered operations of a Portals network interface: what waits for a counting event to reach a threshold,
// and what is due because one has.
//
// Nothing is carried out here, so a counting event may change at any place. The engine takes what is due from
// progress(), a bounded number at a time: a cycle of triggers that fire each other cannot hang it.
//
// What waits for the same counting event becomes due in the order of the thresholds, then in the order in
// which it was added. What has become due is in one queue, in that order.
//
// Threads: one. Allocation: prepare(), and add() until the pool has grown to the greatest number that waited.
// add() looks at those that wait for a higher threshold: rising thresholds cost nothing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "engine/intrusive_list.h"
#include "engine/pool.h"
#include "engine/target_request.h"
#include "engine/targets/target_counters.h"
#include "rdma/status.h"

namespace ch3_offload {

/// When a counting event reaches a threshold: its successes and failures together.
struct TargetTrigger {
  CounterId counter = kNoCounter;
  std::uint64_t threshold = 0;
};

struct TriggeredRequest {
  PeerId peer{};
  TargetRequest request;
  TargetHold hold{};
};
/// Of an entry that was prepared (TargetTable::prepare()).
struct TriggeredAppend {
  std::uint32_t table = 0;
  TargetId id = kNoTarget;
};
struct TriggeredUnlink {
  std::uint32_t table = 0;
  TargetId id = kNoTarget;
};
using TriggeredAction = std::variant<TargetCountChange, TriggeredRequest, TriggeredAppend, TriggeredUnlink>;

class TargetTriggers {
 public:
  /// `due` counts what is due in several interfaces together. It outlives the triggers.
  TargetTriggers(std::size_t most, std::size_t& due) noexcept : most_(most), all_due_(due) {}
  ~TargetTriggers() { all_due_ -= due_.size(); }
  TargetTriggers(const TargetTriggers&) = delete;
  TargetTriggers& operator=(const TargetTriggers&) = delete;

  /// For counting events with an index below `counters`. To be called once, before any other function.
  /// kNoMemory.
  Status prepare(std::size_t counters) noexcept;

  /// `sum`: what the counting event has counted. If that is enough, the action is due now. kNoMemory: as many
  /// wait, or are due, as may, or there is no memory.
  Status add(std::size_t counter, std::uint64_t sum, std::uint64_t threshold,
             const TriggeredAction& action) noexcept;
  /// A counting event has changed.
  void reached(std::size_t counter, std::uint64_t sum) noexcept {
    const Triggered* const first = waiting_[counter].front();
    if (first != nullptr && first->threshold <= sum) [[unlikely]]
      fire(counter, sum);
  }
  /// Forgets what waits for a counting event: `forgotten` gets each action. What is due stays.
  template <class Forgotten>
  void cancel(std::size_t counter, const Forgotten& forgotten) noexcept {
    while (Triggered* const one = waiting_[counter].pop_front()) {
      forgotten(one->action);
      pool_.give_back(*one);
    }
  }

  /// Takes the oldest action that is due. Returns false if there is none.
  bool take(TriggeredAction& action) noexcept;
  std::size_t due() const noexcept { return due_.size(); }
  /// How many wait or are due.
  std::size_t live() const noexcept { return pool_.live(); }

 private:
  struct Triggered {
    std::uint64_t pool_id = 0;
    std::uint64_t threshold = 0;
    TriggeredAction action;
    ListHook<Triggered> hook{};
  };

  void fire(std::size_t counter, std::uint64_t sum) noexcept;
  void make_due(Triggered& one) noexcept {
    due_.push_back(one);
    ++all_due_;
  }

  const std::size_t most_;
  std::size_t& all_due_;
  Pool<Triggered> pool_;
  std::vector<IntrusiveList<Triggered, &Triggered::hook>> waiting_;  ///< By counter, in the order of firing.
  IntrusiveList<Triggered, &Triggered::hook, true> due_;
};

}  // namespace ch3_offload
