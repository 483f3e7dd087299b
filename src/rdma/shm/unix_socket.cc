#include "rdma/shm/unix_socket.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ch3_offload {

socklen_t abstract_address(std::string_view name, sockaddr_un& address) noexcept {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);  // Behind a zero: the abstract namespace.
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

PeerCredentials peer_credentials(const FileDescriptor& socket) noexcept {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return {};
  return {credentials.uid, credentials.pid};
}

bool send_with_files(const FileDescriptor& socket, std::span<const std::byte> message,
                     std::span<const int> files) noexcept {
  assert(files.size() <= kMostFiles);
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!files.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(attached), files.data(), files.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0 && static_cast<std::size_t>(sent) != message.size()) errno = EMSGSIZE;
  return sent >= 0 && static_cast<std::size_t>(sent) == message.size();
}

Receipt receive_with_files(const FileDescriptor& socket, std::span<std::byte> message,
                           std::span<FileDescriptor> files) noexcept {
  constexpr std::size_t kMostTaken =
      kMostFiles + 2;  // The kernel drops further files, which makes the message invalid.
  alignas(cmsghdr) char control[CMSG_SPACE(kMostTaken * sizeof(int))];
  iovec part{message.data(), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t received = -1;
  do {
    // MSG_PEEK, because a file for which no descriptor is free would be lost.
    received = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_PEEK);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return errno == EAGAIN ? Receipt::kNothing : Receipt::kClosed;
  std::size_t came = 0;
  for (cmsghdr* attached = CMSG_FIRSTHDR(&header); attached != nullptr;
       attached = CMSG_NXTHDR(&header, attached)) {
    if (attached->cmsg_level != SOL_SOCKET || attached->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (attached->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i, ++came) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(attached) + i * sizeof number, sizeof number);
      FileDescriptor file(number);  // Closed if nobody wants it.
      if (came < files.size()) files[came] = std::move(file);
    }
  }
  if (received == 0) return Receipt::kClosed;
  const bool cut_short = (header.msg_flags & MSG_CTRUNC) != 0;
  if (came < files.size() && cut_short) {
    for (FileDescriptor& file : files) file.reset();
    return Receipt::kNoDescriptor;
  }
  // Removes the message from the socket. Its files have got their descriptors by MSG_PEEK already.
  const ssize_t taken =
      ::recv(socket.get(), message.data(), static_cast<std::size_t>(received), MSG_DONTWAIT);
  const bool is_whole = !cut_short && (header.msg_flags & MSG_TRUNC) == 0 && taken == received &&
                        static_cast<std::size_t>(received) == message.size();
  if (is_whole && came == files.size()) return Receipt::kMessage;
  for (FileDescriptor& file : files) file.reset();
  return is_whole && came == 0 ? Receipt::kWithoutFiles : Receipt::kInvalid;
}

}  // namespace ch3_offload
