#include "rdma/introduction/frame_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "rdma/shm/unix_socket.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr int kStreamBacklog = 4096;  ///< The kernel lowers it to net.core.somaxconn.

void set_option(int socket, int level, int name, int value) noexcept {
  static_cast<void>(::setsockopt(socket, level, name, &value, sizeof value));
}

/// The socket's own address, or its peer's. Nothing: it has none, yet.
std::optional<SocketAddress> address_of(int socket, decltype(&::getpeername) which) noexcept {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (which(socket, address.get(), &address.length) != 0) return {};
  return address;
}

bool is_of_this_user(const FileDescriptor& socket) noexcept {
  return peer_credentials(socket).uid == ::geteuid();
}

bool is_unix_socket(const FileDescriptor& socket) noexcept {
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

Result<FileDescriptor> make_stream_socket(const SocketAddress& address) {
  FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return system_error("making a stream socket", errno);
  return socket;
}

}  // namespace

void watch_for_silence(int socket, int timeout_ms) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Idle for a third of the time, then three probes in the rest: in whole seconds, as the kernel has it.
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, timeout_ms / 3000));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, timeout_ms / 6000));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
}

FrameStream::FrameStream(FileDescriptor socket, const Protocol& protocol, int timeout_ms,
                         bool is_connecting) noexcept
    : socket_(std::move(socket)),
      protocol_(&protocol),
      room_(new (std::nothrow) Room),
      connecting_(is_connecting) {
  watch_for_silence(socket_.get(), timeout_ms);
  if (room_ == nullptr) fail(ENOMEM);
}

Result<FrameStream> FrameStream::dial(const SocketAddress& to, const Protocol& protocol, int timeout_ms) {
  Result<FileDescriptor> made = make_stream_socket(to);
  if (!made.ok()) return made.error();
  FrameStream stream(std::move(made.value()), protocol, timeout_ms, /*is_connecting=*/true);
  while (::connect(stream.socket_.get(), to.get(), to.length) != 0) {
    if (errno == EINPROGRESS) return stream;
    if (errno == EINTR && !to.is_on_node()) return stream;
    if (errno == EINTR) continue;
    Error error = system_error("connecting to a process", errno);
    if (error.error_number == EAGAIN) error.status = Status::kAgain;
    return error;
  }
  // Another user may have taken the name.
  if (to.is_on_node() && !is_of_this_user(stream.socket_))
    return Error{Status::kPeerFailed, 0, "another user's process listens there"};
  stream.look_at_connection();
  return stream;
}

ForkClosedDescriptor FrameStream::release() noexcept {
  ForkClosedDescriptor socket = std::move(socket_);
  close();
  return socket;
}

void FrameStream::fail(int error_number) noexcept {
  if (std::exchange(failed_, true)) return;
  error_ = error_number;
  connecting_ = false;
  out_begin_ = out_end_ = 0;
}

void FrameStream::send(const Frame& frame) noexcept {
  if (!is_open() || failed_) return;
  if (out_begin_ > 0) {
    std::memmove(room_->out.data(), room_->out.data() + out_begin_, out_end_ - out_begin_);
    out_end_ -= std::exchange(out_begin_, 0);
  }
  if (out_end_ + sizeof frame > room_->out.size()) return fail(EPROTO);
  std::memcpy(room_->out.data() + out_end_, &frame, sizeof frame);
  out_end_ += sizeof frame;
  flush();
}

/// Finds out whether the connection stands: there is no error, and there is a peer. Asked again and again,
/// the kernel answers the same.
void FrameStream::look_at_connection() noexcept {
  int error_number = 0;
  socklen_t length = sizeof error_number;
  static_cast<void>(::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &length));
  if (error_number != 0) return fail(error_number);
  const std::optional<SocketAddress> peer = address_of(socket_.get(), ::getpeername);
  if (!peer) return;
  // If nobody listens at a port of this node, the kernel may choose that very port for the socket, which then
  // connects to itself.
  const std::optional<SocketAddress> own = address_of(socket_.get(), ::getsockname);
  if (own && !peer->is_on_node() && own->length == peer->length &&
      std::memcmp(own->get(), peer->get(), peer->length) == 0)
    return fail(ECONNREFUSED);
  connecting_ = false;
}

