// What ch3-offload-info makes of the environment and of what it found on the node.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "ch3_offload/environment.h"
#include "info_report.h"
#include "rdma/checked/checksum.h"

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
  facts.verbs_ports = {{.name = "mlx5_0:1",
                        .why_used = "it is the only usable one",
                        .link = "RoCE v2",
                        .gid_index = 3,
                        .gid = "::ffff:10.9.0.1",
                        .gid_reason = "RoCE v2 with an IPv4 address",
                        .address = "10.9.0.1",
                        .rate_gbit = 100,
                        .mtu_bytes = 4096,
                        .max_message_bytes = 1u << 30},
                       {.name = "mlx5_1:1", .why_not = "the port is down"}};
  facts.verbs_host = "10.9.0.1";
  facts.verbs.name = "verbs";
  facts.verbs.max_slot_bytes = 8160;
  facts.verbs.write = true;
  facts.verbs.write_threshold_bytes = 16384;
  facts.tcp_host = "10.1.0.1";
  facts.tcp.name = "tcp";
  facts.tcp.max_slot_bytes = 32768;
  facts.tcp.write = true;
  facts.tcp.write_threshold_bytes = 32768;
  facts.congestion_control = "cubic";
  return facts;
}

/// One that has no RDMA device.
NodeFacts node_without_rdma() {
  NodeFacts facts = good_node();
  facts.verbs_ports.clear();
  facts.verbs_error = Error{Status::kUnsupported, 0, "verbs: this node has no usable RDMA port"};
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
  EXPECT_STREQ(state(environment, "_SPIN").setting->standard, "-1");
  EXPECT_EQ(state(environment, "_SPIN").source, "MPIR_CVAR_CH3_OFFLOAD_SPIN");
  EXPECT_EQ(state(environment, "_FABRIC").source, "");
}

TEST(Environment, MpichsOtherNamesCountAndTheLastWins) {
  const Variable old("MPICH_CH3_OFFLOAD_SHM_BULK", "stream");
  EXPECT_EQ(state(read_environment(), "_SHM_BULK").value, "stream");
  const Variable current("MPIR_CVAR_CH3_OFFLOAD_SHM_BULK", "cma");
  EXPECT_EQ(state(read_environment(), "_SHM_BULK").value, "cma");
}

TEST(Environment, TheRangeOfPortsHasOtherNames) {
  const Variable other("MPIR_CVAR_PORTRANGE", "1:2");
  EXPECT_EQ(state(read_environment(), "_PORT_RANGE").value, "1:2");
  const Variable another("MPICH_PORT_RANGE", "3:4");
  EXPECT_EQ(state(read_environment(), "_PORT_RANGE").value, "3:4");
  const Variable own("MPICH_CH3_PORT_RANGE", "20000:20999");
  const Environment environment = read_environment();
  EXPECT_EQ(state(environment, "_PORT_RANGE").value, "20000:20999");
  EXPECT_EQ(state(environment, "_PORT_RANGE").source, "MPICH_CH3_PORT_RANGE");
  EXPECT_TRUE(environment.strangers.empty());
  EXPECT_EQ(choice(environment, good_node(), "connections").choice,
            "set up over TCP at 10.9.0.1, ports 20000 to 20999");
}

TEST(Environment, AWrongValueIsShownWithItsComplaint) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER", "64X");
  const Environment environment = read_environment();
  EXPECT_FALSE(environment.valid());
  EXPECT_EQ(state(environment, "_SEND_BUFFER").value, "64X");
  EXPECT_NE(state(environment, "_SEND_BUFFER").complaint, std::nullopt);
  EXPECT_NE(render_text(environment, nullptr).find("WRONG"), std::string::npos);
}

