// Death of a peer in each state of its messages: who is told what, and that nobody else notices.

#include <gtest/gtest.h>

#include "engine/card.h"
#include "engine/engine_world.h"

namespace ch3_offload {
namespace engine_failure_test {

constexpr std::size_t kShort = 100;
constexpr std::size_t kEager = 10'000;
constexpr std::size_t kLong = 100'000;

/// Process 0 lives, 1 dies, 2 is the bystander.
class EngineFailure : public EngineWorld {
 protected:
  void make_three() {
    make_strangers(3);
    introduce(0, 1);
  }
  void expect_failed(TestSend& message) { EXPECT_EQ(outcome(message), Status::kPeerFailed); }
  void expect_failed(TestReceive& request) {
    ASSERT_FALSE(pending(request));
    EXPECT_EQ(outcome(request)->status, Status::kPeerFailed);
    EXPECT_EQ(request.buffer.check_guards(), "");
  }
  /// 0 knows that 1 is gone, 2 heard nothing, and 0 and 2 go on.
  void expect_contained() {
    settle();
    EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kPeerFailed}}));
    EXPECT_EQ(at(0).counters().failed_peers, 1u);
    EXPECT_TRUE(at(2).failures.empty());
    const MatchKey key = make_match_key(9, 9, 9);
    for (const std::size_t length : {kShort, kEager, kLong}) {
      TestSend message(length);
      message.key = key;
      TestReceive request(length);
      receive(2, request, key);
      send(0, 2, message);
      settle();
      expect_received(request, message);
      expect_sent(message);
    }
    expect_at_rest();
    EXPECT_EQ(at(0).counters().lent_bytes, 0u);  // What 1 had borrowed is free again.
  }

  std::vector<std::unique_ptr<TestSend>> kept_sends;
};

TEST_F(EngineFailure, SendsThatWaitForTheirMatchFail) {
  make_three();
  for (const std::size_t length : {kShort, kEager, kLong}) {
    kept_sends.push_back(std::make_unique<TestSend>(length));
    send(0, 1, *kept_sends.back(), SendMode::kSynchronous);
  }
  settle();
  kill(1);
  settle();
  for (auto& message : kept_sends) expect_failed(*message);
  EXPECT_EQ(at(0).history, "sssf");  // The failure is told last.
  expect_contained();
}

