// What a user asks for of the RDMA ports of a node: "DEVICE[:PORT[:GID_INDEX]]", several with commas between,
// and the partition of InfiniBand.
//
// Free of libibverbs. Threads: any; nothing here has state.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ch3_offload {

/// One element of the list.
struct PortWish {
  std::string device;
  int port = 0;        ///< 0: any.
  int gid_index = -1;  ///< -1: the best.
};

/// Nothing: an element is malformed. An empty list has none.
std::optional<std::vector<PortWish>> parse_port_wishes(std::string_view list);

/// Parses a P_Key (IBTA 10.9.1.1) as administrators write it, "0x8001": 0x1 to 0xffff, but not 0x8000, which
/// names no partition. Returns nothing for any other text.
std::optional<std::uint16_t> parse_partition_key(std::string_view text);

/// The bit of a P_Key that says full membership. Two limited members of a partition do not reach each other.
inline constexpr std::uint16_t kFullMember = 0x8000;

}  // namespace ch3_offload
