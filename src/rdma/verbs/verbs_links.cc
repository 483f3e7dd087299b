// Queue pairs: set-up, loss, parking, and the credit that peers get. See verbs_provider.h.
//
// The life of a link. Both sides go through the same states, and frames of an earlier number than the current one
// are late and ignored:
//
//   kNone ── propose(): queue pair made, Connect(n) sent ──▶ kProposed ── the peer's Connect(n) ──▶ kBound, Ready(n)
//   sent ── the peer's Ready(n) ──▶ kUp
//   kProposed, kBound, kUp ── an error, or the peer's Connect(n + 1) ──▶ kDraining ── the completion queue was seen
//   empty ──▶ kNone, and propose() with n + 1
//   kUp ── nothing is acknowledged for long, or its port was down ──▶ kDraining
//   kUp ── parked: both have said Park(n), all items are acknowledged ──▶ kNone
//
// Where two processes have two pairs of rails in common, the number of a link says which one it is on (rail_of()), and
// who proposes skips a number to get the other: n + 2 for n + 1.
//
// Not on the message path: may allocate.

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

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
void VerbsProvider::want_link(VerbsLane& lane) noexcept {
  if (lane.proposal_waits || lane.peer->dying || lane.peer->down) return;
  lane.proposal_waits = true;
  waiting_.push_back(&lane);
  last_housekeeping_ = 0;
  if (armed_) set_alarm();
}

/// Makes the queue pairs that are wanted, as many as there may be.
void VerbsProvider::make_wanted_links(std::uint64_t now_ns) noexcept {
  being_made_.swap(waiting_);  // Callbacks may want others meanwhile.
  for (VerbsLane* const lane : being_made_) {
    const bool over = lane->peer->dying || lane->peer->down || lane->link.state != LinkState::kNone;
    if (over || propose(*lane, now_ns))
      lane->proposal_waits = false;
    else
      waiting_.push_back(lane);
  }
  being_made_.clear();
}

/// The rail of ours that a link of this number uses. Both processes know the other's, too: the lanes begin at homes
/// that spread them and the peers over the pairs of rails, and each number is one pair further.
std::uint8_t VerbsProvider::rail_of(const VerbsLane& lane, std::uint32_t link_number) const noexcept {
  const VerbsEndpoint& peer = *lane.peer;
  const std::uint32_t home = lane.index + index_of(config_.self) + index_of(peer.id);
  return peer.pairs[(home + link_number - 1) % peer.pair_count].mine;
}

bool VerbsProvider::is_home(const VerbsLane& lane) const noexcept { return lane.rail == rail_of(lane, 1); }

/// Of the link to be made now: the one after the last, or a later one for the rail that we want.
std::uint32_t VerbsProvider::next_number(const VerbsLane& lane) const noexcept {
  const std::uint32_t after = std::max(lane.link.number, lane.has_remote ? lane.remote.link : 0) + 1;
  const auto works = [&](std::uint32_t link_number) {
    const std::uint8_t rail = rail_of(lane, link_number);
    return !rails_[rail].lost && rails_[rail].up && rail != lane.avoided && rail != lane.refused;
  };
  const bool after_is_home = rail_of(lane, after) == rail_of(lane, 1);
  const std::uint32_t home = after_is_home ? after : after + 1;
  const std::uint32_t other = after_is_home ? after + 1 : after;
  if (lane.peer->pair_count == 1 || works(home)) return home;
  if (works(other)) return other;
  // Both have failed: by turns, but never what is lost for good.
  return rails_[rail_of(lane, after)].lost ? after + 1 : after;
}

