// The names under which a user writes a setting, and those that are only like one.
//
// Threads: any; nothing here has state.

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ch3_offload/settings.h"

namespace ch3_offload {

/// What MPICH reads for each control variable, the last of them taking precedence.
std::span<const std::string_view> variable_prefixes() noexcept;

/// What the names of all settings but MPICH's own go on with.
inline constexpr std::string_view kOwnNames = "CH3_OFFLOAD_";

/// "CH3_OFFLOAD_SPIN" of "MPIR_CVAR_CH3_OFFLOAD_SPIN"; empty: it has no such prefix.
std::string_view without_prefix(std::string_view name) noexcept;

/// The setting that `name` stands for, with any of the prefixes. nullptr: it is no setting.
const Setting* find_setting(std::string_view name) noexcept;

/// The setting whose name is nearest to `name`, both without prefix: by the number of letters that are
/// inserted, removed, replaced, or swapped with a neighbour, at most `most`. nullptr: there is none. MPICH's
/// own do not count.
const Setting* find_nearest(std::string_view name, std::size_t most);

/// How many letters of `name`, without prefix, may be wrong: two, or a third of those that follow kOwnNames.
std::size_t most_slips(std::string_view name) noexcept;

/// The end of a sentence that there is no such setting: what was meant, or who knows all. `nearest` may be
/// nullptr.
std::string hint_at(const Setting* nearest);

}  // namespace ch3_offload
