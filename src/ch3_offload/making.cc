#include "ch3_offload/making.h"

#include <cstring>
#include <string>

#include "ch3_offload/settings.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {
namespace {

/// The settings that narrow what verbs may use, for its error messages; the provider does not know their
/// names.
std::string chosen_by_user(const ch3_offload_config_t& config) {
  std::string text;
  const auto add = [&](const char* variable, const std::string& value) {
    if (!value.empty()) text += std::string(text.empty() ? " (" : ", ") + variable + "=" + value;
  };
  add("MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE", config.verbs_device);
  add("MPIR_CVAR_CH3_OFFLOAD_INTERFACE", config.network_interface);
  if (config.first_port != 0)
    add("MPIR_CVAR_CH3_PORT_RANGE",
        std::to_string(config.first_port) + ":" + std::to_string(config.last_port));
  return text.empty() ? text : text + ")";
}

}  // namespace

EngineConfig engine_config(const ch3_offload_config_t& config) {
  EngineConfig engine;
  engine.self = PeerId{config.rank};
  engine.senders = config.job_size;
  engine.eager_limit_bytes = static_cast<std::size_t>(config.eager_limit_bytes);
  engine.unexpected_budget_bytes = static_cast<std::size_t>(config.unexpected_budget_bytes);
  engine.send_buffer_bytes = static_cast<std::size_t>(config.send_buffer_bytes);
  engine.always_ignored = {config.always_ignored_bits, 0};
  engine.channel_bits = config.channel_bits;
  engine.traffic_class = traffic_class(config.traffic_class);
  return engine;
}

Result<std::unique_ptr<Provider>> make_network(const ch3_offload_config_t& config, PeerId self,
                                               void (*log)(void* context, LogScope scope, const char* line),
                                               void* log_context) {
  VerbsConfig verbs = verbs_config(config);
  verbs.self = self;
  static_assert(sizeof verbs.job_secret == sizeof config.secret);
  std::memcpy(verbs.job_secret.data(), config.secret, sizeof config.secret);
  verbs.peer_limit = config.job_size;
  verbs.log = log;
  verbs.log_context = log_context;
  Result<std::unique_ptr<Provider>> provider = make_verbs_provider(verbs);
  if (provider.ok()) return provider;
  Error error = provider.error();
  error.message += chosen_by_user(config);
  return error;
}

}  // namespace ch3_offload
