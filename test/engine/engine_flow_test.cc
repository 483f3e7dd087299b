// Byte credit: what is lent, how it comes back, recall, floods; the sender's copies; queues that are full.

#include <gtest/gtest.h>

#include "engine/card.h"
#include "engine/engine_world.h"
#include "engine/forged_messages.h"
#include "engine/wire.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kBudget = 1 << 20;

class EngineFlow : public EngineWorld {
 protected:
  EngineFlow() { engine_config.unexpected_budget_bytes = kBudget; }

  /// Unexpected messages of `length` from `from` to `to`; they and their buffers stay.
  void send_many(std::uint32_t from, std::uint32_t to, std::size_t count, std::size_t length) {
    for (std::size_t i = 0; i < count; ++i) {
      kept.push_back(std::make_unique<TestSend>(length, kept.size() + 1));
      kept.back()->key = make_match_key(1, static_cast<std::uint16_t>(from), 0);
      send(from, to, *kept.back());
    }
  }
  /// Receives all of them, in order for each sender.
  void receive_all() {
    for (auto& message : kept) {
      TestReceive request(message->buffer.length_bytes());
      receive(message->to, request, message->key);
      for (int i = 0; i < 1000 && pending(request); ++i) step();
      expect_received(request, *message);
    }
    settle();
    for (auto& message : kept) expect_sent(*message);
    kept.clear();
  }
  /// Messages to 1 whose receives are posted, each of which is answered.
  void exchange(std::size_t count, std::size_t length) {
    for (std::size_t i = 0; i < count; ++i) {
      TestSend there(length), back(length);
      TestReceive at_one(length), at_zero(length);
      receive(0, at_zero);
      receive(1, at_one);
      send(0, 1, there);
      while (pending(at_one)) step();
      send(1, 0, back);
      while (pending(at_zero)) step();
    }
  }
  /// A message that 0 never sent. Its engine must not see the answers.
  void forge(std::uint32_t to, const forged::Bytes& message) {
    network->inject(PeerId{0}, PeerId{to}, message);
    network->advance();
    at(to).progress();
  }
  std::size_t count_pending() {
    return static_cast<std::size_t>(
        std::count_if(kept.begin(), kept.end(), [this](const auto& message) { return pending(*message); }));
  }

  std::vector<std::unique_ptr<TestSend>> kept;
};

TEST_F(EngineFlow, NobodyIsLentAnythingBeforeItsFirstMessage) {
  for (const std::uint32_t size : {1U, 100U, 5000U}) {
    engine_config.senders = size;
    make_strangers(1);
    EXPECT_EQ(at(0).counters().lent_bytes, 0u);
    EXPECT_EQ(at(0)->card().find(card_version() + ";fake:"), 0u) << at(0)->card();
  }
}

/// A receiver that is quick gives credit back at once, and seems to have lent enough. What the sender asked
/// for in the meantime says otherwise.
TEST_F(EngineFlow, ABurstToAQuickReceiverGetsAWindowForAllOfIt) {
  engine_config.unexpected_budget_bytes = 16 << 20;
  make();
  constexpr std::size_t kLength = 16 * 1024;
  constexpr std::size_t kBurst = 64;
  std::uint64_t announced_before = 0;
  for (int burst = 0; burst < 4; ++burst) {
    std::vector<std::unique_ptr<TestReceive>> requests;
    for (std::size_t i = 0; i < kBurst; ++i) {
      requests.push_back(std::make_unique<TestReceive>(kLength));
      receive(1, *requests.back(), make_match_key(1, 0, 0));
    }
    announced_before = at(0).counters().sent_rendezvous;
    send_many(0, 1, kBurst, kLength);
    settle();
    for (std::size_t i = 0; i < kBurst; ++i) expect_received(*requests[i], *kept[i]);
    kept.clear();
  }
  EXPECT_EQ(at(0).counters().sent_rendezvous, announced_before) << "the last burst had credit";
  EXPECT_LE(at(1).counters().lent_bytes, 4 * kBurst * kLength) << "and not much more";
}

