// The TCP side: accepting, introductions, frames, and how a peer's death is known. See verbs_provider.h.
//
// A channel that ends is dialled again by whoever notices. What that meets tells whether the process lives: nobody
// listens at its port, or another process does: it is dead. No answer at all for VerbsConfig::peer_timeout_ms: so
// is its node, or the network. A process that computes for hours answers late, but its kernel keeps the connection.
//
// Not on the message path: may allocate and makes system calls, but never blocks. No input is trusted before its
// introduction was checked.

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
constexpr std::uint64_t kRedialNs = 200 * kMillisecondNs;
/// Time that the other side of a crossed dial has before we dial again.
constexpr std::uint64_t kCrossedNs = 1000 * kMillisecondNs;
/// Longer without a tick, and this process was busy elsewhere.
constexpr std::uint64_t kLongestTickNs = 100 * kMillisecondNs;
/// Connections that have not introduced themselves. More: the oldest goes.
constexpr std::size_t kMostNewcomers = 1024;
constexpr int kMostAcceptedAtOnce = 4096;  ///< Who connects without end must not keep us.

}  // namespace

bool VerbsProvider::watch(int descriptor, WatchKind kind, std::uint32_t index,
                          std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = std::uint64_t{static_cast<std::uint32_t>(kind)} << 32 | index;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 ||
         (errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event) == 0);
}

/// Closing alone is not enough: a forked child may hold the descriptor too, and then it would stay in the set.
void VerbsProvider::unwatch(int descriptor) noexcept {
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr));
}

void VerbsProvider::update_watch(VerbsEndpoint& peer) noexcept {
  if (!peer.channel.is_open()) return;
  const std::uint32_t events = EPOLLIN | EPOLLRDHUP | (peer.channel.wants_write() ? EPOLLOUT : 0u);
  if (peer.watched == events) return;
  if (watch(peer.channel.socket().get(), WatchKind::kChannel, index_of(peer.id), events))
    peer.watched = events;
}

void VerbsProvider::send_frame(VerbsEndpoint& peer, const Frame& frame) noexcept {
  if (peer.channel_state != ChannelState::kOpen) return;  // channel_opened() says it again.
  peer.channel.send(frame);
  update_watch(peer);
}

/// Does what descriptors and time ask for. True: a completion event was read.
bool VerbsProvider::keep_house() noexcept {
  bool completions = false;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  // An event may be stale (its index was reused within this batch): every handler only tries.
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    const auto index = static_cast<std::uint32_t>(data);
    switch (static_cast<WatchKind>(data >> 32)) {
      case WatchKind::kListener: accept_all(index); break;
      case WatchKind::kNewcomer: hear_newcomer(index); break;
      case WatchKind::kChannel:
        if (VerbsEndpoint* const peer = find(PeerId{index})) hear_peer(*peer);
        break;
      case WatchKind::kCompletions: completions |= take_completion_events(index); break;
      case WatchKind::kDevice: on_device_events(rails_[index]); break;
      case WatchKind::kAlarm: {
        std::uint64_t expirations;
        static_cast<void>(!::read(alarm_.get(), &expirations, sizeof expirations));
        alarm_is_set_ = false;
        break;
      }
    }
  }
  const std::uint64_t now_ns = monotonic_ns();
  look_for_stalls(now_ns);
  if (waiting_.empty() && troubled_.empty() && zombies_.empty() && !listeners_paused_) return completions;
  make_wanted_links(now_ns);
  if (elapsed_ns(now_ns, last_tick_ns_) < kMillisecondNs) return completions;
  patience_ns_ += std::min(elapsed_ns(now_ns, last_tick_ns_), kLongestTickNs);
  last_tick_ns_ = now_ns;
  destroy_zombies(now_ns);
  tend_troubled(now_ns);
  if (listeners_paused_) retry_listeners();
  return completions;
}

