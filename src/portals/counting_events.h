// The counting events of one interface: which handle is which counter of the port, and its value on the
// board.
//
// Threads: add(), remove() and id_of() one at a time. read() by any thread at any time, without a lock: the
// words of a counter are never freed, and the handle is looked at before and after.

#pragma once

#include <atomic>
#include <cstdint>

#include "engine/targets/target_board.h"
#include "portals/handle.h"

namespace ch3_offload::portals {

class CountingEvents {
 public:
  /// `board`: where the counters are now. Null: there are none yet. Each board that was there stays.
  CountingEvents(unsigned interface, const std::atomic<TargetBoard*>& board) noexcept
      : interface_(interface), board_(board) {}

  ptl_handle_ct_t add(CounterId id) noexcept {
    const std::size_t index = counter_index(id);
    Slot& slot = slots_[index];
    slot.id = id;
    slot.generation = (slot.generation + 1) % kHandleGenerations;
    const ptl_handle_ct_t handle =
        make_handle(HandleKind::kCounter, interface_, slot.generation, static_cast<std::uint32_t>(index));
    slot.handle.store(handle, std::memory_order_release);
    ++live_;
    return handle;
  }

  /// kNoCounter: there is none.
  CounterId id_of(ptl_handle_ct_t handle) const noexcept {
    return is_live(handle) ? slots_[index_of(handle)].id : kNoCounter;
  }

  /// REQUIRES: id_of() has found it.
  void remove(ptl_handle_ct_t handle) noexcept {
    slots_[index_of(handle)].handle.store(0, std::memory_order_release);
    --live_;
  }
  void clear() noexcept {
    live_ = 0;
    for (Slot& slot : slots_) slot.handle.store(0, std::memory_order_release);
  }

  std::size_t live() const noexcept { return live_; }

  bool is_live(ptl_handle_ct_t handle) const noexcept {
    const std::uint32_t index = index_of(handle);
    return index < kMostTargetCounters && slots_[index].handle.load(std::memory_order_acquire) == handle;
  }

  /// Returns false if there is no such counter.
  bool read(ptl_handle_ct_t handle, ptl_ct_event_t& value) const noexcept {
    if (!is_live(handle)) return false;
    // Acquire: pairs with Interface::open(). A board that is not the handle's any more shows at the end.
    const TargetCounterWords& words = board_.load(std::memory_order_acquire)->counters[index_of(handle)];
    // Acquire, with the processor's release: what a count stands for has been written. The order of the two
    // is the board's.
    value.success = words.success.load(std::memory_order_acquire);
    value.failure = words.failure.load(std::memory_order_acquire);
    return is_live(handle);
  }

 private:
  struct Slot {
    std::atomic<ptl_handle_ct_t> handle{0};  ///< 0: free. Written under the library's lock, read without.
    CounterId id = kNoCounter;
    std::uint64_t generation = 0;
  };

  const unsigned interface_;
  const std::atomic<TargetBoard*>& board_;
  std::size_t live_ = 0;
  Slot slots_[kMostTargetCounters];  ///< By counter_index().
};

}  // namespace ch3_offload::portals
