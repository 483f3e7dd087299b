// The pin-down cache's default limits, for what the user did not set.

#pragma once

#include <cstddef>

#include "dme/pin_down_cache.h"

namespace ch3_offload {

struct PinLimits {
  std::size_t locked_bytes = SIZE_MAX;  ///< RLIMIT_MEMLOCK. SIZE_MAX: it does not apply to this process.
  std::size_t memory_bytes = SIZE_MAX;  ///< Memory of the node or limit of the control group, the lower one.
  std::size_t processes = 1;            ///< Processes of the job on this node. They share the memory.
};

/// Reads the limits of this process, one of `processes` on its node. Throws std::bad_alloc.
PinLimits pin_limits(std::size_t processes);

/// Returns the default limits of the cache. They are never unlimited.
///
///   most_bytes     half of the memory divided by the processes, or three quarters of the lockable memory
///                  (slots need the rest), whichever is lower
///   most_regions   65536 divided by the processes, but at least 64; devices with few regions have 131072
PinDownConfig pin_budget(const PinLimits& limits) noexcept;

}  // namespace ch3_offload