void FrameStream::flush() noexcept {
  if (!is_open() || failed_) return;
  if (connecting_) look_at_connection();
  while (!connecting_ && out_begin_ < out_end_) {
    const ssize_t sent =
        ::send(socket_.get(), room_->out.data() + out_begin_, out_end_ - out_begin_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) fail(errno);
      return;
    }
    out_begin_ += static_cast<std::size_t>(sent);
  }
}

FrameStream::Receipt FrameStream::receive(Frame& frame) noexcept {
  if (!is_open()) return Receipt::kNothing;
  if (room_ == nullptr) return Receipt::kClosed;
  flush();
  auto& in = room_->in;
  // What came before the end counts, also where our own sending met it first.
  while (!connecting_ && in_bytes_ < in.size()) {
    const ssize_t got = ::recv(socket_.get(), in.data() + in_bytes_, in.size() - in_bytes_, MSG_DONTWAIT);
    if (got > 0) {
      in_bytes_ += static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    fail(got == 0 ? 0 : errno);
    break;
  }
  const auto heard = std::span<const std::byte>(in).first(in_bytes_);
  const bool is_whole = heard.size() == sizeof frame;
  if (heard.size() >= Frame::kHeaderBytes) {
    // Frames of another version may have another length.
    const FrameCheck check =
        is_whole ? check_frame(heard, *protocol_, frame) : check_frame_header(heard, *protocol_);
    if (is_whole || check != FrameCheck::kValid) in_bytes_ = 0;
    if (check == FrameCheck::kVersion) return Receipt::kVersion;
    if (check == FrameCheck::kMalformed) return Receipt::kMalformed;
    if (is_whole) return Receipt::kFrame;
  }
  return failed_ ? Receipt::kClosed : Receipt::kNothing;
}

Result<FileDescriptor> listen_for_streams(SocketAddress& at) {
  Result<FileDescriptor> made = make_stream_socket(at);
  if (!made.ok()) return made;
  const int socket = made.value().get();
  if (!at.is_on_node()) {
    // Connections of an earlier process that have ended may still occupy a port that was asked for.
    if (at.port() != 0) set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    // A host without an IPv4 address may lack this one, too: then the port only numbers processes.
    if (at.host() == "127.0.0.1") set_option(socket, IPPROTO_IP, IP_FREEBIND, 1);
  }
  const std::string where = at.is_on_node() ? "a name on this node" : at.host();
  if (::bind(socket, at.get(), at.length) != 0) return system_error("binding a socket to " + where, errno);
  if (::listen(socket, kStreamBacklog) != 0) return system_error("listening at " + where, errno);
  const std::optional<SocketAddress> bound = address_of(socket, ::getsockname);
  if (!bound) return system_error("asking for the port that we listen at", errno);
  at = *bound;
  return made;
}

Result<FileDescriptor> listen_for_streams(const std::string& host, std::uint16_t& port) {
  std::optional<SocketAddress> at = socket_address(host, port);
  if (!at) return Error{Status::kDeviceFailed, 0, "'" + host + "' is not an IP address to listen at"};
  Result<FileDescriptor> listener = listen_for_streams(*at);
  if (listener.ok()) port = at->port();
  return listener;
}

FileDescriptor accept_stream(const FileDescriptor& listener, int& error_number) noexcept {
  for (;;) {
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      error_number = 0;
      if (is_unix_socket(socket) && !is_of_this_user(socket)) continue;
      return socket;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    error_number = errno == EAGAIN ? 0 : errno;
    return {};
  }
}

bool is_stream_on_node(const FileDescriptor& socket) noexcept {
  return is_unix_socket(socket) && is_of_this_user(socket);
}

}  // namespace ch3_offload
