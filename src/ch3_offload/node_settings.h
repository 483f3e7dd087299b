// Settings that name what this node does not have, where nothing else would tell: a process that uses what
// they name fails, or is warned, by itself.
//
// Threads: any.

#pragma once

#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"

namespace ch3_offload {

/// What a process uses of what settings name.
struct UsedOfNode {
  bool verbs = false;       ///< RDMA ports.
  bool interfaces = false;  ///< Network interfaces.
  bool cores = false;       ///< Cores of a network processor.
  bool nicd = false;        ///< The program of the node's processor.
};

/// A line for each setting of `config` (valid) that has no meaning on this node and that nobody uses. It
/// opens RDMA devices for a moment if one of them is named.
std::vector<std::string> meaningless_here(const ch3_offload_config_t& config, const UsedOfNode& used);

}  // namespace ch3_offload
