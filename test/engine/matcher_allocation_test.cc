// The matcher without memory: indices that cannot be made or grow, and how often that is tried.
//
// Its program replaces operator new (counting_allocator.h).

#include <gtest/gtest.h>

#include <vector>

#include "counting_allocator.h"
#include "engine/matcher.h"

namespace ch3_offload {
namespace {

using allocator::allocations;

TEST(MatcherWithoutMemory, MessagesAreFoundByAllBitsAndByWildcards) {
  constexpr std::uint32_t kMessages = 1000;
  constexpr MatchKey kShapes[] = {kIgnoreNothing, kIgnoreInitiator, kIgnoreTag, kIgnoreInitiatorAndTag};
  Matcher matcher(MatchKey{0});
  std::vector<UnexpectedEntry> messages(kMessages);
  const auto key_of = [](std::uint32_t i) {
    return make_match_key(1, static_cast<std::uint16_t>(i % 7), i / 7);
  };
  const auto find = [&](std::uint32_t first, std::uint32_t end) {
    for (const MatchKey ignore : kShapes) {
      for (std::uint32_t i = first; i < end; i += 50) {
        std::uint32_t oldest = first;
        while (!matches(messages[oldest].key, key_of(i), ignore)) ++oldest;
        EXPECT_EQ(matcher.find_unexpected(key_of(i), ignore), &messages[oldest]) << i << " " << ignore.bits;
      }
    }
  };
  const auto add = [&](std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t i = first; i < end; ++i) {
      messages[i].key = key_of(i);
      matcher.add(messages[i]);
    }
  };
  allocator::left = 0;  // No index can be made,
  add(0, 300);
  find(0, 300);
  allocator::left = allocator::kPlenty;
  find(0, 300);
  add(300, 310);
  find(0, 310);
  allocator::left = 0;  // or the indices cannot grow.
  add(310, kMessages);
  find(0, kMessages);
  for (std::uint32_t i = 0; i < 500; ++i) matcher.remove(messages[i]);
  find(500, kMessages);
  allocator::left = allocator::kPlenty;
  find(500, kMessages);
  for (std::uint32_t i = 500; i < kMessages; ++i) matcher.remove(messages[i]);
  EXPECT_EQ(matcher.unexpected_depth(), 0u);
}

/// Each attempt to build an index that fails goes over all messages.
TEST(MatcherWithoutMemory, AnIndexIsNotTriedForEachReceive) {
  constexpr std::uint32_t kMessages = 1000;
  Matcher matcher(MatchKey{0});
  std::vector<UnexpectedEntry> messages(kMessages);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    messages[i].key = make_match_key(1, 2, i);
    matcher.add(messages[i]);
  }
  const std::uint64_t before = allocations;
  {
    const allocator::Shortage shortage;
    for (std::uint32_t i = 0; i < kMessages; ++i)
      ASSERT_EQ(matcher.find_unexpected(messages[0].key, kIgnoreTag), &messages[0]);
  }
  EXPECT_EQ(allocations - before, 1u);
  for (int i = 0; i < 10; ++i) matcher.find_unexpected(messages[0].key, kIgnoreTag);
  EXPECT_GT(allocations - before, kMessages / 64);  // There is memory again.
}

}  // namespace
}  // namespace ch3_offload
