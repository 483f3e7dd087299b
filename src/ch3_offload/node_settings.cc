#include "ch3_offload/node_settings.h"

#include <optional>
#include <string_view>

#include "ch3_offload/nic_choice.h"
#include "ch3_offload/settings.h"
#include "rdma/introduction/host_address.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {
namespace {

/// Why a thread could not have these cores.
std::optional<std::string> why_no_cores(const ch3_offload_config_t& config) {
  ch3_offload_config_t with_thread = config;
  with_thread.nic = "thread";
  const Result<NicChoice> choice = choose_nic_here(with_thread);
  if (choice.ok()) return {};
  return choice.error().message;
}

}  // namespace

std::vector<std::string> meaningless_here(const ch3_offload_config_t& config, const UsedOfNode& used) {
  std::vector<std::string> lines;
  const auto say = [&](const char* variable, std::string_view value, std::string_view why) {
    constexpr std::string_view kOther = "verbs: ";  // Who says why speaks for the provider.
    if (why.starts_with(kOther)) why.remove_prefix(kOther.size());
    lines.push_back(std::string(variable) + "=" + std::string(value) +
                    " means nothing on this node: " + std::string(why));
  };
  if (*config.verbs_device != '\0' && !used.verbs)
    if (const auto why = why_no_such_port(config.verbs_device, verbs_config(config).partition_key))
      say("MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE", config.verbs_device, *why);
  if (*config.network_interface != '\0' && !used.interfaces) {
    const auto address = find_host_address(config.network_interface, /*loopback_serves=*/true);
    if (!address.ok())
      say("MPIR_CVAR_CH3_OFFLOAD_INTERFACE", config.network_interface, address.error().message);
  }
  if (*config.nic_cores != '\0' && !used.cores)
    if (const auto why = why_no_cores(config)) lines.push_back(*why);
  if (*config.nicd != '\0' && !used.nicd)
    if (const std::string why = obstacle_to_program(config); !why.empty())
      say("MPIR_CVAR_CH3_OFFLOAD_NICD", config.nicd, why);
  return lines;
}

}  // namespace ch3_offload
