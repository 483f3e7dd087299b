// A few engines over the fake network, for the unit tests: deterministic, and every result written down.
//
// A test sets network_config and engine_config, calls make(), gives commands and calls settle(). Sends and
// receives are objects of the test (TestSend, TestReceive); their addresses are their cookies. Let the world
// settle before they end: the fake network reads and writes their buffers as a device would.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/event_handler.h"
#include "nic/host_driver.h"
#include "engine/payload_buffer.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {

/// One process: its engine and all that the engine told.
class EngineProcess final : public EventHandler {
 public:
  void on_send_done(Cookie cookie, Status status) noexcept override {
    EXPECT_TRUE(sends.emplace(cookie, status).second) << "on_send_done() came twice";
    history += 's';
  }
  void on_receive_done(Cookie cookie, const Envelope& envelope) noexcept override {
    EXPECT_TRUE(receives.emplace(cookie, envelope).second) << "on_receive_done() came twice";
    history += 'r';
  }
  void on_cancel_done(Cookie cookie, bool cancelled) noexcept override {
    EXPECT_TRUE(cancels.emplace(cookie, cancelled).second) << "on_cancel_done() came twice";
    history += 'c';
  }
  void on_packet(PeerId peer, std::span<const std::byte> bytes) noexcept override {
    auto& stream = packets[index_of(peer)];
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    history += 'p';
  }
  Payload on_packet_offer(PeerId peer, std::size_t length_bytes) noexcept override {
    auto& place = places[index_of(peer)];
    place.assign(place_for ? place_for(length_bytes) : 0, std::byte{0xEE});
    history += 'o';
    return {place.data(), place.size(), nullptr};
  }
  void on_packet_placed(PeerId peer, std::size_t length_bytes) noexcept override {
    const auto& place = places[index_of(peer)];
    ASSERT_LE(length_bytes, place.size());
    auto& stream = packets[index_of(peer)];
    stream.insert(stream.end(), place.begin(), place.begin() + static_cast<std::ptrdiff_t>(length_bytes));
    history += 'P';
  }
  void on_peer_failed(PeerId peer, Status reason) noexcept override {
    EXPECT_TRUE(failures.emplace(index_of(peer), reason).second) << "on_peer_failed() came twice";
    history += 'f';
  }
  std::string on_card_wanted(PeerId peer) override {
    EXPECT_EQ(provider->address_of(peer), "") << "its address is known";
    return cards->at(index_of(peer));
  }
  void on_warning(LogScope scope, std::string_view text) noexcept override {
    warnings.emplace_back(text);
    warning_scopes.push_back(scope);
  }

  HostDriver* operator->() { return engine.get(); }
  /// Returns how many things happened.
  std::size_t progress() { return ch3_offload::progress(*engine, *this); }
  /// What was counted since EngineWorld::make(), and the levels as they are.
  const Counters& counters() {
    counted = engine->counters();
    for (std::uint64_t Counters::*const counter : kEventCounters) counted.*counter -= at_start.*counter;
    return counted;
  }

  static constexpr std::uint64_t Counters::*kEventCounters[] = {
      &Counters::sent_short, &Counters::sent_eager, &Counters::sent_rendezvous, &Counters::sent_optimistic,
      &Counters::sent_buffered, &Counters::received_expected, &Counters::received_unexpected,
      &Counters::dropped_payloads, &Counters::credits_requested, &Counters::credit_messages};

  Counters at_start;
  Counters counted;
  std::unique_ptr<FakeProvider> provider;
  std::unique_ptr<HostDriver> engine;  ///< Null: dead, or never had one (the test speaks for it).
  const std::vector<std::string>* cards = nullptr;
  std::map<Cookie, Status> sends;
  std::map<Cookie, Envelope> receives;
  std::map<Cookie, bool> cancels;
  std::map<std::uint32_t, std::vector<std::byte>> packets;  ///< By peer.
  /// How long a place an offered part of a packet gets, given its length; null: none.
  std::function<std::size_t(std::size_t length_bytes)> place_for;
  std::map<std::uint32_t, std::vector<std::byte>> places;   ///< By peer: the latest.
  std::map<std::uint32_t, Status> failures;                 ///< By peer.
  std::vector<std::string> warnings;
  std::vector<LogScope> warning_scopes;
  std::string history;  ///< A letter a call, in order: send, receive, cancel, packet, offer, Placed, failure.
};

