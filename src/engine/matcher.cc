#include "engine/matcher.h"

#include <algorithm>
#include <new>
#include <vector>

namespace ch3_offload {

namespace {

constexpr MatchShape kWildcardShapes[] = {MatchShape::kAnyInitiator, MatchShape::kAnyTag,
                                          MatchShape::kAnyInitiatorAnyTag};

}  // namespace

Matcher::Matcher(const MatchKey& always_ignored) noexcept
    : always_ignored_(always_ignored),
      posted_{Posted(mask_of(MatchShape::kExact)), Posted(mask_of(MatchShape::kAnyInitiator)),
              Posted(mask_of(MatchShape::kAnyTag)), Posted(mask_of(MatchShape::kAnyInitiatorAnyTag))},
      unexpected_(mask_of(MatchShape::kExact)),
      wildcards_{WildcardIndex(mask_of(MatchShape::kAnyInitiator)),
                 WildcardIndex(mask_of(MatchShape::kAnyTag)),
                 WildcardIndex(mask_of(MatchShape::kAnyInitiatorAnyTag))} {}

MatchShape Matcher::shape_of(const MatchKey& ignore) const noexcept {
  // What never takes part does not make a mask odd: compare only the rest.
  const MatchKey part = ignore & ~always_ignored_;
  if (part == kIgnoreNothing) [[likely]]
    return MatchShape::kExact;
  if (part == (kIgnoreInitiator & ~always_ignored_)) return MatchShape::kAnyInitiator;
  if (part == (kIgnoreTag & ~always_ignored_)) return MatchShape::kAnyTag;
  if (part == (kIgnoreInitiatorAndTag & ~always_ignored_)) return MatchShape::kAnyInitiatorAnyTag;
  return MatchShape::kOdd;
}

MatchKey Matcher::mask_of(MatchShape shape) const noexcept {
  switch (shape) {
    case MatchShape::kExact: return ~always_ignored_;
    case MatchShape::kAnyInitiator: return ~(always_ignored_ | kIgnoreInitiator);
    case MatchShape::kAnyTag: return ~(always_ignored_ | kIgnoreTag);
    default: return ~(always_ignored_ | kIgnoreInitiatorAndTag);
  }
}

void Matcher::post(PostedEntry& receive) noexcept {
  receive.stamp = next_stamp_++;
  receive.shape = shape_of(receive.ignore);
  ++posted_depth_;
  wildcards_posted_ += receive.shape != MatchShape::kExact;
  if (receive.shape == MatchShape::kOdd) {
    odd_posted_.push_back(receive);
  } else {
    posted_[static_cast<std::size_t>(receive.shape)].append(receive);
  }
}

PostedEntry* Matcher::take_among_wildcards(MatchKey message) noexcept {
  PostedEntry* best = nullptr;
  PostedEntry** best_link = nullptr;
  for (Posted& table : posted_) {
    if (table.empty()) continue;
    PostedEntry** const link = table.link_to_oldest(message);
    if (*link == nullptr || (best != nullptr && best->stamp < (*link)->stamp)) continue;
    best = *link;
    best_link = link;
  }
  for (PostedEntry* odd = odd_posted_.front(); odd != nullptr; odd = OddPosted::next(*odd)) {
    if (!matches(message, odd->key, odd->ignore | always_ignored_)) continue;
    if (best != nullptr && best->stamp < odd->stamp) break;
    remove(*odd);
    return odd;
  }
  if (best == nullptr) return nullptr;
  posted_[static_cast<std::size_t>(best->shape)].remove_oldest(best_link);
  uncount(*best);
  return best;
}

void Matcher::remove(PostedEntry& receive) noexcept {
  if (receive.shape == MatchShape::kOdd) {
    odd_posted_.remove(receive);
  } else {
    posted_[static_cast<std::size_t>(receive.shape)].remove(receive);
  }
  uncount(receive);
}

void Matcher::add_to_indices(UnexpectedEntry& message) noexcept {
  for (const MatchShape shape : kWildcardShapes) {
    if (index_of(shape).complete && !add_to_index(shape, message)) drop_index(shape);
  }
}

void Matcher::remove_from_indices(UnexpectedEntry& message) noexcept {
  while (WildcardNode* const node = message.wildcards) {
    message.wildcards = node->next;
    index_of(node->shape).table.remove(*node);
    nodes_.give_back(*node);
  }
}

/// False: no memory.
bool Matcher::add_to_index(MatchShape shape, UnexpectedEntry& message) noexcept {
  WildcardNode* const node = nodes_.take();
  if (node == nullptr) return false;
  node->message = &message;
  node->shape = shape;
  node->next = message.wildcards;
  message.wildcards = node;
  index_of(shape).table.append(*node);
  return true;
}

/// False: no memory, and there is no index.
bool Matcher::build_index(MatchShape shape) noexcept {
  if (index_of(shape).walks_due > 0) {
    --index_of(shape).walks_due;
    return false;
  }
  std::vector<UnexpectedEntry*> arrivals;  // Each message comes in the order of its arrival.
  try {
    arrivals.reserve(unexpected_depth_);
  } catch (const std::bad_alloc&) {
    drop_index(shape);
    return false;
  }
  unexpected_.for_each([&](UnexpectedEntry& message) { arrivals.push_back(&message); });
  std::ranges::sort(arrivals, {}, &UnexpectedEntry::stamp);
  for (UnexpectedEntry* const message : arrivals) {
    if (add_to_index(shape, *message)) continue;
    drop_index(shape);
    return false;
  }
  index_of(shape).complete = true;
  ++complete_indices_;
  return true;
}

void Matcher::drop_index(MatchShape shape) noexcept {
  WildcardIndex& index = index_of(shape);
  complete_indices_ -= index.complete;
  index.complete = false;
  index.walks_due = unexpected_depth_;
  unexpected_.for_each([&](UnexpectedEntry& message) {
    WildcardNode** link = &message.wildcards;
    while (*link != nullptr && (*link)->shape != shape) link = &(*link)->next;
    WildcardNode* const node = *link;
    if (node == nullptr) return;
    *link = node->next;
    index.table.remove(*node);
    nodes_.give_back(*node);
  });
}

UnexpectedEntry* Matcher::walk(const MatchKey& key, const MatchKey& ignore) const noexcept {
  UnexpectedEntry* first = nullptr;
  unexpected_.for_each([&](UnexpectedEntry& message) {
    if ((first == nullptr || message.stamp < first->stamp) &&
        matches(message.key, key, ignore | always_ignored_))
      first = &message;
  });
  return first;
}

UnexpectedEntry* Matcher::find_with_wildcards(const MatchKey& key, const MatchKey& ignore) noexcept {
  const MatchShape shape = shape_of(ignore);
  if (shape == MatchShape::kOdd) return walk(key, ignore);
  WildcardIndex& index = index_of(shape);
  if (!index.complete && !build_index(shape)) return walk(key, ignore);
  const WildcardNode* const node = index.table.oldest(key);
  return node == nullptr ? nullptr : node->message;
}

}  // namespace ch3_offload
