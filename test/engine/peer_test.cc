// Peers that could not be known for want of memory.

#include "engine/peer.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

TEST(MissedPeers, OneThatWasMissedIsToldOnce) {
  MissedPeers missed;
  EXPECT_TRUE(missed.empty());
  missed.note(PeerId{7});
  missed.note(PeerId{9});
  missed.note(PeerId{7});
  EXPECT_FALSE(missed.empty());
  EXPECT_FALSE(missed.take(PeerId{8}));
  EXPECT_TRUE(missed.take(PeerId{7}));
  EXPECT_FALSE(missed.take(PeerId{7}));
  EXPECT_EQ(missed.any(), PeerId{9});
  EXPECT_TRUE(missed.take(PeerId{9}));
  EXPECT_TRUE(missed.empty());
}

TEST(MissedPeers, OfTooManyNobodyIsForgotten) {
  MissedPeers missed;
  for (std::uint32_t i = 0; i < 1000; ++i) missed.note(PeerId{i});
  for (std::uint32_t i = 0; i < 1000; ++i) EXPECT_TRUE(missed.take(PeerId{i})) << i;
  EXPECT_TRUE(missed.empty());
}

}  // namespace
}  // namespace ch3_offload
