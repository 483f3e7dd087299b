// Engine: the ring of completions, and what finds no room in it.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/engine_world.h"

namespace ch3_offload {
namespace {

class EngineEvents : public EngineWorld {
 protected:
  /// What needs no call of the library.
  bool take_from_ring(std::uint32_t i, ch3_offload_event_t& event) {
    ch3_offload_events_t& events = at(i)->events();
    if (const ch3_offload_event_t* const oldest = ch3_offload_take_event(&events)) {
      event = *oldest;
      return true;
    }
    return events.others == 0 && ch3_offload_take_packet(&events, &event) != 0;
  }
  /// What a client without a queue of its own does.
  std::vector<Cookie> take_all(std::uint32_t i) {
    std::vector<Cookie> cookies;
    ch3_offload_event_t event{};
    Event other;
    for (;;) {
      if (take_from_ring(i, event)) {
        cookies.push_back(event.cookie);
      } else if (at(i)->events().others != 0 && at(i)->next_event(other)) {
        cookies.push_back(other.cookie);
      } else {
        return cookies;
      }
    }
  }
  /// Lets a packet from 1 come to 0, and what was sent before it.
  void bring_packet(std::span<const std::byte> bytes) {
    Status status{};
    at(1)->send_packet(PeerId{0}, bytes, {}, nullptr, status);
    EXPECT_EQ(status, Status::kOk);
    for (int i = 0; i < 100 && at(0)->events().packet == nullptr; ++i) {
      network->advance();
      at(1).progress();
      at(0)->progress();
    }
    ASSERT_NE(at(0)->events().packet, nullptr);
  }
  /// A pending receive, which purge() ends.
  TestReceive& post(std::uint32_t tag) {
    requests.push_back(std::make_unique<TestReceive>(8));
    receive(0, *requests.back(), make_match_key(1, 2, tag));
    return *requests.back();
  }
  void purge(std::uint32_t tag) {
    const MatchPattern one{make_match_key(1, 2, tag), kIgnoreNothing};
    at(0)->purge(PurgeScope::kAll, {&one, 1}, {}, Status::kRevoked);
  }
  std::vector<std::unique_ptr<TestReceive>> requests;
};

TEST_F(EngineEvents, MoreCompletionsThanTheRingHoldsKeepTheirOrder) {
  make();
  constexpr std::uint32_t kReceives = 3 * CH3_OFFLOAD_EVENT_SLOTS;
  std::vector<Cookie> expected;
  for (std::uint32_t tag = 0; tag < kReceives; ++tag) expected.push_back(post(tag).cookie());
  for (std::uint32_t tag = 0; tag < kReceives; ++tag) {
    purge(tag);
    EXPECT_EQ(at(0)->events().others != 0, tag >= CH3_OFFLOAD_EVENT_SLOTS) << tag;
  }
  EXPECT_EQ(take_all(0), expected);
  EXPECT_EQ(at(0)->events().others, 0u);
}

TEST_F(EngineEvents, ACompletionDoesNotOvertakeOneThatFoundNoRoom) {
  make();
  std::vector<Cookie> expected;
  for (std::uint32_t tag = 0; tag < CH3_OFFLOAD_EVENT_SLOTS + 2; ++tag) {
    expected.push_back(post(tag).cookie());
    purge(tag);
  }
  ch3_offload_event_t event{};
  ASSERT_TRUE(take_from_ring(0, event));  // There is room now, and two wait for it.
  EXPECT_EQ(event.cookie, expected.front());
  expected.erase(expected.begin());
  expected.push_back(post(1000).cookie());
  purge(1000);
  EXPECT_EQ(take_all(0), expected);
}

TEST_F(EngineEvents, TheRingSaysWhatNextEventWouldHaveSaid) {
  make();
  TestSend message(100);
  TestReceive request(60);
  receive(1, request);
  send(0, 1, message);
  for (int i = 0; i < 10 && at(1)->events().written == at(1)->events().taken; ++i) {
    network->advance();
    at(1)->progress();
  }
  ch3_offload_event_t event{};
  ASSERT_TRUE(take_from_ring(1, event));
  EXPECT_EQ(event.kind, CH3_OFFLOAD_RECEIVE_DONE);
  EXPECT_EQ(event.status, static_cast<std::uint8_t>(Status::kTruncated));
  EXPECT_EQ(event.is_cancelled, 0);
  EXPECT_EQ(event.cookie, request.cookie());
  EXPECT_EQ(event.match.bits, kKey.bits);
  EXPECT_EQ(event.match.initiator, kKey.initiator);
  EXPECT_EQ(event.length_bytes, 100u);
  EXPECT_FALSE(take_from_ring(1, event));
  Event none;
  EXPECT_FALSE(at(1)->next_event(none));
}

TEST_F(EngineEvents, APacketIsTakenAfterTheCompletionsWithoutACall) {
  make();
  const std::vector<std::byte> bytes(40, std::byte{7});
  bring_packet(bytes);
  const Cookie receive = post(1).cookie();
  purge(1);
  EXPECT_EQ(at(0)->events().others, 0u);
  ch3_offload_event_t event{};
  ASSERT_TRUE(take_from_ring(0, event));
  EXPECT_EQ(event.cookie, receive);
  ASSERT_TRUE(take_from_ring(0, event));
  EXPECT_EQ(event.kind, CH3_OFFLOAD_PACKET);
  EXPECT_EQ(event.peer, 1u);
  ASSERT_EQ(event.length_bytes, bytes.size());
  EXPECT_EQ(std::memcmp(event.bytes, bytes.data(), bytes.size()), 0);
  EXPECT_FALSE(take_from_ring(0, event));
  Event none;
  EXPECT_FALSE(at(0)->next_event(none));
}

TEST_F(EngineEvents, APacketDoesNotOvertakeACompletionThatFoundNoRoom) {
  make();
  bring_packet(std::vector<std::byte>(40));
  for (std::uint32_t tag = 0; tag < CH3_OFFLOAD_EVENT_SLOTS + 2; ++tag) {
    post(tag);
    purge(tag);
  }
  ch3_offload_event_t event{};
  for (int i = 0; i < CH3_OFFLOAD_EVENT_SLOTS; ++i) {
    ASSERT_TRUE(take_from_ring(0, event));
    EXPECT_EQ(event.kind, CH3_OFFLOAD_RECEIVE_DONE);
  }
  EXPECT_FALSE(take_from_ring(0, event));
  Event other;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(at(0)->next_event(other));
    EXPECT_EQ(other.kind, Event::Kind::kReceiveDone);
  }
  ASSERT_TRUE(at(0)->next_event(other));
  EXPECT_EQ(other.kind, Event::Kind::kPacket);
  EXPECT_FALSE(at(0)->next_event(other));
}

TEST_F(EngineEvents, ASendWhoseCompletionWaitsCannotBeCancelled) {
  make();
  TestSend message(100);
  message.send_id = 7;
  TestReceive request(100);
  receive(1, request);
  send(0, 1, message, SendMode::kSynchronous);
  for (int i = 0; i < 10 && at(0)->events().written == at(0)->events().taken; ++i) {
    network->advance();
    at(0)->progress();
    at(1).progress();
  }
  ASSERT_NE(at(0)->events().written, at(0)->events().taken);
  EXPECT_EQ(cancel(message), Progressed::kFailed);
  settle();
  expect_sent(message);
  expect_received(request, message);
}

class EngineCounters : public EngineWorld {};

/// So a driver can share the page with its client: a copy of the bytes says the same elsewhere.
TEST_F(EngineCounters, AreInWholePagesThatStayWhereTheyAre) {
  static_assert(std::is_trivially_copyable_v<CounterPage>);
  static_assert(sizeof(CounterPage) % kCounterPageBytes == 0);
  make();
  const CounterPage& page = at(0)->counters();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&page) % kCounterPageBytes, 0u);
  const std::uint64_t sent = page.sent_short;
  TestSend message(100);
  send(0, 1, message);
  EXPECT_EQ(page.sent_short, sent + 1) << "it is counted there, and not copied";
  EXPECT_GT(page.lent_bytes, 0u);
  EXPECT_EQ(&at(0)->counters(), &page);
  EXPECT_NE(&at(1)->counters(), &page);
}

