#include "nic/topology.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "nic/synthetic_topology.h"
#include "rdma/processor_set.h"

namespace ch3_offload {
namespace {

TEST(Topology, HasTheCoreCacheAndMemoryOfEachProcessor) {
  const Topology topology = synthetic_topology("numa:2 l3:2 core:2 pu:2");
  ASSERT_EQ(topology.processors.size(), 16u);
  for (std::uint32_t i = 0; i < 16; ++i) {
    const Topology::Processor& one = topology.processors[i];
    EXPECT_EQ(one.number, i);
    EXPECT_EQ(one.core, i / 2);
    EXPECT_EQ(one.cache, i / 4);
    EXPECT_EQ(one.memory, i / 8);
  }
}

TEST(Topology, WithoutCoresAndCachesCountsEachProcessorAsACore) {
  const Topology topology = synthetic_topology("pu:3");
  ASSERT_EQ(topology.processors.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(topology.processors[i].core, i);
    EXPECT_EQ(topology.processors[i].cache, topology.processors[0].cache);
    EXPECT_EQ(topology.processors[i].memory, topology.processors[0].memory);
  }
}

TEST(Topology, OfThisMachineHasTheProcessorsOfThisProcess) {
  Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  ProcessorSet all;
  for (const Topology::Processor& one : topology.value().processors) all.insert(one.number);
  for (const std::uint32_t processor : affinity_of(0)) EXPECT_TRUE(all.contains(processor)) << processor;
}

TEST(Topology, OfAnotherMachineIsRefused) {
  setenv("HWLOC_SYNTHETIC", "core:4 pu:1", 1);
  const Result<Topology> topology = read_topology();
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_FALSE(topology.ok());
  EXPECT_NE(topology.error().message.find("HWLOC_SYNTHETIC"), std::string::npos) << topology.error().message;
}

}  // namespace
}  // namespace ch3_offload
