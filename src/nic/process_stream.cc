#include "nic/process_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "rdma/shm/unix_socket.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr int kBacklog = 4096;      ///< The kernel limits it to net.core.somaxconn.
constexpr int kTriesOfKernel = 64;  ///< A TCP port that the kernel finds free may be taken on the node.

sockaddr_in net_address(PhysicalId id) noexcept {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(id.pid));
  address.sin_addr.s_addr = htonl(id.nid);
  return address;
}

socklen_t node_address(PhysicalId id, UserId user, sockaddr_un& address) noexcept {
  char name[80];
  const int length =
      std::snprintf(name, sizeof name, "ch3-offload-process-%u-%08x-%u", static_cast<unsigned>(user),
                    static_cast<unsigned>(id.nid), static_cast<unsigned>(id.pid));
  return abstract_address({name, static_cast<std::size_t>(length)}, address);
}

Status status_of(int error_number) noexcept {
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return Status::kPeerFailed;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EADDRNOTAVAIL: return Status::kNoMemory;
    default: return Status::kUnreachable;
  }
}

Error taken(PhysicalId id) {
  return {
      Status::kAgain, EADDRINUSE,
      "the process id " + id.to_string() +
          " is taken: another process, or another program's TCP port, has it; ask for another pid or any"};
}

Result<FileDescriptor> listen_on_net(PhysicalId& id) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return system_error("making a TCP socket", errno);
  // Connections of an earlier process with this id may still occupy the port.
  const int on = 1;
  if (id.pid != 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = net_address(id);
  const std::string where = "the address of the process id " + id.to_string();
  // A host without an IPv4 address may lack this one, too: then the port only numbers processes, which meet
  // on the node.
  if (id.nid == INADDR_LOOPBACK) ::setsockopt(socket.get(), IPPROTO_IP, IP_FREEBIND, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) return taken(id);
    return system_error("listening at " + where, errno);
  }
  socklen_t length = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return system_error("asking for " + where, errno);
  id.pid = ntohs(address.sin_port);
  return socket;
}

Result<FileDescriptor> listen_on_node(PhysicalId id, UserId user) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return system_error("making a Unix-domain socket", errno);
  sockaddr_un address;
  const socklen_t length = node_address(id, user, address);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) return taken(id);
    return system_error("listening as the process id " + id.to_string(), errno);
  }
  return socket;
}

}  // namespace

std::string PhysicalId::to_string() const {
  return std::to_string(nid >> 24) + "." + std::to_string(nid >> 16 & 255) + "." +
         std::to_string(nid >> 8 & 255) + "." + std::to_string(nid & 255) + "/" + std::to_string(pid);
}

Result<ProcessListeners> listen_as(PhysicalId& id, UserId user) {
  const bool is_any = id.pid == 0;
  for (int tries = is_any ? kTriesOfKernel : 1;; --tries) {
    PhysicalId tried = id;
    Result<FileDescriptor> net = listen_on_net(tried);
    if (!net.ok()) return net.error();
    Result<FileDescriptor> node = listen_on_node(tried, user);
    if (!node.ok() && (node.error().status != Status::kAgain || tries == 1)) return node.error();
    if (!node.ok()) continue;
    id = tried;
    return ProcessListeners{std::move(net.value()), std::move(node.value())};
  }
}

Status dial_on_node(PhysicalId id, UserId user, ProcessStream& stream) noexcept {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Status::kNoMemory;
  sockaddr_un address;
  const socklen_t length = node_address(id, user, address);
  while (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EINTR) continue;
    return errno == EAGAIN ? Status::kAgain : status_of(errno);
  }
  // Another user may have taken the name.
  if (peer_credentials(socket).uid != static_cast<uid_t>(user)) return Status::kPeerFailed;
  stream = ProcessStream(std::move(socket), /*is_connecting=*/false);
  return Status::kOk;
}

Status dial_over_net(PhysicalId id, ProcessStream& stream) noexcept {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Status::kNoMemory;
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const sockaddr_in address = net_address(id);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS && errno != EINTR)
    return status_of(errno);
  stream = ProcessStream(std::move(socket), /*is_connecting=*/true);  // The stream looks.
  return Status::kOk;
}

/// Whether the socket has connected to itself: nobody listens at the port, and the kernel chose that very
/// port for the socket.
bool ProcessStream::is_of_self(const sockaddr_storage& peer) const noexcept {
  sockaddr_storage own;
  socklen_t length = sizeof own;
  if (peer.ss_family != AF_INET ||
      ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return false;
  const auto& here = reinterpret_cast<const sockaddr_in&>(own);
  const auto& there = reinterpret_cast<const sockaddr_in&>(peer);
  return here.sin_port == there.sin_port && here.sin_addr.s_addr == there.sin_addr.s_addr;
}

void ProcessStream::fail(int error_number) noexcept {
  if (std::exchange(failed_, true)) return;
  error_ = error_number;
  connecting_ = false;
  out_begin_ = out_end_ = 0;
}

void ProcessStream::send(const ProcessFrame& frame) noexcept {
  if (!is_open() || failed_) return;
  if (out_begin_ > 0) {
    std::copy(out_.begin() + static_cast<std::ptrdiff_t>(out_begin_),
              out_.begin() + static_cast<std::ptrdiff_t>(out_end_), out_.begin());
    out_end_ -= std::exchange(out_begin_, 0);
  }
  if (out_end_ + sizeof frame > out_.size()) return fail(EPROTO);
  std::memcpy(out_.data() + out_end_, &frame, sizeof frame);
  out_end_ += sizeof frame;
  flush();
}

void ProcessStream::flush() noexcept {
  if (!is_open() || failed_) return;
  if (connecting_) {
    int error_number = 0;
    socklen_t length = sizeof error_number;
    static_cast<void>(::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &length));
    if (error_number != 0) return fail(error_number);
    sockaddr_storage peer;
    length = sizeof peer;
    if (::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) return;
    if (is_of_self(peer)) return fail(ECONNREFUSED);
    connecting_ = false;
  }
  while (out_begin_ < out_end_) {
    const ssize_t sent =
        ::send(socket_.get(), out_.data() + out_begin_, out_end_ - out_begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) fail(errno);
      return;
    }
    out_begin_ += static_cast<std::size_t>(sent);
  }
}

ProcessStream::Receipt ProcessStream::receive(ProcessFrame& frame) noexcept {
  if (!is_open()) return Receipt::kNothing;
  flush();
  // What came before the end counts, also where our own sending met it first.
  while (!connecting_ && in_bytes_ < in_.size()) {
    const ssize_t got = ::recv(socket_.get(), in_.data() + in_bytes_, in_.size() - in_bytes_, MSG_DONTWAIT);
    if (got > 0) {
      in_bytes_ += static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    fail(got == 0 ? 0 : errno);
    break;
  }
  if (in_bytes_ == in_.size()) {
    in_bytes_ = 0;
    switch (check_process_frame(in_, frame)) {
      case ProcessFrameCheck::kValid: return Receipt::kFrame;
      case ProcessFrameCheck::kVersion: return Receipt::kVersion;
      case ProcessFrameCheck::kMalformed: return Receipt::kMalformed;
    }
  }
  return failed_ ? Receipt::kClosed : Receipt::kNothing;
}

}  // namespace ch3_offload
