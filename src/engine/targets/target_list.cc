#include "engine/targets/target_list.h"

#include <algorithm>
#include <new>

namespace ch3_offload {

/// The table of that mask: the mask's own, a new one, or one that is empty. kUnkeyed: there is none.
std::uint32_t TargetList::index_for(const TargetKey& ignore) noexcept {
  std::uint32_t empty = kUnkeyed;
  for (std::uint32_t i = 0; i < masks_.size(); ++i) {
    if (masks_[i].ignore == ignore) return i;
    if (masks_[i].table->entries == 0) empty = i;
  }
  try {
    if (masks_.size() < kMostMasks) {
      if (used_.capacity() < kMostMasks) used_.reserve(kMostMasks);
      masks_.push_back({ignore, std::make_unique<MaskTable>(ignore)});
      return static_cast<std::uint32_t>(masks_.size() - 1);
    }
    if (empty != kUnkeyed) masks_[empty] = {ignore, std::make_unique<MaskTable>(ignore)};
    return empty;
  } catch (const std::bad_alloc&) {
    return kUnkeyed;
  }
}

bool TargetList::takes(const TargetKey& ignore) const noexcept {
  return unkeyed_.size() < kMostUnkeyed || masks_.size() < kMostMasks ||
         std::ranges::any_of(
             masks_, [&](const Mask& one) { return one.ignore == ignore || one.table->entries == 0; });
}

void TargetList::append(TargetEntry& entry) noexcept {
  entry.stamp = next_stamp_++;
  ++size_;
  entry.mask_index = index_for(entry.its.ignore);
  if (entry.mask_index == kUnkeyed) return unkeyed_.push_back(entry);
  MaskTable& table = *masks_[entry.mask_index].table;
  if (table.entries++ == 0) used_.push_back(entry.mask_index);
  table.queues.append(entry);
}

void TargetList::remove(TargetEntry& entry) noexcept {
  --size_;
  if (entry.mask_index == kUnkeyed) return unkeyed_.remove(entry);
  MaskTable& table = *masks_[entry.mask_index].table;
  table.queues.remove(entry);
  if (--table.entries > 0) return;
  *std::ranges::find(used_, entry.mask_index) = used_.back();
  used_.pop_back();
}

TargetEntry* TargetList::find(const TargetHeader& header) const noexcept {
  TargetEntry* best = nullptr;
  const auto is_younger = [&](const TargetEntry& entry) {
    return best != nullptr && best->stamp < entry.stamp;
  };
  for (const std::uint32_t index : used_) {
    TargetEntry* entry = masks_[index].table->queues.oldest(header.key);
    for (; entry != nullptr && !is_younger(*entry); entry = Queues::next(*entry)) {
      ++looked_at_;
      if (!entry->can_take(header)) continue;
      best = entry;
      break;
    }
  }
  for (TargetEntry* entry = unkeyed_.front(); entry != nullptr; entry = Unkeyed::next(*entry)) {
    if (is_younger(*entry)) break;
    ++looked_at_;
    if (matches(header.key, entry->its.key, entry->its.ignore) && entry->can_take(header)) return entry;
  }
  return best;
}

}  // namespace ch3_offload
