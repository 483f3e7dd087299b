// What introductions mean to the TCP provider. See tcp_provider.h.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "rdma/introduction/first_of_two.h"
#include "rdma/introduction/frame_stream.h"
#include "rdma/tcp/tcp_provider.h"

namespace ch3_offload {
namespace {

void set_tcp_option(int socket, int level, int name, int value) noexcept {
  static_cast<void>(::setsockopt(socket, level, name, &value, sizeof value));
}

/// The kernel ends an idle connection whose other host is silent: between its first probe and the last one is
/// the time-out, in whole seconds. With bytes under way, look_for_silence() does: TCP_USER_TIMEOUT would end, on
/// kernels before 5.11, that with a process that computes and reads nothing, though its host answers.
void keep_for_long(int socket, int timeout_ms) noexcept {
  watch_for_silence(socket, timeout_ms);
  const int interval_s = (timeout_ms - 1) / 6000 + 1;
  set_tcp_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, timeout_ms / 4000));
  set_tcp_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  set_tcp_option(socket, IPPROTO_TCP, TCP_KEEPCNT, (timeout_ms - 1) / (1000 * interval_s) + 2);
  set_tcp_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

}  // namespace

// What is said

SocketAddress TcpProvider::address(const Introducer::Contact& contact, std::size_t) const noexcept {
  const TcpAddress& peers = of(contact).address;
  return *socket_address(peers.host, peers.port);
}

bool TcpProvider::our_dial_counts(const Introducer::Contact& contact) const noexcept {
  const TcpEndpoint& peer = of(contact);
  return comes_first(config_.self, address_.instance, peer.id, peer.names, peer.address.instance);
}

void TcpProvider::fill_in(TcpHello& body, const TcpEndpoint& peer) const noexcept {
  body.sender = index_of(peer.names.known_as);
  body.receiver = index_of(peer.names.own);
  body.sender_instance = address_.instance;
  body.receiver_instance = peer.address.instance;
  body.own = index_of(config_.self);
  body.known_as = index_of(peer.id);
}

void TcpProvider::say_hello(const Introducer::Contact& contact, Frame& hello) const noexcept {
  auto& body = hello.as<TcpHello>();
  fill_in(body, of(contact));
  std::ranges::copy(std::string_view(own_address_).substr(0, body.address.size() - 1), body.address.begin());
}

void TcpProvider::offer_to(Introducer::Contact& contact) noexcept {
  Frame frame = make_frame(kTcpProtocol, FrameKind::kOffer);
  introducer_.offer(contact, frame);
}

// What is heard

std::optional<Refusal> TcpProvider::meet(const Frame& hello, Introducer::Guest& guest, Frame& answer) {
  const auto& body = hello.as<TcpHello>();
  if (body.receiver != index_of(config_.self) || body.receiver_instance != address_.instance ||
      body.sender == index_of(config_.self))
    return Refusal::kStranger;
  const std::optional<TcpAddress> address = TcpAddress::parse(body.address.data());
  if (!address || address->instance != body.sender_instance) return Refusal::kStranger;
  const PeerId id{body.sender};
  const PeerNames names = names_in(body);
  if (slot_of(id) < config_.first_peer || slot_of(id) >= config_.peer_limit || !peers_.is_current(id))
    return Refusal::kStranger;
  TcpEndpoint& peer = find_or_make(id);
  // Who has a connection that stands does not dial: it is a replay.
  if (peer.is_over() || peer.is_ending || peer.state == State::kUp) return Refusal::kStranger;
  if (peer.has_address && (peer.address.instance != address->instance || peer.names != names))
    return Refusal::kStranger;
  make_ready(peer, *address, names);
  guest = {&peer, 0};
  fill_in(answer.as<TcpHello>(), peer);
  return {};
}

/// The Hello tells it.
std::optional<Refusal> TcpProvider::identify(const Frame&, Introducer::Guest&) noexcept {
  return Refusal::kStranger;
}

