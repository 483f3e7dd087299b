// The layouts of entries with PTL_IOVEC, which the engine reads as long as the entry is in use.
//
// Nobody tells when an entry is free. But no two entries that are in use have the same place in the pool of
// their interface, so a layout is kept until another entry with pieces has its place.
//
// Threads: one at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/targets/target_entry.h"
#include "portals/iovec.h"

namespace ch3_offload::portals {

/// The parts of an array that are not empty. Offsets are addresses.
class EntryLayout {
 public:
  /// Throws std::bad_alloc.
  EntryLayout(const ptl_iovec_t* array, std::size_t count) {
    for (const Piece* piece = pieces_of(array); piece != pieces_of(array) + count; ++piece) {
      if (piece->length_bytes == 0) continue;
      pieces_.push_back(*piece);
      layout_.element_bytes += piece->length_bytes;
    }
    layout_.kind = PayloadLayout::Kind::kPieces;
    layout_.piece_count = static_cast<std::uint32_t>(pieces_.size());
    layout_.pieces = pieces_.data();
  }
  EntryLayout(const EntryLayout&) = delete;
  EntryLayout& operator=(const EntryLayout&) = delete;

  const PayloadLayout& layout() const noexcept { return layout_; }

 private:
  std::vector<Piece> pieces_;
  PayloadLayout layout_{};
};

class EntryLayouts {
 public:
  /// The layout of an entry that is going to be appended. name() or forget() must follow. Throws
  /// std::bad_alloc, with no effect.
  const PayloadLayout& prepare(const ptl_iovec_t* array, std::size_t count) {
    auto made = std::make_unique<EntryLayout>(array, count);
    return by_place_.insert_or_assign(kUnnamed, std::move(made)).first->second->layout();
  }
  void forget() noexcept { by_place_.erase(kUnnamed); }
  /// The entry is that one.
  void name(TargetId id) noexcept {
    auto node = by_place_.extract(kUnnamed);
    if (node.empty()) return;
    drop(id);
    node.key() = place_of(id);
    by_place_.insert(std::move(node));
  }
  /// The entry is free.
  void drop(TargetId id) noexcept { by_place_.erase(place_of(id)); }
  void clear() noexcept { by_place_.clear(); }

 private:
  static constexpr std::uint32_t kUnnamed = 0;  ///< No entry's place.
  static std::uint32_t place_of(TargetId id) noexcept {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(id));
  }

  std::map<std::uint32_t, std::unique_ptr<EntryLayout>> by_place_;  ///< Moving a node needs no memory.
};

}  // namespace ch3_offload::portals
