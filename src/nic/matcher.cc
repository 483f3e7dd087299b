#include "nic/matcher.h"

#include <cassert>

namespace ch3_offload {

MatchShape Matcher::shape_of(MatchBits ignore) const noexcept {
  // Bits that never take part do not make a mask odd: compare only the others.
  const std::uint64_t part = raw(ignore & ~always_ignored_);
  if (part == 0) return MatchShape::kExact;
  if (part == raw(kIgnoreSource & ~always_ignored_)) return MatchShape::kAnySource;
  if (part == raw(kIgnoreTag & ~always_ignored_)) return MatchShape::kAnyTag;
  if (part == raw(kIgnoreSourceAndTag & ~always_ignored_)) return MatchShape::kAnySourceAnyTag;
  return MatchShape::kOdd;
}

std::uint64_t Matcher::key_of(MatchBits bits, MatchShape shape) const noexcept {
  switch (shape) {
    case MatchShape::kExact: return raw(bits & ~always_ignored_);
    case MatchShape::kAnySource: return raw(bits & ~(always_ignored_ | kIgnoreSource));
    case MatchShape::kAnyTag: return raw(bits & ~(always_ignored_ | kIgnoreTag));
    default: return raw(bits & ~(always_ignored_ | kIgnoreSourceAndTag));
  }
}

void Matcher::post(PostedEntry& receive) {
  receive.stamp = next_stamp_++;
  receive.shape = shape_of(receive.ignore);
  const std::uint64_t key = key_of(receive.bits, receive.shape);
  switch (receive.shape) {
    case MatchShape::kExact: exact_posted_.append(key, receive); break;
    case MatchShape::kAnySource: any_source_posted_.append(key, receive); break;
    case MatchShape::kAnyTag: any_tag_posted_.append(key, receive); break;
    case MatchShape::kAnySourceAnyTag: any_both_posted_.append(key, receive); break;
    case MatchShape::kOdd: odd_posted_.push_back(receive); break;
  }
  all_posted_.push_back(receive);
  ++posted_depth_;
}

PostedEntry* Matcher::take_posted(MatchBits message) noexcept {
  PostedEntry* best = nullptr;
  const auto consider = [&best](PostedEntry* candidate) {
    if (candidate != nullptr && (best == nullptr || candidate->stamp < best->stamp)) best = candidate;
  };
  if (!exact_posted_.empty()) consider(exact_posted_.oldest(key_of(message, MatchShape::kExact)));
  if (!any_source_posted_.empty()) {
    consider(any_source_posted_.oldest(key_of(message, MatchShape::kAnySource)));
  }
  if (!any_tag_posted_.empty()) {
    consider(any_tag_posted_.oldest(key_of(message, MatchShape::kAnyTag)));
  }
  if (!any_both_posted_.empty()) {
    consider(any_both_posted_.oldest(key_of(message, MatchShape::kAnySourceAnyTag)));
  }
  for (PostedEntry* odd = odd_posted_.front(); odd != nullptr; odd = OddPosted::next(*odd)) {
    if (!matches(message, odd->bits, odd->ignore | always_ignored_)) continue;
    consider(odd);
    break;
  }
  if (best != nullptr) remove(*best);
  return best;
}

void Matcher::remove(PostedEntry& receive) noexcept {
  switch (receive.shape) {
    case MatchShape::kExact: exact_posted_.remove(receive); break;
    case MatchShape::kAnySource: any_source_posted_.remove(receive); break;
    case MatchShape::kAnyTag: any_tag_posted_.remove(receive); break;
    case MatchShape::kAnySourceAnyTag: any_both_posted_.remove(receive); break;
    case MatchShape::kOdd: odd_posted_.remove(receive); break;
  }
  all_posted_.remove(receive);
  --posted_depth_;
}

void Matcher::add(UnexpectedEntry& message) {
  arrivals_.push_back(message);
  exact_unexpected_.append(key_of(message.bits, MatchShape::kExact), message);
  if (any_source_indexed_) {
    any_source_unexpected_.append(key_of(message.bits, MatchShape::kAnySource), message);
  }
  if (any_tag_indexed_) {
    any_tag_unexpected_.append(key_of(message.bits, MatchShape::kAnyTag), message);
  }
  if (any_both_indexed_) {
    any_both_unexpected_.append(key_of(message.bits, MatchShape::kAnySourceAnyTag), message);
  }
  ++unexpected_depth_;
}

template <class Table>
UnexpectedEntry* Matcher::oldest_in(Table& table, bool& indexed, MatchBits bits, MatchShape shape) {
  if (!indexed) {
    for (UnexpectedEntry* message = arrivals_.front(); message != nullptr;
         message = Arrivals::next(*message)) {
      table.append(key_of(message->bits, shape), *message);
    }
    indexed = true;
  }
  return table.oldest(key_of(bits, shape));
}

UnexpectedEntry* Matcher::find_unexpected(MatchBits bits, MatchBits ignore) {
  if (arrivals_.empty()) return nullptr;
  const MatchShape shape = shape_of(ignore);
  switch (shape) {
    case MatchShape::kExact: return exact_unexpected_.oldest(key_of(bits, shape));
    case MatchShape::kAnySource:
      return oldest_in(any_source_unexpected_, any_source_indexed_, bits, shape);
    case MatchShape::kAnyTag: return oldest_in(any_tag_unexpected_, any_tag_indexed_, bits, shape);
    case MatchShape::kAnySourceAnyTag:
      return oldest_in(any_both_unexpected_, any_both_indexed_, bits, shape);
    case MatchShape::kOdd: break;
  }
  UnexpectedEntry* message = arrivals_.front();
  while (message != nullptr && !matches(message->bits, bits, ignore | always_ignored_)) {
    message = Arrivals::next(*message);
  }
  return message;
}

void Matcher::remove(UnexpectedEntry& message) noexcept {
  arrivals_.remove(message);
  exact_unexpected_.remove(message);
  if (any_source_indexed_) any_source_unexpected_.remove(message);
  if (any_tag_indexed_) any_tag_unexpected_.remove(message);
  if (any_both_indexed_) any_both_unexpected_.remove(message);
  --unexpected_depth_;
}

}  // namespace ch3_offload
