// Which way long payloads take (write_choice.h), with a clock that the test moves.

#include "rdma/write_choice.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace ch3_offload {
namespace write_choice_test {

constexpr std::size_t kKib = 1024, kMib = kKib * kKib;

std::uint64_t now = 0;
std::uint64_t read_clock() noexcept { return now; }

class Choice : public ::testing::Test {
 protected:
  void SetUp() override { now = 1; }

  std::uint64_t ticks_of(const WriteChoice::Choice& one, std::size_t length_bytes) const {
    return length_bytes * (one.is_written && may_write ? write_cost : slot_cost) / kKib;
  }
  /// One payload, or `at_once` of them. Returns how many should have been written.
  int pass(std::size_t length_bytes, int at_once = 1) {
    int written = 0;
    std::uint64_t ticks = 0;
    std::vector<WriteChoice::Choice> under_way;
    for (int i = 0; i < at_once; ++i) {
      under_way.push_back(choice.begin(length_bytes));
      written += under_way.back().is_written;
      ticks += ticks_of(under_way.back(), length_bytes);
    }
    now += ticks + 10;
    for (const auto& one : under_way) choice.end(one.run, length_bytes, one.is_written && may_write);
    return written;
  }
  /// How many of `count` payloads are written, in per mille.
  int written_of(int count, std::size_t length_bytes, int at_once = 1) {
    int written = 0;
    for (int i = 0; i < count; i += at_once) written += pass(length_bytes, at_once);
    return written * 1000 / count;
  }

