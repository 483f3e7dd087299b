// Which way long payloads take (write_choice.h), with a clock that the test moves.

#include "rdma/write_choice.h"

#include <gtest/gtest.h>

#include <array>

namespace ch3_offload {
namespace write_choice_test {

constexpr std::size_t kKib = 1024, kMib = kKib * kKib;

std::uint64_t now = 0;
std::uint64_t read_clock() noexcept { return now; }

class Choice : public ::testing::Test {
 protected:
  void SetUp() override { now = 1; }

  /// One payload, or `at_once` of them. Returns how many should have been written.
  int pass(std::size_t length_bytes, int at_once = 1) {
    int written = 0;
    std::uint64_t ticks = 0;
    for (int i = 0; i < at_once; ++i) {
      const bool is_written = choice.begin(length_bytes);
      written += is_written;
      ticks += length_bytes * (is_written ? write_cost : slot_cost) / kKib;
    }
    now += ticks + 10;
    const bool all_written = written == at_once;
    for (int i = 0; i < at_once; ++i) choice.end(length_bytes, all_written && may_write);
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
    choice.begin(kMib);
    now += 1'000'000'000;
    choice.end(kMib, true);
    EXPECT_GT(written_of(100, kMib), 500) << i;
  }
}

TEST_F(Choice, TimesWhatIsUnderWayTogether) {
  slot_cost = 50;
  written_of(5000, kMib, 8);
  EXPECT_LT(written_of(8000, kMib, 8), 50);
}

TEST_F(Choice, TimesAStreamWithoutAnEnd) {
  slot_cost = 50;
  choice.begin(kMib);
  bool is_written = true;
  int last_written = 0;
  for (int i = 0; i < 20'000; ++i) {  // Before one has come, the next is there.
    const bool next = choice.begin(kMib);
    now += kKib * (is_written ? write_cost : slot_cost);
    choice.end(kMib, is_written);
    is_written = next;
    last_written += i >= 15'000 && is_written;
  }
  EXPECT_LT(last_written, 500);
}

TEST_F(Choice, DoesNotTimeLengthsThatAreUnderWayTogether) {
  slot_cost = 10;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(choice.begin(kMib));
    EXPECT_FALSE(choice.begin(200 * kKib));
    now += 1000;
    choice.end(200 * kKib, false);
    choice.end(kMib, true);
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
    choice.begin(kMib);
    choice.drop();
    pass(kMib);
  }
  EXPECT_EQ(pass(kMib), 0);
  choice.begin(kMib);
  EXPECT_LT(written_of(16 * 200, kMib), 1000) << "one that is under way for long holds up nothing";
  choice.drop();
}

}  // namespace write_choice_test
}  // namespace ch3_offload