void VerbsProvider::retry_listeners() noexcept {
  listeners_paused_ = false;
  for (std::uint32_t i = 0; i < listeners_.size(); ++i) {
    accept_all(i);
    if (!listeners_paused_) watch(listeners_[i].get(), WatchKind::kListener, i, EPOLLIN);
  }
  if (!listeners_paused_) {
    paused_since_ns_ = 0;
    if (!spare_.valid()) spare_ = duplicate(listeners_[0]);
    return;
  }
  if (paused_since_ns_ == 0) paused_since_ns_ = patience_ns_;
  if (patience_ns_ - paused_since_ns_ < static_cast<std::uint64_t>(config_.peer_timeout_ms) * kMillisecondNs)
    return;
  spare_.reset();
  for (FileDescriptor& listener : listeners_) refuse_backlog(listener);
  spare_ = duplicate(listeners_[0]);
}

/// For long no connection could be taken: both sides would wait for each other for ever. Ends those that wait now.
void VerbsProvider::refuse_backlog(FileDescriptor& listener) noexcept {
  log("verbs: for %d s there was no descriptor for a connection: those that wait are refused",
      config_.peer_timeout_ms / 1000);
  for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
    int error_number = 0;
    FileDescriptor socket = accept_channel(listener, error_number);
    if (!socket.valid()) return;
    ControlChannel channel(std::move(socket), config_.peer_timeout_ms / 2);
    Frame frame;
    if (channel.receive(frame) != ControlChannel::Receipt::kFrame || frame.kind != FrameKind::kIntroduce)
      continue;
    VerbsEndpoint* const peer = check_introduction(channel, frame.introduce);
    if (peer == nullptr) continue;
    refuse(channel, Refusal::kStranger, nullptr);
    if (peer->channel_state != ChannelState::kOpen) start_dying(*peer, Status::kUnreachable);
  }
}

bool VerbsProvider::take_completion_events(std::uint32_t index) noexcept {
  const Rail& rail = *rails_[index].rail;
  unsigned taken = 0;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(rail.events(), &queue, &context) == 0) ++taken;
  if (taken > 0) ibv_ack_cq_events(rail.completions(), taken);
  return taken > 0;
}

void VerbsProvider::accept_all(std::uint32_t listener) noexcept {
  const auto pause = [&](int error_number) {
    listeners_paused_ = true;  // The connection stays in the backlog.
    unwatch(listeners_[listener].get());
    log_shortage("verbs: accepting a connection", error_number);
  };
  for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
    std::uint32_t index = 0;
    while (index < newcomers_.size() && newcomers_[index].is_open()) ++index;
    try {
      if (index == newcomers_.size() && index < kMostNewcomers) newcomers_.emplace_back();
    } catch (const std::bad_alloc&) {
      return pause(ENOMEM);
    }
    int error_number = 0;
    FileDescriptor socket = accept_channel(listeners_[listener], error_number);
    if (!socket.valid()) {
      if (error_number == 0) return;
      // Those who have said nothing make way for one who may.
      if ((error_number == EMFILE || error_number == ENFILE) && evict_newcomer()) continue;
      return pause(error_number);
    }
    if (index == kMostNewcomers && evict_newcomer()) {
      index = 0;
      while (newcomers_[index].is_open()) ++index;
    }
    newcomers_[index] = ControlChannel(std::move(socket), config_.peer_timeout_ms / 2);
    watch(newcomers_[index].socket().get(), WatchKind::kNewcomer, index, EPOLLIN | EPOLLRDHUP);
    hear_newcomer(index);  // It is there already, as a rule.
  }
}

void VerbsProvider::log_shortage(const char* what, int error_number) noexcept {
  if (shortage_logged_) return;
  shortage_logged_ = true;
  try {
    log("%s", system_error(what, error_number).message.c_str());
  } catch (const std::bad_alloc&) {
    log("%s failed: there is no memory", what);
  }
}

