// Queue pairs: set-up, loss, parking, and the credit that peers get. See verbs_provider.h.
//
// The life of a link. Both sides go through the same states, and frames of an earlier number than the current one
// are late and ignored:
//
//   kNone ── propose(): queue pair made, Connect(n) sent ──▶ kProposed ── the peer's Connect(n) ──▶ kBound, Ready(n)
//   sent ── the peer's Ready(n) ──▶ kUp
//   kProposed, kBound, kUp ── an error, or the peer's Connect(n + 1) ──▶ kDraining ── the completion queue was seen
//   empty ──▶ kNone, and propose() with n + 1
//   kUp ── parked: both have said Park(n), all items are acknowledged ──▶ kNone
//
// Not on the message path: may allocate.

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// Receive slots that are between a completion and repost(), or meant for what nobody has credit for.
constexpr std::uint32_t kSpareSlots = 32;

/// A peer that takes longer to park is busy: another one is asked, too.
constexpr std::uint64_t kParkPatienceNs = 10'000'000;

/// How long a stopped queue pair is kept: what its device still had for the completion queue is there after that.
constexpr std::uint64_t kZombieNs = 50'000'000;

/// Stopped queue pairs that may wait for that.
constexpr std::size_t kMostZombies = 64;

constexpr std::uint64_t kRetryNs = 100'000'000;

/// A link is not parked before it had time for what it was made for.
constexpr std::uint64_t kLeastUpNs = 2'000'000;

}  // namespace

/// Asks for a queue pair; keep_house() makes it.
void VerbsProvider::want_link(Peer& peer) noexcept {
  if (peer.proposal_waits || peer.dying || peer.down) return;
  peer.proposal_waits = true;
  waiting_.push_back(&peer);
  last_housekeeping_ = 0;
  if (armed_) set_alarm();
}

/// Makes the queue pairs that are wanted, as many as there may be.
void VerbsProvider::make_wanted_links(std::uint64_t now_ns) noexcept {
  being_made_.swap(waiting_);  // Callbacks may want others meanwhile.
  for (Peer* const peer : being_made_) {
    const bool over = peer->dying || peer->down || peer->link.state != LinkState::kNone;
    if (over || propose(*peer, now_ns))
      peer->proposal_waits = false;
    else
      waiting_.push_back(peer);
  }
  being_made_.clear();
}

/// False: not now.
bool VerbsProvider::propose(Peer& peer, std::uint64_t now_ns) noexcept {
  if (peer.channel_state != ChannelState::kOpen) {
    trouble(peer);
    if (peer.channel_state == ChannelState::kNone && now_ns >= peer.retry_at_ns) dial(peer);
    return false;
  }
  if (now_ns < peer.retry_at_ns) return false;
  Link& link = peer.link;
  const bool is_answer = peer.has_remote && peer.remote.link > link.number;
  if (zombies_.size() >= kMostZombies || !may_make_link(is_answer)) {
    park_least_used(now_ns);
    return false;
  }
  make_room_for_window(link.window(), 0);  // Without it there is less spare; a late receive only costs time.
  Result<QueuePair> made = rail_->make_queue_pair();
  if (!made.ok()) {
    if (!queue_pair_logged_)
      log("%s (%u in use; trying again, told once)", made.error().message.c_str(), live_links_);
    queue_pair_logged_ = true;
    park_least_used(now_ns);
    retry_link(peer, now_ns);
    return false;
  }
  link.queue_pair = std::move(made.value());
  std::uint32_t random = 0;
  static_cast<void>(!::getrandom(&random, sizeof random, 0));
  link.packet_sequence = random & 0xFF'FFFF;
  // The peer may have given up links that we never saw.
  link.number = is_answer ? peer.remote.link : link.number + 1;
  link.parked = false;
  link.state = LinkState::kProposed;
  peer.proposed_at_ns = patience_ns_;
  by_queue_pair_[link.queue_pair->qp_num] = &peer;
  ++live_links_;
  ++figures_.links_made;
  windows_total_ += link.window();
  send_connect(peer);
  if (peer.has_remote && peer.remote.link == link.number) bind(peer);
  return true;
}

/// RULE HALF ARE ANSWERED. At most half of the queue pairs are proposals of our own that nobody has answered. The others
/// are or get up, and can be parked: so everybody can answer at last. Were all unanswered, everybody might wait for
/// everybody.
bool VerbsProvider::may_make_link(bool is_answer) const noexcept {
  const std::uint32_t most = rail_->config().most_queue_pairs;
  if (live_links_ >= most) return false;
  const auto unanswered = std::count_if(by_queue_pair_.begin(), by_queue_pair_.end(), [](const auto& entry) {
    return entry.second->link.state == LinkState::kProposed;
  });
  return is_answer || static_cast<std::uint32_t>(unanswered) < std::max(1u, most / 2);
}

