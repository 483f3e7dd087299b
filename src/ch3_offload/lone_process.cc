#include "ch3_offload/lone_process.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "ch3_offload/making.h"
#include "rdma/rdma_devices.h"

namespace ch3_offload {
namespace {

constexpr PeerId kFirstPeer{index_of(kLoneSelf) + 1};

}  // namespace

void set_lone(ch3_offload_config_t& config, const UserKey& key) noexcept {
  config.rank = index_of(kLoneSelf);
  config.job_size = kMostLonePeers;
  const JobSecret secret = key.provider_secret();
  static_assert(sizeof secret == sizeof config.secret);
  std::memcpy(config.secret, secret.data(), sizeof config.secret);
}

Result<std::vector<std::unique_ptr<Provider>>> make_lone_providers(const ch3_offload_config_t& config,
                                                                   const UserKey& key, const LoneLog& log) {
  std::vector<std::unique_ptr<Provider>> providers;
  const std::string_view fabric = config.fabric;
  if (fabric != "verbs") {
    Result<std::unique_ptr<ShmProvider>> node = make_node_provider(config, kLoneSelf, log.write, log.context);
    if (!node.ok()) return node.error();
    providers.push_back(std::move(node.value()));
  }
  if (fabric == "shm") return providers;
  if (fabric == "auto" && !key.proves()) {
    if (has_rdma_device())
      log.write(log.context, LogScope::kNode,
                "without a key file, Portals processes of other nodes cannot be reached: see "
                "CH3_OFFLOAD_KEY_FILE in portals4(7), or set MPIR_CVAR_CH3_OFFLOAD_FABRIC=shm");
    return providers;
  }
  if (!key.proves())
    return Error{
        Status::kDeviceFailed, 0,
        "MPIR_CVAR_CH3_OFFLOAD_FABRIC=verbs needs a key file: see CH3_OFFLOAD_KEY_FILE in portals4(7)"};
  Result<std::unique_ptr<Provider>> network = make_network(config, kLoneSelf, log.write, log.context);
  if (network.ok())
    providers.push_back(std::move(network.value()));
  else if (fabric == "verbs")
    return network.error();
  else  // The processes of this node can still talk to each other.
    log.write(log.context, LogScope::kProcess, network.error().message.c_str());
  return providers;
}

EngineConfig lone_engine_config(const ch3_offload_config_t& config) {
  EngineConfig engine = engine_config(config);
  engine.first_book_peer = kFirstPeer;
  engine.senders = 1;
  return engine;
}

Introductions::Config introductions_config(const ch3_offload_config_t& config, const UserKey& key,
                                           std::string card, const LoneLog& log) {
  Introductions::Config introductions;
  introductions.interface = config.network_interface;
  introductions.key = key;
  introductions.card = std::move(card);
  introductions.own = kLoneSelf;
  introductions.first_peer = kFirstPeer;
  introductions.peer_limit = kMostLonePeers;
  introductions.patience_ms = 3'000 * static_cast<int>(config.peer_timeout_s);
  introductions.log = log.write;
  introductions.log_context = log.context;
  return introductions;
}

}  // namespace ch3_offload
