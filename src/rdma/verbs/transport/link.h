// One ordered, reliable stream of items to a peer, and one from it, over queue pairs that come and go.
//
// An item is what takes one receive at the other side: a message in a slot, or a part of a write with its
// immediate. Items are numbered from 0 for the life of both processes. Each stays here until the peer's
// device has acknowledged it, so that what a broken queue pair lost is sent again over the next one, from the
// number that the peer says it has (OfferBody::received). Nothing is lost or delivered twice.
//
// Credit: the receiver tells the number below which items may be sent, in every slot, in messages of their
// own and in offers. One item less is used for anything but such a message, so both sides can always tell:
// RULE LAST CREDIT. Were both stuck, each would have sent as its last item a message that carried credit,
// which the other, having sent nothing since, would still have. The last item of a link (SlotHeader::kPark,
// kBye) needs no credit. Else a process that has used its credit could not answer a peer that parks and,
// after that, sends no credit any more.
//
// This class is the bookkeeping; Transport moves the items.

#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "rdma/verbs/devices/verbs_handles.h"

namespace ch3_offload {

/// At the start of every message. Little-endian; docs/wire-format.md.
struct SlotHeader {
  static constexpr std::uint8_t kMessage = 1;
  static constexpr std::uint8_t kCreditOnly = 2;
  /// The sender sends nothing more on this link. It ends when both sides have said so.
  static constexpr std::uint8_t kPark = 3;
  /// The sender's process ends.
  static constexpr std::uint8_t kBye = 4;
  static constexpr std::uint8_t kWantsCredit = 1;  ///< Flag: the sender waits for credit.

  /// The receiver of this slot may send items below this number; its lower 32 bits.
  std::uint32_t limit = 0;
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint16_t reserved = 0;  ///< 0.
};
static_assert(sizeof(SlotHeader) == 8 && offsetof(SlotHeader, kind) == 4);

/// Marks the work request id of a send. The rest of the id is the number of items that are retired when it
/// completes. The id of a receive is its slot.
inline constexpr std::uint64_t kSendBit = std::uint64_t{1} << 63;

enum class LinkState : std::uint8_t {
  kNone,      ///< No queue pair.
  kProposed,  ///< Our offer is on its way, the peer's is due.
  kBound,  ///< We have answered the peer's offer: it receives. The peer's Ready, or its first item, is due.
  kUp,     ///< It sends, too.
  kDraining,  ///< The queue pair is stopped; what came through it is still taken from the completion queue.
};

/// The index of no message, or of no write.
inline constexpr std::uint32_t kNone = UINT32_MAX;

struct Item {
  enum class Kind : std::uint8_t {
    kMessage,
    kWaitingMessage,  ///< Not in a send slot yet.
    kWritePart,
  };
  Kind kind = Kind::kMessage;
  std::uint32_t index = 0;         ///< In MessageBuffers, or in Transport::writes_.
  std::uint32_t length_bytes = 0;  ///< Of the slot with its header, or of the part.
  std::uint32_t part = 0;          ///< Counts from 0.
};

class Link {
 public:
  static constexpr std::uint32_t kDepth = 64;       ///< Most items that are not acknowledged.
  static constexpr std::uint32_t kFirstWindow = 4;  ///< Credit that every process has with every other one.
  static constexpr std::uint32_t kMostWindow = 64;
  static constexpr std::uint32_t kSignalEvery = 16;  ///< Items between completions that are asked for.
  /// Of a queue pair: every item; one write of nothing that asks for the completion of the last item (until
  /// all is retired the items that follow ask themselves); and one that finds out whether the peer lives.
  static constexpr std::uint32_t kSendQueueDepth = kDepth + 2;

  LinkState state = LinkState::kNone;
  bool parking = false;               ///< Nothing new is sent but SlotHeader::kPark, the last item.
  bool park_sent = false;             ///< Ours was pushed.
  bool park_heard = false;            ///< The peer's is here.
  std::uint32_t number = 0;           ///< Of the current or last queue pair; 0: there was none.
  std::uint32_t packet_sequence = 0;  ///< Of the current queue pair.
  QueuePair queue_pair;               ///< None in kNone and kDraining.

  void forget_parking() noexcept { parking = park_sent = park_heard = false; }

  // Sending: retired <= posted <= next.
  std::uint64_t retired() const noexcept { return retired_; }
  std::uint64_t posted() const noexcept { return posted_; }
  std::uint64_t next() const noexcept { return next_; }
  bool all_retired() const noexcept { return retired_ == next_; }
  Item& item(std::uint64_t number_of_item) noexcept { return items_[number_of_item % kDepth]; }

