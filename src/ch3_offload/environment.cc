#include "ch3_offload/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

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

/// The least number of letters to insert, to remove, to replace, or to swap with their neighbours that makes
/// one of the other (Damerau, 1964, without a second change of a swapped pair).
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> two_before, before, row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    two_before = std::exchange(before, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (from[i - 1] != to[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row.back();
}

bool is_ours(const Setting& setting) noexcept { return without_prefix(setting.variable).starts_with(kOurs); }

/// The setting whose name is nearest to `name`, of those that are not further from it than `most`.
const Setting* find_nearest(std::string_view name, std::size_t most) {
  const Setting* nearest = nullptr;
  for (const Setting& setting : settings()) {
    const std::string_view its = without_prefix(setting.variable);
    if (!is_ours(setting) || its.size() > name.size() + most || name.size() > its.size() + most) continue;
    if (const std::size_t far = distance(name, its); far <= most) {
      nearest = &setting;
      if (far == 0) break;
      most = far - 1;
    }
  }
  return nearest;
}

std::optional<Stranger> as_stranger(std::string_view name) {
  constexpr std::size_t kSlips = 2;
  const std::string_view rest = without_prefix(name);
  const bool has_prefix = !rest.empty();
  if (!has_prefix && !name.starts_with(kOurs)) return {};
  const std::string_view said = has_prefix ? rest : name;
  const bool is_claimed = has_prefix && rest.starts_with(kOurs);
  // What follows "CH3_OFFLOAD_" may be a third of another word.
  const std::size_t most = is_claimed ? std::max(kSlips, (rest.size() - kOurs.size()) / 3) : kSlips;
  const Setting* const nearest = find_nearest(said, has_prefix ? most : 0);
  const bool is_known = has_prefix && nearest != nullptr && without_prefix(nearest->variable) == rest;
  if (is_known || (nearest == nullptr && !is_claimed)) return {};
  return Stranger{std::string(name), nearest == nullptr ? "" : nearest->variable};
}

}  // namespace

SettingState read_setting(const Setting& setting, ch3_offload_config_t& config) {
  SettingState state{&setting, to_string(setting, config), {}, {}};
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
  if (text == nullptr || *text == '\0') {
    state.source.clear();
    return state;
  }
  state.complaint = set_from_text(setting, text, config, state.source);
  state.value = state.complaint ? text : to_string(setting, config);
  return state;
}

std::string Stranger::text() const {
  const std::string what = name + " is set, but there is no such setting";
  if (nearest.empty()) return what + ": ch3-offload-info lists all";
  return what + ": did you mean " + nearest + "?";
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

Environment read_environment() {
  Environment environment;
  ch3_offload_config_default(&environment.config);
  environment.config.local_size = std::max(number_in_environment("MPI_LOCALNRANKS"), 1U);
  environment.config.local_rank = number_in_environment("MPI_LOCALRANKID");
  for (const Setting& setting : settings())
    environment.settings.push_back(read_setting(setting, environment.config));
  environment.strangers = find_strangers();
  return environment;
}

}  // namespace ch3_offload
