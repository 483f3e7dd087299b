// How much memory the control groups of this process allow it and the others in them: batch systems and containers set it.

#pragma once

#include <cstddef>
#include <string>

namespace ch3_offload {

/// In bytes, the least of the group's and all groups' above it (cgroups(7), versions 1 and 2); SIZE_MAX: there is no limit, or
/// none that can be read. `process` and `mounts` are for tests. Throws std::bad_alloc.
std::size_t cgroup_memory_limit(const std::string& process = "/proc/self/cgroup",
                                const std::string& mounts = "/sys/fs/cgroup");

}  // namespace ch3_offload
