// Messages that wait where there is no memory. Its program replaces operator new (counting_allocator.h).

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "counting_allocator.h"
#include "rdma/contract_world.h"
#include "rdma/verbs/devices/fake_rails.h"
#include "rdma/verbs/transport/message_buffers.h"

namespace ch3_offload {
namespace {

class BuffersAllocation : public FakeRails {
 protected:
  static SlotPool make_pool(ibv_pd* domain) {
    SlotPool pool(std::span(&domain, 1), 512, 64, 128);
    EXPECT_FALSE(pool.grow());
    return pool;
  }

  DeviceContext context_ = std::move(open_verbs_device("fake0").value());
  ProtectionDomain domain_{ibv_alloc_pd(context_.get())};
  MessageBuffers buffers_{make_pool(domain_.get())};
};

TEST_F(BuffersAllocation, WithoutMemoryAMessageHasNoPlace) {
  for (std::uint64_t succeed = 0;; ++succeed) {
    ASSERT_LT(succeed, 10u);
    std::uint32_t place;
    {
      const allocator::Shortage shortage(succeed);
      place = buffers_.take_memory(100);
    }
    if (place != kNone) {
      buffers_.give_back({Item::Kind::kWaitingMessage, place});
      break;
    }
    EXPECT_EQ(buffers_.waiting(), 0u);
  }
  EXPECT_EQ(buffers_.waiting(), 0u);
}

TEST_F(BuffersAllocation, GivingBackNeedsNoMemory) {
  std::vector<std::uint32_t> places(100);
  for (std::uint32_t& place : places) place = buffers_.take_memory(100);
  const std::uint64_t before = allocator::allocations;
  for (const std::uint32_t place : places) buffers_.give_back({Item::Kind::kWaitingMessage, place});
  EXPECT_EQ(allocator::allocations, before);
  EXPECT_EQ(buffers_.waiting(), 0u);
}

TEST_F(BuffersAllocation, WithoutMemoryMessagesOfALinkThatEndedKeepTheirSlots) {
  Link link;
  link.raise_limit(std::uint64_t{100});
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Item item{.kind = Item::Kind::kMessage,
                    .index = buffers_.take_slot(MessageBuffers::SlotUse::kMessage),
                    .length_bytes = 100};
    Pattern(i).fill({buffers_.address(item), 100});
    link.push(item);
  }
  {
    const allocator::Shortage shortage(4);  // For one place, and its list, or two.
    buffers_.move_from_slots(link);
  }
  EXPECT_GT(buffers_.waiting(), 0u);
  EXPECT_GT(buffers_.slots_taken(), 0u);
  EXPECT_EQ(buffers_.waiting() + buffers_.slots_taken(), 4u);
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::vector<std::byte> wanted = Pattern(i).bytes(100);
    EXPECT_EQ(std::memcmp(buffers_.address(link.item(i)), wanted.data(), wanted.size()), 0) << i;
  }
  buffers_.move_from_slots(link);
  EXPECT_EQ(buffers_.waiting(), 4u);
  EXPECT_EQ(buffers_.slots_taken(), 0u);
}

TEST_F(BuffersAllocation, WithoutMemoryASlotTakesNone) {
  std::uint32_t taken = 0;
  while (buffers_.slots().free_count() > 0) {
    ASSERT_NE(buffers_.take_slot(MessageBuffers::SlotUse::kMessage), kNone);
    ++taken;
  }
  ASSERT_EQ(taken, 64u);
  const allocator::Shortage shortage;
  EXPECT_EQ(buffers_.take_slot(MessageBuffers::SlotUse::kMessage), kNone);
  EXPECT_EQ(buffers_.slots().count(), 64u);
}

}  // namespace
}  // namespace ch3_offload
