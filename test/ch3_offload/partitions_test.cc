#include "ch3_offload/partitions.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

constexpr std::uint64_t kLeast = kLeastPartitionedMessageBytes;
constexpr std::uint64_t kMost = kMostPartitionedMessages;

TEST(Partitions, WithoutBytesThereIsNothingToCut) { EXPECT_EQ(cut_partitions(0, 0, 0), 0u); }

TEST(Partitions, LargePartitionsAreMessagesOfTheirOwn) {
  EXPECT_EQ(cut_partitions(8 << 20, 1 << 20, 8), 1u << 20);
}

TEST(Partitions, SmallPartitionsShareAMessage) {
  EXPECT_EQ(cut_partitions(64 * kLeast, kLeast / 4, 4), kLeast);
  EXPECT_EQ(cut_partitions(64, 1, 1), 64u) << "all of it is less than a message should have";
}

TEST(Partitions, AMessageIsWholePartitionsAndWholeElements) {
  // Partitions of 3 bytes, elements of 8: every 24 bytes both begin anew.
  const std::uint64_t bytes = 24 * 10'000;
  const std::uint64_t each = cut_partitions(bytes, 3, 8);
  EXPECT_EQ(each % 24, 0u);
  EXPECT_GE(each, kLeast);
  EXPECT_LT(each, kLeast + 24);
}

TEST(Partitions, WhatHasNoCommonBoundaryIsOneMessage) {
  EXPECT_EQ(cut_partitions(30'011u * 30'013u, 30'011, 30'013), 30'011u * 30'013u);
}

TEST(Partitions, ThereAreNeverTooManyMessages) {
  const std::uint64_t partition = 1 << 20, partitions = 10 * kMost + 1;
  const std::uint64_t each = cut_partitions(partitions * partition, partition, 1);
  EXPECT_EQ(each, 11 * partition);
}

TEST(Partitions, TheLargestSizesDoNotOverflow) {
  const std::uint64_t bytes = std::uint64_t{1} << 63;
  EXPECT_EQ(cut_partitions(bytes, bytes, 1), bytes);
  EXPECT_EQ(cut_partitions(bytes, 2, bytes / 2), bytes / 2);
}

}  // namespace
}  // namespace ch3_offload
