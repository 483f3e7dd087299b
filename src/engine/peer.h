// What the engine knows of one peer.
//
// Included by src/engine/engine_state.h only. A peer never spoken to has none.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/operations.h"
#include "engine/target_operations.h"

namespace ch3_offload {

enum class PeerState : std::uint8_t {
  kKnown,      ///< It has spoken to us; we have nothing to send.
  kWanted,     ///< Something waits to be sent; it is in State::active, for progress() to connect to it.
  kAsked,      ///< Something waits to be sent, no provider knows its address, and introduce() is due.
  kConnected,  ///< We can send.
  kFailed,
};

/// A part of a packet whose sender awaits a CTS.
struct PartOffer {
  std::size_t length_bytes = 0;  ///< 0: there is none.
  std::uint32_t operation = 0;   ///< The sender's.
};

/// What waits to leave for a peer by one class.
struct Backlog {
  /// Messages and packets, in order. A packet stays at the head while a part of it goes by rendezvous.
  IntrusiveList<Outgoing, &Outgoing::queue_hook> queue;
  IntrusiveList<Outgoing, &Outgoing::bulk_hook> bulk;  ///< Rendezvous payload, any order.
  bool bulk_was_last = false;                          ///< The two take turns.
  std::int64_t left_bytes = 0;                         ///< Of this round. Below 0: taken in advance.
};

struct Peer {
  explicit Peer(PeerId peer) noexcept : id(peer) {}

  const PeerId id;
  PeerState state = PeerState::kKnown;
  Status doom = Status::kOk;   ///< Not kOk: why it failed, or why it will. Nothing is sent to it any more.
  bool closed = false;         ///< It said goodbye.
  bool write_refused = false;  ///< The provider cannot write to it.
  bool recalling = false;      ///< A credit recall is under way.
  // What the client has not been told yet (State::peer_news).
  bool wants_card = false;       ///< kCardWanted.
  bool has_new_lane = false;     ///< kLaneMade.
  bool has_offer = false;        ///< kPacketOffer: `offer`.
  bool has_failed = false;       ///< kPeerFailed.
  std::size_t placed_bytes = 0;  ///< kPacketPlaced; 0: nothing was placed.

  /// The client gave it before it was wanted. Empty: it did not, or the card has been used.
  std::string card;
  Provider* provider = nullptr;
  Endpoint* endpoint = nullptr;      ///< That provider's. All three are set from kConnected on.
  std::uint32_t provider_index = 0;  ///< In State::providers, as is `provider`.
  std::uint32_t max_slot_bytes = 0;
  WriteTerms write_terms;

  // Sending.
  ch3_offload_lane_t* lane = nullptr;       ///< Null: the provider has none, or there is no connection yet.
  ch3_offload_books_t own_books{};          ///< Without a lane.
  ch3_offload_books_t* books = &own_books;  ///< These, or those of the lane.
  std::uint64_t messages_announced = 0;     ///< Of books->messages_sent: those for which an RTS has left.
  std::size_t buffered_sends = 0;           ///< Of `outgoing`: those that a copy has finished.
  std::array<Backlog, kTrafficClasses> backlogs;
  std::size_t queued = 0;  ///< In the queues of all backlogs.
  /// The message of which parts have left, and parts have not. The others wait.
  const Outgoing* streaming = nullptr;
  IntrusiveList<Outgoing, &Outgoing::peer_hook> outgoing;  ///< Unfinished.
  IntrusiveList<ControlMessage, &ControlMessage::hook> control;
  IntrusiveList<CancelRequest, &CancelRequest::hook> cancels;

  Backlog& backlog_of(const Outgoing& one) noexcept { return backlogs[index_of(one.traffic_class)]; }

