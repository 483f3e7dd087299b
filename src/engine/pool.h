// A pool of objects that are named by ids, with a generation that tells a stale id.
//
// Grows by slabs, never shrinks, never moves an object; taking and returning one touches no allocator
// once the pool has grown to its working size. The object that was returned last is taken first, since it
// is likely to be in the cache. An id has 30 bits of index and 32 of generation, and 2 bits between them that
// are the user's, 0 here. A generation is odd while the object is taken, so an id comes again after 2 billion
// reuses of one object. 0 is never an id. Ids stay in the process: what goes over the wire is numbered apart
// (State::number_outgoing()).

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace ch3_offload {

/// T has a public member `std::uint64_t pool_id = 0` that is the pool's. A taken object is a fresh one: T has
/// a default constructor that does not throw, or a function recycle() that undoes all that a user may have
/// done.
template <class T>
class Pool {
 public:
  static constexpr unsigned kIndexBits = 30;
  static constexpr unsigned kUserBits = 2;  ///< Above the index.
  static constexpr std::uint32_t kMaxObjects = (1U << kIndexBits) - 1;

  /// A fresh object, or null when memory or ids (almost 2^30) have run out.
  T* take() noexcept {
    if (free_ == nullptr && !grow()) [[unlikely]]
      return nullptr;
    Cell* const cell = free_;
    free_ = cell->next_free;
    cell->pool_id += kGeneration;
    ++live_;
    return cell;
  }

  /// Makes room for so many objects in all, so that take() allocates nothing until they are taken. Returns
  /// false without memory or ids.
  bool reserve(std::size_t objects) noexcept {
    if (objects > kMaxObjects) return false;
    while (slabs_.size() * kSlabObjects < objects)
      if (!grow()) return false;
    return true;
  }

  /// REQUIRES: `object` was taken from this pool and not returned since.
  void give_back(T& object) noexcept {
    assert(is_taken(object.pool_id));
    const std::uint64_t next_id =
        object.pool_id + kGeneration;  // May overflow: that is the first generation.
    if constexpr (requires { object.recycle(); }) {
      object.recycle();
    } else {
      std::destroy_at(&object);
      std::construct_at(&object);
    }
    object.pool_id = next_id;
    Cell& cell = static_cast<Cell&>(object);
    cell.next_free = free_;
    free_ = &cell;
    --live_;
  }

  /// The live object of that id, or null: ids come from callers and may be stale or invented.
  T* find(std::uint64_t id) noexcept {
    const std::uint32_t index = (static_cast<std::uint32_t>(id) & kMaxObjects) - 1;
    if (!is_taken(id) || index >= slabs_.size() * kSlabObjects) return nullptr;
    T& object = slabs_[index / kSlabObjects][index % kSlabObjects];
    return object.pool_id == id ? &object : nullptr;
  }

  std::size_t live() const noexcept { return live_; }

  /// What one object takes, the pool's own share included. Bytes.
  static constexpr std::size_t bytes_per_object() noexcept { return sizeof(Cell); }

 private:
  static constexpr std::uint32_t kSlabObjects = 32;
  // pool_id: index + 1, so that no id is 0; the generation at the top.
  static constexpr std::uint64_t kGeneration = std::uint64_t{1} << (kIndexBits + kUserBits);
  static constexpr bool is_taken(std::uint64_t id) noexcept { return (id & kGeneration) != 0; }

  struct Cell final : T {
    Cell* next_free = nullptr;
  };

  bool grow() noexcept {
    if ((slabs_.size() + 1) * kSlabObjects > kMaxObjects) return false;
    try {
      slabs_.push_back(std::make_unique<Cell[]>(kSlabObjects));
    } catch (const std::bad_alloc&) {
      return false;
    }
    const auto first = static_cast<std::uint32_t>((slabs_.size() - 1) * kSlabObjects);
    for (std::uint32_t i = kSlabObjects; i-- > 0;) {
      Cell& cell = slabs_.back()[i];
      cell.pool_id = first + i + 1;
      cell.next_free = free_;
      free_ = &cell;
    }
    return true;
  }

  std::vector<std::unique_ptr<Cell[]>> slabs_;
  Cell* free_ = nullptr;  ///< Null: none.
  std::size_t live_ = 0;
};

}  // namespace ch3_offload
