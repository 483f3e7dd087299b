// Headers of operations that the overflow list has taken, and that no entry of the priority list has matched.
//
// An entry that is appended, or a search, looks for them in the order of arrival. The first kIndices masks
// that do so get an index each: a hash table of all headers by the rest of their key. Headers are entered into
// the indices through nodes that they hold. Other masks walk along all headers. If one
// has walked, the indices are given up when no header is left, and the next masks may have them.
//
// Threads: one. Allocation: an index is made by the search that is the first of its mask, and grows by doubling.
// Without memory it is not made, and that search walks, or it stays small.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/intrusive_list.h"
#include "engine/keyed_queues.h"
#include "engine/targets/target_entry.h"

namespace ch3_offload {

struct UnexpectedHeader;

/// A header in one index.
struct HeaderNode {
  UnexpectedHeader* header = nullptr;
  KeyedHook<HeaderNode> hook{};
};

/// Who has matched a header: an appended entry, or a search.
struct HeaderTaker {
  TargetEntry* entry = nullptr;  ///< Null: a search.
  std::uint32_t options = 0;
  CounterId counter = kNoCounter;
  void* cookie = nullptr;
  bool unlink_follows = false;  ///< The entry never links: its auto-unlink event comes next.
};

struct UnexpectedHeader {
  static constexpr std::size_t kIndices = 4;

  std::uint64_t pool_id = 0;
  TargetHeader header;
  TargetEntry* entry = nullptr;    ///< Of the overflow list.
  std::uint64_t offset_bytes = 0;  ///< Where in the entry's memory it is,
  std::uint64_t length_bytes = 0;  ///< and how much of it.
  bool is_in_flight = true;        ///< Its data is not there yet.
  bool is_taken = false;           ///< Out of the list; `taker` waits for its data.
  HeaderTaker taker;
  ListHook<UnexpectedHeader> arrival_hook{};
  std::array<HeaderNode, kIndices> nodes{};
};

class UnexpectedHeaders {
 public:
  /// Appends a header, which must stay where it is.
  void append(UnexpectedHeader& header) noexcept;

  /// REQUIRES: `header` is in the list.
  void remove(UnexpectedHeader& header) noexcept;

  bool empty() const noexcept { return arrivals_.empty(); }
  /// Headers that all searches so far have looked at. For counters and tests.
  std::uint64_t looked_at() const noexcept { return looked_at_; }
  std::size_t size() const noexcept { return arrivals_.size(); }

  /// Calls `visit(header)` for each header that matches, in the order of arrival, until that returns false.
  /// `visit` may remove the header that it was given, and no other.
  template <class Visit>
  void for_each_match(const TargetKey& key, const TargetKey& ignore, const Visit& visit) {
    if (arrivals_.empty()) return;
    if (const Index* const index = index_for(ignore); index != nullptr) {
      HeaderNode* next = nullptr;
      for (HeaderNode* node = index->oldest(key); node != nullptr; node = next) {
        next = Index::next(*node);
        ++looked_at_;
        if (!visit(*node->header)) return;
      }
      return;
    }
    UnexpectedHeader* next = nullptr;
    for (UnexpectedHeader* header = arrivals_.front(); header != nullptr; header = next) {
      next = Arrivals::next(*header);
      ++looked_at_;
      if (matches(header->header.key, key, ignore) && !visit(*header)) return;
    }
  }

 private:
  static const TargetKey& key_of(const HeaderNode& node) noexcept { return node.header->header.key; }
  using Index = KeyedQueues<HeaderNode, &HeaderNode::hook, &key_of>;
  using Arrivals = IntrusiveList<UnexpectedHeader, &UnexpectedHeader::arrival_hook, true>;

  struct MaskIndex {
    TargetKey ignore{};
    std::unique_ptr<Index> index;  ///< Null: none.
  };

  const Index* index_for(const TargetKey& ignore) noexcept;

  Arrivals arrivals_;
  std::array<MaskIndex, UnexpectedHeader::kIndices> indices_;
  std::uint64_t looked_at_ = 0;
  bool has_walked_ = false;  ///< A mask has found no index since these were given up.
};

}  // namespace ch3_offload
