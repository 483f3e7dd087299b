// What ch3-offload-info makes of the environment and of what it found on the node.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "environment.h"
#include "info_report.h"

namespace ch3_offload {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

const SettingState& state(const Environment& environment, std::string_view suffix) {
  for (const SettingState& one : environment.settings) {
    if (std::string_view(one.setting->variable).ends_with(suffix)) return one;
  }
  ADD_FAILURE() << suffix;
  return environment.settings[0];
}

/// A node on which everything works.
NodeFacts good_node() {
  NodeFacts facts;
  facts.cores = 4;
  facts.descriptors = 1024;
  facts.shm_address = "shm:1:00000000000000ab:00000000000000000000000000000000";
  facts.shm.name = "shm";
  facts.shm.max_slot_bytes = 32760;
  facts.shm.write = true;
  facts.shm.write_threshold_bytes = 65536;
  return facts;
}

Choice choice(const Environment& environment, const NodeFacts& facts, const std::string& topic) {
  for (const Choice& one : choices(environment, facts)) {
    if (one.topic == topic) return one;
  }
  ADD_FAILURE() << topic;
  return {};
}

Finding finding(const NodeFacts& facts, const std::string& name) {
  for (const Finding& one : findings(facts)) {
    if (one.name == name) return one;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(Environment, SaysWhereAValueComesFrom) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_SPIN", "50");
  const Environment environment = read_environment();
  EXPECT_TRUE(environment.valid());
  EXPECT_EQ(environment.config.spin_us, 50);
  EXPECT_EQ(state(environment, "_SPIN").value, "50");
  EXPECT_EQ(state(environment, "_SPIN").standard, "-1");
  EXPECT_EQ(state(environment, "_SPIN").source, "MPIR_CVAR_CH3_OFFLOAD_SPIN");
  EXPECT_EQ(state(environment, "_FABRIC").source, "");
}

TEST(Environment, MpichsOtherNamesCountAndTheLastWins) {
  const Variable old("MPICH_CH3_OFFLOAD_SHM_BULK", "stream");
  EXPECT_EQ(state(read_environment(), "_SHM_BULK").value, "stream");
  const Variable current("MPIR_CVAR_CH3_OFFLOAD_SHM_BULK", "cma");
  EXPECT_EQ(state(read_environment(), "_SHM_BULK").value, "cma");
}

TEST(Environment, AWrongValueIsShownWithItsComplaint) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER", "64X");
  const Environment environment = read_environment();
  EXPECT_FALSE(environment.valid());
  EXPECT_EQ(state(environment, "_SEND_BUFFER").value, "64X");
  EXPECT_NE(state(environment, "_SEND_BUFFER").complaint, std::nullopt);
  EXPECT_NE(render_text(environment, nullptr).find("WRONG"), std::string::npos);
}

TEST(Environment, AMisspeltNameIsAStranger) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_EAGER", "1");
  const Environment environment = read_environment();
  EXPECT_TRUE(environment.valid());
  EXPECT_EQ(environment.strangers, std::vector<std::string>{"MPIR_CVAR_CH3_OFFLOAD_EAGER"});
}

TEST(Findings, GoodNode) {
  for (const Finding& one : findings(good_node())) EXPECT_TRUE(one.usable) << one.name;
  EXPECT_NE(finding(good_node(), "shm provider").detail.find("00000000000000ab"), std::string::npos);
  EXPECT_NE(finding(good_node(), "descriptors").detail.find("504 peers"), std::string::npos);
}

TEST(Findings, ForbiddenDirectCopiesAreExplained) {
  NodeFacts facts = good_node();
  facts.remote_copy_error = "Operation not permitted";
  facts.ptrace_scope = 1;
  facts.seccomp = 2;
  const Finding found = finding(facts, "direct copies");
  EXPECT_FALSE(found.usable);
  EXPECT_EQ(
      found.detail,
      "process_vm_writev: Operation not permitted; kernel.yama.ptrace_scope is 1 (0 allows it); a seccomp "
      "filter is in force (a container's?)");
}

TEST(Findings, ABrokenProviderSaysWhy) {
  NodeFacts facts = good_node();
  facts.shm_error = "shm: memfd_create failed: Function not implemented";
  EXPECT_FALSE(finding(facts, "shm provider").usable);
  EXPECT_EQ(finding(facts, "shm provider").detail, facts.shm_error);
  EXPECT_TRUE(choices(read_environment(), facts).empty());
}

TEST(Choices, LongMessagesFollowTheSettingTheNodeAndTheMeasurement) {
  const Environment standard = read_environment();
  NodeFacts facts = good_node();
  EXPECT_EQ(choice(standard, facts, "long messages").choice, "one copy by process_vm_writev from 64 KiB on");
  facts.shm.write_threshold_bytes = SIZE_MAX;
  EXPECT_NE(choice(standard, facts, "long messages").why.find("no faster"), std::string::npos);
  facts = good_node();
  facts.remote_copy_error = "Operation not permitted";
  EXPECT_EQ(choice(standard, facts, "long messages").choice, "copied through the ring by both sides");

  const Variable set("MPIR_CVAR_CH3_OFFLOAD_SHM_BULK", "stream");
  facts = good_node();
  facts.shm.write = false;
  EXPECT_EQ(choice(read_environment(), facts, "long messages").why,
            "MPIR_CVAR_CH3_OFFLOAD_SHM_BULK is stream");
}

TEST(Choices, WaitingFollowsCoresOrTheSetting) {
  EXPECT_EQ(choice(read_environment(), good_node(), "waiting").choice,
            "polls for at most 1000 us, then sleeps; 0.5 us with more than 4 processes here");
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_SPIN", "0");
  EXPECT_EQ(choice(read_environment(), good_node(), "waiting").choice, "polls for at most 0 us, then sleeps");
}

TEST(Choices, ASmallEagerLimitBoundsTheSlotToo) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT", "100");
  EXPECT_EQ(choice(read_environment(), good_node(), "short messages").choice,
            "up to 100 bytes in one slot, up to 100 bytes eager");
}

}  // namespace
}  // namespace ch3_offload
