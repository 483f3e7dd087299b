#include "rdma/verbs/port_wish.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

TEST(PortWish, NamesADeviceAndPerhapsAPortAndAGidIndex) {
  const auto wishes = parse_port_wishes("mlx5_0,mlx5_1:255,mlx5_2:2:0");
  ASSERT_TRUE(wishes && wishes->size() == 3);
  const auto expect = [&](std::size_t i, const char* device, int port, int gid_index) {
    EXPECT_EQ(wishes->at(i).device, device);
    EXPECT_EQ(wishes->at(i).port, port);
    EXPECT_EQ(wishes->at(i).gid_index, gid_index);
  };
  expect(0, "mlx5_0", 0, -1);
  expect(1, "mlx5_1", 255, -1);
  expect(2, "mlx5_2", 2, 0);
  EXPECT_TRUE(parse_port_wishes("")->empty());
}

TEST(PortWish, OneMalformedElementSpoilsTheList) {
  for (const char* text : {"::::", ":1", "mlx5_0:0", "mlx5_0:256", "mlx5_0:-1", "mlx5_0:1:x",
                           "mlx5_0:1:65536", "mlx5_0,,mlx5_1"})
    EXPECT_FALSE(parse_port_wishes(text)) << text;
}

TEST(PartitionKey, IsHexadecimalAndNamesAPartition) {
  EXPECT_EQ(parse_partition_key("0x8001"), 0x8001);
  EXPECT_EQ(parse_partition_key("0x1"), 1);
  EXPECT_EQ(parse_partition_key("0xfFfF"), 0xFFFF);
  for (const char* const wrong : {"", "0x", "0x0", "0x0000", "0x8000", "8001", "0x10000", "0x08001", "-0x1",
                                  "0x-1", "0x+1", "0x1 ", " 0x1", "0x1g", "0X8001", "any"})
    EXPECT_FALSE(parse_partition_key(wrong)) << wrong;
}

}  // namespace
}  // namespace ch3_offload
