// Queue pairs: set-up, loss, parking, and the credit that peers get. See verbs_provider.h.
//
// The life of a link. Introductions (wire_up/wire_up.h) bring the offers. Numbers only grow, but that of a
// proposal that nobody answered is used again.
//
//   who dialled:   kNone ── propose(): our offer(n) sent ──▶ kProposed ── the peer's offer(n) ──▶ kUp, Ready sent
//   who accepted:  kNone ── the peer's offer(n), propose(): our offer(n) sent ──▶ kBound ── Ready, or an item ──▶ kUp
//   both:          kProposed, kBound, kUp ── an error, or a later offer of the peer's ──▶ kDraining ── the device has
//                  nothing more of the queue pair ──▶ kNone, and a new introduction where one is needed
//                  kUp ── nothing is acknowledged for long, or its port was down ──▶ kDraining
//                  kUp ── parked: both have sent kPark, and all items are acknowledged ──▶ kNone
//
// Where two processes have two pairs of rails in common, the number of a link says which one it is on
// (rail_of()), and who proposes skips a number to get the other: n + 2 for n + 1.
//
// Not on the message path: may allocate.

#include <sys/random.h>
#include <sys/timerfd.h>

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

/// A device that does not say when a stopped queue pair has used its last receive
/// (IBV_EVENT_QP_LAST_WQE_REACHED, IBTA 11.6.4.2) is given this time: what it still had for the completion
/// queue is there after that. One that has said so before is given more (most_stop_ns()).
constexpr std::uint64_t kStopNs = 50'000'000;

constexpr std::uint64_t kRetryNs = 100'000'000;

/// Looks in a row that found a link silent before the peer is probed: a quarter of the peer time-out.
constexpr std::uint32_t kSilentLooks = 2;

/// Peers without a link that are dialled at one look.
constexpr std::uint32_t kMostChecks = 16;

/// A link is not parked before it had time for what it was made for.
constexpr std::uint64_t kLeastUpNs = 2'000'000;

}  // namespace

/// Asks for a link; keep_house() dials the peer, or makes a queue pair.
void VerbsProvider::want_link(VerbsLane& lane) noexcept {
  if (lane.waits || lane.peer->dying || lane.peer->down) return;
  lane.waits = true;
  waiting_.push_back(&lane);
  last_housekeeping_ = 0;
  has_new_wants_ = true;
  if (armed_) set_alarm();
}

/// Dials peers, and makes the queue pairs that are wanted, as many as there may be.
void VerbsProvider::make_wanted_links(std::uint64_t now_ns) noexcept {
  being_made_.swap(waiting_);  // Callbacks may want others meanwhile.
  for (VerbsLane* const lane : being_made_) {
    const bool over = lane->peer->dying || lane->peer->down || lane->link.state != LinkState::kNone;
    lane->waits = false;
    if (over) continue;
    if (!lane->may_offer && !lane->has_remote) {
      // The introduction that asked for a queue pair may have ended.
      if (is_needed(*lane)) wire_up_->seek(lane->contact, lane->peer->address);
    } else if (!propose(*lane, now_ns) && !lane->waits) {
      lane->waits = true;
      waiting_.push_back(lane);
    }
  }
  being_made_.clear();
}

/// The rail of ours that a link of this number uses. Both processes know the other's, too: the lanes begin at
/// homes that spread them and the peers over the pairs of rails, and each number is one pair further.
std::uint8_t VerbsProvider::rail_of(const VerbsLane& lane, std::uint32_t link_number) const noexcept {
  const VerbsEndpoint& peer = *lane.peer;
  const std::uint32_t home = lane.index + index_of(config_.self) + index_of(peer.id);
  return peer.pairs[(home + link_number - 1) % peer.pair_count].mine;
}

bool VerbsProvider::is_home(const VerbsLane& lane) const noexcept { return lane.rail == rail_of(lane, 1); }