TEST(Environment, AMisspeltNameIsAStrangerWithTheNearestName) {
  const struct {
    const char* name;
    const char* nearest;
  } cases[] = {
      {"MPIR_CVAR_CH3_OFFLOAD_SPINN", "MPIR_CVAR_CH3_OFFLOAD_SPIN"},
      {"MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMITS", "MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT"},
      {"MPIR_CVAR_CH3_OFFLOAD_FABIRC", "MPIR_CVAR_CH3_OFFLOAD_FABRIC"},
      {"MPICH_CH3_OFFLOAD_TRACE_EVENT", "MPIR_CVAR_CH3_OFFLOAD_TRACE_EVENTS"},
      {"MPIR_CVAR_CH3_OFLOAD_NIC", "MPIR_CVAR_CH3_OFFLOAD_NIC"},
      {"MPIR_CVAR_CH3_OFFLOADNICD", "MPIR_CVAR_CH3_OFFLOAD_NICD"},
      {"CH3_OFFLOAD_SPIN", "MPIR_CVAR_CH3_OFFLOAD_SPIN"},
      {"MPIR_CVAR_CH3_OFFLOAD_FIRMWARE_SLOT", ""},
  };
  for (const auto& one : cases) {
    const Variable set(one.name, "1");
    const Environment environment = read_environment();
    EXPECT_TRUE(environment.valid());
    ASSERT_EQ(environment.strangers.size(), 1u) << one.name;
    EXPECT_EQ(environment.strangers[0].name, one.name);
    const Setting* const nearest = environment.strangers[0].nearest;
    EXPECT_STREQ(nearest == nullptr ? "" : nearest->variable, one.nearest) << one.name;
    EXPECT_NE(render_text(environment, nullptr).find(std::string("warning: ") + one.name), std::string::npos);
  }
}

TEST(Environment, AfterClearenvThereIsNoStranger) {
  char** const kept = std::exchange(environ, nullptr);
  EXPECT_TRUE(find_strangers().empty());
  environ = kept;
}

TEST(Environment, WhatIsNotOursIsNoStranger) {
  for (const char* const name :
       {"MPIR_CVAR_CH3_OFFLOAD_SPIN", "MPICH_CH3_OFFLOAD_SPIN", "MPIR_CVAR_CH3_PORT_RANGE",
        "CH3_OFFLOAD_KEY_FILE", "MPIR_CVAR_CH3_EAGER_MAX_MSG_SIZE", "MPIR_CVAR_NOLOCAL",
        "CH3_OFFLOAD_CHECK_ALL", "OFFLOAD"}) {
    const Variable set(name, "");
    EXPECT_TRUE(read_environment().strangers.empty()) << name;
  }
}

TEST(Environment, AnEmptyValueIsTheDefault) {
  for (const Setting& setting : settings()) {
    const Variable set(setting.variable, "");
    const Environment environment = read_environment();
    EXPECT_TRUE(environment.valid()) << setting.variable;
    EXPECT_EQ(state(environment, setting.variable).value, setting.standard);
    EXPECT_EQ(state(environment, setting.variable).source, "");
  }
}

TEST(Environment, AWrongValueIsNamedAsItWasTypedAndWhere) {
  const Variable set("MPICH_CH3_OFFLOAD_EAGER_LIMIT", "4294967297");
  const std::optional<std::string> why = state(read_environment(), "_EAGER_LIMIT").complaint;
  EXPECT_EQ(why,
            "MPICH_CH3_OFFLOAD_EAGER_LIMIT=4294967297 is out of range: it takes bytes from 0 to 16M; K and M "
            "may follow");
}

TEST(Findings, GoodNode) {
  for (const Finding& one : findings(good_node())) EXPECT_TRUE(one.usable) << one.name;
  EXPECT_NE(finding(good_node(), "shm provider").detail.find("00000000000000ab"), std::string::npos);
  EXPECT_NE(finding(good_node(), "descriptors").detail.find("for 1000 peers"), std::string::npos);
}

TEST(Findings, ForbiddenDirectCopiesAreExplained) {
  NodeFacts facts = good_node();
  facts.remote_copy_error = "Operation not permitted";
  facts.ptrace_scope = 2;
  facts.seccomp = 2;
  const Finding found = finding(facts, "direct copies");
  EXPECT_FALSE(found.usable);
  EXPECT_EQ(found.detail,
            "process_vm_writev: Operation not permitted; kernel.yama.ptrace_scope is 2 (0 or 1 allows it); a "
            "seccomp filter is in force (a container's?)");
}

TEST(Findings, AScopeThatAllowsDirectCopiesIsNotBlamedForThem) {
  NodeFacts facts = good_node();
  facts.remote_copy_error = "Operation not permitted";
  facts.ptrace_scope = 1;
  EXPECT_EQ(finding(facts, "direct copies").detail,
            "process_vm_writev: Operation not permitted; kernel.yama.ptrace_scope is 1");
}

