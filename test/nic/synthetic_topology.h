// Topologies of machines that are not there, as hwloc's language describes them: "numa:2 core:4 pu:2".

#pragma once

#include <gtest/gtest.h>
#include <hwloc.h>

#include "nic/topology.h"

namespace ch3_offload {

inline Topology synthetic_topology(const char* description) {
  hwloc_topology_t made = nullptr;
  EXPECT_EQ(hwloc_topology_init(&made), 0);
  EXPECT_EQ(hwloc_topology_set_synthetic(made, description), 0) << description;
  EXPECT_EQ(hwloc_topology_load(made), 0) << description;
  Topology topology = topology_of(made);
  hwloc_topology_destroy(made);
  return topology;
}

}  // namespace ch3_offload
