#include "ch3_offload/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace ch3_offload {
namespace {

/// What MPICH reads for each control variable, the last of them winning.
constexpr std::string_view kPrefixes[] = {"MPICH_", "MPIR_PARAM_", "MPIR_CVAR_"};
constexpr std::string_view kOurs = "CH3_OFFLOAD_";

/// "CH3_OFFLOAD_SPIN" of "MPIR_CVAR_CH3_OFFLOAD_SPIN"; empty: no control variable.
std::string_view without_prefix(std::string_view name) noexcept {
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return {};
}

SettingState read_setting(const Setting& setting, ch3_offload_config_t& config) {
  SettingState state{&setting, to_string(setting, config), to_string(setting, config), {}, {}};
  const char* text = nullptr;
  const auto look_for = [&](std::string_view name_after_prefix) {
    for (const std::string_view prefix : kPrefixes) {
      const std::string name = std::string(prefix).append(name_after_prefix);
      if (const char* const found = std::getenv(name.c_str())) {
        text = found;
        state.source = name;
      }
    }
  };
  for (const char* const alias : setting.aliases)
    if (alias != nullptr) look_for(alias);
  look_for(without_prefix(setting.variable));
  if (text == nullptr) return state;
  state.complaint = set_from_text(setting, text, config);
  state.value = state.complaint ? text : to_string(setting, config);
  return state;
}

/// What mpiexec tells its processes. 0: nothing.
std::uint32_t number_of(const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  const std::int64_t number = text == nullptr ? 0 : parse_int(text).value_or(0);
  constexpr std::int64_t kMostProcesses = 1 << 20;
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number, 0, kMostProcesses));
}

std::vector<std::string> find_strangers() {
  std::vector<std::string> strangers;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const std::string_view ours = without_prefix(name);
    if (!ours.starts_with(kOurs)) continue;
    const bool known = std::ranges::any_of(
        settings(), [&](const Setting& setting) { return without_prefix(setting.variable) == ours; });
    if (!known) strangers.emplace_back(name);
  }
  std::ranges::sort(strangers);
  return strangers;
}

}  // namespace

bool Environment::valid() const noexcept {
  return std::ranges::none_of(settings,
                              [](const SettingState& state) { return state.complaint.has_value(); });
}

Environment read_environment() {
  Environment environment;
  ch3_offload_config_default(&environment.config);
  environment.config.local_size = std::max(number_of("MPI_LOCALNRANKS"), 1U);
  environment.config.local_rank = number_of("MPI_LOCALRANKID");
  for (const Setting& setting : settings())
    environment.settings.push_back(read_setting(setting, environment.config));
  environment.strangers = find_strangers();
  return environment;
}

}  // namespace ch3_offload
