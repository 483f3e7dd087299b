// Objects of one type that come and go: allocated by slabs, kept for reuse, never moved.

#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace ch3_offload {

/// T has a public member `T* next`, which links free objects and is the user's in between.
template <class T>
class FreeList {
 public:
  /// A fresh T(), or null without memory.
  T* take() noexcept {
    if (free_ == nullptr && !grow()) return nullptr;
    T* const object = free_;
    free_ = object->next;
    *object = T();
    return object;
  }

  void give_back(T& object) noexcept {
    object.next = free_;
    free_ = &object;
  }

 private:
  static constexpr std::size_t kSlabObjects = 64;

  bool grow() noexcept {
    try {
      slabs_.push_back(std::make_unique<T[]>(kSlabObjects));
    } catch (const std::bad_alloc&) {
      return false;
    }
    for (std::size_t i = kSlabObjects; i-- > 0;) give_back(slabs_.back()[i]);
    return true;
  }

  std::vector<std::unique_ptr<T[]>> slabs_;
  T* free_ = nullptr;
};

}  // namespace ch3_offload
