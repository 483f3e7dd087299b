// Poll, sleep, what time asks for, and deaths. See tcp_provider.h.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rdma/cycle_clock.h"
#include "rdma/monotonic_clock.h"
#include "rdma/tcp/tcp_provider.h"

namespace ch3_offload {
namespace {

/// Of so many looks, one is at all sockets; the others are at the one from which something has come last,
/// which takes one system call instead of two.
constexpr std::uint32_t kLooksPerWait = 4;
/// After something came or left, for so long every poll() looks.
constexpr std::uint64_t kBusyTicks = 10 * CycleClock::kAbout20Microseconds;
/// Later, looks take one part in so many of the caller's time.
constexpr std::uint64_t kLookShare = 8;
constexpr std::uint64_t kLookShareAlone = 64;     ///< Without any connection.
constexpr std::uint64_t kTcpRoundNs = 1'000'000;  ///< Between two rounds of what time brings on.

}  // namespace

std::size_t TcpProvider::poll(Sink& sink, std::size_t budget) noexcept {
  sink_ = &sink;
  budget_ = std::max<std::size_t>(budget, 1);
  found_ = 0;
  holds_ = false;
  if (!with_parts_.empty()) flush_parts();
  if (!done_.empty()) tell_done();
  // First, and not only at the end: a sink may hold a message in every poll.
  if (!dying_.empty()) [[unlikely]]
    tell_deaths();
  take_records();
  // Before the others are looked at: one of them may always have more than a poll takes.
  if (!ending_.empty()) [[unlikely]]
    read_ending();
  if (unparsed_.empty() && may_take_more()) look();
  if (!dying_.empty() && !holds_) [[unlikely]]
    tell_deaths();
  if (!done_.empty() && !holds_) tell_done();
  if (armed_) [[unlikely]] {
    found_ += tell_room();
    if (found_ == 0 && !is_quiet()) found_ = 1;
    set_alarm();
  }
  return found_;
}

void TcpProvider::look() noexcept {
  const std::uint64_t began = CycleClock::now();
  if (!armed_ && began < next_look_) return;
  const std::size_t found_before = found_;
  const bool is_hot = hot_ != nullptr && hot_->has_socket() && !hot_->is_ending && !armed_ && blocked_ == 0;
  std::size_t came_bytes = 0;
  if (++looks_ % kLooksPerWait != 0 && is_hot)
    came_bytes = receive(*hot_);
  else
    look_at_all();
  if (came_bytes > 0 || found_ != found_before) busy_at_ = began;
  const std::uint64_t now = CycleClock::now();
  const bool is_busy = now - busy_at_ < kBusyTicks || blocked_ > 0;
  // A guest counts only while it says something: a stranger may connect and stay.
  const bool is_alone = connections_ == 0 && introducer_.sought().empty();
  next_look_ = is_busy ? 0 : now + (now - began) * (is_alone ? kLookShareAlone : kLookShare);
}

void TcpProvider::look_at_all() noexcept {
  std::array<epoll_event, 32> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  // The kernel's order stays as it is while all of them are ready: each is the first one in turn.
  const std::size_t first = first_event_++;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event =
        events[(first + static_cast<std::size_t>(i)) % static_cast<std::size_t>(count)];
    if (event.data.ptr == &introducer_) {
      introducer_.service();
      busy_at_ = CycleClock::now();
      continue;
    }
    if (event.data.ptr == &alarm_) {
      std::uint64_t expirations;
      static_cast<void>(!::read(alarm_.get(), &expirations, sizeof expirations));
      alarm_is_set_ = false;
      continue;
    }
    // It may have lost its socket within this batch, or have another one: reading only tries.
    TcpEndpoint& peer = *static_cast<TcpEndpoint*>(event.data.ptr);
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLIN)) != 0 && peer.is_blocked) {
      watch_for_room(peer, false);
      flush(peer);
    }
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0 || peer.is_ending) continue;
    // Up to the budget of poll(). A bound of a mebibyte made long messages slow: see
    // docs/results/2026-11-28-tcp.md.
    while (peer.has_socket() && unparsed_.empty() && may_take_more() && receive(peer) >= kReceiveBytes) {
    }
  }
  keep_house();
}

/// Of peers that this process gives up, what had arrived is read, and not what they still send. Only here.
void TcpProvider::read_ending() noexcept {
  for (std::size_t i = 0; i < ending_.size() && unparsed_.empty() && may_take_more();) {
    TcpEndpoint& peer = *ending_[i];
    bool is_read = !peer.has_socket() || peer.ending_bytes == 0;
    while (!is_read && unparsed_.empty() && may_take_more()) {
      const std::size_t came_bytes = receive(peer);
      peer.ending_bytes -= std::min(came_bytes, peer.ending_bytes);
      is_read = came_bytes == 0 || peer.ending_bytes == 0 || !peer.has_socket();
    }
    if (!is_read || !unparsed_.empty()) break;
    ending_[i] = ending_.back();
    ending_.pop_back();
    on_over(peer, Status::kPeerFailed);
  }
}

