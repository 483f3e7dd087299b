// What an engine and its network are made of, by the settings: the same for a process that runs its own
// engine and for a network processor that runs it.
//
// Threads: any; nothing here has state.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/nic_choice.h"
#include "dme/memory_events.h"
#include "engine/engine.h"
#include "nic/nic_thread.h"
#include "nic/port.h"
#include "nic/wait_policy.h"
#include "rdma/log.h"
#include "rdma/provider.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload {

/// EngineConfig::self_copy_bytes of an engine that shares its thread with others.
inline constexpr std::size_t kSharedSelfCopyBytes = std::size_t{64} << 10;

/// Without what concerns providers and the trace.
EngineConfig engine_config(const ch3_offload_config_t& config);

/// The shm provider of process `self`, for peers from slot `first_peer` on.
Result<std::unique_ptr<ShmProvider>> make_node_provider(const ch3_offload_config_t& config, PeerId self,
                                                        void (*log)(void* context, LogScope scope,
                                                                    const char* line),
                                                        void* log_context, std::uint32_t first_peer = 0);

/// The providers of process `self` for processes on other nodes, the best one first: those that the settings
/// ask for, or with "auto" those that this node has. At least one, and at most `most`. The error's message
/// names the settings that narrow the choice.
Result<std::vector<std::unique_ptr<Provider>>> make_networks(const ch3_offload_config_t& config, PeerId self,
                                                             void (*log)(void* context, LogScope scope,
                                                                         const char* line),
                                                             void* log_context, std::size_t most = 2,
                                                             std::uint32_t first_peer = 0);

/// `provider`, within a node or between nodes, with checksums if the settings ask for them there.
/// REQUIRES: checksums_missing() has found nothing.
std::unique_ptr<Provider> with_chosen_checksums(const ch3_offload_config_t& config,
                                                std::unique_ptr<Provider> provider, bool is_network, Log log);

/// Why there can be no checksums, if the settings ask for them: this library was built without.
std::optional<Error> checksums_missing(const ch3_offload_config_t& config);

/// The line for a job that spans nodes where this one has no network, because of `error`.
std::string without_network(const Error& error);

/// The same for all that these providers may keep registered.
PinDownConfig pin_down_config(const ch3_offload_config_t& config,
                              std::span<const std::unique_ptr<Provider>> providers);

/// The longest atomic operation, and the longest put or reply that takes effect at once, over all of them.
std::size_t atomic_bytes(std::span<const std::unique_ptr<Provider>> providers) noexcept;
/// The same where slots have so many bytes.
std::size_t atomic_bytes(std::size_t slot_bytes) noexcept;

/// Sees when memory goes that `port` keeps registered. Null: the port keeps none, or none any more; then
/// `warning` says why.
std::unique_ptr<MemoryEvents> watch_memory(Port& port, std::string& warning);

/// Binds the thread to the place that was chosen for it. Only a place that the user chose is worth an error;
/// for another one, `warning` says why it runs elsewhere.
std::optional<Error> bind_nic_thread(NicThread& thread, const NicChoice& nic, std::string& warning);

/// How a thread of this process waits. `shares`: others want its core all the time. `others`: processes on
/// this node that are none of the job's, and compute.
WaitPolicy wait_policy(const ch3_offload_config_t& config, bool shares, std::uint32_t others = 0) noexcept;

/// Whether the job has processes on other nodes, as far as is known.
inline bool has_others_elsewhere(const ch3_offload_config_t& config) noexcept {
  return config.local_size == 0 || config.local_size < config.job_size;
}

}  // namespace ch3_offload
