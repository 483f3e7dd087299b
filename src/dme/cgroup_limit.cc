#include "dme/cgroup_limit.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace ch3_offload {

namespace {

/// Of the group and those above it.
std::size_t least_on_the_way_up(const std::string& root, std::string group, const char* file) {
  std::size_t least = SIZE_MAX;
  for (;;) {
    std::ifstream limit(root + group + "/" + file);
    std::size_t bytes = 0;  // "max" is no number. Version 1 says "none" by one that is next to infinite.
    if (limit >> bytes && bytes < SIZE_MAX / 4) least = std::min(least, bytes);
    if (group.empty()) return least;
    group.resize(std::min(group.rfind('/'), group.size() - 1));
  }
}

}  // namespace

std::size_t cgroup_memory_limit(const std::string& process, const std::string& mounts) {
  // "0::/group" in version 2; "4:cpu,memory:/group" in version 1.
  std::size_t least = SIZE_MAX;
  std::ifstream groups(process);
  for (std::string line; std::getline(groups, line);) {
    const std::size_t controllers = line.find(':') + 1;
    const std::size_t path = line.find(':', controllers);
    if (controllers == 0 || path == std::string::npos || line.size() < path + 2 || line[path + 1] != '/')
      continue;
    std::string group = line.substr(path + 1);
    if (group == "/") group.clear();
    std::istringstream names(line.substr(controllers, path - controllers));
    bool is_memory = false;
    for (std::string name; std::getline(names, name, ',');) is_memory |= name == "memory";
    if (path == controllers) {
      least = std::min(least, least_on_the_way_up(mounts, group, "memory.max"));
    } else if (is_memory) {
      least = std::min(least, least_on_the_way_up(mounts + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace ch3_offload
