// Polled rings: small messages of the hottest peers, past the completion queue. See verbs_provider.h, ring_entry.h.
//
// A receiver that gets many small messages from a peer opens a ring to it: it tells the peer where (kRingOpen), and from
// then on the peer sends what is short enough by an RDMA write into the entry of the item's number. Such a message is an
// item like any other (link.h): numbered, under credit, kept until acknowledged, sent again over the next link. Whether
// it goes by the ring is decided when it is posted.
//
//   kFree ── the peer is hot ──▶ kOpenDue ── kRingOpen sent ──▶ kOpen ── a sleep, or a hotter peer ──▶ kCloseDue
//   ── kRingClose sent ──▶ kClosing ── the peer's kRingClosed ──▶ kFree
//   any ── the link ends ──▶ kFree
//
// The entry of item n is free when n is sent: n is below a limit that the receiver gave, at most kRingEntries above what
// it had received, so item n - kRingEntries was among that, and was copied out of the entry first.
//
// RULE DRAIN FIRST. Before a completion of a peer is handled, all that its ring holds in sequence is delivered. So items
// are delivered in order, and a completion stands for the item with the number that is next: RC makes a write visible
// before the completion of a later send on the same queue pair (IBTA 9.5), so what was sent before the completed
// item is either completed itself, and was taken from the queue before, or in the ring, and was delivered right now. The
// completed item and those behind it are not taken for it: an entry counts for the number that is next alone.
//
// RULE ONE QUEUE PAIR. A ring belongs to the queue pair over which it was opened, as its key does. When the link ends,
// both sides forget it. Its receiver stops the queue pair first and delivers what is in the ring after that, when the
// completion queue was seen empty (drain_stopped_rings()), since the peer will be told that all of it arrived; then it
// takes the registration away. So nothing that was written counts twice, and whatever is still on its way finds no
// key. Notices that are sent again over another link name theirs, and are ignored.
//
// RULE NO SLEEP OVER A RING. A write raises no event. Who is about to sleep asks for all of its rings to be closed; until
// the peer's answer is here, after which nothing more is written (it is sent behind all writes), the sleep is interrupted
// in intervals of half the time that has passed since: no message waits longer than that. And the peer only writes if it
// has seen its own completion queue empty a moment ago (ring_trust_us): else the request to close may be there unread, as when
// it computed. So what falls into a ring during a sleep was sent within that moment, or while its sender was kept
// from running, and a peer that computes for long costs the sleeper next to nothing. Opening waits until the peer
// proves itself again, and longer each time that it was not worth it (RingHeat).
//
// Opening and closing may map memory and make system calls; the messages themselves do not.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/cycle_clock.h"
#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kShortestTickNs = 100'000;
constexpr std::uint64_t kLongestTickNs = 250'000'000;

}  // namespace

// Sending

/// Whether a message that is posted now goes into the peer's ring.
bool VerbsProvider::goes_by_ring(const Link& link, const SlotHeader& header,
                                 std::size_t length_bytes) const noexcept {
  return link.rings.send.is_open() && header.kind == SlotHeader::kMessage &&
         link.rings.send.fits(length_bytes) && ring_entry_bytes(length_bytes) <= config_.rail.slot_bytes &&
         CycleClock::now() - last_look_ < ring_trust_cycles_;
}

// Receiving

/// Delivers what is next and in a ring, of every peer that has one; about `budget` messages at most.
void VerbsProvider::poll_rings(std::size_t budget) noexcept {
  for (std::size_t i = 0; i < open_rings_.size() && delivered_ < budget && !held_; ++i) {
    const ReceiveRing& ring = *open_rings_[i];
    if (may_be_ring_entry(ring.entry(ring.link->received()), ring.link->received()))
      drain_ring(*ring.peer, budget - delivered_);
  }
}

/// Delivers what is next and in the peer's ring, `most` messages at most.
void VerbsProvider::drain_ring(VerbsEndpoint& peer, std::size_t most) noexcept {
  for (Link& link = peer.main.link; most > 0 && !held_; --most) {
    ReceiveRing& ring = *link.rings.receive;
    if (peer.dying && peer.reason == Status::kProtocol) return;
    const std::size_t length =
        read_ring_entry(ring.entry(link.received()), ring.key(), link.received(), entry_copy_);
    if (length == 0) return;
    ++ring.messages;
    ++figures_.ring_messages_received;
    ring.last_poll = polls_;
    const std::span<const std::byte> message = std::as_bytes(std::span(entry_copy_)).first(length);
    SlotHeader header;
    std::memcpy(&header, message.data(), sizeof header);
    if (header.kind != SlotHeader::kMessage || !take_item(peer.main))
      return start_dying(peer, Status::kProtocol);
    take_header(peer.main, header);
    ++delivered_;
    held_ = sink_->on_message(peer.id, message.subspan(sizeof header)) == Delivery::kHeld;
    note_credit_due(peer.main);
  }
}

