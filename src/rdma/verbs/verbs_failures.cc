// Events of the device, and how a peer's end is carried out. See verbs_provider.h.

#include <sys/epoll.h>

#include <algorithm>
#include <new>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// Time that a goodbye has to reach a peer that is given up.
constexpr std::uint64_t kFarewellNs = 20'000'000;

}  // namespace

void VerbsProvider::on_queue_pair_failed(VerbsLane& lane, const char* why) noexcept {
  links_.lose_link(lane, why);
}

void VerbsProvider::on_port(Rail& rail, bool is_up) noexcept {
  constexpr std::uint32_t kMostLogged = 20;  // A port that comes and goes must not fill the terminal.
  const bool others_work = std::ranges::any_of(
      rails_, [&](const auto& other) { return other.get() != &rail && other->up && !other->lost; });
  rail.up = is_up;
  if (++port_events_ <= kMostLogged)
    log_(LogScope::kNode, "verbs: the port %s %s", rail.port_name.c_str(),
         is_up         ? "is up again"
         : others_work ? "went down; going on without it"
                       : "went down; waiting for it or another way");
  if (!is_up && !others_work) return;
  for (const auto& peer : peers_)
    if (peer != nullptr && !peer->is_over()) links_.on_port(*peer, rail);
}

void VerbsProvider::on_address_changed(Rail& rail, const char* why) noexcept {
  log_(LogScope::kNode, "verbs: port %s has another address now (%s): new connections use it",
       rail.port_name.c_str(), why);
}

void VerbsProvider::on_device_failed(Rail& rail, const char* why, LogScope scope) noexcept {
  if (rail.lost) return;
  rail.lost = true;
  const bool others_work = std::ranges::any_of(rails_, [](const auto& other) { return !other->lost; });
  transport_.slots().abandon_domain(rail.index);
  // They may be readable for ever.
  for (const int descriptor : {rail.events()->fd, rail.context()->async_fd})
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr));
  log_(scope, "verbs: the device %s does not work any more: %s%s", rail.port().device.c_str(), why,
       others_work ? "; going on without it" : "");
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    if (!others_work || (peer->has_address && !has_working_rail(*peer)))
      on_peer_over(*peer, Status::kDeviceFailed);
    else
      for_each_lane(*peer, [&](VerbsLane& lane) {
        if (lane.link.queue_pair != nullptr && lane.rail == rail.index) links_.lose_link(lane, why);
      });
  }
}

/// The peer's end begins: what arrived from it is delivered before on_peer_down().
void VerbsProvider::on_peer_over(VerbsEndpoint& peer, Status reason) noexcept {
  if (peer.is_over()) return;
  peer.dying = true;
  peer.reason = reason;
  links_.abandon(peer);
  dying_.push_back(&peer);
  if (armed_) set_alarm();
}

/// Tells the peer that this process gives it up, if that can be told: it may live. It has kFarewellNs to get
/// there.
bool VerbsProvider::say_farewell(VerbsEndpoint& peer) noexcept {
  const Link& link = peer.main.link;
  if (link.state != LinkState::kUp || link.park_sent || !link.takes_last_item()) return false;
  if (!transport_.push_notice(peer.main, SlotHeader::kBye)) return false;
  transport_.flush_tail(peer.main);
  return link.state == LinkState::kUp;
}

bool VerbsProvider::end(PeerId id) noexcept {
  if (slot_of(id) >= config_.peer_limit || !peers_.is_current(id)) return false;
  VerbsEndpoint* const peer = find(id);
  if (peer == nullptr) {
    try {
      find_or_make(id).down = true;  // Should it connect, it is refused.
    } catch (const std::bad_alloc&) {
      log_("verbs: there is no memory to note that peer %u was given up", index_of(id));
    }
    return false;
  }
  if (peer->down) return false;
  if (peer->dying || peer->leaving_since_ns != 0) return true;
  if (!say_farewell(*peer)) {
    on_peer_over(*peer, Status::kPeerFailed);
    return true;
  }
  peer->leaving_since_ns = monotonic_ns();
  farewells_.push_back(peer);
  if (armed_) set_alarm();
  return true;
}

/// Lists drop a peer that is over in their own time: until then its memory stays.
bool VerbsProvider::forget(PeerId id) noexcept {
  VerbsEndpoint* const peer = find(id);
  std::size_t lanes = 0;
  if (peer != nullptr) {
    if (!peer->down || peer->blocked || Links::has_link(*peer)) return false;
    bool is_listed = std::ranges::find(farewells_, peer) != farewells_.end();
    for_each_lane(*peer, [&](const VerbsLane& lane) {
      ++lanes;
      is_listed |= lane.credit_due || lane.lacks_slot || lane.waits || lane.is_parking || lane.is_in_use();
    });
    if (is_listed) return false;
  }
  if (!peers_.forget(id)) return false;
  lanes_ -= lanes;
  return true;
}

void VerbsProvider::finish_farewells(std::uint64_t now_ns) noexcept {
  std::erase_if(farewells_, [&](VerbsEndpoint* peer) {
    const bool is_over = peer->main.link.state != LinkState::kUp || peer->main.link.all_retired() ||
                         elapsed_ns(now_ns, peer->leaving_since_ns) >= kFarewellNs;
    if (is_over) on_peer_over(*peer, Status::kPeerFailed);
    return is_over || peer->dying || peer->down;
  });
}

void VerbsProvider::deliver_deaths() noexcept {
  for (std::size_t i = 0; i < dying_.size();) {
    VerbsEndpoint& peer = *dying_[i];
    if (Links::has_link(peer)) {  // What came through it is not all taken.
      ++i;
      continue;
    }
    dying_[i] = dying_.back();  // Now, for a call of the sink may append others.
    dying_.pop_back();
    peer.dying = false;
    peer.down = true;
    if (peer.reason == Status::kProtocol)
      log_("verbs: peer %u does not follow the protocol; its connection is closed", index_of(peer.id));
    transport_.end_peer(peer);
  }
}

}  // namespace ch3_offload
