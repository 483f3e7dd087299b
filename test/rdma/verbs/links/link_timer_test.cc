// How long nothing has moved on a link, and what that asks for. A look comes an eighth of the time-out after
// the last one.

#include "rdma/verbs/links/link_timer.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

using Due = LinkTimer::Due;

class LinkTimers : public testing::Test {
 protected:
  static constexpr std::uint64_t kTimeoutMs = 8000;  ///< Each look counts for 1000 ms.

  Due look() { return timer_.look(now_, kTimeoutMs); }
  /// Looks until the link is to be replaced. Returns the number of looks.
  int looks_until_replaced() {
    for (int looks = 1; looks < 100'000; ++looks)
      if (look() == Due::kReplace) return looks;
    ADD_FAILURE() << "never replaced";
    return 0;
  }
  /// Something is posted. The look that sees it first counts for nothing.
  void owe(std::uint64_t bytes = 0) {
    now_.is_owed = true;
    now_.owed_bytes = bytes;
    EXPECT_EQ(look(), Due::kNothing);
  }

  LinkTimer timer_;
  LinkProgress now_;
};

TEST_F(LinkTimers, SilenceForAQuarterOfTheTimeOutAsksForAProbe) {
  EXPECT_EQ(look(), Due::kNothing);
  EXPECT_EQ(look(), Due::kProbe);
  EXPECT_EQ(look(), Due::kProbe) << "as long as the silence lasts";
  EXPECT_EQ(timer_.quiet_ms(kTimeoutMs), 3000u);
}

TEST_F(LinkTimers, WhatComesAndWhatIsAcknowledgedEndsASilence) {
  for (std::uint64_t LinkProgress::*const count : {&LinkProgress::received, &LinkProgress::acknowledged}) {
    EXPECT_EQ(look(), Due::kNothing);
    ++(now_.*count);
    EXPECT_EQ(look(), Due::kNothing);
    EXPECT_EQ(timer_.quiet_ms(kTimeoutMs), 0u);
    EXPECT_EQ(look(), Due::kNothing);
    EXPECT_EQ(look(), Due::kProbe);
    timer_.restart();
  }
}

TEST_F(LinkTimers, WhatIsOwedIsFlushedFirstAndTheLinkReplacedAfterTheTimeOut) {
  owe();
  EXPECT_EQ(look(), Due::kFlush);
  for (int i = 2; i <= 8; ++i) EXPECT_EQ(look(), Due::kNothing) << i;
  EXPECT_EQ(look(), Due::kReplace);
  EXPECT_EQ(timer_.quiet_ms(kTimeoutMs), 9000u);
}

TEST_F(LinkTimers, ASilentPeerThatIsOwedSomethingIsNotProbed) {
  EXPECT_EQ(look(), Due::kNothing);
  EXPECT_EQ(look(), Due::kProbe);
  now_.is_owed = true;  // The probe itself, or a message.
  EXPECT_EQ(look(), Due::kNothing) << "the time is measured from here";
  EXPECT_EQ(look(), Due::kFlush);
}

TEST_F(LinkTimers, PatienceGrowsWithTheBytesOwed) {
  owe(16'000'000);  // 16 s at a megabyte per second.
  EXPECT_EQ(looks_until_replaced(), 8 + 16 + 1);
}

TEST_F(LinkTimers, PatienceDoublesWithEachReplacementUpToSixtyFourTimes) {
  for (const int factor : {1, 2, 4, 8, 16, 32, 64, 64}) {
    owe(2'000'000);
    EXPECT_EQ(looks_until_replaced(), factor * (8 + 2) + 1) << factor;
    timer_.restart();  // The next link is up.
    now_.is_owed = false;
    EXPECT_EQ(look(), Due::kNothing);
  }
}

TEST_F(LinkTimers, AnAcknowledgementEndsThePatience) {
  owe();
  EXPECT_EQ(looks_until_replaced(), 9);
  timer_.restart();
  EXPECT_EQ(looks_until_replaced(), 17) << "the next link did not help";
  timer_.restart();
  ++now_.acknowledged;
  EXPECT_EQ(look(), Due::kNothing);
  EXPECT_EQ(looks_until_replaced(), 9);
}

TEST_F(LinkTimers, WhatComesIsNoAcknowledgement) {
  owe();
  for (int i = 1; i <= 8; ++i) {
    ++now_.received;
    EXPECT_EQ(look(), i == 1 ? Due::kFlush : Due::kNothing) << i;
  }
  ++now_.received;
  EXPECT_EQ(look(), Due::kReplace);
}

TEST_F(LinkTimers, EachAcknowledgementIsWorthAnotherTimeOut) {
  owe();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(look(), Due::kFlush);
    for (int quiet = 0; quiet < 6; ++quiet) EXPECT_EQ(look(), Due::kNothing);
    ++now_.acknowledged;
    EXPECT_EQ(look(), Due::kNothing);
    EXPECT_EQ(timer_.quiet_ms(kTimeoutMs), 0u);
  }
}

TEST_F(LinkTimers, ANewLinkBeginsAnew) {
  owe();
  for (int i = 1; i <= 8; ++i) EXPECT_NE(look(), Due::kReplace);
  timer_.restart();
  EXPECT_EQ(look(), Due::kFlush);
}

}  // namespace
}  // namespace ch3_offload