/// Of the link to be made now: the one after the last, or a later one for the rail that we want.
std::uint32_t VerbsProvider::next_number(const VerbsLane& lane) const noexcept {
  const std::uint32_t after = std::max(lane.link.number, lane.peers_last_link) + 1;
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

/// Makes a queue pair and offers it to the peer. Returns false if there can be none now.
bool VerbsProvider::propose(VerbsLane& lane, std::uint64_t now_ns) noexcept {
  if (now_ns < lane.retry_at_ns) return false;
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  // The dialler chooses the number, and so the rail.
  const std::uint32_t number = lane.has_remote ? lane.remote.link : next_number(lane);
  const std::uint8_t rail = rail_of(lane, number);
  RailUse& use = rails_[rail];
  const auto start_over = [&] {  // This process dials, and chooses another one.
    drop_introductions(lane);
    lane.peers_last_link = std::max(lane.peers_last_link, number);
    lane.wanted = true;
    want_link(lane);
    return true;
  };
  if (use.lost) return lane.has_remote && peer.pair_count > 1 ? start_over() : false;
  if (use.zombies >= use.rail->config().most_queue_pairs) return false;
  // If no transfer uses the second lane, do not wait for it. The next long write requests it again.
  const bool is_optional = lane.index != 0 && link.all_retired() && !lane.has_remote;
  const auto do_without = [&] {
    drop_introductions(lane);
    return true;
  };
  if (!may_make_link(use, lane.has_remote)) {
    if (is_optional) return do_without();
    if (use.links.size() >= use.rail->config().most_queue_pairs) park_least_used(use, now_ns);
    return false;
  }
  // Without room there is less spare; a late receive only costs time.
  make_room_for_window(use, link.window(), 0);
  QueuePair made = make_queue_pair(use, lane);
  if (made == nullptr) {
    if (is_optional) return do_without();
    park_least_used(use, now_ns);
    lane.retry_at_ns = now_ns + kRetryNs;
    if (peer.pair_count == 1) return false;
    lane.refused = rail;
    return lane.has_remote ? start_over() : false;
  }
  lane.refused = kNoRail;
  link.queue_pair = std::move(made);
  std::uint32_t random = 0;
  static_cast<void>(!::getrandom(&random, sizeof random, 0));
  link.packet_sequence = random & 0xFF'FFFF;
  lane.number_before = link.number;
  link.number = number;
  link.state = LinkState::kProposed;
  lane.rail = rail;
  lane.may_offer = false;
  use.windows_total += link.window();
  ++figures_.links_made;
  if (std::exchange(lane.has_remote, false)) {
    if (!bind(lane)) return true;
    link.state = LinkState::kBound;
  }
  wire_up_->offer(lane.contact, offer_of(lane));
  return true;
}

void VerbsProvider::drop_introductions(VerbsLane& lane) noexcept {
  wire_up_->drop(lane.contact);
  lane.may_offer = lane.has_remote = false;
}

/// Makes a queue pair and enters it in `use.links`; null: it was refused, or there is no memory for what it
/// needs here.
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

/// RULE HALF ARE ANSWERED. At most half of the queue pairs are proposals of our own that nobody has answered.
/// The others are or get up, and can be parked: so everybody can answer at last. Were all unanswered,
/// everybody might wait for everybody.
bool VerbsProvider::may_make_link(const RailUse& use, bool is_answer) noexcept {
  const std::uint32_t most = use.rail->config().most_queue_pairs;
  if (use.links.size() >= most) return false;
  const auto unanswered = std::ranges::count_if(
      use.links, [](const auto& entry) { return entry.second->link.state == LinkState::kProposed; });
  return is_answer || static_cast<std::uint32_t>(unanswered) < std::max(1u, most / 2);
}

/// REQUIRES: it has a queue pair.
OfferBody VerbsProvider::offer_of(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const VerbsPort& port = rails_[lane.rail].rail->port();
  OfferBody offer;
  offer.link = link.number;
  offer.queue_pair = link.queue_pair->qp_num;
  offer.packet_sequence = link.packet_sequence;
  offer.lid = port.lid;
  offer.mtu = static_cast<std::uint8_t>(port.mtu);
  std::memcpy(offer.gid.data(), port.gid.raw, offer.gid.size());
  offer.received = link.received();
  offer.limit = link.grant();
  return offer;
}

/// Connects our queue pair with the one of `remote`, and finds out what has to be sent again. Returns false
/// if that failed: the link is lost, or the peer is.
bool VerbsProvider::bind(VerbsLane& lane) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  if (!link.may_resume_at(lane.remote.received)) {
    log("verbs: peer %u lost messages that its device had acknowledged", index_of(peer.id));
    start_dying(peer, Status::kPeerFailed);
    return false;
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
    lose_link(lane, std::strerror(error_number));
    return false;
  }
  if (link.number > 1) {
    const bool had_failed = peer.failed;
    retire(lane, lane.remote.received);
    peer.failed = had_failed;  // That was no news from this link.
    figures_.items_sent_again += link.posted() - link.retired();
  }
  forget_parking(lane);
  link.resume();
  link.raise_limit(lane.remote.limit);
  return true;
}

