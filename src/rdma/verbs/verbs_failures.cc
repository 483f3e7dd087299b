// Events of the device, and how a peer's end is carried out. See verbs_provider.h.

#include <algorithm>
#include <cstring>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// Time that a goodbye has to reach a peer that is given up.
constexpr std::uint64_t kFarewellNs = 20'000'000;

}  // namespace

/// The fd tells of ports and queue pairs; none of it is per message.
void VerbsProvider::on_device_events(RailUse& use) noexcept {
  ibv_async_event event;
  while (ibv_get_async_event(use.rail->context(), &event) == 0) {
    const auto of_queue_pair = [&]() -> VerbsLane* {
      const auto found = use.links.find(event.element.qp->qp_num);
      return found == use.links.end() || found->second->link.queue_pair.get() != event.element.qp
                 ? nullptr
                 : found->second;
    };
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        if (VerbsLane* const lane = of_queue_pair()) lose_link(*lane, ibv_event_type_str(event.event_type));
        break;
      case IBV_EVENT_QP_LAST_WQE_REACHED: on_last_receive(use, event.element.qp); break;
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        // At its bound it is not armed again: it would tell at once, and again.
        if (use.rail->grow_receive_slots()) use.rail->arm_low_water();
        break;
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_PORT_ACTIVE:
        if (event.element.port_num == use.rail->port().port)
          on_port_event(use, event.event_type == IBV_EVENT_PORT_ACTIVE);
        break;
      case IBV_EVENT_DEVICE_FATAL:
        on_device_lost(use, ibv_event_type_str(event.event_type), LogScope::kNode);
        break;
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR: on_device_lost(use, ibv_event_type_str(event.event_type)); break;
      default: break;
    }
    ibv_ack_async_event(&event);
  }
}

void VerbsProvider::log_port_event(const RailUse& use, bool up, bool others_work) const noexcept {
  try {
    const std::string name = use.rail->port().to_string();
    if (up)
      log(LogScope::kNode, "verbs: the port %s is up again", name.c_str());
    else if (others_work)
      log(LogScope::kNode, "verbs: the port %s went down; going on without it", name.c_str());
    else
      log(LogScope::kNode, "verbs: the port %s went down; waiting for it or another way", name.c_str());
  } catch (const std::bad_alloc&) {
    log(LogScope::kNode, "verbs: a port of %s %s", use.rail->port().device.c_str(),
        up ? "is up again" : "went down");
  }
}

/// Moves what used the port to the other rail, or back home; or makes its links anew once it is back, where
/// something is not known to be acknowledged: rxe of Linux 6.1 stops a send queue without a word when a send
/// fails locally behind one on its way.
void VerbsProvider::on_port_event(RailUse& use, bool up) noexcept {
  const bool others_work = std::ranges::any_of(
      rails_, [&](const RailUse& other) { return &other != &use && other.up && !other.lost; });
  use.up = up;
  constexpr std::uint32_t kMostLogged = 20;  // A port that comes and goes must not fill the terminal.
  if (++port_events_ <= kMostLogged) log_port_event(use, up, others_work);
  if (!up && !others_work) return;
  for (const auto& peer : peers_) {
    if (peer == nullptr || peer->dying || peer->down) continue;
    for_each_lane(*peer, [&](VerbsLane& lane) {
      if (lane.link.queue_pair == nullptr) return;
      if (!up && &rails_[lane.rail] == &use) return lose_link(lane, "its port went down");
      if (up && !rails_[lane.rail].up) return lose_link(lane, "its port is down");
      if (up && &rails_[lane.rail] == &use && lane.link.state == LinkState::kUp &&
          lane.link.retired() != lane.link.posted())
        return lose_link(lane, "its port was down", Cause::kRenewal);
      if (!up || is_home(lane) || &rails_[rail_of(lane, 1)] != &use) return;
      lane.avoided = kNoRail;
      if (lane.link.state == LinkState::kUp && !lane.link.parking) begin_to_park(lane, monotonic_ns());
    });
  }
}

/// `scope` is that of the line which says so.
void VerbsProvider::on_device_lost(RailUse& use, const char* what, LogScope scope) noexcept {
  if (use.lost) return;
  use.lost = true;
  const bool others_work = working_rails() > 0;
  const auto index = static_cast<std::size_t>(&use - rails_.data());
  send_slots_->abandon_domain(index);
  // They may be readable for ever.
  unwatch(use.rail->events()->fd);
  unwatch(use.rail->context()->async_fd);
  log(scope, "verbs: the device %s does not work any more: %s%s", use.rail->port().device.c_str(), what,
      others_work ? "; going on without it" : "");
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    if (!others_work || (peer->has_address && !has_working_rail(*peer)))
      start_dying(*peer, Status::kDeviceFailed);
    else
      for_each_lane(*peer, [&](VerbsLane& lane) {
        if (lane.link.queue_pair != nullptr && &rails_[lane.rail] == &use) lose_link(lane, what);
      });
  }
}

