// What an interface can do: what its program wants, as far as the process below can do it.
//
// Threads: any. Plain values.

#pragma once

#include "engine/targets/target_interface.h"
#include "portals/portals4.h"
#include "portals/portals_process.h"

namespace ch3_offload::portals {

/// `desired`: null: as much as can be.
ptl_ni_limits_t negotiate(const ptl_ni_limits_t* desired, const ProcessLimits& process) noexcept;

/// The same for the port.
TargetInterfaceConfig interface_config(const ptl_ni_limits_t& limits, UserId user) noexcept;

}  // namespace ch3_offload::portals
