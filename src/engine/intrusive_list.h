// A doubly linked list through the elements: no allocation, O(1) removal from the middle.
//
// An element has one hook member per list that it can be in: a ListHook<T>, which knows whether it is
// linked, or a BareHook<T>, whose removal takes fewer instructions. The list never owns.

#pragma once

#include <cassert>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace ch3_offload {

template <class T>
struct BareHook {
  T* next = nullptr;
  T* previous = nullptr;
};

template <class T>
struct ListHook {
  T* next = nullptr;
  T* previous = nullptr;  ///< Of the first element: itself. Null: it is in no list.
  bool linked() const noexcept { return previous != nullptr; }
};

static_assert(sizeof(ListHook<int>) == 2 * sizeof(void*), "a peer has four, a message three");

/// kCounted: the list knows its size.
template <class T, auto kHook, bool kCounted = false>
class IntrusiveList {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  std::size_t size() const noexcept requires kCounted { return count_; }
  T* front() const noexcept { return head_; }
  T* back() const noexcept { return tail_; }
  static T* next(const T& element) noexcept { return (element.*kHook).next; }
  static T* previous(const T& element) noexcept {
    T* const previous = (element.*kHook).previous;
    return kFirstIsItself && previous == &element ? nullptr : previous;
  }

  /// REQUIRES: `element` is in no list by this hook.
  void push_back(T& element) noexcept {
    auto& hook = element.*kHook;
    if constexpr (kFirstIsItself) assert(!hook.linked());
    hook.next = nullptr;
    hook.previous = kFirstIsItself && tail_ == nullptr ? &element : tail_;
    (tail_ == nullptr ? head_ : (tail_->*kHook).next) = &element;
    tail_ = &element;
    if constexpr (kCounted) ++count_;
  }

  /// `before`: an element of this list; null: the new one becomes the first. REQUIRES: `element` is in no
  /// list by this hook.
  void insert_after(T* before, T& element) noexcept {
    T* const after = before == nullptr ? head_ : (before->*kHook).next;
    if (after == nullptr) return push_back(element);
    auto& hook = element.*kHook;
    if constexpr (kFirstIsItself) assert(!hook.linked());
    hook.next = after;
    hook.previous = kFirstIsItself && before == nullptr ? &element : before;
    (after->*kHook).previous = &element;
    (before == nullptr ? head_ : (before->*kHook).next) = &element;
    if constexpr (kCounted) ++count_;
  }

  /// REQUIRES: `element` is in this list.
  void remove(T& element) noexcept {
    auto& hook = element.*kHook;
    if constexpr (kFirstIsItself) assert(hook.linked());
    T* const before = previous(element);
    (before == nullptr ? head_ : (before->*kHook).next) = hook.next;
    if (hook.next == nullptr) {
      tail_ = before;
    } else {
      (hook.next->*kHook).previous = kFirstIsItself && before == nullptr ? hook.next : before;
    }
    hook = {};
    if constexpr (kCounted) --count_;
  }

  T* pop_front() noexcept {
    T* const element = head_;
    if (element != nullptr) remove(*element);
    return element;
  }

 private:
  static constexpr bool kFirstIsItself =
      std::is_same_v<std::remove_cvref_t<decltype(std::declval<T&>().*kHook)>, ListHook<T>>;
  T* head_ = nullptr;
  T* tail_ = nullptr;
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<kCounted, std::size_t, Nothing> count_{};
};

}  // namespace ch3_offload
