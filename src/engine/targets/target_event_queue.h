// An event queue of Portals: a ring of events that its client reads.
//
// The newest events stay. If the client does not take events in time, the oldest are overwritten, and the next
// read says so. Tables with flow control reserve room before they accept an operation, so their events are
// not lost: see TargetListener::reserve().
//
// Threads: one. Allocation: prepare().

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "engine/targets/target_events.h"

namespace ch3_offload {

class TargetEventQueue {
 public:
  std::uint64_t pool_id = 0;

  /// Room for `events`, and for `more` that reserve() does not count: the disabled events of tables. Returns
  /// false without memory.
  bool prepare(std::size_t events, std::size_t more) noexcept {
    reservable_ = std::max<std::size_t>(events, 1);
    capacity_ = reservable_ + more;
    ring_.reset(new (std::nothrow) TargetEvent[capacity_]);
    return ring_ != nullptr;
  }

  void push(const TargetEvent& event) noexcept {
    if (written_ - taken_ == capacity_) {
      ++taken_;
      has_lost_ = true;
    }
    ring_[written_++ % capacity_] = event;
  }

  /// Takes the oldest event. Returns false if there is none. `lost`: events before it were overwritten.
  bool take(TargetEvent& event, bool& lost) noexcept {
    lost = false;
    if (written_ == taken_) return false;
    lost = has_lost_;
    has_lost_ = false;
    event = ring_[taken_++ % capacity_];
    return true;
  }

  bool reserve(std::size_t events) noexcept {
    const std::size_t used = static_cast<std::size_t>(written_ - taken_) + reserved_;
    if (used + events > reservable_) return false;
    reserved_ += events;
    return true;
  }
  void unreserve(std::size_t events) noexcept { reserved_ -= events; }

 private:
  std::unique_ptr<TargetEvent[]> ring_;
  std::size_t reservable_ = 0;
  std::size_t capacity_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t taken_ = 0;
  std::size_t reserved_ = 0;
  bool has_lost_ = false;
};

}  // namespace ch3_offload
