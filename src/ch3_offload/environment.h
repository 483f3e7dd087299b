// What the environment, and the files of settings where it says nothing, make of the settings. Each control
// variable is also read under MPICH's older prefixes.
//
// Threads: any, while none changes the environment.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/settings.h"
#include "ch3_offload/settings_files.h"

namespace ch3_offload {

struct SettingState {
  const Setting* setting;
  std::string value;   ///< As it was written; the default if nothing was, or it is empty.
  std::string source;  ///< The environment variable that it comes from, or FILE:LINE. Empty: the default.
  std::optional<std::string> complaint;  ///< Why MPI_Init would refuse it.
};

/// A variable of the environment that seems to be meant for a setting, and is none.
struct Stranger {
  std::string name;
  const Setting* nearest;  ///< The one whose name is most like it. nullptr: none is like it.

  /// A line that says so.
  std::string text() const;
};

struct Environment {
  ch3_offload_config_t config;         ///< Valid when no setting has a complaint.
  std::vector<SettingState> settings;  ///< In the order of settings().
  std::vector<Stranger> strangers;     ///< By name.
  std::vector<SettingsFile> files;
  std::vector<std::string> warnings;  ///< find_warnings()

  bool valid() const noexcept;
};

/// What the environment says of one setting, or `files` if it says nothing. `config` keeps pointers into both.
/// It is as it was where neither says anything, or what is refused.
SettingState read_setting(const Setting& setting, const SettingsFiles& files, ch3_offload_config_t& config);

/// MPIR_CVAR_CH3_OFFLOAD_* that are no settings, names that are a letter or two beside one, and settings
/// without MPIR_CVAR_.
std::vector<Stranger> find_strangers();

/// Lines about what is set without effect: in the environment, and in `files`.
std::vector<std::string> find_warnings(const SettingsFiles& files = settings_files());

/// The number of processes, or of one of them, that a launcher has put into `variable`. 0: it is not set, or no
/// number.
std::uint32_t number_in_environment(const char* variable) noexcept;

/// Reads the environment of this process and `files`. The config points into both. If mpiexec has started
/// this process, the config says which one of the node it is.
Environment read_environment(const SettingsFiles& files = settings_files());

}  // namespace ch3_offload
