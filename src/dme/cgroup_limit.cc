#include "dme/cgroup_limit.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>

namespace ch3_offload {

namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open(const std::string& path) { return {std::fopen(path.c_str(), "re"), &std::fclose}; }

/// Returns the lowest limit of `group` and all groups above it.
std::size_t least_on_the_way_up(const std::string& root, std::string group, const char* name) {
  std::size_t least = SIZE_MAX;
  for (;;) {
    const File file = open(root + group + "/" + name);
    // No limit is "max" in version 2, and a number near the greatest one in version 1.
    unsigned long long bytes = 0;
    if (file != nullptr && std::fscanf(file.get(), "%19llu", &bytes) == 1 && bytes < SIZE_MAX / 4)
      least = std::min<std::size_t>(least, bytes);
    if (group.empty()) return least;
    group.resize(std::min(group.rfind('/'), group.size() - 1));
  }
}

}  // namespace

std::size_t cgroup_memory_limit(const std::string& process, const std::string& mounts) {
  // A line is "0::/group" in version 2 and, for example, "4:cpu,memory:/group" in version 1.
  std::size_t least = SIZE_MAX;
  const File groups = open(process);
  char text[4096];
  while (groups != nullptr && std::fgets(text, sizeof text, groups.get()) != nullptr) {
    std::string line(text);
    if (line.ends_with('\n')) line.pop_back();
    const std::size_t controllers = line.find(':') + 1;
    const std::size_t path = line.find(':', controllers);
    if (controllers == 0 || path == std::string::npos || line.size() < path + 2 || line[path + 1] != '/')
      continue;
    std::string group = line.substr(path + 1);
    if (group == "/") group.clear();
    const std::string names = "," + line.substr(controllers, path - controllers) + ",";
    if (path == controllers) {
      least = std::min(least, least_on_the_way_up(mounts, group, "memory.max"));
    } else if (names.find(",memory,") != std::string::npos) {
      least = std::min(least, least_on_the_way_up(mounts + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace ch3_offload
