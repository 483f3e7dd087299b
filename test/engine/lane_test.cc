// Lanes: messages and packets over the shared-memory provider, beside the engine's own way.

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/event_handler.h"
#include "engine/payload_buffer.h"
#include "engine/trace.h"
#include "nic/host_driver.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload {
namespace lane_test {

constexpr MatchKey kKey = make_match_key(1, 2, 3);
constexpr std::size_t kEager = 4096;

/// One of two processes, over a real ring.
class LaneProcess final : public EventHandler {
 public:
  LaneProcess(std::uint32_t self, std::size_t budget_bytes, Trace* trace) {
    ShmConfig shm;
    shm.self = PeerId{self};
    shm.ring_bytes = std::size_t{64} << 10;
    shm.bulk = BulkMethod::kStream;
    auto made = ShmProvider::create(shm);
    EXPECT_TRUE(made.ok()) << made.error().message;
    provider = std::move(made.value());
    EngineConfig config;
    config.self = PeerId{self};
    config.senders = 2;
    config.eager_limit_bytes = kEager;
    config.unexpected_budget_bytes = budget_bytes;
    config.send_buffer_bytes = 0;
    config.trace = trace;
    Provider* const providers[] = {provider.get()};
    port = std::make_unique<HostDriver>(config, providers);
  }
  void on_send_done(Cookie, Status status) noexcept override {
    EXPECT_EQ(status, Status::kOk);
    ++sends;
  }
  void on_receive_done(Cookie cookie, const Envelope& envelope) noexcept override {
    received[cookie] = envelope;
  }
  void on_cancel_done(Cookie, bool cancelled) noexcept override { cancels += cancelled; }
  void on_packet(PeerId, std::span<const std::byte> bytes) noexcept override {
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    ++packets;
    messages_at_packet.push_back(port->counters().received_unexpected);
  }
  Payload on_packet_offer(PeerId, std::size_t) noexcept override { return {}; }
  void on_packet_placed(PeerId, std::size_t) noexcept override {}
  void on_peer_failed(PeerId, Status) noexcept override { ++failures; }
  std::string on_card_wanted(PeerId) override { return other->port->card(); }
  void on_lane_made(PeerId peer) noexcept override {
    EXPECT_NE(port->lane(peer), nullptr);
    ++lanes_made;
  }
  void on_warning(LogScope, std::string_view text) noexcept override { ADD_FAILURE() << text; }

  std::unique_ptr<ShmProvider> provider;
  std::unique_ptr<HostDriver> port;
  LaneProcess* other = nullptr;
  std::map<Cookie, Envelope> received;
  std::vector<std::byte> stream;  ///< The bytes of all packets.
  std::size_t packets = 0;
  std::vector<std::uint64_t> messages_at_packet;  ///< How many had come before each.
  int sends = 0;
  int cancels = 0;
  int failures = 0;
  int lanes_made = 0;
};

class Lane : public testing::Test {
 protected:
  void make(std::size_t budget_bytes = 1 << 20, Trace* trace = nullptr) {
    zero = std::make_unique<LaneProcess>(0, budget_bytes, trace);
    one = std::make_unique<LaneProcess>(1, budget_bytes, nullptr);
    zero->other = one.get();
    one->other = zero.get();
    // A message each way: both are connected, know each other's doorbell, and have credit.
    for (LaneProcess* const from : {zero.get(), one.get()}) {
      std::byte byte{};
      send_by_engine(*from, {&byte, 1});
      receive(*from->other, 1);
      settle();
    }
  }
  void settle() {
    for (int quiet = 0; quiet < 300;) {
      const std::size_t happened = progress(*zero->port, *zero) + progress(*one->port, *one);
      quiet = happened > 0 ? 0 : quiet + 1;
    }
  }
  /// The credit of zero grows with the demand, until it is the ring that ends first.
  void grow_credit() {
    std::vector<std::byte> bytes = pattern(1000, 1);
    for (int round = 0; round < 20; ++round) {
      std::size_t sent = 0;
      while (send_by_lane(*zero, bytes) != CH3_OFFLOAD_LANE_CLOSED) ++sent;
      if (send_by_engine(*zero, bytes) != Progressed::kFailed) ++sent;
      settle();
      for (; sent > 0; --sent) ASSERT_EQ(receive(*one, 1000), bytes);
    }
    EXPECT_GT(lane(*zero)->books.credit_bytes, std::size_t{96} << 10);
  }
  PeerId to(const LaneProcess& from) const { return &from == zero.get() ? PeerId{1} : PeerId{0}; }
  ch3_offload_lane_t* lane(LaneProcess& from) { return from.port->lane(to(from)); }

