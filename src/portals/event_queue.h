// An event queue of the program: the ring that the processor writes, and its reader.
//
// Threads: take() one at a time. may_have_event() and is_gone() by any thread that shares the queue.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "engine/targets/target_event_ring.h"
#include "engine/targets/target_interface.h"

namespace ch3_offload::portals {

class EventQueue {
 public:
  /// Room for `events`, and for the disabled events of so many tables. Throws std::bad_alloc.
  EventQueue(std::shared_ptr<ToldMemory> memory, std::size_t events, std::size_t tables)
      : memory_(TargetEventMemory::make(std::move(memory), events, tables)), reader_(ring_or_throw()) {}

  const TargetEventRing& ring() const noexcept { return memory_->ring; }

  /// The port's name for it.
  QueueId id = kNoQueue;

  /// Only a hint: take() looks again.
  bool may_have_event() const noexcept { return !reader_.empty(); }

  /// Takes the oldest event. Returns false if there is none. `lost`: events before it were.
  bool take(TargetEvent& event, bool& lost) noexcept { return reader_.take(event, lost); }

  /// The program has freed it, and threads that wait for it still look.
  void go() noexcept { is_gone_.store(true, std::memory_order_relaxed); }
  bool is_gone() const noexcept { return is_gone_.load(std::memory_order_relaxed); }

 private:
  const TargetEventRing& ring_or_throw() const {
    if (memory_ == nullptr) throw std::bad_alloc();
    return memory_->ring;
  }

  const std::unique_ptr<TargetEventMemory> memory_;
  TargetEventReader reader_;
  std::atomic<bool> is_gone_{false};  ///< Guards nothing.
};

}  // namespace ch3_offload::portals