TEST(Findings, ABrokenProviderSaysWhy) {
  NodeFacts facts = good_node();
  facts.shm_error = "shm: memfd_create failed: Function not implemented";
  EXPECT_FALSE(finding(facts, "shm provider").usable);
  EXPECT_EQ(finding(facts, "shm provider").detail, facts.shm_error);
  EXPECT_TRUE(choices(read_environment(), facts).empty());
  EXPECT_EQ(init_errors(read_environment(), facts), std::vector<std::string>{facts.shm_error});
}

TEST(Findings, ProcessorsThatCannotBeHadEndTheJob) {
  NodeFacts facts = good_node();
  facts.nic_error = "MPIR_CVAR_CH3_OFFLOAD_NIC_CORES=9: the job may not run on processor 9";
  EXPECT_EQ(init_errors(read_environment(), facts), std::vector<std::string>{facts.nic_error});
}

TEST(Findings, VerbsSaysWhatItUsesOrWhatIsMissing) {
  EXPECT_EQ(finding(good_node(), "verbs provider").detail,
            "its queues and memory can be had on mlx5_0:1; connections are set up at 10.9.0.1");
  const Finding none = finding(node_without_rdma(), "verbs provider");
  EXPECT_FALSE(none.usable);
  EXPECT_EQ(none.detail, "verbs: this node has no usable RDMA port");
}

TEST(Findings, TcpSaysWhereItListensAndWhatSlowsIt) {
  NodeFacts facts = good_node();
  EXPECT_EQ(finding(facts, "TCP provider").detail, "listens at 10.1.0.1");
  facts.congestion_control = "bbr";
  EXPECT_NE(finding(facts, "TCP provider").detail.find("listens at 10.1.0.1; the congestion control bbr"),
            std::string::npos);
  facts.tcp_error = Error{Status::kUnsupported, 0, "tcp: no address"};
  EXPECT_FALSE(finding(facts, "TCP provider").usable);
  EXPECT_EQ(finding(facts, "TCP provider").detail, "tcp: no address");
}

TEST(Findings, LockedMemoryIsWrongOnlyWhereItIsMissing) {
  NodeFacts facts = good_node();
  EXPECT_EQ(finding(facts, "locked memory").detail, "no limit (RLIMIT_MEMLOCK)");
  facts.locked_bytes = 64 << 10;
  EXPECT_TRUE(finding(facts, "locked memory").usable);
  EXPECT_TRUE(finding(facts, "locked memory").detail.starts_with("64 KiB (RLIMIT_MEMLOCK)"));
  facts.verbs_error = Error{Status::kNoMemory, ENOMEM, "verbs: registering 524288 bytes failed"};
  EXPECT_FALSE(finding(facts, "locked memory").usable);
  facts.locked_bytes = UINT64_MAX;
  EXPECT_TRUE(finding(facts, "locked memory").usable);
}

TEST(PortFindings, TellWhatAPortHasOrWhyItIsNotUsed) {
  NodeFacts facts = good_node();
  auto found = port_findings(facts);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].usable);
  EXPECT_EQ(found[0].detail,
            "RoCE v2, GID 3: ::ffff:10.9.0.1 (RoCE v2 with an IPv4 address), address 10.9.0.1, 100 Gbit/s, "
            "MTU 4096, messages up to 1 GiB");
  EXPECT_FALSE(found[1].usable);
  EXPECT_EQ(found[1].detail, "the port is down");
  facts.verbs_ports[1].wanted = false;
  found = port_findings(facts);
  EXPECT_EQ(found[1].detail, "the port is down; not one of MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE");
  EXPECT_NE(render_text(read_environment(), &facts).find("RDMA ports, best first\n  mlx5_0:1  yes  RoCE v2"),
            std::string::npos);
}

TEST(PortFindings, NoPortsNoSection) {
  const NodeFacts facts = node_without_rdma();
  EXPECT_EQ(render_text(read_environment(), &facts).find("RDMA ports"), std::string::npos);
}

TEST(Choices, OfTheNetworkProcessorSayWhereItsThreadRuns) {
  NodeFacts facts = good_node();
  facts.nic.why = "a reason";
  EXPECT_EQ(choice(read_environment(), facts, "network processor").choice,
            "none: the calls of MPI match and move messages");
  facts.nic.has_thread = true;
  facts.nic.is_bound = true;
  facts.nic.placement.processors = {8, 9, 10};
  facts.nic.warning = "crowded";
  const Choice thread = choice(read_environment(), facts, "network processor");
  EXPECT_EQ(thread.choice, "a thread of each process; this one's on processors 8-10 (bound)");
  EXPECT_EQ(thread.why, "a reason; warning: crowded");
}