/// False: not now.
bool VerbsProvider::propose(VerbsLane& lane, std::uint64_t now_ns) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  if (peer.channel_state != ChannelState::kOpen) {
    trouble(peer);
    if (peer.channel_state == ChannelState::kNone && now_ns >= peer.retry_at_ns) dial(peer);
    return false;
  }
  if (now_ns < lane.retry_at_ns) return false;
  Link& link = lane.link;
  const std::uint8_t remote_rail = lane.has_remote ? rail_of(lane, lane.remote.link) : kNoRail;
  const bool is_answer = lane.has_remote && lane.remote.link > link.number && !rails_[remote_rail].lost &&
                         remote_rail != lane.refused;
  // The peer may have given up links that we never saw.
  const std::uint32_t number = is_answer ? lane.remote.link : next_number(lane);
  const std::uint8_t rail = rail_of(lane, number);
  RailUse& use = rails_[rail];
  if (use.lost || zombies_.size() >= kMostZombies) return false;
  // Nobody waits for the second lane unless something is on it: the next long write asks again.
  const bool is_optional = lane.index != 0 && link.all_retired() && !lane.has_remote;
  const auto do_without = [&] {
    if (links_are_well(peer)) peer.lost_since_ns = 0;
    return true;
  };
  if (!may_make_link(use, is_answer)) {
    if (is_optional) return do_without();
    if (use.links.size() >= use.rail->config().most_queue_pairs) park_least_used(use, now_ns);
    return false;
  }
  // Without room there is less spare; a late receive only costs time.
  make_room_for_window(use, link.window(), 0);
  QueuePair made = make_queue_pair(use, lane);
  if (made == nullptr) {
    if (is_optional) return do_without();
    lane.refused = peer.pair_count > 1 ? rail : kNoRail;
    park_least_used(use, now_ns);
    retry_link(lane, now_ns);
    return false;
  }
  lane.refused = kNoRail;
  link.queue_pair = std::move(made);
  std::uint32_t random = 0;
  static_cast<void>(!::getrandom(&random, sizeof random, 0));
  link.packet_sequence = random & 0xFF'FFFF;
  link.number = number;
  link.parked = false;
  link.state = LinkState::kProposed;
  lane.rail = rail;
  lane.proposed_at_ns = patience_ns_;
  use.windows_total += link.window();
  ++figures_.links_made;
  send_connect(lane);
  if (lane.has_remote && lane.remote.link == link.number) bind(lane);
  return true;
}

/// Makes a queue pair and enters it in `use.links`; null: it was refused, or there is no memory for what it needs here.
QueuePair VerbsProvider::make_queue_pair(RailUse& use, VerbsLane& lane) noexcept {
  try {
    // bury() must not allocate. Every queue pair that lives may be there at once.
    std::size_t live = 1;
    for (const RailUse& each : rails_) live += each.links.size();
    if (zombies_.capacity() < zombies_.size() + live) zombies_.reserve(2 * (zombies_.size() + live));
    Result<QueuePair> made = use.rail->make_queue_pair();
    if (made.ok()) {
      use.links[made.value()->qp_num] = &lane;
      return std::move(made.value());
    }
    if (!queue_pair_logged_)
      log("%s (%zu in use; trying again, told once)", made.error().message.c_str(), use.links.size());
  } catch (const std::bad_alloc&) {
    if (!queue_pair_logged_) log("verbs: there is no memory for a queue pair (trying again, told once)");
  }
  queue_pair_logged_ = true;
  return nullptr;
}

/// RULE HALF ARE ANSWERED. At most half of the queue pairs are proposals of our own that nobody has answered. The others
/// are or get up, and can be parked: so everybody can answer at last. Were all unanswered, everybody might wait for
/// everybody.
bool VerbsProvider::may_make_link(const RailUse& use, bool is_answer) noexcept {
  const std::uint32_t most = use.rail->config().most_queue_pairs;
  if (use.links.size() >= most) return false;
  const auto unanswered = std::ranges::count_if(
      use.links, [](const auto& entry) { return entry.second->link.state == LinkState::kProposed; });
  return is_answer || static_cast<std::uint32_t>(unanswered) < std::max(1u, most / 2);
}

/// A try to make or connect a queue pair failed here: later, or never.
void VerbsProvider::retry_link(VerbsLane& lane, std::uint64_t now_ns) noexcept {
  lane.retry_at_ns = now_ns + kRetryNs;
  excuse_waiting(*lane.peer);
  trouble(*lane.peer);
  if (is_overdue(*lane.peer)) start_dying(*lane.peer, Status::kPeerFailed);
}

void VerbsProvider::send_connect(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const VerbsPort& port = rails_[lane.rail].rail->port();
  Frame frame = make_frame(FrameKind::kConnect);
  ConnectBody& body = frame.connect;
  body.link = link.number;
  body.queue_pair = link.queue_pair->qp_num;
  body.packet_sequence = link.packet_sequence;
  body.lid = port.lid;
  body.mtu = static_cast<std::uint8_t>(port.mtu);
  body.lane = lane.index;
  std::memcpy(body.gid.data(), port.gid.raw, body.gid.size());
  body.received = link.received();
  body.limit = link.grant();
  send_frame(*lane.peer, frame);
}

