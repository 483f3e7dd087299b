#include "dme/pin_budget.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

TEST(PinBudget, HalfOfTheMemoryIsShared) {
  EXPECT_EQ(pin_budget({SIZE_MAX, 256 * kGiB, 1}).most_bytes, 128 * kGiB);
  EXPECT_EQ(pin_budget({SIZE_MAX, 256 * kGiB, 64}).most_bytes, 2 * kGiB);
}

TEST(PinBudget, ALimitOfLockedMemoryBinds) {
  EXPECT_EQ(pin_budget({std::size_t{8} << 20, 256 * kGiB, 2}).most_bytes, std::size_t{6} << 20);
}

TEST(PinBudget, RegionsAreSharedAndNeverNone) {
  EXPECT_EQ(pin_budget({SIZE_MAX, kGiB, 1}).most_regions, 65536u);
  EXPECT_EQ(pin_budget({SIZE_MAX, kGiB, 64}).most_regions, 1024u);
  EXPECT_EQ(pin_budget({SIZE_MAX, kGiB, 100'000}).most_regions, 64u);
}

TEST(PinBudget, IsNeverUnlimitedHere) {
  const PinDownConfig config = pin_budget(pin_limits(1));
  EXPECT_GT(config.most_bytes, 0u);
  EXPECT_LT(config.most_bytes, SIZE_MAX / 4);
  EXPECT_EQ(pin_limits(0).processes, 1u);
}

}  // namespace
}  // namespace ch3_offload
