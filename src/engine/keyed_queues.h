// Queues by key: append, oldest of a key, and removal in O(1), whatever else is queued.
//
// A hash table whose buckets chain the oldest entry of each key; the others of a key hang off it in order
// of arrival. Everything is linked through the entries, so no operation can fail. The table of buckets
// doubles when there are more keys than buckets. Without memory for that it stays as it is, and only gets
// slower.

#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "engine/match_key.h"

namespace ch3_offload {

template <class Entry>
struct KeyedHook {
  Entry* next = nullptr;      ///< The next newer entry of the key; null: this is the newest.
  Entry* previous = nullptr;  ///< The next older; of the oldest: the newest of the key. Null: in no queue.
  Entry* chain = nullptr;     ///< Of the oldest of a key: the oldest of another key in the same bucket.
};

// Fibonacci hashing: contexts, ranks, tags and running numbers differ in few low bits each, and the best bits
// of a product are its upper ones. Each part of a key has a multiplier of its own: the tag, in the lower half
// of the bits, sees all of kBitsFactor (the golden ratio), the context only its lower half (the square root
// of 2), and the initiator the square root of 3.
inline constexpr std::uint64_t kBitsFactor = 0x9E37'79B9'6A09'E667U;
inline constexpr std::uint64_t kInitiatorFactor = 0xBB67'AE85'84CA'A73BU;
constexpr std::uint64_t hash_of(std::uint64_t key) noexcept { return key * kBitsFactor; }
constexpr std::uint64_t hash_of(const MatchKey& key) noexcept {
  return key.bits * kBitsFactor + key.initiator * kInitiatorFactor;
}

/// kHook: the hook of an entry that this table uses. kKey(entry): of which the part in the table's mask is
/// the key; it does not change while the entry is in the table.
template <class Entry, KeyedHook<Entry> Entry::*kHook, auto kKey>
class KeyedQueues {
 public:
  using Key = std::remove_cvref_t<decltype(kKey(std::declval<const Entry&>()))>;

  explicit KeyedQueues(const Key& mask = ~Key{}) noexcept : mask_(mask) {}
  KeyedQueues(const KeyedQueues&) = delete;
  KeyedQueues& operator=(const KeyedQueues&) = delete;

  bool empty() const noexcept { return keys_ == 0; }

  /// REQUIRES: `entry` is not in this table. Allocates nothing but larger tables of buckets.
  void append(Entry& entry) noexcept {
    KeyedHook<Entry>& hook = entry.*kHook;
    assert(hook.previous == nullptr);
    Entry** const link = link_to_oldest(kKey(entry));
    if (Entry* const oldest = *link; oldest != nullptr) {
      Entry*& newest = (oldest->*kHook).previous;
      (newest->*kHook).next = &entry;
      hook = {nullptr, newest, nullptr};
      newest = &entry;
      return;
    }
    hook = {nullptr, &entry, nullptr};
    *link = &entry;
    if (++keys_ > bucket_count()) [[unlikely]]
      double_buckets();
  }

  /// The oldest entry with that key, or null.
  Entry* oldest(const Key& key) const noexcept { return *link_to_oldest(key); }

  /// The link to the oldest entry with that key: a link to null if there is none. Valid until this table
  /// changes.
  Entry** link_to_oldest(const Key& whole) const noexcept {
    const Key key = whole & mask_;
    Entry** link = &buckets_[bucket_of(key)];
    while (*link != nullptr && !(key_of(**link) == key)) link = &((*link)->*kHook).chain;
    return link;
  }

  /// The newest entry with that key, or null; previous() walks towards the oldest.
  Entry* newest(const Key& key) const noexcept {
    const Entry* const first = oldest(key);
    return first == nullptr ? nullptr : (first->*kHook).previous;
  }
  static Entry* previous(const Entry& entry) noexcept {
    return is_oldest(entry) ? nullptr : (entry.*kHook).previous;
  }
  /// The next newer entry of the same key, or null.
  static Entry* next(const Entry& entry) noexcept { return (entry.*kHook).next; }
  static bool contains(const Entry& entry) noexcept { return (entry.*kHook).previous != nullptr; }

