// What an engine and its network are made of, by the settings: the same for a process that runs its own engine
// and for a network processor that runs it.
//
// Threads: any; nothing here has state.

#pragma once

#include <memory>

#include "ch3_offload/ch3_offload.h"
#include "engine/engine.h"
#include "nic/wait_policy.h"
#include "rdma/log.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// Without what concerns providers and the trace.
EngineConfig engine_config(const ch3_offload_config_t& config);

/// The shm provider of process `self`.
Result<std::unique_ptr<Provider>> make_node_provider(const ch3_offload_config_t& config, PeerId self,
                                                     void (*log)(void* context, LogScope scope,
                                                                 const char* line),
                                                     void* log_context);

/// The verbs provider of process `self`. The error's message names the settings that narrow its choice.
Result<std::unique_ptr<Provider>> make_network(const ch3_offload_config_t& config, PeerId self,
                                               void (*log)(void* context, LogScope scope, const char* line),
                                               void* log_context);

/// How a thread of this process waits. `shares`: others want its core all the time. `others`: processes on this
/// node that are none of the job's, and compute.
WaitPolicy wait_policy(const ch3_offload_config_t& config, bool shares, std::uint32_t others = 0) noexcept;

/// Whether the job has processes on other nodes, as far as is known.
inline bool has_others_elsewhere(const ch3_offload_config_t& config) noexcept {
  return config.local_size == 0 || config.local_size < config.job_size;
}

}  // namespace ch3_offload