void VerbsProvider::send_ready(VerbsLane& lane) noexcept {
  Frame frame = make_frame(FrameKind::kReady);
  frame.link.link = lane.link.number;
  frame.link.lane = lane.index;
  send_frame(*lane.peer, frame);
}

/// The time that the peer takes to answer a proposal, it may compute: that does not count.
void VerbsProvider::excuse_waiting(VerbsEndpoint& peer) noexcept {
  if (peer.lost_since_ns == 0 || peer.channel_state != ChannelState::kOpen) return;
  std::uint64_t since_ns = patience_ns_;
  for_each_lane(peer, [&](VerbsLane& lane) {
    if (lane.link.state == LinkState::kProposed) since_ns = std::min(since_ns, lane.proposed_at_ns);
    lane.proposed_at_ns = patience_ns_;
  });
  peer.lost_since_ns += patience_ns_ - std::max(since_ns, peer.lost_since_ns);
}

/// Connects our queue pair with the peer's, and finds out what has to be sent again.
void VerbsProvider::bind(VerbsLane& lane) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  lane.has_remote = false;
  excuse_waiting(peer);
  if (!link.may_resume_at(lane.remote.received)) {
    log("verbs: peer %u lost messages that its device had acknowledged", index_of(peer.id));
    return start_dying(peer, Status::kPeerFailed);
  }
  RemoteQueuePair remote;
  remote.number = lane.remote.queue_pair;
  remote.packet_sequence = lane.remote.packet_sequence;
  remote.lid = lane.remote.lid;
  remote.mtu = static_cast<ibv_mtu>(lane.remote.mtu);
  std::memcpy(remote.gid.raw, lane.remote.gid.data(), lane.remote.gid.size());
  if (!rails_[lane.rail].rail->connect(link.queue_pair.get(), link.packet_sequence, remote)) {
    const int error_number = errno;
    lane.retry_at_ns = monotonic_ns() + kRetryNs;
    return lose_link(lane, std::strerror(error_number));
  }
  link.state = LinkState::kBound;
  if (link.number > 1) {
    const std::uint64_t since = peer.lost_since_ns;
    retire(lane, lane.remote.received);
    peer.lost_since_ns = since;  // That was no news from this link.
    figures_.items_sent_again += link.posted() - link.retired();
  }
  link.resume();
  link.raise_limit(lane.remote.limit);
  send_ready(lane);
}

void VerbsProvider::on_connect_frame(VerbsLane& lane, const ConnectBody& body) noexcept {
  Link& link = lane.link;
  if (body.link == link.number && link.state == LinkState::kProposed) {
    lane.remote = body;
    return bind(lane);
  }
  if (body.link <= link.number) {
    // Late, or sent again after a new channel was opened. Its credit is not told again.
    link.raise_limit(body.limit);
    return push_parts(*lane.peer);
  }
  lane.remote = body;
  lane.has_remote = true;
  if (link.state == LinkState::kNone)
    want_link(lane);
  else if (link.state != LinkState::kDraining)
    lose_link(lane, "the peer begins anew", Cause::kRenewal);
}

void VerbsProvider::on_ready_frame(VerbsLane& lane, const LinkBody& body) noexcept {
  Link& link = lane.link;
  if (body.link != link.number || link.state != LinkState::kBound) return;
  link.state = LinkState::kUp;
  lane.up_since_ns = monotonic_ns();
  if (link.all_retired())
    lane.peer->lost_since_ns = 0;
  else
    lane.flush = true;  // The sooner it is known that this link works.
  push_parts(*lane.peer);
}

/// Gives a queue pair up; what it held is kept and sent over the next one, on another rail if there is one.
void VerbsProvider::lose_link(VerbsLane& lane, const char* why, Cause cause) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  // Of a peer that is dying it was stopped, and what it had comes back flushed.
  if (link.queue_pair == nullptr || link.state == LinkState::kDraining || peer.dying) return;
  // Both have parked, and the peer makes the next one before we have taken what the last one brought.
  const bool parked = link.park_sent && link.park_heard;
  if (!loss_logged_ && !parked && link.state == LinkState::kUp && cause != Cause::kStall) {
    loss_logged_ = true;
    log("verbs: the connection with peer %u broke (%s); connecting again (told once)", index_of(peer.id),
        why);
  }
  ++(parked ? figures_.links_parked : figures_.links_lost);
  if (cause != Cause::kRenewal) lane.avoided = lane.rail;
  excuse_waiting(peer);
  Rail::stop(link.queue_pair.get());
  link.state = LinkState::kDraining;
  link.parking = link.park_sent = link.park_heard = false;
  lane.flush = false;
  lane.lost_poll = polls_;
  draining_.push_back(&lane);
  trouble(peer);
  if (cause == Cause::kFailure && is_overdue(peer)) start_dying(peer, Status::kPeerFailed);
}