/// A kPark that a link lost says nothing on the next one: it becomes a message of credit.
void VerbsProvider::forget_parking(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  for (std::uint64_t number = link.retired(); number < link.next(); ++number) {
    const Item& item = link.item(number);
    if (item.kind == Item::Kind::kWritePart) continue;
    std::byte* const kind = message_at(item) + offsetof(SlotHeader, kind);
    if (*kind == std::byte{SlotHeader::kPark}) *kind = std::byte{SlotHeader::kCreditOnly};
  }
}

void VerbsProvider::link_is_up(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  link.state = LinkState::kUp;
  lane.wanted = false;
  lane.up_since_ns = monotonic_ns();
  lane.stalled_looks = lane.silent_looks = 0;
  lane.probing = lane.probe_done = false;
  if (link.all_retired())
    lane.peer->failed = false;
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
  if (!loss_logged_ && !leaving_ && !parked && link.state == LinkState::kUp && cause != Cause::kStall) {
    loss_logged_ = true;
    log("verbs: the connection with peer %u broke (%s); connecting again (told once)", index_of(peer.id),
        why);
  }
  if (parked)
    ++figures_.links_parked;
  else if (link.state == LinkState::kUp)
    ++figures_.links_lost;
  if (cause != Cause::kRenewal) {
    lane.avoided = lane.rail;
    peer.failed = true;
    drop_introductions(lane);  // After a renewal it goes on, or has ended.
  }
  const bool nothing_came = link.state == LinkState::kProposed;
  if (nothing_came) link.number = lane.number_before;  // The peer may have taken the same number.
  Rail::stop(link.queue_pair.get());
  link.state = LinkState::kDraining;
  link.parking = link.park_sent = link.park_heard = false;
  lane.flush = false;
  lane.is_empty = nothing_came;
  lane.wanted = cause != Cause::kRenewal && lane.index == 0;
  lane.stopped_poll = polls_;
  lane.stopped_ns = monotonic_ns();
  draining_.push_back(&lane);
}

/// The device has said that nothing more comes from a stopped queue pair.
void VerbsProvider::on_last_receive(RailUse& use, const ibv_qp* queue_pair) noexcept {
  use.tells_last_receive = true;
  const auto found = use.links.find(queue_pair->qp_num);
  if (found != use.links.end() && found->second->link.queue_pair.get() == queue_pair) {
    VerbsLane& lane = *found->second;
    // Has an effect only if the device has stopped the queue pair by itself.
    lose_link(lane, ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED));
    lane.is_empty = true;
    lane.stopped_poll = polls_;  // What came before may still be in the completion queue.
  }
  for (Zombie& zombie : zombies_) {
    if (zombie.queue_pair.get() != queue_pair) continue;
    zombie.is_empty = true;
    zombie.since_poll = polls_;
  }
}

/// The completion queue is empty: what links that were lost before this poll had delivered was taken.
/// RULE TAKE ALL FIRST. A link is buried once nothing more can come through it: only then is it true what our
/// next offer says of the items that have arrived, and the peer does not send again what it knows to be
/// acknowledged.
void VerbsProvider::finish_draining() noexcept {
  const std::uint64_t now_ns = monotonic_ns();
  std::erase_if(draining_, [&](VerbsLane* lane) {
    const RailUse& use = rails_[lane->rail];
    const bool is_over =
        lane->is_empty || use.lost || elapsed_ns(now_ns, lane->stopped_ns) >= most_stop_ns(use);
    if (!is_over || lane->stopped_poll == polls_) return false;
    bury(*lane);
    if (lane->has_remote || lane->may_offer || is_needed(*lane)) want_link(*lane);
    return true;
  });
}

