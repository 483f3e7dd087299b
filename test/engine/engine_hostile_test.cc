// Hostile bytes: a peer that may send anything fails its own connection and nothing else.
//
// RULE HOSTILE BYTES (ARCHITECTURE.md), message by message; engine_fuzz_test.cc does it at random.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>

#include "engine/forged_messages.h"
#include "engine/hostile_world.h"

namespace ch3_offload {
namespace {

using forged::Bytes;
using wire::Kind;

class EngineHostile : public HostileWorld {};

TEST_F(EngineHostile, WhatIsNoMessageIsRefused) {
  const Bytes cases[] = {
      {}, Bytes(7), Bytes(8),  // Kind 0.
      forged::plain(Kind::kEnd), forged::plain(Kind{255}, 0, 255),
  };
  for (const auto& message : cases) {
    make_three();
    attack(message);
    expect_refused();
  }
}

TEST_F(EngineHostile, EveryHeaderThatIsCutShortIsRefused) {
  const Bytes whole[] = {forged::eager(0), forged::eager_first(0, 0), forged::rts(0), forged::cts(1, 1), forged::data(1, 0, 0), forged::ack(1),
                                          forged::credit_return(1), forged::cancel_reply(1, true),
                                          forged::recall(1),
                                          forged::cancel(1, 1)};
  for (const auto& message : whole) {
    for (const std::size_t length : {std::size_t{8}, message.size() - 1}) {
      make_three();
      attack({message.begin(), message.begin() + static_cast<std::ptrdiff_t>(length)});
      SCOPED_TRACE(static_cast<int>(message[0]));
      expect_refused();
    }
  }
}

TEST_F(EngineHostile, SizesOutOfRangeAreRefused) {
  const std::size_t window = engine_config.unexpected_budget_bytes / 6;  // Of three processes.
  const std::vector<Bytes> cases[] = {
      {forged::eager(window + 1)},                          // Beyond its credit,
      {forged::eager(window), forged::eager(1)},                    // in two steps,
      {forged::eager_first(window + 1, 10)},                // or announced.
      {forged::eager_first(UINT64_MAX, 10)},
      {forged::eager_first(5, 10)},                         // Less than is here.
      {forged::eager_next(10)},                             // Of nothing.
      {forged::eager_first(100, 10), forged::eager_next(91)},       // More than was announced.
      {forged::eager_first(100, 10), forged::eager_next(0)},
      {forged::eager_first(100, 10), forged::eager(1)},             // In the middle of another.
      {forged::eager_first(100, 10), forged::eager_first(100, 10)},
      {forged::eager_first(100, 10), forged::rts(kLong)},
      {forged::eager_first(100, 100), forged::eager_next(1)},       // It was whole.
      {forged::rts(100, wire::kPayload, 99)},               // Payload that is not what it says.
      {forged::rts(100, wire::kPayload, 101)},
      {forged::rts(UINT64_MAX, wire::kPayload, 100)},
      {forged::rts(100, 0, 100)},
      {forged::credit_return(0)},                               // Nobody asked for it.
      {forged::credit_return(UINT64_MAX)},
  };
  int number = 0;
  for (const auto& messages : cases) {
    SCOPED_TRACE(++number);
    for (const bool posted : {false, true}) {
      make_three();
      TestReceive request(1000);
      if (posted) receive(kVictim, request);
      for (const auto& message : messages) attack(message);
      settle();
      if (posted) at(kVictim)->cancel_receive(request.operation);
      expect_refused();
      EXPECT_EQ(request.buffer.check_guards(), "");
    }
  }
}

TEST_F(EngineHostile, IdsThatNameNothingAreRefused) {
  for (const std::uint32_t id : {0U, 1U, 2U, 3U, 0x01000000U, 0x01000001U, 0x02000000U, 0x01FFFFFFU, 0xFFFFFFFFU}) {
    for (const auto& message : {forged::cts(id, 1), forged::cts(id, 0), forged::data(id, 0, 10), forged::ack(id), forged::cancel_reply(id, true)}) {
      make_three();
      attack(message);
      expect_refused();
    }
    make_three();
    network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{id}, 1);
    expect_refused();
  }
}

TEST_F(EngineHostile, IdsOfWhatIsOverAreRefused) {
  make_three();
  TestReceive request(1000);
  const std::uint32_t transfer = open_transfer(request);
  attack(forged::data(transfer, 0, 1000));
  settle();
  EXPECT_EQ(outcome(request)->status, Status::kOk);
  TestReceive next(1000);  // Takes the same place, with another generation.
  EXPECT_NE(open_transfer(next), transfer);
  attack(forged::data(transfer, 0, 1000));
  expect_refused();
  EXPECT_EQ(outcome(next)->status, Status::kProtocol);
  EXPECT_EQ(next.buffer.check_untouched(), "");

  make_three();
  TestSend message(kLong);
  const std::uint32_t operation = open_rendezvous(message);
  attack(forged::cts(operation, 0));
  settle();
  expect_sent(message);
  TestSend another(kLong);
  EXPECT_NE(open_rendezvous(another), operation);
  attack(forged::cts(operation, 0));
  expect_refused();
  EXPECT_EQ(outcome(another), Status::kProtocol);
}

/// Each of these takes the object of the one before.
TEST_F(EngineHostile, NumbersOnTheWireDoNotComeAgain) {
  make_three();
  std::set<std::uint32_t> operations;
  std::set<std::uint32_t> transfers;
  for (int i = 0; i < 1000; ++i) {
    TestSend message(kLong);
    const std::uint32_t operation = open_rendezvous(message);
    ASSERT_TRUE(operations.insert(operation).second) << i;
    attack(forged::cts(operation, 0));
    TestReceive request(1000);
    const std::uint32_t transfer = open_transfer(request);
    ASSERT_TRUE(transfers.insert(transfer).second) << i;
    attack(forged::data(transfer, 0, 1000));
    settle();
    heard = {};
  }
  expect_unharmed();
}

/// The neighbour's transfers and operations are not the attacker's to touch.
TEST_F(EngineHostile, IdsOfAnotherPeerAreRefused) {
  // The victim has greeted the two: its third operation and its first transfer are the neighbour's.
  const Bytes forgeries[] = {forged::cts(3, 1), forged::ack(3), forged::data(1, 0, 10)};
  for (const Bytes& forgery : forgeries) {
    make_three();
    TestSend message(kLong);
    TestReceive request(kLong);
    send(kVictim, kNeighbour, message);
    receive(kVictim, request, kOtherKey);
    TestSend incoming(kLong, 2);
    incoming.key = kOtherKey;
    send(kNeighbour, kVictim, incoming);
    network->advance();
    at(kVictim).progress();
    attack(forgery);
    settle();
    expect_received(request, incoming);
    TestReceive counterpart(kLong);
    receive(kNeighbour, counterpart);
    settle();
    expect_received(counterpart, message);
    expect_refused();
  }
}

/// Only of the write that was granted: whole, to this peer, and before anything of it has come.
TEST_F(EngineHostile, AProviderIsToldWhereAGrantedWriteLandsAndNothingElse) {
  make_three();
  const auto answer_to = [&](std::uint32_t from, std::uint32_t transfer, std::size_t length_bytes) {
    std::byte unset{};
    std::byte* answer = &unset;
    network->inject_share(PeerId{from}, PeerId{kVictim}, Immediate{transfer}, length_bytes, answer);
    settle();
    EXPECT_NE(answer, &unset);
    return answer;
  };
  TestReceive request(kLong);
  const std::uint32_t transfer = open_transfer(request);
  EXPECT_EQ(answer_to(kAttacker, transfer, kLong), request.buffer.payload().address);
  EXPECT_EQ(answer_to(kAttacker, transfer, kLong - 1), nullptr);
  EXPECT_EQ(answer_to(kAttacker, transfer, kLong + 1), nullptr);
  EXPECT_EQ(answer_to(kAttacker, transfer + 1, kLong), nullptr);
  EXPECT_EQ(answer_to(kNeighbour, transfer, kLong), nullptr);
  network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{transfer}, 1000);
  settle();
  EXPECT_EQ(answer_to(kAttacker, transfer, kLong), nullptr) << "a part has come";
  network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{transfer}, kLong - 1000);
  settle();
  EXPECT_EQ(outcome(request)->status, Status::kOk);
  EXPECT_EQ(answer_to(kAttacker, transfer, kLong), nullptr) << "it is complete";
  EXPECT_TRUE(at(kVictim).failures.empty());
}

