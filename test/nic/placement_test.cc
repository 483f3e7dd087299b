// Where the threads of a node's processes go, on machines of all kinds.

#include "nic/placement.h"

#include <gtest/gtest.h>

#include "nic/synthetic_topology.h"

namespace ch3_offload {
namespace {

ProcessorSet range(std::uint32_t first, std::uint32_t last) {
  ProcessorSet all;
  for (std::uint32_t i = first; i <= last; ++i) all.insert(i);
  return all;
}

/// The processes of a node whose masks are known, as process `local_rank` of them sees it.
NodeProcesses bound(std::vector<ProcessorSet> masks, std::uint32_t local_rank, const ProcessorSet& launcher) {
  const auto processors = static_cast<std::uint32_t>(launcher.size());
  return {.local_rank = local_rank,
          .local_size = static_cast<std::uint32_t>(masks.size()),
          .own = masks[local_rank],
          .launcher = launcher,
          .masks = masks,
          .cores = {processors, static_cast<std::uint32_t>(masks[local_rank].size())}};
}
NodeProcesses unbound(std::uint32_t processes, const ProcessorSet& launcher) {
  return bound(std::vector<ProcessorSet>(processes, launcher), 0, launcher);
}
/// Each process has the next `each` processors.
NodeProcesses bound_in_a_row(std::uint32_t processes, std::uint32_t each, std::uint32_t local_rank,
                             const ProcessorSet& launcher) {
  std::vector<ProcessorSet> masks;
  for (std::uint32_t i = 0; i < processes; ++i) masks.push_back(range(i * each, i * each + each - 1));
  return bound(masks, local_rank, launcher);
}
NodeProcesses with_unknown_masks(NodeProcesses node) {
  node.masks.clear();
  return node;
}

struct Expected {
  Place place;
  ProcessorSet processors;
};
void expect_alone(const Placement& placement, const Expected& expected) {
  EXPECT_EQ(placement.place, expected.place);
  EXPECT_EQ(placement.processors, expected.processors);
  EXPECT_TRUE(placement.has_core);
  EXPECT_TRUE(placement.all_have_cores);
  EXPECT_FALSE(placement.thread_shares);
  EXPECT_FALSE(placement.client_shares);
  EXPECT_FALSE(placement.some_client_shares);
}
void expect_shared(const Placement& placement, const ProcessorSet& processors) {
  EXPECT_EQ(placement.place, Place::kSharedCores);
  EXPECT_EQ(placement.processors, processors);
  EXPECT_FALSE(placement.has_core);
  EXPECT_FALSE(placement.all_have_cores);
  EXPECT_TRUE(placement.thread_shares);
  EXPECT_TRUE(placement.client_shares);
  EXPECT_TRUE(placement.some_client_shares);
}

TEST(Placement, OnOneCoreIsShared) {
  expect_shared(place_thread(synthetic_topology("core:1 pu:1"), unbound(1, {0})), {0});
}

TEST(Placement, OfOneProcessOnTwoCoresIsItsOwn) {
  expect_alone(place_thread(synthetic_topology("core:2 pu:1"), unbound(1, range(0, 1))),
               {Place::kOwnCores, range(0, 1)});
}

TEST(Placement, OfTwoProcessesOnTwoCoresIsShared) {
  expect_shared(place_thread(synthetic_topology("core:2 pu:1"), unbound(2, range(0, 1))), range(0, 1));
}

TEST(Placement, OfEightUnboundProcessesOnSixteenCoresIsLeftToTheScheduler) {
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"), unbound(8, range(0, 15))),
               {Place::kOwnCores, range(0, 15)});
}

TEST(Placement, OfNineUnboundProcessesOnSixteenCoresIsShared) {
  expect_shared(place_thread(synthetic_topology("core:16 pu:1"), unbound(9, range(0, 15))), range(0, 15));
}

TEST(Placement, OfProcessesOnOneCoreEachIsOnTheCoresWithoutAProcess) {
  for (std::uint32_t rank = 0; rank < 8; ++rank)
    expect_alone(place_thread(synthetic_topology("core:16 pu:1"), bound_in_a_row(8, 1, rank, range(0, 15))),
                 {Place::kFreeCores, range(8, 15)});
}

TEST(Placement, OfProcessesOnTwoCoresEachIsTheirOwn) {
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"), bound_in_a_row(8, 2, 3, range(0, 15))),
               {Place::kOwnCores, range(6, 7)});
}

TEST(Placement, CountsTheComputingThreadsOfEachProcess) {
  NodeProcesses node = bound_in_a_row(4, 4, 1, range(0, 15));
  node.threads = 3;
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"), node), {Place::kOwnCores, range(4, 7)});
  node.threads = 4;
  expect_shared(place_thread(synthetic_topology("core:16 pu:1"), node), range(4, 7));
}

