#include "nic/node_processes.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace ch3_offload {
namespace {

/// The children of all threads of a process. Empty: there are none, or /proc does not tell.
std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator thread("/proc/" + std::to_string(process) + "/task", error);
  for (; !error && thread != std::filesystem::directory_iterator(); thread.increment(error)) {
    std::ifstream list(thread->path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

std::vector<ProcessorSet> masks_of_job(std::uint32_t local_size) {
  const std::vector<pid_t> processes = children_of(getppid());
  if (processes.size() != local_size || std::ranges::find(processes, getpid()) == processes.end()) return {};
  std::vector<ProcessorSet> masks;
  for (const pid_t process : processes) {
    masks.push_back(affinity_of(process));
    if (masks.back().empty()) return {};  // It has ended.
  }
  return masks;
}

/// OMP_NUM_THREADS is a number for each level of nested parallelism, with commas between.
std::uint32_t computing_threads() noexcept {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  const std::string_view numbers = text == nullptr ? "" : text;
  std::uint32_t threads = 1;
  std::from_chars(numbers.data(), numbers.data() + numbers.size(), threads);
  return std::clamp(threads, 1U, 1U << 16);
}

}  // namespace

NodeProcesses read_node_processes(std::uint32_t local_rank, std::uint32_t local_size) {
  NodeProcesses node;
  node.local_rank = local_rank;
  node.local_size = std::max(local_size, 1U);
  node.threads = computing_threads();
  node.own = affinity_of(0);
  node.launcher = affinity_of(getppid());
  node.masks = masks_of_job(node.local_size);
  node.cores = usable_cores();
  return node;
}

}  // namespace ch3_offload
