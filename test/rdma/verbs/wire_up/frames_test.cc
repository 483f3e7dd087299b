// What check_frame() takes for a frame.

#include "rdma/verbs/wire_up/frames.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <functional>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

FrameCheck check(const Frame& frame) {
  Frame out;
  return check_frame(std::as_bytes(std::span(&frame, 1)), out);
}

Frame good_offer() {
  Frame frame = make_frame(FrameKind::kOffer);
  frame.offer = {.link = 1, .queue_pair = 17, .packet_sequence = 5, .mtu = IBV_MTU_4096, .limit = 4};
  return frame;
}

TEST(Frames, AllKindsPass) {
  EXPECT_EQ(check(make_frame(FrameKind::kHello)), FrameCheck::kValid);
  Frame refuse = make_frame(FrameKind::kRefuse);
  for (std::uint32_t reason = 1; reason < static_cast<std::uint32_t>(Refusal::kEnd); ++reason) {
    refuse.refuse.reason = reason;
    EXPECT_EQ(check(refuse), FrameCheck::kValid);
  }
  EXPECT_EQ(check(good_offer()), FrameCheck::kValid);
  EXPECT_EQ(check(make_frame(FrameKind::kReady)), FrameCheck::kValid);
}

TEST(Frames, ABodyIsCopiedOut) {
  const Frame frame = good_offer();
  Frame out;
  ASSERT_EQ(check_frame(std::as_bytes(std::span(&frame, 1)), out), FrameCheck::kValid);
  EXPECT_EQ(std::memcmp(&frame, &out, sizeof frame), 0);
}

TEST(Frames, OtherLengthsAreNone) {
  const Frame frame = make_frame(FrameKind::kReady);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&frame, 1));
  Frame out;
  EXPECT_EQ(check_frame(bytes.first(0), out), FrameCheck::kMalformed);
  EXPECT_EQ(check_frame(bytes.first(bytes.size() - 1), out), FrameCheck::kMalformed);
}

TEST(Frames, AnotherVersionIsToldApart) {
  Frame frame = make_frame(static_cast<FrameKind>(99));
  frame.version = Frame::kVersion + 1;
  EXPECT_EQ(check(frame), FrameCheck::kVersion);
  frame.magic = 0;
  EXPECT_EQ(check(frame), FrameCheck::kMalformed);
}

TEST(Frames, FieldsOutOfRangeAreRefused) {
  const std::function<void(Frame&)> changes[] = {
      [](Frame& f) { f.kind = FrameKind{}; },
      [](Frame& f) { f.kind = FrameKind::kEnd; },
      [](Frame& f) { f.offer.link = 0; },
      [](Frame& f) { f.offer.queue_pair = 1u << 24; },
      [](Frame& f) { f.offer.packet_sequence = 1u << 24; },
      [](Frame& f) { f.offer.mtu = 0; },
      [](Frame& f) { f.offer.mtu = IBV_MTU_4096 + 1; },
      [](Frame& f) { f.offer.received = 5; },
      [](Frame& f) {
        f = make_frame(FrameKind::kHello);
        f.hello.address.fill('a');
      },
      [](Frame& f) { f = make_frame(FrameKind::kRefuse); },
      [](Frame& f) {
        f = make_frame(FrameKind::kRefuse);
        f.refuse.reason = static_cast<std::uint32_t>(Refusal::kEnd);
      },
      [](Frame& f) {
        f = make_frame(FrameKind::kHello);
        f.hello.lane = kMostLanes;
      },
      [](Frame& f) {
        f = make_frame(FrameKind::kHello);
        f.hello.last_link = UINT32_MAX;
      },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    Frame frame = good_offer();
    changes[i](frame);
    EXPECT_EQ(check(frame), FrameCheck::kMalformed) << i;
  }
}

TEST(Frames, EveryRefusalIsDescribed) {
  for (std::uint32_t reason = 0; reason < 10; ++reason)
    EXPECT_FALSE(describe(static_cast<Refusal>(reason)).empty());
}

TEST(Frames, RandomBytesCrashNothing) {
  SeededRandom random(1);
  for (int i = 0; i < 20'000; ++i) {
    Frame frame = good_offer();
    auto* const bytes = reinterpret_cast<unsigned char*>(&frame);
    for (int n = 0; n < 4; ++n)
      bytes[random.below(n == 0 ? 8 : sizeof frame)] = static_cast<unsigned char>(random.next());
    static_cast<void>(check(frame));
  }
}

}  // namespace
}  // namespace ch3_offload