inline constexpr MatchKey kKey = make_match_key(1, 2, 3);
/// For purge().
inline constexpr MatchPattern kEverything{MatchKey{}, ~MatchKey{}};
inline constexpr MatchKey kOtherKey = make_match_key(1, 2, 4);

struct TestSend {
  /// block_bytes 0: contiguous.
  explicit TestSend(std::size_t length_bytes, std::uint64_t pattern_seed = 1, std::size_t block_bytes = 0,
                    PayloadBuffer::Kind kind = PayloadBuffer::Kind::kPacked)
      : seed(pattern_seed),
        buffer(length_bytes, block_bytes, block_bytes == 0 ? 0 : 7, *std::pmr::get_default_resource(), kind) {
    buffer.fill(seed);
  }
  const std::uint64_t seed;
  PayloadBuffer buffer;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  MatchKey key = kKey;
  std::uint32_t send_id = 0;
  OperationId operation = kNoOperation;
  std::optional<Status> at_once;  ///< What send() said, unless that was kPending.
  Cookie cookie() { return this; }
};

struct TestReceive {
  explicit TestReceive(std::size_t capacity_bytes, std::size_t block_bytes = 0,
                       PayloadBuffer::Kind kind = PayloadBuffer::Kind::kPacked)
      : buffer(capacity_bytes, block_bytes, block_bytes == 0 ? 0 : 5, *std::pmr::get_default_resource(),
               kind) {}
  PayloadBuffer buffer;
  std::uint32_t at = 0;
  OperationId operation = kNoOperation;
  std::optional<Envelope> at_once;
  Cookie cookie() { return this; }
};

class EngineWorld : public testing::Test {
 protected:
  EngineWorld() {
    network_config.least_delay_ns = network_config.most_delay_ns = 1000;
    engine_config.unexpected_budget_bytes = 1 << 20;
    engine_config.eager_limit_bytes = 16 * 1024;
    engine_config.send_buffer_bytes = 0;
  }
  ~EngineWorld() override {
    if (network == nullptr || violations_expected) return;
    EXPECT_EQ(network->violations(), std::vector<std::string>{});
  }

  /// Makes `size` processes that have exchanged a message each: all are connected, and have credit if the
  /// budget allows it.
  void make(std::uint32_t size = 2) {
    make_strangers(size);
    for (std::uint32_t one = 0; one < size; ++one) {
      for (std::uint32_t other = one + 1; other < size; ++other) introduce(one, other);
    }
  }
  /// Two processes exchange a message each. It does not count.
  void introduce(std::uint32_t one, std::uint32_t other) {
    greet(one, other);
    greet(other, one);
    settle();
    for (auto& process : processes) {
      process->at_start = process->engine->counters();
      process->sends.clear();
      process->receives.clear();
      process->history.clear();
    }
  }
  /// An empty message, and the receive for it, which is posted before.
  void greet(std::uint32_t from, std::uint32_t to) {
    constexpr MatchKey kHello = make_match_key(0xFFF, 0, 0);
    TestReceive request(0);
    TestSend message(0);
    message.key = kHello;
    receive(to, request, kHello);
    send(from, to, message);
    settle();
    expect_received(request, message);
  }
  /// Makes `size` processes, in a new network.
  void make_strangers(std::uint32_t size = 2) {
    processes.clear();
    cards.clear();
    network = std::make_unique<FakeNetwork>(network_config);
    engine_config.senders = std::max(engine_config.senders, size);
    for (std::uint32_t i = 0; i < size; ++i) {
      auto process = std::make_unique<EngineProcess>();
      process->provider = network->make_provider(PeerId{i});
      process->cards = &cards;
      EngineConfig config = engine_config;
      config.self = PeerId{i};
      Provider* const providers[] = {process->provider.get()};
      process->engine = std::make_unique<HostDriver>(config, providers);
      cards.push_back(process->engine->card());
      processes.push_back(std::move(process));
    }
  }
  EngineProcess& at(std::uint32_t i) { return *processes[i]; }

