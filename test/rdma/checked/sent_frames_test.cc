#include "rdma/checked/sent_frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "rdma/seeded_random.h"

namespace ch3_offload::sent_frames_test {
namespace {

std::byte content(std::uint32_t number, std::size_t index) {
  return static_cast<std::byte>(mix64(number * 1000 + index));
}

bool give(SentFrames& frames, std::size_t length, bool is_part = false) {
  const std::uint32_t number = frames.next_number() - kFirstFrame;
  const std::span<std::byte> memory = frames.reserve(length);
  if (memory.empty()) return false;
  EXPECT_EQ(memory.size(), length);
  for (std::size_t i = 0; i < length; ++i) memory[i] = content(number, i);
  frames.commit(length, is_part);
  EXPECT_EQ(frames.next_number(), kFirstFrame + number + 1);
  return true;
}

/// Numbers count from the first frame.
bool received(SentFrames& frames, std::uint32_t number) { return frames.received(kFirstFrame + number); }

void expect_next(SentFrames& frames, std::uint32_t number, std::size_t length) {
  EXPECT_EQ(frames.unsent_number(), kFirstFrame + number);
  const std::optional<SentFrames::Frame> frame = frames.unsent();
  ASSERT_TRUE(frame);
  ASSERT_EQ(frame->bytes.size(), length) << number;
  for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(frame->bytes[i], content(number, i)) << number;
  frames.sent();
}

TEST(SentFrames, AFrameIsKeptUntilItWasReceived) {
  SentFrames frames(1000);
  EXPECT_TRUE(frames.is_all_sent() && frames.is_all_received());
  ASSERT_TRUE(give(frames, 10));
  ASSERT_TRUE(give(frames, 1000, /*is_part=*/true));
  EXPECT_FALSE(frames.is_all_sent());
  EXPECT_FALSE(frames.unsent()->is_part);
  expect_next(frames, 0, 10);
  EXPECT_TRUE(frames.unsent()->is_part);
  expect_next(frames, 1, 1000);
  EXPECT_TRUE(frames.is_all_sent());
  EXPECT_FALSE(frames.unsent());
  EXPECT_FALSE(frames.is_all_received());
  frames.repeat();
  expect_next(frames, 0, 10);
  EXPECT_TRUE(received(frames, 1));
  expect_next(frames, 1, 1000);
  EXPECT_TRUE(received(frames, 2));
  EXPECT_TRUE(frames.is_all_received());
}

TEST(SentFrames, AnOlderNumberSaysNothingAndAHigherOneIsWrong) {
  SentFrames frames(100);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(give(frames, 8));
  EXPECT_FALSE(received(frames, 1)) << "it was not sent";
  frames.sent();
  frames.sent();
  EXPECT_FALSE(received(frames, 3));
  EXPECT_TRUE(received(frames, 2));
  EXPECT_TRUE(received(frames, 0));
  EXPECT_TRUE(received(frames, UINT32_MAX - 5));
  expect_next(frames, 2, 8);
}

/// What was sent once may be received, also while it waits to be sent again.
TEST(SentFrames, ARepetitionMayComeTooLate) {
  SentFrames frames(100);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(give(frames, 8));
  for (int i = 0; i < 3; ++i) frames.sent();
  frames.repeat();
  EXPECT_TRUE(received(frames, 2));
  expect_next(frames, 2, 8);
  EXPECT_TRUE(frames.is_all_sent());
}

TEST(SentFrames, TheLongestFrameAlwaysFitsWhenAllWasReceived) {
  constexpr std::size_t kLongest = 100'000;
  SentFrames frames(kLongest);
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(give(frames, i % 3 == 0 ? 1 + i * 7 : kLongest)) << i;
    frames.sent();
    ASSERT_TRUE(received(frames, i + 1));
  }
}

TEST(SentFrames, WhatWasReservedAndNotCommittedIsTakenBack) {
  SentFrames frames(100);
  ASSERT_FALSE(frames.reserve(100).empty());
  ASSERT_TRUE(give(frames, 50));
  expect_next(frames, 0, 50);
}

/// Against a queue.
TEST(SentFrames, RandomFramesComeOutAsTheyWent) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    const std::size_t longest = random.between(1, 20'000);
    SentFrames frames(longest);
    std::deque<std::size_t> kept;  // Lengths; the first one is `oldest`.
    std::uint32_t oldest = 0;
    std::size_t sent = 0;
    std::size_t refused = 0;
    for (int i = 0; i < 3000; ++i) {
      switch (random.below(5)) {
        case 0:
        case 1: {
          const std::size_t length = random.chance(0.3) ? longest : random.between(1, longest);
          if (give(frames, length))
            kept.push_back(length);
          else
            ++refused;
          break;
        }
        case 2:
          if (sent < kept.size()) {
            expect_next(frames, oldest + static_cast<std::uint32_t>(sent), kept[sent]);
            ++sent;
          }
          break;
        case 3:
          if (random.chance(0.1)) {
            frames.repeat();
            sent = 0;
          }
          break;
        default: {
          const std::size_t count = random.below(sent + 1);
          ASSERT_TRUE(received(frames, oldest + static_cast<std::uint32_t>(count)));
          oldest += static_cast<std::uint32_t>(count);
          sent -= count;
          kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count));
        }
      }
      ASSERT_EQ(frames.is_all_sent(), sent == kept.size());
      ASSERT_EQ(frames.is_all_received(), kept.empty());
    }
    EXPECT_GT(refused, 0u) << seed;
  }
}

}  // namespace
}  // namespace ch3_offload::sent_frames_test
