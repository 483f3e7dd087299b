#include "dme/page_table.h"

#include <algorithm>
#include <utility>

namespace ch3_offload {

namespace {

using Node = PageTable::Node;

constexpr unsigned kTopLevel = 3;  // Level 0 has an entry for each page.
static_assert(PageTable::kPages == std::uint64_t{1} << (PageTable::kBits * (kTopLevel + 1)));

constexpr std::uintptr_t kIsRegion = 1;

constexpr unsigned shift_of(unsigned level) noexcept { return level * PageTable::kBits; }

constexpr std::size_t index_at(unsigned level, std::uint64_t page) noexcept {
  return (page >> shift_of(level)) & (PageTable::kEntries - 1);
}

Region* region_of(std::uintptr_t entry) noexcept {
  return reinterpret_cast<Region*>(entry & ~kIsRegion);  // NOLINT(performance-no-int-to-ptr)
}

Node* node_of(std::uintptr_t entry) noexcept {
  return reinterpret_cast<Node*>(entry);  // NOLINT(performance-no-int-to-ptr)
}

/// One function for each level instead of a loop. Each level then has its own load and branch instructions,
/// so that the processor predicts them separately when a program uses several regions in turn.
template <unsigned kLevel>
Region* find_below(const Node& node, std::uint64_t page) noexcept {
  const std::uintptr_t entry = node.entries[index_at(kLevel, page)];
  if ((entry & kIsRegion) != 0) return region_of(entry);
  if constexpr (kLevel > 0) {
    if (entry != 0) return find_below<kLevel - 1>(*node_of(entry), page);
  }
  return nullptr;
}

}  // namespace

void PageTable::add_spare(Node& node) noexcept {
  node.next_spare = spare_;
  spare_ = &node;
  ++spare_count_;
}

Region* PageTable::find(std::uint64_t page) const noexcept { return find_below<kTopLevel>(root_, page); }

Region* PageTable::first_in(const PageRange& range) const noexcept {
  return first_below(root_, kTopLevel, {range.first, std::min(range.last, kPages)});
}

/// REQUIRES: the range begins in what `node` covers. It may end beyond.
Region* PageTable::first_below(const Node& node, unsigned level, const PageRange& range) noexcept {
  const std::uint64_t span = std::uint64_t{1} << shift_of(level);
  std::uint64_t page = range.first;
  for (std::size_t i = index_at(level, page); i < kEntries && page < range.last; ++i) {
    const std::uintptr_t entry = node.entries[i];
    if ((entry & kIsRegion) != 0) return region_of(entry);
    if (entry != 0) {
      Region* const found = first_below(*node_of(entry), level - 1, {page, range.last});
      if (found != nullptr) return found;
    }
    page = (page / span + 1) * span;
  }
  return nullptr;
}

void PageTable::insert(const PageRange& range, Region& region) noexcept {
  set(root_, kTopLevel, range, reinterpret_cast<std::uintptr_t>(&region) | kIsRegion);
}

void PageTable::erase(const PageRange& range) noexcept { set(root_, kTopLevel, range, 0); }

/// Sets the entries of a range to `value`. Takes missing nodes from the spare list and returns nodes that
/// become empty. REQUIRES: `node` covers the range.
void PageTable::set(Node& node, unsigned level, const PageRange& range, std::uintptr_t value) noexcept {
  const std::uint64_t span = std::uint64_t{1} << shift_of(level);
  for (std::uint64_t page = range.first; page < range.last;) {
    const std::uint64_t end = (page / span + 1) * span;
    const PageRange part{page, std::min(end, range.last)};
    page = end;
    std::uintptr_t& entry = node.entries[index_at(level, part.first)];
    const std::uintptr_t before = entry;
    std::uintptr_t after = value;
    if (part.count() < span) {
      Node* child = node_of(before);
      if (child == nullptr) {
        child = std::exchange(spare_, spare_->next_spare);
        --spare_count_;
      }
      set(*child, level - 1, part, value);
      after = reinterpret_cast<std::uintptr_t>(child);
      if (child->used == 0) {
        add_spare(*child);
        after = 0;
      }
    }
    node.used += static_cast<std::size_t>(after != 0) - static_cast<std::size_t>(before != 0);
    entry = after;
  }
}

}  // namespace ch3_offload
