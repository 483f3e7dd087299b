#include "rdma/verbs/links/links.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kRetryNs = 100'000'000;

}  // namespace

void Links::make_room(std::size_t lanes) {
  parking_.make_room(lanes);
  waiting_.make_room(lanes);
}

void Links::want_link(VerbsLane& lane) noexcept {
  if (lane.waits || lane.peer->is_over()) return;
  waiting_.add(lane);
  client_.on_work();
}

void Links::make_wanted(std::uint64_t now_ns) noexcept {
  being_made_ = waiting_.size();
  waiting_.drain([&](VerbsLane& lane) {
    if (!lane.peer->is_over() && lane.link.state == LinkState::kNone) {
      if (!lane.may_offer && !lane.has_remote) {
        // The introduction that asked for a queue pair may have ended.
        if (is_needed(lane)) introducer_->seek(lane);
      } else if (!propose(lane, now_ns)) {
        waiting_.add(lane);
      }
    }
    --being_made_;
  });
}

/// The rail of ours that a link of this number uses. Both processes know the other's, too: the lanes begin at
/// homes that spread them and the peers over the pairs of rails, and each number is one pair further. The home
/// depends on the numbers that the two have for each other. In a job these are their own ones.
Rail& Links::rail_of(const VerbsLane& lane, std::uint32_t link_number) const noexcept {
  const VerbsEndpoint& peer = *lane.peer;
  const std::uint32_t home = lane.index + index_of(peer.names.known_as) + index_of(peer.id);
  return *rails_[peer.pairs[(home + link_number - 1) % peer.pair_count].mine];
}

/// Of the link to be made now: the one after the last, or a later one for the rail that we want.
std::uint32_t Links::next_number(const VerbsLane& lane) const noexcept {
  const std::uint32_t after = std::max(lane.link.number, lane.peers_last_link) + 1;
  const auto works = [&](std::uint32_t link_number) {
    const Rail& rail = rail_of(lane, link_number);
    return !rail.lost && rail.up && rail.index != lane.avoided && rail.index != lane.refused;
  };
  const bool after_is_home = &rail_of(lane, after) == &rail_of(lane, 1);
  const std::uint32_t home = after_is_home ? after : after + 1;
  const std::uint32_t other = after_is_home ? after + 1 : after;
  if (lane.peer->pair_count == 1 || works(home)) return home;
  if (works(other)) return other;
  // Both have failed: by turns, but never what is lost for good.
  return rail_of(lane, after).lost ? after + 1 : after;
}

/// Makes a queue pair and offers it to the peer. Returns false if there can be none now.
bool Links::propose(VerbsLane& lane, std::uint64_t now_ns) noexcept {
  if (now_ns < lane.retry_at_ns) return false;
  Link& link = lane.link;
  // The dialler chooses the number, and so the rail.
  const std::uint32_t number = lane.has_remote ? lane.remote.link : next_number(lane);
  Rail& rail = rail_of(lane, number);
  const bool may_start_over = lane.has_remote && lane.peer->pair_count > 1;
  if (rail.lost) return may_start_over && start_over(lane, number);
  if (rail.has_many_stopped()) return false;
  // If no transfer uses the second lane, do not wait for it. The next long write requests it again.
  const bool is_optional = lane.index != 0 && link.all_retired() && !lane.has_remote;
  const bool is_allowed = may_make_link(rail, lane.has_remote);
  // Without room there is less spare; a late receive only costs time.
  if (is_allowed) rail.make_room_for_credit(link.window(), 0);
  QueuePair made = is_allowed ? make_queue_pair(rail, lane) : nullptr;
  if (made == nullptr) {
    if (is_optional) {
      drop_introductions(lane);
      return true;
    }
    if (is_allowed || rail.lanes().size() >= rail.config().most_queue_pairs)
      parking_.make_way(rail, waiting_.size() + being_made_, now_ns);
    if (!is_allowed) return false;
    lane.retry_at_ns = now_ns + kRetryNs;
    if (lane.peer->pair_count > 1) lane.refused = rail.index;
    return may_start_over && start_over(lane, number);
  }
  lane.refused = kNoRail;
  link.queue_pair = std::move(made);
  std::uint32_t random = 0;
  static_cast<void>(!::getrandom(&random, sizeof random, 0));
  link.packet_sequence = random & 0xFF'FFFF;
  lane.number_before = link.number;
  link.number = number;
  link.state = LinkState::kProposed;
  lane.rail = rail.index;
  lane.may_offer = false;
  rail.change_credit(static_cast<std::int32_t>(link.window()));
  ++figures_.made;
  if (std::exchange(lane.has_remote, false)) {
    if (!bind(lane)) return true;
    link.state = LinkState::kBound;
  }
  Frame offer = make_frame(kLinks, FrameKind::kOffer);
  offer.as<OfferBody>() = offer_of(lane);
  introducer_->offer(lane, offer);
  return true;
}

/// The peer's offer cannot be used. This process dials, and chooses another number.
bool Links::start_over(VerbsLane& lane, std::uint32_t number) noexcept {
  drop_introductions(lane);
  lane.peers_last_link = std::max(lane.peers_last_link, number);
  lane.wanted = true;
  want_link(lane);
  return true;
}

