// The posted receive queue and the unexpected queue, with MPI's matching rules (MPI 4.0, 3.5).
//
// Post, match, find and remove cost O(1) in the number of entries that do not match, for receives that
// ignore nothing, the initiator, the tag, or both; any other ignore mask works and costs a walk over the
// receives (or messages) of such masks. Entries are the caller's and are linked through themselves.
//
// Why the oldest wins: a message may match receives in five places (four shapes and the odd ones). Each
// place is in order of posting, so the candidate of each is its first match, and the lowest stamp among
// the candidates is the receive that was posted first.
//
// The first receive of a wildcard shape that looks for a message builds the index of that shape, in
// O(n log n) of the messages that wait.
//
// Threads: one. Allocation: tables grow by doubling, and the wildcard indices of unexpected messages take
// a node for each message, and a list of all while they are built. No function fails for want of memory: a
// table stays small, and a wildcard without an index walks.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/free_list.h"
#include "engine/intrusive_list.h"
#include "engine/keyed_queues.h"
#include "engine/match_key.h"

namespace ch3_offload {

/// The shapes of an ignore mask, MPI's four and any other.
enum class MatchShape : std::uint8_t { kExact, kAnyInitiator, kAnyTag, kAnyInitiatorAnyTag, kOdd };
inline constexpr std::size_t kKeyedShapes = 4;

/// What the matcher needs of a receive.
struct PostedEntry {
  MatchKey key{};
  MatchKey ignore{};            ///< Without the always-ignored bits.
  std::uint64_t stamp = 0;      ///< Order of posting; set by post().
  MatchShape shape{};           ///< Set by post().
  KeyedHook<PostedEntry> hook{};     ///< The table of its shape, if that is not odd.
  BareHook<PostedEntry> odd_hook{};  ///< The list of the odd ones.
};

struct WildcardNode;

/// What the matcher needs of a message that no receive has taken.
struct UnexpectedEntry {
  MatchKey key{};  ///< As sent, with the always-ignored bits.
  std::uint64_t stamp = 0;  ///< Order of arrival; set by add().
  KeyedHook<UnexpectedEntry> hook{};
  WildcardNode* wildcards = nullptr;  ///< Its nodes in the wildcard indices that exist.
};

/// The entry of a message in one wildcard index.
struct WildcardNode {
  WildcardNode* next = nullptr;  ///< Another one of the same message.
  UnexpectedEntry* message = nullptr;
  MatchShape shape{};
  KeyedHook<WildcardNode> hook{};
};

class Matcher {
 public:
  /// `always_ignored`: the part of a key that never takes part.
  explicit Matcher(const MatchKey& always_ignored) noexcept;

  /// Appends a receive. REQUIRES: find_unexpected(receive) found nothing.
  void post(PostedEntry& receive) noexcept;

  /// The receive that was posted first of those that match; taken out. Null if none does.
  PostedEntry* take_posted(MatchKey message) noexcept {
    if (wildcards_posted_ != 0) [[unlikely]]
      return take_among_wildcards(message);
    PostedEntry** const link = posted_.front().link_to_oldest(message);
    PostedEntry* const oldest = *link;
    if (oldest == nullptr) return nullptr;
    posted_.front().remove_oldest(link);
    --posted_depth_;
    return oldest;
  }

  /// Takes out all posted receives that `chosen(receive)` is true of, and hands each to `taken(receive)`. The
  /// order is unspecified.
  template <class Chosen, class Taken>
  void take_posted_if(const Chosen& chosen, const Taken& taken) {
    const auto count_and_hand_over = [&](PostedEntry& receive) {
      uncount(receive);
      taken(receive);
    };
    for (Posted& table : posted_) table.take_if(chosen, count_and_hand_over);
    for (PostedEntry* odd = odd_posted_.front(); odd != nullptr;) {
      PostedEntry* const next = OddPosted::next(*odd);
      if (chosen(*odd)) {
        odd_posted_.remove(*odd);
        count_and_hand_over(*odd);
      }
      odd = next;
    }
  }

  /// Takes a posted receive out. REQUIRES: it is posted.
  void remove(PostedEntry& receive) noexcept;

  /// Appends a message. REQUIRES: take_posted(message.key) found nothing.
  void add(UnexpectedEntry& message) noexcept {
    message.stamp = next_stamp_++;
    ++unexpected_depth_;
    found_ = nullptr;
    unexpected_.append(message);
    if (complete_indices_ != 0) [[unlikely]]
      add_to_indices(message);
  }

  /// The message that arrived first of those that such a receive matches, or null; left in place.
  UnexpectedEntry* find_unexpected(const MatchKey& key, const MatchKey& ignore) noexcept {
    if (unexpected_depth_ == 0) return nullptr;
    if ((ignore & ~always_ignored_) != kIgnoreNothing) [[unlikely]]
      return find_with_wildcards(key, ignore);
    found_ = unexpected_.link_to_oldest(key);
    return *found_;
  }

