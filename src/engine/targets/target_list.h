// The priority list or the overflow list of a table: which of its entries takes an operation.
//
// Entries of one ignore mask are in one hash table, by the rest of their key. Entries of a mask that finds no
// table are in a list. In each bucket, and in the list, entries are in the order of their append. So the first
// one that can take an operation is the oldest of its mask, and the lowest stamp of these is the oldest of all.
//
// A search costs one look-up for each mask in use, at most kMostMasks, whatever the number of entries. It
// walks only past entries that have the operation's key and cannot take it (kNoTruncate), and along the list
// of the masks beyond kMostMasks, which has kMostUnkeyed entries at most: a processor that serves others must
// not search for long because of one.
//
// Threads: one. Allocation: append() allocates a table for a new mask. Without memory for that, the entry is
// in the list.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/intrusive_list.h"
#include "engine/keyed_queues.h"
#include "engine/targets/target_entry.h"

namespace ch3_offload {

class TargetList {
 public:
  static constexpr std::size_t kMostMasks = 64;
  static constexpr std::size_t kMostUnkeyed = 1024;

  /// Whether append() takes an entry with that mask. False: it is one of too many masks.
  bool takes(const TargetKey& ignore) const noexcept;
  /// Appends an entry, which must stay where it is. REQUIRES: takes() its mask.
  void append(TargetEntry& entry) noexcept;

  /// REQUIRES: `entry` is in this list.
  void remove(TargetEntry& entry) noexcept;

  /// The oldest entry that matches the operation and can take it, or null.
  TargetEntry* find(const TargetHeader& header) const noexcept;

  std::size_t size() const noexcept { return size_; }

  /// Entries that all searches so far have looked at. For counters and tests.
  std::uint64_t looked_at() const noexcept { return looked_at_; }

 private:
  static const TargetKey& key_of(const TargetEntry& entry) noexcept { return entry.its.key; }
  using Queues = KeyedQueues<TargetEntry, &TargetEntry::keyed_hook, &key_of>;
  using Unkeyed = IntrusiveList<TargetEntry, &TargetEntry::unkeyed_hook, true>;

  struct MaskTable {
    explicit MaskTable(const TargetKey& ignore) noexcept : queues(~ignore) {}
    Queues queues;
    std::size_t entries = 0;
  };
  /// One mask. The mask is outside the table, so that looking for it touches no table.
  struct Mask {
    TargetKey ignore{};
    std::unique_ptr<MaskTable> table;
  };
  static constexpr std::uint32_t kUnkeyed = UINT32_MAX;  ///< TargetEntry::mask_index.

  std::uint32_t index_for(const TargetKey& ignore) noexcept;

  std::vector<Mask> masks_;          ///< By TargetEntry::mask_index. An empty table serves the next new mask.
  std::vector<std::uint32_t> used_;  ///< Indices of tables that are not empty, in no order.
  Unkeyed unkeyed_;
  std::uint64_t next_stamp_ = 0;
  std::size_t size_ = 0;
  mutable std::uint64_t looked_at_ = 0;
};

}  // namespace ch3_offload