bool TcpProvider::on_answer(Introducer::Contact& contact, const Frame& hello) noexcept {
  const auto& body = hello.as<TcpHello>();
  const TcpEndpoint& peer = of(contact);
  if (body.sender != index_of(peer.id) || body.sender_instance != peer.address.instance ||
      body.receiver != index_of(config_.self) || body.receiver_instance != address_.instance ||
      names_in(body) != peer.names)
    return false;
  offer_to(contact);
  return true;
}

void TcpProvider::on_offer(Introducer::Contact& contact, const Frame&, bool is_answer) noexcept {
  if (is_answer)
    introducer_.ready(contact);
  else if (of(contact).state == State::kUp)  // Another connection stands by now.
    introducer_.drop(contact);
  else
    offer_to(contact);
}

/// Until the first record, or on_ready(), it is not known whether the other side keeps it, too.
void TcpProvider::on_connection(Introducer::Contact& contact, ForkClosedDescriptor socket) noexcept {
  TcpEndpoint& peer = of(contact);
  disconnect(peer);
  peer.socket = std::move(socket);
  keep_for_long(peer.socket.get(), config_.peer_timeout_ms);
  if (config_.socket_bytes > 0) {
    for (const int which : {SO_SNDBUF, SO_RCVBUF})
      set_tcp_option(peer.socket.get(), SOL_SOCKET, which, config_.socket_bytes);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &peer;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peer.socket.get(), &event) != 0) {
    log_("tcp: the connection with peer %u cannot be watched: %s", index_of(peer.id), std::strerror(errno));
    peer.socket.reset();
    return on_over(peer, Status::kDeviceFailed);
  }
  peer.state = State::kWelcome;
  ++connections_;
  ++connections_made_;
  next_look_ = 0;
}

void TcpProvider::on_ready(Introducer::Contact& contact) noexcept {
  TcpEndpoint& peer = of(contact);
  if (peer.state != State::kWelcome) return;
  const TcpRecord welcome = make_tcp_record(0, TcpRecordKind::kWelcome);
  // There is room in a socket that has just been connected.
  if (::send(peer.socket.get(), &welcome, sizeof welcome, MSG_NOSIGNAL) != sizeof welcome)
    return lose(peer, 0);
  peer.state = State::kUp;
  flush(peer);
}

void TcpProvider::on_knock(Introducer::Contact& contact, std::uint32_t) noexcept {
  if (of(contact).state == State::kApart) introducer_.seek(contact);
}

void TcpProvider::on_gone(Introducer::Contact& contact, Refusal reason) noexcept {
  TcpEndpoint& peer = of(contact);
  if (reason == Refusal::kVersion)
    log_("tcp: peer %u is not reached: %s", index_of(peer.id), kAnotherVersion);
  introducer_.drop(contact);
  if (peer.state == State::kApart) on_over(peer, Status::kPeerFailed);
}

void TcpProvider::on_silence(Introducer::Contact& contact, Introducer::Silence silence) noexcept {
  if (std::exchange(silence_logged_, true)) return;
  const TcpEndpoint& peer = of(contact);
  const int seconds = config_.peer_timeout_ms / 1000;
  if (silence == Introducer::Silence::kUnreachable)
    log_(
        "tcp: no connection with peer %u at %s, port %u, for %d s: a firewall drops it, or the network or "
        "the "
        "host is down; going on trying (told once; MPIEXEC_TIMEOUT bounds a job's time)",
        index_of(peer.id), peer.address.host.c_str(), peer.address.port, seconds);
  else
    log_(
        "tcp: peer %u at %s has not answered for %d s: it computes without calling MPI, or it hangs; "
        "waiting (told once; MPIEXEC_TIMEOUT bounds a job's time)",
        index_of(peer.id), peer.address.host.c_str(), seconds);
}

}  // namespace ch3_offload
