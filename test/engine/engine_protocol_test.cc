// Every message protocol: what is delivered, when the sender is done, truncation, layouts, and that the
// message took the path it should.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory_resource>
#include <tuple>

#include "engine/engine_world.h"
#include "engine/trace_contents.h"
#include "engine/wire.h"

namespace ch3_offload {
namespace engine_protocol_test {

constexpr std::size_t kSlotBytes = 4096;
constexpr std::size_t kEagerLimitBytes = 16 * 1024;

/// One row: the world, the message and the counters that it moves.
struct Protocol {
  const char* name;
  std::size_t length_bytes;
  SendMode mode;
  bool done_at_once;              ///< send() is done when it returns.
  bool done_unmatched;            ///< The sender is done before anybody receives.
  std::uint64_t Counters::*path;  ///< Counts it at the sender.
  void (*prepare)(FakeConfig& network, EngineConfig& engine);
};

void as_it_is(FakeConfig&, EngineConfig&) {}
/// Nothing is lent and nothing is kept.
void without_budget(FakeConfig&, EngineConfig& engine) { engine.unexpected_budget_bytes = 0; }
/// Nobody has credit before its first message.
void to_a_stranger(FakeConfig&, EngineConfig&) {}
void without_writes(FakeConfig& network, EngineConfig&) { network.write = false; }
void pair_without_writes(FakeConfig& network, EngineConfig&) { network.pair_without_write_probability = 1; }
void writes_that_fail_late(FakeConfig& network, EngineConfig&) { network.late_unsupported_probability = 1; }
void without_registration(FakeConfig& network, EngineConfig&) { network.registration_refused_probability = 1; }
void narrow_queue(FakeConfig& network, EngineConfig&) { network.slots_per_pair = 1; }
void refusing_queue(FakeConfig& network, EngineConfig&) {
  network.again_probability = 0.5;
  network.slots_per_pair = 2;
}

constexpr SendMode kStandard = SendMode::kStandard;
constexpr SendMode kSynchronous = SendMode::kSynchronous;
constexpr SendMode kReady = SendMode::kReady;
constexpr std::size_t kLong = 100'000;

const Protocol kProtocols[] = {
    {"Empty", 0, kStandard, true, true, &Counters::sent_short, as_it_is},
    {"Short", 100, kStandard, true, true, &Counters::sent_short, as_it_is},
    {"ShortThatFillsASlot", kSlotBytes - 24, kStandard, true, true, &Counters::sent_short, as_it_is},
    {"ShortAndReady", 100, kReady, true, true, &Counters::sent_short, as_it_is},
    {"ShortAndSynchronous", 100, kSynchronous, false, false, &Counters::sent_short, as_it_is},
    {"Eager", kEagerLimitBytes, kStandard, true, true, &Counters::sent_eager, as_it_is},
    {"EagerByOneByte", kSlotBytes - 23, kStandard, true, true, &Counters::sent_eager, as_it_is},
    {"EagerAndReady", 10'000, kReady, true, true, &Counters::sent_eager, as_it_is},
    {"EagerAndSynchronous", 10'000, kSynchronous, false, false, &Counters::sent_eager, as_it_is},
    {"EagerThroughANarrowQueue", 10'000, kStandard, false, true, &Counters::sent_eager, narrow_queue},
    {"Optimistic", 3000, kStandard, false, true, &Counters::sent_optimistic, to_a_stranger},
    {"OptimisticAndReady", 3000, kReady, false, true, &Counters::sent_optimistic, to_a_stranger},
    {"OptimisticAndDropped", 3000, kStandard, false, false, &Counters::sent_optimistic, without_budget},
    {"SynchronousWithoutCredit", 3000, kSynchronous, false, false, &Counters::sent_rendezvous, without_budget},
    {"EagerWithoutCredit", 10'000, kStandard, false, false, &Counters::sent_rendezvous, without_budget},
    {"Rendezvous", kLong, kStandard, false, false, &Counters::sent_rendezvous, as_it_is},
    {"RendezvousByOneByte", kEagerLimitBytes + 1, kStandard, false, false, &Counters::sent_rendezvous, as_it_is},
    {"RendezvousAndSynchronous", kLong, kSynchronous, false, false, &Counters::sent_rendezvous, as_it_is},
    {"RendezvousAndReady", kLong, kReady, false, false, &Counters::sent_rendezvous, as_it_is},
    {"RendezvousWithoutWrites", kLong, kStandard, false, false, &Counters::sent_rendezvous, without_writes},
    {"RendezvousRefusedByThePair", kLong, kStandard, false, false, &Counters::sent_rendezvous, pair_without_writes},
    {"RendezvousThatFailsLate", kLong, kStandard, false, false, &Counters::sent_rendezvous, writes_that_fail_late},
    {"RendezvousUnregistered", kLong, kStandard, false, false, &Counters::sent_rendezvous, without_registration},
    {"RendezvousRefusingQueue", kLong, kStandard, false, false, &Counters::sent_rendezvous, refusing_queue},
};

std::ostream& operator<<(std::ostream& out, const Protocol& protocol) { return out << protocol.name; }
std::string protocol_name(const testing::TestParamInfo<Protocol>& info) { return info.param.name; }

class EngineProtocol : public EngineWorld, public testing::WithParamInterface<Protocol> {
 protected:
  EngineProtocol() {
    network_config.max_slot_bytes = kSlotBytes;
    engine_config.eager_limit_bytes = kEagerLimitBytes;
    GetParam().prepare(network_config, engine_config);
    if (GetParam().prepare == to_a_stranger) make_strangers(); else make();
  }
  /// settle() does not wait for queues that refuse at random.
  void settle_for_good() {
    for (int i = 0; i < 20; ++i) settle();
  }
  std::size_t length() const { return GetParam().length_bytes; }
};

INSTANTIATE_TEST_SUITE_P(Every, EngineProtocol, testing::ValuesIn(kProtocols), protocol_name);

TEST_P(EngineProtocol, DeliversToAReceiveThatIsPosted) {
  TestSend message(length());
  TestReceive request(length() + 10);
  receive(1, request);
  EXPECT_TRUE(pending(request));
  send(0, 1, message, GetParam().mode);
  EXPECT_EQ(message.at_once.has_value(), GetParam().done_at_once);
  settle_for_good();
  expect_received(request, message);
  expect_sent(message);
  EXPECT_EQ(at(0).counters().*GetParam().path, 1u);
  EXPECT_EQ(at(1).counters().received_expected, 1u);
  expect_at_rest();
}

/// Its client may have no use for the event: it ends, and waits for what it has given up.
TEST_P(EngineProtocol, TheReceiverIsNotIdleWhilePayloadIsAwaited) {
  TestSend message(length());
  TestReceive request(length());
  receive(1, request);
  EXPECT_TRUE(at(1)->idle()) << "nobody may ever send";
  send(0, 1, message, GetParam().mode);
  for (int i = 0; i < 1000 && pending(request); ++i) {
    if (at(1).counters().received_expected > 0) EXPECT_FALSE(at(1)->idle());
    step();
  }
  settle_for_good();
  expect_received(request, message);
  EXPECT_TRUE(at(1)->idle());
}

TEST_P(EngineProtocol, DeliversToAReceiveThatIsPostedLater) {
  TestSend message(length());
  TestReceive request(length());
  send(0, 1, message, GetParam().mode);
  settle_for_good();
  EXPECT_EQ(!pending(message), GetParam().done_unmatched);
  EXPECT_EQ(at(1).counters().unexpected_depth, 1u);
  receive(1, request);
  settle_for_good();
  expect_received(request, message);
  expect_sent(message);
  EXPECT_EQ(at(0).counters().*GetParam().path, 1u);
  EXPECT_EQ(at(1).counters().received_unexpected, 1u);
  expect_at_rest();
}

TEST_P(EngineProtocol, CutsWhatDoesNotFitAndSaysHowLongItWas) {
  const std::size_t fits[] = {0, 1, length() / 2, length() - std::min<std::size_t>(length(), 1)};
  for (const std::size_t capacity : fits) {
    for (const bool posted : {true, false}) {
      if (capacity >= length()) continue;
      TestSend message(length());
      TestReceive request(capacity);
      if (posted) receive(1, request);
      send(0, 1, message, GetParam().mode);
      settle_for_good();
      if (!posted) receive(1, request);
      settle_for_good();
      expect_received(request, message);
      expect_sent(message);
    }
  }
  expect_at_rest();
}

TEST_P(EngineProtocol, ReadsAndWritesAnyLayout) {
  for (const auto kind : {PayloadBuffer::Kind::kPacked, PayloadBuffer::Kind::kPieces}) {
    for (const bool strided_send : {true, false}) {
      for (const bool posted : {true, false}) {
        TestSend message(length(), 9, strided_send ? 13 : 0, kind);
        TestReceive request(length() + 3, strided_send ? 0 : 29, kind);
        if (posted) receive(1, request);
        send(0, 1, message, GetParam().mode);
        settle_for_good();
        if (!posted) receive(1, request);
        settle_for_good();
        expect_received(request, message);
        expect_sent(message);
      }
    }
  }
  expect_at_rest();
}

TEST_P(EngineProtocol, KeepsTheOrderOfMessagesThatMatchTheSame) {
  constexpr std::size_t kMessages = 12;
  std::vector<std::unique_ptr<TestSend>> messages;
  std::vector<std::unique_ptr<TestReceive>> requests;
  for (std::size_t i = 0; i < kMessages; ++i) {
    // Every other one is empty: what overtakes shows in the length.
    messages.push_back(std::make_unique<TestSend>(i % 2 == 0 ? length() : 0, i + 1));
    requests.push_back(std::make_unique<TestReceive>(length()));
    if (i % 3 == 0) receive(1, *requests[i]);
  }
  for (auto& message : messages) send(0, 1, *message, GetParam().mode);
  settle_for_good();
  for (std::size_t i = 0; i < kMessages; ++i) {
    if (i % 3 != 0) receive(1, *requests[i]);
  }
  settle_for_good();
  std::size_t next = 0;  // First those that were posted, then the others.
  for (const bool posted : {true, false}) {
    for (std::size_t i = 0; i < kMessages; ++i) {
      if ((i % 3 == 0) == posted) expect_received(*requests[i], *messages[next++]);
    }
  }
  for (auto& message : messages) expect_sent(*message);
  expect_at_rest();
}

TEST_P(EngineProtocol, GoesBothWaysAtOnce) {
  TestSend there(length(), 1);
  TestSend back(length(), 2);
  TestReceive at_one(length());
  TestReceive at_zero(length());
  receive(0, at_zero);
  send(0, 1, there, GetParam().mode);
  send(1, 0, back, GetParam().mode);
  receive(1, at_one);
  settle_for_good();
  expect_received(at_one, there);
  expect_received(at_zero, back);
  expect_sent(there);
  expect_sent(back);
  expect_at_rest();
}

TEST_P(EngineProtocol, IsProbedAndReceivedByTheProbesName) {
  TestSend message(length());
  send(0, 1, message, GetParam().mode);
  settle_for_good();
  Envelope envelope;
  EXPECT_FALSE(at(1)->probe(kOtherKey, kIgnoreNothing, envelope));
  ASSERT_TRUE(at(1)->probe(kOtherKey, kIgnoreTag, envelope));
  EXPECT_EQ(envelope.length_bytes, length());
  EXPECT_EQ(envelope.key, kKey);
  EXPECT_EQ(at(1).counters().unexpected_depth, 1u);
  MessageId taken{};
  ASSERT_TRUE(at(1)->matched_probe(kKey, kIgnoreNothing, taken, envelope));
  EXPECT_EQ(envelope.length_bytes, length());
  EXPECT_FALSE(at(1)->probe(kKey, kIgnoreNothing, envelope));  // Nobody else gets it now.
  TestReceive other(length());
  receive(1, other);
  settle_for_good();
  EXPECT_EQ(!pending(message), GetParam().done_unmatched);  // Taken is not received: no receive has a buffer.
  TestReceive request(length());
  request.at = 1;
  if (at(1)->receive_matched(taken, request.buffer.payload(), request.cookie(), envelope) == Progressed::kDone) {
    request.at_once = envelope;
  }
  settle_for_good();
  expect_received(request, message);
  expect_sent(message);
  EXPECT_TRUE(pending(other));
  EXPECT_TRUE(at(1)->cancel_receive(other.operation));
  EXPECT_EQ(at(1)->receive_matched(taken, request.buffer.payload(), request.cookie(), envelope), Progressed::kFailed);
  expect_at_rest();
}

/// Counts the instants of the test below: events recorded and messages published.
std::uint64_t latest_instant = 0;
std::uint64_t next_instant() noexcept { return ++latest_instant; }

TEST_P(EngineProtocol, RecordsADepartureBeforeTheReceiverCanSeeIt) {
  Trace trace(PeerId{0}, 2, 4096, next_instant);  // Of both processes.
  engine_config.trace = &trace;
  make_strangers();
  using Instants = std::map<std::tuple<TraceEvent, std::uint32_t>, std::vector<std::uint64_t>>;  // Event, peer.
  Instants published;
  const auto event_of = [](wire::Kind kind) {
    switch (kind) {
      case wire::Kind::kEager: return TraceEvent::kSendShort;
      case wire::Kind::kEagerFirst: return TraceEvent::kSendEager;
      case wire::Kind::kRts: return TraceEvent::kRtsSent;
      case wire::Kind::kCts: return TraceEvent::kCtsSent;
      case wire::Kind::kAck: return TraceEvent::kAckSent;
      default: return TraceEvent::kCount;  // Not recorded, or no departure.
    }
  };
  network->tamper = [&](PeerId, PeerId to, std::span<std::byte> message) {
    wire::CommonHeader header;
    ASSERT_TRUE(wire::get(message, header));
    const TraceEvent event = event_of(header.kind);
    if (event != TraceEvent::kCount) published[{event, index_of(to)}].push_back(next_instant());
  };
  network->on_write_posted = [&](PeerId, PeerId to) {
    published[{TraceEvent::kWritePosted, index_of(to)}].push_back(next_instant());
  };
  if (GetParam().prepare != to_a_stranger) introduce(0, 1);
  for (int i = 0; i < 3; ++i) {
    TestSend message(length());
    TestReceive request(length());
    if (i != 0) receive(1, request);
    send(0, 1, message, GetParam().mode);
    settle_for_good();
    if (i == 0) receive(1, request);
    settle_for_good();
    expect_sent(message);
  }
  for (const std::uint32_t i : {0u, 1u}) at(i).engine.reset();  // Before the trace.
  const std::string path = testing::TempDir() + "ch3-trace-" + std::to_string(getpid());
  ASSERT_EQ(trace.write(path), 0);
  Instants recorded;
  for (const TraceRecord& record : read_back(path).records) {
    const auto event = static_cast<TraceEvent>(record.event);
    const bool is_rts = event == TraceEvent::kOptimisticSent;
    recorded[{is_rts ? TraceEvent::kRtsSent : event, record.peer}].push_back(record.time_ns);
  }
  unlink(path.c_str());
  EXPECT_FALSE(published.empty());
  for (const auto& [key, instants] : published) {
    const char* const name = trace_event_name(std::get<0>(key));
    ASSERT_EQ(recorded[key].size(), instants.size()) << name;
    for (std::size_t i = 0; i < instants.size(); ++i) EXPECT_LT(recorded[key][i], instants[i]) << name;
  }
}

class EngineBulk : public EngineWorld {};

TEST_F(EngineBulk, IsWrittenWhereAllCanAndElseBounced) {
  const auto run = [this](std::size_t send_block, std::size_t receive_block) {
    TestSend message(kLong, 3, send_block);
    TestReceive request(kLong, receive_block);
    receive(1, request);
    send(0, 1, message);
    settle();
    expect_received(request, message);
  };
  make();
  run(0, 0);
  EXPECT_EQ(at(0).counters().bulk_written, 1u);
  run(100, 0);
  run(0, 100);
  EXPECT_EQ(at(0).counters().bulk_written, 1u);
  EXPECT_EQ(at(0).counters().bulk_bounced, 2u);
  expect_at_rest();
}

TEST_F(EngineBulk, IsBouncedWhereACopyWouldBeSlow) {
  network_config.writes_by_copying = true;
  make();
  constexpr std::size_t kRoom = 32 * std::size_t{4096};
  alignas(4096) static std::array<std::byte, 2 * kRoom> memory;
  std::uint64_t written = 0, bounced = 0;
  for (const std::size_t ahead : {0u, 1u, 15u, 16u}) {
    std::pmr::monotonic_buffer_resource from(memory.data(), kRoom);
    std::pmr::monotonic_buffer_resource to(memory.data() + kRoom + ahead, kRoom - ahead);
    std::pmr::set_default_resource(&from);
    TestSend message(kLong);
    std::pmr::set_default_resource(&to);
    TestReceive request(kLong);
    std::pmr::set_default_resource(nullptr);
    ASSERT_EQ((request.buffer.payload().address - message.buffer.payload().address) % 4096,
              static_cast<std::ptrdiff_t>(ahead));
    receive(1, request);
    send(0, 1, message);
    settle();
    expect_received(request, message);
    ++(ahead == 0 || ahead == 16 ? written : bounced);
    EXPECT_EQ(at(0).counters().bulk_written, written) << ahead;
    EXPECT_EQ(at(0).counters().bulk_bounced, bounced) << ahead;
  }
  expect_at_rest();
}

TEST_F(EngineBulk, GoesTheWayThatItsReceiverHasChosen) {
  network_config.chooses_writes = true;  // Long payloads are written at first, and slots are tried later.
  network_config.write_threshold_bytes = SIZE_MAX;
  make();
  const auto run = [&](int from, int to) {
    TestSend message(kLong);
    TestReceive request(kLong);
    receive(to, request);
    send(from, to, message);
    settle();
    expect_received(request, message);
  };
  std::uint64_t before_trial = 0;
  for (; at(0).counters().bulk_bounced == 0 && before_trial < 1000; ++before_trial) run(0, 1);
  EXPECT_GE(before_trial, 8u);
  EXPECT_LT(before_trial, 1000u);
  const std::uint64_t written = at(0).counters().bulk_written;
  run(0, 1);
  EXPECT_EQ(at(0).counters().bulk_written, written) << "the trial goes on";
  run(1, 0);
  EXPECT_EQ(at(1).counters().bulk_written, 1u) << "process 0 knows nothing of process 1's trial";
  run(0, 1);
  EXPECT_EQ(at(0).counters().bulk_written, written + 1) << "process 1 follows process 0";
  expect_at_rest();
}

TEST_F(EngineBulk, APayloadThatCannotBeWrittenDecidesNothing) {
  network_config.chooses_writes = true;
  make();
  const auto run = [&](int from, int to, std::size_t block) {
    TestSend message(kLong);
    TestReceive request(kLong, block);
    receive(to, request);
    send(from, to, message);
    settle();
    expect_received(request, message);
  };
  run(1, 0, 100);
  EXPECT_EQ(at(1).counters().bulk_bounced, 1u);
  run(0, 1, 0);
  EXPECT_EQ(at(0).counters().bulk_written, 1u) << "process 1 has nothing to follow";
}

TEST_F(EngineBulk, AWriteThatWaitsHoldsUpNoMessageBehindIt) {
  make();
  TestSend bulk(kLong), behind(kEagerLimitBytes, 2);
  TestReceive first(kLong), second(kEagerLimitBytes);
  receive(1, first);
  receive(1, second);
  network->writes_wait = true;
  send(0, 1, bulk);
  settle();
  send(0, 1, behind);
  settle();
  expect_received(second, behind);
  EXPECT_EQ(at(0).counters().bulk_written, 0u);
  network->writes_wait = false;
  settle();
  expect_received(first, bulk);
  EXPECT_EQ(at(0).counters().bulk_written, 1u);
  expect_at_rest();
}

TEST_F(EngineBulk, APairThatRefusedAWriteIsNotAskedAgain) {
  network_config.pair_without_write_probability = 1;
  network_config.slots_per_pair = 1;
  make();
  for (int i = 0; i < 3; ++i) {
    TestSend message(kLong);
    TestReceive request(kLong);
    receive(1, request);
    send(0, 1, message);
    step();
    step();  // The CTS is here.
    EXPECT_EQ(at(0).provider->regions(), i == 0 ? 1u : 0u);  // Registered for a write the first time only.
    settle();
    expect_received(request, message);
  }
  EXPECT_EQ(at(0).counters().bulk_bounced, 3u);
  EXPECT_EQ(at(0).counters().bulk_written, 0u);
  expect_at_rest();
}

TEST_F(EngineBulk, AWriteThatFailsLateIsRecordedAndCountedAsABounce) {
  Trace trace(PeerId{0}, 2, 4096, next_instant);  // Of both processes.
  engine_config.trace = &trace;
  network_config.late_unsupported_probability = 1;
  make();
  TestSend message(kLong);
  TestReceive request(kLong);
  receive(1, request);
  send(0, 1, message);
  settle();
  expect_received(request, message);
  EXPECT_EQ(at(0).counters().bulk_bounced, 1u);
  EXPECT_EQ(at(0).counters().bulk_written, 0u);
  expect_at_rest();
  for (const std::uint32_t i : {0u, 1u}) at(i).engine.reset();  // Before the trace.
  const std::string path = testing::TempDir() + "ch3-trace-" + std::to_string(getpid());
  ASSERT_EQ(trace.write(path), 0);
  std::vector<TraceEvent> ways;
  for (const TraceRecord& record : read_back(path).records) {
    const auto event = static_cast<TraceEvent>(record.event);
    if (event == TraceEvent::kWritePosted || event == TraceEvent::kWriteDone || event == TraceEvent::kBounceStarted)
      ways.push_back(event);
  }
  unlink(path.c_str());
  EXPECT_EQ(ways, (std::vector<TraceEvent>{TraceEvent::kWritePosted, TraceEvent::kWriteDone,
                                           TraceEvent::kBounceStarted}));
}

TEST_F(EngineBulk, ABouncedPayloadAndTheMessagesBehindItTakeTurns) {
  network_config.write = false;
  network_config.slots_per_pair = 2;
  make();
  TestSend message(kLong, 1);
  TestReceive request(kLong);
  receive(1, request);
  send(0, 1, message);
  for (int i = 0; i < 4; ++i) step();
  TestSend quick(100, 2);
  quick.key = kOtherKey;
  TestReceive quick_request(100);
  receive(1, quick_request, kOtherKey);
  send(0, 1, quick);
  for (int i = 0; i < 4; ++i) step();
  expect_received(quick_request, quick);
  EXPECT_TRUE(pending(request));
  settle();
  expect_received(request, message);
  expect_at_rest();
}

TEST_F(EngineBulk, ManyTransfersAreUnderWayAtOnce) {
  network_config.slots_per_pair = 4;
  make();
  std::vector<std::unique_ptr<TestSend>> messages;
  std::vector<std::unique_ptr<TestReceive>> requests;
  for (std::size_t i = 0; i < 30; ++i) {
    messages.push_back(std::make_unique<TestSend>(kLong + i, i + 1, i % 3 == 0 ? 1000 : 0));
    messages[i]->key = make_match_key(1, 2, static_cast<std::uint32_t>(i));
    requests.push_back(std::make_unique<TestReceive>(kLong + 100));
    send(0, 1, *messages[i]);
  }
  settle();
  for (std::size_t i = 30; i-- > 0;) receive(1, *requests[i], messages[i]->key);
  settle();
  for (std::size_t i = 0; i < 30; ++i) {
    expect_received(*requests[i], *messages[i]);
    expect_sent(*messages[i]);
  }
  expect_at_rest();
}

class EngineRing : public EngineWorld {};

/// A token goes round. Each process comes to know two others, out of a thousand.
TEST_F(EngineRing, AThousandProcessesConnectOnFirstUseOnly) {
  constexpr std::uint32_t kSize = 1024;
  engine_config.send_buffer_bytes = 10'000;  // First messages go without credit.
  make_strangers(kSize);
  std::vector<std::unique_ptr<TestReceive>> requests;
  for (std::uint32_t i = 0; i < kSize; ++i) {
    requests.push_back(std::make_unique<TestReceive>(64));
    receive(i, *requests[i], kKey, kIgnoreInitiator);
  }
  TestSend token(64);
  for (std::uint32_t i = 0; i < kSize; ++i) {
    send(i, (i + 1) % kSize, token);
    at(i).progress();  // The introduction: it leaves.
    expect_sent(token);
    network->advance();
    at((i + 1) % kSize).progress();
    expect_received(*requests[(i + 1) % kSize], token);
  }
  settle();
  std::uint64_t connections = 0;
  for (auto& process : processes) connections += process->counters().connected_peers;
  EXPECT_LE(connections, 2 * kSize);  // To the next one; and back, for credit.
  expect_at_rest();
}

}  // namespace engine_protocol_test
}  // namespace ch3_offload