TEST(Choices, OfCollectivesSayWhoCarriesThemOut) {
  NodeFacts facts = good_node();
  const auto chosen = [&] { return choice(read_environment(), facts, "nonblocking collectives"); };
  EXPECT_EQ(chosen().choice, "go on in the calls of MPI");
  facts.nic.has_thread = true;
  EXPECT_EQ(chosen().choice, "carried out by the network processor, as far as it can");
  Environment environment = read_environment();
  environment.config.collectives = "calls";
  const Choice forbidden = choice(environment, facts, "nonblocking collectives");
  EXPECT_EQ(forbidden.choice, "go on in the calls of MPI");
  EXPECT_EQ(forbidden.why, "MPIR_CVAR_CH3_OFFLOAD_COLLECTIVES is calls");
}

TEST(Choices, OfChecksumsSayWhichMessagesHaveThem) {
  NodeFacts facts = good_node();
  Environment environment = read_environment();
  const auto chosen = [&] { return choice(environment, facts, "checksums").choice; };
  EXPECT_EQ(chosen(), "none of this channel's own");
  if (!have_checksums()) GTEST_SKIP() << "this library was built without them";
  environment.config.checksum = "network";
  EXPECT_EQ(chosen(), "CRC32C of all messages that go over a network");
  environment.config.checksum = "all";
  EXPECT_EQ(chosen(), "CRC32C of all messages that leave a process");
}

TEST(Choices, AutoIsSharedMemoryWithinANodeAndVerbsBetweenNodes) {
  const Environment environment = read_environment();
  EXPECT_EQ(choice(environment, good_node(), "within a node").choice, "shm");
  EXPECT_EQ(choice(environment, good_node(), "between nodes").choice,
            "verbs on mlx5_0:1; TCP to nodes that have no verbs");
  EXPECT_EQ(choice(environment, good_node(), "RDMA port").why, "it is the only usable one");
  EXPECT_EQ(choice(environment, good_node(), "long messages, verbs").choice, "RDMA write from 16 KiB on");
  EXPECT_TRUE(init_errors(environment, good_node()).empty());
}

TEST(Choices, AutoWithoutRdmaIsTcp) {
  const Environment environment = read_environment();
  NodeFacts facts = node_without_rdma();
  EXPECT_TRUE(init_errors(environment, facts).empty());
  EXPECT_EQ(choice(environment, facts, "within a node").choice, "shm");
  EXPECT_EQ(choice(environment, facts, "between nodes").choice, "TCP at 10.1.0.1");
  EXPECT_EQ(choice(environment, facts, "between nodes").why,
            "MPIR_CVAR_CH3_OFFLOAD_FABRIC is auto, and verbs: this node has no usable RDMA port");
  EXPECT_EQ(choice(environment, facts, "connections").choice, "TCP, at 10.1.0.1");
  EXPECT_EQ(choice(environment, facts, "long messages, tcp").choice,
            "written from their place to their place from 32 KiB on");
  for (const Choice& one : choices(environment, facts)) EXPECT_NE(one.topic, "RDMA port");
  facts.tcp_error = Error{Status::kUnsupported, 0, "tcp: no address"};
  EXPECT_TRUE(init_errors(environment, facts).empty());
  EXPECT_EQ(choice(environment, facts, "between nodes").choice,
            "nothing; a job that has other nodes is warned");
  EXPECT_EQ(choice(environment, facts, "between nodes").why,
            "MPIR_CVAR_CH3_OFFLOAD_FABRIC is auto, and verbs: this node has no usable RDMA port, and tcp: no "
            "address");
}

TEST(Choices, FabricTcpNeedsNoRdmaAndNoSharedMemory) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_FABRIC", "tcp");
  NodeFacts facts = good_node();
  facts.shm_error = "shm: memfd_create failed: Function not implemented";
  EXPECT_EQ(choice(read_environment(), facts, "within a node").choice, "TCP at 10.1.0.1");
  EXPECT_EQ(choice(read_environment(), facts, "between nodes").choice, "TCP at 10.1.0.1");
  facts.tcp_error = Error{Status::kUnsupported, 0, "tcp: no address"};
  EXPECT_EQ(init_errors(read_environment(), facts), std::vector<std::string>{"tcp: no address"});
}

