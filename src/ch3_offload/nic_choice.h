// Which driver of the port a process takes (MPIR_CVAR_CH3_OFFLOAD_NIC), where its thread runs
// (MPIR_CVAR_CH3_OFFLOAD_NIC_CORES), and why. The Channel and ch3-offload-info choose by the same function.
//
// Threads: any; nothing here has state.

#pragma once

#include <string>

#include "ch3_offload/ch3_offload.h"
#include "nic/node_processes.h"
#include "nic/placement.h"
#include "nic/topology.h"

namespace ch3_offload {

struct NicChoice {
  bool has_thread = false;          ///< The thread driver.
  bool has_process = false;         ///< The process driver. Neither: the host driver.
  Placement placement;              ///< Of the thread.
  ProcessorSet process_processors;  ///< Where the process driver's processor may run. Empty: as this process.
  bool is_bound =
      false;            ///< The thread is bound to placement.processors. Otherwise it has its process's mask.
  std::string why;      ///< Of the driver, and of the place if there is a thread.
  std::string warning;  ///< For the user. Empty: none.
};

/// The program of the process driver's processor: the user's, or the installed one.
std::string nicd_program(const ch3_offload_config_t& config);

/// Why it cannot be run. "": it can.
std::string obstacle_to_program(const ch3_offload_config_t& config);

/// Why it cannot be run, or could not reach its clients' memory, as far as can be seen from here. "": it can.
std::string obstacle_to_process(const ch3_offload_config_t& config);

/// By `config` (valid) and what is known of the node. kUnsupported: MPIR_CVAR_CH3_OFFLOAD_NIC_CORES names
/// processors on which the job may not run.
Result<NicChoice> choose_nic(const ch3_offload_config_t& config, const Result<Topology>& topology,
                             const NodeProcesses& node);

/// The same on this machine, which it looks at only as far as the settings need that.
Result<NicChoice> choose_nic_here(const ch3_offload_config_t& config);

}  // namespace ch3_offload
