// Which processors of this machine share a core, a cache and memory, as hwloc knows it.
//
// Reading takes some milliseconds, so a process reads the topology only if it places a thread.
//
// Threads: any; nothing here has state.

#pragma once

#include <cstdint>
#include <vector>

#include "rdma/status.h"

struct hwloc_topology;

namespace ch3_offload {

struct Topology {
  struct Processor {
    std::uint32_t number;  ///< The kernel's.
    std::uint32_t core;    ///< Equal: hyperthreads of one core. Likewise below.
    std::uint32_t cache;   ///< The last-level (L3) cache. Where there is none, all are equal.
    std::uint32_t memory;  ///< The NUMA node.
  };
  std::vector<Processor> processors;  ///< Those that the control group allows.
};

/// Reads this machine's. kDeviceFailed: hwloc cannot, or describes another machine. kUnsupported: this
/// library was built without hwloc.
Result<Topology> read_topology();

/// What a loaded topology of hwloc says.
Topology topology_of(hwloc_topology* loaded);

}  // namespace ch3_offload
