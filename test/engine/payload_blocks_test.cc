// Blocks for payloads: long enough, and used again.

#include "engine/payload_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace ch3_offload {
namespace {

/// AddressSanitizer sees if a block is too short.
TEST(PayloadBlocks, ABlockHoldsItsLength) {
  PayloadBlocks blocks(1 << 20);
  for (std::size_t length = 17; length <= 140'000; length += length < 2100 ? 1 : 997) {
    std::byte* const block = blocks.take(length);
    ASSERT_NE(block, nullptr);
    std::memset(block, 0xA5, length);
    blocks.give_back(block, length);
  }
}

/// A block of another length may be given out only if it is long enough.
TEST(PayloadBlocks, ABlockThatWasGivenBackHoldsWhatItIsGivenFor) {
  PayloadBlocks blocks(1 << 20);
  for (std::size_t length = 17; length <= 70'000; length += length < 2100 ? 1 : 331) {
    blocks.give_back(blocks.take(length), length);
    std::byte* const longer = blocks.take(length + 1);
    std::memset(longer, 0xA5, length + 1);
    blocks.give_back(longer, length + 1);
  }
}

TEST(PayloadBlocks, ASteadyFlowUsesTheSameBlocks) {
  PayloadBlocks blocks(1 << 20);
  for (const std::size_t length : {std::size_t{24}, std::size_t{1000}, std::size_t{1024}, std::size_t{65536}}) {
    std::byte* const first = blocks.take(length);
    std::byte* const second = blocks.take(length);
    blocks.give_back(first, length);
    blocks.give_back(second, length);
    EXPECT_EQ(blocks.take(length), second) << length;
    EXPECT_EQ(blocks.take(length), first) << length;
    blocks.give_back(first, length);
    blocks.give_back(second, length);
  }
}

TEST(PayloadBlocks, NoMoreIsKeptThanTheLimit) {
  PayloadBlocks blocks(3000);
  std::byte* const one = blocks.take(2000);
  std::byte* const other = blocks.take(2000);
  blocks.give_back(one, 2000);
  blocks.give_back(other, 2000);  // Beyond the limit: freed.
  EXPECT_EQ(blocks.take(2000), one);
  blocks.give_back(one, 2000);
}

/// What an earlier part of the program used does not take the room of what this one uses.
TEST(PayloadBlocks, KeptBlocksOfOtherLengthsGiveWay) {
  for (const std::size_t before :
       {std::size_t{24}, std::size_t{1000}, std::size_t{1500}, std::size_t{30'000}}) {
    PayloadBlocks blocks(100'000);
    std::vector<std::byte*> old;
    for (std::size_t i = 0; i < 100'000 / before; ++i) old.push_back(blocks.take(before));
    for (std::byte* const block : old) blocks.give_back(block, before);
    std::byte* const one = blocks.take(40'000);
    std::byte* const other = blocks.take(40'000);
    blocks.give_back(one, 40'000);
    blocks.give_back(other, 40'000);
    EXPECT_EQ(blocks.take(40'000), other) << before;
    EXPECT_EQ(blocks.take(40'000), one) << before;
    blocks.give_back(one, 40'000);
    blocks.give_back(other, 40'000);
  }
}

}  // namespace
}  // namespace ch3_offload
