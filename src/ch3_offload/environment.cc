#include "ch3_offload/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "ch3_offload/setting_names.h"

namespace ch3_offload {
namespace {

std::optional<Stranger> as_stranger(std::string_view name) {
  if (find_setting(name) != nullptr) return {};
  const std::string_view rest = without_prefix(name);
  const bool has_prefix = !rest.empty();
  if (!has_prefix && !name.starts_with(kOwnNames)) return {};
  const std::string_view said = has_prefix ? rest : name;
  const bool is_claimed = has_prefix && rest.starts_with(kOwnNames);
  const Setting* const nearest = find_nearest(said, has_prefix ? most_slips(said) : 0);
  if (nearest == nullptr && !is_claimed) return {};
  return Stranger{std::string(name), nearest};
}

}  // namespace

SettingState read_setting(const Setting& setting, const SettingsFiles& files, ch3_offload_config_t& config) {
  SettingState state{&setting, to_string(setting, config), {}, {}};
  const char* text = nullptr;
  std::string name;  // As a complaint has it.
  const auto look_for = [&](std::string_view name_after_prefix) {
    for (const std::string_view prefix : variable_prefixes()) {
      const std::string variable = std::string(prefix).append(name_after_prefix);
      if (const char* const found = std::getenv(variable.c_str())) {
        text = found;
        name = state.source = variable;
      }
    }
  };
  for (const char* const alias : setting.aliases)
    if (alias != nullptr) look_for(alias);
  look_for(without_prefix(setting.variable));
  if (const FileSetting* const written = text == nullptr ? files.find(setting) : nullptr) {
    text = written->text.c_str();
    state.source = written->place;
    name = written->place + ": " + setting.variable;
  }
  if (text == nullptr || *text == '\0') {
    state.source.clear();
    return state;
  }
  state.complaint = set_from_text(setting, text, config, name);
  state.value = state.complaint ? text : to_string(setting, config);
  return state;
}

std::string Stranger::text() const {
  return name + " is set, but there is no such setting" + hint_at(nearest);
}

std::vector<Stranger> find_strangers() {
  std::vector<Stranger> strangers;
  // clearenv() leaves no list at all.
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (std::optional<Stranger> one = as_stranger(text.substr(0, text.find('='))))
      strangers.push_back(std::move(*one));
  }
  std::ranges::sort(strangers, {}, &Stranger::name);
  return strangers;
}

std::vector<std::string> find_warnings(const SettingsFiles& files) {
  std::vector<std::string> warnings;
  for (const Stranger& stranger : find_strangers()) warnings.push_back(stranger.text());
  std::ranges::copy(files.warnings(), std::back_inserter(warnings));
  return warnings;
}

std::uint32_t number_in_environment(const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  const std::int64_t number = text == nullptr ? 0 : parse_number(text).value_or(0);
  constexpr std::int64_t kMostInJob = 1 << 20;
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number, 0, kMostInJob));
}

bool Environment::valid() const noexcept {
  return std::ranges::none_of(settings,
                              [](const SettingState& state) { return state.complaint.has_value(); });
}

Environment read_environment(const SettingsFiles& files) {
  Environment environment;
  ch3_offload_config_default(&environment.config);
  environment.config.local_size = std::max(number_in_environment("MPI_LOCALNRANKS"), 1U);
  environment.config.local_rank = number_in_environment("MPI_LOCALRANKID");
  for (const Setting& setting : settings())
    environment.settings.push_back(read_setting(setting, files, environment.config));
  environment.strangers = find_strangers();
  environment.files = files.files();
  environment.warnings = find_warnings(files);
  return environment;
}

}  // namespace ch3_offload
