#include "ch3_offload/setting_names.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ch3_offload {
namespace {

constexpr std::string_view kPrefixes[] = {"MPICH_", "MPIR_PARAM_", "MPIR_CVAR_"};

/// Damerau, 1964, without a second change of a swapped pair.
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

}  // namespace

std::span<const std::string_view> variable_prefixes() noexcept { return kPrefixes; }

std::string_view without_prefix(std::string_view name) noexcept {
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return {};
}

const Setting* find_setting(std::string_view name) noexcept {
  const std::string_view rest = without_prefix(name);
  if (rest.empty()) return nullptr;
  for (const Setting& setting : settings()) {
    if (without_prefix(setting.variable) == rest) return &setting;
    for (const char* const alias : setting.aliases)
      if (alias != nullptr && alias == rest) return &setting;
  }
  return nullptr;
}

const Setting* find_nearest(std::string_view name, std::size_t most) {
  const Setting* nearest = nullptr;
  for (const Setting& setting : settings()) {
    const std::string_view its = without_prefix(setting.variable);
    if (!its.starts_with(kOwnNames) || its.size() > name.size() + most || name.size() > its.size() + most)
      continue;
    if (const std::size_t far = distance(name, its); far <= most) {
      nearest = &setting;
      if (far == 0) break;
      most = far - 1;
    }
  }
  return nearest;
}

std::size_t most_slips(std::string_view name) noexcept {
  constexpr std::size_t kFewest = 2;
  return name.starts_with(kOwnNames) ? std::max(kFewest, (name.size() - kOwnNames.size()) / 3) : kFewest;
}

std::string hint_at(const Setting* nearest) {
  if (nearest == nullptr) return ": ch3-offload-info lists all";
  return std::string(": did you mean ") + nearest->variable + "?";
}

}  // namespace ch3_offload