/// A try to make or connect a queue pair failed here: later, or never.
void VerbsProvider::retry_link(Peer& peer, std::uint64_t now_ns) noexcept {
  peer.retry_at_ns = now_ns + kRetryNs;
  trouble(peer);
  if (is_overdue(peer)) start_dying(peer, Status::kPeerFailed);
}

void VerbsProvider::send_connect(Peer& peer) noexcept {
  Link& link = peer.link;
  Frame frame = make_frame(FrameKind::kConnect);
  ConnectBody& body = frame.connect;
  body.link = link.number;
  body.queue_pair = link.queue_pair->qp_num;
  body.packet_sequence = link.packet_sequence;
  body.lid = rail_->port().lid;
  body.mtu = static_cast<std::uint8_t>(rail_->port().mtu);
  std::memcpy(body.gid.data(), rail_->port().gid.raw, body.gid.size());
  body.received = link.received();
  body.limit = link.grant();
  send_frame(peer, frame);
}

void VerbsProvider::send_ready(Peer& peer) noexcept {
  Frame frame = make_frame(FrameKind::kReady);
  frame.link.link = peer.link.number;
  send_frame(peer, frame);
}

/// Connects our queue pair with the peer's, and finds out what has to be sent again.
void VerbsProvider::bind(Peer& peer) noexcept {
  Link& link = peer.link;
  peer.has_remote = false;
  // The time that the peer took to answer, it may have computed.
  if (peer.lost_since_ns != 0)
    peer.lost_since_ns += patience_ns_ - std::max(peer.proposed_at_ns, peer.lost_since_ns);
  if (!link.may_resume_at(peer.remote.received)) {
    log("verbs: peer %u lost messages that its device had acknowledged", index_of(peer.id));
    return start_dying(peer, Status::kPeerFailed);
  }
  RemoteQueuePair remote;
  remote.number = peer.remote.queue_pair;
  remote.packet_sequence = peer.remote.packet_sequence;
  remote.lid = peer.remote.lid;
  remote.mtu = static_cast<ibv_mtu>(peer.remote.mtu);
  std::memcpy(remote.gid.raw, peer.remote.gid.data(), peer.remote.gid.size());
  if (!rail_->connect(link.queue_pair.get(), link.packet_sequence, remote)) {
    peer.retry_at_ns = monotonic_ns() + kRetryNs;
    return lose_link(peer, std::strerror(errno));
  }
  link.state = LinkState::kBound;
  if (link.number > 1) {
    const std::uint64_t since = peer.lost_since_ns;
    retire(peer, peer.remote.received);
    peer.lost_since_ns = since;  // That was no news from this link.
    figures_.items_sent_again += link.posted() - link.retired();
  }
  link.resume();
  link.raise_limit(peer.remote.limit);
  send_ready(peer);
}

void VerbsProvider::on_connect_frame(Peer& peer, const ConnectBody& body) noexcept {
  Link& link = peer.link;
  if (body.link == link.number && link.state == LinkState::kProposed) {
    peer.remote = body;
    return bind(peer);
  }
  if (body.link <= link.number) return;  // Late, or sent again after a new channel was opened.
  peer.remote = body;
  peer.has_remote = true;
  if (link.state == LinkState::kNone)
    want_link(peer);
  else if (link.state != LinkState::kDraining)
    lose_link(peer, "the peer begins anew");
}

void VerbsProvider::on_ready_frame(Peer& peer, const LinkBody& body) noexcept {
  Link& link = peer.link;
  if (body.link != link.number || link.state != LinkState::kBound) return;
  link.state = LinkState::kUp;
  peer.up_since_ns = monotonic_ns();
  if (link.all_retired()) peer.lost_since_ns = 0;
  push_parts(peer);
}

/// Gives a queue pair up; what it held is kept and sent over the next one.
void VerbsProvider::lose_link(Peer& peer, const char* why) noexcept {
  Link& link = peer.link;
  // Of a peer that is dying it was stopped, and what it had comes back flushed.
  if (link.queue_pair == nullptr || link.state == LinkState::kDraining || peer.dying) return;
  // Both have parked, and the peer makes the next one before we have taken what the last one brought.
  const bool parked = link.park_sent && link.park_heard;
  if (!loss_logged_ && !parked && link.state == LinkState::kUp) {
    loss_logged_ = true;
    log("verbs: the connection with peer %u broke (%s); connecting again (told once)", index_of(peer.id),
        why);
  }
  ++(parked ? figures_.links_parked : figures_.links_lost);
  Rail::stop(link.queue_pair.get());
  link.state = LinkState::kDraining;
  link.parking = link.park_sent = link.park_heard = false;
  peer.flush = false;
  peer.lost_poll = polls_;
  draining_.push_back(&peer);
  trouble(peer);
  if (is_overdue(peer)) start_dying(peer, Status::kPeerFailed);
}

/// The completion queue is empty: what a link that was lost before this poll had delivered was taken.
void VerbsProvider::finish_draining() noexcept {
  std::erase_if(draining_, [&](Peer* peer) {
    if (peer->lost_poll == polls_) return false;
    bury(*peer);
    want_link(*peer);
    return true;
  });
}