  int send_by_lane(LaneProcess& from, std::span<const std::byte> bytes, MatchKey key = kKey,
                   std::uint32_t send_id = 0) {
    const int sent =
        ch3_offload_lane_send(lane(from), key.bits, key.initiator, send_id, bytes.data(), bytes.size());
    if (sent == CH3_OFFLOAD_LANE_SENT_TO_SLEEPER) from.port->nudge(to(from));
    return sent;
  }
  int send_packet_by_lane(LaneProcess& from, std::span<const std::byte> bytes) {
    void* const place = ch3_offload_lane_begin_packet(lane(from), bytes.size());
    if (place == nullptr) return CH3_OFFLOAD_LANE_CLOSED;
    std::memcpy(place, bytes.data(), bytes.size());
    const int sent = ch3_offload_lane_end_packet(lane(from), bytes.size());
    if (sent == CH3_OFFLOAD_LANE_SENT_TO_SLEEPER) from.port->nudge(to(from));
    return sent;
  }
  Progressed send_packet_by_engine(LaneProcess& from, std::span<std::byte> bytes) {
    const Payload data[] = {{bytes.data(), bytes.size(), nullptr}};
    Status status{};
    return from.port->send_packet(to(from), {}, data, nullptr, status);
  }
  Progressed send_by_engine(LaneProcess& from, std::span<std::byte> bytes, MatchKey key = kKey) {
    OperationId operation{};
    Status status{};
    return from.port->send(to(from), SendMode::kStandard, key, {bytes.data(), bytes.size(), nullptr}, 0,
                           nullptr, operation, status);
  }
  /// Receives `length_bytes` at most; returns what came at once or by an event.
  std::vector<std::byte> receive(LaneProcess& at, std::size_t length_bytes) {
    std::vector<std::byte> buffer(length_bytes + 1);
    OperationId operation{};
    Envelope envelope;
    const Progressed progressed = at.port->post_receive(
        kKey, kIgnoreNothing, {buffer.data(), length_bytes, nullptr}, &buffer, operation, envelope);
    if (progressed == Progressed::kPending) {
      settle();
      const auto found = at.received.find(&buffer);
      if (found == at.received.end()) {
        ADD_FAILURE() << "nothing was received";
        return {};
      }
      envelope = found->second;
      at.received.erase(found);
    }
    EXPECT_EQ(envelope.status, Status::kOk);
    buffer.resize(envelope.length_bytes);
    return buffer;
  }
  static std::vector<std::byte> pattern(std::size_t length_bytes, std::uint64_t seed) {
    std::vector<std::byte> bytes(length_bytes);
    fill_pattern(bytes, seed, 0);
    return bytes;
  }

  std::unique_ptr<LaneProcess> zero;
  std::unique_ptr<LaneProcess> one;
};

TEST_F(Lane, MessagesOfEveryLengthArriveInOrderWithTheEngines) {
  make();
  std::mt19937_64 random(1);
  std::vector<std::size_t> lengths = {0, 1, 7, 8, 9, 15, 16, 24, 31, 32, 33, 63, 64, 65, kEager - 1, kEager};
  for (int i = 0; i < 2000; ++i) lengths.push_back(random() % (kEager + 1));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::byte> bytes = pattern(lengths[i], i);
    const bool by_lane = random() % 4 != 0 && send_by_lane(*zero, bytes) != CH3_OFFLOAD_LANE_CLOSED;
    if (!by_lane) {
      ASSERT_NE(send_by_engine(*zero, bytes), Progressed::kFailed);
    }
    ASSERT_EQ(receive(*one, kEager), bytes) << "message " << i;
  }
  settle();
  EXPECT_EQ(one->port->counters().unexpected_bytes, 0u);
  EXPECT_GT(zero->port->counters().sent_short, lengths.size() / 2);
}

TEST_F(Lane, IsToldOfOnceOnBothSides) {
  make();
  EXPECT_EQ(zero->lanes_made, 1);
  EXPECT_EQ(one->lanes_made, 1);
  EXPECT_EQ(zero->port->counters().cards_wanted, 1u);
  EXPECT_EQ(one->port->counters().cards_wanted, 0u) << "it has answered";
}

TEST_F(Lane, ALongerMessageIsNotForIt) {
  make();
  const std::vector<std::byte> bytes = pattern(kEager + 1, 1);
  EXPECT_EQ(send_by_lane(*zero, bytes), CH3_OFFLOAD_LANE_CLOSED);
}

