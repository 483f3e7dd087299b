// Making the provider, connecting, ending. See tcp_provider.h.

#include "rdma/tcp/tcp_provider.h"

#include <linux/sockios.h>
#include <sodium.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "rdma/descriptor_limit.h"
#include "rdma/introduction/host_address.h"
#include "rdma/introduction/listening.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// From this length on, a round trip and no copy are faster than a copy through slots.
constexpr std::size_t kTcpWriteThresholdBytes = 32768;

/// The address to listen at, in numbers.
Result<std::string> find_tcp_host(const TcpConfig& config) {
  Result<std::string> host = find_host_address(config.interface, config.loopback_serves);
  if (host.ok()) return host;
  return Error{host.error().status, host.error().error_number, "tcp: " + host.error().message};
}

}  // namespace

Result<std::unique_ptr<TcpProvider>> TcpProvider::create(const TcpConfig& config) {
  raise_descriptor_limit();
  if (::sodium_init() < 0)
    return Error{Status::kDeviceFailed, 0,
                 "tcp: libsodium does not start: the system gives it no random numbers"};
  Result<std::string> host = find_tcp_host(config);
  if (!host.ok()) return host.error();
  std::vector<std::string> hosts{std::move(host.value())};
  TcpAddress address;
  const Log log(config.log, config.log_context);
  Result<std::vector<FileDescriptor>> listeners = listen_for_introductions(
      {"tcp: ", config.first_port, config.last_port, index_of(config.self)}, log, hosts, address.port);
  if (!listeners.ok()) return listeners.error();
  address.host = std::move(hosts.front());
  address.slot_bytes = static_cast<std::uint32_t>(config.slot_bytes);
  if (::getrandom(&address.instance, sizeof address.instance, 0) != sizeof address.instance)
    return system_error("tcp: getrandom", errno);
  auto provider = std::make_unique<TcpProvider>(config, std::move(address), std::move(listeners.value()));
  provider->epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  provider->alarm_ = FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto watch = [&](int descriptor, void* who) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = who;
    return descriptor >= 0 && ::epoll_ctl(provider->epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  };
  if (watch(provider->alarm_.get(), &provider->alarm_) &&
      watch(provider->introducer_.descriptor(), &provider->introducer_))
    return provider;
  const int error_number = errno;
  provider->abandon();
  return system_error("tcp: making an epoll descriptor", error_number);
}

Result<std::unique_ptr<Provider>> make_tcp_provider(const TcpConfig& config) {
  Result<std::unique_ptr<TcpProvider>> provider = TcpProvider::create(config);
  if (!provider.ok()) return provider.error();
  return std::unique_ptr<Provider>(std::move(provider.value()));
}

TcpProvider::TcpProvider(const TcpConfig& config, TcpAddress address, std::vector<FileDescriptor> listeners)
    : config_(config),
      log_(config.log, config.log_context),
      address_(std::move(address)),
      introducer_({.protocol = kTcpProtocol,
                   .secret = Transcript(config.job_secret),
                   .timeout_ms = config.peer_timeout_ms,
                   .guest_ms = config.peer_timeout_ms / 2,
                   .guests_wait = true,
                   .keeps_connection = true,
                   .knock_ms = config.peer_timeout_ms / 2,
                   .name = "tcp: ",
                   .log = log_},
                  std::move(listeners), *this),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kReceiveBytes)) {
  capabilities_.name = "tcp";
  capabilities_.max_slot_bytes = config_.slot_bytes;
  capabilities_.write = true;
  capabilities_.write_threshold_bytes = kTcpWriteThresholdBytes;
}