/// Whether this process has a use for a link of the lane.
bool VerbsProvider::is_needed(const VerbsLane& lane) noexcept {
  if (lane.wanted || !lane.link.all_retired()) return true;
  return lane.index == 0 && (lane.peer->unfinished_write != kNoWrite || lane.peer->blocked);
}

/// How long a stopped queue pair waits for the device's word. One that tells may be slow; an event may be
/// lost.
std::uint64_t VerbsProvider::most_stop_ns(const RailUse& use) noexcept {
  return use.tells_last_receive ? 20 * kStopNs : kStopNs;
}

/// Takes the queue pair away. Nothing that still comes through it counts.
void VerbsProvider::bury(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  if (link.queue_pair == nullptr) return;
  RailUse& use = rails_[lane.rail];
  if (link.state != LinkState::kDraining) {
    Rail::stop(link.queue_pair.get());
    lane.stopped_ns = monotonic_ns();
    lane.is_empty = false;
  }
  use.links.erase(link.queue_pair->qp_num);
  use.windows_total -= link.window();
  ++use.zombies;
  zombies_.push_back(
      {std::move(link.queue_pair), lane.peer, lane.rail, lane.stopped_ns, polls_, lane.is_empty});
  link.state = LinkState::kNone;
  link.parking = link.park_sent = link.park_heard = false;
  lane.flush = false;
  if (!lane.peer->dying) move_from_slots(link);
}

/// Nothing of theirs may be in the completion queue: their numbers are given to others.
void VerbsProvider::destroy_zombies(std::uint64_t now_ns) noexcept {
  std::erase_if(zombies_, [&](const Zombie& zombie) {
    RailUse& use = rails_[zombie.rail];
    const bool is_over =
        zombie.is_empty || use.lost || elapsed_ns(now_ns, zombie.since_ns) >= most_stop_ns(use);
    if (!is_over || emptied_poll_ <= zombie.since_poll) return false;
    --use.zombies;
    return true;
  });
}

/// Between looks for links on which nothing moves: an eighth of the peer time-out. A sleeping process wakes
/// for them.
std::uint64_t VerbsProvider::stall_look_ns() const noexcept {
  return static_cast<std::uint64_t>(config_.peer_timeout_ms) * (1'000'000 / 8);
}

/// A device reports that nobody acknowledges, as a rule after half a second. One that does not (it lost its
/// timer, or finds no receive there for long) must not make us wait for ever: the link is given up, and what
/// it held is sent over the next one. Each look counts for the same time however long this process was
/// elsewhere.
void VerbsProvider::look_for_stalls(std::uint64_t now_ns) noexcept {
  const bool probes = probe_soon_.load(std::memory_order_relaxed) && probe_soon_.exchange(false);
  if (!probes && elapsed_ns(now_ns, last_look_for_stalls_ns_) < stall_look_ns()) return;
  last_look_for_stalls_ns_ = now_ns;
  for (RailUse& use : rails_) {
    // Losing a link leaves it in `links`: only bury() takes it out.
    for (const auto& [number, lane] : use.links) look_for_stall(*lane, probes);
  }
  check_peers_without_link();
}

/// A peer that is awaited may have died while there was no link with it, because that was parked. Few at a
/// time.
void VerbsProvider::check_peers_without_link() noexcept {
  std::uint32_t checks = 0;
  for (std::size_t looked = 0; looked < peers_.size() && checks < kMostChecks; ++looked) {
    VerbsEndpoint* const peer = peers_[next_checked_++ % peers_.size()].get();
    if (peer == nullptr || peer->dying || peer->down || peer->main.link.number == 0) continue;
    if (peer->main.link.state != LinkState::kNone || !sink_->awaits(peer->id)) continue;
    wire_up_->check(peer->main.contact, peer->address);
    ++checks;
  }
}