TEST_F(Lane, EndsWithTheCreditAndComesBackWithIt) {
  make(20'000);
  const std::vector<std::byte> bytes = pattern(100, 1);
  std::size_t sent = 0;
  while (send_by_lane(*zero, bytes) != CH3_OFFLOAD_LANE_CLOSED) ASSERT_LT(++sent, 1000u);
  EXPECT_GT(sent, 1u);
  settle();
  EXPECT_EQ(one->port->counters().unexpected_depth, sent);
  EXPECT_LE(one->port->counters().unexpected_bytes, 20'000u);
  for (; sent > 0; --sent) EXPECT_EQ(receive(*one, 100), bytes);
  settle();
  EXPECT_NE(send_by_lane(*zero, bytes), CH3_OFFLOAD_LANE_CLOSED);
}

TEST_F(Lane, EndsWithTheRingAndComesBackWithIt) {
  make(64 << 20);
  const std::vector<std::byte> bytes = pattern(1000, 1);
  std::size_t sent = 0;
  grow_credit();
  while (send_by_lane(*zero, bytes) != CH3_OFFLOAD_LANE_CLOSED) ++sent;
  EXPECT_LE(sent * 1088, std::size_t{64} << 10);
  EXPECT_GT(sent * 1088, std::size_t{32} << 10);
  settle();
  for (; sent > 0; --sent) ASSERT_EQ(receive(*one, 1000), bytes);
}

TEST_F(Lane, DoesNotOvertakeAMessageThatWaits) {
  make(64 << 20);
  grow_credit();
  std::vector<std::vector<std::byte>> sent;
  while (zero->port->counters().pending_sends == 0) {  // Until there is no room in the ring.
    sent.push_back(pattern(1000, sent.size()));
    ASSERT_NE(send_by_engine(*zero, sent.back()), Progressed::kFailed);
    ASSERT_LT(sent.size(), 1000u);
  }
  EXPECT_EQ(send_by_lane(*zero, pattern(8, 7)), CH3_OFFLOAD_LANE_CLOSED);
  for (const auto& bytes : sent) ASSERT_EQ(receive(*one, 1000), bytes);
  settle();
  EXPECT_NE(send_by_lane(*zero, pattern(8, 7)), CH3_OFFLOAD_LANE_CLOSED);
  EXPECT_EQ(receive(*one, 8), pattern(8, 7));
}

TEST_F(Lane, PacketsOfEveryLengthArriveInOrderWithTheEngines) {
  make();
  std::mt19937_64 random(2);
  std::vector<std::size_t> lengths = {1, 7, 8, 9, 47, 48, 49, 56, 111, 112, 113, kEager - 1, kEager};
  for (int i = 0; i < 2000; ++i) lengths.push_back(1 + random() % kEager);
  std::vector<std::byte> expected;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::byte> bytes = pattern(lengths[i], i);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    const bool by_lane = random() % 4 != 0 && send_packet_by_lane(*zero, bytes) != CH3_OFFLOAD_LANE_CLOSED;
    if (!by_lane) {
      ASSERT_NE(send_packet_by_engine(*zero, bytes), Progressed::kFailed);
      settle();
    }
  }
  settle();
  EXPECT_EQ(one->stream, expected);
  EXPECT_EQ(one->port->counters().packet_bytes_received, expected.size());
  EXPECT_EQ(zero->port->counters().packets_sent, lengths.size());
}

TEST_F(Lane, APacketStaysInOrderWithMessages) {
  make();
  const std::uint64_t before = one->port->counters().received_unexpected;
  const std::vector<std::byte> bytes = pattern(48, 1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(send_by_lane(*zero, bytes), CH3_OFFLOAD_LANE_CLOSED);
    ASSERT_NE(send_packet_by_lane(*zero, bytes), CH3_OFFLOAD_LANE_CLOSED);
  }
  settle();
  EXPECT_EQ(one->messages_at_packet, (std::vector<std::uint64_t>{before + 1, before + 2, before + 3}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive(*one, 48), bytes);
}

TEST_F(Lane, ALongerPacketIsNotForIt) {
  make();
  EXPECT_EQ(send_packet_by_lane(*zero, pattern(kEager + 1, 1)), CH3_OFFLOAD_LANE_CLOSED);
}

TEST_F(Lane, APacketNeedsNoCreditButTakesAlongWhatIsOwed) {
  make(20'000);
  const std::vector<std::byte> bytes = pattern(100, 1);
  std::size_t sent = 0;
  while (send_by_lane(*zero, bytes) != CH3_OFFLOAD_LANE_CLOSED) ASSERT_LT(++sent, 1000u);
  EXPECT_NE(send_packet_by_lane(*zero, bytes), CH3_OFFLOAD_LANE_CLOSED);
  settle();
  EXPECT_EQ(one->packets, 1u);
  // Less than a quarter of the window is owed now: it waits for something that goes that way.
  EXPECT_EQ(receive(*one, 100), bytes);
  const std::uint64_t credit = lane(*zero)->books.credit_bytes;
  const std::uint64_t owed = lane(*one)->books.owed_bytes;
  EXPECT_GT(owed, 0u);
  EXPECT_NE(send_packet_by_lane(*one, bytes), CH3_OFFLOAD_LANE_CLOSED);
  EXPECT_EQ(lane(*one)->books.owed_bytes, 0u);
  settle();
  EXPECT_EQ(lane(*zero)->books.credit_bytes, credit + owed);
}

TEST_F(Lane, PacketsEndWithTheRingAndComeBackWithIt) {
  make();
  const std::vector<std::byte> bytes = pattern(1000, 1);
  std::size_t sent = 0, by_lane = 0;
  for (int round = 0; round < 20; ++round) {
    std::size_t of_round = 0;
    while (send_packet_by_lane(*zero, bytes) != CH3_OFFLOAD_LANE_CLOSED) ++of_round;
    by_lane += of_round;
    std::vector<std::byte> more = bytes;
    ASSERT_NE(send_packet_by_engine(*zero, more), Progressed::kFailed);
    sent += of_round + 1;
    settle();
    ASSERT_EQ(one->stream.size(), sent * 1000);
  }
  EXPECT_GT(by_lane, 300u) << "a ring has room for 59";
  for (std::size_t i = 0; i < sent; ++i)
    ASSERT_TRUE(
        std::equal(bytes.begin(), bytes.end(), one->stream.begin() + static_cast<std::ptrdiff_t>(i) * 1000));
}

TEST_F(Lane, APacketDoesNotOvertakeAPacketThatWaits) {
  make();
  std::vector<std::byte> expected;
  std::vector<std::byte> waiting = pattern(2'000'000, 1);  // More than the ring and the chunks have.
  const int before = zero->sends;
  ASSERT_EQ(send_packet_by_engine(*zero, waiting), Progressed::kPending);
  EXPECT_EQ(send_packet_by_lane(*zero, pattern(8, 7)), CH3_OFFLOAD_LANE_CLOSED);
  settle();
  EXPECT_EQ(zero->sends, before + 1);
  EXPECT_NE(send_packet_by_lane(*zero, pattern(8, 7)), CH3_OFFLOAD_LANE_CLOSED);
  settle();
  expected = waiting;
  const std::vector<std::byte> last = pattern(8, 7);
  expected.insert(expected.end(), last.begin(), last.end());
  EXPECT_EQ(one->stream, expected);
}

TEST_F(Lane, APacketWakesAPeerThatSleeps) {
  make();
  while (!one->port->arm() || progress(*one->port, *one) > 0) {
  }
  EXPECT_EQ(send_packet_by_lane(*zero, pattern(48, 1)), CH3_OFFLOAD_LANE_SENT_TO_SLEEPER);
  pollfd entry{one->port->descriptors()[0], POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 60'000), 1);
  one->port->disarm();
  settle();
  EXPECT_EQ(one->stream, pattern(48, 1));
}

TEST_F(Lane, WhatItSentCanBeCancelledByItsName) {
  make();
  ASSERT_NE(send_by_lane(*zero, pattern(8, 1), kKey, 77), CH3_OFFLOAD_LANE_CLOSED);
  int cookie = 0;
  ASSERT_EQ(zero->port->cancel_send(kNoOperation, PeerId{1}, kKey, 77, &cookie), Progressed::kPending);
  settle();
  EXPECT_EQ(zero->cancels, 1);
  EXPECT_EQ(one->port->counters().unexpected_depth, 0u);
}

TEST_F(Lane, WakesAPeerThatSleeps) {
  make();
  while (!one->port->arm() || progress(*one->port, *one) > 0) {
  }
  EXPECT_EQ(send_by_lane(*zero, pattern(8, 1)), CH3_OFFLOAD_LANE_SENT_TO_SLEEPER);
  pollfd entry{one->port->descriptors()[0], POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 60'000), 1);
  one->port->disarm();
  EXPECT_EQ(receive(*one, 8), pattern(8, 1));
}

TEST_F(Lane, IsClosedForGoodWhenThePeerIsGone) {
  make();
  zero->port->fail_peer(PeerId{1});
  settle();
  EXPECT_EQ(zero->failures, 1);
  EXPECT_EQ(send_by_lane(*zero, pattern(8, 1)), CH3_OFFLOAD_LANE_CLOSED);
  EXPECT_EQ(send_packet_by_lane(*zero, pattern(8, 1)), CH3_OFFLOAD_LANE_CLOSED);
}

TEST_F(Lane, IsClosedForATrace) {
  Trace trace(PeerId{0}, 2, 1000);
  make(1 << 20, &trace);
  EXPECT_EQ(send_by_lane(*zero, pattern(8, 1)), CH3_OFFLOAD_LANE_CLOSED);
  EXPECT_EQ(send_packet_by_lane(*zero, pattern(8, 1)), CH3_OFFLOAD_LANE_CLOSED);
}

}  // namespace lane_test
}  // namespace ch3_offload
