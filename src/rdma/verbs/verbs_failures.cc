// Events of the device, and how a peer's end is carried out. See verbs_provider.h.

#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// Between looks at what only time brings on, during a sleep.
constexpr std::uint64_t kTickNs = 2'000'000;

/// Whether our end of the channel is at that address; empty: at none.
bool is_at_host(const ControlChannel& channel, const std::string& host) noexcept {
  try {
    return !host.empty() && channel.local_host() == host;
  } catch (const std::bad_alloc&) {
    return false;  // Its end is noticed all the same, only later.
  }
}

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
      log("verbs: the port %s is up again", name.c_str());
    else if (others_work)
      log("verbs: the port %s went down; going on without it", name.c_str());
    else
      log("verbs: the port %s went down; waiting up to %d s for it or another way", name.c_str(),
          config_.peer_timeout_ms / 1000);
  } catch (const std::bad_alloc&) {
    log("verbs: a port of %s %s", use.rail->port().device.c_str(), up ? "is up again" : "went down");
  }
}

/// Moves what used the port to the other rail, or back home; or makes its links anew once it is back, where something is not
/// known to be acknowledged: rxe of Linux 6.1 stops a send queue without a word when a send fails locally behind one on its way.
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
    // Its connection may go through that port: through another one we know sooner.
    if (!up && peer->channel.is_open() && is_at_host(peer->channel, use.host)) {
      excuse_waiting(*peer);
      close_channel(*peer);
      peer->retry_at_ns = 0;
      trouble(*peer);
    }
  }
}

void VerbsProvider::on_device_lost(RailUse& use, const char* what) noexcept {
  if (use.lost) return;
  use.lost = true;
  const bool others_work = working_rails() > 0;
  const auto index = static_cast<std::size_t>(&use - rails_.data());
  send_slots_->abandon_domain(index);
  // They may be readable for ever.
  unwatch(use.rail->events()->fd);
  unwatch(use.rail->context()->async_fd);
  log("verbs: the device %s does not work any more: %s%s", use.rail->port().device.c_str(), what,
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

/// During a sleep: what no other descriptor tells of, now or soon.
void VerbsProvider::set_alarm() noexcept {
  std::uint64_t delay_ns = 0;
  if (!draining_.empty() || !dying_.empty())
    delay_ns = 1;
  else if (!waiting_.empty() || !troubled_.empty() || !zombies_.empty() || listeners_paused_)
    delay_ns = kTickNs;
  if (delay_ns == 0) {
    // What is set is hardly later than this.
    if (alarm_is_set_ || std::ranges::all_of(rails_, [](const RailUse& use) { return use.links.empty(); }))
      return;
    delay_ns = stall_look_ns();
  }
  itimerspec time{};
  time.it_value.tv_sec = static_cast<time_t>(delay_ns / 1'000'000'000);
  time.it_value.tv_nsec = static_cast<long>(delay_ns % 1'000'000'000);
  alarm_is_set_ = ::timerfd_settime(alarm_.get(), 0, &time, nullptr) == 0;
}

/// The peer's end begins: what arrived from it is delivered before on_peer_down().
void VerbsProvider::start_dying(VerbsEndpoint& peer, Status reason) noexcept {
  if (peer.dying || peer.down) return;
  peer.dying = true;
  peer.reason = reason;
  peer.lost_poll = polls_;
  for_each_lane(peer, [](VerbsLane& lane) {
    if (lane.link.queue_pair != nullptr) Rail::stop(lane.link.queue_pair.get());
  });
  if (peer.channel_state == ChannelState::kOpen && reason != Status::kPeerFailed)
    peer.channel.send(make_frame(FrameKind::kBye));
  close_channel(peer);
  dying_.push_back(&peer);
  if (armed_) set_alarm();
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
  start_dying(*peer, Status::kPeerFailed);
  return true;
}

void VerbsProvider::deliver_deaths() noexcept {
  for (std::size_t i = 0; i < dying_.size();) {
    VerbsEndpoint& peer = *dying_[i];
    if (peer.lost_poll == polls_) {  // The completion queue was emptied before its queue pair was stopped.
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
    std::erase_if(zombies_, [&](const Zombie& zombie) { return zombie.peer == &peer; });
    peer.dying = false;
    peer.down = true;
    for_each_lane(peer, [&](VerbsLane& lane) {
      lane.link.abandon();
      while (!lane.link.all_retired()) {
        const Item item = lane.link.retire_one();
        if (item.kind == Item::Kind::kMessage) send_slots_->give_back(item.index);
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
    if (peer.reserved_slot != SlotPool::kNone) send_slots_->give_back(peer.reserved_slot);
    peer.reserved_slot = SlotPool::kNone;
    peer.unfinished_write = kNoWrite;
    if (peer.reason == Status::kProtocol)
      log("verbs: peer %u does not follow the protocol; its connection is closed", index_of(peer.id));
    ++delivered_;
    sink_->on_peer_down(peer.id, peer.reason);
  }
}

}  // namespace ch3_offload
