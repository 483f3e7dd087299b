#include "nic/nicd_protocol.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// SipHash-2-4 (Aumasson, Bernstein, 2012) of one word: the name tells nothing of the secret, its key.
std::uint64_t siphash(const JobSecret& key, std::uint64_t word) noexcept {
  std::array<std::uint64_t, 2> k;
  std::memcpy(k.data(), key.data(), sizeof k);
  std::uint64_t v0 = 0x736f6d6570736575u ^ k[0], v1 = 0x646f72616e646f6du ^ k[1];
  std::uint64_t v2 = 0x6c7967656e657261u ^ k[0], v3 = 0x7465646279746573u ^ k[1];
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1, v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1, v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  for (const std::uint64_t block : {word, std::uint64_t{sizeof word} << 56}) {
    v3 ^= block;
    rounds(2);
    v0 ^= block;
  }
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

socklen_t address_of(std::string_view name, sockaddr_un& address) noexcept {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);  // Behind a zero: the abstract namespace.
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

Result<FileDescriptor> make_packet_socket(int flags) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket.valid()) return system_error("a socket for the network processor", errno);
  return socket;
}

}  // namespace

std::string nicd_name(uid_t uid) { return "ch3-offload-nicd." + std::to_string(uid); }

std::string nicd_name(uid_t uid, const JobSecret& secret) {
  std::array<char, 32> hash;
  std::snprintf(hash.data(), hash.size(), ".%016llx", static_cast<unsigned long long>(siphash(secret, uid)));
  return nicd_name(uid) + hash.data();
}

Result<FileDescriptor> listen_as_nicd(std::string_view name) {
  Result<FileDescriptor> socket = make_packet_socket(SOCK_NONBLOCK);
  if (!socket.ok()) return socket;
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  if (::bind(socket.value().get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE)
      return Error{Status::kPeerFailed, errno,
                   "a network processor listens as " + std::string(name) + " already"};
    return system_error("listening as " + std::string(name), errno);
  }
  if (::listen(socket.value().get(), SOMAXCONN) != 0)
    return system_error("listening as " + std::string(name), errno);
  return socket;
}

Result<FileDescriptor> connect_to_nicd(std::string_view name) {
  Result<FileDescriptor> socket = make_packet_socket(0);
  if (!socket.ok()) return socket;
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  if (::connect(socket.value().get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return Error{Status::kUnreachable, errno, "nobody listens as " + std::string(name)};
  if (const NicdPeer peer = nicd_peer(socket.value()); peer.uid != ::geteuid())
    return Error{Status::kUnsupported, 0,
                 "user " + std::to_string(peer.uid) + " listens as " + std::string(name) +
                     ", the name of this user's network processor"};
  return socket;
}

NicdPeer nicd_peer(const FileDescriptor& socket) noexcept {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return {};
  return {credentials.uid, credentials.pid};
}

bool send_to(const FileDescriptor& socket, std::span<const std::byte> message,
             std::span<const int> files) noexcept {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(PortMemory::kFiles * sizeof(int))> control{};
  if (!files.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(rights), files.data(), files.size_bytes());
  }
  return ::sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(message.size());
}

NicdReceipt receive_from(const FileDescriptor& socket, std::span<std::byte> message,
                         std::span<FileDescriptor> files) noexcept {
  iovec part{message.data(), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(PortMemory::kFiles * sizeof(int))> control{};
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0) return errno == EAGAIN || errno == EINTR ? NicdReceipt::kNothing : NicdReceipt::kClosed;
  std::size_t count = 0;
  bool fits = true;
  for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t held = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < held; ++i) {
      int number;
      std::memcpy(&number, CMSG_DATA(one) + i * sizeof number, sizeof number);
      FileDescriptor file(number);
      if (count < files.size())
        files[count++] = std::move(file);
      else
        fits = false;
    }
  }
  if (length == 0) return NicdReceipt::kClosed;
  if (static_cast<std::size_t>(length) != message.size() || !fits || (count != 0 && count != files.size()) ||
      (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return NicdReceipt::kInvalid;
  return NicdReceipt::kMessage;
}

void set_text(std::span<char> array, std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), array.size() - 1);
  std::memcpy(array.data(), text.data(), length);
  std::memset(array.data() + length, 0, array.size() - length);
}

std::string_view text_of(std::span<const char> array) noexcept {
  return {array.data(),
          static_cast<std::size_t>(std::find(array.begin(), array.end(), '\0') - array.begin())};
}

}  // namespace ch3_offload