void TcpProvider::keep_house() noexcept {
  const std::uint64_t now_ns = monotonic_ns();
  if (elapsed_ns(now_ns, last_round_ns_) < kTcpRoundNs) return;
  last_round_ns_ = now_ns;
  introducer_.tick(now_ns);
  if (connections_ > 0 && elapsed_ns(now_ns, last_silence_ns_) >= look_ns()) {
    last_silence_ns_ = now_ns;
    look_for_silence(now_ns);
  }
}

void TcpProvider::look_for_silence(std::uint64_t now_ns) noexcept {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    TcpEndpoint* const peer = peers_[i];
    if (peer == nullptr || !peer->has_socket() || !is_silent(*peer, now_ns)) continue;
    log_("tcp: the host %s of peer %u has acknowledged nothing for more than %d s: it is taken for dead",
         peer->address.host.c_str(), index_of(peer->id), config_.peer_timeout_ms / 1000);
    ++connections_lost_;
    on_over(*peer, Status::kPeerFailed);
  }
}

bool TcpProvider::is_silent(TcpEndpoint& peer, std::uint64_t now_ns) const noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(peer.socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         peer.silence.is_death(info, now_ns, static_cast<std::uint64_t>(config_.peer_timeout_ms) * 1'000'000);
}

/// The connection has ended. All that came through it has been taken.
void TcpProvider::lose(TcpEndpoint& peer, int error_number) noexcept {
  if (peer.state == State::kWelcome) {  // The acceptor has given the introduction up, or is dead.
    disconnect(peer);
    peer.state = State::kApart;
    return introducer_.seek(peer);
  }
  if (error_number == 0) error_number = peer.send_error;
  if (error_number != 0 && error_number != ECONNRESET && error_number != EPIPE)
    log_("tcp: the connection with peer %u at %s broke: %s: it is taken for dead", index_of(peer.id),
         peer.address.host.c_str(), std::strerror(error_number));
  ++connections_lost_;
  on_over(peer, Status::kPeerFailed);
}

void TcpProvider::disconnect(TcpEndpoint& peer) noexcept {
  if (hot_ == &peer) hot_ = nullptr;
  if (unparsed_of_ == &peer) unparsed_ = {};  // It may be forgotten before the next poll().
  peer.arrival.head_bytes = peer.arrival.left_bytes = 0;
  if (!peer.has_socket()) return;
  if (std::exchange(peer.is_blocked, false)) --blocked_;
  // Closing alone is not enough: a child between vfork() and exec() holds the descriptor, too.
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr));
  peer.socket.reset();
  --connections_;
}

void TcpProvider::on_over(TcpEndpoint& peer, Status reason) noexcept {
  if (peer.is_over()) return;
  peer.state = State::kDying;
  peer.reason = reason;
  introducer_.drop(peer);
  disconnect(peer);
  dying_.push_back(&peer);
  wake_soon();
}

void TcpProvider::tell_deaths() noexcept {
  while (!dying_.empty()) {
    TcpEndpoint& peer = *dying_.back();
    dying_.pop_back();
    peer.state = State::kDown;
    if (peer.outbox != nullptr) tell_writes(peer);
    for (auto* const list : {&lacking_, &done_, &ending_, &with_parts_}) std::erase(*list, &peer);
    peer.outbox.reset();
    peer.arrival.slot.reset();
    ++found_;
    sink_->on_peer_down(peer.id, peer.reason);
  }
}

bool TcpProvider::arm() noexcept {
  if (!with_parts_.empty()) flush_parts();
  armed_ = true;
  set_alarm();
  return is_quiet();
}

void TcpProvider::disarm() noexcept {
  armed_ = false;
  next_look_ = 0;  // What woke us may be waiting in a socket.
}

/// During a sleep: there is work that no socket tells of.
void TcpProvider::wake_soon() noexcept {
  next_look_ = 0;
  if (armed_) alarm_is_set_ = set_alarm(1);
}

/// During a sleep: what time brings on.
void TcpProvider::set_alarm() noexcept {
  if (!is_quiet()) return wake_soon();
  std::uint64_t delay_ns = introducer_.tick_ns();
  if (delay_ns == 0) {
    if (alarm_is_set_ || connections_ == 0) return;
    delay_ns = look_ns();
  }
  alarm_is_set_ = set_alarm(delay_ns);
}

bool TcpProvider::set_alarm(std::uint64_t delay_ns) const noexcept {
  itimerspec time{};
  time.it_value.tv_sec = static_cast<time_t>(delay_ns / 1'000'000'000);
  time.it_value.tv_nsec = static_cast<long>(delay_ns % 1'000'000'000);
  return ::timerfd_settime(alarm_.get(), 0, &time, nullptr) == 0;
}

}  // namespace ch3_offload