TEST_F(EngineHostile, AnImmediateForAReceiveThatIsNotWrittenToIsRefused) {
  network_config.write_threshold_bytes = 2000;
  make_three();
  TestReceive request(1000);
  const Immediate immediate{open_transfer(request)};
  std::byte unset{};
  std::byte* answer = &unset;
  network->inject_share(PeerId{kAttacker}, PeerId{kVictim}, immediate, 1000, answer);
  network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, immediate, 1000);
  expect_refused();
  EXPECT_EQ(answer, nullptr);
  EXPECT_EQ(outcome(request)->status, Status::kProtocol);
}

TEST_F(EngineHostile, ATransferThatIsBouncedMustKeepToItsOrderAndLength) {
  const std::vector<std::pair<std::uint64_t, std::size_t>> cases[] = {
      {{0, 1001}}, {{1, 10}}, {{0, 500}, {0, 500}}, {{0, 500}, {501, 1}}, {{0, 500}, {500, 501}}, {{0, 0}},
      {{UINT64_MAX, 10}}};
  for (const auto& parts : cases) {
    make_three();
    TestReceive request(1000);
    const std::uint32_t transfer = open_transfer(request);
    for (const auto& [offset, length] : parts) attack(forged::data(transfer, offset, length));
    expect_refused();
    EXPECT_EQ(outcome(request)->status, Status::kProtocol);
    EXPECT_EQ(request.buffer.check_guards(), "");
  }
}

