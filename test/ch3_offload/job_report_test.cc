#include "ch3_offload/job_report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/card.h"
#include "engine/wire.h"

namespace ch3_offload {
namespace {

constexpr const char* kShm = ";shm:1:1f0c9a52be7d4e13:9b2d6c0f54a8e7317c1e5a90d3f2468b";

std::string roce(int host) {
  return ";verbs:4/r/10.9.0." + std::to_string(host) + "/40001/8192/0000000000000001/0123456789abcdef";
}
std::string infiniband(int host, int subnet = 0) {
  return ";verbs:4/i/10.9.0." + std::to_string(host) + "/40001/8192/fe8000000000000" +
         std::to_string(subnet) + "/0123456789abcdef";
}
std::string tcp(int host) {
  return ";tcp:1/10.9.0." + std::to_string(host) + "/40002/32768/0123456789abcdef";
}

class JobReport : public testing::Test {
 protected:
  void SetUp() override {
    ch3_offload_config_default(&config_);
    own_[0].name = "shm";
    own_[0].max_slot_bytes = 16384 + sizeof(wire::EagerHeader);
    own_[0].write = own_[0].writes_by_copying = true;
    own_[0].write_threshold_bytes = 524288;
    own_[1].name = "verbs";
    own_[1].max_slot_bytes = 8000 + sizeof(wire::EagerHeader);
    own_[1].write = true;
    own_[1].write_threshold_bytes = 16384;
    own_[2].name = "tcp";
    own_[2].max_slot_bytes = 32000 + sizeof(wire::EagerHeader);
    own_[2].write = true;
    own_[2].write_threshold_bytes = 65536;
  }
  /// A card with these addresses.
  void add(const std::string& addresses, std::uint32_t ranks = 2) {
    cards_.push_back(card_version() + addresses);
    ranks_.push_back(ranks);
  }
  std::string report(std::string_view driver = "host") {
    std::vector<ReportedNode> nodes;
    for (std::size_t i = 0; i < cards_.size(); ++i) nodes.push_back({cards_[i], ranks_[i]});
    std::string text;
    for (const std::string& line : job_report(config_, own_, driver, nodes)) text += line + "\n";
    return text;
  }

