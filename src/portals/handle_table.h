// Objects that the program names by handles: event queues and memory descriptors of one interface.
//
// A slot counts its objects, so a stale handle finds none, also after the interface was closed and opened
// again. The slot that was freed first is taken first.
//
// Threads: one at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "portals/handle.h"

namespace ch3_offload::portals {

template <class T>
class HandleTable {
 public:
  HandleTable(HandleKind kind, unsigned interface) noexcept : kind_(kind), interface_(interface) {}

  /// Throws std::bad_alloc, with no effect.
  ptl_handle_any_t add(std::shared_ptr<T> object) {
    if (first_free_ == kNone) {
      slots_.emplace_back();
      append_free(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t index = first_free_;
    first_free_ = slots_[index].next_free;
    Slot& slot = slots_[index];
    slot.object = std::move(object);
    ++live_;
    return make_handle(kind_, interface_, slot.generation, index);
  }

  /// Null: there is none. It is the table's until remove().
  T* find(ptl_handle_any_t handle) noexcept {
    Slot* const slot = slot_of(handle);
    return slot == nullptr ? nullptr : slot->object.get();
  }
  /// The same, and the caller's as well.
  std::shared_ptr<T> share(ptl_handle_any_t handle) noexcept {
    Slot* const slot = slot_of(handle);
    return slot == nullptr ? nullptr : slot->object;
  }

  /// REQUIRES: find() has found it.
  void remove(ptl_handle_any_t handle) noexcept {
    const std::uint32_t index = index_of(handle);
    append_free(index);
    Slot& slot = slots_[index];
    slot.object.reset();
    slot.generation = (slot.generation + 1) % kHandleGenerations;
    --live_;
  }

  std::size_t live() const noexcept { return live_; }

  /// Calls `visit` with the handle and the object of each one.
  template <class Visit>
  void for_each(Visit visit) {
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
      const Slot& slot = slots_[index];
      if (slot.object != nullptr) visit(make_handle(kind_, interface_, slot.generation, index), *slot.object);
    }
  }
  void clear() noexcept {
    for_each([this](ptl_handle_any_t handle, T&) { remove(handle); });
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Slot {
    std::uint64_t generation = 0;
    std::shared_ptr<T> object;        ///< Null: free.
    std::uint32_t next_free = kNone;  ///< Of one that is free.
  };

  /// The one that was freed first is used first, so that a stale handle is noticed for long.
  void append_free(std::uint32_t index) noexcept {
    slots_[index].next_free = kNone;
    (first_free_ == kNone ? first_free_ : slots_[last_free_].next_free) = index;
    last_free_ = index;
  }

  Slot* slot_of(ptl_handle_any_t handle) noexcept {
    const std::uint32_t index = index_of(handle);
    if (index >= slots_.size() || slots_[index].object == nullptr) return nullptr;
    return make_handle(kind_, interface_, slots_[index].generation, index) == handle ? &slots_[index]
                                                                                     : nullptr;
  }

  const HandleKind kind_;
  const unsigned interface_;
  std::vector<Slot> slots_;
  std::uint32_t first_free_ = kNone;
  std::uint32_t last_free_ = kNone;  ///< Means nothing if there is none.
  std::size_t live_ = 0;
};

}  // namespace ch3_offload::portals
