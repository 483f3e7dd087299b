#include "rdma/verbs/wire_up/frame_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr int kStreamBacklog = 4096;  ///< The kernel lowers it to net.core.somaxconn.

void set_option(int socket, int level, int name, int value) noexcept {
  static_cast<void>(::setsockopt(socket, level, name, &value, sizeof value));
}

/// Makes the kernel notice a silent peer: idle, after keep-alive probes; with data under way, after a
/// time-out.
void watch_for_silence(int socket, int timeout_ms) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Idle for a third of the time, then three probes in the rest: in whole seconds, as the kernel has it.
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, timeout_ms / 3000));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, timeout_ms / 6000));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
}

}  // namespace

FrameStream::FrameStream(FileDescriptor socket, int timeout_ms)
    : socket_(std::move(socket)), closing_(socket_.get()) {
  watch_for_silence(socket_.get(), timeout_ms);
}

Result<FrameStream> FrameStream::dial(const SocketAddress& to, int timeout_ms) {
  FileDescriptor socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return system_error("verbs: making a TCP socket", errno);
  FrameStream stream(std::move(socket), timeout_ms);
  if (::connect(stream.socket_.get(), to.get(), to.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return system_error("verbs: connecting to a process", errno);
    stream.connecting_ = true;
  }
  return stream;
}

void FrameStream::close() noexcept {
  closing_ = ForkClosing();
  *this = FrameStream();
}

void FrameStream::fail(int error_number) noexcept {
  if (failed_) return;
  failed_ = true;
  error_ = error_number;
  outgoing_.clear();
  connecting_ = false;
}

void FrameStream::send(const Frame& frame) noexcept {
  if (!is_open() || failed_) return;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&frame);
  try {
    outgoing_.insert(outgoing_.end(), bytes, bytes + sizeof frame);
  } catch (const std::bad_alloc&) {
    static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));  // It becomes readable: noticed.
    return fail(ENOMEM);
  }
  flush();
}

void FrameStream::flush() noexcept {
  if (!is_open() || failed_) return;
  if (connecting_) {
    // Writable, and no error: the connection stands. Asked again and again, it answers the same.
    sockaddr_storage peer;
    socklen_t length = sizeof peer;
    int error_number = 0;
    socklen_t error_length = sizeof error_number;
    static_cast<void>(::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &error_length));
    if (error_number != 0) return fail(error_number);
    if (::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) return;
    connecting_ = false;
  }
  while (!outgoing_.empty()) {
    const ssize_t sent = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) fail(errno);
      return;
    }
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
  }
}

FrameStream::Receipt FrameStream::receive(Frame& frame) noexcept {
  if (!is_open()) return Receipt::kNothing;
  flush();
  // What came before the end counts, also where our own sending met it first.
  while (!connecting_ && incoming_bytes_ < incoming_.size()) {
    const ssize_t got =
        ::recv(socket_.get(), incoming_.data() + incoming_bytes_, incoming_.size() - incoming_bytes_, 0);
    if (got > 0) {
      incoming_bytes_ += static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    fail(got == 0 ? 0 : errno);
    break;
  }
  if (incoming_bytes_ == incoming_.size()) {
    incoming_bytes_ = 0;
    switch (check_frame(incoming_, frame)) {
      case FrameCheck::kValid: return Receipt::kFrame;
      case FrameCheck::kVersion: return Receipt::kVersion;
      case FrameCheck::kMalformed: return Receipt::kMalformed;
    }
  }
  return failed_ ? Receipt::kClosed : Receipt::kNothing;
}

Result<FileDescriptor> listen_for_streams(const std::string& host, std::uint16_t& port) {
  const std::optional<SocketAddress> at = socket_address(host, port);
  if (!at) return Error{Status::kDeviceFailed, 0, "verbs: '" + host + "' is not an IP address to listen at"};
  FileDescriptor socket(::socket(at->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return system_error("verbs: making a TCP socket", errno);
  // Connections of an earlier job that have ended may still occupy a port that was asked for.
  const int on = 1;
  if (port != 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), at->get(), at->length) != 0)
    return system_error("verbs: binding a TCP socket to " + host, errno);
  if (::listen(socket.get(), kStreamBacklog) != 0) return system_error("verbs: listening at " + host, errno);
  SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0)
    return system_error("verbs: asking for the port that we listen at", errno);
  port =
      ntohs(bound.storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound.storage)->sin6_port
                                                : reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port);
  return socket;
}

FileDescriptor accept_stream(const FileDescriptor& listener, int& error_number) noexcept {
  for (;;) {
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      error_number = 0;
      return socket;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    error_number = errno == EAGAIN ? 0 : errno;
    return {};
  }
}

}  // namespace ch3_offload
