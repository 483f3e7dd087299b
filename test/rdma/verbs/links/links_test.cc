// How queue pairs come and go: Links over the fake device, and introductions that the test makes.

#include "rdma/verbs/links/links.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "rdma/verbs/links/links_world.h"

namespace ch3_offload {
namespace {

using Cause = Links::Cause;

class LinksTests : public LinksWorld {
 protected:
  LinksTests() { make(); }

  /// Makes a link of the lane though nothing is to be sent.
  void want(LinksEnd& end, VerbsLane& lane) {
    lane.wanted = true;
    end.links.want_link(lane);
  }
  /// Both give up a link that owes nothing.
  void end_idle_link() {
    one().links.lose_link(one().lane(1), "test", Cause::kRenewal);
    other().links.lose_link(other().lane(0), "test", Cause::kRenewal);
    settle();
    ASSERT_EQ(one().link(1).state, LinkState::kNone);
    ASSERT_EQ(other().link(0).state, LinkState::kNone);
  }
  /// All went well: every message from `one` arrived once, and no introduction is left.
  void expect_good(std::size_t messages) {
    EXPECT_TRUE(other().got(0, messages));
    EXPECT_EQ(one().link(1).state, LinkState::kUp);
    EXPECT_EQ(other().link(0).state, LinkState::kUp);
    EXPECT_EQ(one().link(1).number, other().link(0).number);
    EXPECT_TRUE(introductions_.list.empty());
    EXPECT_TRUE(one().introducer.sought.empty() && other().introducer.sought.empty());
    EXPECT_TRUE(one().over.empty() && other().over.empty());
  }
};

// Links are made.

TEST_F(LinksTests, AMessageBringsALinkUpOnBothSides) {
  send(0, 1, 0, 1);
  EXPECT_TRUE(one().links.has_wanted());
  EXPECT_TRUE(one().links.is_busy());
  EXPECT_GT(one().works, 0);
  settle();
  expect_good(1);
  EXPECT_EQ(one().link(1).number, 1u);
  EXPECT_EQ(one().links.figures().made, 1u);
  EXPECT_EQ(other().links.figures().made, 1u);
  EXPECT_EQ(other().introducer.dials, 0) << "it was introduced by the other's dial";
  EXPECT_FALSE(one().links.is_busy());
  EXPECT_FALSE(other().links.is_busy());
}

TEST_F(LinksTests, NobodyIsDialledForALinkThatIsNotNeeded) {
  one().links.want_link(one().lane(1));
  settle();
  EXPECT_EQ(one().introducer.dials, 0);
  EXPECT_FALSE(one().links.has_wanted());
}

TEST_F(LinksTests, WhoAcceptedSendsOnceReadyHasCome) {
  want(one(), one().lane(1));
  settle_before(Step::kReady);
  EXPECT_EQ(one().link(1).state, LinkState::kUp);
  EXPECT_EQ(other().link(0).state, LinkState::kBound);
  send(1, 0, 0, 1);
  EXPECT_EQ(other().link(0).posted(), 0u);
  ASSERT_TRUE(introductions_.step());
  EXPECT_EQ(other().link(0).state, LinkState::kUp);
  one().poll();
  EXPECT_TRUE(one().got(1, 1));
}

TEST_F(LinksTests, WhoAcceptedSendsOnceAnItemHasCome) {
  send(0, 1, 0, 1);
  settle_before(Step::kReady);
  EXPECT_EQ(other().link(0).state, LinkState::kBound);
  other().poll();
  EXPECT_EQ(other().link(0).state, LinkState::kUp);
  settle();
  expect_good(1);
}

TEST_F(LinksTests, TwoThatDialAtOnceGetOneLink) {
  send(0, 1, 0, 1);
  send(1, 0, 0, 1);
  poll_all();
  EXPECT_EQ(one().introducer.dials + other().introducer.dials, 2);
  settle();
  expect_good(1);
  EXPECT_TRUE(one().got(1, 1));
  EXPECT_EQ(one().link(1).number, 1u);
  EXPECT_EQ(one().links.figures().made, 1u);
  EXPECT_EQ(other().links.figures().made, 1u);
}

TEST_F(LinksTests, AnOfferThatCrossesADialOfTheLowerNumberIsTakenBack) {
  send(1, 0, 0, 1);
  settle_before(Step::kOffer);
  EXPECT_EQ(other().link(0).state, LinkState::kProposed);
  send(0, 1, 0, 1);
  one().poll();
  ASSERT_EQ(introductions_.list.size(), 2u);
  settle();
  expect_good(1);
  EXPECT_TRUE(one().got(1, 1));
  EXPECT_EQ(other().link(0).number, 1u) << "its proposal lost no number";
  EXPECT_EQ(other().links.figures().made, 2u);
}

TEST_F(LinksTests, AnOfferIsToldWhatArrivedAndWhatMayBeSent) {
  establish();
  send(0, 1, 1, 3);
  settle();
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  settle_before(Step::kAnswer);
  const OfferBody answer = *introductions_.list.front().answer;
  EXPECT_EQ(answer.link, 2u);
  EXPECT_EQ(answer.received, other().link(0).received());
  EXPECT_EQ(answer.limit, other().link(0).received() + other().link(0).window());
  settle();
  expect_good(3);
}

TEST_F(LinksTests, AnOfferThatIsTooOldIsRefused) {
  establish();
  const int drops = one().introducer.drops;
  OfferBody offer;
  offer.link = one().link(1).number;
  one().told().on_offer(one().lane(1), MadeIntroductions::offer_frame(offer), false);
  EXPECT_EQ(one().introducer.drops, drops + 1);
  EXPECT_EQ(one().link(1).state, LinkState::kUp);
  EXPECT_FALSE(one().lane(1).has_remote);
}

TEST_F(LinksTests, AnAnswerWithAnotherNumberEndsThePeer) {
  send(0, 1, 0, 1);
  settle_before(Step::kAnswer);
  ++introductions_.list.front().answer->link;
  ASSERT_TRUE(introductions_.step());
  EXPECT_EQ(one().over, std::vector<Status>{Status::kProtocol});
}

TEST_F(LinksTests, AnAnswerToNoOfferEndsThePeer) {
  establish();
  OfferBody offer;
  offer.link = 1;
  one().told().on_offer(one().lane(1), MadeIntroductions::offer_frame(offer), true);
  EXPECT_EQ(one().over, std::vector<Status>{Status::kProtocol});
}

TEST_F(LinksTests, WhoSaysThatItReceivedWhatCannotBeIsOver) {
  establish();
  send(0, 1, 1, 2);
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  settle_before(Step::kAnswer);
  introductions_.list.front().answer->received = 0;  // It has acknowledged more.
  ASSERT_TRUE(introductions_.step());
  EXPECT_EQ(one().over, std::vector<Status>{Status::kPeerFailed});
  EXPECT_TRUE(one().logged("peer 1 lost messages that its device had acknowledged"));
}

TEST_F(LinksTests, AQueuePairThatCannotBeMadeOrConnectedIsTriedAgain) {
  for (unsigned nth = 1; nth <= 6; ++nth) {
    make();
    SCOPED_TRACE(nth);
    fake_verbs::fail_call("ibv_modify_qp", nth, EIO);
    send(0, 1, 0, 1);
    settle();
    expect_good(1);
    EXPECT_EQ(one().links.figures().lost + other().links.figures().lost, 0u) << nth;
  }
  make();
  fake_verbs::fail_call("ibv_create_qp", 1, ENOMEM, 3);
  send(0, 1, 0, 1);
  settle();
  expect_good(1);
  EXPECT_TRUE(one().logged("making a queue pair failed"));
}

// Introductions break off.

TEST_F(LinksTests, AnIntroductionThatBreaksBeforeItsOfferArrivedIsTriedAgainAndLosesNoNumber) {
  send(0, 1, 0, 1);
  settle_before(Step::kOffer);
  EXPECT_EQ(one().link(1).state, LinkState::kProposed);
  EXPECT_EQ(one().link(1).number, 1u);
  introductions_.break_off();
  EXPECT_EQ(one().link(1).state, LinkState::kDraining);
  EXPECT_EQ(one().link(1).number, 0u);
  settle();
  expect_good(1);
  EXPECT_EQ(one().link(1).number, 1u);
  EXPECT_EQ(one().links.figures().made, 2u);
  EXPECT_EQ(one().links.figures().lost, 0u) << "it was never up";
}

TEST_F(LinksTests, WithItsIntroductionThePermissionToOfferEnds) {
  send(0, 1, 0, 1);
  settle_before(Step::kAllowed);
  ASSERT_TRUE(introductions_.step());
  EXPECT_TRUE(one().lane(1).may_offer);
  introductions_.break_off();  // Before a poll makes the offer.
  EXPECT_FALSE(one().lane(1).may_offer);
  settle_before(Step::kOffer);
  ASSERT_TRUE(introductions_.step());
  EXPECT_TRUE(other().lane(0).has_remote);
  introductions_.break_off();  // Before a poll makes the answer.
  EXPECT_FALSE(other().lane(0).has_remote);
  settle();
  expect_good(1);
}

TEST_F(LinksTests, AnIntroductionMayBreakBeforeEachOfItsSteps) {
  for (const Step step : {Step::kHello, Step::kAllowed, Step::kOffer, Step::kAnswer, Step::kReady})
    for (int times = 1; times <= 3; ++times) {
      make();
      send(0, 1, 0, 2);
      for (int i = 0; i < times; ++i) {
        settle_before(step);
        introductions_.break_off();
        if (one().link(1).state == LinkState::kUp) break;  // Who dialled needs no introduction any more.
      }
      settle();
      send(0, 1, 2, 9);
      settle();
      expect_good(9);
    }
}

TEST_F(LinksTests, ABreakWhileReadyIsDueIsNoNewsToWhoIsUp) {
  send(0, 1, 0, 1);
  settle_before(Step::kReady);
  introductions_.break_off();
  EXPECT_EQ(one().link(1).state, LinkState::kUp);
  EXPECT_EQ(other().link(0).state, LinkState::kDraining);
  EXPECT_TRUE(other().lane(0).wanted) << "whether the peer has the link, the next introduction tells";
  settle();
  expect_good(1);
  EXPECT_EQ(one().link(1).number, 2u);
}

TEST_F(LinksTests, AnIntroductionThatBreaksBesideALinkThatIsUpIsForgotten) {
  establish();
  one().lane(1).may_offer = true;
  one().told().on_broken(one().lane(1));
  EXPECT_EQ(one().link(1).state, LinkState::kUp);
  EXPECT_FALSE(one().lane(1).may_offer);
}

// Links are lost.

TEST_F(LinksTests, ALostLinkIsReplacedAndNothingIsLostWhateverTheCause) {
  for (const Cause cause : {Cause::kFailure, Cause::kStall, Cause::kRenewal}) {
    make();
    establish();
    hold_acknowledgements(true);
    send(0, 1, 1, 3);
    one().links.lose_link(one().lane(1), "a test", cause);
    const bool is_news = cause != Cause::kRenewal;
    EXPECT_EQ(one().link(1).state, LinkState::kDraining);
    EXPECT_EQ(one().peers[1]->failed, is_news);
    EXPECT_EQ(one().lane(1).wanted, is_news);
    EXPECT_EQ(one().lane(1).avoided, is_news ? one().lane(1).rail : kNoRail);
    EXPECT_EQ(one().logged("the connection with peer 1 broke (a test)"), cause != Cause::kStall);
    EXPECT_EQ(one().links.figures().lost, 1u);
    hold_acknowledgements(false);
    settle();
    flush();
    expect_good(3);
    EXPECT_EQ(one().link(1).number, 2u);
    EXPECT_FALSE(one().peers[1]->failed);
    EXPECT_EQ(one().links.figures().items_sent_again, 0u) << "all had arrived";
    EXPECT_EQ(other().links.figures().lost, 1u) << "it learns by the offer";
  }
}

TEST_F(LinksTests, WhatALostLinkLostIsSentAgain) {
  establish();
  fake_verbs::drop_next(1, fake_verbs::Loss::kData);
  send(0, 1, 1, 3);
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  settle();
  expect_good(3);
  EXPECT_EQ(one().links.figures().items_sent_again, 2u);
}

TEST_F(LinksTests, AfterAFailureThePeerIsDialledThoughNothingIsOwed) {
  establish();
  const int dials = one().introducer.dials;
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  settle();
  EXPECT_EQ(one().introducer.dials, dials + 1);
  expect_good(1);
}

TEST_F(LinksTests, AfterARenewalNobodyIsDialledIfNothingIsOwed) {
  establish();
  const int dials = one().introducer.dials;
  one().links.lose_link(one().lane(1), "test", Cause::kRenewal);
  settle();
  EXPECT_EQ(one().introducer.dials, dials);
  EXPECT_EQ(one().link(1).state, LinkState::kNone);
}

TEST_F(LinksTests, ALinkIsLostOnce) {
  establish();
  one().links.lose_link(one().lane(1), "first", Cause::kFailure);
  one().links.lose_link(one().lane(1), "second", Cause::kFailure);
  EXPECT_EQ(one().links.figures().lost, 1u);
  EXPECT_FALSE(one().logged("second"));
}

TEST_F(LinksTests, OnlyTheFirstLossIsLoggedAndNoneOnceTheProcessLeaves) {
  for (const bool leaves : {false, true}) {
    make();
    establish();
    if (leaves) one().links.leave();
    for (int i = 0; i < 2; ++i) {
      one().links.lose_link(one().lane(1), "test", Cause::kFailure);
      settle();
    }
    EXPECT_EQ(one().lines.size(), leaves ? 0u : 1u);
  }
}

TEST_F(LinksTests, ALinkThatBreaksForBothAtOnceIsReplacedOnce) {
  establish();
  send(0, 1, 1, 3);
  send(1, 0, 1, 3);
  for (LinksEnd* const end : {&one(), &other()})
    ASSERT_TRUE(fake_verbs::kill_queue_pair("fake0", end->link(1 - index_of(end->id)).queue_pair->qp_num));
  settle();
  expect_good(3);
  EXPECT_TRUE(one().got(1, 3));
  EXPECT_EQ(one().link(1).number, 2u);
}

TEST_F(LinksTests, ALinkThatBrokeIsMadeAgainOnTheOtherRail) {
  make(2, {}, fake_verbs::two_rails());
  establish();
  const std::uint8_t home = one().lane(1).rail;
  EXPECT_EQ(other().lane(0).rail, home);
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  settle();
  expect_good(1);
  EXPECT_EQ(one().lane(1).rail, 1 - home);
  EXPECT_EQ(other().lane(0).rail, 1 - home);
}

TEST_F(LinksTests, WhoCannotUseTheRailOfAnOfferDialsForTheOther) {
  make(2, {}, fake_verbs::two_rails());
  establish();
  const std::uint8_t home = one().lane(1).rail;
  make(2, {}, fake_verbs::two_rails());
  other().rails[home]->lost = true;
  send(0, 1, 0, 1);
  settle();
  expect_good(1);
  EXPECT_EQ(one().lane(1).rail, 1 - home);
  EXPECT_EQ(one().link(1).number, 2u) << "each number is one rail further";
  EXPECT_EQ(other().introducer.dials, 1);
}

TEST_F(LinksTests, ASecondLaneThatIsLostIsNotMadeAgainBeforeItIsWanted) {
  make(2, {}, fake_verbs::two_rails());
  establish();
  want(one(), one().lane(1, 1));
  settle();
  ASSERT_EQ(one().lane(1, 1).link.state, LinkState::kUp);
  ASSERT_EQ(other().lane(0, 1).link.state, LinkState::kUp);
  EXPECT_NE(one().lane(1, 1).rail, one().lane(1).rail) << "the lanes have different homes";
  one().links.lose_link(one().lane(1, 1), "test", Cause::kFailure);
  other().links.lose_link(other().lane(0, 1), "test", Cause::kFailure);
  settle();
  EXPECT_EQ(one().lane(1, 1).link.state, LinkState::kNone);
  EXPECT_TRUE(Links::has_link(*one().peers[1])) << "by the main lane";
}

// A peer ends.

TEST_F(LinksTests, AbandonedLinksDeliverWhatTheyBrought) {
  establish();
  send(1, 0, 1, 3);
  one().on_peer_over(*one().peers[1], Status::kPeerFailed);
  EXPECT_TRUE(Links::has_link(*one().peers[1]));
  EXPECT_EQ(one().link(1).state, LinkState::kDraining);
  for (int i = 0; i < 3; ++i) one().poll();
  EXPECT_TRUE(one().got(1, 3));
  EXPECT_FALSE(Links::has_link(*one().peers[1]));
  EXPECT_EQ(one().sink.events.back().kind, Kind::kPeerDown);
  EXPECT_EQ(fake_verbs::queue_pairs().size(), 1u) << "the peer's";
}

TEST_F(LinksTests, WhoIsOverGetsNoLinkAndNoIntroduction) {
  send(0, 1, 0, 1);
  settle_before(Step::kOffer);
  one().on_peer_over(*one().peers[1], Status::kPeerFailed);
  EXPECT_TRUE(introductions_.list.front().dialler_left);
  EXPECT_TRUE(one().introducer.sought.empty());
  const int works = one().works;
  one().links.want_link(one().lane(1));
  EXPECT_EQ(one().works, works);
  for (int i = 0; i < 3; ++i) one().poll();
  EXPECT_FALSE(one().links.has_wanted());
  EXPECT_EQ(one().sink.count(Kind::kPeerDown), 1u);
  send(1, 0, 0, 1);
  settle();
  EXPECT_EQ(other().over, std::vector<Status>{Status::kPeerFailed}) << "it is turned away";
}

TEST_F(LinksTests, ALinkOfAPeerThatIsOverIsNotLostToo) {
  establish();
  one().peers[1]->dying = true;
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  EXPECT_EQ(one().link(1).state, LinkState::kUp);
  one().links.abandon(*one().peers[1]);
  EXPECT_EQ(one().link(1).state, LinkState::kDraining);
}

TEST_F(LinksTests, WhatTheIntroducerSaysOfAPeersEnd) {
  establish();
  one().told().on_gone(one().lane(1), Refusal::kStranger);
  EXPECT_EQ(one().over, std::vector<Status>{Status::kPeerFailed});
  EXPECT_TRUE(one().lines.empty()) << "its end is no fault";
  make();
  establish();
  one().told().on_gone(one().lane(1), Refusal::kVersion);
  EXPECT_EQ(one().over, std::vector<Status>{Status::kPeerFailed});
  EXPECT_TRUE(one().logged("peer 1 is not reached any more: it runs another version"));
}

TEST_F(LinksTests, SilenceIsADeathOnlyAfterALinkFailed) {
  using Silence = Introducer::Silence;
  one().told().on_silence(one().lane(1), Silence::kUnreachable);
  EXPECT_TRUE(one().logged("no connection with peer 1 at 192.0.2.1 for 8 s"));
  one().told().on_silence(one().lane(1), Silence::kUnreachable);
  one().told().on_silence(one().lane(1), Silence::kUnanswered);
  EXPECT_EQ(one().lines.size(), 1u) << "told once";
  EXPECT_TRUE(one().over.empty());
  one().peers[1]->failed = true;
  one().told().on_silence(one().lane(1), Silence::kUnanswered);
  EXPECT_TRUE(one().over.empty()) << "its kernel answers";
  one().told().on_silence(one().lane(1), Silence::kUnreachable);
  EXPECT_EQ(one().over, std::vector<Status>{Status::kPeerFailed});
  EXPECT_TRUE(one().logged("has not answered for 8 s: it is taken for dead"));
}

TEST_F(LinksTests, AKnockOfAPeerThatHasHadItsLinkSinceChangesNothing) {
  establish();
  one().told().on_knock(one().lane(1), one().link(1).number - 1);
  settle();
  EXPECT_EQ(one().links.figures().lost, 0u);
  EXPECT_EQ(one().link(1).number, 1u);
}

TEST_F(LinksTests, AKnockSaysThatThePeerHasGivenUpTheLink) {
  establish();
  one().told().on_knock(one().lane(1), one().link(1).number);
  EXPECT_EQ(one().link(1).state, LinkState::kDraining);
  settle();
  expect_good(1);
  EXPECT_EQ(one().link(1).number, 2u);
}

TEST_F(LinksTests, AKnockIsAnsweredByADial) {
  one().told().on_knock(one().lane(1), 0);
  settle();
  expect_good(0);
  EXPECT_EQ(one().introducer.dials, 1);
}

// Links are parked.

TEST_F(LinksTests, TheLeastRecentlyUsedLinkMakesWay) {
  make(4, {.most_queue_pairs = 2});
  for (std::uint32_t peer = 1; peer < 3; ++peer) establish(0, peer);
  send(0, 1, 1, 2);  // So peer 2 is the least recently used one.
  settle();
  send(0, 3, 0, 1);
  settle();
  EXPECT_TRUE(at(3).got(0, 1));
  EXPECT_EQ(one().link(1).state, LinkState::kUp);
  EXPECT_EQ(one().link(2).state, LinkState::kNone);
  EXPECT_EQ(at(2).link(0).state, LinkState::kNone);
  EXPECT_EQ(one().links.figures().parked, 1u);
  EXPECT_EQ(at(2).links.figures().parked, 1u);
  send(0, 2, 1, 5);
  settle();
  EXPECT_TRUE(at(2).got(0, 5));
  EXPECT_EQ(at(2).link(0).number, 2u);
  EXPECT_EQ(one().links.figures().lost + at(1).links.figures().lost + at(2).links.figures().lost, 0u);
}

TEST_F(LinksTests, WhatIsSentWhileALinkIsParkedGoesOverTheNextOne) {
  make(3, {.most_queue_pairs = 2});
  establish(0, 1);
  establish(0, 2);
  for (std::uint64_t n = 1; n < 20; ++n)
    for (std::uint32_t peer = 1; peer < 3; ++peer) {
      send(0, peer, n, n + 1);
      settle();
    }
  EXPECT_TRUE(at(1).got(0, 20));
  EXPECT_TRUE(at(2).got(0, 20));
}

/// A port that is up again makes both sides park the link that stood in for it.
class LinksOnTwoRails : public LinksTests {
 protected:
  LinksOnTwoRails() {
    make(2, {}, fake_verbs::two_rails());
    establish();
    home_ = one().lane(1).rail;
    set_home(false);
    settle();
    EXPECT_EQ(one().lane(1).rail, 1 - home_);
    EXPECT_EQ(other().lane(0).rail, 1 - home_);
    flush();
  }
  void set_home(bool up) {
    for (LinksEnd* const end : {&one(), &other()}) set_home(*end, up);
  }
  void set_home(LinksEnd& end, bool up) {
    end.rails[home_]->up = up;
    for (const auto& peer : end.peers) end.links.on_port(*peer, *end.rails[home_]);
  }
  void expect_parked() {
    EXPECT_EQ(one().links.figures().parked, 1u);
    EXPECT_EQ(other().links.figures().parked, 1u);
    EXPECT_EQ(one().link(1).state, LinkState::kNone);
    EXPECT_EQ(other().link(0).state, LinkState::kNone);
    EXPECT_FALSE(one().link(1).parking || one().link(1).park_sent || one().link(1).park_heard);
    EXPECT_FALSE(one().links.is_busy() || other().links.is_busy());
    send(0, 1, 1, 5);
    settle();
    expect_good(5);
    EXPECT_EQ(one().lane(1).rail, home_);
  }
  std::uint8_t home_ = 0;
};

TEST_F(LinksOnTwoRails, BothMayParkAtOnce) {
  set_home(true);
  EXPECT_TRUE(one().link(1).park_sent && other().link(0).park_sent);
  EXPECT_FALSE(one().link(1).park_heard || other().link(0).park_heard);
  EXPECT_TRUE(one().links.is_busy());
  settle();
  expect_parked();
}

TEST_F(LinksOnTwoRails, WhoHearsThatItsPeerParksDoesTheSame) {
  other().rails[home_]->up = true;  // It has not noticed.
  set_home(one(), true);
  settle();
  expect_parked();
}

TEST_F(LinksOnTwoRails, AParkingLinkTakesNothingNewAndEndsOnceAllIsAcknowledged) {
  hold_acknowledgements(true);
  send(0, 1, 1, 2);
  set_home(true);
  EXPECT_EQ(one().try_send(1, 2), Status::kAgain);
  for (int i = 0; i < 10; ++i) poll_all();
  EXPECT_TRUE(other().got(0, 2));
  EXPECT_TRUE(one().link(1).park_sent && one().link(1).park_heard);
  EXPECT_EQ(one().link(1).state, LinkState::kUp) << "its last items are not acknowledged";
  hold_acknowledgements(false);
  settle();
  EXPECT_EQ(one().links.figures().parked, 1u);
  send(0, 1, 2, 5);
  settle();
  expect_good(5);
  EXPECT_EQ(one().links.figures().items_sent_again, 0u);
}

TEST_F(LinksOnTwoRails, AParkThatComesThroughALostLinkDoesNotParkTheNextOne) {
  set_home(other(), true);
  one().rails[home_]->up = true;  // It has not noticed.
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  for (int i = 0; i < 3; ++i) one().poll();
  EXPECT_EQ(one().link(1).state, LinkState::kNone);
  EXPECT_FALSE(one().link(1).parking || one().link(1).park_heard);
  send(0, 1, 1, 5);
  settle();
  expect_good(5);
}

TEST_F(LinksOnTwoRails, AParkingLinkThatBreaksIsReplaced) {
  hold_acknowledgements(true);
  send(0, 1, 1, 2);
  set_home(true);
  one().links.lose_link(one().lane(1), "test", Cause::kFailure);
  hold_acknowledgements(false);
  settle();
  send(0, 1, 2, 5);
  settle();
  expect_good(5);
}

// RULE HALF ARE ANSWERED.

TEST_F(LinksTests, AtMostHalfOfTheQueuePairsAreProposalsThatNobodyAnswered) {
  make(6, {.most_queue_pairs = 4});
  for (std::uint32_t peer = 1; peer < 5; ++peer) send(0, peer, 0, 1);
  // The peers do not poll: they take the dials, and answer no offer.
  for (int i = 0; i < 10; ++i) {
    one().poll();
    while (introductions_.step()) {
    }
  }
  EXPECT_EQ(one().introducer.offers.size(), 2u);
  EXPECT_EQ(one().rails[0]->lanes().size(), 2u);
  EXPECT_TRUE(one().links.has_wanted());
  send(5, 0, 0, 1);
  for (int i = 0; i < 10; ++i) {
    one().poll();
    at(5).poll();
    while (introductions_.step()) {
    }
  }
  EXPECT_EQ(one().introducer.offers.size(), 3u) << "there is a queue pair to answer others";
  EXPECT_EQ(one().link(5).state, LinkState::kUp);
  EXPECT_TRUE(one().got(5, 1));
  settle();
  for (std::uint32_t peer = 1; peer < 5; ++peer) EXPECT_TRUE(at(peer).got(0, 1)) << peer;
}

TEST_F(LinksTests, AllMayTalkToAllWithTwoQueuePairsEach) {
  make(5, {.most_queue_pairs = 2});
  for (std::uint64_t n = 0; n < 3; ++n)
    for (std::uint32_t from = 0; from < 5; ++from)
      for (std::uint32_t to = 0; to < 5; ++to)
        if (from != to) send(from, to, n, n + 1);
  settle();
  for (std::uint32_t from = 0; from < 5; ++from)
    for (std::uint32_t to = 0; to < 5; ++to) EXPECT_TRUE(at(to).got(from, from == to ? 0 : 3)) << from << to;
}

// Links are looked after.

TEST_F(LinksTests, OnlyWhoIsAwaitedIsProbed) {
  establish();
  one().sink.waits = false;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(one().look());
  EXPECT_EQ(one().transport.figures().probes, 0u);
  one().sink.waits = true;
  EXPECT_FALSE(one().look());
  EXPECT_EQ(one().transport.figures().probes, 1u);
}

TEST_F(LinksTests, ASilentPeerIsProbedAfterAQuarterOfTheTimeOut) {
  establish();
  one().look();  // It sees what has moved.
  one().look();
  EXPECT_EQ(one().transport.figures().probes, 0u);
  one().look();
  EXPECT_EQ(one().transport.figures().probes, 1u);
  one().poll();
  one().look();
  one().look();
  EXPECT_EQ(one().transport.figures().probes, 1u) << "the answer was heard";
}

TEST_F(LinksTests, AllAreProbedAtOnceOnceNothingIsOwed) {
  establish();
  hold_acknowledgements(true);
  send(0, 1, 1, 2);
  EXPECT_TRUE(one().look(true)) << "not yet";
  EXPECT_EQ(one().transport.figures().probes, 0u);
  hold_acknowledgements(false);
  settle();
  EXPECT_TRUE(one().link(1).all_retired()) << "the completion was asked for";
  EXPECT_FALSE(one().look(true));
  EXPECT_EQ(one().transport.figures().probes, 1u);
}

TEST_F(LinksTests, ALinkOnWhichNothingIsAcknowledgedIsReplacedAfterTheTimeOut) {
  establish();
  hold_acknowledgements(true);
  send(0, 1, 1, 2);
  for (int i = 0; i < 9; ++i) one().look();
  EXPECT_EQ(one().links.figures().lost, 0u);
  one().look();
  EXPECT_EQ(one().links.figures().lost, 1u);
  EXPECT_TRUE(one().logged("peer 1 has not acknowledged anything for 9 s"));
  hold_acknowledgements(false);
  settle();
  expect_good(2);
}

TEST_F(LinksTests, APeerWithoutALinkIsCheckedIfItHadOne) {
  EXPECT_FALSE(one().links.check(*one().peers[1], one().sink)) << "there was none";
  establish();
  EXPECT_FALSE(one().links.check(*one().peers[1], one().sink)) << "that can be probed";
  end_idle_link();
  EXPECT_TRUE(one().links.check(*one().peers[1], one().sink));
  EXPECT_EQ(one().introducer.checked, std::vector<PeerId>{PeerId{1}});
  one().peers[1]->down = true;
  EXPECT_FALSE(one().links.check(*one().peers[1], one().sink));
}

// Credit.

TEST_F(LinksTests, ASenderWithoutCreditIsGivenAWiderWindow) {
  establish();
  send(0, 1, 1, 400);
  settle();
  expect_good(400);
  EXPECT_EQ(other().link(0).window(), Link::kMostWindow);
  EXPECT_EQ(one().link(1).window(), Link::kFirstWindow);
}

/// Of 48 receives 4 are spare, and each of the five queue pairs that may still be made has 4: a window of 32
/// would take some of those.
TEST_F(LinksTests, AWindowLeavesReceivesForTheFirstCreditOfOtherLinks) {
  make(2, {.most_receive_slots = 48, .slots_per_slab = 8});
  ASSERT_EQ(other().rails[0]->config().most_queue_pairs, 6u);
  establish();
  send(0, 1, 1, 200);
  settle();
  expect_good(200);
  EXPECT_EQ(other().link(0).window(), 16u);
}

}  // namespace
}  // namespace ch3_offload
