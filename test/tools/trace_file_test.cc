#include "trace_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "tools/trace_sample.h"

namespace ch3_offload {
namespace {

TraceSample two_events() {
  TraceSample sample(1, 4);
  sample.add(10, TraceEvent::kSendPosted, 2, 1, 64).add(20, TraceEvent::kSendShort, 2, 1, 64);
  return sample;
}

/// The message of the failure, without the path.
std::string flaw_of(std::span<const std::byte> bytes) {
  auto parsed = parse_trace("p", bytes);
  if (parsed.ok()) return "none";
  EXPECT_TRUE(parsed.error().message.starts_with("p: offset ")) << parsed.error().message;
  return parsed.error().message.substr(3);
}

std::string flaw_of(const TraceSample& sample) { return flaw_of(sample.bytes()); }

TEST(ParseTrace, TakesWhatTheWriterWrites) {
  const auto bytes = two_events().bytes();
  auto parsed = parse_trace("p", bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().path, "p");
  EXPECT_EQ(parsed.value().header.self, 1u);
  ASSERT_EQ(parsed.value().records.size(), 2u);
  EXPECT_EQ(parsed.value().records[1].time_ns, 20u);
}

TEST(ParseTrace, EveryTruncationIsFound) {
  const auto bytes = two_events().bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(flaw_of(std::span(bytes).first(length)), "none") << length;
  EXPECT_EQ(flaw_of(std::span(bytes).first(100)), "offset 100: the file ends inside its header of 128 bytes");
  EXPECT_EQ(flaw_of(std::span(bytes).first(168)),
            "offset 32: the header counts 2 records of 40 bytes, but 40 bytes follow it");
}

TEST(ParseTrace, TrailingBytesAreFound) {
  auto bytes = two_events().bytes();
  bytes.emplace_back();
  EXPECT_EQ(flaw_of(bytes), "offset 32: the header counts 2 records of 40 bytes, but 81 bytes follow it");
}

TEST(ParseTrace, HugeCountIsFoundBeforeAnythingIsAllocated) {
  TraceSample sample = two_events();
  sample.header().count = UINT64_MAX / sizeof(TraceRecord) + 1;
  EXPECT_TRUE(flaw_of(sample).starts_with("offset 32: "));
}

TEST(ParseTrace, EachFieldOfTheHeaderIsChecked) {
  struct Case {
    const char* flaw;
    void (*spoil)(TraceFileHeader& header);
  };
  const Case cases[] = {
      {"offset 0: not a trace", [](TraceFileHeader& h) { h.magic[7] = 'X'; }},
      {"offset 8: trace version 9; this program reads version 3", [](TraceFileHeader& h) { h.version = 9; }},
      {"offset 12: records of 48 bytes", [](TraceFileHeader& h) { h.record_bytes = 48; }},
      {"offset 16: rank 4 in a job of 4 processes", [](TraceFileHeader& h) { h.self = 4; }},
      {"offset 20: a job of no processes", [](TraceFileHeader& h) { h.job_size = 0; }},
      {"offset 40: ", [](TraceFileHeader& h) { h.first_index = UINT64_MAX; }},
      {"offset 48: a time", [](TraceFileHeader& h) { h.at_start.clock_ns = UINT64_MAX; }},
      {"offset 56: a time", [](TraceFileHeader& h) { h.at_start.realtime_ns = kTraceLimit; }},
      {"offset 64: a time", [](TraceFileHeader& h) { h.at_write.clock_ns = kTraceLimit; }},
      {"offset 72: a time", [](TraceFileHeader& h) { h.at_write.realtime_ns = kTraceLimit; }},
      {"offset 64: written before",
       [](TraceFileHeader& h) { h.at_start.clock_ns = h.at_write.clock_ns + 1; }},
      {"offset 64: the trace is years",
       [](TraceFileHeader& h) { h.at_write.clock_ns = kLongestTraceNs + 1; }},
      {"offset 84: unknown clock 2", [](TraceFileHeader& h) { h.clock = 2; }},
      {"offset 86: unknown side 2", [](TraceFileHeader& h) { h.side = 2; }},
      {"offset 88: the host name does not end",
       [](TraceFileHeader& h) { std::memset(h.host, 'x', sizeof h.host); }},
      {"offset 90: the host name is not printable", [](TraceFileHeader& h) { h.host[2] = '\x1B'; }},
  };
  for (const Case& c : cases) {
    TraceSample sample = two_events();
    c.spoil(sample.header());
    const std::string flaw = flaw_of(sample);
    EXPECT_TRUE(flaw.starts_with(c.flaw)) << flaw << " instead of " << c.flaw;
  }
}

TEST(ParseTrace, EachFieldOfARecordIsChecked) {
  EXPECT_EQ(flaw_of(TraceSample(0, 2).add(10, TraceEvent::kProbe, 0).add(9, TraceEvent::kProbe, 0)),
            "offset 168: an event before the one that it follows");
  EXPECT_EQ(flaw_of(TraceSample(0, 2).add(2'000'000'000, TraceEvent::kProbe, 0)),
            "offset 128: an event after the file was written");
  EXPECT_EQ(flaw_of(TraceSample(0, 2).add(1, TraceEvent::kProbe, 2)),
            "offset 160: peer 2 in a job of 2 processes");
  EXPECT_EQ(flaw_of(TraceSample(0, 2).add(1, TraceEvent::kCount, 0)),
            "offset 164: unknown event " + std::to_string(static_cast<int>(TraceEvent::kCount)));
  EXPECT_EQ(flaw_of(TraceSample(0, 2).add(1, TraceEvent::kProbe, 0, 0, 0, 0, 1)),
            "offset 165: unknown outcome 1");
}

TEST(ParseTrace, EachSideHasItsOwnEvents) {
  EXPECT_EQ(flaw_of(TraceSample(0, 2).add(1, TraceEvent::kSendGiven, 1)),
            "offset 164: SendGiven in a trace of the engine's side");
  EXPECT_EQ(flaw_of(TraceSample(0, 2).by_client().add(1, TraceEvent::kProbe, 0)),
            "offset 164: Probe in a trace of the client's side");
  EXPECT_EQ(flaw_of(TraceSample(0, 2).by_client().add(1, TraceEvent::kSleep, 0)), "none");
}

TEST(ParseTrace, ACommandHasAnOutcomeAndReturned) {
  const auto command = [](std::uint64_t took_ns, std::uint8_t outcome) {
    return flaw_of(TraceSample(0, 2).by_client().add(1, TraceEvent::kSendGiven, 1, took_ns, 8, 5, outcome));
  };
  EXPECT_EQ(command(100, 2), "none");
  EXPECT_EQ(command(100, 3), "offset 165: unknown outcome 3");
  EXPECT_EQ(command(1'000'000'000, 0), "offset 136: a command that returned after the file was written");
  EXPECT_EQ(command(UINT64_MAX, 0), "offset 136: a command that returned after the file was written");
}

TEST(ParseTrace, AnyFlippedBitsAreRefusedOrHarmless) {
  std::mt19937 random(1);
  const auto good = two_events().bytes();
  for (int round = 0; round < 20000; ++round) {
    auto bytes = good;
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
    auto parsed = parse_trace("p", bytes);
    if (!parsed.ok()) continue;
    for (const TraceRecord& record : parsed.value().records) {
      ASSERT_LT(record.peer, parsed.value().header.job_size);
      ASSERT_LT(record.event, static_cast<std::uint8_t>(TraceEvent::kCount));
      ASSERT_LE(record.time_ns, parsed.value().header.at_write.clock_ns);
    }
  }
}

TEST(ParseTrace, NoiseIsRefused) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(random() % 512);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_NE(flaw_of(bytes), "none");
  }
}

class TraceFilesTest : public testing::Test {
 protected:
  TraceFilesTest() {
    std::string pattern = testing::TempDir() + "ch3-trace-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~TraceFilesTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void make(const std::string& name, std::span<const std::byte> bytes = {}) const {
    std::ofstream(path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  std::string directory_;
};

TEST_F(TraceFilesTest, ReadsAFile) {
  make("a", two_events().bytes());
  auto file = read_trace(path("a"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().records.size(), 2u);
}

TEST_F(TraceFilesTest, WhatIsNoFileIsRefused) {
  EXPECT_EQ(read_trace(path("missing")).error().error_number, ENOENT);
  EXPECT_FALSE(read_trace(directory_).ok());
  EXPECT_FALSE(read_trace("/dev/zero").ok());
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(read_trace(path("fifo")).ok());
  make("empty");
  EXPECT_FALSE(read_trace(path("empty")).ok());
}

TEST_F(TraceFilesTest, AFileStandsForItself) {
  make("run.0.ch3trace");
  auto found = find_traces(path("run.0.ch3trace"));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value(), std::vector{path("run.0.ch3trace")});
}

TEST_F(TraceFilesTest, APrefixStandsForItsRanksInOrder) {
  for (const char* name :
       {"run.10.ch3trace", "run.2.ch3trace", "run.0.ch3trace", "run.x.ch3trace", "run..ch3trace",
        "run.2.client.ch3trace", "run.x.client.ch3trace", "run..client.ch3trace", "run.client.ch3trace",
        "run.1.ch3trace.tmp", "run.1.2.ch3trace", "other.1.ch3trace", "run.-1.ch3trace"})
    make(name);
  auto found = find_traces(path("run"));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value(), (std::vector{path("run.0.ch3trace"), path("run.2.ch3trace"),
                                        path("run.2.client.ch3trace"), path("run.10.ch3trace")}));
}

/// Such as that of the program that was traced.
TEST_F(TraceFilesTest, APrefixMayBeTheNameOfAFileOrADirectory) {
  make("run");
  make("run.0.ch3trace");
  std::filesystem::create_directory(path("runs"));
  make("runs.0.ch3trace");
  for (const std::string name : {"run", "runs"}) {
    auto found = find_traces(path(name));
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value(), std::vector{path(name + ".0.ch3trace")});
  }
}

TEST_F(TraceFilesTest, APrefixWithoutFilesIsAnError) {
  EXPECT_FALSE(find_traces(path("run")).ok());
  EXPECT_FALSE(find_traces(path("missing/run")).ok());
  EXPECT_FALSE(find_traces(directory_).ok());
}

}  // namespace
}  // namespace ch3_offload
