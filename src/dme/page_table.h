// Which registered region holds a page: a radix tree of four levels over page numbers, like the processor's own.
//
// Regions do not overlap. A region that covers all of an inner entry's pages is stored there, so a region of any
// size takes few entries. Looking up needs no lock and takes four steps at most, wherever in a region an address is and however many
// there are.
//
// Threads: find() from any thread at any time; everything else under one lock of the caller's. What find() returns may be
// stale by then, and nodes are used again while others walk them, so its caller checks what it got: Region::use says
// whether a region is live, and its bounds whether it is the right one. Nodes and regions outlive the table.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ch3_offload {

struct Region;

/// Pages first .. last - 1, by number: address divided by the page size.
struct PageRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  std::uint64_t count() const noexcept { return last - first; }
};

class PageTable {
 public:
  /// Page numbers below this can be stored: with pages of 4 KiB, addresses of 48 bits.
  static constexpr std::uint64_t kPages = std::uint64_t{1} << 36;
  /// Nodes that one insert() takes at most: three on either edge of the range.
  static constexpr std::size_t kNodesForInsert = 6;

  PageTable() = default;
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;
  /// The region that holds the page, or null. It may be stale; see above.
  Region* find(std::uint64_t page) const noexcept;

  /// The region with the lowest pages among those that overlap the range, or null.
  Region* first_in(const PageRange& range) const noexcept;

  /// REQUIRES: no region in the range; spare_nodes() >= kNodesForInsert.
  void insert(const PageRange& range, Region& region) noexcept;

  /// REQUIRES: exactly this range was inserted as one.
  void erase(const PageRange& range) noexcept;

  static constexpr unsigned kBits = 9;
  static constexpr std::size_t kEntries = std::size_t{1} << kBits;

  struct Node {
    /// Each is 0, a Node's address, or a Region's address and 1. Written with release and read with acquire by find(): who sees
    /// an address sees what is there.
    std::array<std::atomic<std::uintptr_t>, kEntries> entries{};
    std::size_t used = 0;  ///< Entries that are not 0.
    Node* next_spare = nullptr;
  };

  std::size_t spare_nodes() const noexcept { return spare_count_; }
  /// The node is a fresh one, and outlives the table.
  void add_spare(Node& node) noexcept;

 private:
  void set(Node& node, unsigned level, const PageRange& range, std::uintptr_t value) noexcept;
  static Region* first_below(const Node& node, unsigned level, const PageRange& range) noexcept;

  Node root_;
  Node* spare_ = nullptr;  ///< A list.
  std::size_t spare_count_ = 0;
};

}  // namespace ch3_offload