/// Takes the queue pair away. Nothing that still comes through it counts.
void VerbsProvider::bury(Peer& peer) noexcept {
  Link& link = peer.link;
  if (link.queue_pair == nullptr) return;
  Rail::stop(link.queue_pair.get());
  forget_rings(link);
  by_queue_pair_.erase(link.queue_pair->qp_num);
  zombies_.push_back({std::move(link.queue_pair), &peer, monotonic_ns(), polls_});
  link.state = LinkState::kNone;
  link.parking = link.park_sent = link.park_heard = false;
  peer.flush = false;
  --live_links_;
  windows_total_ -= link.window();
}

/// Nothing of theirs may be in the completion queue: their numbers are given to others.
void VerbsProvider::destroy_zombies(std::uint64_t now_ns) noexcept {
  std::erase_if(zombies_, [&](const Zombie& zombie) {
    return elapsed_ns(now_ns, zombie.since_ns) >= kZombieNs && emptied_poll_ > zombie.since_poll;
  });
}

/// Makes room for those who wait for a queue pair: one is on its way out for each of them, at most.
void VerbsProvider::park_least_used(std::uint64_t now_ns) noexcept {
  Peer* victim = nullptr;
  std::size_t parking = 0;
  for (const auto& [number, peer] : by_queue_pair_) {
    if (peer->dying) continue;
    if (peer->link.parking) {
      parking += elapsed_ns(now_ns, peer->parking_since_ns) < kParkPatienceNs;
      continue;
    }
    if (peer->link.state != LinkState::kUp || peer->unfinished_write != kNoWrite) continue;
    if (elapsed_ns(now_ns, peer->up_since_ns) < kLeastUpNs) continue;
    if (victim == nullptr || peer->last_used < victim->last_used) victim = peer;
  }
  if (victim == nullptr || parking >= waiting_.size() + being_made_.size()) return;
  begin_to_park(*victim, now_ns);
}

void VerbsProvider::on_park_frame(Peer& peer, const LinkBody& body) noexcept {
  Link& link = peer.link;
  if (body.link != link.number || link.state == LinkState::kDraining) return;
  if (link.state == LinkState::kNone) {
    // It asks again over a new channel: the old one lost our answer.
    if (link.parked && body.sent == link.received()) send_park(peer);
    return;
  }
  if (body.sent < link.received() || body.sent > link.granted()) return start_dying(peer, Status::kProtocol);
  link.park_heard = true;
  link.park_sent_by_peer = body.sent;
  if (link.parking)
    try_to_park(peer);
  else
    begin_to_park(peer, monotonic_ns());
}

void VerbsProvider::begin_to_park(Peer& peer, std::uint64_t now_ns) noexcept {
  flush_tail(peer);
  peer.link.parking = true;
  peer.parking_since_ns = now_ns;
  trouble(peer, false);
  try_to_park(peer);
}

void VerbsProvider::send_park(Peer& peer) noexcept {
  Frame frame = make_frame(FrameKind::kPark);
  frame.link.link = peer.link.number;
  frame.link.sent = peer.link.retired();  // All that went over it.
  send_frame(peer, frame);
}

void VerbsProvider::try_to_park(Peer& peer) noexcept {
  Link& link = peer.link;
  if (!link.parking || link.state != LinkState::kUp) return;
  if (!link.all_retired()) {
    if (!link.tail_is_signaled()) flush_tail(peer);
    return;
  }
  if (!link.park_sent) {
    send_park(peer);
    link.park_sent = true;
  }
  if (!link.park_heard || link.received() != link.park_sent_by_peer) return;
  ++figures_.links_parked;
  bury(peer);
  link.parked = true;
  if (peer.unfinished_write != kNoWrite) push_parts(peer);
  if (peer.blocked && link.lacks_credit())
    want_link(peer);  // Credit that the peer owes comes with a Connect.
}

/// The peer runs out of credit: doubles its window, as far as there are slots that nobody else has credit for.
void VerbsProvider::widen(Link& link) noexcept {
  const std::uint32_t more = std::min(link.window(), Link::kMostWindow - link.window());
  if (more == 0 || link.queue_pair == nullptr) return;
  const std::uint32_t for_new_links = (rail_->config().most_queue_pairs - live_links_) * Link::kFirstWindow;
  if (!make_room_for_window(more, for_new_links)) return;
  link.set_window(link.window() + more);
  windows_total_ += more;
}

/// Sees to it that there are receive slots for `more` items than all windows hold, adding slabs while that leaves
/// room for `kept_free` below the pool's bound.
bool VerbsProvider::make_room_for_window(std::uint32_t more, std::uint32_t kept_free) noexcept {
  const SlotPool& pool = rail_->receive_slots();
  const std::uint32_t needed = windows_total_ + more + kSpareSlots;
  if (needed + kept_free > pool.most()) return false;
  while (needed > pool.count())
    if (!rail_->grow_receive_slots()) return false;
  return true;
}

}  // namespace ch3_offload
