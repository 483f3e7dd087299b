// Where the processes of the job on this node may run, as far as this process can tell.
//
// The children of the launcher are the job's processes on this node if there are as many, and this process is
// one of them. Then their affinity masks are known. Otherwise (a shell starts each process, or /proc does not
// tell) only this process's own and its parent's are.
//
// Threads: any; nothing here has state.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nic/cores.h"
#include "rdma/processor_set.h"

namespace ch3_offload {

struct NodeProcesses {
  std::uint32_t local_rank = 0;     ///< Number of this process among them.
  std::uint32_t local_size = 1;     ///< At least 1.
  std::uint32_t threads = 1;        ///< That compute, in each process (OMP_NUM_THREADS). At least 1.
  ProcessorSet own;                 ///< That this process may run on. Empty: cannot tell.
  ProcessorSet launcher;            ///< That its parent may run on. Empty: cannot tell.
  std::vector<ProcessorSet> masks;  ///< Of all `local_size` processes, in any order. Empty: not known.
  Cores cores;                      ///< What masks and CPU quotas allow.
};

/// REQUIRES: the job's processes on this node have been started and bound.
NodeProcesses read_node_processes(std::uint32_t local_rank, std::uint32_t local_size);

}  // namespace ch3_offload
