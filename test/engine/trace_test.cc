#include "engine/trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "engine/trace_contents.h"

namespace ch3_offload {
namespace {

std::uint64_t simulated_ns = 0;
std::uint64_t simulated_clock() noexcept { return simulated_ns++; }

/// A directory that goes away with the test.
class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    std::string pattern = testing::TempDir() + "ch3-trace-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~TraceTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const char* name) const { return directory_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  std::string directory_;
};

TEST(TraceEventName, EveryEventHasItsOwn) {
  std::set<std::string> names;
  for (int event = 0; event < static_cast<int>(TraceEvent::kCount); ++event)
    names.insert(trace_event_name(static_cast<TraceEvent>(event)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(TraceEvent::kCount));
  EXPECT_EQ(names.count("Unknown"), 0u);
  EXPECT_STREQ(trace_event_name(TraceEvent::kCount), "Unknown");
  EXPECT_STREQ(trace_event_name(static_cast<TraceEvent>(255)), "Unknown");
}

/// What this process has in memory.
std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Trace, AnEmptyRingTakesNoMemory) {
  const std::size_t before = resident_bytes();
  const Trace trace(PeerId{0}, 1, std::size_t{1} << 22);  // 160 MiB of records.
  EXPECT_LT(resident_bytes(), before + (std::size_t{16} << 20));
}

TEST_F(TraceTest, HeaderSaysWhoWhereAndWhen) {
  const Trace trace(PeerId{3}, 8, 0);
  ASSERT_EQ(trace.write(path("a")), 0);
  const TraceFileHeader header = read_back(path("a")).header;
  EXPECT_EQ(std::memcmp(header.magic, kTraceMagic, sizeof header.magic), 0);
  EXPECT_EQ(header.version, kTraceVersion);
  EXPECT_EQ(header.record_bytes, sizeof(TraceRecord));
  EXPECT_EQ(header.self, 3u);
  EXPECT_EQ(header.job_size, 8u);
  EXPECT_EQ(header.count, 0u);
  EXPECT_EQ(header.first_index, 0u);
  EXPECT_EQ(header.process_id, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(header.clock, static_cast<std::uint32_t>(TraceClock::kMonotonic));
  EXPECT_EQ(header.side, static_cast<std::uint32_t>(TraceSide::kEngine));
  EXPECT_GT(header.at_start.realtime_ns, 0u);
  EXPECT_LT(header.at_start.clock_ns, header.at_write.clock_ns);
  EXPECT_NE(header.host[0], '\0');
  EXPECT_EQ(header.host[sizeof header.host - 1], '\0');
}

TEST_F(TraceTest, TwoTracesOfOneNodeShareTheNodeId) {
  ASSERT_EQ(Trace(PeerId{0}, 2, 0).write(path("a")), 0);
  ASSERT_EQ(Trace(PeerId{1}, 2, 0).write(path("b")), 0);
  EXPECT_EQ(read_back(path("a")).header.node_id, read_back(path("b")).header.node_id);
}

TEST_F(TraceTest, RecordsComeBackInOrderWithTheirFields) {
  simulated_ns = 100;
  Trace trace(PeerId{0}, 2, 0, simulated_clock);
  const std::uint64_t begin = simulated_ns;
  trace.record(TraceEvent::kSendPosted, PeerId{1}, 7, 4096, &trace);
  trace.record(TraceEvent::kSendShort, PeerId{1}, 7, 4096);
  ASSERT_EQ(trace.write(path("a")), 0);
  const TraceContents contents = read_back(path("a"));
  EXPECT_EQ(contents.header.clock, static_cast<std::uint32_t>(TraceClock::kSimulated));
  ASSERT_EQ(contents.records.size(), 2u);
  const TraceRecord& record = contents.records[0];
  EXPECT_EQ(record.time_ns, begin);
  EXPECT_EQ(record.number, 7u);
  EXPECT_EQ(record.detail, 4096u);
  EXPECT_EQ(record.cookie, reinterpret_cast<std::uintptr_t>(&trace));
  EXPECT_EQ(record.peer, 1u);
  EXPECT_EQ(record.event, static_cast<std::uint8_t>(TraceEvent::kSendPosted));
  EXPECT_EQ(contents.records[1].time_ns, begin + 1);
}

TEST_F(TraceTest, HasNoEventsWithProcessesOfOtherWorlds) {
  Trace trace(PeerId{0}, 2, 0);
  trace.record(TraceEvent::kSendPosted, PeerId{1}, 1, 0);
  trace.record(TraceEvent::kSendPosted, PeerId{2}, 1, 0);
  trace.record(TraceEvent::kSendPosted, next_generation(PeerId{2}), 1, 0);
  ASSERT_EQ(trace.write(path("a")), 0);
  const TraceContents contents = read_back(path("a"));
  ASSERT_EQ(contents.records.size(), 1u);
  EXPECT_EQ(contents.records[0].peer, 1u);
}

TEST_F(TraceTest, FullRingKeepsTheLatestAndCountsTheLost) {
  Trace trace(PeerId{0}, 1, 1000);  // 1024 after rounding
  for (std::uint64_t i = 0; i < 3000; ++i) trace.record(TraceEvent::kProbe, PeerId{0}, i, 0);
  ASSERT_EQ(trace.write(path("a")), 0);
  const TraceContents contents = read_back(path("a"));
  ASSERT_EQ(contents.records.size(), 1024u);
  EXPECT_EQ(contents.header.first_index, 3000u - 1024);
  for (std::size_t i = 0; i < contents.records.size(); ++i)
    ASSERT_EQ(contents.records[i].number, contents.header.first_index + i);
}

TEST_F(TraceTest, CapacityIsRoundedUpToAPowerOfTwo) {
  Trace trace(PeerId{0}, 1, 1025);
  for (std::uint64_t i = 0; i < 5000; ++i) trace.record(TraceEvent::kProbe, PeerId{0}, i, 0);
  ASSERT_EQ(trace.write(path("a")), 0);
  EXPECT_EQ(read_back(path("a")).records.size(), 2048u);
}

TEST_F(TraceTest, WritingAgainReplacesTheFileAndLeavesNothingElse) {
  Trace trace(PeerId{0}, 1, 0);
  ASSERT_EQ(trace.write(path("a")), 0);
  trace.record(TraceEvent::kSleep, PeerId{0}, 0, 0);
  ASSERT_EQ(trace.write(path("a")), 0);
  EXPECT_EQ(read_back(path("a")).records.size(), 1u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(TraceTest, OnlyTheOwnerMayReadTheFile) {
  const mode_t before = umask(0);
  const int error = Trace(PeerId{0}, 1, 0).write(path("a"));
  umask(before);
  ASSERT_EQ(error, 0);
  struct stat status {};
  ASSERT_EQ(stat(path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, static_cast<mode_t>(0600));
}

TEST_F(TraceTest, FailureIsItsErrnoAndLeavesNothingBehind) {
  const Trace trace(PeerId{0}, 1, 0);
  EXPECT_EQ(trace.write(path("missing/a")), ENOENT);
  EXPECT_EQ(trace.write(std::string(5000, 'x')), ENAMETOOLONG);
  ASSERT_TRUE(std::filesystem::create_directory(path("a")));
  EXPECT_EQ(trace.write(path("a")), EISDIR);  // rename() refuses: the temporary file must go
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace ch3_offload