  ch3_offload_config_t config_{};
  std::vector<Capabilities> own_{3};
  std::vector<std::string> cards_;
  std::vector<std::uint32_t> ranks_;
};

TEST_F(JobReport, OfOneNodeHasOneWay) {
  add(kShm);
  EXPECT_EQ(report(),
            "report: 2 ranks on 1 node; messages are matched and moved inside the calls of MPI "
            "(MPIR_CVAR_CH3_OFFLOAD_NIC=host)\n"
            "report: within a node: shm, in one slot up to 16384 bytes, eager up to 65536 "
            "(MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT), longer ones from 131072 on copied once by the "
            "kernel where that is faster\n");
}

TEST_F(JobReport, OfEqualNodesHasTheWayBetweenThem) {
  for (int i = 1; i <= 3; ++i) add(kShm + roce(i) + tcp(i));
  EXPECT_NE(report().find(
                "\nreport: nodes 0-2 (10.9.0.1 and others) among themselves: verbs (RoCE), in one slot up "
                "to 8000 bytes, eager up to 65536 (MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT), longer ones written "
                "to their place from 16384 on\n"),
            std::string::npos)
      << report();
}

TEST_F(JobReport, OfUnequalNodesHasEachPairOfKindsAndWhy) {
  add(kShm + roce(1) + tcp(1));
  add(kShm + tcp(2));
  add(kShm + roce(3) + tcp(3));
  add(kShm + tcp(4));
  const std::string text = report();
  EXPECT_NE(text.find("report: nodes 0,2 (10.9.0.1 and others) among themselves: verbs (RoCE), "),
            std::string::npos)
      << text;
  EXPECT_NE(
      text.find(
          "report: nodes 0,2 (10.9.0.1 and others) with nodes 1,3 (10.9.0.2 and others): tcp, in one slot "
          "up to 32000 bytes"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("; nodes 1,3 have no verbs\n"), std::string::npos) << text;
  EXPECT_NE(text.find("report: nodes 1,3 (10.9.0.2 and others) among themselves: tcp, "), std::string::npos)
      << text;
}

TEST_F(JobReport, KnowsThatInfiniBandAndRoceDoNotMeet) {
  add(kShm + roce(1) + tcp(1));
  add(kShm + infiniband(2) + tcp(2));
  EXPECT_NE(report().find("node 0 (10.9.0.1) with node 1 (10.9.0.2): tcp, "), std::string::npos) << report();
  EXPECT_NE(report().find("; one side has RoCE, the other InfiniBand\n"), std::string::npos) << report();
}

TEST_F(JobReport, KnowsSubnetsOfInfiniBandApart) {
  for (int i = 0; i < 4; ++i) add(kShm + infiniband(i, i % 2) + tcp(i));
  const std::string text = report();
  EXPECT_NE(text.find("nodes 0,2 (10.9.0.0 and others) among themselves: verbs (InfiniBand), "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("nodes 0,2 (10.9.0.0 and others) with nodes 1,3 (10.9.0.1 and others): tcp, "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("; they are on different subnets of InfiniBand\n"), std::string::npos) << text;
}

/// A line is cut after 1,023 bytes.
TEST_F(JobReport, OfManyNodesIsShort) {
  for (int i = 0; i < 500; ++i) add(kShm + (i % 2 == 0 ? roce(i % 200) : "") + tcp(i % 200));
  EXPECT_NE(
      report().find("nodes 0,2,4,6,8,10,12,14 and 242 others (10.9.0.0 and others) among themselves: verbs"),
      std::string::npos);
  const std::string text = report();
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    EXPECT_LT(end - at, 1024u);
}

TEST_F(JobReport, SaysWhoReachesNobody) {
  config_.fabric = "shm+verbs";
  add(kShm + roce(1), 1);
  add(kShm, 1);
  EXPECT_EQ(report(),
            "report: 2 ranks on 2 nodes; messages are matched and moved inside the calls of MPI "
            "(MPIR_CVAR_CH3_OFFLOAD_NIC=host)\n"
            "report: node 0 (10.9.0.1) with node 1 (no address): nothing, so their first message will fail: "
            "node 1 has "
            "no verbs, MPIR_CVAR_CH3_OFFLOAD_FABRIC=shm+verbs leaves out tcp\n");
}

TEST_F(JobReport, OfProcessorsOfNodesLeavesOutWhatTheyAloneKnow) {
  config_.nic = "process";
  own_.clear();
  add(tcp(1));
  add(tcp(2));
  EXPECT_EQ(report("process"),
            "report: 4 ranks on 2 nodes; messages are matched and moved by the processor of each node, "
            "ch3-offload-nicd (MPIR_CVAR_CH3_OFFLOAD_NIC=process)\n"
            "report: within a node: the node's processor, eager up to 65536 bytes\n"
            "report: nodes 0-1 (10.9.0.1 and others) among themselves: tcp, eager up to 65536 bytes; nodes "
            "0-1 have no "
            "verbs\n");
}

TEST_F(JobReport, AlsoWithinANodeWithoutSharedMemory) {
  config_.fabric = "tcp";
  add(tcp(1));
  EXPECT_NE(report("thread").find("\nreport: node 0 (10.9.0.1) among themselves: tcp, "), std::string::npos)
      << report("thread");
}

TEST_F(JobReport, BearsAnyCard) {
  for (const char* const card :
       {"", ";", "v=1", "as=1;", "verbs:4/", "tcp:1/x/y/z/w", ";;;;;", "v=10;as=4;to=x;"}) {
    cards_ = {card, card};
    ranks_ = {1, 1};
    EXPECT_NE(report().find("nothing, so their first message will fail"), std::string::npos) << card;
  }
}

}  // namespace
}  // namespace ch3_offload
