// An event queue of the program: the ring that the processor writes, and its reader.
//
// Threads: take() one at a time. may_have_event() and is_gone() by any thread that shares the queue.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "engine/targets/target_board.h"
#include "engine/targets/target_interface.h"

namespace ch3_offload::portals {

class EventQueue {
 public:
  /// Room for `events`, and for the disabled events of so many tables. Throws std::bad_alloc.
  EventQueue(std::size_t events, std::size_t tables)
      : slots_(new TargetEventRing::Slot[std::max<std::size_t>(events, 1) + tables]) {
    ring_.slots = slots_.get();
    ring_.reservable = std::max<std::size_t>(events, 1);
    ring_.capacity = ring_.reservable + tables;
  }

  TargetEventRing& ring() noexcept { return ring_; }

  /// The port's name for it.
  QueueId id = kNoQueue;

  bool may_have_event() const noexcept {
    // Only a hint: take() looks again.
    return ring_.written.load(std::memory_order_relaxed) != ring_.taken.load(std::memory_order_relaxed);
  }

  /// Takes the oldest event. Returns false if there is none. `lost`: events before it were.
  bool take(TargetEvent& event, bool& lost) noexcept {
    const std::uint64_t taken = ring_.taken.load(std::memory_order_relaxed);  // Ours.
    // Acquire, with the processor's release: the slot is written.
    if (ring_.written.load(std::memory_order_acquire) == taken) return false;
    const TargetEventRing::Slot& slot = ring_.slots[taken % ring_.capacity];
    event = slot.event;
    lost = slot.lost_before;
    // Release, with the processor's acquire: the slot has been read, and may be written again.
    ring_.taken.store(taken + 1, std::memory_order_release);
    return true;
  }

  /// The program has freed it, and threads that wait for it still look.
  void go() noexcept { is_gone_.store(true, std::memory_order_relaxed); }
  bool is_gone() const noexcept { return is_gone_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<TargetEventRing::Slot[]> slots_;
  TargetEventRing ring_;
  std::atomic<bool> is_gone_{false};  ///< Guards nothing.
};

}  // namespace ch3_offload::portals
