// The posted receive queue and the unexpected queue, with MPI's matching rules (MPI 4.0, 3.5).
//
// Post, match, find and remove cost O(1) in the number of entries that do not match, for receives that
// ignore nothing, the source, the tag, or both; any other ignore mask works and costs a walk over the
// receives (or messages) of such masks. Entries are the caller's and are linked through themselves.
//
// Why the oldest wins: a message may match receives in five places (four shapes and the odd ones). Each
// place is in order of posting, so the candidate of each is its first match, and the lowest stamp among
// the candidates is the receive that was posted first.
//
// Threads: one. Allocation: tables grow by doubling; nothing else.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nic/intrusive_list.h"
#include "nic/keyed_queues.h"
#include "nic/match_bits.h"

namespace ch3_offload {

/// The shapes of an ignore mask, MPI's four and any other.
enum class MatchShape : std::uint8_t { kExact, kAnySource, kAnyTag, kAnySourceAnyTag, kOdd };
inline constexpr std::size_t kKeyedShapes = 4;

/// What the matcher needs of a receive.
struct PostedEntry {
  MatchBits bits{};
  MatchBits ignore{};           ///< Without the always-ignored bits.
  std::uint64_t stamp = 0;      ///< Order of posting; set by post().
  MatchShape shape{};           ///< Set by post().
  std::array<KeyedHook<PostedEntry>, kKeyedShapes> hooks{};  ///< One is used: that of the shape.
  ListHook<PostedEntry> odd_hook{};
  ListHook<PostedEntry> all_hook{};  ///< Every posted receive, in order of posting.
};

/// What the matcher needs of a message that no receive has taken.
struct UnexpectedEntry {
  MatchBits bits{};  ///< As sent, with the always-ignored bits.
  std::array<KeyedHook<UnexpectedEntry>, kKeyedShapes> hooks{};
  ListHook<UnexpectedEntry> arrival_hook{};
};

class Matcher {
 public:
  /// `always_ignored`: bits of a message that never take part.
  explicit Matcher(MatchBits always_ignored) noexcept : always_ignored_(always_ignored) {}

  /// Appends a receive. REQUIRES: find_unexpected(receive) found nothing.
  void post(PostedEntry& receive);

  /// The receive that was posted first of those that match; taken out. Null if none does.
  PostedEntry* take_posted(MatchBits message) noexcept;

  /// Takes a posted receive out. REQUIRES: it is posted.
  void remove(PostedEntry& receive) noexcept;

  static bool is_posted(const PostedEntry& receive) noexcept {
    return AllPosted::contains(receive);
  }

  /// Appends a message. REQUIRES: take_posted(message.bits) found nothing.
  void add(UnexpectedEntry& message);

  /// The message that arrived first of those that such a receive matches, or null; left in place.
  UnexpectedEntry* find_unexpected(MatchBits bits, MatchBits ignore);

  /// The newest message with these bits, or null; older_with_same_bits() walks on. For cancel, which
  /// names one message of a sender.
  UnexpectedEntry* newest_with_bits(MatchBits bits) const noexcept {
    return exact_unexpected_.newest(raw(bits & ~always_ignored_));
  }
  static UnexpectedEntry* older_with_same_bits(const UnexpectedEntry& message) noexcept {
    return Unexpected<0>::previous(message);
  }

  /// Takes a message out. REQUIRES: it is in the queue.
  void remove(UnexpectedEntry& message) noexcept;

  static bool is_unexpected(const UnexpectedEntry& message) noexcept {
    return Arrivals::contains(message);
  }

  std::size_t posted_depth() const noexcept { return posted_depth_; }
  std::size_t unexpected_depth() const noexcept { return unexpected_depth_; }

  /// In order of posting and of arrival; next_* of the last is null.
  PostedEntry* first_posted() const noexcept { return all_posted_.front(); }
  static PostedEntry* next_posted(const PostedEntry& receive) noexcept {
    return AllPosted::next(receive);
  }
  UnexpectedEntry* first_unexpected() const noexcept { return arrivals_.front(); }
  static UnexpectedEntry* next_unexpected(const UnexpectedEntry& message) noexcept {
    return Arrivals::next(message);
  }

 private:
  template <std::size_t kShape>
  using Unexpected = KeyedQueues<UnexpectedEntry, kShape>;
  using Arrivals = IntrusiveList<UnexpectedEntry, &UnexpectedEntry::arrival_hook>;
  using AllPosted = IntrusiveList<PostedEntry, &PostedEntry::all_hook>;
  using OddPosted = IntrusiveList<PostedEntry, &PostedEntry::odd_hook>;

  MatchShape shape_of(MatchBits ignore) const noexcept;
  std::uint64_t key_of(MatchBits bits, MatchShape shape) const noexcept;
  template <class Table>
  UnexpectedEntry* oldest_in(Table& table, bool& indexed, MatchBits bits, MatchShape shape);

  const MatchBits always_ignored_;

  // Posted receives. Each is in all_posted_ and in one of the five others.
  KeyedQueues<PostedEntry, 0> exact_posted_;
  KeyedQueues<PostedEntry, 1> any_source_posted_;
  KeyedQueues<PostedEntry, 2> any_tag_posted_;
  KeyedQueues<PostedEntry, 3> any_both_posted_;
  OddPosted odd_posted_;
  AllPosted all_posted_;
  std::uint64_t next_stamp_ = 0;
  std::size_t posted_depth_ = 0;

  // Unexpected messages. Each is in arrivals_, in exact_unexpected_, and in those of the others that
  // are indexed: a wildcard table is built when the first receive of its shape looks for a message, so
  // that programs without wildcards do not pay for it.
  Unexpected<0> exact_unexpected_;
  Unexpected<1> any_source_unexpected_;
  Unexpected<2> any_tag_unexpected_;
  Unexpected<3> any_both_unexpected_;
  Arrivals arrivals_;
  bool any_source_indexed_ = false;
  bool any_tag_indexed_ = false;
  bool any_both_indexed_ = false;
  std::size_t unexpected_depth_ = 0;
};

}  // namespace ch3_offload