/// The peer's end begins: what arrived from it is delivered before on_peer_down().
void VerbsProvider::start_dying(VerbsEndpoint& peer, Status reason) noexcept {
  if (peer.dying || peer.down) return;
  peer.dying = true;
  peer.reason = reason;
  for_each_lane(peer, [&](VerbsLane& lane) { drop_introductions(lane); });
  stop_links(peer);
  dying_.push_back(&peer);
  if (armed_) set_alarm();
}

void VerbsProvider::stop_links(VerbsEndpoint& peer) noexcept {
  peer.stopped_poll = polls_;
  for_each_lane(peer, [&](VerbsLane& lane) {
    if (lane.link.queue_pair != nullptr) Rail::stop(lane.link.queue_pair.get());
  });
}

/// Tells the peer that this process gives it up, if that can be told: it may live. It has kFarewellNs to get
/// there.
bool VerbsProvider::say_farewell(VerbsEndpoint& peer) noexcept {
  const Link& link = peer.main.link;
  if (link.state != LinkState::kUp || link.park_sent || !link.takes_last_item()) return false;
  if (!push_notice(peer.main, SlotHeader::kBye)) return false;
  flush_tail(peer.main);
  return link.state == LinkState::kUp;
}

bool VerbsProvider::end(PeerId id) noexcept {
  if (index_of(id) >= config_.peer_limit) return false;
  VerbsEndpoint* const peer = find(id);
  if (peer == nullptr) {
    try {
      find_or_make(id).down = true;  // Should it connect, it is refused.
    } catch (const std::bad_alloc&) {
      log("verbs: there is no memory to note that peer %u was given up", index_of(id));
    }
    return false;
  }
  if (peer->down) return false;
  if (peer->dying || peer->leaving_since_ns != 0) return true;
  if (!say_farewell(*peer)) {
    start_dying(*peer, Status::kPeerFailed);
    return true;
  }
  peer->leaving_since_ns = monotonic_ns();
  farewells_.push_back(peer);
  if (armed_) set_alarm();
  return true;
}

void VerbsProvider::finish_farewells(std::uint64_t now_ns) noexcept {
  std::erase_if(farewells_, [&](VerbsEndpoint* peer) {
    const bool is_over = peer->main.link.state != LinkState::kUp || peer->main.link.all_retired() ||
                         elapsed_ns(now_ns, peer->leaving_since_ns) >= kFarewellNs;
    if (is_over) start_dying(*peer, Status::kPeerFailed);
    return is_over || peer->dying || peer->down;
  });
}

void VerbsProvider::deliver_deaths() noexcept {
  for (std::size_t i = 0; i < dying_.size();) {
    VerbsEndpoint& peer = *dying_[i];
    if (peer.stopped_poll == polls_) {  // The completion queue was emptied before its queue pair was stopped.
      ++i;
      continue;
    }
    dying_[i] = dying_.back();  // Now, for a call of the sink may append others.
    dying_.pop_back();
    for_each_lane(peer, [&](VerbsLane& lane) {
      std::erase(draining_, &lane);
      bury(lane);
    });
    // The device is done with the sources of its writes once the queue pair is gone.
    std::erase_if(zombies_, [&](const Zombie& zombie) {
      if (zombie.peer != &peer) return false;
      --rails_[zombie.rail].zombies;
      return true;
    });
    peer.dying = false;
    peer.down = true;
    for_each_lane(peer, [&](VerbsLane& lane) {
      lane.link.abandon();
      while (!lane.link.all_retired()) {
        const Item item = lane.link.retire_one();
        if (item.kind != Item::Kind::kWritePart) give_back_message(item);
      }
    });
    for (std::uint32_t index = 0; index < kMostWrites; ++index) {
      Write& write = writes_[index];
      if (write.peer != &peer || write.parts == write.parts_retired) continue;
      write.parts_retired = write.parts;
      free_writes_.push_back(index);
      ++delivered_;
      sink_->on_write_done(peer.id, write.work, Status::kPeerFailed);
    }
    give_back_reserved(peer);
    peer.unfinished_write = kNoWrite;
    if (peer.reason == Status::kProtocol)
      log("verbs: peer %u does not follow the protocol; its connection is closed", index_of(peer.id));
    ++delivered_;
    sink_->on_peer_down(peer.id, peer.reason);
  }
}

}  // namespace ch3_offload
