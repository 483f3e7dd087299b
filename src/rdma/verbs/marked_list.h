// A list without duplicates: a mark in each object says whether it is in the list. Only make_room() allocates.
//
// Threads: one at a time.

#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace ch3_offload {

/// `Mark`: a bool of T that nothing else changes.
template <class T, bool T::*Mark>
class MarkedList {
 public:
  bool empty() const noexcept { return members_.empty(); }
  std::size_t size() const noexcept { return members_.size(); }
  /// Prepares for so many members. Throws std::bad_alloc.
  void make_room(std::size_t count) {
    members_.reserve(count);
    visited_.reserve(count);
  }
  /// REQUIRES: make_room() has made room. Has no effect on a member.
  void add(T& object) noexcept {
    assert(object.*Mark || members_.size() < members_.capacity());
    if (!std::exchange(object.*Mark, true)) members_.push_back(&object);
  }
  /// Takes all members out and calls `visit` with each of them. `visit` may add members, also the one that it
  /// visits; they are visited next time.
  template <class Visit>
  void drain(Visit visit) noexcept {
    assert(visited_.empty());
    visited_.swap(members_);
    for (std::size_t i = 0; i < visited_.size(); ++i) {
      visited_[i]->*Mark = false;
      visit(*visited_[i]);
    }
    visited_.clear();
  }

 private:
  std::vector<T*> members_;
  std::vector<T*> visited_;  ///< By drain().
};

}  // namespace ch3_offload