TcpProvider::~TcpProvider() {
  if (abandoned_) return;
  while (!leave()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

bool TcpProvider::leave() noexcept {
  if (leaving_ == Leaving::kNot) {
    leaving_ = Leaving::kSending;
    leaving_until_ns_ = monotonic_ns() + static_cast<std::uint64_t>(config_.peer_timeout_ms) * 1'000'000;
  }
  const auto is_anywhere = [&](auto condition) {
    return std::ranges::any_of(
        peers_, [&](const auto& peer) { return peer != nullptr && !peer->is_over() && condition(*peer); });
  };
  const auto has_unsent = [](const TcpEndpoint& peer) {
    return peer.outbox != nullptr && !peer.outbox->empty();
  };
  // Of the kernel, the end of the connection included.
  const auto has_unacknowledged = [](const TcpEndpoint& peer) {
    int bytes = 0;
    return peer.has_socket() && ::ioctl(peer.socket.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
  };
  struct Deaf final : Sink {
    Delivery on_message(PeerId, std::span<const std::byte>) noexcept override { return Delivery::kTaken; }
    void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
    void on_write_done(PeerId, WorkId, Status) noexcept override {}
    void on_peer_down(PeerId, Status) noexcept override {}
  } sink;
  const bool may_wait = monotonic_ns() < leaving_until_ns_;
  if (leaving_ == Leaving::kSending) {
    if (may_wait && is_anywhere(has_unsent)) {
      next_look_ = 0;
      poll(sink, 64);
      return false;
    }
    for (const auto& peer : peers_)
      if (peer != nullptr && peer->has_socket()) ::shutdown(peer->socket.get(), SHUT_WR);
    leaving_ = Leaving::kShut;
  }
  if (leaving_ == Leaving::kShut) {
    // What still comes is read: with unread bytes, closing would reset the connection.
    next_look_ = 0;
    poll(sink, 64);
    if (may_wait && is_anywhere(has_unacknowledged)) return false;
    leaving_ = Leaving::kOver;
  }
  return true;
}

bool TcpProvider::reaches(std::string_view address) const noexcept {
  try {
    return TcpAddress::parse(address).has_value();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::size_t TcpProvider::max_slot_bytes(Endpoint& endpoint) const noexcept {
  return std::min<std::size_t>(capabilities_.max_slot_bytes, of(endpoint).address.slot_bytes);
}

/// No list that the peer may join later must need memory then. REQUIRES: peers_.is_current(id). Throws
/// std::bad_alloc.
TcpEndpoint& TcpProvider::find_or_make(PeerId id) {
  if (TcpEndpoint* const known = peers_.find(id)) return *known;
  if (known_ == room_) {
    const std::size_t room = std::max<std::size_t>(2 * known_, 16);
    for (auto* const list : {&lacking_, &ending_, &dying_, &with_parts_}) list->reserve(room);
    done_.reserve(2 * room);  // While tell_done() goes through it, each peer may join it again.
    introducer_.make_room(room);
    room_ = room;
  }
  TcpEndpoint& made = peers_.make(id);
  ++known_;
  return made;
}

/// At the first contact; they stay as they are. Throws std::bad_alloc; then nothing has changed.
void TcpProvider::make_ready(TcpEndpoint& peer, const TcpAddress& address, const PeerNames& names) {
  if (peer.has_address) return;
  TcpAddress copy = address;
  auto outbox = std::make_unique<TcpOutbox>(std::min(address_.slot_bytes, address.slot_bytes));
  peer.arrival.slot = std::make_unique_for_overwrite<std::byte[]>(address_.slot_bytes);
  peer.outbox = std::move(outbox);
  peer.address = std::move(copy);
  peer.names = names;
  peer.has_address = true;
}

Result<Endpoint*> TcpProvider::connect(PeerId id, std::string_view text,
                                       const std::optional<PeerNames>& names) {
  const std::string who = "tcp: peer " + std::to_string(index_of(id));
  const std::optional<TcpAddress> address = TcpAddress::parse(text);
  if (!address || slot_of(id) >= config_.peer_limit || id == config_.self)
    return Error{Status::kUnreachable, 0, who + " has no address that can be connected to"};
  if (!peers_.is_current(id)) return Error{Status::kPeerFailed, 0, who + " is gone"};
  TcpEndpoint& peer = find_or_make(id);
  if (peer.is_over()) return Error{Status::kPeerFailed, 0, who + " is gone"};
  if (peer.has_address && peer.address.instance != address->instance)
    return Error{Status::kUnreachable, 0, who + " has another address than it had"};
  if (peer.has_address && names && peer.names != *names)
    return Error{Status::kUnreachable, 0, who + " has other numbers for us than it had"};
  make_ready(peer, *address, names.value_or(PeerNames{config_.self, id}));
  if (peer.connected) return &peer;
  peer.connected = true;
  // At once, not in the next poll(): the peer may be asleep.
  if (peer.state == State::kApart) introducer_.seek(peer);
  next_look_ = 0;
  if (armed_) set_alarm();  // Another thread's sleep: a dial has its time.
  return &peer;
}

std::string TcpProvider::address_of(PeerId id) const {
  const TcpEndpoint* const peer = peers_.find(id);
  return peer != nullptr && peer->has_address ? peer->address.to_string() : std::string();
}

bool TcpProvider::end(PeerId id) noexcept {
  if (slot_of(id) >= config_.peer_limit || !peers_.is_current(id)) return false;
  TcpEndpoint* const peer = peers_.find(id);
  if (peer == nullptr) {
    try {
      find_or_make(id).state = State::kDown;  // Should it connect, it is refused.
    } catch (const std::bad_alloc&) {
      log_("tcp: there is no memory to note that peer %u was given up", index_of(id));
    }
    return false;
  }
  if (peer->state == State::kDown) return false;
  if (peer->state == State::kDying || peer->is_ending) return true;
  int bytes = 0;
  if (peer->has_socket()) static_cast<void>(::ioctl(peer->socket.get(), FIONREAD, &bytes));
  peer->ending_bytes = static_cast<std::size_t>(std::max(bytes, 0));
  peer->is_ending = true;
  ending_.push_back(peer);
  wake_soon();
  return true;
}

bool TcpProvider::forget(PeerId id) noexcept {
  TcpEndpoint* const peer = peers_.find(id);
  if (peer != nullptr && (peer->state != State::kDown || peer->is_in_use())) return false;
  if (!peers_.forget(id)) return false;
  known_ -= peer != nullptr;
  return true;
}

ProviderCounters TcpProvider::counters() const noexcept {
  return {.network_connections = connections_,
          .network_connections_made = connections_made_,
          .network_connections_lost = connections_lost_};
}

}  // namespace ch3_offload
