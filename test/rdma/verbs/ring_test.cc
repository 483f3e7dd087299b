#include "rdma/verbs/polled_ring.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/link.h"
#include "rdma/verbs/port_selection.h"

namespace ch3_offload {
namespace {

RingBody offer() {
  return {.address = 0x7000'0000, .key = 5, .remote_key = 9, .entry_bytes = 256, .link = 1, .reserved = 0};
}

TEST(SendRing, TakesNoOfferThatCannotBe) {
  SendRing ring;
  EXPECT_FALSE(ring.is_open());
  const auto refused = [&](auto change) {
    RingBody body = offer();
    change(body);
    return !ring.open(body) && !ring.is_open();
  };
  EXPECT_TRUE(refused([](RingBody& body) { body.address = 0; }));
  EXPECT_TRUE(refused([](RingBody& body) { body.address += 8; }));
  EXPECT_TRUE(refused([](RingBody& body) { body.address = UINT64_MAX / 64 * 64 - 64; }));
  EXPECT_TRUE(refused([](RingBody& body) { body.entry_bytes = 0; }));
  EXPECT_TRUE(refused([](RingBody& body) { body.entry_bytes = 100; }));
  EXPECT_TRUE(refused([](RingBody& body) { body.entry_bytes = kLongestRingEntryBytes + 64; }));
  EXPECT_TRUE(refused([](RingBody& body) { body.reserved = 1; }));
  EXPECT_TRUE(ring.open(offer()));
  EXPECT_TRUE(ring.is_open());
  ring.close();
  EXPECT_FALSE(ring.is_open());
}

TEST(SendRing, AWriteEndsWhereItsEntryEnds) {
  SendRing ring;
  ASSERT_TRUE(ring.open(offer()));
  EXPECT_TRUE(ring.fits(256 - sizeof(RingTrailer)));
  EXPECT_FALSE(ring.fits(256 - sizeof(RingTrailer) + 1));
  alignas(8) std::byte message[256] = {};
  for (const std::uint64_t number :
       {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{64}, std::uint64_t{1000}}) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(message), 21, 0};
    ibv_send_wr request{};
    ring.write(number, message, piece, request);
    EXPECT_EQ(piece.length, 24u + 16);
    EXPECT_EQ(request.opcode, IBV_WR_RDMA_WRITE);
    EXPECT_EQ(request.wr.rdma.rkey, 9u);
    EXPECT_EQ(request.wr.rdma.remote_addr + piece.length, 0x7000'0000 + (number % 64 + 1) * 256);
  }
}

TEST(ReceiveRing, TellsOfItselfUntilItIsFreed) {
  fake_verbs::reset();
  {
    Result<DeviceContext> context = open_verbs_device("fake0");
    ASSERT_TRUE(context.ok());
    const ProtectionDomain domain(ibv_alloc_pd(context.value().get()));
    ReceiveRing ring;
    ASSERT_TRUE(ring.make(domain.get()));
    ring.state = ReceiveRing::State::kOpenDue;
    const RingBody body = ring.body(3);
    EXPECT_EQ(body.link, 3u);
    EXPECT_EQ(body.address, reinterpret_cast<std::uintptr_t>(ring.entry(0).data()));
    EXPECT_EQ(ring.entry(65).data() - ring.entry(0).data(), 32);
    SendRing other;
    EXPECT_TRUE(other.open(body));
    EXPECT_EQ(other.key(), ring.key());
    EXPECT_EQ(fake_verbs::counters().registered_bytes, kRingBytes);
    ring.state = ReceiveRing::State::kCloseDue;
    EXPECT_EQ(ring.body(3).address, 0u);
    EXPECT_EQ(ring.body(3).key, ring.key());
    const std::uint64_t key = ring.key();
    ring.free();
    EXPECT_EQ(fake_verbs::counters().registered_bytes, 0u);
    EXPECT_EQ(ring.state, ReceiveRing::State::kFree);
    ASSERT_TRUE(ring.make(domain.get()));
    EXPECT_NE(ring.key(), key) << "each opening has its own";
    ring.free();
    fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM);
    EXPECT_FALSE(ring.make(domain.get()));
    EXPECT_EQ(errno, ENOMEM);
  }
  EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks();
}

TEST(RingHeat, GrowsWithMessagesThatFollowEachOther) {
  RingHeat heat;
  for (std::uint32_t i = 1; i < RingHeat::kHot; ++i) EXPECT_FALSE(heat.add(10 + i, 0)) << i;
  EXPECT_TRUE(heat.add(10 + RingHeat::kHot, 0));
  EXPECT_EQ(heat.since_poll(), 11u);
  EXPECT_FALSE(heat.add(100, 0)) << "begins anew";
}

TEST(RingHeat, IsLostInASleepAndInAPause) {
  RingHeat heat;
  const auto add = [&](std::uint32_t times, std::uint64_t poll, std::uint64_t sleeps) {
    bool hot = false;
    while (times-- > 0) hot = heat.add(poll, sleeps);
    return hot;
  };
  EXPECT_FALSE(add(RingHeat::kHot - 1, 5, 0));
  EXPECT_FALSE(add(RingHeat::kHot - 1, 5, 1));
  EXPECT_FALSE(add(RingHeat::kHot - 1, 6 + RingHeat::kForgetPolls, 1));
  EXPECT_TRUE(add(1, 7 + RingHeat::kForgetPolls, 1));
}

TEST(RingHeat, WhoWasNotWorthItNeedsMore) {
  RingHeat heat;
  const auto needed = [&] {
    std::uint32_t messages = 1;
    while (!heat.add(5, 0)) ++messages;
    return messages;
  };
  EXPECT_EQ(needed(), RingHeat::kHot);
  heat.was_closed_by_sleep(3);
  EXPECT_EQ(needed(), 2 * RingHeat::kHot);
  heat.was_closed_by_sleep(3);
  EXPECT_EQ(needed(), 4 * RingHeat::kHot);
  for (int i = 0; i < 50; ++i) heat.was_closed_by_sleep(3);
  EXPECT_EQ(needed(), RingHeat::kHot << RingHeat::kMostDoublings);
  heat.was_closed_by_sleep(100'000);
  EXPECT_EQ(needed(), RingHeat::kHot);
}

}  // namespace
}  // namespace ch3_offload