TEST(Choices, SharedMemoryAndOneNetwork) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_FABRIC", "shm+tcp");
  NodeFacts facts = good_node();
  EXPECT_EQ(choice(read_environment(), facts, "within a node").choice, "shm");
  EXPECT_EQ(choice(read_environment(), facts, "between nodes").choice, "TCP at 10.1.0.1");
  for (const Choice& one : choices(read_environment(), facts)) EXPECT_NE(one.topic, "RDMA port");
  facts.tcp_error = Error{Status::kUnsupported, 0, "tcp: no address"};
  EXPECT_TRUE(init_errors(read_environment(), facts).empty());
  EXPECT_EQ(choice(read_environment(), facts, "between nodes").choice,
            "nothing; MPI_Init of a job that has other nodes fails");
}

TEST(Choices, FabricShmLeavesVerbsOut) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_FABRIC", "shm");
  const Environment environment = read_environment();
  EXPECT_EQ(choice(environment, good_node(), "between nodes").choice, "nothing");
  EXPECT_EQ(choice(environment, good_node(), "between nodes").why, "MPIR_CVAR_CH3_OFFLOAD_FABRIC is shm");
  for (const Choice& one : choices(environment, good_node())) EXPECT_NE(one.topic, "RDMA port");
}

TEST(Choices, FabricVerbsNeedsVerbsAndNoSharedMemory) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_FABRIC", "verbs");
  const Environment environment = read_environment();
  NodeFacts facts = good_node();
  facts.shm_error = "shm: memfd_create failed: Function not implemented";
  EXPECT_TRUE(init_errors(environment, facts).empty());
  EXPECT_EQ(choice(environment, facts, "within a node").choice, "verbs on mlx5_0:1");
  for (const Choice& one : choices(environment, facts)) EXPECT_NE(one.topic, "long messages, shm");

  facts = node_without_rdma();
  EXPECT_EQ(init_errors(environment, facts),
            std::vector<std::string>{"verbs: this node has no usable RDMA port"});
  EXPECT_TRUE(choices(environment, facts).empty());
  EXPECT_NE(render_text(environment, &facts).find("MPI_Init would fail: verbs: this node has no usable"),
            std::string::npos);
}

TEST(Choices, TheSettingsThatDecideAreNamed) {
  NodeFacts facts = good_node();
  EXPECT_EQ(choice(read_environment(), facts, "connections").choice, "set up over TCP at 10.9.0.1");
  EXPECT_EQ(choice(read_environment(), facts, "connections").why, "it is the RDMA port's own address");
  facts.verbs_ports[0].address = "";
  EXPECT_NE(choice(read_environment(), facts, "connections").why.find("no IP address of its own"),
            std::string::npos);
  const Variable interface("MPIR_CVAR_CH3_OFFLOAD_INTERFACE", "eth0");
  EXPECT_EQ(choice(read_environment(), facts, "connections").why, "MPIR_CVAR_CH3_OFFLOAD_INTERFACE is eth0");
  const Variable device("MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE", "mlx5_0:1");
  facts.verbs_ports[0].why_used = "it is the first usable one of those asked for";
  EXPECT_EQ(choice(read_environment(), facts, "RDMA port").why,
            "it is the first usable one of those asked for; MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE is mlx5_0:1");
}

TEST(Choices, LongMessagesFollowTheSettingAndTheNode) {
  const Environment standard = read_environment();
  NodeFacts facts = good_node();
  EXPECT_EQ(choice(standard, facts, "long messages, shm").choice,
            "one copy by process_vm_writev from 64 KiB on");
  facts.shm.writes_by_copying = true;
  EXPECT_EQ(
      choice(standard, facts, "long messages, shm").choice,
      "from 128 KiB on, what is faster, as each process measures: one copy by process_vm_writev, or the "
      "ring");
  facts.remote_copy_error = "Operation not permitted";
  EXPECT_EQ(choice(standard, facts, "long messages, shm").choice, "copied through the ring by both sides");

  const Variable set("MPIR_CVAR_CH3_OFFLOAD_SHM_BULK", "stream");
  facts = good_node();
  facts.shm.write = false;
  EXPECT_EQ(choice(read_environment(), facts, "long messages, shm").why,
            "MPIR_CVAR_CH3_OFFLOAD_SHM_BULK is stream");
}

