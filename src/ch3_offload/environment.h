// What the environment makes of the settings: as MPICH reads its control variables, and the library judges them.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/settings.h"

namespace ch3_offload {

struct SettingState {
  const Setting* setting;
  std::string standard;                  ///< The default.
  std::string value;                     ///< As the environment has it; the default when it says nothing.
  std::string source;                    ///< The environment variable that it comes from. Empty: the default.
  std::optional<std::string> complaint;  ///< Why MPI_Init would refuse it.
};

struct Environment {
  ch3_offload_config_t config;         ///< Valid when no setting has a complaint.
  std::vector<SettingState> settings;  ///< In the order of settings().
  std::vector<std::string> strangers;  ///< MPIR_CVAR_CH3_OFFLOAD_* that are no settings: misspelt, as a rule.

  bool valid() const noexcept;
};

/// Reads the environment of this process; the config points into it. If mpiexec has started this process, the
/// config says which one of the node it is.
Environment read_environment();

}  // namespace ch3_offload
