// What a process publishes so that others can connect to it over TCP.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ch3_offload {

/// "tcp:1/<IP address>/<TCP port>/<slot>/<instance>", the instance as 16 hex digits. There the process accepts
/// introductions (rdma/introduction).
struct TcpAddress {
  static constexpr std::size_t kMostBytes = 160;  ///< Of to_string().
  static constexpr std::uint32_t kLeastSlotBytes = 256;
  static constexpr std::uint32_t kMostSlotBytes = 65536;

  std::string host;              ///< IPv4 or IPv6, in numbers.
  std::uint16_t port = 0;        ///< Host byte order.
  std::uint32_t slot_bytes = 0;  ///< The longest message that it takes: kLeastSlotBytes to kMostSlotBytes.
  std::uint64_t instance = 0;    ///< Random: another process at the same port is not mistaken for this one.

  std::string to_string() const;
  /// Nothing: not an address of this version. Any input.
  static std::optional<TcpAddress> parse(std::string_view text);
};

}  // namespace ch3_offload
