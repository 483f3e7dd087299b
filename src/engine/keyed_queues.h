// Queues by 64-bit key: append, oldest of a key, and removal in O(1), whatever else is queued.
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

namespace ch3_offload {

template <class Entry>
struct KeyedHook {
  Entry* next = nullptr;      ///< The next newer entry of the key; null: this is the newest.
  Entry* previous = nullptr;  ///< The next older; of the oldest: the newest of the key. Null: in no queue.
  Entry* chain = nullptr;     ///< Of the oldest of a key: the oldest of another key in the same bucket.
};

/// kHook: the hook of an entry that this table uses. kBits(entry): 64 bits, of which those in the table's
/// mask are the key; they do not change while the entry is in the table.
template <class Entry, KeyedHook<Entry> Entry::*kHook, std::uint64_t (*kBits)(const Entry&)>
class KeyedQueues {
 public:
  explicit KeyedQueues(std::uint64_t mask = ~std::uint64_t{0}) noexcept : mask_(mask) {}
  KeyedQueues(const KeyedQueues&) = delete;
  KeyedQueues& operator=(const KeyedQueues&) = delete;

  bool empty() const noexcept { return keys_ == 0; }

  /// REQUIRES: `entry` is not in this table. Allocates nothing but larger tables of buckets.
  void append(Entry& entry) noexcept {
    const std::uint64_t key = kBits(entry) & mask_;
    KeyedHook<Entry>& hook = entry.*kHook;
    assert(hook.previous == nullptr);
    if (Entry* const oldest = find(key); oldest != nullptr) {
      Entry*& newest = (oldest->*kHook).previous;
      (newest->*kHook).next = &entry;
      hook = {nullptr, newest, nullptr};
      newest = &entry;
      return;
    }
    if (keys_ >= bucket_count_) double_buckets();
    Entry*& bucket = buckets_[bucket_of(key)];
    hook = {nullptr, &entry, bucket};
    bucket = &entry;
    ++keys_;
  }

  /// The oldest entry with the key of `bits`, or null.
  Entry* oldest(std::uint64_t bits) const noexcept { return find(bits & mask_); }

  /// The link to the oldest entry with the key of `bits`: a link to null if there is none. Valid until this
  /// table changes.
  Entry** link_to_oldest(std::uint64_t bits) noexcept {
    const std::uint64_t key = bits & mask_;
    Entry** link = &buckets_[bucket_of(key)];
    while (*link != nullptr && (kBits(**link) & mask_) != key) link = &((*link)->*kHook).chain;
    return link;
  }

  /// The newest entry with the key of `bits`, or null; previous() walks towards the oldest.
  Entry* newest(std::uint64_t bits) const noexcept {
    const Entry* const oldest = find(bits & mask_);
    return oldest == nullptr ? nullptr : (oldest->*kHook).previous;
  }
  static Entry* previous(const Entry& entry) noexcept {
    return is_oldest(entry) ? nullptr : (entry.*kHook).previous;
  }
  static bool contains(const Entry& entry) noexcept { return (entry.*kHook).previous != nullptr; }

  /// REQUIRES: `entry` is in this table.
  void remove(Entry& entry) noexcept {
    KeyedHook<Entry>& hook = entry.*kHook;
    assert(hook.previous != nullptr);
    const std::uint64_t key = kBits(entry) & mask_;
    if (is_oldest(entry)) {
      Entry** link = &buckets_[bucket_of(key)];
      while (*link != &entry) link = &((*link)->*kHook).chain;
      return remove_oldest(link);
    }
    (hook.previous->*kHook).next = hook.next;
    Entry* const follower = hook.next != nullptr ? hook.next : find(key);
    (follower->*kHook).previous = hook.previous;
    hook = {};
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
    hook = {};
  }

 private:
  static constexpr std::size_t kFirstBuckets = 16;

  /// The oldest of a key points back at the newest, which nothing follows.
  static bool is_oldest(const Entry& entry) noexcept {
    return ((entry.*kHook).previous->*kHook).next == nullptr;
  }

  std::size_t bucket_of(std::uint64_t key) const noexcept {
    // Fibonacci hashing on folded halves: contexts, sources and tags differ in few low bits each.
    const std::uint64_t mixed = (key ^ key >> 29) * 0x9E37'79B9'7F4A'7C15U;
    return (mixed ^ mixed >> 32) & (bucket_count_ - 1);
  }

  Entry* find(std::uint64_t key) const noexcept {
    Entry* entry = buckets_[bucket_of(key)];
    while (entry != nullptr && (kBits(*entry) & mask_) != key) entry = (entry->*kHook).chain;
    return entry;
  }

  void double_buckets() noexcept {
    std::unique_ptr<Entry*[]> larger(new (std::nothrow) Entry*[bucket_count_ * 2]());
    if (larger == nullptr) return;
    Entry** const old = buckets_;
    const std::size_t old_count = bucket_count_;
    buckets_ = larger.get();
    bucket_count_ *= 2;
    for (std::size_t i = 0; i < old_count; ++i) {
      for (Entry* entry = old[i]; entry != nullptr;) {
        Entry* const next = (entry->*kHook).chain;
        Entry*& bucket = buckets_[bucket_of(kBits(*entry) & mask_)];
        (entry->*kHook).chain = bucket;
        bucket = entry;
        entry = next;
      }
    }
    allocated_ = std::move(larger);
  }

  const std::uint64_t mask_;
  std::array<Entry*, kFirstBuckets> first_buckets_{};
  std::unique_ptr<Entry*[]> allocated_;     ///< Null: first_buckets_ is in use.
  Entry** buckets_ = first_buckets_.data();
  std::size_t bucket_count_ = kFirstBuckets;  ///< A power of two.
  std::size_t keys_ = 0;
};

}  // namespace ch3_offload