TEST_F(EngineFlow, ABurstOfEmptyMessagesGetsAWindowToo) {
  engine_config.unexpected_budget_bytes = 64 << 10;
  make();
  constexpr std::size_t kBurst = 60;
  std::uint64_t optimistic_before = 0;
  for (int burst = 0; burst < 10; ++burst) {
    std::vector<std::unique_ptr<TestReceive>> requests;
    for (std::size_t i = 0; i < kBurst; ++i) {
      requests.push_back(std::make_unique<TestReceive>(0));
      receive(1, *requests.back(), make_match_key(1, 0, 0));
    }
    optimistic_before = at(0).counters().sent_optimistic;
    send_many(0, 1, kBurst, 0);
    settle();
    for (std::size_t i = 0; i < kBurst; ++i) expect_received(*requests[i], *kept[i]);
    kept.clear();
  }
  EXPECT_EQ(at(0).counters().sent_optimistic, optimistic_before) << "the last burst had credit";
  EXPECT_LE(at(1).counters().lent_bytes, 4 * kBurst * wire::kEnvelopeBytes) << "and not much more";
}

TEST_F(EngineFlow, AFirstMessageGoesWithoutCreditAndBringsSome) {
  make_strangers();
  TestSend first(1000);
  send(0, 1, first);
  at(0).progress();  // The introduction: it leaves.
  EXPECT_EQ(at(0).counters().sent_optimistic, 1u);
  settle();
  expect_sent(first);
  EXPECT_EQ(at(1).counters().credit_messages, 0u);  // The ACK took it along.
  TestSend second(1000, 2);
  send(0, 1, second);
  EXPECT_EQ(at(0).counters().sent_short, 1u);
  settle();
  for (TestSend* const message : {&first, &second}) {
    TestReceive request(1000);
    receive(1, request);
    expect_received(request, *message);
  }
  expect_at_rest();
}

/// A sender whose sends all end at once never waits, so it never polls: its credit lies there unread.
TEST_F(EngineFlow, ASendThatLacksCreditWaitsUntilWhatHasComeIsRead) {
  make();
  constexpr std::size_t kLength = 8192;
  for (int round = 0; round < 40; ++round) {
    std::vector<std::unique_ptr<TestReceive>> requests;
    for (int i = 0; i < 4; ++i) {
      requests.push_back(std::make_unique<TestReceive>(kLength));
      receive(1, *requests.back(), make_match_key(1, 0, 0));
    }
    const std::uint64_t announced = at(0).counters().sent_optimistic;
    for (std::size_t i = 0; i < 4; ++i) {
      send_many(0, 1, 1, kLength);
      network->advance();
      at(1).progress();  // It takes the message, and returns credit that 0 has not seen.
      network->advance();
      if (pending(*kept.back())) at(0).progress();
    }
    if (round > 2) {
      EXPECT_EQ(at(0).counters().sent_optimistic, announced) << round;
    }
    settle();
    for (std::size_t i = 0; i < 4; ++i) expect_received(*requests[i], *kept[i]);
    kept.clear();
  }
}

/// They ask with each message, before they hear of what the first has brought.
TEST_F(EngineFlow, ManyFirstMessagesAtOnceBringNoMoreCreditThanOne) {
  make_strangers();
  send_many(0, 1, 1, 100);
  settle();
  const std::size_t lent = at(1).counters().lent_bytes;
  EXPECT_GT(lent, 0u);
  receive_all();
  make_strangers();
  send_many(0, 1, 50, 100);
  settle();
  EXPECT_EQ(at(1).counters().credits_requested, 50u);
  EXPECT_EQ(at(1).counters().lent_bytes, lent);
  receive_all();
  expect_at_rest();
}

/// What carries no payload still takes an envelope.
TEST_F(EngineFlow, AnEmptyMessageCostsCreditToo) {
  make();
  send_many(0, 1, 10, 0);
  settle();
  EXPECT_EQ(at(0).counters().sent_short, 10u);
  EXPECT_EQ(at(1).counters().unexpected_bytes, 10 * wire::kEnvelopeBytes);
  receive_all();
  expect_at_rest();
}

/// Without a buffer at the sender a send that finds the budget spent waits; what has left takes no more
/// than the budget, and what waits an envelope each.
TEST_F(EngineFlow, ShortSendsWaitWhenTheBudgetIsSpent) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{64}, std::size_t{2000}}) {
    make(4);
    const std::size_t cost = wire::cost_of(length);
    for (int round = 0; round < 30; ++round) {
      for (std::uint32_t from = 0; from < 3; ++from) send_many(from, 3, kBudget / cost / 60 + 1, length);
      settle();
    }
    const Counters& counters = at(3).counters();
    ASSERT_EQ(counters.unexpected_depth, kept.size());
    EXPECT_LE(counters.unexpected_bytes, kBudget);
    EXPECT_GT(counters.unexpected_bytes, kBudget * 9 / 10);
    EXPECT_EQ(counters.unexpected_announced, kept.size() - counters.unexpected_bytes / cost);
    EXPECT_EQ(count_pending(), counters.unexpected_announced);
    EXPECT_GT(count_pending(), kept.size() / 4);
    receive_all();
    expect_at_rest();
    EXPECT_EQ(at(3).counters().unexpected_announced, 0u);
  }
}

