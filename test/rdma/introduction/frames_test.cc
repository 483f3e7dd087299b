// What check_frame() takes for a frame.

#include "rdma/introduction/frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "rdma/introduction/test_protocol.h"

namespace ch3_offload {
namespace {

FrameCheck check(const Frame& frame) {
  Frame out;
  return check_frame(std::as_bytes(std::span(&frame, 1)), kNumbers, out);
}

TEST(Frames, AllKindsPassAndAreCopiedOut) {
  for (const FrameKind kind : {FrameKind::kHello, FrameKind::kOffer, FrameKind::kReady}) {
    const Frame frame = number_frame(17, kind);
    Frame out;
    EXPECT_EQ(check_frame(std::as_bytes(std::span(&frame, 1)), kNumbers, out), FrameCheck::kValid);
    EXPECT_EQ(std::memcmp(&frame, &out, sizeof frame), 0);
  }
  for (std::uint32_t reason = 1; reason < static_cast<std::uint32_t>(Refusal::kEnd); ++reason)
    EXPECT_EQ(check(make_refusal(kNumbers, Refusal{reason})), FrameCheck::kValid);
}

TEST(Frames, OtherLengthsAreNone) {
  const Frame frame = number_frame(1);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&frame, 1));
  Frame out;
  EXPECT_EQ(check_frame(bytes.first(0), kNumbers, out), FrameCheck::kMalformed);
  EXPECT_EQ(check_frame(bytes.first(bytes.size() - 1), kNumbers, out), FrameCheck::kMalformed);
}

TEST(Frames, AnotherVersionIsToldApart) {
  Frame frame = make_frame(kNumbers, static_cast<FrameKind>(99));
  ++frame.version;
  EXPECT_EQ(check(frame), FrameCheck::kVersion);
  frame.magic = 0;
  EXPECT_EQ(check(frame), FrameCheck::kMalformed);
}

TEST(Frames, ThatBreakARuleAreMalformed) {
  const std::function<void(Frame&)> breaches[] = {
      [](Frame& f) { ++f.magic; },
      [](Frame& f) { f.kind = FrameKind{}; },
      [](Frame& f) { f.kind = FrameKind::kEnd; },
      [](Frame& f) { f.reserved = 1; },
      [](Frame& f) { f = number_frame(1'000'000); },
      [](Frame& f) { f = number_frame(1'000'000, FrameKind::kHello); },
      [](Frame& f) { f = make_refusal(kNumbers, Refusal::kNobody); },
      [](Frame& f) { f = make_refusal(kNumbers, Refusal::kEnd); },
  };
  for (std::size_t i = 0; i < std::size(breaches); ++i) {
    Frame frame = number_frame(1);
    breaches[i](frame);
    EXPECT_EQ(check(frame), FrameCheck::kMalformed) << i;
  }
}

}  // namespace
}  // namespace ch3_offload