  /// The newest message with this key, or null; older_with_same_key() walks on. For cancel, which
  /// names one message of a sender.
  UnexpectedEntry* newest_with_key(const MatchKey& key) const noexcept { return unexpected_.newest(key); }
  static UnexpectedEntry* older_with_same_key(const UnexpectedEntry& message) noexcept {
    return Unexpected::previous(message);
  }

  /// Takes a message out. REQUIRES: it is in the queue.
  [[gnu::always_inline]] void remove(UnexpectedEntry& message) noexcept {
    --unexpected_depth_;
    if (found_ != nullptr && *found_ == &message) [[likely]] {
      unexpected_.remove_oldest(found_);
    } else {
      unexpected_.remove(message);
    }
    found_ = nullptr;
    if (message.wildcards != nullptr) [[unlikely]]
      remove_from_indices(message);
  }

  /// Takes out all messages that `chosen(message)` is true of, and hands each to `taken(message)`. The order
  /// is unspecified.
  template <class Chosen, class Taken>
  void take_unexpected_if(const Chosen& chosen, const Taken& taken) {
    found_ = nullptr;
    unexpected_.take_if(chosen, [&](UnexpectedEntry& message) {
      --unexpected_depth_;
      remove_from_indices(message);
      taken(message);
    });
  }

  std::size_t posted_depth() const noexcept { return posted_depth_; }
  std::size_t unexpected_depth() const noexcept { return unexpected_depth_; }

 private:
  static const MatchKey& key_of_receive(const PostedEntry& receive) noexcept { return receive.key; }
  static const MatchKey& key_of_message(const UnexpectedEntry& message) noexcept { return message.key; }
  static const MatchKey& key_of_node(const WildcardNode& node) noexcept { return node.message->key; }
  using Posted = KeyedQueues<PostedEntry, &PostedEntry::hook, &key_of_receive>;
  using Unexpected = KeyedQueues<UnexpectedEntry, &UnexpectedEntry::hook, &key_of_message>;
  using Wildcards = KeyedQueues<WildcardNode, &WildcardNode::hook, &key_of_node>;
  using OddPosted = IntrusiveList<PostedEntry, &PostedEntry::odd_hook>;

  struct WildcardIndex {
    explicit WildcardIndex(const MatchKey& mask) noexcept : table(mask) {}
    Wildcards table;
    bool complete = false;  ///< Every message is in it; else none is.
    /// So many receives walk before the next one tries to build it again. An attempt that fails costs as much
    /// as a walk over all messages, and a walk may end at the first.
    std::size_t walks_due = 0;
  };

  MatchShape shape_of(const MatchKey& ignore) const noexcept;
  MatchKey mask_of(MatchShape shape) const noexcept;  ///< What of a key those of that shape look at.
  PostedEntry* take_among_wildcards(MatchKey message) noexcept;
  void uncount(const PostedEntry& receive) noexcept {
    --posted_depth_;
    wildcards_posted_ -= receive.shape != MatchShape::kExact;
  }
  WildcardIndex& index_of(MatchShape shape) noexcept {
    return wildcards_[static_cast<std::size_t>(shape) - 1];
  }
  void add_to_indices(UnexpectedEntry& message) noexcept;
  void remove_from_indices(UnexpectedEntry& message) noexcept;
  bool add_to_index(MatchShape shape, UnexpectedEntry& message) noexcept;
  bool build_index(MatchShape shape) noexcept;
  void drop_index(MatchShape shape) noexcept;
  UnexpectedEntry* find_with_wildcards(const MatchKey& key, const MatchKey& ignore) noexcept;
  UnexpectedEntry* walk(const MatchKey& key, const MatchKey& ignore) const noexcept;

  const MatchKey always_ignored_;
  std::uint64_t next_stamp_ = 0;  ///< Of receives and of messages.

  // Posted receives. Each is in one of these five.
  std::array<Posted, kKeyedShapes> posted_;  ///< By shape; the exact ones first.
  OddPosted odd_posted_;
  std::size_t posted_depth_ = 0;
  std::size_t wildcards_posted_ = 0;  ///< Of those: not exact.

  // Unexpected messages. Each is in unexpected_ by its whole key, and in the wildcard indices that are
  // complete. Such an index is built when the first receive of its shape looks for a message, so that
  // programs without wildcards do not pay for it.
  Unexpected unexpected_;
  std::size_t unexpected_depth_ = 0;
  /// Where find_unexpected() found a message, for remove(), which mostly follows. Null if unexpected_ has
  /// changed.
  UnexpectedEntry** found_ = nullptr;
  unsigned complete_indices_ = 0;  ///< Of wildcards_.
  std::array<WildcardIndex, kKeyedShapes - 1> wildcards_;  ///< By shape, without kExact.
  FreeList<WildcardNode> nodes_;
};

}  // namespace ch3_offload
