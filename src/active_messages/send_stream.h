// The messages of an endpoint to one peer, in one channel, until the peer has taken them.
//
// A peer that has no room refuses a message: Portals says so, and the message is sent again. A receiver takes
// only the next message of a stream. So all that were sent behind a refused one go again, too, when the last
// of them has been answered. Each refusal doubles the time until then, from kLeastDelay to kMostDelay.
//
//   waiting ──post──> posted ──taken, all before it taken──> gone
//      ^                │
//      └──── refused, or behind a refused one ────
//
// Threads: one. Allocation: none.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "active_messages/message.h"

namespace ch3_offload::active_messages {

struct Peer;

/// A message in memory of the library.
struct OutgoingMessage {
  enum class State : std::uint8_t { kFree, kWaiting, kPosted, kTaken, kRefused };

  Peer* peer = nullptr;
  std::uint32_t length_bytes = 0;
  Channel channel = Channel::kRequests;
  State state = State::kFree;
};

class SendStream {
 public:
  /// Messages on the way to one peer.
  static constexpr std::size_t kWindow = 32;
  static constexpr std::uint64_t kLeastDelayNs = 20'000;
  static constexpr std::uint64_t kMostDelayNs = 10'000'000;

  enum class Posted : std::uint8_t { kOk, kAgain, kFailed };

  bool has_room() const noexcept { return count_ < kWindow; }
  bool is_empty() const noexcept { return count_ == 0; }
  /// Of the next message.
  std::uint64_t next_sequence() const noexcept { return sequence_; }

  /// REQUIRES: has_room(), and the message has next_sequence().
  void add(OutgoingMessage& message) noexcept {
    message.state = OutgoingMessage::State::kWaiting;
    at(count_++) = &message;
    ++sequence_;
  }

  /// Whether messages wait that may be posted now, or later: then `due_ns` is made no later than that.
  bool is_due(std::uint64_t now_ns, std::uint64_t& due_ns) const noexcept;

  /// Posts what waits, in order, by `post(message)`, which returns Posted. Returns false if one has failed.
  template <class Post>
  bool post_all(std::uint64_t now_ns, Post post) noexcept {
    for (std::size_t i = count_ - waiting(); i < count_; ++i) {
      OutgoingMessage& message = *at(i);
      switch (post(message)) {
        case Posted::kOk: break;
        case Posted::kAgain: delay(now_ns); return true;
        case Posted::kFailed: return false;
      }
      message.state = OutgoingMessage::State::kPosted;
      ++posted_;
    }
    return true;
  }

  /// A posted message was taken by the peer, or refused. Gives messages that are done to `free(message)`.
  template <class Free>
  void ended(OutgoingMessage& message, bool is_taken, std::uint64_t now_ns, Free free) noexcept {
    message.state = is_taken ? OutgoingMessage::State::kTaken : OutgoingMessage::State::kRefused;
    --posted_;
    if (!is_taken) has_refused_ = true;
    if (!has_refused_) delay_ns_ = 0;
    while (count_ > 0 && at(0)->state == OutgoingMessage::State::kTaken) free(remove_first());
    if (!has_refused_ || posted_ > 0) return;
    for (std::size_t i = 0; i < count_; ++i) at(i)->state = OutgoingMessage::State::kWaiting;
    has_refused_ = false;
    delay(now_ns);
  }

  /// The peer is dead. Gives all messages that are not posted to `free(message)`; is_over() holds when the
  /// others have ended, too.
  template <class Free>
  void give_up(Free free) noexcept {
    std::size_t left = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      OutgoingMessage* const message = at(i);
      if (message->state == OutgoingMessage::State::kPosted)
        at(left++) = message;
      else
        free(*message);
    }
    count_ = left;
    has_refused_ = false;
  }

 private:
  OutgoingMessage*& at(std::size_t i) noexcept { return messages_[(first_ + i) % kWindow]; }
  const OutgoingMessage* at(std::size_t i) const noexcept { return messages_[(first_ + i) % kWindow]; }
  /// They are the last ones.
  std::size_t waiting() const noexcept;
  void delay(std::uint64_t now_ns) noexcept;
  OutgoingMessage& remove_first() noexcept {
    OutgoingMessage& message = *at(0);
    first_ = (first_ + 1) % kWindow;
    --count_;
    return message;
  }

  std::array<OutgoingMessage*, kWindow> messages_{};  ///< From first_ on, in the order of their numbers.
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t posted_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t delay_ns_ = 0;  ///< Of the last refusal. 0: none since a message was taken.
  std::uint64_t not_before_ns_ = 0;
  bool has_refused_ = false;  ///< A message was refused, and some behind it may not be answered yet.
};

}  // namespace ch3_offload::active_messages
