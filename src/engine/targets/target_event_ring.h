// The two ends of an event queue (TargetEventRing of target_board.h).
//
// The processor writes, the client reads. Neither waits for the other: an event that finds the ring full is
// dropped, and the next one that has room says so. Tables with flow control reserve room before they accept
// an operation, so their events are not dropped: see TargetListener::reserve().
//
// Threads: one for each end. Allocation: TargetEventMemory::make().

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "engine/targets/target_board.h"
#include "engine/targets/told_memory.h"

namespace ch3_offload {

/// The processor's end.
class TargetEventWriter {
 public:
  std::uint64_t pool_id = 0;

  /// The ring's memory must stay where it is as long as this object. Returns false if there is no memory, or
  /// if the ring has no room for what it may reserve.
  bool attach(const TargetEventRing& ring) noexcept {
    if (ring.words == nullptr || ring.slots == nullptr || ring.reservable == 0 ||
        ring.capacity < ring.reservable)
      return false;
    words_ = ring.words;
    slots_ = ring.slots;
    capacity_ = ring.capacity;
    reservable_ = ring.reservable;
    written_ = ring.words->written.load(std::memory_order_relaxed);
    disabled_at_.reset(new (std::nothrow) std::uint64_t[capacity_ - reservable_ + 1]);
    return disabled_at_ != nullptr;
  }

  /// Writes an event, or drops it. The disabled events of tables have room of their own. Others may not use
  /// what is reserved.
  void push(const TargetEvent& event) noexcept {
    note_taken();
    const bool is_disabled = event.kind == TargetEventKind::kTableDisabled;
    const bool has_room =
        is_disabled ? disabled_ < capacity_ - reservable_ : others() + reserved_ < reservable_;
    if (!has_room) {
      has_lost_ = true;
      return;
    }
    if (is_disabled) disabled_at_[disabled_++] = written_;
    slots_[written_ % capacity_] = {event, has_lost_};
    has_lost_ = false;
    // Pairs with TargetEventReader::take(), which then sees the slot.
    words_->written.store(++written_, std::memory_order_release);
  }

  bool reserve(std::size_t events) noexcept {
    note_taken();
    if (others() + reserved_ + events > reservable_) return false;
    reserved_ += events;
    return true;
  }
  void unreserve(std::size_t events) noexcept { reserved_ -= events; }

 private:
  /// Brings up to date what the client has taken.
  void note_taken() noexcept {
    // Pairs with TargetEventReader::take(): a slot has been read before it is written again.
    taken_ = words_->taken.load(std::memory_order_acquire);
    std::size_t gone = 0;
    while (gone < disabled_ && disabled_at_[gone] < taken_) ++gone;
    if (gone == 0) return;
    std::copy(&disabled_at_[gone], &disabled_at_[disabled_], &disabled_at_[0]);
    disabled_ -= gone;
  }
  /// Events in the ring that are not disabled events.
  std::size_t others() const noexcept { return static_cast<std::size_t>(written_ - taken_) - disabled_; }

  TargetEventWords* words_ = nullptr;
  TargetEventRing::Slot* slots_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t reservable_ = 0;
  std::uint64_t reserved_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t taken_ = 0;                       ///< As far as is known.
  std::unique_ptr<std::uint64_t[]> disabled_at_;  ///< Positions of the disabled events that are in the ring,
  std::size_t disabled_ = 0;                      ///< and their number.
  bool has_lost_ = false;  ///< An event was dropped since the last one that was written.
};

/// The client's end.
class TargetEventReader {
 public:
  explicit TargetEventReader(const TargetEventRing& ring) noexcept : ring_(ring) {}

  bool empty() const noexcept {
    return ring_.words->written.load(std::memory_order_acquire) ==
           ring_.words->taken.load(std::memory_order_relaxed);
  }
  /// Takes the oldest event. Returns false if there is none. `lost`: events before it were dropped.
  bool take(TargetEvent& event, bool& lost) noexcept {
    const std::uint64_t taken = ring_.words->taken.load(std::memory_order_relaxed);
    // Acquire: pairs with TargetEventWriter::push().
    if (ring_.words->written.load(std::memory_order_acquire) == taken) return false;
    const TargetEventRing::Slot& slot = ring_.slots[taken % ring_.capacity];
    event = slot.event;
    lost = slot.lost_before;
    ring_.words->taken.store(taken + 1, std::memory_order_release);
    return true;
  }

 private:
  TargetEventRing ring_;
};

/// The memory of a ring.
class TargetEventMemory {
 public:
  /// For at least `events` events, and one for each of `tables` that may be disabled. Null: no memory.
  static std::unique_ptr<TargetEventMemory> make(std::shared_ptr<ToldMemory> maker, std::size_t events,
                                                 std::size_t tables) noexcept {
    std::unique_ptr<TargetEventMemory> memory(new (std::nothrow) TargetEventMemory(std::move(maker)));
    if (memory == nullptr) return nullptr;
    TargetEventRing& ring = memory->ring;
    ring.reservable = std::max<std::size_t>(events, 1);
    ring.capacity = ring.reservable + tables;
    constexpr std::uint64_t kMostSlots =
        (SIZE_MAX - sizeof(TargetEventWords)) / sizeof(TargetEventRing::Slot);
    if (ring.capacity < tables || ring.capacity > kMostSlots) return nullptr;
    memory->block_ =
        memory->maker_->allocate(sizeof(TargetEventWords) + ring.capacity * sizeof(TargetEventRing::Slot));
    if (memory->block_ == nullptr) return nullptr;
    ring.words = new (memory->block_) TargetEventWords;
    auto* const slots = reinterpret_cast<TargetEventRing::Slot*>(memory->block_ + sizeof(TargetEventWords));
    std::uninitialized_default_construct_n(slots, ring.capacity);
    ring.slots = slots;
    return memory;
  }
  /// Of this process only.
  static std::unique_ptr<TargetEventMemory> make(std::size_t events, std::size_t tables) noexcept {
    return make(told_heap(), events, tables);
  }
  ~TargetEventMemory() {
    if (block_ != nullptr) maker_->give_back(block_);
  }
  TargetEventMemory(const TargetEventMemory&) = delete;
  TargetEventMemory& operator=(const TargetEventMemory&) = delete;

  TargetEventRing ring;

 private:
  explicit TargetEventMemory(std::shared_ptr<ToldMemory> maker) noexcept : maker_(std::move(maker)) {}

  const std::shared_ptr<ToldMemory> maker_;
  std::byte* block_ = nullptr;
};

}  // namespace ch3_offload
