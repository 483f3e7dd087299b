// Maps a page to the registered region that holds it: a radix tree of four levels, like a processor's page
// table.
//
// Regions do not overlap. A region that covers all pages of an inner entry is stored in that entry, so a
// region of any size takes few entries. A look-up takes at most four steps, for any address inside a region
// and any number of regions.
//
// Threads: one at a time. Nodes and regions must outlive the table.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ch3_offload {

struct Region;

/// The pages first .. last - 1. A page's number is its address divided by the page size.
struct PageRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  std::uint64_t count() const noexcept { return last - first; }
};

class PageTable {
 public:
  /// Page numbers must be below this limit. With pages of 4 KiB, that covers addresses of 48 bits.
  static constexpr std::uint64_t kPages = std::uint64_t{1} << 36;
  /// The most nodes that one insert() takes: three at each end of the range.
  static constexpr std::size_t kNodesForInsert = 6;

  PageTable() = default;
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  /// Returns the region that holds the page, or null.
  Region* find(std::uint64_t page) const noexcept;

  /// Returns the region with the lowest address among those that overlap the range, or null.
  Region* first_in(const PageRange& range) const noexcept;

  /// Stores `region` for all pages of the range.
  /// REQUIRES: the range overlaps no stored region; spare_nodes() >= kNodesForInsert.
  void insert(const PageRange& range, Region& region) noexcept;

  /// Removes a region. REQUIRES: one insert() stored exactly this range.
  void erase(const PageRange& range) noexcept;

  static constexpr unsigned kBits = 9;
  static constexpr std::size_t kEntries = std::size_t{1} << kBits;

  struct Node {
    /// An entry is 0, the address of a Node, or the address of a Region with bit 0 set.
    std::array<std::uintptr_t, kEntries> entries{};
    std::size_t used = 0;  ///< Entries that are not 0.
    Node* next_spare = nullptr;
  };

  std::size_t spare_nodes() const noexcept { return spare_count_; }
  /// Gives the table a node for later insert()s. REQUIRES: the node is new and outlives the table.
  void add_spare(Node& node) noexcept;

 private:
  void set(Node& node, unsigned level, const PageRange& range, std::uintptr_t value) noexcept;
  static Region* first_below(const Node& node, unsigned level, const PageRange& range) noexcept;

  Node root_;
  Node* spare_ = nullptr;  ///< A list, linked by Node::next_spare.
  std::size_t spare_count_ = 0;
};

}  // namespace ch3_offload
