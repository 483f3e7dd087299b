#include "engine/matcher.h"

#include <cassert>

namespace ch3_offload {

namespace {

constexpr MatchShape kWildcardShapes[] = {MatchShape::kAnySource, MatchShape::kAnyTag,
                                          MatchShape::kAnySourceAnyTag};

}  // namespace

Matcher::Matcher(MatchBits always_ignored) noexcept
    : always_ignored_(always_ignored),
      posted_{Posted(mask_of(MatchShape::kExact)), Posted(mask_of(MatchShape::kAnySource)),
              Posted(mask_of(MatchShape::kAnyTag)), Posted(mask_of(MatchShape::kAnySourceAnyTag))},
      unexpected_(mask_of(MatchShape::kExact)),
      wildcards_{WildcardIndex(mask_of(MatchShape::kAnySource)), WildcardIndex(mask_of(MatchShape::kAnyTag)),
                 WildcardIndex(mask_of(MatchShape::kAnySourceAnyTag))} {}

MatchShape Matcher::shape_of(MatchBits ignore) const noexcept {
  // Bits that never take part do not make a mask odd: compare only the others.
  const std::uint64_t part = raw(ignore & ~always_ignored_);
  if (part == 0) return MatchShape::kExact;
  if (part == raw(kIgnoreSource & ~always_ignored_)) return MatchShape::kAnySource;
  if (part == raw(kIgnoreTag & ~always_ignored_)) return MatchShape::kAnyTag;
  if (part == raw(kIgnoreSourceAndTag & ~always_ignored_)) return MatchShape::kAnySourceAnyTag;
  return MatchShape::kOdd;
}

std::uint64_t Matcher::mask_of(MatchShape shape) const noexcept {
  switch (shape) {
    case MatchShape::kExact: return raw(~always_ignored_);
    case MatchShape::kAnySource: return raw(~(always_ignored_ | kIgnoreSource));
    case MatchShape::kAnyTag: return raw(~(always_ignored_ | kIgnoreTag));
    default: return raw(~(always_ignored_ | kIgnoreSourceAndTag));
  }
}

void Matcher::post(PostedEntry& receive) noexcept {
  receive.stamp = next_stamp_++;
  receive.shape = shape_of(receive.ignore);
  if (receive.shape == MatchShape::kOdd) {
    odd_posted_.push_back(receive);
  } else {
    posted_[static_cast<std::size_t>(receive.shape)].append(receive);
  }
  all_posted_.push_back(receive);
}

PostedEntry* Matcher::take_posted(MatchBits message) noexcept {
  if (all_posted_.empty()) return nullptr;
  PostedEntry* best = nullptr;
  PostedEntry** best_link = nullptr;
  for (Posted& table : posted_) {
    if (table.empty()) continue;
    PostedEntry** const link = table.link_to_oldest(raw(message));
    if (*link == nullptr || (best != nullptr && best->stamp < (*link)->stamp)) continue;
    best = *link;
    best_link = link;
  }
  for (PostedEntry* odd = odd_posted_.front(); odd != nullptr; odd = OddPosted::next(*odd)) {
    if (!matches(message, odd->bits, odd->ignore | always_ignored_)) continue;
    if (best != nullptr && best->stamp < odd->stamp) break;
    remove(*odd);
    return odd;
  }
  if (best == nullptr) return nullptr;
  posted_[static_cast<std::size_t>(best->shape)].remove_oldest(best_link);
  all_posted_.remove(*best);
  return best;
}

void Matcher::remove(PostedEntry& receive) noexcept {
  if (receive.shape == MatchShape::kOdd) {
    odd_posted_.remove(receive);
  } else {
    posted_[static_cast<std::size_t>(receive.shape)].remove(receive);
  }
  all_posted_.remove(receive);
}

void Matcher::add(UnexpectedEntry& message) noexcept {
  arrivals_.push_back(message);
  unexpected_.append(message);
  for (const MatchShape shape : kWildcardShapes) {
    if (index_of(shape).complete && !add_to_index(shape, message)) drop_index(shape);
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
  for (UnexpectedEntry* message = arrivals_.front(); message != nullptr; message = Arrivals::next(*message)) {
    if (add_to_index(shape, *message)) continue;
    drop_index(shape);
    return false;
  }
  index_of(shape).complete = true;
  return true;
}

void Matcher::drop_index(MatchShape shape) noexcept {
  WildcardIndex& index = index_of(shape);
  index.complete = false;
  index.walks_due = arrivals_.size();
  for (UnexpectedEntry* message = arrivals_.front(); message != nullptr; message = Arrivals::next(*message)) {
    WildcardNode** link = &message->wildcards;
    while (*link != nullptr && (*link)->shape != shape) link = &(*link)->next;
    WildcardNode* const node = *link;
    if (node == nullptr) continue;
    *link = node->next;
    index.table.remove(*node);
    nodes_.give_back(*node);
  }
}

UnexpectedEntry* Matcher::walk(MatchBits bits, MatchBits ignore) const noexcept {
  UnexpectedEntry* message = arrivals_.front();
  while (message != nullptr && !matches(message->bits, bits, ignore | always_ignored_)) {
    message = Arrivals::next(*message);
  }
  return message;
}

UnexpectedEntry* Matcher::find_unexpected(MatchBits bits, MatchBits ignore) noexcept {
  if (arrivals_.empty()) return nullptr;
  const MatchShape shape = shape_of(ignore);
  if (shape == MatchShape::kExact) return unexpected_.oldest(raw(bits));
  if (shape == MatchShape::kOdd) return walk(bits, ignore);
  WildcardIndex& index = index_of(shape);
  if (!index.complete && !build_index(shape)) return walk(bits, ignore);
  const WildcardNode* const node = index.table.oldest(raw(bits));
  return node == nullptr ? nullptr : node->message;
}

void Matcher::remove(UnexpectedEntry& message) noexcept {
  arrivals_.remove(message);
  unexpected_.remove(message);
  while (WildcardNode* const node = message.wildcards) {
    message.wildcards = node->next;
    index_of(node->shape).table.remove(*node);
    nodes_.give_back(*node);
  }
}

}  // namespace ch3_offload
