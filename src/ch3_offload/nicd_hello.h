// The settings of a process in its hello to a network processor.
//
// Threads: any; nothing here has state.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "nic/nicd_protocol.h"

namespace ch3_offload {

/// What a hello says. `settings` keeps the text that `config` points into. Nothing, or why it is refused.
std::optional<std::string> read_hello(const NicdHello& hello, std::vector<std::string>& settings,
                                      ch3_offload_config_t& config);
/// The hello of a process with these settings.
NicdHello make_hello(const ch3_offload_config_t& config);

}  // namespace ch3_offload
