// The settings of a process in its hello to a network processor.
//
// Threads: any; nothing here has state.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "nic/nicd_protocol.h"

namespace ch3_offload {

/// Processes that a job may say it has: more than any process manager starts. And that all jobs of a user may
/// say together: each costs a network processor some 16 bytes.
inline constexpr std::uint32_t kMostProcesses = 1U << 20;
inline constexpr std::uint32_t kMostProcessesOfJobs = 4 * kMostProcesses;

/// What a hello says. `settings` keeps the text that `config` points into. Nothing, or why it is refused.
std::optional<std::string> read_hello(const NicdHello& hello, std::vector<std::string>& settings,
                                      ch3_offload_config_t& config);
/// The hello of a process with these settings.
NicdHello make_hello(const ch3_offload_config_t& config);

}  // namespace ch3_offload
