// What a user asks for of the RDMA ports of a node: "DEVICE[:PORT[:GID_INDEX]]", several with commas between.
//
// Free of libibverbs. Threads: any; nothing here has state.

#pragma once

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

}  // namespace ch3_offload
