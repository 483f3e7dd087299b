// What ch3-offload-info --check makes of what nodes say.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check/check_report.h"
#include "check/node_check.h"
#include "engine/wire.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

NodeReport good_report(int number) {
  return {.version = PACKAGE_VERSION,
          .wire_version = wire::kWireVersion,
          .host_name = "host" + std::to_string(number),
          .cores = 16,
          .locked_bytes = 8 << 20,
          .congestion_control = "cubic",
          .networks = {{.name = "tcp",
                        .address = "tcp:1/10.9.0." + std::to_string(number) + "/40001/32768/0123456789abcdef",
                        .rate_mbit = 10000,
                        .mtu_bytes = 1500,
                        .device = "eth0"}}};
}

/// `count` nodes that reach each other at 1 GB/s.
Checked good_nodes(int count) {
  Checked checked;
  for (int i = 1; i <= count; ++i)
    checked.nodes.push_back(
        {.host = "node" + std::to_string(i), .report = good_report(i), .clock_offset_ns = 0});
  const PairResult well{PairStage::kOver, "", 20'000, 1'000'000'000};
  for (const auto& [first, second] : pairs_to_test(checked.nodes.size(), true))
    checked.pairs.push_back(
        {.first = first, .second = second, .network = "tcp", .of_first = well, .of_second = well});
  return checked;
}

/// The findings that are wrong, and the others, as "WRONG text" and "note text".
std::string found(const Checked& checked) {
  std::string text;
  for (const CheckFinding& finding : judge(checked))
    text += (finding.is_wrong ? "WRONG " : "note ") + finding.text + "\n";
  return text;
}

TEST(CheckLines, AReportComesBack) {
  NodeReport report = good_report(1);
  report.networks.push_back({.name = "verbs", .address = "verbs:x", .device = "mlx5_0:1 and mlx5_1:1"});
  report.wrong = {"a value\nover two lines", "another one"};
  report.notes = {"a note"};
  NodeReport back;
  for (const std::string& line : to_lines(report)) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_TRUE(take_line(line, back)) << line;
  }
  EXPECT_EQ(back.version, report.version);
  EXPECT_EQ(back.wire_version, report.wire_version);
  EXPECT_EQ(back.host_name, report.host_name);
  EXPECT_EQ(back.cores, report.cores);
  EXPECT_EQ(back.locked_bytes, report.locked_bytes);
  EXPECT_EQ(back.congestion_control, report.congestion_control);
  EXPECT_EQ(back.wrong, (std::vector<std::string>{"a value over two lines", "another one"}));
  EXPECT_EQ(back.notes, report.notes);
  ASSERT_EQ(back.networks.size(), 2u);
  EXPECT_EQ(back.networks[0].address, report.networks[0].address);
  EXPECT_EQ(back.networks[0].rate_mbit, 10000u);
  EXPECT_EQ(back.networks[0].mtu_bytes, 1500u);
  EXPECT_EQ(back.networks[1].device, "mlx5_0:1 and mlx5_1:1");
}

TEST(CheckLines, AResultComesBack) {
  const PairResult failed{PairStage::kLong, "nothing has come for 5 s", 12345, 0};
  const auto met = met_line(to_line(7, failed));
  ASSERT_TRUE(met);
  EXPECT_EQ(met->peer, 7u);
  EXPECT_EQ(met->result.stage, PairStage::kLong);
  EXPECT_EQ(met->result.why, failed.why);
  EXPECT_EQ(met->result.latency_ns, 12345u);
  EXPECT_FALSE(met->result.ok());
  EXPECT_TRUE(met_line("met 1 over 5 6 ")->result.ok());
}

TEST(CheckLines, WhatMakesNoSenseIsLeftOut) {
  for (const char* const line :
       {"", "met", "met 1", "met 1 over", "met 1 over 5", "met x over 5 6", "met 1 done 5 6",
        "met 1 over -5 6", "met 1 over 5 18446744073709551616", "meet 1 over 5 6"})
    EXPECT_FALSE(met_line(line)) << line;
  NodeReport report;
  EXPECT_FALSE(take_line("probed", report));
  EXPECT_FALSE(take_line("", report));
  // A later version's facts are no reason to fail.
  EXPECT_TRUE(take_line("fact colour green", report));
  EXPECT_TRUE(take_line("fact cores many", report));
  EXPECT_EQ(report.cores, 0u);
}