TEST(Placement, SharesTheFreeCoresWithOthersIfTheyAreTooFew) {
  const Placement placement =
      place_thread(synthetic_topology("core:4 pu:1"), bound_in_a_row(3, 1, 0, range(0, 3)));
  EXPECT_EQ(placement.place, Place::kScarceCores);
  EXPECT_EQ(placement.processors, ProcessorSet{3});
  EXPECT_TRUE(placement.thread_shares);
  EXPECT_FALSE(placement.client_shares) << "nobody computes there";
  EXPECT_FALSE(placement.all_have_cores);
}

TEST(Placement, PrefersAnIdleHyperthreadToTheOwnOne) {
  // Four cores; each process on the first hyperthread of one.
  const Placement placement =
      place_thread(synthetic_topology("core:4 pu:2"), bound({{0}, {2}, {4}, {6}}, 2, range(0, 7)));
  EXPECT_EQ(placement.place, Place::kHyperthreads);
  EXPECT_EQ(placement.processors, ProcessorSet{5});
  EXPECT_FALSE(placement.thread_shares);
  EXPECT_FALSE(placement.client_shares);
  EXPECT_FALSE(placement.all_have_cores) << "a hyperthread is no core";
}

TEST(Placement, PrefersAFreeCoreToAnIdleHyperthread) {
  expect_alone(place_thread(synthetic_topology("core:4 pu:2"), bound({{0}, {2}}, 1, range(0, 7))),
               {Place::kFreeCores, range(4, 7)});
}

TEST(Placement, OfProcessesOnWholeCoresUsesBothHyperthreads) {
  const Placement placement =
      place_thread(synthetic_topology("core:4 pu:2"), bound_in_a_row(4, 2, 1, range(0, 7)));
  EXPECT_EQ(placement.place, Place::kHyperthreads);
  EXPECT_EQ(placement.processors, range(2, 3));
  EXPECT_FALSE(placement.thread_shares);
}

TEST(Placement, OfProcessesOnEachHyperthreadIsShared) {
  expect_shared(place_thread(synthetic_topology("core:2 pu:2"), bound_in_a_row(4, 1, 1, range(0, 3))), {1});
}

TEST(Placement, NeverTakesAnotherProcessesHyperthread) {
  const Topology topology = synthetic_topology("core:2 pu:2");
  const NodeProcesses node = bound({{0, 1, 2}, {3}}, 1, range(0, 3));
  expect_shared(place_thread(topology, node), {3});
}

TEST(Placement, StaysAtTheCacheAndTheMemoryOfItsProcess) {
  const Topology topology = synthetic_topology("numa:2 l3:2 core:4 pu:1");
  // One process at each cache.
  expect_alone(place_thread(topology, bound({{0}, {4}, {8}, {12}}, 2, range(0, 15))),
               {Place::kFreeCores, range(9, 11)});
  // A full cache beside an empty one, twice.
  expect_alone(place_thread(topology, bound({{0}, {1}, {2}, {3}, {8}, {9}, {10}, {11}}, 5, range(0, 15))),
               {Place::kFreeCores, range(12, 15)});
  // A full NUMA node beside an empty one.
  expect_alone(place_thread(topology, bound_in_a_row(8, 1, 0, range(0, 15))),
               {Place::kFreeCores, range(8, 15)});
}

TEST(Placement, GoesFartherIfTooFewCoresAreNear) {
  // Three processes and one free core at the first cache, five free cores in the NUMA node.
  expect_alone(
      place_thread(synthetic_topology("numa:2 l3:2 core:4 pu:1"), bound({{0}, {1}, {2}}, 0, range(0, 15))),
      {Place::kFreeCores, range(3, 7)});
}

TEST(Placement, KeepsToTheProcessorsOfTheJob) {
  // A batch system gave the job the cores 8 to 11 of 16.
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"), bound({{8}, {9}}, 0, range(8, 11))),
               {Place::kFreeCores, range(10, 11)});
}

TEST(Placement, UnderACpuQuotaIsShared) {
  NodeProcesses node = unbound(4, range(0, 15));
  node.cores.of_node = 7;  // Of processor time, for four processes and four threads.
  expect_shared(place_thread(synthetic_topology("core:16 pu:1"), node), range(0, 15));
  node.cores.of_node = 8;
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"), node), {Place::kOwnCores, range(0, 15)});
}

TEST(Placement, WithoutTheMasksOfOthersTakesNoCoreForFree) {
  const NodeProcesses node = with_unknown_masks(bound_in_a_row(8, 1, 3, range(0, 15)));
  expect_shared(place_thread(synthetic_topology("core:16 pu:1"), node), {3});
}

TEST(Placement, WithoutTheMasksOfOthersTakesABoundProcessForAlone) {
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"),
                            with_unknown_masks(bound_in_a_row(8, 2, 3, range(0, 15)))),
               {Place::kOwnCores, range(6, 7)});
  // Eight processes on 16 cores: masks of four cores are shared by two of them.
  NodeProcesses overlapping = with_unknown_masks(bound_in_a_row(4, 4, 1, range(0, 15)));
  overlapping.local_size = 8;
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"), overlapping),
               {Place::kOwnCores, range(4, 7)});
  overlapping.local_size = 9;
  expect_shared(place_thread(synthetic_topology("core:16 pu:1"), overlapping), range(4, 7));
}

