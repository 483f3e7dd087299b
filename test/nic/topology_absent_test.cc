#include <gtest/gtest.h>

#include "nic/topology.h"

namespace ch3_offload {
namespace {

TEST(TopologyAbsent, ReadingNamesThePackageThatIsMissing) {
  const auto topology = read_topology();
  ASSERT_FALSE(topology.ok());
  EXPECT_EQ(topology.error().status, Status::kUnsupported);
  EXPECT_NE(topology.error().message.find("libhwloc-dev"), std::string::npos) << topology.error().message;
}

}  // namespace
}  // namespace ch3_offload