  /// The head of the queue, if anything of it may leave now.
  Outgoing* head_of(const Backlog& backlog) const noexcept {
    Outgoing* const head = backlog.queue.front();
    if (head == nullptr || (streaming != nullptr && head != streaming)) return nullptr;
    const bool waits = head->kind == Operation::Kind::kPacket &&
                       static_cast<PacketOperation*>(head)->state != PacketState::kStreaming;
    return waits ? nullptr : head;
  }
  bool has_work(const Backlog& backlog) const noexcept {
    return !backlog.bulk.empty() || head_of(backlog) != nullptr;
  }

  /// The backlog that goes next. Null: nothing may leave now. If none has anything left, a round begins.
  Backlog* next_backlog() noexcept {
    for (;;) {
      bool is_spent = false;
      for (Backlog& backlog : backlogs) {
        if (!has_work(backlog)) continue;
        if (backlog.left_bytes > 0) return &backlog;
        is_spent = true;
      }
      if (!is_spent) return nullptr;
      for (std::size_t i = 0; i < backlogs.size(); ++i) {
        std::int64_t& left_bytes = backlogs[i].left_bytes;
        left_bytes = std::min(left_bytes + kClassShareBytes[i], kClassShareBytes[i]);
      }
    }
  }

  // Receiving. Invariant: window = available + owed (both in `books`) + charges of messages held here.
  std::uint64_t messages_received = 0;
  std::uint64_t received_at_look = 0;   ///< messages_received when reclaim_for() looked last.
  std::size_t window_bytes = 0;         ///< Lent to the peer.
  std::size_t asked_bytes = 0;          ///< Credit that it lacked for messages since the window grew.
  IncomingMessage* incoming = nullptr;  ///< The eager message whose parts arrive.
  std::size_t incoming_bytes = 0;       ///< Of its payload: what has arrived.
  ReceiveOperation* incoming_receive = nullptr;  ///< The receive that matched it, if one did.
  PlacedPart* placing = nullptr;                 ///< The part of a packet that arrives by rendezvous.
  PartOffer offer;                               ///< Such a part that place_packet() has not answered yet.
  IntrusiveList<ReceiveOperation, &ReceiveOperation::peer_hook> receives;
  IntrusiveList<TargetArrival, &TargetArrival::peer_hook> arrivals;  ///< Puts whose data is awaited.
  std::size_t taken_messages = 0;  ///< By matched_probe(), and not received: they refer to this.
  std::size_t replies = 0;         ///< Of `outgoing`: replies that the peer awaits.

  ListHook<Peer> active_hook{};    ///< State::active: something waits to leave.
  ListHook<Peer> credit_hook{};    ///< State::credit_due: enough is owed for a message of its own.
  ListHook<Peer> borrower_hook{};  ///< State::borrowers: window_bytes is not 0.
  ListHook<Peer> news_hook{};      ///< State::peer_news.
};

/// Those that nothing could be kept of for want of memory: what they sent, or their end, was lost. They fail
/// as soon as they can be known. Needs no memory: beyond so many, everybody who is met from then on is taken
/// for one of them.
class MissedPeers {
 public:
  bool empty() const noexcept { return count_ == 0; }
  /// REQUIRES: not empty().
  PeerId any() const noexcept { return ids_[count_ - 1]; }

  void note(PeerId id) noexcept {
    if (std::find(ids_.begin(), end(), id) != end()) return;
    if (count_ == ids_.size()) {
      overflowed_ = true;
    } else {
      ids_[count_++] = id;
    }
  }

  /// Forgets one that is known now. Returns whether it was missed.
  bool take(PeerId id) noexcept {
    const auto found = std::find(ids_.begin(), end(), id);
    if (found == end()) return overflowed_;
    *found = ids_[--count_];
    return true;
  }

 private:
  static constexpr std::size_t kMost = 32;
  std::array<PeerId, kMost>::iterator end() noexcept {
    return ids_.begin() + static_cast<std::ptrdiff_t>(count_);
  }

  std::array<PeerId, kMost> ids_{};
  std::size_t count_ = 0;
  bool overflowed_ = false;
};

}  // namespace ch3_offload
