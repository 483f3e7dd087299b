#include "dme/pin_budget.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "dme/cgroup_limit.h"

namespace ch3_offload {

namespace {

/// Returns whether the process has CAP_IPC_LOCK. RLIMIT_MEMLOCK does not apply to such a process.
bool may_lock_all() noexcept {
  constexpr unsigned kIpcLock = 14;  // CAP_IPC_LOCK, capabilities(7).
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> status(std::fopen("/proc/thread-self/status", "re"),
                                                               &std::fclose);
  if (status == nullptr) return false;
  char line[256];
  unsigned long long effective = 0;
  while (std::fgets(line, sizeof line, status.get()) != nullptr)
    if (std::sscanf(line, "CapEff: %llx", &effective) == 1) break;
  return (effective >> kIpcLock & 1) != 0;
}

}  // namespace

PinLimits pin_limits(std::size_t processes) {
  PinLimits limits;
  limits.processes = std::max<std::size_t>(processes, 1);
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY && !may_lock_all())
    limits.locked_bytes = locked.rlim_cur;
  const long pages = sysconf(_SC_PHYS_PAGES);
  if (pages > 0)
    limits.memory_bytes = static_cast<std::size_t>(pages) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  limits.memory_bytes = std::min(limits.memory_bytes, cgroup_memory_limit());
  return limits;
}

PinDownConfig pin_budget(const PinLimits& limits) noexcept {
  constexpr std::size_t kRegions = 65536;
  constexpr std::size_t kLeastRegions = 64;
  PinDownConfig config;
  config.most_bytes = std::min(limits.memory_bytes / 2 / limits.processes, limits.locked_bytes / 4 * 3);
  config.most_regions = std::max(kRegions / limits.processes, kLeastRegions);
  return config;
}

}  // namespace ch3_offload
