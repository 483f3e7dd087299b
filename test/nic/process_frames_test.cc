#include "nic/process_frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

namespace ch3_offload {
namespace process_frames_test {

Frame card(const char* text = "v=6;here:1") {
  Frame frame = make_frame(kProcesses, FrameKind::kOffer);
  frame.as<ProcessCard>().sender = 1;
  std::strcpy(frame.as<ProcessCard>().card.data(), text);
  return frame;
}
FrameCheck check(const Frame& frame) {
  Frame copy;
  return check_frame(std::as_bytes(std::span(&frame, 1)), kProcesses, copy);
}

TEST(ProcessFrames, AreValidAsTheyAreMade) {
  for (const Frame& frame : {make_frame(kProcesses, FrameKind::kHello), card()})
    EXPECT_EQ(check(frame), FrameCheck::kValid);
  EXPECT_EQ(card_in(card()), "v=6;here:1");
}

TEST(ProcessFrames, ThatBreakARuleAreMalformed) {
  const std::vector<std::function<void(ProcessCard&)>> breaches = {
      [](ProcessCard& c) { c.reserved = 1; },     [](ProcessCard& c) { c.card[0] = '\0'; },
      [](ProcessCard& c) { c.card[1] = ' '; },    [](ProcessCard& c) { c.card[1] = '\n'; },
      [](ProcessCard& c) { c.card[1] = '\x80'; }, [](ProcessCard& c) { c.card.back() = 'x'; },
      [](ProcessCard& c) { c.card.fill('x'); },
  };
  for (std::size_t i = 0; i < breaches.size(); ++i) {
    Frame frame = card();
    breaches[i](frame.as<ProcessCard>());
    EXPECT_EQ(check(frame), FrameCheck::kMalformed) << i;
  }
}

TEST(ProcessFrames, EachRefusalHasItsWords) {
  for (std::uint32_t i = 1; i < static_cast<std::uint32_t>(Refusal::kEnd); ++i) {
    if (Refusal{i} == Refusal::kCrossed) continue;  // Nobody says so to a process.
    EXPECT_NE(describe(Refusal{i}), describe(Refusal::kEnd)) << i;
  }
}

}  // namespace process_frames_test
}  // namespace ch3_offload
