#include "rdma/monotonic_clock.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

TEST(MonotonicClock, GoesForward) {
  const std::uint64_t first = monotonic_ns();
  EXPECT_GE(monotonic_ns(), first);
}

TEST(MonotonicClock, ElapsedIsZeroWhereTheMomentCameAfterTheReading) {
  EXPECT_EQ(elapsed_ns(10, 3), 7u);
  EXPECT_EQ(elapsed_ns(10, 10), 0u);
  EXPECT_EQ(elapsed_ns(10, 11), 0u);
}

}  // namespace
}  // namespace ch3_offload