  void send(std::uint32_t from, std::uint32_t to, TestSend& message, SendMode mode = SendMode::kStandard) {
    message.from = from;
    message.to = to;
    message.at_once.reset();
    at(from).sends.erase(message.cookie());  // The stack reuses addresses.
    Status status = Status::kDeviceFailed;
    const Progressed progressed =
        at(from)->send(PeerId{to}, mode, message.key, message.buffer.payload(), message.send_id,
                       message.cookie(), message.operation, status);
    if (progressed != Progressed::kPending) message.at_once = status;
    EXPECT_EQ(message.operation != kNoOperation, progressed == Progressed::kPending);
    EXPECT_EQ(progressed == Progressed::kDone, message.at_once == Status::kOk);
  }
  void receive(std::uint32_t i, TestReceive& request, MatchKey key = kKey, MatchKey ignore = kIgnoreNothing) {
    request.at = i;
    at(i).receives.erase(request.cookie());
    Envelope envelope;
    const Progressed progressed = at(i)->post_receive(key, ignore, request.buffer.payload(), request.cookie(),
                                                      request.operation, envelope);
    if (progressed != Progressed::kPending) request.at_once = envelope;
  }
  /// Its answer, if it is kPending, is in cancels by the message's cookie.
  Progressed cancel(TestSend& message) {
    at(message.from).cancels.erase(message.cookie());
    return at(message.from)
        ->cancel_send(message.operation, PeerId{message.to}, message.key, message.send_id, message.cookie());
  }
  /// Nothing: undecided, or decided at once.
  std::optional<bool> cancelled(TestSend& message) {
    const auto found = at(message.from).cancels.find(message.cookie());
    return found == at(message.from).cancels.end() ? std::optional<bool>() : found->second;
  }
  /// Nothing: pending.
  std::optional<Status> outcome(TestSend& message) {
    const auto found = at(message.from).sends.find(message.cookie());
    if (found == at(message.from).sends.end()) return message.at_once;
    EXPECT_FALSE(message.at_once.has_value()) << "a send was done twice";
    return found->second;
  }
  std::optional<Envelope> outcome(TestReceive& request) {
    const auto found = at(request.at).receives.find(request.cookie());
    if (found == at(request.at).receives.end()) return request.at_once;
    EXPECT_FALSE(request.at_once.has_value()) << "a receive was done twice";
    return found->second;
  }
  bool pending(TestSend& message) { return !outcome(message).has_value(); }
  bool pending(TestReceive& request) { return !outcome(request).has_value(); }

  /// The receive got the message, as much of it as fits.
  void expect_received(TestReceive& request, TestSend& message) {
    const std::optional<Envelope> envelope = outcome(request);
    ASSERT_TRUE(envelope.has_value()) << "the receive is not done";
    const std::size_t length = message.buffer.length_bytes();
    const bool fits = length <= request.buffer.length_bytes();
    EXPECT_EQ(envelope->status, fits ? Status::kOk : Status::kTruncated);
    EXPECT_EQ(envelope->length_bytes, length);
    EXPECT_EQ(envelope->key, message.key);
    EXPECT_EQ(request.buffer.check(message.seed, length), "");
  }
  void expect_sent(TestSend& message) { EXPECT_EQ(outcome(message), Status::kOk); }

  /// Takes what waits to be told, and nothing else.
  void take_events(std::uint32_t i) { ch3_offload::take_events(*at(i).engine, at(i)); }
  /// The network moves once, then every engine does.
  void step() {
    network->advance();
    for (auto& process : processes) {
      if (process->engine != nullptr) process->progress();
    }
  }
  /// Lets time pass until nothing moves any more.
  void settle() {
    for (int quiet = 0; quiet < 3;) {
      bool moved = network->advance();
      for (auto& process : processes) {
        if (process->engine == nullptr) continue;
        moved |= process->progress() > 0;
        const Counters& counters = process->counters();
        ASSERT_LE(counters.lent_bytes, engine_config.unexpected_budget_bytes);
        ASSERT_LE(counters.unexpected_bytes, engine_config.unexpected_budget_bytes);
      }
      quiet = moved ? 0 : quiet + 1;
    }
  }

  /// Nobody holds anything any more.
  void expect_at_rest() {
    settle();
    for (auto& process : processes) {
      if (process->engine == nullptr) continue;
      EXPECT_TRUE(process->engine->idle());
      EXPECT_EQ(process->counters().posted_depth, 0u);
      EXPECT_EQ(process->counters().unexpected_depth, 0u);
      EXPECT_EQ(process->counters().unexpected_bytes, 0u);
      EXPECT_EQ(process->provider->regions(), 0u);
    }
  }

  void kill(std::uint32_t i) {
    network->kill(PeerId{i});
    at(i).engine.reset();
    at(i).provider.reset();
  }

  FakeConfig network_config;
  EngineConfig engine_config;
  bool violations_expected = false;  ///< The test forges messages that make honest providers err.
  std::unique_ptr<FakeNetwork> network;
  std::vector<std::string> cards;
  std::vector<std::unique_ptr<EngineProcess>> processes;
};

}  // namespace ch3_offload