void Links::drop_introductions(VerbsLane& lane) noexcept {
  introducer_->drop(lane);
  lane.may_offer = lane.has_remote = false;
}

/// Returns none if it was refused, or if there is no memory for what it needs here.
QueuePair Links::make_queue_pair(Rail& rail, VerbsLane& lane) noexcept {
  try {
    Result<QueuePair> made = rail.make_queue_pair(lane);
    if (made.ok()) return std::move(made.value());
    if (!queue_pair_logged_)
      log_("%s (%zu in use; trying again, told once)", made.error().message.c_str(), rail.lanes().size());
  } catch (const std::bad_alloc&) {
    if (!queue_pair_logged_) log_("verbs: there is no memory for a queue pair (trying again, told once)");
  }
  queue_pair_logged_ = true;
  return nullptr;
}

/// RULE HALF ARE ANSWERED. At most half of the queue pairs are proposals of our own that nobody has answered.
/// The others are or get up, and can be parked: so everybody can answer at last. Were all unanswered,
/// everybody might wait for everybody.
bool Links::may_make_link(const Rail& rail, bool is_answer) noexcept {
  const std::uint32_t most = rail.config().most_queue_pairs;
  if (rail.lanes().size() >= most) return false;
  const auto unanswered = std::ranges::count_if(
      rail.lanes(), [](const auto& entry) { return entry.second->link.state == LinkState::kProposed; });
  return is_answer || static_cast<std::uint32_t>(unanswered) < std::max(1u, most / 2);
}

/// REQUIRES: it has a queue pair.
OfferBody Links::offer_of(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const VerbsPort& port = rail_of(lane).port();
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
bool Links::bind(VerbsLane& lane) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  if (!link.may_resume_at(lane.remote.received)) {
    log_("verbs: peer %u lost messages that its device had acknowledged", index_of(peer.id));
    client_.on_peer_over(peer, Status::kPeerFailed);
    return false;
  }
  RemoteQueuePair remote;
  remote.number = lane.remote.queue_pair;
  remote.packet_sequence = lane.remote.packet_sequence;
  remote.lid = lane.remote.lid;
  remote.mtu = static_cast<ibv_mtu>(lane.remote.mtu);
  std::memcpy(remote.gid.raw, lane.remote.gid.data(), lane.remote.gid.size());
  if (!rail_of(lane).connect(link.queue_pair.get(), link.packet_sequence, remote)) {
    const int error_number = errno;
    lane.retry_at_ns = monotonic_ns() + kRetryNs;
    lose_link(lane, std::strerror(error_number));
    return false;
  }
  figures_.items_sent_again += transport_.resume(lane, lane.remote.received, lane.remote.limit);
  return true;
}

void Links::link_is_up(VerbsLane& lane) noexcept {
  lane.link.state = LinkState::kUp;
  lane.wanted = false;
  lane.up_since_ns = monotonic_ns();
  lane.timer.restart();
  if (lane.link.all_retired()) lane.peer->failed = false;
  transport_.start(lane);
}

void Links::lose_link(VerbsLane& lane, const char* why, Cause cause) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  Link& link = lane.link;
  if (link.queue_pair == nullptr || peer.dying) return;
  // Both have parked, and the peer makes the next one before we have taken what the last one brought.
  const bool parked = link.park_sent && link.park_heard;
  if (!loss_logged_ && !parked && link.state == LinkState::kUp && cause != Cause::kStall) {
    loss_logged_ = true;
    log_("verbs: the connection with peer %u broke (%s); connecting again (told once)", index_of(peer.id),
         why);
  }
  if (parked)
    ++figures_.parked;
  else if (link.state == LinkState::kUp)
    ++figures_.lost;
  if (cause != Cause::kRenewal) {
    lane.avoided = lane.rail;
    peer.failed = true;
    drop_introductions(lane);  // After a renewal it goes on, or has ended.
  }
  lane.wanted = cause != Cause::kRenewal && lane.index == 0;
  stop(lane, link.state == LinkState::kProposed ? Rail::End::kUnused : Rail::End::kBroken);
}

/// Takes the queue pair away. on_stopped() follows.
void Links::stop(VerbsLane& lane, Rail::End end) noexcept {
  Link& link = lane.link;
  if (end == Rail::End::kUnused)
    link.number = lane.number_before;  // The peer may have taken the same number.
  link.state = LinkState::kDraining;
  link.forget_parking();
  rail_of(lane).stop(std::move(link.queue_pair), lane, end);
  client_.on_work();
}

/// What the link has brought was taken.
void Links::on_stopped(VerbsLane& lane) noexcept {
  lane.link.state = LinkState::kNone;
  rail_of(lane).change_credit(-static_cast<std::int32_t>(lane.link.window()));
  transport_.stop(lane);
  if (lane.has_remote || lane.may_offer || is_needed(lane)) want_link(lane);
}

void Links::on_parked(VerbsLane& lane) noexcept {
  ++figures_.parked;
  lane.avoided = kNoRail;
  stop(lane, Rail::End::kFinished);
  on_stopped(lane);
  if (lane.peer->unfinished_write != kNone) transport_.push_parts(*lane.peer);
}