/// Closes a connection that has not introduced itself, about the oldest. False: there is none.
bool VerbsProvider::evict_newcomer() noexcept {
  for (std::size_t i = 0; i < newcomers_.size(); ++i) {
    ControlChannel& newcomer = newcomers_[next_evicted_++ % newcomers_.size()];
    if (!newcomer.is_open()) continue;
    unwatch(newcomer.socket().get());
    newcomer.close();
    return true;
  }
  return false;
}

void VerbsProvider::hear_newcomer(std::uint32_t index) noexcept {
  if (index >= newcomers_.size() || !newcomers_[index].is_open()) return;
  Frame frame;
  const ControlChannel::Receipt receipt = newcomers_[index].receive(frame);
  if (receipt == ControlChannel::Receipt::kNothing) return;
  ControlChannel channel = std::move(newcomers_[index]);
  newcomers_[index].close();
  unwatch(channel.socket().get());
  switch (receipt) {
    case ControlChannel::Receipt::kFrame:
      if (frame.kind == FrameKind::kIntroduce) return adopt(std::move(channel), frame.introduce);
      return log_refused("its first message is no introduction");
    case ControlChannel::Receipt::kVersion:
      return refuse(channel, Refusal::kVersion, "it runs another version of libch3offload");
    case ControlChannel::Receipt::kMalformed: return log_refused("its first message is malformed");
    default: return;
  }
}

/// Who a newcomer is; null: nobody of ours, and it was told, or there is no memory for it, and it will dial again.
VerbsEndpoint* VerbsProvider::check_introduction(ControlChannel& channel,
                                                 const IntroduceBody& body) noexcept {
  try {
    return introduced_peer(channel, body);
  } catch (const std::bad_alloc&) {
    log_shortage("verbs: taking a connection", ENOMEM);
    return nullptr;
  }
}

/// The same, with its address set.
VerbsEndpoint* VerbsProvider::introduced_peer(ControlChannel& channel, const IntroduceBody& body) {
  const auto refused = [&](Refusal reason, const char* why) -> VerbsEndpoint* {
    refuse(channel, reason, why);
    return nullptr;
  };
  if (!equal_in_constant_time(body.secret, config_.job_secret))
    return refused(Refusal::kSecret, "it does not know the job's secret");
  std::optional<VerbsAddress> address = VerbsAddress::parse(body.address.data());
  if (body.receiver != index_of(config_.self) || body.receiver_instance != address_.instance ||
      body.sender >= config_.peer_limit || body.sender == index_of(config_.self) || !address ||
      address->instance != body.sender_instance || !address->same_fabric(address_))
    return refused(Refusal::kStranger, "it means another process");
  if (body.slot_bytes != address->slot_bytes)
    return refused(Refusal::kStranger, "it says two lengths of its slots");
  VerbsEndpoint& peer = find_or_make(PeerId{body.sender});
  if (peer.dying || peer.down || (peer.has_address && peer.address.instance != address->instance))
    return refused(Refusal::kStranger, "that process is gone, or was given up");
  set_address(peer, std::move(*address));
  return &peer;
}

/// Makes a newcomer the peer's channel, if it is one of ours.
void VerbsProvider::adopt(ControlChannel channel, const IntroduceBody& body) noexcept {
  VerbsEndpoint* const newcomer = check_introduction(channel, body);
  if (newcomer == nullptr) return;
  VerbsEndpoint& peer = *newcomer;
  // Both dialled at once: the dial of the lower number counts, if the peer's kernel took it or it has just succeeded.
  // One that is still connecting may do so for long after a link was down.
  const std::uint64_t now_ns = monotonic_ns();
  const bool ours_is_fresh =
      peer.dialled &&
      ((peer.channel_state == ChannelState::kIntroducing && !peer.channel.is_connecting()) ||
       (peer.channel_state == ChannelState::kOpen && elapsed_ns(now_ns, peer.opened_ns) < kCrossedNs));
  if (ours_is_fresh && config_.self < peer.id) return refuse(channel, Refusal::kCrossed, nullptr);
  close_channel(peer);
  peer.channel = std::move(channel);
  peer.dialled = false;
  introduce(peer);
  channel_opened(peer);
}

