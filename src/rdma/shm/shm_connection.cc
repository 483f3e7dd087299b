#include "rdma/shm/shm_connection.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "rdma/hex.h"
#include "rdma/shm/activity.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kAddressPrefix = "shm:1:";
constexpr int kBacklog = 4096;  ///< The kernel limits it to net.core.somaxconn.

socklen_t fill_socket_name(const ShmAddress& address, sockaddr_un& name) {
  std::string text = "ch3-offload-";
  append_hex(text, address.socket_id[0]);
  append_hex(text, address.socket_id[1]);
  return abstract_address(text, name);
}

std::uint64_t fnv1a(std::uint64_t hash, std::span<const std::byte> bytes) noexcept {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100'0000'01B3u;
  return hash;
}

}  // namespace

std::string ShmAddress::to_string() const {
  std::string text(kAddressPrefix);
  append_hex(text, node_id);
  text += ':';
  append_hex(text, socket_id[0]);
  append_hex(text, socket_id[1]);
  return text;
}

std::optional<ShmAddress> ShmAddress::parse(std::string_view text) noexcept {
  if (text.size() != kAddressPrefix.size() + 16 + 1 + 32 || !text.starts_with(kAddressPrefix)) return {};
  text.remove_prefix(kAddressPrefix.size());
  ShmAddress address;
  if (!parse_hex(text.substr(0, 16), address.node_id) || text[16] != ':' ||
      !parse_hex(text.substr(17, 16), address.socket_id[0]) ||
      !parse_hex(text.substr(33, 16), address.socket_id[1]))
    return {};
  return address;
}

std::uint64_t read_node_id() noexcept {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325u;
  const auto add = [&hash](const void* bytes, std::size_t length) {
    hash = fnv1a(hash, {static_cast<const std::byte*>(bytes), length});
  };
  std::array<std::byte, 64> boot_id{};
  const FileDescriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t length = file.valid() ? ::read(file.get(), boot_id.data(), boot_id.size()) : -1;
  if (length > 0) {
    add(boot_id.data(), static_cast<std::size_t>(length));
  } else {
    // A container without /proc: its name, and the addresses of its network interfaces, are as good.
    utsname name{};
    if (::uname(&name) == 0) add(name.nodename, ::strnlen(name.nodename, sizeof name.nodename));
    ifaddrs* interfaces = nullptr;
    if (::getifaddrs(&interfaces) == 0) {
      for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next)
        if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_PACKET)
          add(reinterpret_cast<const sockaddr_ll*>(one->ifa_addr)->sll_addr, sizeof(sockaddr_ll::sll_addr));
      ::freeifaddrs(interfaces);
    }
  }
  // Of this thread: /proc/self is that of the first one, which may have ended.
  struct stat space {};
  if (::stat("/proc/thread-self/ns/net", &space) == 0 || ::stat("/proc/self/ns/net", &space) == 0)
    add(&space.st_ino, sizeof space.st_ino);
  return hash;
}

std::string_view check_hello(std::span<const std::byte> bytes, const JobSecret& secret, PeerId self,
                             std::uint32_t peer_limit, Hello& hello) noexcept {
  if (bytes.size() != sizeof(Hello)) return "its first message has the wrong length";
  std::memcpy(&hello, bytes.data(), sizeof hello);
  if (!equal_in_constant_time(hello.secret, secret)) return "it does not know the job's secret";
  if (hello.magic != Hello::kMagic || hello.size_bytes != sizeof(Hello)) return "it speaks another protocol";
  if (hello.version != Hello::kVersion) return "it speaks another version of the protocol";
  if (hello.receiver != index_of(self)) return "it looks for another process";
  if (slot_of(PeerId{hello.sender}) >= peer_limit) return "its number is out of range";
  if (hello.sender == index_of(self)) return "it calls itself by this process's number";
  return {};
}

bool check_welcome(std::span<const std::byte> bytes, Welcome& welcome) noexcept {
  if (bytes.size() != sizeof(Welcome)) return false;
  std::memcpy(&welcome, bytes.data(), sizeof welcome);
  return welcome.magic == Welcome::kMagic && welcome.version == Hello::kVersion &&
         welcome.size_bytes == sizeof(Welcome) && welcome.activity_bit < kMostActivityBits &&
         welcome.reserved == 0;
}

Result<FileDescriptor> make_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return system_error("shm: making a Unix-domain socket", errno);
  return socket;
}

Result<FileDescriptor> listen_at(const ShmAddress& address) {
  Result<FileDescriptor> socket = make_socket();
  if (!socket.ok()) return socket;
  sockaddr_un name;
  const socklen_t length = fill_socket_name(address, name);
  if (::bind(socket.value().get(), reinterpret_cast<const sockaddr*>(&name), length) != 0)
    return system_error("shm: binding a Unix-domain socket", errno);
  if (::listen(socket.value().get(), kBacklog) != 0)
    return system_error("shm: listening on a Unix-domain socket", errno);
  return socket;
}

Result<ConnectProgress> connect_to(const FileDescriptor& socket, const ShmAddress& address) {
  sockaddr_un name;
  const socklen_t length = fill_socket_name(address, name);
  int result = -1;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), length);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return ConnectProgress::kConnected;
  if (errno == EAGAIN) return ConnectProgress::kBacklogFull;
  return system_error("shm: connecting to a local process (is it still running?)", errno);
}

FileDescriptor accept_with_last_descriptor(const FileDescriptor& listener) noexcept {
  for (;;) {
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid() || (errno != EINTR && errno != ECONNABORTED)) return socket;
  }
}

FileDescriptor accept_from(const FileDescriptor& listener, int& error_number) noexcept {
  const FileDescriptor spare = duplicate(listener);  // Tests for a second descriptor. Closed on return.
  if (!spare.valid()) {
    const int reason = errno;
    pollfd entry{listener.get(), POLLIN, 0};
    error_number = ::poll(&entry, 1, 0) > 0 ? reason : 0;
    return {};
  }
  FileDescriptor socket = accept_with_last_descriptor(listener);
  error_number = socket.valid() || errno == EAGAIN ? 0 : errno;
  return socket;
}

bool peek(const FileDescriptor& socket, std::span<std::byte> message) noexcept {
  return ::recv(socket.get(), message.data(), message.size(), MSG_PEEK | MSG_DONTWAIT) ==
         static_cast<ssize_t>(message.size());
}

bool send_wake_byte(const FileDescriptor& socket) noexcept {
  const char byte = 'w';
  return ::send(socket.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 || errno == EAGAIN;
}

void hang_up(const FileDescriptor& socket) noexcept { static_cast<void>(::shutdown(socket.get(), SHUT_WR)); }

bool has_hung_up(const FileDescriptor& socket) noexcept {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;  // An interruption by a signal counts as "not closed".
}

WakeBytes drain_wake_bytes(const FileDescriptor& socket) noexcept {
  std::array<char, 256> bytes;
  WakeBytes result = WakeBytes::kNone;
  // The number of reads is limited, because a peer may send without end. epoll reports the rest.
  for (int i = 0; i < 16; ++i) {
    const ssize_t received = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) {
      result = WakeBytes::kSome;
      continue;
    }
    if (received == 0) return WakeBytes::kClosed;
    if (errno == EINTR) continue;
    return errno == EAGAIN ? result : WakeBytes::kClosed;
  }
  return result;
}

}  // namespace ch3_offload
