// The bookkeeping of a link, without any device.

#include "rdma/verbs/transport/link.h"

#include <gtest/gtest.h>

#include <deque>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

/// Sends `count` items that the peer acknowledges, so that the numbers grow.
void advance(Link& link, std::uint64_t count) {
  link.state = LinkState::kUp;
  for (std::uint64_t i = 0; i < count; ++i) {
    link.raise_limit(link.next() + 2);
    link.push({});
    link.was_posted(false);
    link.retire_one();
  }
}

TEST(Link, AnItemLessThanTheCreditMayBeAnythingButCredit) {
  Link link;
  for (std::uint32_t i = 0; i + 1 < Link::kFirstWindow; ++i) {
    ASSERT_TRUE(link.takes_item());
    link.push({});
  }
  EXPECT_FALSE(link.takes_item());
  EXPECT_TRUE(link.lacks_credit());
  ASSERT_TRUE(link.takes_credit_message());
  link.push({});
  EXPECT_FALSE(link.takes_credit_message());
}

TEST(Link, HoldsNoMoreThanItsDepth) {
  Link link;
  link.raise_limit(std::uint64_t{1000});
  std::uint32_t pushed = 0;
  for (; link.takes_item(); ++pushed) link.push({});
  EXPECT_EQ(pushed, Link::kDepth - 1);
  EXPECT_FALSE(link.lacks_credit());
  ASSERT_TRUE(link.takes_credit_message());
  link.push({});
  EXPECT_FALSE(link.takes_credit_message());
}

TEST(Link, TakesNothingWhileParking) {
  Link link;
  link.parking = true;
  EXPECT_FALSE(link.takes_item());
  EXPECT_FALSE(link.takes_credit_message());
}

TEST(Link, BytesOfWhatIsPostedAndNotAcknowledged) {
  Link link;
  advance(link, 2 * Link::kDepth - 1);  // Around the end of the items.
  link.raise_limit(std::uint64_t{1000});
  for (std::uint32_t length = 100; length <= 300; length += 100) link.push({.length_bytes = length});
  EXPECT_EQ(link.posted_bytes(), 0u);
  link.was_posted(false);
  link.was_posted(false);
  EXPECT_EQ(link.posted_bytes(), 300u);
  link.retire_one();
  EXPECT_EQ(link.posted_bytes(), 200u);
}

TEST(Link, ItemsAreRetiredInOrder) {
  Link link;
  link.state = LinkState::kUp;
  for (std::uint32_t i = 0; i < 3; ++i) link.push({.index = i, .part = 7});
  EXPECT_TRUE(link.may_post());
  for (int i = 0; i < 3; ++i) link.was_posted(false);
  EXPECT_FALSE(link.may_post());
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(link.retire_one().index, i);
  EXPECT_TRUE(link.all_retired());
}

TEST(Link, PostsOnlyWhenUp) {
  Link link;
  link.push({});
  for (const LinkState state :
       {LinkState::kNone, LinkState::kProposed, LinkState::kBound, LinkState::kDraining}) {
    link.state = state;
    EXPECT_FALSE(link.may_post());
  }
  link.state = LinkState::kUp;
  EXPECT_TRUE(link.may_post());
}

TEST(Link, AsksForACompletionAtLeastEverySixteenth) {
  Link link;
  link.raise_limit(std::uint64_t{1000});
  link.state = LinkState::kUp;
  unsigned unsignaled = 0;
  for (int i = 0; i < 60; ++i) {
    link.push({});
    const bool signaled = link.signal_is_due();
    unsignaled = signaled ? 0 : unsignaled + 1;
    EXPECT_LT(unsignaled, Link::kSignalEvery);
    link.was_posted(signaled);
    EXPECT_EQ(link.tail_is_signaled(), signaled);
  }
  link.tail_was_signaled();
  EXPECT_TRUE(link.tail_is_signaled());
}

TEST(Link, LimitsRiseAcrossTheWrapOf32Bits) {
  constexpr std::uint64_t kAround = (std::uint64_t{1} << 32) - 5;
  Link link;
  link.raise_limit(kAround);
  link.raise_limit(static_cast<std::uint32_t>(kAround + 10));
  EXPECT_EQ(link.limit(), kAround + 10);
  link.raise_limit(static_cast<std::uint32_t>(kAround));  // Old news.
  EXPECT_EQ(link.limit(), kAround + 10);
  link.raise_limit(kAround);
  EXPECT_EQ(link.limit(), kAround + 10);
}

TEST(Link, NoLimitMakesAnotherOneSmaller) {
  Link link;
  link.raise_limit(UINT64_MAX);  // A hostile Connect, and a slot after it.
  link.raise_limit(std::uint32_t{1000});
  EXPECT_EQ(link.limit(), UINT64_MAX);
  EXPECT_TRUE(link.takes_item());
}

TEST(Link, TheReceiverTakesWhatItGranted) {
  Link link;
  for (std::uint32_t i = 0; i < Link::kFirstWindow; ++i) EXPECT_TRUE(link.take());
  EXPECT_FALSE(link.was_beyond_credit());
  EXPECT_EQ(link.received(), Link::kFirstWindow);
  EXPECT_TRUE(link.credit_is_due());
  EXPECT_EQ(link.grant(), 2 * Link::kFirstWindow);
  EXPECT_FALSE(link.credit_is_due());
  EXPECT_TRUE(link.take());
}