/// The completion queue is empty: what a link that was lost before this poll had delivered was taken.
void VerbsProvider::finish_draining() noexcept {
  std::erase_if(draining_, [&](VerbsLane* lane) {
    if (lane->lost_poll == polls_) return false;
    bury(*lane);
    want_link(*lane);
    return true;
  });
}

/// Takes the queue pair away. Nothing that still comes through it counts.
void VerbsProvider::bury(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  if (link.queue_pair == nullptr) return;
  RailUse& use = rails_[lane.rail];
  Rail::stop(link.queue_pair.get());
  use.links.erase(link.queue_pair->qp_num);
  use.windows_total -= link.window();
  zombies_.push_back({std::move(link.queue_pair), lane.peer, monotonic_ns(), polls_});
  link.state = LinkState::kNone;
  link.parking = link.park_sent = link.park_heard = false;
  lane.flush = false;
  lane.stalled_looks = 0;
}

/// Nothing of theirs may be in the completion queue: their numbers are given to others.
void VerbsProvider::destroy_zombies(std::uint64_t now_ns) noexcept {
  std::erase_if(zombies_, [&](const Zombie& zombie) {
    return elapsed_ns(now_ns, zombie.since_ns) >= kZombieNs && emptied_poll_ > zombie.since_poll;
  });
}

/// Between looks for links on which nothing moves: an eighth of the peer time-out. A sleeping process wakes for them.
std::uint64_t VerbsProvider::stall_look_ns() const noexcept {
  return static_cast<std::uint64_t>(config_.peer_timeout_ms) * (1'000'000 / 8);
}

