// Where a process can be dialled: an IP address and port, or a name on its node.
//
// Threads: any.

#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ch3_offload {

/// An IP address in numbers. Empty: it is none.
std::string ip_text(const sockaddr* address);

/// What connect() and bind() take.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  bool is_on_node() const noexcept { return storage.ss_family == AF_UNIX; }
  /// The IP address, in numbers.
  std::string host() const { return ip_text(get()); }
  std::uint16_t port() const noexcept;  ///< Of an IP address, host byte order.
};
/// Nothing: `host` is not an IP address in numbers.
std::optional<SocketAddress> socket_address(const std::string& host, std::uint16_t port) noexcept;
/// In the abstract namespace of Unix-domain sockets: no file is left behind.
SocketAddress address_on_node(std::string_view name) noexcept;

}  // namespace ch3_offload