TEST(Placement, WithoutTheMasksOfOthersTakesAnUnboundProcessForOneOfAll) {
  expect_alone(place_thread(synthetic_topology("core:16 pu:1"), with_unknown_masks(unbound(8, range(0, 15)))),
               {Place::kOwnCores, range(0, 15)});
  expect_shared(
      place_thread(synthetic_topology("core:16 pu:1"), with_unknown_masks(unbound(9, range(0, 15)))),
      range(0, 15));
}

TEST(Placement, OfManyProcessesIsAsThatOfFew) {
  expect_alone(
      place_thread(synthetic_topology("numa:2 core:512 pu:1"), bound_in_a_row(512, 1, 7, range(0, 1023))),
      {Place::kFreeCores, range(512, 1023)});
}

TEST(Placement, OfAllProcessesCountsForEach) {
  // Process 0 has two cores, process 1 has one; there are no others.
  const NodeProcesses node = bound({{0, 1}, {2}}, 0, range(0, 2));
  const Placement placement = place_thread(synthetic_topology("core:3 pu:1"), node);
  EXPECT_EQ(placement.place, Place::kOwnCores);
  EXPECT_TRUE(placement.has_core);
  EXPECT_FALSE(placement.all_have_cores);
  EXPECT_FALSE(placement.client_shares);
  EXPECT_TRUE(placement.some_client_shares);
}

TEST(Placement, OnProcessorsThatTheTopologyLacksIsUnknown) {
  const Placement placement = place_thread(synthetic_topology("core:2 pu:1"), unbound(1, range(4, 5)));
  EXPECT_EQ(placement.place, Place::kUnknown);
  EXPECT_EQ(placement.processors, range(4, 5));
}

TEST(PlacementByList, TakesTheEntryOfTheLocalRank) {
  const std::uint32_t list[] = {8, 9, 12};
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    expect_alone(place_by_list(list, bound_in_a_row(3, 1, rank, range(0, 15))),
                 {Place::kChosen, {list[rank]}});
}

TEST(PlacementByList, StartsAgainAtItsEnd) {
  const std::uint32_t list[] = {8, 9};
  const Placement placement = place_by_list(list, bound_in_a_row(3, 1, 2, range(0, 15)));
  EXPECT_EQ(placement.processors, ProcessorSet{8});
  EXPECT_TRUE(placement.thread_shares) << "with the thread of process 0";
  EXPECT_FALSE(placement.client_shares);
  EXPECT_FALSE(placement.all_have_cores);
  EXPECT_FALSE(place_by_list(list, bound_in_a_row(3, 1, 1, range(0, 15))).thread_shares);
}

TEST(PlacementByList, OnTheCoreOfAProcessIsShared) {
  const std::uint32_t list[] = {1, 2};
  const NodeProcesses first = bound({{0}, {1}}, 0, range(0, 3));
  EXPECT_TRUE(place_by_list(list, first).thread_shares);
  EXPECT_FALSE(place_by_list(list, first).client_shares);
  const NodeProcesses second = bound({{0}, {1}}, 1, range(0, 3));
  EXPECT_FALSE(place_by_list(list, second).thread_shares);
  EXPECT_TRUE(place_by_list(list, second).client_shares);
  EXPECT_TRUE(place_by_list(list, first).some_client_shares);
}

TEST(PlacementByList, WithinAMaskIsSharedOnlyIfTheMaskIsFull) {
  const std::uint32_t upper[] = {2, 3};
  expect_alone(place_by_list(upper, unbound(2, range(0, 3))), {Place::kChosen, {2}});
  const std::uint32_t both[] = {0, 1};
  EXPECT_TRUE(place_by_list(both, unbound(2, range(0, 1))).client_shares);
}

TEST(PlacementNowhere, GoesByTheNumberOfCores) {
  EXPECT_FALSE(place_nowhere(unbound(8, range(0, 15))).thread_shares);
  EXPECT_TRUE(place_nowhere(unbound(9, range(0, 15))).thread_shares);
  EXPECT_TRUE(place_nowhere(bound_in_a_row(2, 1, 0, range(0, 15))).client_shares)
      << "it cannot leave its core";
}

TEST(Placement, NoCoreIsFreeIfThreadsComputeOutsideOfTheMasks) {
  Topology flat;
  for (std::uint32_t i = 0; i < 8; ++i) {
    Topology::Processor one{};
    one.number = one.core = i;
    flat.processors.push_back(one);
  }
  NodeProcesses node = bound({{0}, {4}}, 0, range(0, 7));
  EXPECT_EQ(place_thread(flat, node).place, Place::kFreeCores);
  node.threads = 4;  // OMP_PROC_BIND has bound the first one of each.
  expect_shared(place_thread(flat, node), {0});
}

}  // namespace
}  // namespace ch3_offload
