// How many cores the processes of this node share, by affinity masks and the CPU quotas of control groups.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ch3_offload {

struct Cores {
  /// Shared by the job's processes of this node. 0: a CPU quota allows less than one.
  std::uint32_t of_node = 1;
  std::uint32_t of_process = 1;  ///< That this process may run on. At least 1.
};

/// Reads affinity masks and control groups. What cannot be read does not limit. Without any mask: one core.
Cores usable_cores();

/// Whole cores that CPU quotas allow a process: the least quota of its control groups and their ancestors.
/// Nothing: there is no quota. `membership`: the text of /proc/self/cgroup. `mounts`: where the hierarchies
/// are mounted (/sys/fs/cgroup).
std::optional<std::uint32_t> quota_cores(std::string_view membership, const std::string& mounts);

}  // namespace ch3_offload