TEST(Link, OneItemMayComeWithoutCreditAndMustBeTheLast) {
  Link link;
  for (std::uint32_t i = 0; i < Link::kFirstWindow; ++i) EXPECT_TRUE(link.take());
  EXPECT_TRUE(link.take());
  EXPECT_TRUE(link.was_beyond_credit());
  EXPECT_FALSE(link.take());
  Link sender;
  while (sender.takes_credit_message()) sender.push({});
  EXPECT_TRUE(sender.takes_last_item());
  sender.push({});
  EXPECT_FALSE(sender.takes_last_item());
}

TEST(Link, CreditAloneAsksForNoneUnlessNextToNothingIsLeft) {
  Link link;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(link.take());
    if (i == 0) link.was_credit_only();
  }
  EXPECT_FALSE(link.credit_is_due()) << "a message and credit";
  EXPECT_TRUE(link.take());
  link.was_credit_only();
  EXPECT_TRUE(link.credit_is_due()) << "the peer may send nothing but credit any more";
  link.grant();
  EXPECT_TRUE(link.take());
  EXPECT_TRUE(link.take());
  EXPECT_TRUE(link.credit_is_due()) << "two messages";
}

TEST(Link, AWiderWindowIsWorthAMessage) {
  Link link;
  link.set_window(8);
  EXPECT_TRUE(link.credit_is_due());
  EXPECT_EQ(link.grant(), 8u);
}

TEST(Link, ANarrowerWindowTakesNothingBack) {
  Link link;
  link.set_window(64);
  EXPECT_EQ(link.grant(), 64u);
  link.set_window(4);
  EXPECT_EQ(link.grant(), 64u);
}

TEST(Link, ResumesWhereThePeerSays) {
  Link link;
  link.state = LinkState::kUp;
  link.raise_limit(std::uint64_t{100});
  for (int i = 0; i < 10; ++i) link.push({});
  for (int i = 0; i < 8; ++i) link.was_posted(false);
  link.retire_one();
  link.retire_one();
  EXPECT_FALSE(link.may_resume_at(1)) << "acknowledged before";
  EXPECT_TRUE(link.may_resume_at(2));
  EXPECT_TRUE(link.may_resume_at(8));
  EXPECT_FALSE(link.may_resume_at(9)) << "never posted";
  while (link.retired() < 5) link.retire_one();
  link.resume();
  EXPECT_EQ(link.posted(), 5u);
  EXPECT_EQ(link.next(), 10u);
  EXPECT_FALSE(link.may_resume_at(6)) << "not posted over this link";
}

TEST(Link, WhatIsAbandonedMayBeRetired) {
  Link link;
  for (std::uint32_t i = 0; i < 3; ++i) link.push({.index = i});
  link.abandon();
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(link.retire_one().index, i);
  EXPECT_TRUE(link.all_retired());
}

/// RULE LAST CREDIT: two links over wires that are slow at random, with owners that want to send, and
/// receive, and tell credit, whenever chance has it. Neither ever waits for ever, nor sends what the other
/// did not grant.
class TwoLinks {
 public:
  explicit TwoLinks(std::uint64_t seed) : random_(seed) {
    for (Side& side : sides_) side.link.state = LinkState::kUp;
  }
  void step() {
    const std::size_t which = random_.below(2);
    Side& side = sides_[which];
    switch (random_.below(5)) {
      case 0:
      case 1: send_item(which); break;
      case 2: receive(which); break;
      case 3: tell_credit(which); break;
      default:
        if (random_.below(20) == 0 && side.link.window() < Link::kMostWindow)
          side.link.set_window(side.link.window() * 2);
    }
  }
  /// Both want to send. Every message arrives, and credit that is due is told if it may be.
  bool somebody_may_send_at_last() {
    for (int i = 0; i < 1000; ++i) {
      if (sides_[0].link.takes_item() && sides_[1].link.takes_item()) return true;
      for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {
        receive(which);
        tell_credit(which);
      }
    }
    return false;
  }
  bool overrun = false;
  std::uint64_t items = 0;

 private:
  struct Side {
    Link link;
    struct Message {
      std::uint32_t limit;  ///< kWrite: a write, which has none.
      bool credit_only;
    };
    std::deque<Message> inbound;  ///< Under way.
  };
  void post(std::size_t which, bool has_limit, bool credit_only = false) {
    Link& link = sides_[which].link;
    link.push({});
    link.was_posted(true);
    sides_[1 - which].inbound.push_back(
        {has_limit ? static_cast<std::uint32_t>(link.grant()) : kWrite, credit_only});
    ++items;
  }
  void send_item(std::size_t which) {
    if (sides_[which].link.takes_item()) post(which, random_.below(2) == 0);
  }
  void tell_credit(std::size_t which) {
    Link& link = sides_[which].link;
    if (link.credit_is_due() && link.takes_credit_message()) post(which, true, true);
  }
  void receive(std::size_t which) {
    Side& side = sides_[which];
    if (side.inbound.empty()) return;
    const Side::Message message = side.inbound.front();
    side.inbound.pop_front();
    overrun |= !side.link.take();
    if (message.limit != kWrite) side.link.raise_limit(message.limit);
    if (message.credit_only) side.link.was_credit_only();
    sides_[1 - which].link.retire_one();
  }

  static constexpr std::uint32_t kWrite = UINT32_MAX;
  SeededRandom random_;
  std::array<Side, 2> sides_;
};

TEST(Link, TwoThatBothWantToSendNeverWaitForEver) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    TwoLinks links(seed);
    for (int round = 0; round < 40; ++round) {
      for (int i = 0; i < 50; ++i) links.step();
      ASSERT_TRUE(links.somebody_may_send_at_last()) << "seed " << seed << ", round " << round;
      ASSERT_FALSE(links.overrun) << "seed " << seed;
    }
    EXPECT_GT(links.items, 100u);
  }
}

}  // namespace
}  // namespace ch3_offload
