// What a lone process is made of. It belongs to no job, knows others by physical ids (nic/process_book.h),
// and proves by its user's key who it is. The same in libportals and in a network processor that serves it.
//
// Threads: any; nothing here has state.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "engine/engine.h"
#include "nic/introductions.h"
#include "nic/user_key.h"
#include "rdma/log.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// The engine's number for the process itself.
inline constexpr PeerId kLoneSelf{0};
/// Number of the first that a lone process meets.
inline constexpr PeerId kFirstLonePeer{index_of(kLoneSelf) + 1};
/// Processes that one can have met at a time, itself included.
inline constexpr std::uint32_t kMostLonePeers = 1U << 20;

/// Where lines for the user go; as in Log.
struct LoneLog {
  Log::Function write = nullptr;
  void* context = nullptr;
};

/// Writes into `config` that its process knows others by physical ids, and proves who it is by `key`. Its rank
/// is its number for itself: kLoneSelf, unless it is of a job, too.
void set_lone(ch3_offload_config_t& config, const UserKey& key) noexcept;

/// By `config`, which set_lone() has completed. Over the network, a process without a key would believe
/// whoever calls itself by the user's name: so there is a network for those with a key file only.
/// kDeviceFailed: FABRIC=verbs without one. Otherwise the provider's error; with `auto`, a network that fails
/// is only logged. `first_peer`: of the processes that are met so; those below it are reached otherwise.
Result<std::vector<std::unique_ptr<Provider>>> make_lone_providers(const ch3_offload_config_t& config,
                                                                   const UserKey& key, const LoneLog& log,
                                                                   std::uint32_t first_peer);

/// Without what concerns registered memory.
EngineConfig lone_engine_config(const ch3_offload_config_t& config);

/// `card`: the engine's. The caller sets nid and pid, if it wants certain ones.
Introductions::Config introductions_config(const ch3_offload_config_t& config, const UserKey& key,
                                           std::string card, const LoneLog& log);

}  // namespace ch3_offload
