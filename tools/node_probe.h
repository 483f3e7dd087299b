// Tries out on this node what the library needs, with the library's own code where it can.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/nic_choice.h"
#include "rdma/provider.h"
#include "rdma/status.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {

struct NodeFacts {
  std::uint32_t cores = 1;      ///< As the wait policy counts them.
  NicChoice nic;                ///< Valid when nic_error is empty.
  std::string nic_error;        ///< Why the network processor's thread cannot be where the settings want it.
  bool user_runs_nicd = false;  ///< The user runs a network processor for all jobs.
  std::string nicd_error;       ///< Why a job's own one cannot be run. Empty: it can, or none is wanted.
  std::vector<std::string> meaningless;  ///< Settings without a meaning here: meaningless_here().
  std::uint64_t descriptors = 0;         ///< RLIMIT_NOFILE as the library would have it: the hard limit.
  std::string event_error;               ///< Why there is no eventfd. Empty: there is.
  std::string remote_copy_error;  ///< Why one process may not write into its sibling's memory. Empty: it may.
  std::optional<int> ptrace_scope;  ///< kernel.yama.ptrace_scope. Nothing: no Yama here.
  std::optional<int> seccomp;       ///< Of this process: 0 none, 1 strict, 2 filtered (a container's, often).
  std::string shm_error;            ///< Why the shm provider cannot be made. Empty: it can.
  std::string shm_address;          ///< Its address.
  Capabilities shm{};               ///< Valid when shm_error is empty.
  std::uint64_t locked_bytes = UINT64_MAX;  ///< RLIMIT_MEMLOCK; UINT64_MAX: no limit.
  bool may_lock_all = false;                ///< CAP_IPC_LOCK: that limit does not apply to this process.
  std::vector<VerbsPortDescription> verbs_ports;
  std::optional<Error> verbs_error;  ///< Why the verbs provider cannot be made. Nothing: it can.
  std::string verbs_host;            ///< Where it sets up connections: IP addresses, " and " between.
  Capabilities verbs{};              ///< Valid when there is no verbs_error.
  std::optional<Error> tcp_error;    ///< Why the TCP provider cannot be made. Nothing: it can.
  std::string tcp_host;              ///< The IP address at which it listens.
  Capabilities tcp{};                ///< Valid when there is no tcp_error.
  std::string congestion_control;    ///< net.ipv4.tcp_congestion_control. Empty: not known.

  /// Names of the RDMA ports that are used, " and " between them. Empty: none can be.
  std::string used_port() const;
};

/// Makes each provider as `config` (valid) asks for it, and two short-lived child processes. Takes some milliseconds.
NodeFacts probe_node(const ch3_offload_config_t& config);

}  // namespace ch3_offload
