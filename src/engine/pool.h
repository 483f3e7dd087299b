// A pool of objects that are named by ids, with a generation that tells a stale id.
//
// Grows by slabs, never shrinks, never moves an object; taking and returning one touches no allocator
// once the pool has grown to its working size. The object that was returned last is taken first, since it
// is likely to be in the cache. An id has 30 bits of index and 32 of generation, so it comes again after
// 4 billion reuses of one object. 0 is never an id. Ids stay in the process: what goes over the wire is
// numbered apart (State::number_send()).

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace ch3_offload {

/// T has a public member `std::uint64_t pool_id = 0` (0 while it is free) that the pool sets, and a
/// default constructor that does not throw: a taken object is always a fresh T().
template <class T>
class Pool {
 public:
  static constexpr unsigned kIndexBits = 30;
  static constexpr unsigned kIdBits = kIndexBits + 32;
  static constexpr std::uint32_t kMaxObjects = 1U << kIndexBits;

  /// A fresh object, or null when memory or ids (2^30) have run out.
  T* take() noexcept {
    if (free_ == kNone && !grow()) return nullptr;
    const std::uint32_t index = free_;
    Cell& cell = at(index);
    free_ = cell.next_free;
    cell.object.pool_id = std::uint64_t{cell.generation} << kIndexBits | index;
    ++live_;
    return &cell.object;
  }

  /// REQUIRES: `object` was taken from this pool and not returned since.
  void give_back(T& object) noexcept {
    assert(find(object.pool_id) == &object);
    const std::uint32_t index = static_cast<std::uint32_t>(object.pool_id) & (kMaxObjects - 1);
    Cell& cell = at(index);
    std::destroy_at(&object);
    std::construct_at(&object);
    // Generation 0 is skipped, so that no id is 0.
    if (++cell.generation == 0) cell.generation = 1;
    cell.next_free = free_;
    free_ = index;
    --live_;
  }

  /// The live object of that id, or null: ids come from callers and may be stale or invented.
  T* find(std::uint64_t id) noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(id) & (kMaxObjects - 1);
    if (id == 0 || index >= slabs_.size() * kSlabObjects) return nullptr;
    T& object = at(index).object;
    return object.pool_id == id ? &object : nullptr;
  }

  std::size_t live() const noexcept { return live_; }

  /// What one object takes, the pool's own share included. Bytes.
  static constexpr std::size_t bytes_per_object() noexcept { return sizeof(Cell); }

 private:
  static constexpr std::uint32_t kSlabObjects = 32;
  static constexpr std::uint32_t kNone = UINT32_MAX;

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