/// Whether the item that is next is in the ring.
bool VerbsProvider::ring_has_next(const Link& link) noexcept {
  const ReceiveRing& ring = *link.rings.receive;
  std::array<std::uint64_t, kRingEntryBytes / sizeof(std::uint64_t)> copy;
  return read_ring_entry(ring.entry(link.received()), ring.key(), link.received(), copy) != 0;
}

/// The completion queue is empty: takes what queue pairs that were stopped before this poll wrote last.
void VerbsProvider::drain_stopped_rings() noexcept {
  for (std::size_t i = 0; i < open_rings_.size(); ++i) {
    VerbsEndpoint& peer = *open_rings_[i]->peer;
    if (peer.dying || peer.main.link.state == LinkState::kDraining) drain_ring(peer, kRingEntries);
  }
}

// Opening and closing

/// A message came through the completion queue that a ring would have taken.
void VerbsProvider::note_heat(VerbsEndpoint& peer) noexcept {
  LinkRings& rings = peer.main.link.rings;
  if (rings.receive != nullptr || armed_ || !rings.heat.add(polls_, sleeps_)) return;
  ring_candidate_ = &peer;
  ring_work_ = true;
}

/// Opens a ring to a peer that is hot; where there are no more, one that delivered nothing while the peer proved itself
/// is closed, to be there the next time.
void VerbsProvider::open_ring(VerbsEndpoint& peer) noexcept {
  Link& link = peer.main.link;
  if (link.state != LinkState::kUp || link.parking || peer.dying || link.rings.receive != nullptr || armed_)
    return;
  if (open_rings_.size() >= most_rings_) {
    ReceiveRing* coldest = nullptr;
    for (ReceiveRing* const ring : open_rings_) {
      if (ring->state != ReceiveRing::State::kOpen) continue;  // On its way out, or just given.
      if (coldest == nullptr || ring->last_poll < coldest->last_poll) coldest = ring;
    }
    if (coldest != nullptr && coldest->last_poll < link.rings.heat.since_poll()) close_ring(*coldest);
    return;
  }
  ReceiveRing& ring = *std::find_if(rings_.begin(), rings_.end(), [](const ReceiveRing& one) {
    return one.state == ReceiveRing::State::kFree;
  });
  if (!ring.make(rails_[peer.main.rail].rail->domain())) {
    log("verbs: a ring for small messages was refused (%s); %zu are in use, and no more are tried",
        std::strerror(errno), open_rings_.size());
    most_rings_ = open_rings_.size();
    return;
  }
  ring.state = ReceiveRing::State::kOpenDue;
  ring.peer = &peer;
  ring.link = &link;
  ring.last_poll = polls_;
  link.rings.receive = &ring;
  open_rings_.push_back(&ring);  // Room was reserved.
  ++figures_.rings_opened;
}

void VerbsProvider::close_ring(ReceiveRing& ring) noexcept {
  switch (ring.state) {
    case ReceiveRing::State::kOpenDue: return free_ring(ring);  // Nobody knows of it.
    case ReceiveRing::State::kOpen: break;
    default: return;
  }
  ring.state = ReceiveRing::State::kCloseDue;
  ring.closing_since_ns = monotonic_ns();
  ring_work_ = true;
}

/// REQUIRES: the peer writes to it no more, or its queue pair is stopped and what it wrote was delivered.
void VerbsProvider::free_ring(ReceiveRing& ring) noexcept {
  ring.link->rings.receive = nullptr;
  std::erase(open_rings_, &ring);
  ring.free();
}

/// The link ends: RULE ONE QUEUE PAIR.
void VerbsProvider::forget_rings(Link& link) noexcept {
  link.rings.send.close();
  link.rings.answer_due = false;
  if (link.rings.receive != nullptr) free_ring(*link.rings.receive);
}

