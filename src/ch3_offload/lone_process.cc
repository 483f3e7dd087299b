#include "ch3_offload/lone_process.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "ch3_offload/making.h"
#include "ch3_offload/settings.h"
#include "rdma/rdma_devices.h"

namespace ch3_offload {
void set_lone(ch3_offload_config_t& config, const UserKey& key) noexcept {
  config.job_size = kMostLonePeers;
  const JobSecret secret = key.provider_secret();
  static_assert(sizeof secret == sizeof config.secret);
  std::memcpy(config.secret, secret.data(), sizeof config.secret);
}

Result<std::vector<std::unique_ptr<Provider>>> make_lone_providers(const ch3_offload_config_t& config,
                                                                   const UserKey& key, const LoneLog& log,
                                                                   std::uint32_t first_peer) {
  if (std::optional<Error> error = checksums_missing(config)) return std::move(*error);
  const PeerId self{config.rank};
  std::vector<std::unique_ptr<Provider>> providers;
  const FabricChoice fabric = fabric_choice(config.fabric);
  if (fabric.shm) {
    Result<std::unique_ptr<ShmProvider>> node =
        make_node_provider(config, self, log.write, log.context, first_peer);
    if (!node.ok()) return node.error();
    providers.push_back(with_chosen_checksums(config, std::move(node.value()), /*is_network=*/false,
                                              Log(log.write, log.context)));
  }
  if (!fabric.has_network()) return providers;
  if (!key.proves()) {
    if (!fabric.is_auto)
      return Error{Status::kDeviceFailed, 0,
                   "MPIR_CVAR_CH3_OFFLOAD_FABRIC=" + std::string(config.fabric) +
                       " needs a key file: see CH3_OFFLOAD_KEY_FILE in portals4(7)"};
    if (has_rdma_device())
      log.write(
          log.context, LogScope::kNode,
          "without a key file, processes of other nodes that are not of the same job cannot be reached: "
          "see CH3_OFFLOAD_KEY_FILE in portals4(7), or set MPIR_CVAR_CH3_OFFLOAD_FABRIC=shm");
    return providers;
  }
  auto networks = make_networks(config, self, log.write, log.context, 2, first_peer);
  if (networks.ok())
    std::ranges::move(networks.value(), std::back_inserter(providers));
  else if (!fabric.is_auto)
    return networks.error();
  else  // The processes of this node can still talk to each other.
    log.write(log.context, LogScope::kProcess, networks.error().message.c_str());
  return providers;
}

EngineConfig lone_engine_config(const ch3_offload_config_t& config) {
  EngineConfig engine = engine_config(config);
  engine.first_book_peer = kFirstLonePeer;
  engine.first_foreign_peer = EngineConfig{}.first_foreign_peer;  // It is met as all others.
  engine.senders = 1;
  return engine;
}

Introductions::Config introductions_config(const ch3_offload_config_t& config, const UserKey& key,
                                           std::string card, const LoneLog& log) {
  Introductions::Config introductions;
  introductions.interface = config.network_interface;
  introductions.key = key;
  introductions.card = std::move(card);
  introductions.own = PeerId{config.rank};
  introductions.first_peer = kFirstLonePeer;
  introductions.peer_limit = kMostLonePeers;
  introductions.patience_ms = 3'000 * static_cast<int>(config.peer_timeout_s);
  introductions.log = log.write;
  introductions.log_context = log.context;
  return introductions;
}

}  // namespace ch3_offload
