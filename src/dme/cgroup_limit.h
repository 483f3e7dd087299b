// The memory limit of this process's control groups. Batch systems and containers set such limits.

#pragma once

#include <cstddef>
#include <string>

namespace ch3_offload {

/// Returns the lowest limit, in bytes, of the process's group and all groups above it (cgroups(7), versions 1
/// and 2). All processes of a group share its limit. SIZE_MAX: there is no limit, or it cannot be read.
/// Tests pass files of their own as `process` and `mounts`. Throws std::bad_alloc.
std::size_t cgroup_memory_limit(const std::string& process = "/proc/self/cgroup",
                                const std::string& mounts = "/sys/fs/cgroup");

}  // namespace ch3_offload