TEST_F(EngineHostile, ATransferIsWrittenOrBouncedNotBoth) {
  make_three();
  TestReceive request(kLong);
  const std::uint32_t transfer = open_transfer(request);
  attack(forged::data(transfer, 0, 10));
  network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{transfer}, kLong - 10);
  expect_refused();
  EXPECT_EQ(outcome(request)->status, Status::kProtocol);
}

TEST_F(EngineHostile, ATransferThatIsWrittenMustKeepToItsLength) {
  const std::vector<std::size_t> cases[] = {{kLong + 1}, {0}, {10, kLong - 9}, {10, 0}, {10, SIZE_MAX}};
  for (const auto& parts : cases) {
    make_three();
    TestReceive request(kLong);
    const std::uint32_t transfer = open_transfer(request);
    for (const std::size_t length : parts)
      network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{transfer}, length);
    expect_refused();
    EXPECT_EQ(outcome(request)->status, Status::kProtocol);
  }
  make_three();
  TestReceive request(kLong);
  const std::uint32_t transfer = open_transfer(request);
  network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{transfer}, 10);
  attack(forged::data(transfer, 10, 10));
  expect_refused();
}

TEST_F(EngineHostile, ASendThatIsAskedForMoreThanItHasIsNotSent) {
  make_three();
  TestSend message(kLong);
  attack(forged::cts(open_rendezvous(message), kLong + 1));
  expect_refused();
  EXPECT_EQ(outcome(message), Status::kProtocol);
}

TEST_F(EngineHostile, ASendIsAskedForOnce) {
  make_three();
  TestSend message(kLong);
  const std::uint32_t operation = open_rendezvous(message);
  attack(forged::cts(operation, kLong));
  attack(forged::cts(operation, kLong));
  expect_refused();
}

/// Its payload has left already. Asked for again, less than there was, memory behind it went out.
TEST_F(EngineHostile, AnEagerSendIsNotAskedForItsPayload) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{100}, std::size_t{10'000}}) {
    for (const std::size_t wanted : {std::size_t{0}, length / 2, length}) {
      make_three();
      TestSend message(length);
      send(kVictim, kAttacker, message, SendMode::kSynchronous);
      settle();
      const Kind kind = length == 10'000 ? Kind::kEagerFirst : Kind::kEager;
      attack(forged::cts(answer<wire::EagerHeader>(kind).send_id, wanted));
      expect_refused();
      EXPECT_EQ(outcome(message), Status::kProtocol);
    }
  }
}

TEST_F(EngineHostile, ARendezvousIsNotAcknowledged) {
  make_three();
  TestSend message(kLong);
  attack(forged::ack(open_rendezvous(message)));
  expect_refused();
  EXPECT_EQ(outcome(message), Status::kProtocol);
}

TEST_F(EngineHostile, APayloadThatWasAcceptedIsNotAskedFor) {
  make_three_strangers();
  TestSend message(3000);
  const std::uint32_t operation = open_rendezvous(message);  // Optimistic.
  ASSERT_EQ(cancel(message), Progressed::kPending);
  attack(forged::ack(operation));
  attack(forged::cts(operation, 3000));
  settle();
  EXPECT_EQ(at(kVictim).failures, (std::map<std::uint32_t, Status>{{kAttacker, Status::kProtocol}}));
  EXPECT_EQ(cancelled(message), false);
  EXPECT_EQ(outcome(message), Status::kProtocol);
  expect_unharmed();
}

