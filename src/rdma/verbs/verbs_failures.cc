// Events of the device, and how a peer's end is carried out. See verbs_provider.h.

#include <sys/timerfd.h>

#include <cstring>

#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// Between looks at what only time brings on, during a sleep.
constexpr std::uint64_t kTickNs = 2'000'000;

}  // namespace

/// The fd tells of ports and queue pairs; none of it is per message.
void VerbsProvider::on_device_events() noexcept {
  ibv_async_event event;
  while (ibv_get_async_event(rail_->context(), &event) == 0) {
    const auto of_queue_pair = [&]() -> Peer* {
      const auto found = by_queue_pair_.find(event.element.qp->qp_num);
      return found == by_queue_pair_.end() || found->second->link.queue_pair.get() != event.element.qp
                 ? nullptr
                 : found->second;
    };
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        if (Peer* const peer = of_queue_pair()) lose_link(*peer, ibv_event_type_str(event.event_type));
        break;
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        // At its bound it is not armed again: it would tell at once, and again.
        if (rail_->grow_receive_slots()) rail_->arm_low_water();
        break;
      case IBV_EVENT_PORT_ERR:
        if (event.element.port_num == rail_->port().port)
          log("verbs: the port %s went down; waiting up to %d s for it or another way",
              rail_->port().to_string().c_str(), config_.peer_timeout_ms / 1000);
        break;
      case IBV_EVENT_PORT_ACTIVE:
        if (event.element.port_num == rail_->port().port)
          log("verbs: the port %s is up again", rail_->port().to_string().c_str());
        break;
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR: on_device_lost(ibv_event_type_str(event.event_type)); break;
      default: break;
    }
    ibv_ack_async_event(&event);
  }
}

void VerbsProvider::on_device_lost(const char* what) noexcept {
  if (device_lost_) return;
  device_lost_ = true;
  log("verbs: the device %s does not work any more: %s", rail_->port().device.c_str(), what);
  for (const auto& peer : peers_)
    if (peer != nullptr) start_dying(*peer, Status::kDeviceFailed);
}

/// During a sleep: what no other descriptor tells of, now or soon.
void VerbsProvider::set_alarm() noexcept {
  std::uint64_t delay_ns = 0;
  if (!draining_.empty() || !dying_.empty())
    delay_ns = 1;
  else if (!waiting_.empty() || !troubled_.empty() || !zombies_.empty() || listener_paused_)
    delay_ns = kTickNs;
  if (const std::uint64_t tick_ns = ring_tick_ns(); tick_ns != 0 && (delay_ns == 0 || tick_ns < delay_ns))
    delay_ns = tick_ns;
  if (delay_ns == 0) return;
  itimerspec time{};
  time.it_value.tv_nsec = static_cast<long>(delay_ns);
  static_cast<void>(::timerfd_settime(alarm_.get(), 0, &time, nullptr));
}

/// The peer's end begins: what arrived from it is delivered before on_peer_down().
void VerbsProvider::start_dying(Peer& peer, Status reason) noexcept {
  if (peer.dying || peer.down) return;
  peer.dying = true;
  peer.reason = reason;
  peer.lost_poll = polls_;
  if (peer.link.queue_pair != nullptr) Rail::stop(peer.link.queue_pair.get());
  if (peer.channel_state == ChannelState::kOpen && reason != Status::kPeerFailed)
    peer.channel.send(make_frame(FrameKind::kBye));
  close_channel(peer);
  dying_.push_back(&peer);
  if (armed_) set_alarm();
}

void VerbsProvider::deliver_deaths() noexcept {
  std::vector<Peer*> later;
  while (!dying_.empty()) {
    Peer& peer = *dying_.back();
    dying_.pop_back();
    if (peer.lost_poll == polls_) {  // The completion queue was emptied before its queue pair was stopped.
      later.push_back(&peer);
      continue;
    }
    std::erase(draining_, &peer);
    bury(peer);
    // The device is done with the sources of its writes once the queue pair is gone.
    std::erase_if(zombies_, [&](const Zombie& zombie) { return zombie.peer == &peer; });
    peer.dying = false;
    peer.down = true;
    Link& link = peer.link;
    link.abandon();
    while (!link.all_retired()) {
      const Item item = link.retire_one();
      if (item.kind == Item::Kind::kMessage) rail_->send_slots().give_back(item.index);
    }
    for (std::uint32_t i = 0; i < kMostWrites; ++i) {
      if (writes_[i].peer != &peer || writes_[i].parts == writes_[i].parts_retired) continue;
      writes_[i].parts_retired = writes_[i].parts;
      free_writes_.push_back(i);
      ++delivered_;
      sink_->on_write_done(peer.id, writes_[i].work, Status::kPeerFailed);
    }
    if (peer.reserved_slot != SlotPool::kNone) rail_->send_slots().give_back(peer.reserved_slot);
    peer.reserved_slot = SlotPool::kNone;
    peer.unfinished_write = kNoWrite;
    if (peer.reason == Status::kProtocol)
      log("verbs: peer %u does not follow the protocol; its connection is closed", index_of(peer.id));
    ++delivered_;
    sink_->on_peer_down(peer.id, peer.reason);
  }
  dying_.insert(dying_.end(), later.begin(), later.end());
}

}  // namespace ch3_offload
