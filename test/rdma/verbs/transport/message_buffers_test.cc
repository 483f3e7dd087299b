// Where messages lie until the peer's device has them.

#include "rdma/verbs/transport/message_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "rdma/contract_world.h"
#include "rdma/verbs/devices/port_selection.h"
#include "rdma/verbs/fake_verbs.h"

namespace ch3_offload {
namespace {

class Buffers : public testing::Test {
 protected:
  using SlotUse = MessageBuffers::SlotUse;

  Buffers() {
    fake_verbs::reset();
    context_ = std::move(open_verbs_device("fake0").value());
    domain_.reset(ibv_alloc_pd(context_.get()));
  }
  ~Buffers() override {
    domain_.reset();
    context_.reset();
    EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks();
  }

  /// With one slab.
  MessageBuffers make(std::uint32_t slots_per_slab = 64, std::uint32_t most_slots = 64) {
    ibv_pd* const domains[] = {domain_.get()};
    SlotPool pool(domains, 512, slots_per_slab, most_slots);
    EXPECT_FALSE(pool.grow());
    return MessageBuffers(std::move(pool));
  }
  /// As many as there are for this use.
  static std::vector<std::uint32_t> take_all(MessageBuffers& buffers, SlotUse use) {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t slot; (slot = buffers.take_slot(use)) != kNone;) slots.push_back(slot);
    return slots;
  }
  static Item message(Item::Kind kind, std::uint32_t index, std::uint32_t length_bytes) {
    return {.kind = kind, .index = index, .length_bytes = length_bytes};
  }
  static void fill(const MessageBuffers& buffers, const Item& item, std::uint64_t seed) {
    Pattern(seed).fill({buffers.address(item), item.length_bytes});
  }
  static bool holds(const MessageBuffers& buffers, const Item& item, std::uint64_t seed) {
    const std::vector<std::byte> wanted = Pattern(seed).bytes(item.length_bytes);
    return std::memcmp(buffers.address(item), wanted.data(), wanted.size()) == 0;
  }

 private:
  DeviceContext context_;
  ProtectionDomain domain_;
};

/// RULE CREDIT GETS THROUGH.
TEST_F(Buffers, MessagesLeaveTheLastSlotsToCredit) {
  MessageBuffers buffers = make();
  const std::vector<std::uint32_t> messages = take_all(buffers, SlotUse::kMessage);
  EXPECT_EQ(messages.size(), 48u);
  EXPECT_FALSE(buffers.may_take_slot());
  EXPECT_EQ(take_all(buffers, SlotUse::kCredit).size(), 16u);
  EXPECT_EQ(buffers.slots_taken(), 64u);
  buffers.give_back({.index = messages[7]});
  EXPECT_FALSE(buffers.may_take_slot()) << "that one is credit's";
  EXPECT_EQ(buffers.take_slot(SlotUse::kMessage), kNone);
  EXPECT_EQ(buffers.take_slot(SlotUse::kCredit), messages[7]);
}

TEST_F(Buffers, OfFewSlotsAQuarterIsLeftToCredit) {
  MessageBuffers buffers = make(8, 8);
  EXPECT_EQ(take_all(buffers, SlotUse::kMessage).size(), 6u);
  EXPECT_EQ(take_all(buffers, SlotUse::kCredit).size(), 2u);
}

TEST_F(Buffers, SlotsAreAddedUpToTheBound) {
  MessageBuffers buffers = make(64, 128);
  EXPECT_EQ(take_all(buffers, SlotUse::kMessage).size(), 112u);
  EXPECT_EQ(buffers.slots().count(), 128u);
  EXPECT_EQ(take_all(buffers, SlotUse::kCredit).size(), 16u);
}

TEST_F(Buffers, SlotsThatAreRefusedAreDoneWithout) {
  MessageBuffers buffers = make(64, 128);
  fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM);
  const std::vector<std::uint32_t> messages = take_all(buffers, SlotUse::kMessage);
  EXPECT_EQ(buffers.slots().count(), 64u);
  EXPECT_EQ(messages.size(), 64u) << "only the attempt shows that there are no more";
  EXPECT_FALSE(buffers.may_take_slot());
  for (int i = 0; i < 16; ++i) buffers.give_back({.index = messages[static_cast<std::size_t>(i)]});
  EXPECT_EQ(buffers.take_slot(SlotUse::kMessage), kNone) << "from now on the last ones are credit's";
  EXPECT_EQ(take_all(buffers, SlotUse::kCredit).size(), 16u);
}