/// MPI's progress rule: a receive that matches completes, whatever else fills the budget.
TEST_F(EngineFlow, AMessageBehindASpentBudgetIsReceivedFirst) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{4000}, std::size_t{10'000}}) {
    make();
    while (count_pending() < 40) {
      send_many(0, 1, 50, 0);
      settle();
    }
    TestSend wanted(length);
    wanted.key = kOtherKey;
    send(0, 1, wanted);
    settle();
    EXPECT_TRUE(pending(wanted));
    TestReceive request(length);
    receive(1, request, kOtherKey);
    settle();
    expect_received(request, wanted);
    expect_sent(wanted);
    receive_all();
    expect_at_rest();
  }
}

TEST_F(EngineFlow, CreditOfWhatIsReceivedComesBack) {
  make();
  std::size_t sent = 0;
  for (std::size_t i = 0; sent < 20 * kBudget; ++i) {
    TestSend message(4000 + i % 6000, i + 1);
    TestReceive request(10'000);
    const bool expected = i % 2 == 0;
    if (expected) receive(1, request);
    send(0, 1, message);
    for (int k = 0; k < 100 && (pending(message) || at(1).counters().unexpected_depth + expected == 0); ++k)
      step();
    if (!expected) receive(1, request);
    for (int k = 0; k < 100 && pending(request); ++k) step();
    expect_received(request, message);
    sent += message.buffer.length_bytes();
  }
  EXPECT_EQ(at(0).counters().sent_rendezvous + at(0).counters().sent_optimistic, 0u);
  EXPECT_GT(at(1).counters().credit_messages, 0u);
  EXPECT_LT(at(1).counters().credit_messages, 20 * kBudget / 4000 / 4);  // Not one for each message.
  expect_at_rest();
}

/// A command may be another thread's while one sleeps: at_rest() tells it to wake the sleeper.
TEST_F(EngineFlow, WhoOwesCreditForAReceivedMessageIsNotAtRest) {
  make();
  const std::size_t lent = at(1).counters().lent_bytes;
  send_many(0, 1, lent / 4 / wire::kEnvelopeBytes + 1, 0);
  settle();
  ASSERT_TRUE(at(1)->at_rest());
  for (auto& message : kept) {
    TestReceive request(0);
    receive(1, request, message->key);
    expect_received(request, *message);
  }
  EXPECT_FALSE(at(1)->at_rest());
  EXPECT_TRUE(at(1)->idle());  // Nobody needs credit of a process that ends.
  at(1).progress();
  EXPECT_EQ(at(1).counters().credit_messages, 1u);
  EXPECT_TRUE(at(1)->at_rest());
  expect_at_rest();
}

/// Traffic both ways takes the credit along: nothing is sent for its sake alone.
TEST_F(EngineFlow, CreditRidesOnMessagesThatGoThatWayAnyhow) {
  make();
  exchange(2000, 1000);
  EXPECT_EQ(at(0).counters().credit_messages + at(1).counters().credit_messages, 0u);
  EXPECT_EQ(at(0).counters().sent_short, 2000u);
  expect_at_rest();
}

/// The first window holds few messages of such a length, or one. It grows, with one message that says so.
TEST_F(EngineFlow, SoDoesThatOfLongMessages) {
  for (const std::size_t length : {16'384U, 30'000U, 65'536U}) {
    engine_config.unexpected_budget_bytes = 64 << 20;
    make();
    const std::size_t lent = at(0).counters().lent_bytes;
    exchange(200, length);
    EXPECT_LE(at(0).counters().credit_messages, 1u) << length;
    EXPECT_LE(at(1).counters().credit_messages, 1u) << length;
    EXPECT_LE(at(0).counters().lent_bytes, lent + 9 * length) << length;
    expect_at_rest();
  }
}

TEST_F(EngineFlow, AWindowDoesNotGrowForLongMessagesWhereLittleIsLeftToLend) {
  make();  // A window may be all that is lent.
  const std::size_t lent = at(1).counters().lent_bytes;
  exchange(20, kBudget / 32);
  EXPECT_EQ(at(1).counters().lent_bytes, lent);
  expect_at_rest();
}

TEST_F(EngineFlow, AWindowGrowsWithDemandUpToTheBudget) {
  make();
  const std::size_t at_first = at(1).counters().lent_bytes;
  send_many(0, 1, 400, 10'000);  // Longer than a slot: nothing is kept without credit.
  settle();
  EXPECT_GT(at(1).counters().credits_requested, 0u);
  EXPECT_LT(at_first, kBudget / 8);
  EXPECT_GT(at(1).counters().lent_bytes, kBudget * 9 / 10);
  receive_all();
  expect_at_rest();
}

/// 0 borrows most of the budget and falls silent; 1 needs more than what is left for it.
TEST_F(EngineFlow, CreditIsRecalledFromWhoDoesNotUseIt) {
  network_config.slots_per_pair = 1000;
  make(3);
  send_many(0, 2, 400, 4000);
  settle();
  receive_all();
  settle();
  for (int round = 0; round < 20; ++round) {
    send_many(1, 2, 100, 4000);  // It asks, whenever it runs out.
    settle();
    receive_all();
  }
  const std::uint64_t before = at(1).counters().sent_short;
  send_many(1, 2, 100, 4000);
  EXPECT_EQ(at(1).counters().sent_short - before, 100u);  // More than one recall has brought.
  settle();
  EXPECT_LE(at(2).counters().lent_bytes, kBudget);
  receive_all();
  expect_at_rest();
}

/// 0 and 1 borrow most of the budget. 0 falls silent, 1 goes on, and 2 comes.
TEST_F(EngineFlow, CreditIsRecalledFromWhoIsIdleAndNotFromWhoIsBusy) {
  constexpr std::uint32_t kReceiver = 3;
  network_config.slots_per_pair = 1000;
  make(kReceiver + 1);
  std::map<std::uint32_t, int> recalls;
  network->tamper = [&](PeerId, PeerId to, std::span<std::byte> message) {
    wire::CommonHeader header;
    if (wire::get(message, header) && header.kind == wire::Kind::kRecall) ++recalls[index_of(to)];
  };
  for (int i = 0; i < 12; ++i) {
    for (const std::uint32_t from : {1u, 0u}) send_many(from, kReceiver, 10, 4000);
    settle();
  }
  receive_all();
  recalls.clear();
  for (int round = 0; round < 6; ++round) {
    send_many(1, kReceiver, 20, 4000);
    send_many(2, kReceiver, 60, 4000);
    settle();
    receive_all();
  }
  EXPECT_GT(recalls[0], 0);
  EXPECT_EQ(recalls[1], 0);
  expect_at_rest();
}

/// Forged, so that nobody has credit: the payloads that are kept and what is lent fill the budget, no more.
TEST_F(EngineFlow, PayloadWithoutCreditFillsWhatIsLeftOfTheBudgetAndIsThenDropped) {
  constexpr std::size_t kLength = 3000;
  constexpr std::size_t kCost = wire::cost_of(kLength);
  make();
  const std::size_t lent = at(1).counters().lent_bytes;
  for (int i = 0; i < 400; ++i) {
    forge(1, forged::rts(kLength, wire::kPayload, kLength));
    ASSERT_LE(at(1).counters().lent_bytes + at(1).counters().unexpected_bytes, kBudget);
  }
  EXPECT_EQ(at(1).counters().lent_bytes, lent);
  EXPECT_EQ(at(1).counters().unexpected_bytes, (kBudget - lent) / kCost * kCost);
  EXPECT_EQ(at(1).counters().dropped_payloads, 400 - (kBudget - lent) / kCost);
  while (at(1).counters().unexpected_bytes > 0) {
    TestReceive request(kLength);
    receive(1, request);
    ASSERT_FALSE(pending(request));
  }
  forge(1, forged::rts(kLength, wire::kPayload, kLength));
  EXPECT_EQ(at(1).counters().unexpected_bytes, kCost);  // There is room again.
}

/// 14 processes have spoken once, and have credit that they do not use. All of it comes back to the one
/// that needs it.
TEST_F(EngineFlow, TheWindowsOfIdlePeersComeBackWhenAnotherNeedsThem) {
  constexpr std::uint32_t kReceiver = 15;
  make_strangers(kReceiver + 1);
  for (std::uint32_t i = 0; i < kReceiver; ++i) introduce(i, kReceiver);
  EXPECT_GT(at(kReceiver).counters().lent_bytes, kBudget / 3);
  for (int round = 0; round < 40; ++round) {
    send_many(0, kReceiver, 10, 4000);
    settle();
  }
  EXPECT_GT(at(kReceiver).counters().unexpected_bytes, kBudget * 95 / 100);
  EXPECT_GT(at(kReceiver).counters().dropped_payloads, 0u);
  receive_all();
  // Another one needs it now.
  for (int round = 0; round < 60; ++round) {
    send_many(7, kReceiver, 10, 4000);
    settle();
  }
  EXPECT_GT(at(kReceiver).counters().unexpected_bytes, kBudget * 95 / 100);
  receive_all();
  expect_at_rest();
}

/// The two kinds of memory come out of one purse: what is kept without credit cannot be lent.
TEST_F(EngineFlow, WhatIsLentAndWhatIsKeptWithoutCreditNeverExceedTheBudget) {
  for (const std::size_t budget : {std::size_t{8000}, std::size_t{50'000}, kBudget}) {
    engine_config.unexpected_budget_bytes = budget;
    engine_config.senders = 8;
    make(6);
    for (int round = 0; round < 10; ++round) {
      for (std::uint32_t from = 0; from < 5; ++from)
        send_many(from, 5, 10 + 20 * from, 100 + 900 * (from % 4));
      settle();
      EXPECT_LE(at(5).counters().unexpected_bytes_peak, budget);
    }
    receive_all();
    expect_at_rest();
  }
}

TEST_F(EngineFlow, AFloodOfUnexpectedMessagesStaysWithinTheBudget) {
  constexpr std::size_t kLength = 4096;
  constexpr std::size_t kSenders = 4;
  engine_config.unexpected_budget_bytes = std::size_t{16} << 20;
  network_config.max_slot_bytes = 8192;
  make(kSenders + 1);
  for (int burst = 0; burst < 50; ++burst) {
    for (std::uint32_t from = 0; from < kSenders; ++from) send_many(from, kSenders, 100, kLength);
    settle();
  }
  ASSERT_EQ(kept.size(), 20'000u);
  const Counters& counters = at(kSenders).counters();
  EXPECT_EQ(counters.unexpected_depth, 20'000u);
  EXPECT_LE(counters.unexpected_bytes_peak, engine_config.unexpected_budget_bytes);
  EXPECT_GT(counters.unexpected_bytes_peak, engine_config.unexpected_budget_bytes / 2);
  EXPECT_LE(counters.lent_bytes, engine_config.unexpected_budget_bytes);
  receive_all();
  expect_at_rest();
}

TEST_F(EngineFlow, ASmallSendWithoutCreditIsDoneByACopyWhileTheSendersBufferLasts) {
  engine_config.unexpected_budget_bytes = 0;
  engine_config.send_buffer_bytes = 3500;  // For two copies, and what the engine keeps beside them.
  make();
  send_many(0, 1, 3, 1000);
  EXPECT_EQ(kept[0]->at_once, Status::kOk);
  EXPECT_EQ(kept[1]->at_once, Status::kOk);
  EXPECT_TRUE(pending(*kept[2]));  // No room for a third.
  EXPECT_EQ(at(0).counters().sent_buffered, 2u);
  kept[0]->buffer.scribble();  // It is ours again.
  settle();
  receive_all();
  // The copies are gone: there is room again.
  send_many(0, 1, 1, 2500);
  EXPECT_EQ(kept[0]->at_once, Status::kOk);
  receive_all();
  expect_at_rest();
}

/// An empty message has no copy, but an operation at the sender and an envelope at the receiver.
TEST_F(EngineFlow, TheSendersBufferCountsWhatASendCostsBesideItsCopy) {
  engine_config.unexpected_budget_bytes = 0;
  engine_config.send_buffer_bytes = 10'000;
  make();
  send_many(0, 1, 100, 0);
  settle();
  EXPECT_GE(at(0).counters().sent_buffered, 10u);
  EXPECT_LE(at(0).counters().sent_buffered, 10'000 / wire::kEnvelopeBytes);
  EXPECT_EQ(count_pending(), 100 - at(0).counters().sent_buffered);
  receive_all();
  expect_at_rest();
}

/// However large the senders' buffers are: what they finish by a copy takes an envelope at the receiver.
TEST_F(EngineFlow, WhatAllSendersBufferTakesNoMoreEnvelopesThanTheBudgetPaysFor) {
  constexpr std::uint32_t kReceiver = 4;
  constexpr std::uint64_t kMost = kBudget / wire::kEnvelopeBytes;
  engine_config.send_buffer_bytes = std::size_t{1} << 30;
  make(kReceiver + 1);
  for (std::uint32_t from = 0; from < kReceiver; ++from) {
    do {
      send_many(from, kReceiver, 1, 0);
      settle();
      ASSERT_LT(kept.size(), 4 * kMost) << "nobody is made to wait";
    } while (!pending(*kept.back()));
  }
  EXPECT_LE(at(kReceiver).counters().unexpected_announced, kMost + kReceiver);
  EXPECT_GT(at(kReceiver).counters().unexpected_announced, kMost / 2);
  receive_all();
  expect_at_rest();
}

TEST_F(EngineFlow, OnlyStandardSendsAreCopied) {
  engine_config.unexpected_budget_bytes = 0;
  engine_config.send_buffer_bytes = 100'000;
  make();
  for (const SendMode mode : {SendMode::kSynchronous, SendMode::kReady}) {
    TestSend message(1000);
    TestReceive request(1000);
    send(0, 1, message, mode);
    EXPECT_TRUE(pending(message));
    receive(1, request);
    settle();
    expect_received(request, message);
  }
  EXPECT_EQ(at(0).counters().sent_buffered, 0u);
  expect_at_rest();
}

TEST_F(EngineFlow, ASendThatWaitsForRoomIsCopiedWhenItLeavesWithoutCredit) {
  engine_config.unexpected_budget_bytes = 0;
  engine_config.send_buffer_bytes = 100'000;
  network_config.slots_per_pair = 1;
  make();
  send_many(0, 1, 5, 1000);
  EXPECT_TRUE(pending(*kept[4]));
  EXPECT_FALSE(at(0)->idle());
  settle();
  for (auto& message : kept) expect_sent(*message);
  EXPECT_EQ(at(0).counters().sent_buffered, 5u);
  receive_all();
  expect_at_rest();
}

/// An ACK waits for room when credit is due: it takes the credit along, and no message of its own is sent.
TEST_F(EngineFlow, CreditRidesOnTheControlMessageThatWaits) {
  constexpr std::uint32_t kSlots = 8;
  network_config.slots_per_pair = kSlots;
  network_config.max_slot_bytes = 32 * 1024;
  make();
  for (int round = 0; round < 3; ++round) {  // From now on 0 has credit for that many.
    send_many(0, 1, kSlots + 1, 16'000);
    settle();
    receive_all();
  }
  const std::uint64_t before = at(1).counters().credit_messages;
  std::vector<std::unique_ptr<TestReceive>> requests;
  for (std::uint32_t i = 0; i < 2 * kSlots; ++i) {
    requests.push_back(std::make_unique<TestReceive>(16'000));
    receive(i % 2, *requests.back(), kKey, kIgnoreInitiatorAndTag);
  }
  send_many(0, 1, kSlots - 1, 16'000);
  TestSend last(16'000);
  send(0, 1, last, SendMode::kSynchronous);
  send_many(1, 0, kSlots, 10);  // No room is left on the way back.
  for (int i = 0; i < 5; ++i) network->advance();
  at(1).progress();
  EXPECT_FALSE(pending(*requests.back()));
  EXPECT_TRUE(pending(last));
  EXPECT_FALSE(at(1)->at_rest());
  settle();
  expect_sent(last);
  for (auto& message : kept) expect_sent(*message);
  EXPECT_EQ(at(1).counters().credit_messages, before);
  expect_at_rest();
}

/// Both queues are full and both sides answer: inbound is always taken, so they cannot block each other.
TEST_F(EngineFlow, TwoFullQueuesDoNotBlockEachOther) {
  network_config.slots_per_pair = 1;
  network_config.write = false;
  make();
  std::vector<std::unique_ptr<TestReceive>> requests;
  for (std::uint32_t i = 0; i < 2; ++i) {
    for (int k = 0; k < 50; ++k) {
      requests.push_back(std::make_unique<TestReceive>(30'000));
      receive(i, *requests.back(), kKey, kIgnoreInitiatorAndTag);
    }
  }
  for (int k = 0; k < 50; ++k) {
    send_many(0, 1, 1, k % 3 == 0 ? 30'000 : 10'000);
    send_many(1, 0, 1, k % 3 == 1 ? 30'000 : 10'000);
  }
  settle();
  for (auto& request : requests) EXPECT_FALSE(pending(*request));
  for (auto& message : kept) expect_sent(*message);
  expect_at_rest();
}

}  // namespace
}  // namespace ch3_offload
