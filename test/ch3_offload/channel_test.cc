// Which warnings a process gives to its user, and where its network processor's thread runs.

#include "ch3_offload/channel.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace ch3_offload {
namespace {

TEST(LogScope, OneProcessSpeaksForTheNodeAndOneForTheJob) {
  for (const bool of_node : {false, true}) {
    for (const bool of_job : {false, true}) {
      EXPECT_TRUE(says(LogScope::kProcess, of_node, of_job));
      EXPECT_EQ(says(LogScope::kNode, of_node, of_job), of_node);
      EXPECT_EQ(says(LogScope::kJob, of_node, of_job), of_job);
    }
  }
}

/// A process of a job on two nodes with two processes each. Its node lacks the device that the job wants:
/// a warning of the node. Its trace cannot be written: a warning of the process.
class ChannelWarnings : public testing::Test {
 protected:
  void make(std::uint32_t rank, const char* interface = "no-such-interface") {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.rank = rank;
    config.job_size = 4;
    config.local_size = 2;
    config.local_rank = rank % 2;
    config.verbs_device = "no-such-device";
    config.network_interface = interface;
    config.trace = "/nonexistent/trace";
    config.trace_events = 1024;
    Result<std::unique_ptr<Channel>> made = Channel::create(config);
    ASSERT_TRUE(made.ok()) << made.error().message;
    channel_ = std::move(made.value());
  }
  std::vector<std::string> warnings() {
    std::vector<std::string> lines;
    for (Event event; channel_->next_event(event);)
      if (event.kind == Event::Kind::kWarning)
        lines.emplace_back(reinterpret_cast<const char*>(event.bytes), event.length_bytes);
    return lines;
  }

  /// The same with a thread, on a node with far more processes than cores.
  void make_crowded(std::uint32_t rank) {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.rank = rank;
    config.job_size = config.local_size = 1'000;
    config.local_rank = rank;
    config.nic = "thread";
    Result<std::unique_ptr<Channel>> made = Channel::create(config);
    ASSERT_TRUE(made.ok()) << made.error().message;
    channel_ = std::move(made.value());
  }

  std::unique_ptr<Channel> channel_;
};

TEST_F(ChannelWarnings, OfTheNodeComeFromItsFirstProcessOnly) {
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) {
    make(rank);
    const std::vector<std::string> lines = warnings();
    ASSERT_EQ(lines.size(), rank % 2 == 0 ? 1u : 0u) << rank;
    for (const std::string& line : lines) {
      EXPECT_TRUE(line.starts_with("node ")) << line;
      EXPECT_NE(line.find("; tcp: 'no-such-interface' "), std::string::npos) << line;
      EXPECT_NE(line.find(": verbs: no RDMA device is called 'no-such-device'"), std::string::npos) << line;
    }
    EXPECT_TRUE(warnings().empty()) << "once";
  }
}

TEST_F(ChannelWarnings, ThatTcpIsTakenForRdmaComesFromOneProcessOfTheJob) {
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) {
    make(rank, "");
    const std::vector<std::string> lines = warnings();
    // A node without any address has no network at all.
    if (!lines.empty() && lines[0].starts_with("node ")) GTEST_SKIP() << lines[0];
    ASSERT_EQ(lines.size(), rank == 0 ? 1u : 0u) << rank;
    for (const std::string& line : lines)
      EXPECT_TRUE(
          line.starts_with("messages between nodes go over TCP (MPIR_CVAR_CH3_OFFLOAD_FABRIC=shm+tcp "))
          << line;
  }
}

TEST_F(ChannelWarnings, OfTheProcessComeFromEach) {
  for (const std::uint32_t rank : {0u, 3u}) {
    make(rank);
    warnings();
    EXPECT_NE(channel_->write_trace(), 0);
    const std::vector<std::string> lines = warnings();
    ASSERT_EQ(lines.size(), 2u) << "one for each side";
    EXPECT_TRUE(lines[0].starts_with("cannot write the trace /nonexistent/trace." + std::to_string(rank)))
        << lines[0];
  }
}

TEST_F(ChannelWarnings, OfAThreadWithoutACoreComeFromOneProcessOfTheJob) {
  if (!read_topology().ok()) GTEST_SKIP() << "without a topology, the warning is another one";
  make_crowded(0);
  const std::vector<std::string> lines = warnings();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("the network processor's thread shares cores")) << lines[0];
  EXPECT_TRUE(channel_->is_crowded());
  make_crowded(1);
  EXPECT_TRUE(warnings().empty());
}

/// The masks of this process's threads that are network processors.
std::vector<ProcessorSet> masks_of_network_processors() {
  std::vector<ProcessorSet> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name == "ch3-offload-nic") masks.push_back(affinity_of(std::stoi(task.path().filename())));
  }
  return masks;
}

TEST(ChannelThread, RunsWhereTheUserSays) {
  const ProcessorSet before = affinity_of(0);
  const std::string last = std::to_string(*before.rbegin());
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  config.nic = "thread";
  config.nic_cores = last.c_str();
  const Result<std::unique_ptr<Channel>> made = Channel::create(config);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(masks_of_network_processors(), std::vector<ProcessorSet>{{*before.rbegin()}});
  EXPECT_EQ(affinity_of(0), before) << "the client is not bound";
}

TEST(ChannelThread, IsNotThereIfTheJobMayNotRunOnItsProcessor) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  config.nic = "thread";
  config.nic_cores = "65535";
  const Result<std::unique_ptr<Channel>> made = Channel::create(config);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("MPIR_CVAR_CH3_OFFLOAD_NIC_CORES=65535"), std::string::npos);
  EXPECT_TRUE(masks_of_network_processors().empty());
}

}  // namespace
}  // namespace ch3_offload
