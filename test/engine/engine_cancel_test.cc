// Cancel of sends and receives in each of their states, and purge.

#include <gtest/gtest.h>

#include "engine/engine_world.h"

namespace ch3_offload {
namespace engine_cancel_test {

constexpr std::size_t kShort = 100;
constexpr std::size_t kEager = 10'000;
constexpr std::size_t kLong = 100'000;

class EngineCancel : public EngineWorld {
 protected:
  /// An unexpected message is taken back and was never there.
  void expect_taken_back(TestSend& message, SendMode mode) {
    message.send_id = 77;
    send(0, 1, message, mode);
    settle();
    ASSERT_EQ(at(1).counters().unexpected_depth, 1u);
    const bool was_pending = pending(message);
    ASSERT_EQ(cancel(message), Progressed::kPending);
    settle();
    EXPECT_EQ(cancelled(message), true);
    EXPECT_EQ(pending(message), was_pending);  // No on_send_done() after a cancel.
    EXPECT_EQ(at(0).counters().cancelled_sends, 1u);
    Envelope envelope;
    EXPECT_FALSE(at(1)->probe(kKey, kIgnoreNothing, envelope));
    expect_at_rest();
  }
  /// The cancel is under way while the receive is posted: the receiver decides, and the receive has won.
  void expect_too_late(TestSend& message, SendMode mode) {
    TestReceive request(kLong);
    message.send_id = 77;
    send(0, 1, message, mode);
    settle();
    ASSERT_EQ(cancel(message), Progressed::kPending);
    receive(1, request);
    settle();
    EXPECT_EQ(cancelled(message), false);
    expect_sent(message);
    expect_received(request, message);
    EXPECT_EQ(at(0).counters().cancelled_sends, 0u);
    expect_at_rest();
  }
};

TEST_F(EngineCancel, AShortMessageIsTakenBackByItsName) {
  make();
  TestSend message(kShort);
  expect_taken_back(message, SendMode::kStandard);
}

TEST_F(EngineCancel, AnEagerMessageOfSeveralSlotsIsTakenBackByItsName) {
  make();
  TestSend message(kEager);
  expect_taken_back(message, SendMode::kStandard);
}

TEST_F(EngineCancel, AShortSynchronousMessageIsTakenBack) {
  make();
  TestSend message(kShort);
  expect_taken_back(message, SendMode::kSynchronous);
}

TEST_F(EngineCancel, AnEagerSynchronousMessageIsTakenBack) {
  make();
  TestSend message(kEager);
  expect_taken_back(message, SendMode::kSynchronous);
}

TEST_F(EngineCancel, ARendezvousIsTakenBack) {
  make();
  TestSend message(kLong);
  expect_taken_back(message, SendMode::kStandard);
}

TEST_F(EngineCancel, AnOptimisticMessageWhosePayloadWasKeptIsTakenBackByItsName) {
  engine_config.senders = 400;
  make();
  TestSend message(3000);
  expect_taken_back(message, SendMode::kStandard);
}

TEST_F(EngineCancel, AnOptimisticMessageWhosePayloadWasDroppedIsTakenBack) {
  engine_config.unexpected_budget_bytes = 0;
  make();
  TestSend message(3000);
  expect_taken_back(message, SendMode::kStandard);
}

TEST_F(EngineCancel, AMessageThatWaitsInTheSendersCopyIsTakenBackAndTheCopyIsFree) {
  engine_config.unexpected_budget_bytes = 0;
  engine_config.send_buffer_bytes = 4000;  // For one copy, and what the engine keeps beside it.
  make();
  TestSend message(3000);
  expect_taken_back(message, SendMode::kStandard);
  EXPECT_EQ(message.at_once, Status::kOk);  // It was done for its caller.
  TestSend next(3000);
  TestReceive request(3000);
  send(0, 1, next);
  EXPECT_EQ(next.at_once, Status::kOk);  // There is room for another copy.
  receive(1, request);
  settle();
  expect_received(request, next);
}

TEST_F(EngineCancel, AReceiveThatWasFasterWinsOverEveryCancel) {
  for (const SendMode mode : {SendMode::kStandard, SendMode::kSynchronous}) {
    for (const std::size_t length : {kShort, kEager, kLong}) {
      make();
      TestSend message(length);
      expect_too_late(message, mode);
    }
  }
}

TEST_F(EngineCancel, AReceiveThatWasFasterWinsOverTheCancelOfAnOptimisticMessage) {
  engine_config.unexpected_budget_bytes = 0;
  make();
  TestSend message(3000);
  expect_too_late(message, SendMode::kStandard);
}

/// The payload is accepted while the cancel is under way: the ACK alone must not finish the send.
TEST_F(EngineCancel, AnOptimisticMessageIsTakenBackThoughItsAcceptanceIsUnderWay) {
  make_strangers();
  TestSend message(3000);
  message.send_id = 5;
  send(0, 1, message);
  at(0).progress();  // The introduction: it leaves.
  ASSERT_TRUE(pending(message));
  ASSERT_EQ(cancel(message), Progressed::kPending);
  settle();
  EXPECT_EQ(cancelled(message), true);
  EXPECT_TRUE(pending(message));
  expect_at_rest();
}

TEST_F(EngineCancel, AMessageThatWaitsForTheIntroductionIsTakenBackAtOnce) {
  make_strangers();
  TestSend message(3000);
  send(0, 1, message);
  ASSERT_TRUE(pending(message));
  EXPECT_EQ(cancel(message), Progressed::kDone);
  settle();
  EXPECT_TRUE(pending(message)) << "a cancelled send has no event";
  EXPECT_EQ(at(1).counters().unexpected_depth, 0u);
  expect_at_rest();
}

TEST_F(EngineCancel, AMessageThatHasNotLeftIsTakenBackAtOnce) {
  network_config.slots_per_pair = 1;
  make();
  TestSend first(kShort, 1);
  TestSend second(kShort, 2);
  TestSend third(kShort, 3);
  for (TestSend* const message : {&first, &second, &third}) send(0, 1, *message);
  ASSERT_TRUE(pending(second));
  EXPECT_EQ(cancel(second), Progressed::kDone);
  EXPECT_EQ(cancel(second), Progressed::kFailed);  // Its operation is stale now.
  settle();
  TestReceive one(kShort);
  TestReceive other(kShort);
  receive(1, one);
  receive(1, other);
  settle();
  expect_received(one, first);
  expect_received(other, third);
  EXPECT_TRUE(pending(second));
  EXPECT_EQ(at(0).counters().cancelled_sends, 1u);
  expect_at_rest();
}

TEST_F(EngineCancel, AMessageThatIsLeavingCannotBeTakenBack) {
  network_config.slots_per_pair = 1;
  make();
  TestSend message(kEager);
  TestReceive request(kEager);
  message.send_id = 9;
  send(0, 1, message);
  ASSERT_TRUE(pending(message));
  EXPECT_EQ(cancel(message), Progressed::kFailed);
  step();
  // Asked for by its name the receiver decides: too late, its parts are arriving.
  EXPECT_EQ(at(0)->cancel_send(kNoOperation, PeerId{1}, kKey, 9, message.cookie()), Progressed::kPending);
  settle();
  EXPECT_EQ(cancelled(message), false);
  receive(1, request);
  settle();
  expect_received(request, message);
  expect_at_rest();
}

/// Nothing else would end it, if no receive is ever posted.
TEST_F(EngineCancel, ASynchronousMessageThatIsLeavingIsTakenBackWhenItHasLeft) {
  network_config.slots_per_pair = 1;
  make();
  TestSend message(kEager);
  send(0, 1, message, SendMode::kSynchronous);
  ASSERT_TRUE(pending(message));
  EXPECT_EQ(cancel(message), Progressed::kPending);
  EXPECT_EQ(cancel(message), Progressed::kFailed);  // One cancel at a time.
  settle();
  EXPECT_EQ(cancelled(message), true);
  EXPECT_TRUE(pending(message));  // No on_send_done() after a cancel.
  Envelope envelope;
  EXPECT_FALSE(at(1)->probe(kKey, kIgnoreNothing, envelope));
  expect_at_rest();
}

TEST_F(EngineCancel, ASynchronousMessageWhoseFirstPartMatchedCannotBeTakenBack) {
  network_config.slots_per_pair = 1;
  make();
  TestSend message(kEager);
  TestReceive request(kEager);
  receive(1, request);
  send(0, 1, message, SendMode::kSynchronous);
  ASSERT_TRUE(pending(message));
  EXPECT_EQ(cancel(message), Progressed::kPending);
  settle();
  EXPECT_EQ(cancelled(message), false);
  expect_sent(message);
  expect_received(request, message);
  expect_at_rest();
}

TEST_F(EngineCancel, APayloadThatIsOnItsWayCannotBeTakenBack) {
  for (const bool write : {true, false}) {
    network_config.write = write;
    network_config.slots_per_pair = 2;
    make();
    TestSend message(kLong);
    TestReceive request(kLong);
    send(0, 1, message);
    settle();
    receive(1, request);
    step();  // The CTS arrives and the payload starts.
    ASSERT_TRUE(pending(message));
    EXPECT_EQ(cancel(message), Progressed::kFailed);
    settle();
    expect_received(request, message);
    expect_sent(message);
    expect_at_rest();
  }
}

TEST_F(EngineCancel, OneCancelAtATime) {
  make();
  TestSend message(kLong);
  send(0, 1, message);
  settle();
  EXPECT_EQ(cancel(message), Progressed::kPending);
  EXPECT_EQ(cancel(message), Progressed::kFailed);
  settle();
}

TEST_F(EngineCancel, WhatHasNoNameOrWasReceivedIsNotTakenBack) {
  make();
  TestSend nameless(kShort);
  send(0, 1, nameless);
  EXPECT_EQ(cancel(nameless), Progressed::kFailed);
  TestSend message(kShort);
  message.send_id = 8;
  TestReceive first(kShort);
  TestReceive second(kShort);
  send(0, 1, message);
  receive(1, first);
  receive(1, second);
  settle();
  EXPECT_EQ(cancel(message), Progressed::kPending);
  settle();
  EXPECT_EQ(cancelled(message), false);
  expect_at_rest();
}

TEST_F(EngineCancel, OnlyTheNamedOneOfManyIsTakenBack) {
  make();
  std::vector<std::unique_ptr<TestSend>> messages;
  for (std::uint32_t i = 0; i < 5; ++i) {
    messages.push_back(std::make_unique<TestSend>(kShort, i + 1));
    messages[i]->send_id = i + 1;
    send(0, 1, *messages[i]);
  }
  settle();
  EXPECT_EQ(cancel(*messages[2]), Progressed::kPending);
  settle();
  EXPECT_EQ(cancelled(*messages[2]), true);
  for (const std::size_t i : {0, 1, 3, 4}) {
    TestReceive request(kShort);
    receive(1, request);
    expect_received(request, *messages[i]);
  }
  expect_at_rest();
}

/// Two senders use the same name and key: each takes back its own.
TEST_F(EngineCancel, AMessageOfAnotherSenderIsNotTakenBack) {
  make(3);
  TestSend mine(kShort, 1);
  TestSend theirs(kShort, 2);
  mine.send_id = theirs.send_id = 4;
  send(0, 2, mine);
  settle();
  send(1, 2, theirs);
  settle();
  EXPECT_EQ(cancel(mine), Progressed::kPending);
  settle();
  EXPECT_EQ(cancelled(mine), true);
  TestReceive request(kShort);
  receive(2, request);
  expect_received(request, theirs);
  // Nor does an operation of one peer name a message to another.
  TestSend long_one(kLong);
  send(0, 1, long_one);
  long_one.to = 2;
  EXPECT_EQ(cancel(long_one), Progressed::kFailed);
  settle();
}

TEST_F(EngineCancel, APostedReceiveIsTakenBackOnce) {
  make();
  TestReceive request(kShort);
  receive(1, request);
  EXPECT_TRUE(at(1)->cancel_receive(request.operation));
  EXPECT_FALSE(at(1)->cancel_receive(request.operation));
  TestSend message(kShort);
  send(0, 1, message);
  settle();
  EXPECT_TRUE(pending(request));
  EXPECT_EQ(request.buffer.check_untouched(), "");
  EXPECT_EQ(at(1).counters().unexpected_depth, 1u);
}

TEST_F(EngineCancel, AReceiveThatHasMatchedCannotBeTakenBack) {
  network_config.slots_per_pair = 1;
  make();
  for (const std::size_t length : {kEager, kLong}) {  // Parts arrive; a payload was asked for.
    TestSend message(length);
    TestReceive request(length);
    receive(1, request);
    send(0, 1, message);
    step();
    EXPECT_EQ(at(1).counters().posted_depth, 0u);
    ASSERT_TRUE(pending(request));
    EXPECT_FALSE(at(1)->cancel_receive(request.operation));
    settle();
    expect_received(request, message);
    EXPECT_FALSE(at(1)->cancel_receive(request.operation));
  }
  expect_at_rest();
}

TEST_F(EngineCancel, OperationsOfTheOtherKindAreNotTakenForIt) {
  make();
  TestSend message(kLong);
  TestReceive request(kShort);
  send(0, 1, message);
  receive(0, request);
  EXPECT_FALSE(at(0)->cancel_receive(message.operation));
  EXPECT_EQ(at(0)->cancel_send(request.operation, PeerId{1}, kKey, 0, nullptr), Progressed::kFailed);
  EXPECT_FALSE(at(0)->cancel_receive(kNoOperation));
  settle();
}

void purge(HostDriver& engine, PurgeScope scope = PurgeScope::kAll) {
  const MatchPattern doomed{kKey, kIgnoreNothing};
  engine.purge(scope, {&doomed, 1}, {}, Status::kRevoked);
}

TEST_F(EngineCancel, PurgeFinishesWhatMatchesAndNothingElse) {
  make();
  TestReceive doomed(kShort);
  TestReceive kept(kShort);
  receive(1, doomed);
  receive(1, kept, kOtherKey);
  purge(*at(1).engine);
  EXPECT_TRUE(pending(doomed)) << "a command tells nothing";
  EXPECT_FALSE(at(1)->cancel_receive(doomed.operation)) << "its event is there";
  take_events(1);
  EXPECT_EQ(outcome(doomed)->status, Status::kRevoked);
  EXPECT_EQ(doomed.buffer.check_untouched(), "");
  EXPECT_TRUE(pending(kept));
  EXPECT_TRUE(at(1)->cancel_receive(kept.operation));
}

TEST_F(EngineCancel, PurgeSparesWhatItIsTold) {
  make();
  TestReceive doomed(kShort);
  TestReceive spared(kShort);
  receive(1, doomed);
  receive(1, spared, kOtherKey);
  const MatchPattern but{kOtherKey, kIgnoreInitiator};
  at(1)->purge(PurgeScope::kAll, {&kEverything, 1}, {&but, 1}, Status::kRevoked);
  take_events(1);
  EXPECT_FALSE(pending(doomed));
  EXPECT_TRUE(pending(spared));
}

TEST_F(EngineCancel, PurgeOfReceivesLooksAtTheirSource) {
  make();
  TestReceive named(kShort);
  TestReceive any(kShort);
  receive(1, named);
  receive(1, any, kKey, kIgnoreInitiator);
  purge(*at(1).engine, PurgeScope::kReceivesFromAny);
  take_events(1);
  EXPECT_FALSE(pending(any));
  EXPECT_TRUE(pending(named));
  TestSend message(kShort);
  message.key = kOtherKey;
  send(0, 1, message);
  settle();
  at(1)->purge(PurgeScope::kReceivesFromOne, {&kEverything, 1}, {}, Status::kPeerFailed);
  take_events(1);
  EXPECT_EQ(outcome(named)->status, Status::kPeerFailed);
  EXPECT_EQ(at(1).counters().unexpected_depth, 1u) << "messages stay";
}

TEST_F(EngineCancel, PurgeFreesTheSendersOfEveryProtocol) {
  make();
  for (const SendMode mode : {SendMode::kStandard, SendMode::kSynchronous}) {
    for (const std::size_t length : {std::size_t{0}, kShort, kEager, kLong}) {
      TestSend message(length);
      send(0, 1, message, mode);
      settle();
      purge(*at(1).engine);
      settle();
      expect_sent(message);
      expect_at_rest();
    }
  }
}

TEST_F(EngineCancel, PurgeDropsThePartsThatStillArrive) {
  for (const SendMode mode : {SendMode::kStandard, SendMode::kSynchronous}) {
    network_config.slots_per_pair = 1;
    make();
    TestSend message(kEager);
    TestSend next(kShort, 2);
    TestReceive request(kEager);
    send(0, 1, message, mode);
    step();
    ASSERT_EQ(at(1).counters().unexpected_depth, 1u);
    purge(*at(1).engine);
    EXPECT_EQ(at(1).counters().unexpected_depth, 0u);
    receive(1, request);
    send(0, 1, next);
    settle();
    expect_sent(message);
    expect_received(request, next);
    expect_at_rest();
  }
}

}  // namespace engine_cancel_test
}  // namespace ch3_offload