  /// Whether push() is allowed: for a message of credit alone, or for anything else.
  bool takes_credit_message() const noexcept {
    return !parking && next_ - retired_ < kDepth && next_ < limit_;
  }
  bool takes_item() const noexcept { return !parking && next_ - retired_ < kDepth - 1 && next_ + 1 < limit_; }
  /// Whether push() is allowed for SlotHeader::kPark and kBye.
  bool takes_last_item() const noexcept { return next_ - retired_ < kDepth && next_ <= limit_; }
  bool lacks_credit() const noexcept { return next_ + 1 >= limit_; }
  void push(const Item& new_item) noexcept {
    assert(next_ - retired_ < kDepth && next_ <= limit_);
    item(next_++) = new_item;
  }

  /// Whether an item waits that may go out now. It had credit when it was pushed, and credit is never taken
  /// back.
  bool may_post() const noexcept { return state == LinkState::kUp && posted_ < next_; }
  /// Whether a completion is to be asked for with the next item posted, if nothing else demands it.
  bool signal_is_due() const noexcept { return posted_ - last_signaled_ >= kSignalEvery - 1; }
  void was_posted(bool signaled) noexcept {
    ++posted_;
    if (signaled) last_signaled_ = posted_;
  }
  /// Posted items will be retired without anything further being sent.
  bool tail_is_signaled() const noexcept {
    return posted_ == next_ && (last_signaled_ == posted_ || all_retired());
  }
  /// A completion was asked for that retires all that is posted.
  void tail_was_signaled() noexcept { last_signaled_ = posted_; }
  /// The next item to be retired, which is the caller's to release.
  Item retire_one() noexcept {
    assert(retired_ < posted_);
    return item(retired_++);
  }
  /// Of all items that are posted and not retired.
  std::uint64_t posted_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint64_t i = retired_; i < posted_; ++i) sum += items_[i % kDepth].length_bytes;
    return sum;
  }
  /// The peer's word on what arrived there. False: it cannot be (we hold it acknowledged, or never sent it).
  bool may_resume_at(std::uint64_t received_by_peer) const noexcept {
    return received_by_peer >= retired_ && received_by_peer <= posted_;
  }
  /// Everything behind the retired items is to be posted again.
  void resume() noexcept { posted_ = last_signaled_ = retired_; }

  /// Nothing is sent any more: all that is left may be retired.
  void abandon() noexcept { posted_ = next_; }

  void raise_limit(std::uint64_t limit) noexcept { limit_ = std::max(limit_, limit); }
  /// From a slot's lower 32 bits. An older one changes nothing.
  void raise_limit(std::uint32_t low_bits) noexcept {
    const auto ahead = static_cast<std::int32_t>(low_bits - static_cast<std::uint32_t>(limit_));
    if (ahead > 0) raise_limit(limit_ + static_cast<std::uint32_t>(ahead));
  }
  std::uint64_t limit() const noexcept { return limit_; }

  // Receiving: received <= granted, the number below which the peer may send.
  std::uint64_t received() const noexcept { return received_; }
  std::uint32_t window() const noexcept { return window_; }
  void set_window(std::uint32_t window) noexcept { window_ = window; }
  /// An item arrived. Returns false if the peer could not send it, whatever it is.
  bool take() noexcept {
    if (received_ > granted_) return false;
    ++received_;
    return true;
  }
  /// The item that was taken last needed no credit: it must be the link's last one.
  bool was_beyond_credit() const noexcept { return received_ > granted_; }
  /// What the peer is told now: with it in a slot or an offer.
  std::uint64_t grant() noexcept {
    credit_only_ = 0;
    return granted_ = std::max(granted_, received_ + window_);
  }
  /// The item that was taken last held nothing but credit.
  void was_credit_only() noexcept { ++credit_only_; }
  /// So much is to be told that it is worth a message of its own. What was only credit asks for none, unless
  /// the peer has next to nothing left: else two that answer each other would tell credit with every message,
  /// for ever.
  bool credit_is_due() const noexcept {
    const std::uint64_t may_grant = received_ + window_;
    const std::uint64_t owed = may_grant - std::min(may_grant, granted_);
    const std::uint32_t much = std::max(2u, window_ / 2);
    return owed >= much && (owed - std::min(owed, credit_only_) >= much || owed + 1 >= window_);
  }

 private:
  std::uint64_t retired_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t last_signaled_ = 0;  ///< Items below it are retired by a completion that was asked for.
  std::uint64_t limit_ = kFirstWindow;
  std::uint64_t received_ = 0;
  std::uint64_t granted_ = kFirstWindow;
  std::uint64_t credit_only_ = 0;  ///< Of the items received since grant().
  std::uint32_t window_ = kFirstWindow;
  std::array<Item, kDepth> items_{};
};

}  // namespace ch3_offload
