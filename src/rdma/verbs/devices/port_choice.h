// Which of a node's usable ports a process uses at once: its rails.
//
// A process takes the best port (survey_verbs_ports()). If there are more ports of its kind and rate than a
// process uses, it takes some that are in the best one's network and near to it, and the processes of the
// node take turns by their numbers.
//
// Threads: any; nothing here has state.

#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <vector>

#include "rdma/processor_set.h"
#include "rdma/verbs/devices/port_selection.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {

/// Whether the device is local to at least half of `processors`: "device/local_cpulist" in /sys lists those
/// to which it is. So a process that may run on both sockets of a node is near to the devices of either. True
/// also if nothing is known: `processors` is empty, or the device is a virtual one.
bool is_near(const ibv_device& device, const ProcessorSet& processors);

/// The ports of `usable` that a process uses at once, config.most_rails at most. They keep the order of
/// `usable`, so that the first rails of two processes reach each other, and the second ones. `usable` is what
/// survey_verbs_ports() found for config.device. If the user has named ports there, the first one is taken,
/// and others of its kind. REQUIRES: `usable` is not empty.
std::vector<VerbsPort> choose_rails(const std::vector<VerbsPort>& usable, const VerbsConfig& config);

/// Why choose_rails() takes the first of its rails, in words for ch3-offload-info.
std::string why_first_rail(const std::vector<VerbsPort>& usable, const VerbsConfig& config);

}  // namespace ch3_offload