TEST_F(EngineHostile, AWriteIntoNowhereHarmsOnlyTheConnection) {
  violations_expected = true;  // The fake counts it as the victim's mistake; a device breaks the connection.
  make_three();
  TestSend message(kLong);
  attack(forged::cts(open_rendezvous(message), kLong, wire::kWritable));
  settle();
  EXPECT_EQ(outcome(message), Status::kPeerFailed);
  EXPECT_TRUE(victim_has_failed_the_attacker());
  expect_unharmed();
}

/// A part of a packet that the victim has taken: what may come next is its data.
TEST_F(EngineHostile, NothingOfAPacketComesBeforeThePartThatWasTaken) {
  const forged::Bytes attacks[] = {forged::plain(Kind::kPacket, 10), forged::rts(kLong, wire::kPacketPart)};
  for (const forged::Bytes& bytes : attacks) {
    make_three();
    at(kVictim).place_for = [](std::size_t length) { return length; };
    attack(forged::rts(kLong, wire::kPacketPart));
    settle();
    EXPECT_EQ(answer<wire::CtsHeader>(Kind::kCts).wanted_bytes, kLong);
    attack(bytes);
    expect_refused();
    EXPECT_TRUE(at(kVictim).packets.empty());
  }
}

TEST_F(EngineHostile, APartOfAPacketHasALengthAndNoPayload) {
  for (const forged::Bytes& bytes : {forged::rts(0, wire::kPacketPart), forged::rts(10, wire::kPacketPart, 10)}) {
    make_three();
    at(kVictim).place_for = [](std::size_t length) { return length; };
    attack(bytes);
    expect_refused();
  }
}

