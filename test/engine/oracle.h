// MPI's matching rules as a judge (MPI 4.0: 3.4 modes, 3.5 order, 3.8 probe and cancel).
//
// Messages of different senders arrive in no particular order, and when a receive is seen to be done says
// only that it matched before. So the oracle does not predict; it derives from what it sees what must
// have happened before, and objects when that turns out to be impossible. Its lists are walked from end
// to end on purpose: it shares no cleverness with the engine.
//
// Two facts carry the order rules. Say a request (a receive, or a probe of either kind) with a stamp, the
// time at which it was posted, found message m of process s to be the oldest that matches it.
//   Fact 1. Every earlier message of s and of m's channel that matches the request was gone when that
//           happened: taken by a receive that was posted before the request, or cancelled, purged or lost.
//   Fact 2. Every receive posted before the request that matches m had matched another message when that
//           happened; so that message had been sent by then.
//
// Time is a count of the oracle's own calls. Records are the caller's; see may_forget().

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace ch3_offload {

inline constexpr std::uint64_t kNever = UINT64_MAX;

struct SentMessage {
  enum class State : std::uint8_t { kWaiting, kTaken, kReceived, kCancelled, kRefused };

  std::uint64_t seed = 0;  ///< Of its payload's pattern; unique.
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  MatchKey key{};
  std::size_t length_bytes = 0;
  SendMode mode = SendMode::kStandard;

  // The oracle's.
  State state = State::kWaiting;
  std::uint64_t sent_at = 0;
  bool send_done = false;
  bool maybe_purged = false;
  std::uint64_t gone_before = kNever;  ///< Fact 1: a receive posted before this stamp took it,
  std::uint64_t gone_at = kNever;      ///< and that had happened by this time.
  std::uint64_t matched_at = kNever;   ///< A synchronous send said so at this time.
  std::uint64_t cancel_at = kNever;    ///< A cancel is under way since.
};

struct PostedReceive {
  std::uint32_t at = 0;
  MatchKey key{};
  MatchKey ignore{};

  // The oracle's.
  std::uint64_t stamp = 0;
  std::uint64_t matched_at = kNever;  ///< Fact 2: it had matched by this time.
  bool maybe_purged = false;          ///< It is over. If it had not matched before, it was purged.
  struct Bound {
    std::uint32_t from;
    std::uint64_t channel;
    std::uint64_t sent_at;
  };
  /// Facts 1 and 2: if a message of `from` and that channel is what it got, it was sent before this time.
  std::vector<Bound> bounds;
};

class Oracle {
 public:
  /// `channel_bits`: as EngineConfig's. Messages of different channels may overtake each other.
  Oracle(std::uint32_t processes, MatchKey always_ignored, std::uint64_t channel_bits);

  // The sending side. sent() comes before the engine is called.
  void sent(SentMessage& message);
  void send_refused(SentMessage& message);
  void send_done(SentMessage& message);
  void cancel_requested(SentMessage& message);
  void cancel_decided(SentMessage& message, bool cancelled);

  // The receiving side. posted() comes before the engine is called.
  void posted(PostedReceive& receive);
  /// The receive is seen to have matched `message` (done, or failed with its sender's death).
  void received(PostedReceive& receive, SentMessage& message);
  /// The receive is over and nobody knows which message it matched: its sender has died.
  void receive_lost(PostedReceive& receive);
  void receive_cancelled(PostedReceive& receive);
  /// matched_probe took `message` / the receive of a taken message is done.
  void taken(std::uint32_t at, MatchKey key, MatchKey ignore, SentMessage& message);
  void taken_received(SentMessage& message);
  void probed(std::uint32_t at, MatchKey key, MatchKey ignore, SentMessage& message);
  /// Such receives of `at` are over, and such messages to it that had arrived are gone.
  void purged(std::uint32_t at, const MatchPattern& doomed, const MatchPattern& spared);

  /// One of the two has died, or their connection broke: messages between them may be lost.
  void lost(std::uint32_t one, std::uint32_t other);
  bool is_lost(std::uint32_t one, std::uint32_t other) const { return lost_[one * processes_ + other]; }
  /// The process is dead: its receives and messages no longer concern anybody.
  void died(std::uint32_t process);

  /// The waiting message to `to` with this envelope: that of `seed` if it is not 0, else the earliest.
  SentMessage* find(std::uint32_t to, MatchKey key, std::size_t length_bytes, std::uint64_t seed = 0);

  /// Nothing is in flight and every engine is at rest: checks that no match was missed.
  void check_at_rest();

  /// Whether the oracle is done with a message.
  static bool may_forget(const SentMessage& message) {
    return message.state != SentMessage::State::kWaiting && message.state != SentMessage::State::kTaken;
  }
  bool match(const SentMessage& message, MatchKey key, MatchKey ignore) const {
    return matches(message.key, key, ignore | always_ignored_);
  }

  const std::vector<SentMessage*>& waiting(std::uint32_t from, std::uint32_t to) const {
    return waiting_[from * processes_ + to];
  }
  const std::vector<PostedReceive*>& posted_at(std::uint32_t process) const { return posted_[process]; }
  std::size_t waiting_messages() const { return waiting_count_; }
  std::size_t posted_receives() const { return posted_count_; }

  void fail(const std::string& what);
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void found_oldest(std::uint32_t at, MatchKey key, MatchKey ignore, std::uint64_t stamp,
                    SentMessage& message);
  void stop_waiting(SentMessage& message, SentMessage::State state);
  void remove(PostedReceive& receive);
  std::uint64_t channel_of(const SentMessage& message) const { return message.key.bits & channel_bits_; }
  static std::string name(const SentMessage& message);
  static std::string name(const PostedReceive& receive);

  const std::uint32_t processes_;
  const MatchKey always_ignored_;
  const std::uint64_t channel_bits_;
  std::uint64_t now_ = 0;
  std::vector<std::vector<SentMessage*>> waiting_;   ///< By from * processes + to; in order of sending.
  std::vector<std::vector<PostedReceive*>> posted_;  ///< By process; in order of posting.
  std::vector<bool> lost_;                           ///< By pair, both ways.
  std::size_t waiting_count_ = 0;
  std::size_t posted_count_ = 0;
  std::vector<std::string> failures_;
};

}  // namespace ch3_offload
