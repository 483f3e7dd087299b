// A pool of objects that are named by small ids, with a generation that tells a stale id.
//
// Grows by slabs, never shrinks, never moves an object; taking and returning one touches no allocator
// once the pool has grown to its working size. An id fits 32 bits, because it travels as a write's
// immediate: 24 bits of index, 8 of generation. 0 is never an id.

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace ch3_offload {

/// T has a public member `std::uint32_t pool_id = 0` (0 while it is free) that the pool sets, and a
/// default constructor that does not throw: a taken object is always a fresh T().
template <class T>
class Pool {
 public:
  static constexpr std::uint32_t kIndexBits = 24;
  static constexpr std::uint32_t kMaxObjects = 1U << kIndexBits;

  /// A fresh object, or null when memory or ids (16 million) have run out.
  T* take() noexcept {
    if (free_ == kNone && !grow()) return nullptr;
    const std::uint32_t index = free_;
    Cell& cell = at(index);
    free_ = cell.next_free;
    cell.object.pool_id = cell.generation << kIndexBits | index;
    ++live_;
    return &cell.object;
  }

  /// REQUIRES: `object` was taken from this pool and not returned since.
  void give_back(T& object) noexcept {
    assert(find(object.pool_id) == &object);
    const std::uint32_t index = object.pool_id & (kMaxObjects - 1);
    Cell& cell = at(index);
    std::destroy_at(&object);
    std::construct_at(&object);
    // Generation 0 is skipped, so that no id is 0.
    cell.generation = cell.generation == kMaxGeneration ? 1 : cell.generation + 1;
    cell.next_free = free_;
    free_ = index;
    --live_;
  }

  /// The live object of that id, or null: ids come from peers and from callers and may be stale or
  /// invented.
  T* find(std::uint32_t id) noexcept {
    const std::uint32_t index = id & (kMaxObjects - 1);
    if (id == 0 || index >= slabs_.size() * kSlabObjects) return nullptr;
    T& object = at(index).object;
    return object.pool_id == id ? &object : nullptr;
  }

  std::size_t live() const noexcept { return live_; }

  /// Calls visit(T&) for every live object, in no particular order; visit may give it back.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto& slab : slabs_) {
      for (std::size_t i = 0; i < kSlabObjects; ++i) {
        if (slab[i].object.pool_id != 0) visit(slab[i].object);
      }
    }
  }

 private:
  static constexpr std::uint32_t kSlabObjects = 32;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kMaxGeneration = (1U << (32 - kIndexBits)) - 1;

  struct Cell {
    T object{};
    std::uint32_t generation = 1;
    std::uint32_t next_free = kNone;
  };

  Cell& at(std::uint32_t index) noexcept {
    return slabs_[index / kSlabObjects][index % kSlabObjects];
  }

  bool grow() noexcept {
    if (slabs_.size() * kSlabObjects >= kMaxObjects) return false;
    try {
      slabs_.push_back(std::make_unique<Cell[]>(kSlabObjects));
    } catch (const std::bad_alloc&) {
      return false;
    }
    const auto first = static_cast<std::uint32_t>((slabs_.size() - 1) * kSlabObjects);
    for (std::uint32_t i = kSlabObjects; i-- > 0;) {
      at(first + i).next_free = free_;
      free_ = first + i;
    }
    return true;
  }

  std::vector<std::unique_ptr<Cell[]>> slabs_;
  std::uint32_t free_ = kNone;  ///< First free index, kNone: none.
  std::size_t live_ = 0;
};

}  // namespace ch3_offload