/// A node whose messages go through a process of the node.
NodeFacts node_with_process() {
  NodeFacts facts = good_node();
  facts.nic.has_process = true;
  facts.nic.process_processors = {3};
  return facts;
}

TEST(Choices, WithAProcessEveryMessageGoesThroughIt) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_NIC", "process");
  const Environment environment = read_environment();
  NodeFacts facts = node_with_process();
  facts.shm_error = "shm: memfd_create failed: Function not implemented";  // It makes no such provider.
  EXPECT_EQ(choice(environment, facts, "network processor").choice,
            "a process of the node (ch3-offload-nicd), which the job starts on processors 3");
  EXPECT_EQ(choice(environment, facts, "within a node").choice,
            "the node's network processor (ch3-offload-nicd)");
  EXPECT_EQ(choice(environment, facts, "within a node").why, "MPIR_CVAR_CH3_OFFLOAD_NIC is process");
  EXPECT_EQ(choice(environment, facts, "between nodes").choice, "verbs on mlx5_0:1");
  EXPECT_EQ(choice(environment, facts, "long messages, nicd").choice,
            "copied by the processor into slots and out of them; once within the node between memory of "
            "MPI_Alloc_mem");
  for (const Choice& one : choices(environment, facts)) {
    EXPECT_NE(one.topic, "long messages, shm");
    EXPECT_NE(one.topic, "long messages, verbs");
  }
}

TEST(Choices, AProcessThatMayNotReadItsClientsSharesMemoryWithThem) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_NIC", "process");
  NodeFacts facts = node_with_process();
  facts.remote_copy_error = "Operation not permitted";
  EXPECT_TRUE(init_errors(read_environment(), facts).empty());
  const Choice staged = choice(read_environment(), facts, "long messages, nicd");
  EXPECT_EQ(staged.choice, "copied into memory that is shared with the processor, and from there into slots");
  EXPECT_NE(staged.why.find("Operation not permitted"), std::string::npos);
}

TEST(Choices, AProcessThatCannotBeRunIsNeededUnlessTheUserRunsOne) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_NIC", "process");
  NodeFacts facts = node_with_process();
  facts.nicd_error = "/nowhere/ch3-offload-nicd cannot be run: No such file or directory";
  EXPECT_EQ(init_errors(read_environment(), facts), std::vector<std::string>{facts.nicd_error});
  facts.user_runs_nicd = true;
  EXPECT_TRUE(init_errors(read_environment(), facts).empty());
  EXPECT_EQ(choice(read_environment(), facts, "network processor").choice,
            "a process of the node (ch3-offload-nicd), which this user runs for all jobs");
}

TEST(Choices, WaitingFollowsCoresOrTheSetting) {
  EXPECT_EQ(choice(read_environment(), good_node(), "waiting").choice,
            "polls for at most 20000 us, then sleeps; 50 us, giving its core to others meanwhile, "
            "with more than 4 processes here");
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_SPIN", "0");
  EXPECT_EQ(choice(read_environment(), good_node(), "waiting").choice, "polls for at most 0 us, then sleeps");
}

TEST(Choices, ASmallEagerLimitBoundsTheSlotToo) {
  const Variable set("MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT", "100");
  EXPECT_EQ(choice(read_environment(), good_node(), "short messages, shm").choice,
            "up to 100 bytes in one slot, up to 100 bytes eager");
}

TEST(Findings, SayWhatAShortLimitOfLockedMemoryMeansForVerbs) {
  NodeFacts facts = node_without_rdma();
  facts.locked_bytes = 64 << 10;
  EXPECT_FALSE(finding(facts, "locked memory").usable);
  EXPECT_NE(finding(facts, "locked memory").detail.find("verbs needs 1 MiB"), std::string::npos);
  facts.may_lock_all = true;
  EXPECT_TRUE(finding(facts, "locked memory").usable);
  EXPECT_NE(finding(facts, "locked memory").detail.find("does not apply to this process"), std::string::npos);
  facts.may_lock_all = false;
  facts.locked_bytes = 1 << 20;
  EXPECT_TRUE(finding(facts, "locked memory").usable);
}

}  // namespace
}  // namespace ch3_offload