TEST_F(Buffers, SlotsAreShortWhenHalfOfThemAreTaken) {
  MessageBuffers buffers = make();
  std::uint32_t slot = kNone;
  for (int i = 0; i < 32; ++i) slot = buffers.take_slot(SlotUse::kMessage);
  EXPECT_FALSE(buffers.is_short());
  const std::uint32_t last = buffers.take_slot(SlotUse::kMessage);
  EXPECT_TRUE(buffers.is_short());
  buffers.give_back({.index = last});
  EXPECT_FALSE(buffers.is_short());
  buffers.give_back(message(Item::Kind::kMessage, slot, 8));
  EXPECT_EQ(buffers.slots_taken(), 31u);
}

TEST_F(Buffers, MessagesInOrdinaryMemoryTakeNoSlots) {
  MessageBuffers buffers = make();
  std::vector<Item> items;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    items.push_back(message(Item::Kind::kWaitingMessage, buffers.take_memory(100), 100));
    ASSERT_NE(items.back().index, kNone);
    fill(buffers, items.back(), i);
  }
  EXPECT_EQ(buffers.waiting(), 1000u);
  EXPECT_EQ(buffers.slots_taken(), 0u);
  for (std::uint32_t i = 0; i < 1000; ++i) EXPECT_TRUE(holds(buffers, items[i], i)) << i;
  for (const Item& item : items) buffers.give_back(item);
  EXPECT_EQ(buffers.waiting(), 0u);
}

TEST_F(Buffers, MovingToASlotKeepsTheBytes) {
  MessageBuffers buffers = make();
  Item item = message(Item::Kind::kWaitingMessage, buffers.take_memory(500), 500);
  fill(buffers, item, 7);
  ASSERT_TRUE(buffers.move_to_slot(item));
  EXPECT_EQ(item.kind, Item::Kind::kMessage);
  EXPECT_TRUE(holds(buffers, item, 7));
  EXPECT_EQ(buffers.address(item), buffers.slots().address(item.index));
  EXPECT_EQ(buffers.waiting(), 0u);
  EXPECT_EQ(buffers.slots_taken(), 1u);
}

TEST_F(Buffers, WithoutASlotAMessageStaysWhereItIs) {
  MessageBuffers buffers = make();
  Item item = message(Item::Kind::kWaitingMessage, buffers.take_memory(500), 500);
  fill(buffers, item, 7);
  const std::vector<std::uint32_t> taken = take_all(buffers, SlotUse::kMessage);
  EXPECT_FALSE(buffers.move_to_slot(item)) << "the last slots are credit's";
  EXPECT_EQ(item.kind, Item::Kind::kWaitingMessage);
  EXPECT_TRUE(holds(buffers, item, 7));
  EXPECT_EQ(buffers.waiting(), 1u);
  buffers.give_back({.index = taken[0]});
  EXPECT_TRUE(buffers.move_to_slot(item));
}

/// RULE ONLY LIVE LINKS HOLD SLOTS.
TEST_F(Buffers, MessagesOfALinkThatEndedLeaveTheirSlots) {
  MessageBuffers buffers = make();
  Link link;
  link.state = LinkState::kUp;
  link.raise_limit(std::uint64_t{100});
  // Acknowledged; posted; a part of a write; one that waits already; one that is not posted.
  const auto push_slot = [&](std::uint32_t length, std::uint64_t seed) {
    const Item item = message(Item::Kind::kMessage, buffers.take_slot(SlotUse::kMessage), length);
    fill(buffers, item, seed);
    link.push(item);
  };
  push_slot(8, 0);
  push_slot(512, 1);
  link.push({.kind = Item::Kind::kWritePart, .index = 77, .length_bytes = 1u << 30, .part = 3});
  for (int i = 0; i < 3; ++i) link.was_posted(false);
  const Item waiting = message(Item::Kind::kWaitingMessage, buffers.take_memory(20), 20);
  fill(buffers, waiting, 3);
  link.push(waiting);
  push_slot(100, 4);
  buffers.give_back(link.retire_one());
  ASSERT_EQ(buffers.slots_taken(), 2u);

  buffers.move_from_slots(link);
  EXPECT_EQ(buffers.slots_taken(), 0u);
  EXPECT_EQ(buffers.waiting(), 3u);
  for (const std::uint64_t number : {1u, 3u, 4u}) {
    EXPECT_EQ(link.item(number).kind, Item::Kind::kWaitingMessage) << number;
    EXPECT_TRUE(holds(buffers, link.item(number), number)) << number;
  }
  EXPECT_EQ(link.item(2).kind, Item::Kind::kWritePart);
  EXPECT_EQ(link.item(2).index, 77u);
  EXPECT_EQ(link.item(2).part, 3u);
}

}  // namespace
}  // namespace ch3_offload
