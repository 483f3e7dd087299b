// Traffic classes: who goes next when there is no room for all, shares, and the order within a channel.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "engine/engine_world.h"
#include "engine/wire.h"

namespace ch3_offload {
namespace engine_classes_test {

constexpr std::size_t kLength = 1000;  ///< Fits a slot.

class EngineClasses : public EngineWorld {
 protected:
  EngineClasses() {
    engine_config.channel_bits = ~std::uint64_t{UINT32_MAX};
    engine_config.unexpected_budget_bytes = 16 << 20;
    network_config.max_slot_bytes = 2048;
    network_config.slots_per_pair = 2;
    network_config.write = false;
  }

  static MatchKey key_in(std::uint16_t context, std::uint32_t tag = 0) { return make_match_key(context, 0, tag); }
  void classify(std::uint16_t context, TrafficClass traffic_class) {
    at(0)->classify(key_in(context).bits, traffic_class);
  }
  /// From 0 to 1, in that context. Stays until the end.
  TestSend& send_in(std::uint16_t context, std::size_t length_bytes = kLength, std::uint32_t tag = 0) {
    TestSend& message = *sends.emplace_back(std::make_unique<TestSend>(length_bytes, sends.size() + 1));
    message.key = key_in(context, tag);
    send(0, 1, message);
    return message;
  }
  TestReceive& receive_in(std::uint16_t context, std::size_t length_bytes = kLength) {
    TestReceive& request = *receives.emplace_back(std::make_unique<TestReceive>(length_bytes));
    receive(1, request, key_in(context), kIgnoreTag);
    return request;
  }
  bool is_done(TestReceive& request) { return at(1).receives.count(request.cookie()) > 0; }

