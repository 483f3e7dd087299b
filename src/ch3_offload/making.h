// What an engine and its network are made of, by the settings: the same for a process that runs its own engine
// and for a network processor that runs it.
//
// Threads: any; nothing here has state.

#pragma once

#include <memory>

#include "ch3_offload/ch3_offload.h"
#include "engine/engine.h"
#include "rdma/log.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// Without what concerns providers and the trace.
EngineConfig engine_config(const ch3_offload_config_t& config);

/// The verbs provider of process `self`. The error's message names the settings that narrow its choice.
Result<std::unique_ptr<Provider>> make_network(const ch3_offload_config_t& config, PeerId self,
                                               void (*log)(void* context, LogScope scope, const char* line),
                                               void* log_context);

/// Whether the job has processes on other nodes, as far as is known.
inline bool has_others_elsewhere(const ch3_offload_config_t& config) noexcept {
  return config.local_size == 0 || config.local_size < config.job_size;
}

}  // namespace ch3_offload
