#include "ch3_offload/nic_choice.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

/// A node of `cores` cores without hyperthreads, and a job of `processes` unbound processes there.
struct Machine {
  Result<Topology> topology;
  NodeProcesses node;
};
Machine machine(std::uint32_t cores, std::uint32_t processes) {
  Topology topology;
  NodeProcesses node;
  for (std::uint32_t i = 0; i < cores; ++i) {
    topology.processors.push_back({i, i, 0, 0});
    node.own.insert(i);
  }
  node.launcher = node.own;
  node.local_size = processes;
  node.masks.assign(processes, node.own);
  node.cores = {cores, cores};
  return {topology, node};
}

ch3_offload_config_t config_of(const char* nic, const char* list = "") {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  config.nic = nic;
  config.nic_cores = list;
  return config;
}

NicChoice choice(const char* nic, const Machine& where, const char* list = "") {
  Result<NicChoice> made = choose_nic(config_of(nic, list), where.topology, where.node);
  EXPECT_TRUE(made.ok());
  return made.ok() ? made.value() : NicChoice{};
}

bool says(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(NicChoice, OfAHostHasNoThread) {
  const NicChoice host = choice("host", machine(16, 1));
  EXPECT_FALSE(host.has_thread);
  EXPECT_EQ(host.why, "MPIR_CVAR_CH3_OFFLOAD_NIC is host");
}

TEST(NicChoice, AutoIsAThreadIfEachProcessHasACoreToSpare) {
  const NicChoice roomy = choice("auto", machine(16, 8));
  EXPECT_TRUE(roomy.has_thread);
  EXPECT_TRUE(says(roomy.why, "each process of the job on this node (8) has a core to spare")) << roomy.why;
  EXPECT_EQ(roomy.warning, "");
}

TEST(NicChoice, AutoIsAProcessIfCoresAreLeftButNotForEach) {
  for (const std::uint32_t processes : {9, 15}) {
    const NicChoice scarce = choice("auto", machine(16, processes));
    EXPECT_FALSE(scarce.has_thread);
    EXPECT_TRUE(scarce.has_process);
    EXPECT_TRUE(says(scarce.why, "not each process of the job on this node")) << scarce.why;
    EXPECT_TRUE(says(scarce.why, "but one is left")) << scarce.why;
  }
  Machine bound = machine(3, 2);
  bound.node.masks = {{0}, {1}};
  bound.node.own = {0};
  EXPECT_EQ(choice("auto", bound).process_processors, ProcessorSet{2});
}

TEST(NicChoice, AutoIsHostOtherwiseAndSaysWhy) {
  for (const std::uint32_t processes : {16, 17}) {
    const NicChoice full = choice("auto", machine(16, processes));
    EXPECT_FALSE(full.has_thread);
    EXPECT_FALSE(full.has_process);
    EXPECT_TRUE(says(full.why, "not each process of the job on this node")) << full.why;
    EXPECT_EQ(full.warning, "") << "nothing is wrong";
  }
}

TEST(NicChoice, AutoIsHostIfTheCoresAreLeftOnPaperOnly) {
  Machine throttled = machine(16, 9);
  throttled.node.cores = {9, 9};  // By a quota.
  EXPECT_FALSE(choice("auto", throttled).has_process);
  Machine computing = machine(16, 3);
  computing.node.threads = 5;  // One core is left.
  EXPECT_TRUE(choice("auto", computing).has_process);
  computing.node.local_size = 2;
  computing.node.masks.resize(2);
  computing.node.threads = 8;
  EXPECT_FALSE(choice("auto", computing).has_process);
  Machine unknown = machine(16, 9);  // What the others are bound to.
  unknown.node.own = {0};
  unknown.node.masks.clear();
  EXPECT_FALSE(choice("auto", unknown).has_process);
}

TEST(NicChoice, AutoTakesNoProcessThatCannotBeRun) {
  ch3_offload_config_t config = config_of("auto");
  config.nicd = "/bin/sh";
  EXPECT_TRUE(says(obstacle_to_process(config), "/bin/sh is no ch3-offload-nicd"));
  config.nicd = "/proc/self/exe";  // This program has the name in it.
  EXPECT_FALSE(says(obstacle_to_process(config), "/proc/self/exe"));
  config.nicd = "/nonexistent/program";
  EXPECT_TRUE(says(obstacle_to_process(config), "/nonexistent/program cannot be run"));
  config.nicd = "/etc/passwd";
  EXPECT_TRUE(says(obstacle_to_process(config), "/etc/passwd cannot be run"));
}

TEST(NicChoice, AutoIsNoThreadIfOneProcessLacksACore) {
  Machine uneven = machine(3, 2);
  uneven.node.masks = {{0, 1}, {2}};
  uneven.node.own = {0, 1};
  EXPECT_FALSE(choice("auto", uneven).has_thread);
}

TEST(NicChoice, AutoIsHostWithoutATopologyAndSaysWhy) {
  Machine blind = machine(16, 1);
  blind.topology = Error{Status::kDeviceFailed, 0, "no /sys"};
  const NicChoice host = choice("auto", blind);
  EXPECT_FALSE(host.has_thread);
  EXPECT_TRUE(says(host.why, "no /sys")) << host.why;
}

TEST(NicChoice, OfAThreadThatSharesWarns) {
  const NicChoice crowded = choice("thread", machine(2, 2));
  EXPECT_TRUE(crowded.has_thread);
  EXPECT_FALSE(crowded.is_bound) << "it has its process's mask anyhow";
  EXPECT_TRUE(says(crowded.warning, "MPIR_CVAR_CH3_OFFLOAD_NIC=auto")) << crowded.warning;
  EXPECT_EQ(choice("thread", machine(2, 1)).warning, "");
}

TEST(NicChoice, OfAThreadWithoutATopologyWarnsAndBindsNothing) {
  Machine blind = machine(16, 1);
  blind.topology = Error{Status::kDeviceFailed, 0, "no /sys"};
  const NicChoice thread = choice("thread", blind);
  EXPECT_TRUE(thread.has_thread);
  EXPECT_FALSE(thread.is_bound);
  EXPECT_TRUE(says(thread.warning, "no /sys")) << thread.warning;
}

TEST(NicChoice, BindsAThreadOutsideOfItsProcessesMask) {
  Machine bound = machine(4, 2);
  bound.node.masks = {{0}, {1}};
  bound.node.own = {1};
  const NicChoice thread = choice("thread", bound);
  EXPECT_TRUE(thread.is_bound);
  EXPECT_EQ(thread.placement.processors, (ProcessorSet{2, 3}));
}

TEST(NicChoice, TakesTheUsersListAlsoWithoutATopology) {
  Machine blind = machine(4, 1);
  blind.topology = Error{Status::kDeviceFailed, 0, "no /sys"};
  for (const char* nic : {"thread", "auto"}) {
    const NicChoice thread = choice(nic, blind, "3");
    EXPECT_TRUE(thread.has_thread);
    EXPECT_TRUE(thread.is_bound);
    EXPECT_EQ(thread.placement.processors, ProcessorSet{3});
    EXPECT_EQ(thread.warning, "");
  }
}

TEST(NicChoice, TakesAProcessorThatIsInNoMask) {
  Machine isolated = machine(4, 1);
  isolated.node.own = isolated.node.launcher = {0, 1};
  isolated.node.masks = {{0, 1}};
  EXPECT_EQ(choice("thread", isolated, "3").placement.processors, ProcessorSet{3});
}

TEST(NicChoice, RefusesAListThatTheJobMayNotRunOn) {
  const Machine small = machine(2, 1);
  const auto refused = choose_nic(config_of("thread", "1,7"), small.topology, small.node);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(says(refused.error().message, "MPIR_CVAR_CH3_OFFLOAD_NIC_CORES=1,7"))
      << refused.error().message;
  EXPECT_TRUE(says(refused.error().message, "may not run on processor 7, only on 0-1"));
  EXPECT_FALSE(choose_nic(config_of("process", "1,7"), small.topology, small.node).ok());
  EXPECT_TRUE(choose_nic(config_of("host", "1,7"), small.topology, small.node).ok()) << "it has no thread";
}

TEST(NicChoice, AProcessOfTheNodeRunsWhereNobodyIsBound) {
  Machine bound = machine(4, 2);
  bound.node.masks = {{0}, {1}};
  const NicChoice free = choice("process", bound);
  EXPECT_TRUE(free.has_process);
  EXPECT_FALSE(free.has_thread);
  EXPECT_EQ(free.process_processors, (ProcessorSet{2, 3}));
  EXPECT_TRUE(says(free.why, "no process of the job is bound to its cores")) << free.why;

  const NicChoice full = choice("process", machine(4, 4));
  EXPECT_EQ(full.process_processors, (ProcessorSet{0, 1, 2, 3}));
  EXPECT_TRUE(says(full.why, "it shares the cores of the job's processes")) << full.why;
  EXPECT_EQ(choice("process", bound, "1,3").process_processors, (ProcessorSet{1, 3}));
}

}  // namespace
}  // namespace ch3_offload