  WriteChoice choice{128 * kKib, 512 * kKib, read_clock};
  std::uint64_t slot_cost = 100, write_cost = 100;  ///< Ticks for a KiB.
  bool may_write = true;
};

TEST_F(Choice, BeginsWithSlotsAndWithWritesFromALengthOn) {
  EXPECT_EQ(pass(128 * kKib), 0);
  EXPECT_EQ(pass(512 * kKib - 1), 0);
  EXPECT_EQ(pass(512 * kKib), 1);
  EXPECT_EQ(pass(100 * kMib), 1);
}

TEST_F(Choice, PrefersWhatIsFasterForEachLength) {
  for (const std::size_t length : {128 * kKib, 300 * kKib, 512 * kKib, kMib, 3 * kMib, 100 * kMib}) {
    slot_cost = 100;
    write_cost = 150;
    written_of(500, length);
    EXPECT_LT(written_of(5000, length), 50) << length;
    slot_cost = 300;
    written_of(500, length);
    EXPECT_GT(written_of(5000, length), 950) << length;
  }
}

TEST_F(Choice, TriesWhatIsSlowerSeldom) {
  slot_cost = 250;
  written_of(1000, kMib);
  EXPECT_GT(written_of(50'000, kMib), 990);
  slot_cost = 50;
  written_of(5000, kMib);
  EXPECT_LT(written_of(5000, kMib), 50) << "but it is tried";
}

TEST_F(Choice, ChangesNothingForLessThanAnEighth) {
  slot_cost = 95;
  EXPECT_GT(written_of(20'000, kMib), 950);
  slot_cost = 105;
  EXPECT_LT(written_of(20'000, 200 * kKib), 50);
}

TEST_F(Choice, IsNotConfusedByARunThatWasInterrupted) {
  write_cost = 80;
  written_of(2000, kMib);
  for (int i = 0; i < 20; ++i) {
    const auto one = choice.begin(kMib);
    now += 1'000'000'000;
    choice.end(one.run, kMib, one.is_written);
    EXPECT_GT(written_of(100, kMib), 500) << i;
  }
}

TEST_F(Choice, TimesWhatIsUnderWayTogether) {
  slot_cost = 50;
  written_of(5000, kMib, 8);
  EXPECT_LT(written_of(8000, kMib, 8), 50);
}

/// A stream of which two are always under way. Writes may come before slots that began earlier.
class Stream : public Choice, public ::testing::WithParamInterface<bool> {
 protected:
  /// How many of the last 5,000 of 20,000 were written.
  int run(std::size_t length_bytes) {
    int written = 0, overtaken = 0;
    std::deque<WriteChoice::Choice> under_way{choice.begin(length_bytes)};
    for (int i = 0; i < 20'000; ++i) {
      under_way.push_back(choice.begin(length_bytes));
      const bool may_overtake = under_way.back().is_written && !under_way.front().is_written;
      overtaken = GetParam() && may_overtake && overtaken < 3 ? overtaken + 1 : 0;
      if (overtaken > 0) std::swap(under_way.front(), under_way.back());
      const auto next = under_way.front();
      under_way.pop_front();
      now += ticks_of(next, length_bytes);
      choice.end(next.run, length_bytes, next.is_written);
      written += i >= 15'000 && next.is_written;
    }
    now += ticks_of(under_way.front(), length_bytes);
    choice.end(under_way.front().run, length_bytes, under_way.front().is_written);
    return written;
  }
};

TEST_P(Stream, IsTimedThoughItHasNoEnd) {
  slot_cost = 50;
  EXPECT_LT(run(kMib), 500);
  slot_cost = 200;
  EXPECT_GT(run(kMib), 4500);
  EXPECT_GT(run(200 * kKib), 4500) << "and where slots came first";
}

INSTANTIATE_TEST_SUITE_P(Choice, Stream, ::testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "Overtaken" : "InOrder");
});

TEST_F(Choice, TimesTheLengthThatAStreamHasChangedTo) {
  write_cost = 50;
  auto last = choice.begin(512 * kKib);
  int written = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto next = choice.begin(200 * kKib);
    now += ticks_of(last, 200 * kKib);
    choice.end(last.run, i == 0 ? 512 * kKib : 200 * kKib, last.is_written);
    last = next;
    written += i >= 15'000 && next.is_written;
  }
  choice.end(last.run, 200 * kKib, last.is_written);
  EXPECT_GT(written, 4500);
}

TEST_F(Choice, DoesNotTimeLengthsThatAreUnderWayTogether) {
  slot_cost = 10;
  for (int i = 0; i < 1000; ++i) {
    const auto first = choice.begin(kMib), second = choice.begin(200 * kKib);
    EXPECT_TRUE(first.is_written);
    EXPECT_FALSE(second.is_written);
    now += 1000;
    choice.end(second.run, 200 * kKib, false);
    choice.end(first.run, kMib, true);
  }
}

TEST_F(Choice, WithoutWritesGoesOn) {
  may_write = false;
  for (int i = 0; i < 10'000; ++i) pass(i % 3 == 0 ? kMib : 200 * kKib);
  may_write = true;
  write_cost = 10;
  written_of(10'000, 200 * kKib);
  EXPECT_GT(written_of(1000, 200 * kKib), 900);
}

TEST_F(Choice, FollowsThePeerAsLongAsItDecides) {
  for (const bool is_written : {true, false, true}) {
    for (int i = 0; i < 10; ++i) {
      choice.follow(kMib, is_written);
      EXPECT_EQ(pass(kMib), is_written);
      EXPECT_EQ(pass(200 * kKib), 0) << "of that length only";
    }
  }
  choice.follow(kMib, false);
  int slots = 0;
  while (pass(kMib) == 0) ++slots;
  EXPECT_LT(slots, 10) << "a peer that has fallen silent decides nothing";
}

TEST_F(Choice, BeginsWithWhatIsKnownOfShorterPayloads) {
  slot_cost = 50;
  written_of(1000, 512 * kKib);
  EXPECT_EQ(pass(kMib), 0);
  EXPECT_EQ(pass(4 * kMib), 1) << "nothing is known of the next shorter ones";
}

TEST_F(Choice, ForgetsWhatDoesNotCome) {
  slot_cost = 50;
  for (int i = 0; i < 1000; ++i) {
    choice.drop(choice.begin(kMib).run);
    pass(kMib);
  }
  EXPECT_EQ(pass(kMib), 0);
  const auto late = choice.begin(kMib);  // What is under way for long holds up nothing for ever.
  pass(kMib);
  choice.drop(late.run);
  slot_cost = 200;
  written_of(10'000, kMib);
  EXPECT_GT(written_of(1000, kMib), 900);
}

}  // namespace write_choice_test
}  // namespace ch3_offload