TEST_F(EngineHostile, APartOfAnyLengthIsWrittenWithinItsPlaceOnly) {
  make_three();
  at(kVictim).place_for = [](std::size_t) { return std::size_t{20'000}; };
  attack(forged::rts(UINT64_MAX, wire::kPacketPart));
  settle();
  const auto clear = answer<wire::CtsHeader>(Kind::kCts);
  EXPECT_EQ(clear.wanted_bytes, 20'000u);
  attack(forged::data(clear.transfer, 0, 3000));
  attack(forged::data(clear.transfer, 3000, 17'001));
  expect_refused();
  EXPECT_TRUE(at(kVictim).packets.empty());
}

/// Of a part that the victim sends: the CTS, and when it has left, one ACK.
TEST_F(EngineHostile, APartIsAcknowledgedOnceAndAfterItWasAskedFor) {
  std::vector<std::byte> bytes(kLong);
  const Payload data[] = {{bytes.data(), bytes.size(), nullptr}};
  for (const std::string_view order : {"a", "caa", "cacc", "cc", "ca0"}) {
    make_three();
    at(kVictim).sends.clear();
    Status status = Status::kOk;
    ASSERT_EQ(at(kVictim)->send_packet(PeerId{kAttacker}, {}, data, &bytes, status), Progressed::kPending);
    settle();
    const std::uint32_t operation = answer<wire::RtsHeader>(Kind::kRts).operation;
    for (const char what : order) {
      attack(what == 'a' ? forged::ack(operation) : forged::cts(operation, what == '0' ? 0 : kLong));
      settle();
    }
    expect_refused();
    const bool done = order.starts_with("ca");
    EXPECT_EQ(at(kVictim).sends.at(&bytes), done ? Status::kOk : Status::kProtocol) << order;
  }
}

TEST_F(EngineHostile, AnAcknowledgementComesOnce) {
  make_three();
  TestSend message(100);
  send(kVictim, kAttacker, message, SendMode::kSynchronous);
  settle();
  const std::uint32_t operation = answer<wire::EagerHeader>(Kind::kEager).send_id;
  attack(forged::ack(operation));
  settle();
  expect_sent(message);
  attack(forged::ack(operation));
  expect_refused();
}

/// A send is cancelled or done, never both: its owner frees it at the first of the two.
TEST_F(EngineHostile, WhatWasAskedForIsNotCancelled) {
  for (const std::size_t wanted : {std::size_t{0}, kLong}) {  // Done by the CTS; its payload under way.
    make_three();
    TestSend message(kLong);
    const std::uint32_t operation = open_rendezvous(message);
    ASSERT_EQ(cancel(message), Progressed::kPending);
    settle();
    const std::uint32_t token = answer<wire::CancelHeader>(Kind::kCancel).token;
    attack(forged::cts(operation, wanted));
    attack(forged::cancel_reply(token, true));
    expect_refused();
    EXPECT_EQ(cancelled(message), false);
    EXPECT_FALSE(pending(message));
  }
}

TEST_F(EngineHostile, ACancelIsAnsweredOnceAndByWhomItWasAskedOf) {
  for (const std::size_t length : {std::size_t{100}, kLong}) {  // Done for its owner; pending.
    make_three();
    TestSend message(length);
    message.send_id = 6;
    send(kVictim, kNeighbour, message);
    settle();
    ASSERT_EQ(cancel(message), Progressed::kPending);
    attack(forged::cancel_reply(1, true));  // The victim's first token.
    expect_refused();
    EXPECT_EQ(cancelled(message), true);  // By the neighbour.
    EXPECT_EQ(at(kNeighbour).counters().unexpected_depth, 0u);
  }

  make_three();
  TestSend other(kLong);
  open_rendezvous(other);
  ASSERT_EQ(cancel(other), Progressed::kPending);
  settle();
  const std::uint32_t token = answer<wire::CancelHeader>(Kind::kCancel).token;
  attack(forged::cancel_reply(token, true));
  attack(forged::cancel_reply(token, true));
  expect_refused();
  EXPECT_EQ(cancelled(other), true);
  EXPECT_TRUE(pending(other));
}

TEST_F(EngineHostile, ACancelThatWasNotAskedForYetIsNotAnswered) {
  network_config.slots_per_pair = 1;
  for (const bool yes : {true, false}) {
    make_three();
    TestSend message(10'000);
    send(kVictim, kAttacker, message, SendMode::kSynchronous);
    ASSERT_EQ(cancel(message), Progressed::kPending);  // Its first part has left.
    attack(forged::cancel_reply(0x01000000, yes));     // The victim's first token.
    expect_refused();
    EXPECT_EQ(cancelled(message), false);
    EXPECT_FALSE(pending(message));
  }
}

TEST_F(EngineHostile, CreditBeyondReasonIsNotTheVictimsProblem) {
  make_three();
  for (int i = 0; i < 10; ++i) {
    auto message = forged::plain(Kind::kCredit, 0, 255);
    std::memset(message.data() + 4, 0xFF, 4);
    attack(message);
  }
  attack(forged::recall(UINT64_MAX));
  settle();
  EXPECT_TRUE(at(kVictim).failures.empty());
  expect_unharmed();
}

TEST_F(EngineHostile, AnEnvelopeMaySayAnyLength) {
  make_three();
  attack(forged::rts(UINT64_MAX));
  settle();
  Envelope envelope;
  ASSERT_TRUE(at(kVictim)->probe(kKey, kIgnoreNothing, envelope));
  EXPECT_EQ(envelope.length_bytes, UINT64_MAX);
  TestReceive request(1000);
  receive(kVictim, request);
  settle();
  attack(forged::data(answer<wire::CtsHeader>(Kind::kCts).transfer, 0, 1000));
  settle();
  EXPECT_EQ(outcome(request)->status, Status::kTruncated);
  EXPECT_EQ(request.buffer.check_guards(), "");
  expect_unharmed();
}

TEST_F(EngineHostile, ACancelThatNamesNothingIsAnswered) {
  make_three();
  attack(forged::rts(100));  // It has no name that a cancel could use.
  attack(forged::cancel(0, 5));
  attack(forged::cancel(0, 6, 255));
  settle();
  EXPECT_EQ(answer<wire::CancelReplyHeader>(Kind::kCancelReply).token, 6u);
  EXPECT_EQ(at(kVictim).counters().unexpected_depth, 1u);
  EXPECT_TRUE(at(kVictim).failures.empty());
  expect_unharmed();
}

/// Providers let nobody in without the job's secret. One that has it may have any number.
TEST_F(EngineHostile, AStrangerWithoutCreditFailsAlone) {
  make_three();
  network->inject(PeerId{1000}, PeerId{kVictim}, forged::eager(10));
  network->inject_immediate(PeerId{1000}, PeerId{kVictim}, Immediate{1}, 1);
  settle();
  EXPECT_EQ(at(kVictim).failures, (std::map<std::uint32_t, Status>{{1000, Status::kProtocol}}));
  EXPECT_EQ(at(kVictim).counters().unexpected_depth, 0u);
  expect_unharmed();
}

}  // namespace
}  // namespace ch3_offload