void VerbsProvider::refuse(ControlChannel& channel, Refusal reason, const char* why) noexcept {
  Frame frame = make_frame(FrameKind::kRefuse);
  frame.refuse.reason = static_cast<std::uint32_t>(reason);
  channel.send(frame);
  if (why != nullptr) log_refused(why);
}

void VerbsProvider::log_refused(const char* why) noexcept {
  if (refused_++ == 0) log("verbs: refused a connection: %s (further ones are refused silently)", why);
}

void VerbsProvider::hear_peer(VerbsEndpoint& peer) noexcept {
  for (;;) {
    Frame frame;
    switch (peer.channel.receive(frame)) {
      case ControlChannel::Receipt::kFrame: on_frame(peer, frame); continue;
      case ControlChannel::Receipt::kNothing: return update_watch(peer);
      case ControlChannel::Receipt::kClosed: return lose_channel(peer, peer.channel.error());
      case ControlChannel::Receipt::kVersion:
        log("verbs: peer %u runs another version of libch3offload", index_of(peer.id));
        return start_dying(peer, Status::kProtocol);
      case ControlChannel::Receipt::kMalformed: return start_dying(peer, Status::kProtocol);
    }
  }
}

void VerbsProvider::on_frame(VerbsEndpoint& peer, const Frame& frame) noexcept {
  if (peer.channel_state == ChannelState::kIntroducing) {
    if (frame.kind == FrameKind::kIntroduce) return on_answer(peer, frame.introduce);
    if (frame.kind == FrameKind::kRefuse) return on_refusal(peer, static_cast<Refusal>(frame.refuse.reason));
    return start_dying(peer, Status::kProtocol);
  }
  switch (frame.kind) {
    case FrameKind::kConnect:
    case FrameKind::kReady:
    case FrameKind::kPark: return on_lane_frame(peer, frame);
    case FrameKind::kBye: return start_dying(peer, Status::kPeerFailed);
    default: return start_dying(peer, Status::kProtocol);
  }
}

void VerbsProvider::on_lane_frame(VerbsEndpoint& peer, const Frame& frame) noexcept {
  const std::uint32_t index = frame.kind == FrameKind::kConnect ? frame.connect.lane : frame.link.lane;
  if (index >= peer.pair_count) return start_dying(peer, Status::kProtocol);
  try {
    if (index != 0) second_lane(peer);
  } catch (const std::bad_alloc&) {
    return lose_channel(peer, ENOMEM);  // Over the next one the peer says it again.
  }
  VerbsLane& lane = index == 0 ? peer.main : *peer.second;
  switch (frame.kind) {
    case FrameKind::kConnect: return on_connect_frame(lane, frame.connect);
    case FrameKind::kReady: return on_ready_frame(lane, frame.link);
    default: return on_park_frame(lane, frame.link);
  }
}

void VerbsProvider::on_answer(VerbsEndpoint& peer, const IntroduceBody& body) noexcept {
  if (!equal_in_constant_time(body.secret, config_.job_secret) || body.sender != index_of(peer.id) ||
      body.sender_instance != peer.address.instance || body.receiver != index_of(config_.self) ||
      body.receiver_instance != address_.instance || body.slot_bytes != peer.address.slot_bytes) {
    log("verbs: who answers at peer %u's address is another process", index_of(peer.id));
    return refused_at_host(peer);
  }
  channel_opened(peer);
}

void VerbsProvider::on_refusal(VerbsEndpoint& peer, Refusal reason) noexcept {
  if (reason == Refusal::kCrossed) {  // The peer's own dial is on its way.
    close_channel(peer);
    peer.retry_at_ns = monotonic_ns() + kCrossedNs;
    return trouble(peer);
  }
  if (reason == Refusal::kStranger) return refused_at_host(peer);
  log("verbs: peer %u refused the connection: %s", index_of(peer.id), describe(reason).data());
  start_dying(peer, Status::kPeerFailed);
}

