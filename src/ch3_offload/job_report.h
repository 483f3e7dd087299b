// What MPIR_CVAR_CH3_OFFLOAD_REPORT=1 tells of a job when it starts: by which network the processes of its nodes
// reach each other, how messages of each length move there, and why.
//
// What nodes have is in their cards. Of how messages move, one process knows what its own providers do.
//
// Threads: any; nothing here has state.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// A node of a job. All processes of a node have the same networks.
struct ReportedNode {
  std::string_view card;    ///< Of a process there. Any input.
  std::uint32_t ranks = 0;  ///< Processes of the job there.
};

/// Returns the lines. `own`: what the providers of this process can do, in their order; none where the node's processor
/// has them. `driver`: where messages are matched and moved, "host", "thread" or "process".
/// Throws std::bad_alloc.
std::vector<std::string> job_report(const ch3_offload_config_t& config, std::span<const Capabilities> own,
                                    std::string_view driver, std::span<const ReportedNode> nodes);

}  // namespace ch3_offload