TEST_F(EngineFailure, SendsThatHaveNotLeftOrAreLeavingFail) {
  network_config.slots_per_pair = 1;
  make_three();
  TestSend leaving(kEager);
  TestSend queued(kShort);
  send(0, 1, leaving);
  send(0, 1, queued);
  std::vector<std::byte> bytes(20'000);
  const Payload data[] = {{bytes.data(), bytes.size(), nullptr}};
  Status status{};
  EXPECT_EQ(at(0)->send_packet(PeerId{1}, {}, data, &bytes, status), Progressed::kPending);
  kill(1);
  settle();
  expect_failed(leaving);
  expect_failed(queued);
  EXPECT_EQ(at(0).sends.at(&bytes), Status::kPeerFailed);
  EXPECT_EQ(at(0).history, "sssf");
  expect_contained();
}

TEST_F(EngineFailure, ABouncedPayloadUnderWayFails) {
  network_config.write = false;
  network_config.slots_per_pair = 1;
  make_three();
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(1, request);
  send(0, 1, message);
  for (int i = 0; i < 5; ++i) step();
  ASSERT_TRUE(pending(message));
  kill(1);
  settle();
  expect_failed(message);
  expect_contained();
}

TEST_F(EngineFailure, AWriteUnderWayIsDrainedBeforeItsOwnerIsTold) {
  make_three();
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(1, request);
  send(0, 1, message);
  step();  // RTS
  step();  // CTS: the write is posted.
  ASSERT_TRUE(pending(message));
  at(0)->fail_peer(PeerId{1});
  EXPECT_TRUE(pending(message));  // The device still reads the payload.
  EXPECT_TRUE(at(0).failures.empty());
  EXPECT_FALSE(at(0)->idle());
  kill(1);
  settle();
  ASSERT_FALSE(pending(message));
  EXPECT_EQ(at(0).history, "sf");
  expect_contained();
}

TEST_F(EngineFailure, AReceiveWhosePayloadIsBouncedFails) {
  network_config.write = false;
  network_config.slots_per_pair = 1;
  make_three();
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(0, request);
  send(1, 0, message);
  for (int i = 0; i < 6; ++i) step();
  ASSERT_TRUE(pending(request));
  kill(1);
  settle();
  expect_failed(request);
  expect_contained();
}

TEST_F(EngineFailure, AReceiveWhosePartsArriveFails) {
  network_config.slots_per_pair = 1;
  make_three();
  TestSend message(kEager);
  TestReceive request(kEager);
  receive(0, request);
  send(1, 0, message);
  step();
  ASSERT_TRUE(pending(request));
  kill(1);
  settle();
  expect_failed(request);
  EXPECT_EQ(outcome(request)->length_bytes, kEager);
  EXPECT_EQ(outcome(request)->key, kKey);
  expect_contained();
}

TEST_F(EngineFailure, AReceiveThatIsWrittenToFailsAndItsMemoryIsTakenBack) {
  make_three();
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(0, request);
  send(1, 0, message);
  step();  // RTS: the CTS is under way.
  ASSERT_EQ(at(0).provider->regions(), 1u);
  kill(1);
  settle();
  expect_failed(request);
  EXPECT_EQ(at(0).provider->regions(), 0u);
  expect_contained();
}

/// A peer that the engine gives up on may have a write under way. The fake reports memory that is taken back
/// too early.
TEST_F(EngineFailure, AReceiveIsOverWhenItsFailedSenderCanWriteToItNoMore) {
  network_config.most_delay_ns = 5000;
  int failed = 0;
  for (network_config.seed = 1; network_config.seed <= 40; ++network_config.seed) {
    make_three();
    TestSend message(kLong);
    TestReceive request(kLong);
    receive(0, request);
    send(1, 0, message);
    for (int i = 0; i < 10 && at(1)->idle(); ++i) step();              // Until the write is posted.
    network->inject(PeerId{1}, PeerId{0}, std::vector<std::byte>(1));  // No message of the protocol.
    for (int i = 0; i < 100 && pending(request); ++i) step();
    ASSERT_FALSE(pending(request));
    if (outcome(request)->status == Status::kProtocol) {
      ++failed;
      request.buffer.scribble();  // It is ours again.
      settle();
      EXPECT_EQ(request.buffer.check_scribbled(), "") << network_config.seed;
    }
    settle();
    EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kProtocol}}));
    EXPECT_EQ(network->violations(), std::vector<std::string>{}) << network_config.seed;
  }
  EXPECT_GT(failed, 5);
}

/// The end of its connection takes time. Until then nothing is sent to it, and nobody ends it again.
TEST_F(EngineFailure, APeerThatIsGivenUpIsEndedOnceAndGetsNothingMore) {
  make_three();
  TestSend message(kShort);
  network->inject(PeerId{1}, PeerId{0}, std::vector<std::byte>(1));  // No message of the protocol.
  while (at(0).progress() == 0) ASSERT_TRUE(network->advance());
  ASSERT_TRUE(at(0).failures.empty());
  send(0, 1, message);
  EXPECT_EQ(message.at_once, Status::kPeerFailed);
  EXPECT_EQ(at(0).progress(), 0u);
  settle();
  EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kProtocol}}));
}