/// At the address that was dialled there is not the peer. When that is so at each of them, it is gone.
void VerbsProvider::refused_at_host(VerbsEndpoint& peer) noexcept {
  close_channel(peer);
  if (++peer.refusals >= peer.address.hosts.size()) return start_dying(peer, Status::kPeerFailed);
  peer.retry_at_ns = 0;
  trouble(peer);
}

void VerbsProvider::dial(VerbsEndpoint& peer) noexcept {
  peer.retry_at_ns = monotonic_ns() + kRedialNs;
  try {
    dial_next_host(peer);
  } catch (const std::bad_alloc&) {
    log_shortage("verbs: dialling", ENOMEM);
  }
}

void VerbsProvider::dial_next_host(VerbsEndpoint& peer) {
  // The next try is for another of its addresses: a rail that is down takes the one of its port along.
  const std::string& host = peer.address.hosts[peer.next_host % peer.address.hosts.size()];
  ++peer.next_host;
  const std::optional<SocketAddress> to = socket_address(host, peer.address.port);
  Result<ControlChannel> channel = ControlChannel::dial(*to, config_.peer_timeout_ms / 2);
  if (!channel.ok()) {
    if (channel.error().status == Status::kPeerFailed) return refused_at_host(peer);
    if (!dial_logged_) log("%s (peer %u; trying again)", channel.error().message.c_str(), index_of(peer.id));
    dial_logged_ = true;
    return;
  }
  peer.channel = std::move(channel.value());
  peer.dialled = true;
  peer.channel_state = ChannelState::kIntroducing;
  peer.watched = 0;
  introduce(peer);
  update_watch(peer);
}

void VerbsProvider::introduce(VerbsEndpoint& peer) noexcept {
  Frame frame = make_frame(FrameKind::kIntroduce);
  IntroduceBody& body = frame.introduce;
  body.secret = config_.job_secret;
  body.sender = index_of(config_.self);
  body.receiver = index_of(peer.id);
  body.sender_instance = address_.instance;
  body.receiver_instance = peer.address.instance;
  body.slot_bytes = static_cast<std::uint32_t>(config_.rail.slot_bytes);
  std::memcpy(body.address.data(), address_text_.data(),
              std::min(address_text_.size(), body.address.size() - 1));
  peer.channel.send(frame);
}

/// Both know who the other is. Says again what an earlier channel may have lost.
void VerbsProvider::channel_opened(VerbsEndpoint& peer) noexcept {
  peer.channel_state = ChannelState::kOpen;
  peer.refusals = 0;
  peer.opened_ns = monotonic_ns();
  peer.retry_at_ns = 0;
  for_each_lane(peer, [&](VerbsLane& lane) {
    const Link& link = lane.link;
    lane.retry_at_ns = 0;
    switch (link.state) {
      case LinkState::kProposed: send_connect(lane); break;
      case LinkState::kBound:
      case LinkState::kUp:
        send_connect(lane);
        send_ready(lane);
        break;
      case LinkState::kNone:
        if (peer.connected && lane.index == 0) want_link(lane);
        break;
      case LinkState::kDraining: break;
    }
    if (link.park_sent) send_park(lane);
  });
  // The process lives. Whether its links do is seen when something gets through.
  if (links_are_well(peer)) peer.lost_since_ns = 0;
  update_watch(peer);
}

/// Nothing waits for a link that was lost.
bool VerbsProvider::links_are_well(const VerbsEndpoint& peer) noexcept {
  const auto is_well = [](const Link& link) {
    return link.state == LinkState::kUp || link.number == 0 || link.parked;
  };
  if (!is_well(peer.main.link)) return false;
  if (peer.second == nullptr) return true;
  const Link& second = peer.second->link;
  return is_well(second) || (second.state == LinkState::kNone && second.all_retired());
}

