// What a process publishes so that others can connect to it over verbs.

#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ch3_offload {

/// "verbs:1/<r: RoCE, i: InfiniBand>/<IP address>/<TCP port>/<instance>/<subnet prefix>", the last two as 16 hex
/// digits. The TCP port is where the process sets up connections (control_channel.h).
struct VerbsAddress {
  static constexpr std::size_t kMostBytes = 112;  ///< Of to_string().

  bool ethernet = false;
  std::string host;            ///< IPv4 or IPv6, in numbers.
  std::uint16_t port = 0;      ///< TCP, host byte order.
  std::uint64_t instance = 0;  ///< Random: another process at the same port is not mistaken for this one.
  std::uint64_t subnet_prefix = 0;  ///< InfiniBand: of its GID. RoCE: 0.

  std::string to_string() const;
  /// Nothing: not an address of this version. Any input.
  static std::optional<VerbsAddress> parse(std::string_view text);

  /// Whether queue pairs can be connected: the same link layer and, on InfiniBand, subnet.
  bool same_fabric(const VerbsAddress& other) const noexcept {
    return ethernet == other.ethernet && subnet_prefix == other.subnet_prefix;
  }
};

/// A numeric IP address and port for connect() and bind(). Nothing: `host` is not an IP address.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};
std::optional<SocketAddress> socket_address(const std::string& host, std::uint16_t port) noexcept;

/// The address that others reach this node at, where the RDMA port itself has none: of `interface_or_address` (a
/// network interface or an IP address of this node) or, when that is empty, of the host's name, or else of the first
/// interface that is up. Empty: there is none.
std::string find_host_address(const std::string& interface_or_address);

}  // namespace ch3_offload