void Links::abandon(VerbsEndpoint& peer) noexcept {
  for_each_lane(peer, [&](VerbsLane& lane) {
    drop_introductions(lane);
    if (lane.link.queue_pair == nullptr) return;
    stop(lane, lane.link.state == LinkState::kProposed ? Rail::End::kUnused : Rail::End::kBroken);
  });
}

bool Links::has_link(const VerbsEndpoint& peer) noexcept {
  return peer.main.link.state != LinkState::kNone ||
         (peer.second != nullptr && peer.second->link.state != LinkState::kNone);
}

/// Whether this process has a use for a link of the lane.
bool Links::is_needed(const VerbsLane& lane) noexcept {
  if (lane.wanted || !lane.link.all_retired()) return true;
  return lane.index == 0 &&
         (lane.peer->unfinished_write != kNone || (lane.peer->blocked && lane.link.lacks_credit()));
}

void Links::tick(std::uint64_t now_ns) noexcept {
  for (const std::unique_ptr<Rail>& rail : rails_)
    rail->destroy_stopped(now_ns, [&](VerbsLane& lane) { on_stopped(lane); });
  parking_.tick();
}

bool Links::is_busy() const noexcept {
  return has_wanted() || parking_.is_busy() ||
         std::ranges::any_of(rails_, [](const auto& rail) { return rail->has_stopped(); });
}

bool Links::look(const Sink& sink, bool at_once) noexcept {
  bool is_complete = true;
  for (const std::unique_ptr<Rail>& rail : rails_) {
    // Losing a link leaves it in lanes(): only tick() takes it out.
    for (const auto& [number, lane] : rail->lanes()) is_complete = look(*lane, sink, at_once) && is_complete;
  }
  return !is_complete;
}

/// Returns false if the peer is to be probed at once, and something has to be acknowledged first.
bool Links::look(VerbsLane& lane, const Sink& sink, bool at_once) noexcept {
  const Link& link = lane.link;
  if (link.state != LinkState::kUp) return true;
  const bool is_owed = link.retired() != link.posted() || lane.probing;
  const LinkTimer::Due due = lane.timer.look(
      {lane.acknowledged, link.received(), is_owed, link.posted_bytes()}, config_.peer_timeout_ms);
  if (due == LinkTimer::Due::kReplace) {
    log_(
        "verbs: peer %u has not acknowledged anything for %llu s, and the device reports no error; "
        "connecting again",
        index_of(lane.peer->id),
        static_cast<unsigned long long>(lane.timer.quiet_ms(config_.peer_timeout_ms) / 1000));
    lose_link(lane, "no acknowledgement", Cause::kStall);
  } else if (is_owed) {
    if (at_once || due == LinkTimer::Due::kFlush) transport_.flush_tail(lane);
    return !at_once;
  } else if ((at_once || due == LinkTimer::Due::kProbe) && sink.awaits(lane.peer->id)) {
    transport_.probe(lane);
  }
  return true;
}

bool Links::check(VerbsEndpoint& peer, const Sink& sink) noexcept {
  const bool has_had_link = peer.main.link.number != 0 && peer.main.link.state == LinkState::kNone;
  if (peer.is_over() || !has_had_link || !sink.awaits(peer.id)) return false;
  introducer_->check(peer.main);
  return true;
}

/// Moves what used the port to the other rail, or back home; or makes its links anew once it is back, where
/// something is not known to be acknowledged: rxe of Linux 6.1 stops a send queue without a word when a send
/// fails locally behind one on its way.
void Links::on_port(VerbsEndpoint& peer, const Rail& rail) noexcept {
  for_each_lane(peer, [&](VerbsLane& lane) {
    const Link& link = lane.link;
    if (link.queue_pair == nullptr) return;
    const bool is_on_it = lane.rail == rail.index;
    if (!rail.up) {
      if (is_on_it) lose_link(lane, "its port went down");
    } else if (!rail_of(lane).up) {
      lose_link(lane, "its port is down");
    } else if (is_on_it && link.state == LinkState::kUp && link.retired() != link.posted()) {
      lose_link(lane, "its port was down", Cause::kRenewal);
    } else if (!is_on_it && &rail_of(lane, 1) == &rail) {
      lane.avoided = kNoRail;
      if (link.state == LinkState::kUp && !link.parking) parking_.begin(lane, monotonic_ns());
    }
  });
}

/// Doubles the peer's window, as far as there are slots that nobody else has credit for.
void Links::on_credit_wanted(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const std::uint32_t more = std::min(link.window(), Link::kMostWindow - link.window());
  if (more == 0 || link.queue_pair == nullptr) return;
  Rail& rail = rail_of(lane);
  const auto live = static_cast<std::uint32_t>(rail.lanes().size());
  const std::uint32_t for_new_links = (rail.config().most_queue_pairs - live) * Link::kFirstWindow;
  if (!rail.make_room_for_credit(more, for_new_links)) return;
  link.set_window(link.window() + more);
  rail.change_credit(static_cast<std::int32_t>(more));
}

}  // namespace ch3_offload
