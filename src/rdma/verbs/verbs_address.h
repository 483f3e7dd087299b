// What a process publishes so that others can connect to it over verbs.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdma/introduction/socket_address.h"

namespace ch3_offload {

/// "verbs:4/<r: RoCE, i: InfiniBand>/<IP address>[+<IP address>]/<TCP
/// port>/<slot>/<network>[+<network>]/<instance>", the networks and the instance as 16 hex digits. At the
/// addresses, at the TCP port, the process accepts introductions (rdma/introduction); either will do. There
/// is one network for each of its rails, in their order.
struct VerbsAddress {
  static constexpr std::size_t kMostRails = 2;
  static constexpr std::size_t kMostBytes = 160;  ///< Of to_string().
  static constexpr std::uint32_t kLeastSlotBytes = 192;
  static constexpr std::uint32_t kMostSlotBytes = 65536;

  bool ethernet = false;
  std::vector<std::string> hosts;  ///< 1 to kMostRails; IPv4 or IPv6, in numbers.
  std::uint16_t port = 0;          ///< TCP, host byte order.
  /// Of its receive slots: a multiple of 64, kLeastSlotBytes to kMostSlotBytes.
  std::uint32_t slot_bytes = 0;
  std::uint64_t instance = 0;  ///< Random: another process at the same port is not mistaken for this one.
  /// 1 to kMostRails. InfiniBand: the subnet prefix of the port's GID. RoCE: network_of_host().
  std::vector<std::uint64_t> networks;

  std::string to_string() const;
  /// Nothing: not an address of this version. Any input.
  static std::optional<VerbsAddress> parse(std::string_view text);

  /// Whether queue pairs can be connected: the same link layer and, on InfiniBand, a common subnet. RoCE goes
  /// through routers.
  bool same_fabric(const VerbsAddress& other) const noexcept;
};

/// A rail of one process and one of another between which queue pairs are connected.
struct RailPair {
  std::uint8_t first = 0;
  std::uint8_t second = 0;
};
/// Those of two processes: rails on the same network where there are any, or else by their order. Both get
/// the same list when both name the same process first.
std::vector<RailPair> pair_rails(const VerbsAddress& first, const VerbsAddress& second);

/// A number for the IP network of `host`, an address of this node: the same for all addresses of that
/// network, on whichever node. 0: no interface has this address.
std::uint64_t network_of_host(const std::string& host);

}  // namespace ch3_offload
