#include "trace_clock.h"

#include <gtest/gtest.h>

#include "tools/trace_sample.h"

namespace ch3_offload {
namespace {

constexpr std::int64_t kEpoch = static_cast<std::int64_t>(TraceSample::kEpochNs);

TEST(RealtimeClock, RanksOfOneNodeKeepTheirCommonClock) {
  TraceSample first(0, 2);
  TraceSample second(1, 2);
  // Read at another moment, and a little off: must not matter.
  second.header().at_start = {500, TraceSample::kEpochNs + 900};
  second.header().at_write = {100'500, TraceSample::kEpochNs + 100'800};
  const RealtimeClock clock(std::vector{first.file(), second.file()});
  EXPECT_EQ(clock.node_count(), 1u);
  EXPECT_EQ(clock.realtime_ns(0, 1000), clock.realtime_ns(1, 1000));
  EXPECT_EQ(clock.realtime_ns(0, 1000), kEpoch + 1000);
}

TEST(RealtimeClock, NodesMeetOnRealTime) {
  const RealtimeClock clock(
      std::vector{TraceSample(0, 2, 7, 5000).file(), TraceSample(1, 2, 8, 900'000).file()});
  EXPECT_EQ(clock.node_count(), 2u);
  EXPECT_EQ(clock.node_of(1), 1u);
  EXPECT_EQ(clock.realtime_ns(0, 5000), kEpoch);
  EXPECT_EQ(clock.realtime_ns(1, 900'000), kEpoch);
}

TEST(RealtimeClock, DriftIsSpreadOverTheTrace) {
  TraceSample slow(1, 2, 8);
  slow.header().at_write.realtime_ns += 100'000;  // 100 ppm in its second.
  const RealtimeClock clock(std::vector{TraceSample(0, 2, 7).file(), slow.file()});
  EXPECT_EQ(clock.realtime_ns(1, 500'000'000), kEpoch + 500'050'000);
}

TEST(RealtimeClock, AClockThatWasSetIsNoDrift) {
  TraceSample set(1, 2, 8);
  set.header().at_write.realtime_ns += 3'600'000'000'000;
  const RealtimeClock clock(std::vector{TraceSample(0, 2, 7).file(), set.file()});
  EXPECT_EQ(clock.realtime_ns(1, 500'000'000), kEpoch + 500'000'000);
}

TEST(RealtimeClock, ASimulationHasOneClock) {
  TraceSample first(0, 2, 7);
  TraceSample second(1, 2, 8);
  first.header().clock = second.header().clock = static_cast<std::uint32_t>(TraceClock::kSimulated);
  second.header().at_start.realtime_ns += 12345;
  const RealtimeClock clock(std::vector{first.file(), second.file()});
  EXPECT_EQ(clock.node_count(), 1u);
  EXPECT_EQ(clock.realtime_ns(0, 77), clock.realtime_ns(1, 77));
}

TEST(AlignNodes, TwoWayTrafficIsCentred) {
  // Node 1 runs 1000 ns ahead; the true flights take 5 both ways.
  const auto shifts = align_nodes(2, {{{0, 1}, 1005}, {{1, 0}, -995}});
  EXPECT_EQ(shifts, (std::vector<std::int64_t>{0, -1000}));
}

TEST(AlignNodes, OneWayTrafficIsMovedNoFurtherThanNeeded) {
  EXPECT_EQ(align_nodes(2, {{{0, 1}, -30}}), (std::vector<std::int64_t>{0, 30}));
  EXPECT_EQ(align_nodes(2, {{{1, 0}, -30}}), (std::vector<std::int64_t>{0, -30}));
  EXPECT_EQ(align_nodes(2, {{{0, 1}, 400}}), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(align_nodes(2, {{{1, 0}, 400}}), (std::vector<std::int64_t>{0, 0}));
}

TEST(AlignNodes, TheTightestRoundTripsLeadTheWay) {
  // 0 and 2 talk over a slow and lopsided path; by way of 1 the bounds are tight.
  const ShortestFlights flights = {{{0, 1}, 15},  {{1, 0}, -5},  {{1, 2}, 105},
                                   {{2, 1}, -95}, {{0, 2}, 900}, {{2, 0}, 100}};
  EXPECT_EQ(align_nodes(3, flights), (std::vector<std::int64_t>{0, -10, -110}));
}

TEST(AlignNodes, SilentNodesKeepTheirClocks) {
  EXPECT_EQ(align_nodes(4, {{{2, 3}, -7}}), (std::vector<std::int64_t>{0, 0, 0, 7}));
}

}  // namespace
}  // namespace ch3_offload