TEST_F(EngineCounters, SayHowLongTheQueuesAre) {
  make();
  TestReceive request(100);
  receive(0, request);
  TestSend message(100'000);
  message.key = kOtherKey;
  send(1, 0, message);
  settle();
  const CounterPage& receiver = at(0)->counters();
  EXPECT_EQ(receiver.posted_depth, 1u);
  EXPECT_EQ(receiver.unexpected_depth, 1u);
  EXPECT_EQ(at(1)->counters().pending_sends, 1u);
}

TEST_F(EngineCounters, HaveTheProvidersAllTogether) {
  make();
  FakeNetwork second(network_config);
  const auto zero = second.make_provider(PeerId{0});
  Provider* const both[] = {at(0).provider.get(), zero.get()};
  at(0).engine = std::make_unique<HostDriver>(engine_config, both);
  at(0).provider->counted.network_connections = 3;
  zero->counted.network_connections = 4;
  zero->counted.network_sent_again = 5;
  for (int i = 0; i < 2; ++i) {  // The second time it is no other sum.
    const CounterPage& page = at(0)->counters();
    EXPECT_EQ(page.providers.network_connections, 7u);
    EXPECT_EQ(page.providers.network_sent_again, 5u);
  }
  at(0).engine.reset();  // Before the second network.
}

}  // namespace
}  // namespace ch3_offload