  /// REQUIRES: `entry` is in this table.
  void remove(Entry& entry) noexcept {
    KeyedHook<Entry>& hook = entry.*kHook;
    assert(hook.previous != nullptr);
    if (is_oldest(entry)) return remove_oldest(link_to_oldest(kKey(entry)));
    (hook.previous->*kHook).next = hook.next;
    Entry* const follower = hook.next != nullptr ? hook.next : oldest(kKey(entry));
    (follower->*kHook).previous = hook.previous;
    hook.previous = nullptr;
  }

  /// REQUIRES: `link` is from link_to_oldest(), and does not lead to null.
  void remove_oldest(Entry** link) noexcept {
    KeyedHook<Entry>& hook = (*link)->*kHook;
    if (hook.next == nullptr) {
      *link = hook.chain;
      --keys_;
    } else {
      KeyedHook<Entry>& heir = hook.next->*kHook;
      heir.previous = hook.previous;
      heir.chain = hook.chain;
      *link = hook.next;
    }
    hook.previous = nullptr;
  }

  /// Calls `visit(entry)` for each: those of a key from its oldest to its newest.
  template <class Visit>
  void for_each(const Visit& visit) const {
    if (keys_ == 0) return;  // The table may have been large.
    for (std::size_t bucket = 0; bucket < bucket_count(); ++bucket) {
      for (Entry* first = buckets_[bucket]; first != nullptr; first = (first->*kHook).chain)
        for (Entry* entry = first; entry != nullptr; entry = (entry->*kHook).next) visit(*entry);
    }
  }

  /// Takes out the entries that `chosen(entry)` is true of, and hands each to `taken(entry)`: those of a key
  /// from its second oldest to its newest, then its oldest.
  template <class Chosen, class Taken>
  void take_if(const Chosen& chosen, const Taken& taken) {
    if (keys_ == 0) return;  // The table may have been large.
    for (std::size_t bucket = 0; bucket < bucket_count(); ++bucket) {
      for (Entry** link = &buckets_[bucket]; *link != nullptr;) {
        Entry& first = **link;
        for (Entry* entry = (first.*kHook).next; entry != nullptr;) {
          Entry* const next = (entry->*kHook).next;
          if (chosen(*entry)) {
            remove(*entry);
            taken(*entry);
          }
          entry = next;
        }
        if (!chosen(first)) {
          link = &(first.*kHook).chain;
          continue;
        }
        const bool has_heir = (first.*kHook).next != nullptr;
        remove_oldest(link);
        if (has_heir) link = &((*link)->*kHook).chain;
        taken(first);
      }
    }
  }

 private:
  static constexpr unsigned kFirstBucketBits = 4;
  static constexpr unsigned kHashBits = 64;

  /// The oldest of a key points back at the newest, which nothing follows.
  static bool is_oldest(const Entry& entry) noexcept {
    return ((entry.*kHook).previous->*kHook).next == nullptr;
  }

  Key key_of(const Entry& entry) const noexcept { return kKey(entry) & mask_; }

  std::size_t bucket_of(const Key& key) const noexcept { return hash_of(key) >> shift_; }
  std::size_t bucket_count() const noexcept { return std::size_t{1} << (kHashBits - shift_); }

  void double_buckets() noexcept {
    std::unique_ptr<Entry*[]> larger(new (std::nothrow) Entry*[bucket_count() * 2]());
    if (larger == nullptr) return;
    Entry** const old = buckets_;
    const std::size_t old_count = bucket_count();
    buckets_ = larger.get();
    --shift_;
    for (std::size_t i = 0; i < old_count; ++i) {
      for (Entry* entry = old[i]; entry != nullptr;) {
        Entry* const next = (entry->*kHook).chain;
        Entry*& bucket = buckets_[bucket_of(key_of(*entry))];
        (entry->*kHook).chain = bucket;
        bucket = entry;
        entry = next;
      }
    }
    allocated_ = std::move(larger);
  }

  const Key mask_;
  std::array<Entry*, std::size_t{1} << kFirstBucketBits> first_buckets_{};
  std::unique_ptr<Entry*[]> allocated_;     ///< Null: first_buckets_ is in use.
  Entry** buckets_ = first_buckets_.data();
  unsigned shift_ = kHashBits - kFirstBucketBits;  ///< The upper bits of a hash are the bucket.
  std::size_t keys_ = 0;
};

}  // namespace ch3_offload