void VerbsProvider::probe_soon() noexcept {
  probe_soon_ = true;
  itimerspec now{};
  now.it_value.tv_nsec = 1;
  static_cast<void>(::timerfd_settime(alarm_.get(), 0, &now, nullptr));
}

void VerbsProvider::look_for_stall(VerbsLane& lane, bool probes) noexcept {
  const Link& link = lane.link;
  const bool moved = link.retired() != std::exchange(lane.seen_retired, link.retired()) ||
                     std::exchange(lane.probe_done, false);
  const bool is_owed = link.retired() != link.posted() || lane.probing;
  const bool heard = link.received() != std::exchange(lane.seen_received, link.received());
  if (moved) lane.stalls = 0;
  if (moved || heard || link.state != LinkState::kUp) lane.silent_looks = 0;
  if (moved || link.state != LinkState::kUp || !is_owed) {
    lane.stalled_looks = 0;
  } else if (++lane.stalled_looks == 1) {
    flush_tail(lane);  // Its completion may not have been asked for.
  } else if (stalled_for_good(lane)) {
    log("verbs: peer %u has not acknowledged anything for %llu s, and the device reports no error; "
        "connecting again",
        index_of(lane.peer->id),
        static_cast<unsigned long long>(lane.stalled_looks * stall_look_ns() / 1'000'000'000));
    ++lane.stalls;
    return lose_link(lane, "no acknowledgement", Cause::kStall);
  }
  if (link.state != LinkState::kUp) return;
  if (is_owed) {
    if (probes) probe_soon_ = true;
    return;
  }
  if ((++lane.silent_looks >= kSilentLooks || probes) && sink_->awaits(lane.peer->id)) {
    lane.silent_looks = 0;
    probe(lane);
  }
}

/// For the peer time-out, and as long as what is on its way takes at a megabyte per second: few networks are
/// slower. Twice as long each time that it did not help.
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

/// The peer sends nothing more on this link.
void VerbsProvider::on_park(VerbsLane& lane) noexcept {
  lane.link.park_heard = true;
  if (lane.link.parking)
    try_to_park(lane);
  else
    begin_to_park(lane, monotonic_ns());
}

void VerbsProvider::begin_to_park(VerbsLane& lane, std::uint64_t now_ns) noexcept {
  lane.link.parking = true;
  lane.parking_since_ns = now_ns;
  if (!std::exchange(lane.is_parking, true)) parking_.push_back(&lane);
  try_to_park(lane);
}

/// Sends kPark once there is room for it, and ends the link once both have sent it and all is acknowledged.
void VerbsProvider::try_to_park(VerbsLane& lane) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  if (!link.parking || link.state != LinkState::kUp) return;
  if (!link.park_sent && link.takes_last_item()) {
    link.park_sent = push_notice(lane, SlotHeader::kPark);
    if (link.state != LinkState::kUp) return;  // Posting it failed.
  }
  if (!link.all_retired()) {
    if (!link.tail_is_signaled()) flush_tail(lane);
    return;
  }
  if (!link.park_sent || !link.park_heard) return;
  ++figures_.links_parked;
  bury(lane);
  lane.avoided = kNoRail;
  if (peer.unfinished_write != kNoWrite) push_parts(peer);
  if (peer.blocked && lane.index == 0 && link.lacks_credit())
    want_link(lane);  // Credit that the peer owes comes with an offer.
}

void VerbsProvider::go_on_parking() noexcept {
  for (std::size_t i = 0; i < parking_.size();) {
    VerbsLane& lane = *parking_[i];
    try_to_park(lane);
    if (lane.link.parking) {
      ++i;
      continue;
    }
    lane.is_parking = false;
    parking_[i] = parking_.back();
    parking_.pop_back();
  }
}

/// The peer runs out of credit: doubles its window, as far as there are slots that nobody else has credit
/// for.
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

/// Sees to it that there are receive slots for `more` items than all windows hold, adding slabs while that
/// leaves room for `kept_free` below the pool's bound.
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
