// Queues by 64-bit key: append, oldest of a key, and removal in O(1), whatever else is queued.
//
// A hash table of groups, one group a key that has entries; entries hang off their group in order of
// arrival, linked through themselves. Groups come from a free list, the table doubles when it fills, so
// at a steady depth nothing is allocated.

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ch3_offload {

template <class Entry>
struct KeyedGroup {
  std::uint64_t key = 0;
  Entry* head = nullptr;
  Entry* tail = nullptr;
  KeyedGroup* next = nullptr;  ///< In the bucket, or in the free list.
};

template <class Entry>
struct KeyedHook {
  Entry* next = nullptr;
  Entry* previous = nullptr;
  KeyedGroup<Entry>* group = nullptr;  ///< Null: in no queue.
};

/// Hooks live in the array member `hooks` of Entry; kIndex says which one this table uses.
template <class Entry, std::size_t kIndex>
class KeyedQueues {
 public:
  KeyedQueues() : buckets_(kFirstBuckets, nullptr) {}

  bool empty() const noexcept { return entries_ == 0; }
  std::size_t size() const noexcept { return entries_; }

  /// REQUIRES: `entry` is not in this table. Allocates when the table or the groups must grow.
  void append(std::uint64_t key, Entry& entry) {
    Group* group = find(key);
    if (group == nullptr) group = add_group(key);
    Hook& hook = entry.hooks[kIndex];
    assert(hook.group == nullptr);
    hook = {nullptr, group->tail, group};
    (group->tail == nullptr ? group->head : group->tail->hooks[kIndex].next) = &entry;
    group->tail = &entry;
    ++entries_;
  }

  /// The oldest entry of that key, or null.
  Entry* oldest(std::uint64_t key) const noexcept {
    const Group* const group = find(key);
    return group == nullptr ? nullptr : group->head;
  }

  /// The newest entry of that key, or null; previous() walks towards the oldest.
  Entry* newest(std::uint64_t key) const noexcept {
    const Group* const group = find(key);
    return group == nullptr ? nullptr : group->tail;
  }
  static Entry* previous(const Entry& entry) noexcept { return entry.hooks[kIndex].previous; }
  static bool contains(const Entry& entry) noexcept { return entry.hooks[kIndex].group != nullptr; }

  /// REQUIRES: `entry` is in this table.
  void remove(Entry& entry) noexcept {
    Hook& hook = entry.hooks[kIndex];
    Group* const group = hook.group;
    assert(group != nullptr);
    (hook.previous == nullptr ? group->head : hook.previous->hooks[kIndex].next) = hook.next;
    (hook.next == nullptr ? group->tail : hook.next->hooks[kIndex].previous) = hook.previous;
    hook = {};
    --entries_;
    if (group->head == nullptr) remove_group(*group);
  }

 private:
  using Group = KeyedGroup<Entry>;
  using Hook = KeyedHook<Entry>;
  static constexpr std::size_t kFirstBuckets = 16;

  std::size_t bucket_of(std::uint64_t key) const noexcept {
    // Fibonacci hashing on folded halves: contexts, sources and tags differ in few low bits each.
    const std::uint64_t mixed = (key ^ key >> 29) * 0x9E37'79B9'7F4A'7C15U;
    return (mixed ^ mixed >> 32) & (buckets_.size() - 1);
  }

  Group* find(std::uint64_t key) const noexcept {
    Group* group = buckets_[bucket_of(key)];
    while (group != nullptr && group->key != key) group = group->next;
    return group;
  }

  Group* add_group(std::uint64_t key) {
    if (groups_ == buckets_.size()) double_buckets();
    if (free_ == nullptr) free_ = &storage_.emplace_back();
    Group* const group = free_;
    free_ = group->next;
    Group*& bucket = buckets_[bucket_of(key)];
    *group = {key, nullptr, nullptr, bucket};
    bucket = group;
    ++groups_;
    return group;
  }

  void remove_group(Group& group) noexcept {
    Group** link = &buckets_[bucket_of(group.key)];
    while (*link != &group) link = &(*link)->next;
    *link = group.next;
    group.next = free_;
    free_ = &group;
    --groups_;
  }

  void double_buckets() {
    std::vector<Group*> old(buckets_.size() * 2, nullptr);
    old.swap(buckets_);
    for (Group* group : old) {
      while (group != nullptr) {
        Group* const next = group->next;
        Group*& bucket = buckets_[bucket_of(group->key)];
        group->next = bucket;
        bucket = group;
        group = next;
      }
    }
  }

  std::vector<Group*> buckets_;  ///< A power of two of chains.
  std::deque<Group> storage_;    ///< Owns every group ever made; addresses are stable.
  Group* free_ = nullptr;        ///< Groups without a key, linked by next.
  std::size_t groups_ = 0;       ///< Groups in buckets.
  std::size_t entries_ = 0;
};

}  // namespace ch3_offload
