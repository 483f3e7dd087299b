// How much memory a process may keep registered, where nobody says.

#pragma once

#include <cstddef>

#include "dme/pin_down_cache.h"

namespace ch3_offload {

struct PinLimits {
  std::size_t locked_bytes = SIZE_MAX;  ///< RLIMIT_MEMLOCK; SIZE_MAX: it does not bind this process.
  std::size_t memory_bytes = SIZE_MAX;  ///< The node's, or of the control group.
  std::size_t processes = 1;            ///< Of the job on this node, which share it.
};

/// What binds this process, one of `processes` on its node. Throws std::bad_alloc.
PinLimits pin_limits(std::size_t processes);

/// Half of the node's memory shared by its processes, and three quarters of what may be locked (the rest is for slots): never
/// unlimited. 65536 regions, shared likewise, which is half of what devices with few have.
PinDownConfig pin_budget(const PinLimits& limits) noexcept;

}  // namespace ch3_offload