/// The peer may still write over the other connection, and must be told of the end.
TEST_F(EngineFailure, APeerWithTwoConnectionsFailsWhenBothHaveEnded) {
  make_strangers();
  FakeNetwork second(network_config);
  const auto zero = second.make_provider(PeerId{0});
  const auto one = second.make_provider(PeerId{1});
  EngineConfig config = engine_config;
  config.self = PeerId{0};
  Provider* const providers[] = {at(0).provider.get(), zero.get()};
  at(0).engine = std::make_unique<HostDriver>(config, providers);
  introduce(0, 1);
  ASSERT_TRUE(one->connect(PeerId{0}, zero->local_address()).ok());
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(0, request);
  send(1, 0, message);
  while (at(1)->idle()) step();  // Until the write is posted.
  second.break_connection(PeerId{0}, PeerId{1});
  while (second.advance()) {
  }
  at(0).progress();
  EXPECT_TRUE(pending(request)) << "it may still be written to";
  settle();
  EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kPeerFailed}}));
  EXPECT_EQ(at(1).failures, (std::map<std::uint32_t, Status>{{0, Status::kPeerFailed}}));
  EXPECT_EQ(second.violations(), std::vector<std::string>{});
  at(0).engine.reset();  // Before the second network.
}

TEST_F(EngineFailure, AWholeUnexpectedMessageOutlivesItsSender) {
  make_three();
  for (const std::size_t length : {kShort, kEager}) {
    kept_sends.push_back(std::make_unique<TestSend>(length, length));
    send(1, 0, *kept_sends.back());
  }
  settle();
  kill(1);
  settle();
  for (auto& message : kept_sends) {
    TestReceive request(kEager);
    receive(0, request);
    expect_received(request, *message);
  }
  expect_contained();
}

TEST_F(EngineFailure, AnUnexpectedEnvelopeWhosePayloadIsGoneFailsTheReceiveThatTakesIt) {
  make_three();
  TestSend message(kLong);
  send(1, 0, message);
  settle();
  kill(1);
  settle();
  Envelope envelope;
  ASSERT_TRUE(at(0)->probe(kKey, kIgnoreNothing, envelope));
  EXPECT_EQ(envelope.length_bytes, kLong);
  TestReceive request(kLong);
  receive(0, request);
  expect_failed(request);
  expect_contained();
}

TEST_F(EngineFailure, AnUnexpectedMessageThatIsNotWholeFailsTheReceiveThatTakesIt) {
  network_config.slots_per_pair = 1;
  for (const bool by_probe : {false, true}) {
    make_three();
    TestSend message(kEager);
    send(1, 0, message);
    step();
    MessageId taken{};
    Envelope envelope;
    if (by_probe) {
      ASSERT_TRUE(at(0)->matched_probe(kKey, kIgnoreNothing, taken, envelope));
    }
    kill(1);
    settle();
    TestReceive request(kEager);
    if (by_probe) {
      EXPECT_EQ(at(0)->receive_matched(taken, request.buffer.payload(), request.cookie(), envelope),
                Progressed::kDone);
      EXPECT_EQ(envelope.status, Status::kPeerFailed);
    } else {
      receive(0, request);
      expect_failed(request);
    }
    EXPECT_EQ(request.buffer.check_untouched(), "");
    expect_contained();
  }
}

TEST_F(EngineFailure, APostedReceiveIsTheClientsToJudge) {
  make_three();
  TestReceive request(kShort);
  receive(0, request);
  TestSend hello(kShort);
  hello.key = kOtherKey;
  send(0, 1, hello);
  settle();
  kill(1);
  settle();
  EXPECT_TRUE(pending(request));
  EXPECT_TRUE(at(0)->cancel_receive(request.operation));
  expect_contained();
}

TEST_F(EngineFailure, ACancelUnderWayIsDecided) {
  make_three();
  TestSend message(kLong);
  TestSend done(kShort);
  done.send_id = 3;
  send(0, 1, message);
  send(0, 1, done);
  settle();
  ASSERT_EQ(cancel(message), Progressed::kPending);
  ASSERT_EQ(cancel(done), Progressed::kPending);
  kill(1);
  at(0)->fail_peer(PeerId{1});
  settle();
  EXPECT_EQ(cancelled(message), false);
  EXPECT_EQ(cancelled(done), false);
  expect_failed(message);
  EXPECT_EQ(cancel(message), Progressed::kFailed);
  EXPECT_EQ(at(0).history.back(), 'f');
  expect_contained();
}