/// Says what is due about rings; what cannot be said now is tried again by the next poll.
void VerbsProvider::tend_rings() noexcept {
  using State = ReceiveRing::State;
  ring_work_ = false;
  if (ring_candidate_ != nullptr) open_ring(*std::exchange(ring_candidate_, nullptr));
  for (ReceiveRing* const ring : open_rings_) {  // Sending frees no ring.
    if (ring->state != State::kOpenDue && ring->state != State::kCloseDue) continue;
    const bool opens = ring->state == State::kOpenDue;
    if (send_ring_notice(*ring->peer, opens ? SlotHeader::kRingOpen : SlotHeader::kRingClose,
                         ring->body(ring->link->number)))
      ring->state = opens ? State::kOpen : State::kClosing;
    else
      ring_work_ = true;
  }
  std::erase_if(ring_answers_, [&](VerbsEndpoint* peer) {
    LinkRings& rings = peer->main.link.rings;
    if (!rings.answer_due) return true;  // The link ended.
    const RingBody body{.key = rings.send.key(), .link = peer->main.link.number};
    rings.answer_due = !send_ring_notice(*peer, SlotHeader::kRingClosed, body);
    ring_work_ |= rings.answer_due;
    return !rings.answer_due;
  });
}

/// False: it cannot be sent now.
bool VerbsProvider::send_ring_notice(VerbsEndpoint& peer, std::uint8_t kind, const RingBody& body) noexcept {
  if (peer.dying || peer.main.link.state != LinkState::kUp || !peer.main.link.takes_item()) return false;
  const std::uint32_t slot = take_send_slot();
  if (slot == SlotPool::kNone) return false;
  std::memcpy(send_slots_->address(slot) + sizeof(SlotHeader), &body, sizeof body);
  push_message(peer.main, slot, kind, sizeof body);
  return true;
}

/// The peer says something about a ring. False: it does not follow the protocol.
bool VerbsProvider::on_ring_notice(VerbsEndpoint& peer, std::uint8_t kind,
                                   std::span<const std::byte> payload) noexcept {
  Link& link = peer.main.link;
  LinkRings& rings = link.rings;
  RingBody body;
  if (payload.size() != sizeof body) return false;
  std::memcpy(&body, payload.data(), sizeof body);
  if (body.link != link.number) return body.link < link.number;  // RULE ONE QUEUE PAIR.
  switch (kind) {
    case SlotHeader::kRingOpen:
      looks_matter_ = true;
      return !rings.send.is_open() && !rings.answer_due && rings.send.open(body);
    case SlotHeader::kRingClose:
      if (!rings.send.is_open() || body.key != rings.send.key()) return false;
      rings.send.close();
      rings.answer_due = true;
      ring_answers_.push_back(&peer);
      ring_work_ = true;
      return true;
    case SlotHeader::kRingClosed:
      if (rings.receive == nullptr || rings.receive->state != ReceiveRing::State::kClosing ||
          body.key != rings.receive->key())
        return false;
      free_ring(*rings.receive);
      return true;
    default: return false;
  }
}

// Sleeping: RULE NO SLEEP OVER A RING.

/// Nothing was found after arm(): the caller sleeps.
void VerbsProvider::close_rings_for_sleep() noexcept {
  ++sleeps_;
  for (std::size_t i = open_rings_.size(); i > 0; --i) {  // Some are freed at once.
    ReceiveRing& ring = *open_rings_[i - 1];
    if (ring.state == ReceiveRing::State::kOpen) ring.link->rings.heat.was_closed_by_sleep(ring.messages);
    close_ring(ring);
  }
  if (ring_work_) tend_rings();
}

/// When rings have to be looked at during a sleep; 0: there is none.
std::uint64_t VerbsProvider::ring_tick_ns() const noexcept {
  if (open_rings_.empty()) return 0;
  std::uint64_t youngest_ns = kLongestTickNs * 2;
  const std::uint64_t now_ns = monotonic_ns();
  for (const ReceiveRing* const ring : open_rings_) {
    const bool closes =
        ring->state == ReceiveRing::State::kCloseDue || ring->state == ReceiveRing::State::kClosing;
    youngest_ns = std::min(youngest_ns, closes ? elapsed_ns(now_ns, ring->closing_since_ns) : 0);
  }
  return std::max(youngest_ns / 2, kShortestTickNs);
}

}  // namespace ch3_offload
