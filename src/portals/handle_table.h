// Objects that the program names by handles: event queues and memory descriptors of one interface.
//
// A slot counts its objects, so a stale handle finds none, also after the interface was closed and opened
// again. The slot that was freed first is taken first.
//
// Threads: one at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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
    if (free_.empty()) {
      const auto index = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
      try {
        free_.push_back(index);
      } catch (...) {
        slots_.pop_back();
        throw;
      }
    }
    const std::uint32_t index = free_.front();
    free_.pop_front();
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

  /// REQUIRES: find() has found it. Throws std::bad_alloc, with no effect.
  void remove(ptl_handle_any_t handle) {
    const std::uint32_t index = index_of(handle);
    free_.push_back(index);
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
  void clear() {
    for_each([this](ptl_handle_any_t handle, T&) { remove(handle); });
  }

 private:
  struct Slot {
    std::uint64_t generation = 0;
    std::shared_ptr<T> object;  ///< Null: free.
  };

  Slot* slot_of(ptl_handle_any_t handle) noexcept {
    const std::uint32_t index = index_of(handle);
    if (index >= slots_.size() || slots_[index].object == nullptr) return nullptr;
    return make_handle(kind_, interface_, slots_[index].generation, index) == handle ? &slots_[index]
                                                                                     : nullptr;
  }

  const HandleKind kind_;
  const unsigned interface_;
  std::vector<Slot> slots_;
  std::deque<std::uint32_t> free_;
  std::size_t live_ = 0;
};

}  // namespace ch3_offload::portals