void VerbsProvider::lose_channel(VerbsEndpoint& peer, int error_number) noexcept {
  const bool was_dialling = peer.channel_state == ChannelState::kIntroducing;
  const std::uint64_t before_ns = peer.lost_since_ns;
  excuse_waiting(peer);
  close_channel(peer);
  if (peer.dying || peer.down) return;
  if (was_dialling && error_number == ECONNREFUSED) return refused_at_host(peer);
  trouble(peer);
  // Then the kernel has heard nothing for half of the time already (ControlChannel), whatever it calls that.
  const bool was_silent = error_number == ETIMEDOUT ||
                          (!was_dialling && (error_number == EHOSTUNREACH || error_number == ENETUNREACH));
  const std::uint64_t silent_ns =
      was_silent ? static_cast<std::uint64_t>(config_.peer_timeout_ms / 2) * kMillisecondNs : 0;
  peer.lost_since_ns = std::max(before_ns, peer.lost_since_ns - silent_ns);
  // At once after an established one; a dial that failed waits its turn.
  if (!was_dialling) peer.retry_at_ns = 0;
}

void VerbsProvider::close_channel(VerbsEndpoint& peer) noexcept {
  if (peer.channel.is_open()) {
    unwatch(peer.channel.socket().get());
    peer.channel.close();
  }
  peer.channel_state = ChannelState::kNone;
  peer.watched = 0;
}

/// Something about the peer needs time or another try: tend_troubled() looks after it. `is_lost`: nothing gets
/// through, from now on if not since before.
void VerbsProvider::trouble(VerbsEndpoint& peer, bool is_lost) noexcept {
  if (troubled_.empty()) last_tick_ns_ = monotonic_ns();  // What was before is no time that we waited.
  if (is_lost && peer.lost_since_ns == 0) peer.lost_since_ns = patience_ns_;
  if (peer.troubled || peer.dying || peer.down) return;
  peer.troubled = true;
  troubled_.push_back(&peer);
}

bool VerbsProvider::is_overdue(const VerbsEndpoint& peer) const noexcept {
  return peer.lost_since_ns != 0 && patience_ns_ - peer.lost_since_ns >
                                        static_cast<std::uint64_t>(config_.peer_timeout_ms) * kMillisecondNs;
}

void VerbsProvider::tend_troubled(std::uint64_t now_ns) noexcept {
  for (std::size_t i = 0; i < troubled_.size();) {  // tend() may add others.
    VerbsEndpoint* const peer = troubled_[i];
    if (!peer->dying && !peer->down && tend(*peer, now_ns)) {
      ++i;
      continue;
    }
    peer->troubled = false;
    troubled_[i] = troubled_.back();
    troubled_.pop_back();
  }
}

/// False: it is well again, or dead.
bool VerbsProvider::tend(VerbsEndpoint& peer, std::uint64_t now_ns) noexcept {
  const bool no_contact = peer.channel_state == ChannelState::kNone ||
                          (peer.channel_state == ChannelState::kIntroducing && peer.channel.is_connecting());
  // An item may have got through while the channel was gone; since then it counts again.
  if (no_contact && peer.lost_since_ns == 0) peer.lost_since_ns = patience_ns_;
  if (no_contact && is_overdue(peer)) {
    log("verbs: peer %u (%s) has not answered for %d s: it is taken for dead", index_of(peer.id),
        peer.address.hosts.front().c_str(),
        static_cast<int>((patience_ns_ - peer.lost_since_ns) / (1000 * kMillisecondNs)));
    start_dying(peer, Status::kPeerFailed);
    return false;
  }
  if (peer.channel_state == ChannelState::kNone && now_ns >= peer.retry_at_ns) dial(peer);
  if (peer.dying) return false;
  bool well = peer.channel_state == ChannelState::kOpen && peer.lost_since_ns == 0;
  for_each_lane(peer, [&](VerbsLane& lane) {
    if (lane.link.parking) try_to_park(lane);
    well = well && !lane.link.parking && lane.link.state != LinkState::kDraining;
  });
  return !well;
}

}  // namespace ch3_offload