TEST_F(EngineFailure, NothingIsSentToAPeerThatFailed) {
  make_three();
  TestSend hello(kShort);
  send(0, 1, hello);
  settle();
  kill(1);
  settle();
  TestSend message(kShort);
  send(0, 1, message);
  EXPECT_EQ(message.at_once, Status::kPeerFailed);
  Status status{};
  EXPECT_EQ(at(0)->send_packet(PeerId{1}, {}, {}, nullptr, status), Progressed::kFailed);
  EXPECT_EQ(status, Status::kPeerFailed);
  expect_contained();
}

TEST_F(EngineFailure, WhatADeadProcessHadSentComesBeforeItsEnd) {
  make_three();
  TestReceive hello(kShort);
  TestSend first(kShort);
  receive(0, hello);
  send(1, 0, first);
  settle();
  TestReceive request(kShort);
  TestSend message(kShort);
  receive(0, request);
  send(1, 0, message);
  network->advance();  // It is here, but nobody has looked.
  kill(1);
  at(0)->fail_peer(PeerId{1});
  settle();
  expect_received(request, message);
  EXPECT_EQ(at(0).history, "rrf");
  expect_contained();
}

TEST_F(EngineFailure, APeerThatWeOnlyHeardOfCanBeDeclaredDead) {
  make_strangers(3);
  at(0)->fail_peer(PeerId{1});
  at(0)->fail_peer(PeerId{1});
  take_events(0);
  EXPECT_EQ(at(0).history, "f");
  kill(1);
  expect_contained();
}

TEST_F(EngineFailure, APeerThatSaidGoodbyeHasNotFailed) {
  make();
  TestSend message(kShort);
  TestReceive request(kShort);
  receive(1, request);
  send(0, 1, message);
  settle();
  at(0)->close_peer(PeerId{1});
  TestSend pending_one(kLong);
  send(0, 1, pending_one);
  settle();
  kill(1);
  settle();
  EXPECT_TRUE(at(0).failures.empty());
  expect_failed(pending_one);  // What was unfinished still fails.
}

TEST_F(EngineFailure, NobodyThereIsSaid) {
  make_strangers();
  cards[1] = card_version() + ";ib:nowhere";
  TestSend message(kShort);
  send(0, 1, message);
  settle();
  EXPECT_EQ(outcome(message), Status::kUnreachable);
  ASSERT_EQ(at(0).warnings.size(), 1u);
  EXPECT_NE(at(0).warnings[0].find("ib:nowhere"), std::string::npos);
  EXPECT_EQ(at(0).warning_scopes[0], LogScope::kProcess);
}

/// Both would wait for each other, for ever.
TEST_F(EngineFailure, WhoCannotBeReachedHasFailed) {
  make_strangers();
  cards[1] = card_version() + ";ib:nowhere";
  TestSend message(kShort);
  send(0, 1, message);
  EXPECT_TRUE(pending(message));
  settle();
  EXPECT_EQ(outcome(message), Status::kUnreachable);
  EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kUnreachable}}));
  TestSend another(kShort);
  send(0, 1, another);
  EXPECT_EQ(another.at_once, Status::kPeerFailed);
  EXPECT_EQ(at(0).warnings.size(), 1u) << "told once";
}

TEST_F(EngineFailure, AnotherVersionOfTheProtocolIsRefused) {
  for (const std::string version : {"v=1;", "v=30;", "v=;", "w=1;", ";"}) {
    make_strangers();
    cards[1] = version + cards[1].substr(cards[1].find(';') + 1);
    TestSend message(kShort);
    send(0, 1, message);
    settle();
    EXPECT_EQ(outcome(message), Status::kUnreachable) << cards[1];
    ASSERT_EQ(at(0).warnings.size(), 1u);
    EXPECT_NE(at(0).warnings[0].find("same libch3offload"), std::string::npos);
  }
}

