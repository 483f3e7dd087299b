// Which of a node's usable ports a process uses at once: its rails.
//
// The best first (survey_verbs_ports()). If there are more of its kind and rate than a process uses, those of the
// first one's network are taken that are near to the process, spread over the processes of the node.
//
// Threads: any; nothing here has state.

#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <string_view>
#include <vector>

#include "rdma/processor_set.h"
#include "rdma/verbs/devices/port_selection.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {

/// Whether at least half of `processors` have no other processor's memory between them and the device, as
/// "device/local_cpulist" in /sys says. So a process that runs anywhere is near to both devices of a node with two
/// sockets. True also where that is not known: a virtual device, an empty set.
bool is_near(const ibv_device& device, const ProcessorSet& processors);

/// Those of `usable` (survey_verbs_ports() of `config.device`) that a process of `config` uses at once, at most
/// config.most_rails: in the order of `usable`, so that two processes' first ones reach each other, and so on.
/// Where the user has named ports, the first of these and others of its kind.
std::vector<VerbsPort> choose_rails(const std::vector<VerbsPort>& usable, const VerbsConfig& config);

/// Why the first of the rails that choose_rails() took from `usable` is that.
std::string why_first_rail(const std::vector<VerbsPort>& usable, const VerbsConfig& config);

}  // namespace ch3_offload
