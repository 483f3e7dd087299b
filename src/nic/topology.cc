#include "nic/topology.h"

#include <hwloc.h>

#include <cerrno>
#include <memory>

#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

std::uint32_t number_of_ancestor(hwloc_topology* topology, hwloc_obj_type_t type, hwloc_obj* processor) {
  const hwloc_obj* const ancestor = hwloc_get_ancestor_obj_by_type(topology, type, processor);
  return ancestor == nullptr ? kNone : ancestor->logical_index;
}

/// Memory is no ancestor of a processor. A processor with several kinds of memory gets the first.
std::uint32_t number_of_memory(hwloc_topology* topology, const hwloc_obj* processor) {
  for (hwloc_obj* node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    if (hwloc_bitmap_isset(node->cpuset, processor->os_index) != 0) return node->logical_index;
  return kNone;
}

/// Only what topology_of() asks for: looking for I/O devices takes far longer.
int load(hwloc_topology* topology) {
  if (hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) != 0) return -1;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_CORE, HWLOC_OBJ_L3CACHE})
    if (hwloc_topology_set_type_filter(topology, type, HWLOC_TYPE_FILTER_KEEP_ALL) != 0) return -1;
  return hwloc_topology_load(topology);
}

}  // namespace

Result<Topology> read_topology() {
  hwloc_topology* made = nullptr;
  if (hwloc_topology_init(&made) != 0) return system_error("hwloc_topology_init", errno);
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)> topology(made, &hwloc_topology_destroy);
  if (load(made) != 0) return system_error("hwloc_topology_load", errno);
  if (hwloc_topology_is_thissystem(made) == 0)
    return Error{Status::kDeviceFailed, 0,
                 "hwloc describes another machine (unset HWLOC_XMLFILE and HWLOC_SYNTHETIC, or set "
                 "HWLOC_THISSYSTEM=1 if the file is this machine's)"};
  Topology read = topology_of(made);
  if (read.processors.empty())
    return Error{Status::kDeviceFailed, 0, "hwloc finds no processors (is /sys mounted?)"};
  return read;
}

Topology topology_of(hwloc_topology* loaded) {
  Topology topology;
  for (hwloc_obj* processor = nullptr;
       (processor = hwloc_get_next_obj_by_type(loaded, HWLOC_OBJ_PU, processor)) != nullptr;) {
    std::uint32_t core = number_of_ancestor(loaded, HWLOC_OBJ_CORE, processor);
    if (core == kNone) core = processor->logical_index;  // Cores are not known: each processor counts as one.
    topology.processors.push_back({processor->os_index, core,
                                   number_of_ancestor(loaded, HWLOC_OBJ_L3CACHE, processor),
                                   number_of_memory(loaded, processor)});
  }
  return topology;
}

}  // namespace ch3_offload