/// The receiver cannot answer: the connection fails, the process does not.
TEST_F(EngineFailure, AReceiverThatCannotConnectBackFailsTheSender) {
  network_config.pair_without_connection_probability = 0.5;
  const auto connects = [this](std::uint32_t from, std::uint32_t to) {
    return at(from).provider->connect(PeerId{to}, at(to).provider->local_address()).ok();
  };
  do {
    ++network_config.seed;
    make_strangers();
  } while (!connects(0, 1) || connects(1, 0));
  make_strangers();
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(1, request);
  send(0, 1, message);
  settle();
  ASSERT_FALSE(pending(request));
  EXPECT_EQ(outcome(request)->status, Status::kUnreachable);
  EXPECT_EQ(at(1).failures, (std::map<std::uint32_t, Status>{{0, Status::kUnreachable}}));
  expect_failed(message);
  EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kPeerFailed}}));
}

/// Its card would be of no use, nor is it asked for.
TEST_F(EngineFailure, WhoHasSentIsAnsweredWithoutItsCard) {
  const auto greet = [this](std::size_t length, SendMode mode) {
    make_strangers();
    cards[0] = "";
    TestSend message(length);
    TestReceive request(length);
    receive(1, request);
    send(0, 1, message, mode);
    settle();
    expect_received(request, message);
    expect_sent(message);
    TestSend back(length);
    TestReceive request_back(length);
    receive(0, request_back);
    send(1, 0, back);
    settle();
    expect_received(request_back, back);
    expect_sent(back);
    EXPECT_EQ(at(0).counters().cards_wanted, 1u);
    EXPECT_EQ(at(1).counters().cards_wanted, 0u);
  };
  greet(kShort, SendMode::kStandard);
  greet(kShort, SendMode::kSynchronous);
  greet(kLong, SendMode::kStandard);
}

TEST_F(EngineFailure, WhoHasSentIsAnsweredTheWayItCame) {
  make_strangers();
  FakeNetwork second(network_config);
  const auto zero = second.make_provider(PeerId{0});
  const auto one = second.make_provider(PeerId{1});
  EngineConfig config = engine_config;
  config.self = PeerId{0};
  Provider* const both[] = {at(0).provider.get(), zero.get()};
  at(0).engine = std::make_unique<HostDriver>(config, both);
  config.self = PeerId{1};
  Provider* const only[] = {one.get()};
  at(1).engine = std::make_unique<HostDriver>(config, only);
  cards[0] = at(0).engine->card();
  cards[1] = "";
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(0, request);
  send(1, 0, message);
  do {
    settle();
  } while (second.advance());
  expect_received(request, message);
  expect_sent(message);
  EXPECT_EQ(at(0).provider->address_of(PeerId{1}), "");
  EXPECT_EQ(second.violations(), std::vector<std::string>{});
  for (const std::uint32_t i : {0u, 1u}) at(i).engine.reset();  // Before the second network.
}

/// Both would wait for ever: the answer is due, and the process to be answered is gone.
TEST_F(EngineFailure, WhoDiesBeforeItIsAnsweredFails) {
  make_strangers();
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(1, request);
  send(0, 1, message);
  at(0).progress();
  at(0).progress();
  kill(0);
  settle();
  EXPECT_EQ(at(1).failures.count(0), 1u);
  EXPECT_TRUE(at(1)->idle());
}

/// Whoever is given up before it connects must not wait for an answer, either.
TEST_F(EngineFailure, WhoWasGivenUpBeforeItConnectedFails) {
  make_strangers();
  cards[0] = card_version() + ";ib:nowhere";
  TestSend there(kShort);
  send(1, 0, there);
  settle();
  EXPECT_EQ(outcome(there), Status::kUnreachable);
  TestSend back(kLong);
  send(0, 1, back);
  settle();
  EXPECT_FALSE(pending(back));
  EXPECT_EQ(at(0).failures, (std::map<std::uint32_t, Status>{{1, Status::kPeerFailed}}));
}

}  // namespace engine_failure_test
}  // namespace ch3_offload
