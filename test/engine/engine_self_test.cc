// Messages of a process to itself.

#include <array>

#include "engine/engine_world.h"

namespace ch3_offload {
namespace engine_self_test {

constexpr std::size_t kShort = 100;
constexpr std::size_t kLong = 100'000;  ///< Beyond the eager limit.

class EngineSelf : public EngineWorld {
 protected:
  EngineSelf() { make_strangers(1); }
};

TEST_F(EngineSelf, ReachesTheReceiveThatWasPostedFirst) {
  for (const std::size_t length : {std::size_t{0}, kShort, kLong}) {
    TestReceive other(length);
    TestReceive older(length);
    TestReceive younger(length);
    receive(0, other, kOtherKey);
    receive(0, older, kKey, kIgnoreInitiator);
    receive(0, younger);
    TestSend first(length, 1);
    TestSend second(length, 2);
    send(0, 0, first);
    send(0, 0, second, SendMode::kSynchronous);
    EXPECT_EQ(first.at_once, Status::kOk);
    EXPECT_EQ(second.at_once, Status::kOk);
    EXPECT_TRUE(pending(older)) << "a command tells nothing";
    settle();
    expect_received(older, first);
    expect_received(younger, second);
    EXPECT_TRUE(at(0)->cancel_receive(other.operation));
    expect_at_rest();
  }
}

TEST_F(EngineSelf, IsTruncatedLikeAnyMessage) {
  TestReceive request(kShort / 2);
  receive(0, request);
  TestSend message(kShort);
  send(0, 0, message);
  settle();
  expect_received(request, message);
}

TEST_F(EngineSelf, CopiesBetweenBuffersOfAnyShape) {
  for (const std::size_t send_block : {0, 24}) {
    for (const std::size_t receive_block : {0, 56}) {
      for (const bool posted_first : {true, false}) {
        TestSend message(kLong, 3, send_block);
        TestReceive request(kLong, receive_block);
        if (posted_first) receive(0, request);
        send(0, 0, message);
        if (!posted_first) receive(0, request);
        settle();
        expect_sent(message);
        expect_received(request, message);
        expect_at_rest();
      }
    }
  }
}

/// A message of three elements, from an element's own layout to contiguous memory and back. The pieces are not
/// in the order of memory, lie before the element's address, too, and elements go backwards.
TEST_F(EngineSelf, MovesPiecesInTheOrderOfTheMessage) {
  constexpr std::array<Piece, 3> kPieces{{{4, 8}, {-6, 2}, {12, 3}}};
  const PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces,
                             .piece_count = kPieces.size(),
                             .pieces = kPieces.data(),
                             .element_bytes = 13,
                             .extent_bytes = -30};
  constexpr std::size_t kLength = 3 * 13 - 2;  // The last element is cut.
  for (const bool is_sent : {true, false}) {
    std::array<std::byte, 100> memory{};
    std::array<std::byte, kLength> packed{};
    const Payload pieces{memory.data() + 70, kLength, &layout};
    const Payload contiguous{packed.data(), kLength, nullptr};
    fill_pattern(packed, 77);
    fill_pattern(memory, 78);
    const auto memory_before = memory;
    const auto packed_before = packed;
    OperationId operation{};
    Status status{};
    Envelope envelope;
    ASSERT_EQ(at(0)->send(PeerId{0}, SendMode::kStandard, kKey, is_sent ? pieces : contiguous, 0, nullptr,
                          operation, status),
              Progressed::kDone);
    ASSERT_EQ(at(0)->post_receive(kKey, kIgnoreNothing, is_sent ? contiguous : pieces, nullptr, operation,
                                  envelope),
              Progressed::kDone);
    std::size_t next = 0;
    for (std::ptrdiff_t element = 70; next < kLength; element -= 30) {
      for (const Piece& piece : kPieces) {
        for (std::size_t i = 0; i < piece.length_bytes && next < kLength; ++i, ++next) {
          const auto place = static_cast<std::size_t>(element + piece.offset_bytes) + i;
          EXPECT_EQ(memory[place], packed[next]) << next;
          memory[place] = memory_before[place];
        }
      }
    }
    EXPECT_EQ(memory, memory_before) << "bytes between the pieces were written";
    if (!is_sent) {
      EXPECT_EQ(packed, packed_before);
    }
  }
}

TEST_F(EngineSelf, ASmallOneIsDoneBeforeItsReceiveAndALongOneIsNot) {
  TestSend small(kShort, 1);
  TestSend long_one(kLong, 2);
  TestSend synchronous(kShort, 3);
  send(0, 0, small);
  send(0, 0, long_one);
  send(0, 0, synchronous, SendMode::kSynchronous);
  EXPECT_EQ(small.at_once, Status::kOk);
  small.buffer.scribble();
  settle();
  EXPECT_TRUE(pending(long_one));
  EXPECT_TRUE(pending(synchronous));
  EXPECT_EQ(at(0).counters().unexpected_depth, 3u);
  EXPECT_GT(at(0).counters().unexpected_bytes, kShort);
  TestReceive requests[] = {TestReceive(kLong), TestReceive(kLong), TestReceive(kLong)};
  for (TestReceive& request : requests) receive(0, request);
  settle();
  expect_received(requests[0], small);
  expect_received(requests[1], long_one);
  expect_received(requests[2], synchronous);
  expect_sent(long_one);
  expect_sent(synchronous);
  expect_at_rest();
}

TEST_F(EngineSelf, BeyondTheBudgetTheSenderWaits) {
  engine_config.unexpected_budget_bytes = 1000;
  make_strangers(1);
  TestSend first(kShort, 1);
  TestSend second(900, 2);
  send(0, 0, first);
  send(0, 0, second);
  EXPECT_EQ(first.at_once, Status::kOk);
  EXPECT_TRUE(pending(second));
  TestReceive requests[] = {TestReceive(900), TestReceive(900)};
  for (TestReceive& request : requests) receive(0, request);
  settle();
  expect_received(requests[0], first);
  expect_received(requests[1], second);
  expect_at_rest();
}

TEST_F(EngineSelf, ProbesFindIt) {
  TestSend message(kLong);
  send(0, 0, message);
  Envelope envelope;
  ASSERT_TRUE(at(0)->probe(kKey, kIgnoreNothing, envelope));
  EXPECT_EQ(envelope.length_bytes, kLong);
  MessageId taken{};
  ASSERT_TRUE(at(0)->matched_probe(kKey, kIgnoreInitiatorAndTag, taken, envelope));
  EXPECT_EQ(cancel(message), Progressed::kFailed) << "it has matched";
  TestReceive request(kLong);
  ASSERT_EQ(at(0)->receive_matched(taken, request.buffer.payload(), request.cookie(), envelope), Progressed::kDone);
  EXPECT_EQ(request.buffer.check(message.seed, kLong), "");
  settle();
  expect_sent(message);
  expect_at_rest();
}

TEST_F(EngineSelf, IsCancelledWhileNoReceiveHasTakenIt) {
  TestSend small(kShort, 1);
  TestSend long_one(kLong, 2);
  small.send_id = 1;
  long_one.send_id = 2;
  send(0, 0, small);
  send(0, 0, long_one);
  EXPECT_EQ(cancel(long_one), Progressed::kDone);
  EXPECT_EQ(cancel(small), Progressed::kDone);
  EXPECT_EQ(cancel(small), Progressed::kFailed);
  expect_at_rest();
  EXPECT_TRUE(pending(long_one)) << "a cancelled send has no event";
  TestReceive request(kShort);
  receive(0, request);
  TestSend matched(kShort, 3);
  matched.send_id = 3;
  send(0, 0, matched);
  EXPECT_EQ(cancel(matched), Progressed::kFailed);
  settle();
  expect_received(request, matched);
}

TEST_F(EngineSelf, PurgeFailsTheSendThatWaits) {
  TestSend small(kShort, 1);
  TestSend long_one(kLong, 2);
  send(0, 0, small);
  send(0, 0, long_one);
  at(0)->purge(PurgeScope::kAll, {&kEverything, 1}, {}, Status::kRevoked);
  settle();
  EXPECT_EQ(outcome(long_one), Status::kRevoked);
  expect_at_rest();
}

/// With parts of a size that whoever runs several engines chooses.
class EngineSelfInParts : public EngineWorld {
 protected:
  static constexpr std::size_t kPart = 10'000;
  EngineSelfInParts() {
    engine_config.self_copy_bytes = kPart;
    make_strangers(1);
  }
  /// Calls of progress() until the receive is over.
  std::size_t turns_until_received(TestReceive& request) {
    std::size_t turns = 0;
    for (; pending(request) && turns < 1000; ++turns) step();
    return turns;
  }
};

TEST_F(EngineSelfInParts, ALongOneTakesSeveralTurns) {
  for (const std::size_t block : {0, 24}) {
    for (const bool posted_first : {true, false}) {
      TestSend message(kLong, 3, block);
      TestReceive request(kLong, block);
      if (posted_first) receive(0, request);
      send(0, 0, message);
      if (!posted_first) receive(0, request);
      EXPECT_TRUE(pending(message));
      EXPECT_FALSE(at(0)->at_rest());
      EXPECT_GE(turns_until_received(request), kLong / kPart);
      settle();
      expect_sent(message);
      expect_received(request, message);
      expect_at_rest();
    }
  }
}

TEST_F(EngineSelfInParts, AShortOneIsDoneAtOnce) {
  TestReceive request(kPart);
  receive(0, request);
  TestSend message(kPart);
  send(0, 0, message);
  EXPECT_EQ(message.at_once, Status::kOk);
  settle();
  expect_received(request, message);
}

TEST_F(EngineSelfInParts, SeveralTakeTurns) {
  TestReceive long_request(kLong), request(2 * kPart);
  receive(0, long_request);
  receive(0, request, kOtherKey);
  TestSend long_message(kLong, 1), message(2 * kPart, 2);
  send(0, 0, long_message);
  message.key = kOtherKey;
  send(0, 0, message);
  EXPECT_LT(turns_until_received(request), 8u);
  EXPECT_TRUE(pending(long_request));
  settle();
  expect_received(long_request, long_message);
  expect_received(request, message);
}

TEST_F(EngineSelfInParts, IsTruncatedLikeAnyMessage) {
  TestReceive request(3 * kPart + 1);
  receive(0, request);
  TestSend message(kLong);
  send(0, 0, message);
  settle();
  expect_received(request, message);
  expect_sent(message);
}

/// It has matched: there is nothing to be taken back.
TEST_F(EngineSelfInParts, WhatIsBeingCopiedIsNotCancelled) {
  TestReceive request(kLong);
  receive(0, request);
  TestSend message(kLong);
  send(0, 0, message);
  EXPECT_EQ(at(0)->cancel_send(message.operation, PeerId{0}, kKey, 0, nullptr), Progressed::kFailed);
  EXPECT_FALSE(at(0)->cancel_receive(request.operation));
  settle();
  expect_received(request, message);
}

TEST_F(EngineSelf, IsNoPeerThatCouldFail) {
  TestSend message(kLong);
  send(0, 0, message);
  at(0)->fail_peer(PeerId{0});
  settle();
  EXPECT_TRUE(pending(message));
  TestReceive request(kLong);
  receive(0, request);
  settle();
  expect_received(request, message);
}

}  // namespace engine_self_test
}  // namespace ch3_offload
