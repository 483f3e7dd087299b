// What check_frame() takes for a frame of links.

#include "rdma/verbs/wire_up/link_frames.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <functional>

#include "rdma/introduction/first_of_two.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

FrameCheck check(const Frame& frame) {
  Frame out;
  return check_frame(std::as_bytes(std::span(&frame, 1)), kLinks, out);
}

Frame good_offer() {
  Frame frame = make_frame(kLinks, FrameKind::kOffer);
  frame.as<OfferBody>() = {
      .link = 1, .queue_pair = 17, .packet_sequence = 5, .mtu = IBV_MTU_4096, .limit = 4};
  return frame;
}

TEST(ComesFirst, IsOneOfTwoWhateverTheirNumbers) {
  for (std::uint32_t bits = 0; bits < 64; ++bits) {
    const auto bit = [bits](int n) { return bits >> n & 1; };
    const PeerId one{bit(0)}, other{bit(1)}, one_at_other{bit(2)}, other_at_one{bit(3)};
    const bool first = comes_first(one, bit(4), other_at_one, {one_at_other, other}, bit(5));
    const bool second = comes_first(other, bit(5), one_at_other, {other_at_one, one}, bit(4));
    const bool are_alike = bit(0) == bit(1) && bit(2) == bit(3) && bit(4) == bit(5);
    EXPECT_EQ(first != second, !are_alike) << bits;
  }
  EXPECT_TRUE(comes_first(PeerId{2}, 9, PeerId{5}, {PeerId{2}, PeerId{5}}, 1)) << "the lower rank of a job";
}

TEST(LinkFrames, BothBodiesPass) {
  EXPECT_EQ(check(make_frame(kLinks, FrameKind::kHello)), FrameCheck::kValid);
  EXPECT_EQ(check(good_offer()), FrameCheck::kValid);
}

TEST(LinkFrames, FieldsOutOfRangeAreRefused) {
  const std::function<void(Frame&)> changes[] = {
      [](Frame& f) { f.as<OfferBody>().link = 0; },
      [](Frame& f) { f.as<OfferBody>().queue_pair = 1u << 24; },
      [](Frame& f) { f.as<OfferBody>().packet_sequence = 1u << 24; },
      [](Frame& f) { f.as<OfferBody>().mtu = 0; },
      [](Frame& f) { f.as<OfferBody>().mtu = IBV_MTU_4096 + 1; },
      [](Frame& f) { f.as<OfferBody>().received = 5; },
      [](Frame& f) {
        f = make_frame(kLinks, FrameKind::kHello);
        f.as<HelloBody>().address.fill('a');
      },
      [](Frame& f) {
        f = make_frame(kLinks, FrameKind::kHello);
        f.as<HelloBody>().lane = kMostLanes;
      },
      [](Frame& f) {
        f = make_frame(kLinks, FrameKind::kHello);
        f.as<HelloBody>().last_link = UINT32_MAX;
      },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    Frame frame = good_offer();
    changes[i](frame);
    EXPECT_EQ(check(frame), FrameCheck::kMalformed) << i;
  }
}

TEST(LinkFrames, RandomBytesCrashNothing) {
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