  std::vector<std::unique_ptr<TestSend>> sends;
  std::vector<std::unique_ptr<TestReceive>> receives;
};

TEST_F(EngineClasses, AnUrgentMessageWaitsForASlotAndNotForThoseThatWaitLonger) {
  make();
  classify(1, TrafficClass::kBulk);
  classify(2, TrafficClass::kLatency);
  constexpr int kMany = 40;
  std::vector<TestReceive*> bulk;
  for (int i = 0; i < kMany; ++i) bulk.push_back(&receive_in(1));
  TestReceive& urgent = receive_in(2, 8);
  for (int i = 0; i < kMany; ++i) send_in(1);
  TestSend& message = send_in(2, 8);
  for (int i = 0; i < 10'000 && !is_done(urgent); ++i) step();
  expect_received(urgent, message);
  const auto before = std::count_if(bulk.begin(), bulk.end(), [this](TestReceive* one) { return is_done(*one); });
  EXPECT_LE(before, 2 + 1) << "those whose slots were full, and one";
  settle();
  for (int i = 0; i < kMany; ++i) expect_received(*bulk[static_cast<std::size_t>(i)], *sends[static_cast<std::size_t>(i)]);
}

/// All three send all the time.
TEST_F(EngineClasses, SharesAreThoseOfTheClasses) {
  make();
  constexpr std::array kClasses = {TrafficClass::kLatency, TrafficClass::kDefault, TrafficClass::kBulk};
  constexpr std::array<std::size_t, 3> kLengths = {300, 1500, 900};
  for (std::uint16_t i = 0; i < 3; ++i) classify(static_cast<std::uint16_t>(i + 1), kClasses[i]);
  std::array<double, 3> arrived_bytes{};
  std::array<std::vector<TestReceive*>, 3> waiting;
  double sum = 0;
  while (sum < 4 << 20) {
    for (std::uint16_t i = 0; i < 3; ++i) {
      std::erase_if(waiting[i], [&](TestReceive* one) {
        if (!is_done(*one)) return false;
        // Headers count, and weigh more in short messages.
        const auto length_bytes = static_cast<double>(kLengths[i] + sizeof(wire::EagerHeader));
        arrived_bytes[i] += length_bytes;
        sum += length_bytes;
        return true;
      });
      while (waiting[i].size() < 30) {
        const auto context = static_cast<std::uint16_t>(i + 1);
        waiting[i].push_back(&receive_in(context, kLengths[i]));
        send_in(context, kLengths[i]);
      }
    }
    step();
  }
  settle();
  double all_shares = 0;
  for (const std::int64_t share : kClassShareBytes) all_shares += static_cast<double>(share);
  for (std::size_t i = 0; i < 3; ++i) {
    const double share = static_cast<double>(kClassShareBytes[index_of(kClasses[i])]) / all_shares;
    EXPECT_NEAR(arrived_bytes[i] / sum, share, 0.05 * share) << i;
  }
}

/// Back and forth, while messages wait: they arrive in the order in which they were sent.
TEST_F(EngineClasses, ANewClassTakesAlongWhatWaits) {
  make();
  constexpr std::uint32_t kMany = 60;
  classify(9, TrafficClass::kLatency);
  for (std::uint32_t tag = 0; tag < kMany; ++tag) {
    if (tag % 10 == 5) classify(1, static_cast<TrafficClass>(tag / 10 % kTrafficClasses));
    send_in(1, tag % 7 == 0 ? 5000 : kLength, tag);  // Some of several slots.
    if (tag % 5 == 0) send_in(9, 100);
    if (tag % 3 == 0) step();
  }
  for (std::uint32_t tag = 0; tag < kMany; ++tag) {
    TestReceive& request = receive_in(1, 5000);
    for (int i = 0; i < 10'000 && !request.at_once && !is_done(request); ++i) step();
    const Envelope envelope = request.at_once ? *request.at_once : at(1).receives.at(request.cookie());
    EXPECT_EQ(envelope.key, key_in(1, tag));
  }
  for (std::uint32_t i = 0; i < kMany / 5; ++i) receive_in(9, 100);
  settle();
}

/// The parts of a message are not mixed with other messages, however urgent.
TEST_F(EngineClasses, AMessageOfSeveralSlotsIsNotInterrupted) {
  make();
  classify(2, TrafficClass::kLatency);
  TestReceive& first = receive_in(1, 16'000);
  TestReceive& second = receive_in(2, 8);
  TestSend& longer = send_in(1, 16'000);
  step();
  ASSERT_FALSE(is_done(first)) << "parts of it wait";
  TestSend& urgent = send_in(2, 8);
  settle();
  expect_received(first, longer);
  expect_received(second, urgent);
}

TEST_F(EngineClasses, WithoutChannelBitsAllMessagesAreOfOneChannel) {
  engine_config.channel_bits = 0;
  make();
  for (std::uint32_t tag = 0; tag < 20; ++tag) {
    if (tag == 10) classify(2, TrafficClass::kLatency);
    send_in(static_cast<std::uint16_t>(1 + tag / 10), kLength, tag);
  }
  settle();
  for (std::uint32_t tag = 0; tag < 20; ++tag) {
    TestReceive request(kLength);
    receive(1, request, MatchKey{}, ~MatchKey{});
    ASSERT_TRUE(request.at_once);
    EXPECT_EQ(request.at_once->key, key_in(static_cast<std::uint16_t>(1 + tag / 10), tag));
  }
}

/// A message that waits behind a part of a packet goes at once in another class.
TEST_F(EngineClasses, AMessageBehindAPacketIsSentAfterANewClass) {
  network_config.write = true;
  network_config.slots_per_pair = 64;
  make();
  std::vector<std::byte> data(100'000);
  const Payload part{data.data(), data.size(), nullptr};
  Status status;
  const auto header = std::as_bytes(std::span("header"));
  ASSERT_EQ(at(0)->send_packet(PeerId{1}, header, {&part, 1}, data.data(), status), Progressed::kPending);
  TestSend& message = send_in(2, 8);
  take_events(0);
  at(0)->progress();
  ASSERT_TRUE(at(0)->at_rest());
  ASSERT_TRUE(pending(message)) << "it waits for the part, of which 1 has not heard yet";
  classify(2, TrafficClass::kLatency);
  EXPECT_FALSE(at(0)->at_rest());
  at(0).progress();
  expect_sent(message);
  TestReceive& request = receive_in(2, 8);
  settle();
  expect_received(request, message);
}

/// All that waits for a peer ends with it, of whatever class.
TEST_F(EngineClasses, AllClassesFailWithTheirPeer) {
  make();
  classify(1, TrafficClass::kBulk);
  classify(2, TrafficClass::kLatency);
  send_in(3, 16'000);  // Its parts leave.
  for (int i = 0; i < 30; ++i) send_in(static_cast<std::uint16_t>(1 + i % 3), i % 5 == 0 ? 100'000 : kLength);
  at(0)->fail_peer(PeerId{1});
  settle();
  for (auto& message : sends) EXPECT_NE(outcome(*message), std::nullopt);
  EXPECT_EQ(outcome(*sends.back()), Status::kPeerFailed);
  EXPECT_EQ(at(0).counters().pending_sends, 0U);
}

/// Out of the middle of what waits, and what has begun.
TEST_F(EngineClasses, WhatWaitsIsCancelledInEachClass) {
  make();
  classify(1, TrafficClass::kBulk);
  classify(2, TrafficClass::kLatency);
  for (std::uint16_t i = 0; i < 30; ++i) send_in(static_cast<std::uint16_t>(1 + i % 3), kLength, i);
  std::size_t cancelled = 0;
  for (std::size_t i = 15; i < 21; ++i) cancelled += cancel(*sends[i]) == Progressed::kDone;
  EXPECT_EQ(cancelled, 6U);
  for (std::uint16_t i = 0; i < 24; ++i) receive_in(static_cast<std::uint16_t>(1 + i % 3));
  settle();
  for (auto& request : receives) EXPECT_FALSE(pending(*request));
}

/// The class of a channel that ends does not stay for the next one of that name.
TEST_F(EngineClasses, AClassIsTakenBack) {
  make();
  classify(1, TrafficClass::kBulk);
  classify(2, TrafficClass::kBulk);
  classify(2, engine_config.traffic_class);
  for (int i = 0; i < 40; ++i) receive_in(1);
  TestReceive& later = receive_in(2, 8);
  for (int i = 0; i < 40; ++i) send_in(1);
  send_in(2, 8);
  for (int i = 0; i < 10'000 && !is_done(later); ++i) step();
  EXPECT_FALSE(is_done(*receives[10])) << "it overtook the bulk";
  settle();
}

}  // namespace engine_classes_test
}  // namespace ch3_offload