/// A device reports that nobody acknowledges, as a rule after half a second. One that does not (it lost its timer, or finds no
/// receive there for long) must not make us wait for ever: the link is given up, and what it held is sent over the next
/// one. Each look counts for the same time however long this process was elsewhere.
void VerbsProvider::look_for_stalls(std::uint64_t now_ns) noexcept {
  if (elapsed_ns(now_ns, last_look_for_stalls_ns_) < stall_look_ns()) return;
  last_look_for_stalls_ns_ = now_ns;
  for (RailUse& use : rails_) {
    for (const auto& [number, lane] : use.links) {
      const Link& link = lane->link;
      const bool moved = link.retired() != std::exchange(lane->seen_retired, link.retired());
      if (moved) lane->stalls = 0;
      if (moved || link.state != LinkState::kUp || link.retired() == link.posted()) {
        lane->stalled_looks = 0;
      } else if (++lane->stalled_looks == 1) {
        flush_tail(*lane);  // Its completion may not have been asked for.
      } else if (stalled_for_good(*lane)) {
        log("verbs: peer %u has not acknowledged anything for %llu s, and the device reports no error; "
            "connecting again",
            index_of(lane->peer->id),
            static_cast<unsigned long long>(lane->stalled_looks * stall_look_ns() / 1'000'000'000));
        ++lane->stalls;
        lose_link(*lane, "no acknowledgement", Cause::kStall);
      }
    }
  }
}

/// For the peer time-out, and as long as what is on its way takes at a megabyte per second: few networks are slower. Twice
/// as long each time that it did not help.
bool VerbsProvider::stalled_for_good(const VerbsLane& lane) const noexcept {
  constexpr std::uint64_t kSlowestBytesPerMs = 1000;
  const std::uint64_t stalled_ms = lane.stalled_looks * (stall_look_ns() / 1'000'000);
  const auto patience_ms = static_cast<std::uint64_t>(config_.peer_timeout_ms);
  if (stalled_ms <= patience_ms) return false;
  const std::uint64_t most_ms = patience_ms + lane.link.posted_bytes() / kSlowestBytesPerMs;
  return stalled_ms > most_ms << std::min(lane.stalls, 6u);
}

/// Makes room for those who wait for a queue pair: one is on its way out for each of them, at most.
void VerbsProvider::park_least_used(RailUse& use, std::uint64_t now_ns) noexcept {
  VerbsLane* victim = nullptr;
  std::size_t parking = 0;
  for (const auto& [number, lane] : use.links) {
    if (lane->peer->dying) continue;
    if (lane->link.parking) {
      parking += elapsed_ns(now_ns, lane->parking_since_ns) < kParkPatienceNs;
      continue;
    }
    if (lane->link.state != LinkState::kUp || lane->peer->unfinished_write != kNoWrite) continue;
    if (elapsed_ns(now_ns, lane->up_since_ns) < kLeastUpNs) continue;
    if (victim == nullptr || lane->last_used < victim->last_used) victim = lane;
  }
  if (victim == nullptr || parking >= waiting_.size() + being_made_.size()) return;
  begin_to_park(*victim, now_ns);
}

void VerbsProvider::on_park_frame(VerbsLane& lane, const LinkBody& body) noexcept {
  Link& link = lane.link;
  if (body.link != link.number || link.state == LinkState::kDraining) return;
  if (link.state == LinkState::kNone) {
    // It asks again over a new channel: the old one lost our answer.
    if (link.parked && body.sent == link.received()) send_park(lane);
    return;
  }
  if (body.sent < link.received() || body.sent > link.granted())
    return start_dying(*lane.peer, Status::kProtocol);
  link.park_heard = true;
  link.park_sent_by_peer = body.sent;
  if (link.parking)
    try_to_park(lane);
  else
    begin_to_park(lane, monotonic_ns());
}

void VerbsProvider::begin_to_park(VerbsLane& lane, std::uint64_t now_ns) noexcept {
  flush_tail(lane);
  lane.link.parking = true;
  lane.parking_since_ns = now_ns;
  trouble(*lane.peer, false);
  try_to_park(lane);
}

void VerbsProvider::send_park(VerbsLane& lane) noexcept {
  Frame frame = make_frame(FrameKind::kPark);
  frame.link.link = lane.link.number;
  frame.link.lane = lane.index;
  frame.link.sent = lane.link.retired();  // All that went over it.
  send_frame(*lane.peer, frame);
}

void VerbsProvider::try_to_park(VerbsLane& lane) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  if (!link.parking || link.state != LinkState::kUp) return;
  if (!link.all_retired()) {
    if (!link.tail_is_signaled()) flush_tail(lane);
    return;
  }
  if (!link.park_sent) {
    send_park(lane);
    link.park_sent = true;
  }
  if (!link.park_heard || link.received() != link.park_sent_by_peer) return;
  ++figures_.links_parked;
  bury(lane);
  link.parked = true;
  lane.avoided = kNoRail;
  if (peer.unfinished_write != kNoWrite) push_parts(peer);
  if (peer.blocked && lane.index == 0 && link.lacks_credit())
    want_link(lane);  // Credit that the peer owes comes with a Connect.
}

/// The peer runs out of credit: doubles its window, as far as there are slots that nobody else has credit for.
void VerbsProvider::widen(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const std::uint32_t more = std::min(link.window(), Link::kMostWindow - link.window());
  if (more == 0 || link.queue_pair == nullptr) return;
  RailUse& use = rails_[lane.rail];
  const auto live = static_cast<std::uint32_t>(use.links.size());
  const std::uint32_t for_new_links = (use.rail->config().most_queue_pairs - live) * Link::kFirstWindow;
  if (!make_room_for_window(use, more, for_new_links)) return;
  link.set_window(link.window() + more);
  use.windows_total += more;
}

/// Sees to it that there are receive slots for `more` items than all windows hold, adding slabs while that leaves
/// room for `kept_free` below the pool's bound.
bool VerbsProvider::make_room_for_window(RailUse& use, std::uint32_t more, std::uint32_t kept_free) noexcept {
  const SlotPool& pool = use.rail->receive_slots();
  // Some are between a completion and repost(), or meant for what nobody has credit for.
  const std::uint32_t spare = use.rail->config().slots_per_slab / 2;
  const std::uint32_t needed = use.windows_total + more + spare;
  if (needed + kept_free > pool.most()) return false;
  while (needed > pool.count())
    if (!use.rail->grow_receive_slots()) return false;
  return true;
}

}  // namespace ch3_offload