/// An agent of another version, or a shell that talks, may say anything.
TEST(CheckLines, AnyBytesAreJudgedWithoutHarm) {
  SeededRandom random(1);
  std::vector<std::string> good = to_lines(good_report(1));
  good.push_back(to_line(1, {PairStage::kOver, "", 1, 1}));
  for (int round = 0; round < 20'000; ++round) {
    Checked checked = good_nodes(2);
    checked.nodes[1].report = {};
    for (std::string line : good) {
      for (int n = 0; n < 2 && !line.empty(); ++n)
        line[random.below(line.size())] = static_cast<char>(random.next());
      static_cast<void>(take_line(line, checked.nodes[1].report));
      if (const auto met = met_line(line)) checked.pairs[0].of_second = met->result;
    }
    checked.pairs[0].first_dials = {true, "nothing answers"};
    if (checked.nodes[1].report.networks.empty()) checked.pairs[0].network.clear();
    // Of a name that the node has, as the tests choose it.
    else
      checked.pairs[0].network = checked.nodes[1].report.networks[0].name;
    EXPECT_FALSE(render(checked, judge(checked)).empty());
  }
}

TEST(LineReader, LinesComeWholeAndLongOnesInPieces) {
  LineReader reader;
  reader.add("one\ntw");
  EXPECT_EQ(reader.next(), "one");
  EXPECT_FALSE(reader.next());
  reader.add("o\r\n\n");
  EXPECT_EQ(reader.next(), "two");
  EXPECT_EQ(reader.next(), "");
  EXPECT_FALSE(reader.next());
  reader.add(std::string(LineReader::kMostBytes + 5, 'x'));
  EXPECT_EQ(reader.next()->size(), LineReader::kMostBytes);
  EXPECT_FALSE(reader.next());
  reader.add("\n");
  EXPECT_EQ(reader.next(), "xxxxx");
}

TEST(PairsToTest, AreAllOfFewAndSomeOfMany) {
  for (const std::size_t nodes : {2u, 3u, 7u, 64u}) {
    const auto pairs = pairs_to_test(nodes, false);
    EXPECT_EQ(std::set(pairs.begin(), pairs.end()).size(), nodes * (nodes - 1) / 2);
    EXPECT_EQ(pairs.size(), nodes * (nodes - 1) / 2);
  }
  for (const std::size_t nodes : {65u, 128u, 1000u}) {
    const auto pairs = pairs_to_test(nodes, false);
    EXPECT_EQ(std::set(pairs.begin(), pairs.end()).size(), pairs.size()) << nodes;
    EXPECT_LT(pairs.size(), nodes * 11) << nodes;
    std::vector<std::size_t> count(nodes);
    for (const auto& [first, second] : pairs) {
      ASSERT_LT(first, second);
      ASSERT_LT(second, nodes);
      ++count[first];
      ++count[second];
    }
    EXPECT_GE(*std::ranges::min_element(count), 6u) << nodes;
  }
  EXPECT_EQ(pairs_to_test(100, true).size(), 4950u);
}

TEST(HostsOf, TakesAListOrAFile) {
  EXPECT_EQ(hosts_of("node1,node2,node1").value(), (std::vector<std::string>{"node1", "node2"}));
  EXPECT_EQ(hosts_of("node1:4, node2:4 ,").value(), (std::vector<std::string>{"node1", "node2"}));
  std::string name = testing::TempDir() + "ch3-offload-hosts-XXXXXX";
  const int file = mkstemp(name.data());
  ASSERT_GE(file, 0);
  close(file);
  std::ofstream(name) << "# the rack\nnode1:2\n\n  node2 maxprocs=3\nnode3 # new\n";
  EXPECT_EQ(hosts_of(name).value(), (std::vector<std::string>{"node1", "node2", "node3"}));
  unlink(name.c_str());
  for (const char* const wrong : {"", ",", "node1", "node1,node1", "node1,-oProxyCommand=reboot"})
    EXPECT_FALSE(hosts_of(wrong).ok()) << wrong;
  EXPECT_NE(hosts_of("node1").error().message.find("names one host"), std::string::npos);
}

TEST(Judge, FindsNothingWhereAllIsWell) {
  EXPECT_EQ(found(good_nodes(4)), "");
  EXPECT_NE(render(good_nodes(4), {}).find("Nothing is wrong: 4 nodes, 6 pairs."), std::string::npos);
}

