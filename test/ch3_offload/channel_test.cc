// Which warnings a process gives to its user.

#include "ch3_offload/channel.h"

#include <gtest/gtest.h>

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
  void make(std::uint32_t rank) {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.rank = rank;
    config.job_size = 4;
    config.local_size = 2;
    config.local_rank = rank % 2;
    config.verbs_device = "no-such-device";
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

  std::unique_ptr<Channel> channel_;
};

TEST_F(ChannelWarnings, OfTheNodeComeFromItsFirstProcessOnly) {
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) {
    make(rank);
    const std::vector<std::string> lines = warnings();
    ASSERT_EQ(lines.size(), rank % 2 == 0 ? 1u : 0u) << rank;
    for (const std::string& line : lines) EXPECT_TRUE(line.starts_with("verbs: ")) << line;
    EXPECT_TRUE(warnings().empty()) << "once";
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

}  // namespace
}  // namespace ch3_offload
