// What the kernel says of a network interface.

#pragma once

#include <cstdint>
#include <string>

namespace ch3_offload {

struct LinkFacts {
  std::string name;             ///< Empty: no interface has the address.
  std::uint32_t mtu_bytes = 0;  ///< 0: not known.
  std::uint32_t rate_mbit = 0;  ///< 0: not known.
};

/// Asks the kernel about the interface with that IP address, which is in numbers.
LinkFacts link_of(const std::string& address);

}  // namespace ch3_offload