TEST(Judge, NamesWhatIsWrongWithANode) {
  Checked checked = good_nodes(4);
  checked.nodes[0].why_not = "ended with status 255: ssh: Could not resolve hostname node1";
  checked.nodes[1].report.version = "0.1";
  checked.nodes[2].report.wrong = {"MPIR_CVAR_CH3_OFFLOAD_FABRIC=x: it takes auto"};
  checked.nodes[3].report.wrong = {"MPIR_CVAR_CH3_OFFLOAD_FABRIC=x: it takes auto"};
  checked.nodes[3].clock_offset_ns = -90'000'000'000;
  const std::string text = found(checked);
  EXPECT_NE(text.find("WRONG node1 does not answer: ended with status 255: ssh:"), std::string::npos) << text;
  EXPECT_NE(text.find("WRONG node2 has ch3-offload 0.1 "), std::string::npos) << text;
  EXPECT_NE(text.find("WRONG node3 and node4: MPIR_CVAR_CH3_OFFLOAD_FABRIC=x"), std::string::npos) << text;
  EXPECT_NE(text.find("note the clock of node4 is 90.0 s behind this node's"), std::string::npos) << text;
  // A clock that is known no better is not wrong.
  checked.nodes[3].clock_error_ns = 100'000'000'000;
  EXPECT_EQ(found(checked).find("clock"), std::string::npos);
}

TEST(Judge, SaysWhatSeveralNodesHaveInOneLine) {
  Checked checked = good_nodes(20);
  for (CheckedNode& node : checked.nodes) node.report.notes = {"messages of this node go over TCP: why"};
  EXPECT_EQ(found(checked), "note all nodes: messages of this node go over TCP: why\n");
  checked.nodes[0].report.notes.clear();
  EXPECT_EQ(
      found(checked),
      "note node2, node3, node4, node5, node6, node7, node8, node9 and 11 others: messages of this node go "
      "over TCP: why\n");
}

TEST(Judge, KnowsAnAddressThatIsNotBetweenNodes) {
  Checked checked = good_nodes(3);
  for (const std::size_t node : {0u, 2u})
    checked.nodes[node].report.networks[0].address = "tcp:1/172.17.0.1/40001/32768/0123456789abcdef";
  const std::string text = found(checked);
  EXPECT_NE(text.find("WRONG node1 and node3 have the same address, 172.17.0.1, "), std::string::npos)
      << text;
}

TEST(Judge, ComparesLinks) {
  Checked checked = good_nodes(3);
  checked.nodes[1].report.networks[0].mtu_bytes = 9000;
  checked.nodes[2].report.networks[0].rate_mbit = 25000;
  const std::string text = found(checked);
  EXPECT_NE(
      text.find("note tcp: the MTUs differ: 1500 on node1 (eth0) and node3 (eth0), 9000 on node2 (eth0)"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find("note tcp: the links differ: 10 Gbit/s on node1 (eth0) and node2 (eth0), 25 Gbit/s on node3"),
      std::string::npos)
      << text;
}

TEST(Judge, SaysHowFarAPairHasComeAndWhoCannotConnect) {
  Checked checked = good_nodes(3);
  CheckedPair& pair = checked.pairs[0];  // node1 and node2
  pair.of_first = {PairStage::kFirst, "nothing has come for 5 s", 0, 0};
  pair.of_second = {PairStage::kFirst, "the connection broke", 0, 0};
  pair.first_dials = {true, std::string(kNothingAnswers)};
  pair.second_dials = {true, ""};
  std::string text = found(checked);
  EXPECT_NE(
      text.find(
          "WRONG node1 and node2 exchange no messages over tcp: nothing has come for 5 s; node1 cannot "
          "connect to node2 at 10.9.0.2, TCP port 40001: nothing answers; node2 can connect to node1 at "
          "10.9.0.1, TCP port 40001. A firewall"),
      std::string::npos)
      << text;
  pair.first_dials = pair.second_dials = {};
  pair.of_first.stage = PairStage::kLong;
  EXPECT_NE(found(checked).find("short messages arrive, and long ones do not: "), std::string::npos);
  // The tables have it, too.
  EXPECT_NE(render(checked, judge(checked)).find("FAILS"), std::string::npos);
}

TEST(Judge, NamesANodeThatNobodyReachesOnce) {
  Checked checked = good_nodes(5);
  for (CheckedPair& pair : checked.pairs)
    if (pair.first == 3 || pair.second == 3) pair.of_first = {PairStage::kFirst, "nothing has come", 0, 0};
  const std::string text = found(checked);
  EXPECT_NE(text.find("WRONG node4 exchanges messages with none of the 4 nodes"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

TEST(Judge, TellsOfWaysThatAreSlow) {
  Checked checked = good_nodes(4);
  checked.pairs[2].of_second.bytes_per_s = 100'000'000;
  checked.pairs[3].of_first.latency_ns = 300'000;
  const std::string text = found(checked);
  EXPECT_NE(text.find("note 1 of 6 pairs move less than half of what their link does"), std::string::npos)
      << text;
  EXPECT_NE(text.find("0.100 GB/s over tcp, 8 %"), std::string::npos) << text;
  EXPECT_NE(text.find("between 1 of 6 pairs a short message takes more than 4 times"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("WRONG"), std::string::npos) << text;
}

}  // namespace
}  // namespace ch3_offload
