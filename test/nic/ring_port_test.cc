// Ports through rings, over the fake network. The test decides when a processor has a turn.

#include "nic/ring_port.h"
#include "nic/exchange.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/payload_layout.h"
#include "nic/host_driver.h"
#include "nic/ring_server.h"
#include "nic/stepped_rings.h"
#include "nic/two_clients.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {
namespace ring_port_test {

bool is_readable(int descriptor) {
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

/// A port whose processor has a turn when the client waits for it, or when the test calls server.turn().
class TestRings final : public RingPort {
 public:
  TestRings(const EngineConfig& config, std::span<Provider* const> providers)
      : TestRings(std::make_unique<PortMemory>(std::move(PortMemory::make().value())), config, providers) {}

  bool keeps_memory() const noexcept override { return host.keeps_memory(); }
  void memory_gone(const void* address, std::size_t length_bytes) noexcept override {
    host.memory_gone(address, length_bytes);
  }
  std::string card() const override { return host.card(); }
  const CounterPage& counters() const noexcept override { return host.counters(); }

 private:
  TestRings(std::unique_ptr<PortMemory> its_memory, const EngineConfig& config,
            std::span<Provider* const> providers)
      : RingPort(*its_memory, short_wait(), config.trace),
        memory(std::move(its_memory)),
        host(config, providers),
        server(host, *memory, config.trace) {}

  void rest_in(ProcessorWait&) noexcept override {
    ++waits;
    static_cast<void>(server.turn());
  }

 public:
  const std::unique_ptr<PortMemory> memory;
  HostDriver host;
  RingServer server;
  std::size_t waits = 0;  ///< Calls of rest_in().
};

/// A process, and what its client was told.
struct Process {
  NicWords& words() const { return port->memory->words(); }
  std::size_t take() {
    std::size_t taken = 0;
    for (Event event; port->next_event(event); ++taken) note(event);
    const std::size_t happened = port->progress();
    for (Event event; port->next_event(event); ++taken) note(event);
    return taken + happened;
  }
  void note(const Event& event) {
    if (event.kind == Event::Kind::kPacket) {
      packet.insert(packet.end(), event.bytes, event.bytes + event.length_bytes);
      longest_part = std::max(longest_part, event.length_bytes);
    }
    if (event.kind == Event::Kind::kCardWanted && introduces)
      port->introduce(event.peer, cards->at(index_of(event.peer)));
    if (event.kind == Event::Kind::kPacketOffer) port->place_packet(event.peer, {});
    events.push_back(event);
  }
  /// The only event of this cookie. Fails without it.
  Event of(Cookie cookie) const {
    Event found{};
    int count = 0;
    for (const Event& event : events) {
      if (event.kind > Event::Kind::kCancelDone || event.cookie != cookie) continue;
      found = event;
      ++count;
    }
    EXPECT_EQ(count, 1);
    return found;
  }
  bool has(Cookie cookie) const {
    return std::any_of(events.begin(), events.end(), [cookie](const Event& event) {
      return event.kind <= Event::Kind::kCancelDone && event.cookie == cookie;
    });
  }
  bool has(Event::Kind kind) const {
    return std::any_of(events.begin(), events.end(),
                       [kind](const Event& event) { return event.kind == kind; });
  }

  std::unique_ptr<FakeProvider> provider;
  std::unique_ptr<TestRings> port;
  const std::vector<std::string>* cards = nullptr;
  bool introduces = true;  ///< Answers kCardWanted.
  std::vector<Event> events;
  std::vector<std::byte> packet;
  std::size_t longest_part = 0;
};

constexpr MatchKey kKey = make_match_key(1, 2, 3);
constexpr MatchKey kOtherKey = make_match_key(1, 2, 4);

Cookie cookie(std::uintptr_t number) { return reinterpret_cast<Cookie>(number); }

/// Bytes that differ from message to message.
std::vector<std::byte> bytes_of(std::size_t length_bytes, std::size_t seed) {
  std::vector<std::byte> bytes(length_bytes);
  for (std::size_t i = 0; i < length_bytes; ++i)
    bytes[i] = static_cast<std::byte>(seed * 31 + i * 7 + i / 251);
  return bytes;
}

class RingPortTest : public testing::Test {
 protected:
  RingPortTest() {
    network_config.least_delay_ns = network_config.most_delay_ns = 1000;
    engine_config.unexpected_budget_bytes = 4 << 20;
    engine_config.eager_limit_bytes = 16 * 1024;
    engine_config.send_buffer_bytes = 0;
  }
  ~RingPortTest() override { EXPECT_EQ(network->violations(), std::vector<std::string>{}); }
  void make(std::uint32_t size = 2) {
    network = std::make_unique<FakeNetwork>(network_config);
    engine_config.senders = size;
    for (std::uint32_t i = 0; i < size; ++i) {
      auto process = std::make_unique<Process>();
      process->provider = network->make_provider(PeerId{i});
      EngineConfig config = engine_config;
      config.self = PeerId{i};
      Provider* const providers[] = {process->provider.get()};
      process->port = std::make_unique<TestRings>(config, providers);
      cards.push_back(process->port->card());
      process->cards = &cards;
      processes.push_back(std::move(process));
    }
  }
  Process& at(std::uint32_t i) { return *processes[i]; }
  TestRings& port(std::uint32_t i) { return *processes[i]->port; }

  /// The network and the processors work until nothing moves. The clients take nothing.
  void work() {
    for (int quiet = 0; quiet < 3; ++quiet) {
      if (network->advance()) quiet = -1;
      for (auto& process : processes)
        if (process->port->server.turn() > 0) quiet = -1;
    }
  }
  /// Likewise, and the clients take everything.
  void settle() {
    for (int quiet = 0; quiet < 3; ++quiet) {
      if (network->advance()) quiet = -1;
      for (auto& process : processes) {
        if (process->port->server.turn() > 0) quiet = -1;
        if (process->take() > 0) quiet = -1;
      }
    }
  }

  struct Sent {
    Progressed progressed;
    OperationId operation;
  };
  Sent send(std::uint32_t from, std::uint32_t to, std::span<std::byte> bytes, Cookie its_cookie = nullptr,
            SendMode mode = SendMode::kStandard, MatchKey key = kKey, std::uint32_t send_id = 0) {
    Sent sent{};
    Status status = Status::kDeviceFailed;
    sent.progressed = port(from).send(PeerId{to}, mode, key, {bytes.data(), bytes.size(), nullptr}, send_id,
                                      its_cookie, sent.operation, status);
    EXPECT_EQ(status, Status::kOk);
    EXPECT_EQ(sent.progressed == Progressed::kPending, sent.operation != kNoOperation);
    return sent;
  }
  OperationId receive(std::uint32_t at, std::span<std::byte> room, Cookie its_cookie, MatchKey key = kKey,
                      MatchKey ignore = kIgnoreNothing) {
    OperationId operation{};
    Envelope envelope;
    EXPECT_EQ(port(at).post_receive(key, ignore, {room.data(), room.size(), nullptr}, its_cookie, operation,
                                    envelope),
              Progressed::kPending);
    return operation;
  }

  FakeConfig network_config;
  EngineConfig engine_config;
  std::unique_ptr<FakeNetwork> network;
  std::vector<std::string> cards;
  std::vector<std::unique_ptr<Process>> processes;
};

// Sends.

TEST_F(RingPortTest, ASmallStandardSendIsDoneAtOnce) {
  make();
  std::vector<std::byte> bytes = bytes_of(kInlineBytes, 1), room(kInlineBytes);
  EXPECT_EQ(send(0, 1, bytes, cookie(1)).progressed, Progressed::kDone);
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  receive(1, room, cookie(2));
  settle();
  EXPECT_EQ(at(1).of(cookie(2)).length_bytes, kInlineBytes);
  EXPECT_EQ(room, bytes_of(kInlineBytes, 1));
  EXPECT_FALSE(at(0).has(cookie(1)));
  EXPECT_EQ(at(0).words().inline_done, 1U);
}

TEST_F(RingPortTest, ALongerOneAndASynchronousOneArePendingAndEndWithTheirCookies) {
  make();
  std::vector<std::byte> longer = bytes_of(kInlineBytes + 1, 1), most = bytes_of(1 << 20, 2);
  std::vector<std::byte> small = bytes_of(8, 3);
  std::vector<std::byte> room[3];
  for (auto& one : room) one.resize(1 << 20);
  EXPECT_EQ(send(0, 1, longer, cookie(1)).progressed, Progressed::kPending);
  EXPECT_EQ(send(0, 1, most, cookie(2)).progressed, Progressed::kPending);
  EXPECT_EQ(send(0, 1, small, cookie(3), SendMode::kSynchronous).progressed, Progressed::kPending);
  settle();
  EXPECT_FALSE(at(0).has(cookie(3))) << "nobody has received it";
  for (std::uintptr_t i = 0; i < 3; ++i) receive(1, room[i], cookie(11 + i));
  settle();
  for (std::uintptr_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(at(0).of(cookie(i)).kind, Event::Kind::kSendDone);
    EXPECT_EQ(at(0).of(cookie(i)).status, Status::kOk);
    room[i - 1].resize(at(1).of(cookie(10 + i)).length_bytes);
  }
  EXPECT_EQ(room[0], longer);
  EXPECT_EQ(room[1], most);
  EXPECT_EQ(room[2], small);
}

TEST_F(RingPortTest, OneWithALayoutIsPending) {
  make();
  std::vector<std::byte> bytes = bytes_of(64, 1), room(32);
  const Piece piece{0, 8};
  PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces};
  layout.piece_count = 1;
  layout.pieces = &piece;
  layout.element_bytes = 8;
  layout.extent_bytes = 16;
  OperationId operation{};
  Status status{};
  EXPECT_EQ(port(0).send(PeerId{1}, SendMode::kStandard, kKey, {bytes.data(), 32, &layout}, 0, cookie(1),
                         operation, status),
            Progressed::kPending);
  receive(1, room, cookie(2));
  settle();
  EXPECT_EQ(at(0).of(cookie(1)).status, Status::kOk);
  for (std::size_t i = 0; i < room.size(); ++i) EXPECT_EQ(room[i], bytes[i / 8 * 16 + i % 8]);
}

TEST_F(RingPortTest, AfterSoManyInlineSendsTheNextIsPendingUntilTheProcessorHasATurn) {
  make();
  std::vector<std::byte> bytes = bytes_of(8, 1);
  for (std::uint64_t i = 0; i < kInlineCommands; ++i)
    ASSERT_EQ(send(0, 0, bytes).progressed, Progressed::kDone) << i;
  EXPECT_EQ(send(0, 0, bytes, cookie(1)).progressed, Progressed::kPending);
  const std::byte header[8] = {};
  Status status{};
  EXPECT_EQ(port(0).send_packet(PeerId{0}, header, {}, cookie(2), status), Progressed::kPending);
  settle();
  EXPECT_EQ(at(0).of(cookie(2)).status, Status::kOk);
  EXPECT_EQ(at(0).packet.size(), sizeof header);
  EXPECT_EQ(send(0, 0, bytes).progressed, Progressed::kDone);

  std::vector<std::byte> room(8);
  for (std::uint64_t i = 0; i < kInlineCommands + 2; ++i) receive(0, room, cookie(100 + i));
  settle();
  EXPECT_EQ(at(0).of(cookie(1)).status, Status::kOk);
  EXPECT_TRUE(at(0).has(cookie(100 + kInlineCommands + 1)));
}

/// Commands that fill the ring more than once, and leave nothing.
void overwrite_the_commands(TestRings& port) {
  Envelope envelope;
  for (std::uint32_t i = 0;
       i < 2 * kCommandRingBytes / record_bytes(sizeof(CommandRecord) + sizeof(MatchKey)); ++i)
    ASSERT_FALSE(port.probe(make_match_key(9, 9, i), kIgnoreNothing, envelope));
}

TEST_F(RingPortTest, InlineSendsKeepTheirPayloadUntilThePeerIsIntroduced) {
  make();
  at(0).introduces = false;
  constexpr std::size_t kSends = 10;
  for (std::size_t i = 0; i < kSends; ++i) {
    std::vector<std::byte> bytes = bytes_of(kInlineBytes, i);
    ASSERT_EQ(send(0, 1, bytes).progressed, Progressed::kDone);
  }
  const std::vector<std::byte> packet = bytes_of(700, 99);
  Status status{};
  ASSERT_EQ(port(0).send_packet(PeerId{1}, packet, {}, cookie(1), status), Progressed::kDone);
  settle();
  ASSERT_TRUE(at(0).has(Event::Kind::kCardWanted));
  ASSERT_EQ(at(0).words().inline_done, 0U);
  overwrite_the_commands(port(0));

  port(0).introduce(PeerId{1}, cards[1]);
  std::vector<std::byte> room[kSends];
  for (std::size_t i = 0; i < kSends; ++i) {
    room[i].resize(kInlineBytes);
    receive(1, room[i], cookie(1 + i));
  }
  settle();
  for (std::size_t i = 0; i < kSends; ++i) {
    EXPECT_TRUE(at(1).has(cookie(1 + i)));
    EXPECT_EQ(room[i], bytes_of(kInlineBytes, i)) << i;
  }
  EXPECT_EQ(at(1).packet, packet);
  EXPECT_EQ(at(0).words().inline_done, kSends + 1);
}

TEST_F(RingPortTest, InlineSendsKeepTheirPayloadWhileThereIsNoCredit) {
  engine_config.unexpected_budget_bytes = 2048;
  make();
  constexpr std::size_t kSends = kInlineCommands;
  for (std::size_t i = 0; i < kSends; ++i) {
    std::vector<std::byte> bytes = bytes_of(kInlineBytes, i);
    ASSERT_EQ(send(0, 1, bytes).progressed, Progressed::kDone);
  }
  settle();
  ASSERT_LT(at(0).words().inline_done, kSends);
  overwrite_the_commands(port(0));
  std::vector<std::byte> room[kSends];
  for (std::size_t i = 0; i < kSends; ++i) {
    room[i].resize(kInlineBytes);
    receive(1, room[i], cookie(1 + i));
  }
  settle();
  for (std::size_t i = 0; i < kSends; ++i) EXPECT_EQ(room[i], bytes_of(kInlineBytes, i)) << i;
  EXPECT_EQ(at(0).words().inline_done, kSends);
}

// Full rings.

TEST_F(RingPortTest, AFullEventRingLosesNoCompletionAndDoesNotStopTheEngine) {
  make();
  constexpr std::size_t kMessages = 20'000;
  static_assert(kMessages * record_bytes(sizeof(EventRecord)) > kEventRingBytes);
  std::vector<std::uint32_t> room(kMessages, UINT32_MAX);
  for (std::size_t i = 0; i < kMessages; ++i)
    receive(1, std::as_writable_bytes(std::span(&room[i], 1)), cookie(1 + i));
  port(1).waits = 0;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    send(0, 1, std::as_writable_bytes(std::span(&i, 1)));
    if (i % kInlineCommands != kInlineCommands - 1) continue;
    at(0).take();
    at(0).events.clear();
    while (port(0).counters().pending_sends > 0 || at(0).words().inline_done <= i) {
      network->advance();
      port(0).server.turn();
      port(1).server.turn();
      for (Event event; at(0).take() > 0;) static_cast<void>(event);
    }
  }
  work();
  EXPECT_EQ(port(1).counters().received_expected, kMessages) << "the engine waited for the client";
  EXPECT_TRUE(at(1).events.empty());
  EXPECT_FALSE(port(1).server.is_blocked());
  EXPECT_FALSE(port(1).idle()) << "events wait for room";

  settle();
  EXPECT_TRUE(port(1).idle());
  ASSERT_EQ(at(1).events.size(), kMessages);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(at(1).events[i].cookie, cookie(1 + i));
    ASSERT_EQ(at(1).events[i].length_bytes, sizeof room[i]);
    ASSERT_EQ(room[i], i);
  }
}

/// Packets of 40,000 bytes until the receiver's processor is blocked.
TEST_F(RingPortTest, PacketsThatFindTheEventRingFullComeCompleteAndInOrder) {
  network_config.max_slot_bytes = 64 * 1024;
  engine_config.eager_limit_bytes = 64 * 1024;
  make();
  constexpr std::size_t kPacketBytes = 40'000, kPackets = 60;
  static_assert(kPacketBytes > kPacketPartBytes && kPacketBytes * kPackets > 2 * kEventRingBytes);
  std::vector<std::byte> all = bytes_of(kPacketBytes * kPackets, 1);
  for (std::size_t i = 0; i < kPackets; ++i) {
    const std::span packet = std::span(all).subspan(i * kPacketBytes, kPacketBytes);
    const Payload data{packet.data() + 16, packet.size() - 16, nullptr};
    Status status{};
    ASSERT_EQ(port(0).send_packet(PeerId{1}, packet.first(16), {&data, 1}, cookie(1 + i), status),
              Progressed::kPending);
    port(0).server.turn();
    at(0).take();
  }
  work();
  EXPECT_TRUE(port(1).server.is_blocked());
  settle();
  EXPECT_FALSE(port(1).server.is_blocked());
  EXPECT_TRUE(at(1).packet == all);
  EXPECT_EQ(at(1).longest_part, kPacketPartBytes);
  for (std::size_t i = 0; i < kPackets; ++i) EXPECT_EQ(at(0).of(cookie(1 + i)).status, Status::kOk);
}

TEST_F(RingPortTest, APacketBehindCompletionsThatWaitForRoomComesAfterThem) {
  make();
  constexpr std::size_t kMessages = 17'000;
  static_assert(kMessages * record_bytes(sizeof(EventRecord)) > kEventRingBytes);
  for (std::size_t i = 0; i < kMessages; ++i) receive(1, {}, cookie(1 + i));
  for (std::size_t i = 0; i < kMessages; ++i) {
    send(1, 1, {});
    port(1).server.turn();
  }
  const std::vector<std::byte> packet = bytes_of(500, 1);
  Status status{};
  ASSERT_EQ(port(0).send_packet(PeerId{1}, packet, {}, cookie(1), status), Progressed::kDone);
  at(0).take();
  port(0).server.turn();
  at(0).take();  // kCardWanted.
  work();
  EXPECT_TRUE(port(1).server.is_blocked());
  settle();
  EXPECT_EQ(at(1).packet, packet);
  EXPECT_EQ(at(1).events.back().kind, Event::Kind::kPacket);
  std::uintptr_t number = 0;
  for (const Event& event : at(1).events) {
    if (event.kind == Event::Kind::kReceiveDone) {
      ASSERT_EQ(event.cookie, cookie(++number));
    }
  }
  EXPECT_EQ(number, kMessages);
}

/// A receive that is done as the processor takes it, just when the client has made room.
TEST_F(RingPortTest, ACompletionDoesNotOvertakeThoseThatWaitForRoom) {
  make();
  constexpr std::size_t kMessages = 17'000;
  constexpr std::uintptr_t kLast = kMessages + 1;
  ASSERT_EQ(send(0, 0, {}, nullptr, SendMode::kStandard, kOtherKey).progressed, Progressed::kDone);
  for (std::size_t i = 0; i < kMessages; ++i) receive(0, {}, cookie(1 + i));
  for (std::size_t i = 0; i < kMessages; ++i) {
    send(0, 0, {});
    port(0).server.turn();
  }
  work();
  at(0).take();
  port(0).progress();  // Returns the room.
  receive(0, {}, cookie(kLast), kOtherKey);
  settle();
  std::uintptr_t number = 0;
  for (const Event& event : at(0).events) {
    if (event.kind == Event::Kind::kReceiveDone) {
      ASSERT_EQ(event.cookie, cookie(++number));
    }
  }
  EXPECT_EQ(number, kLast);
}

TEST_F(RingPortTest, AFullCommandRingWaitsForTheProcessorAndLosesNothing) {
  make();
  constexpr std::size_t kCommands = 5000;
  static_assert(kCommands * record_bytes(sizeof(CommandRecord)) > kCommandRingBytes);
  std::vector<std::uint32_t> room(kCommands, UINT32_MAX);
  std::size_t before = 0;
  for (std::size_t i = 0; i < kCommands; ++i) {
    if (i == kCommandRingBytes / record_bytes(sizeof(CommandRecord)) - 2) before = port(0).waits;
    receive(0, std::as_writable_bytes(std::span(&room[i], 1)), cookie(1 + i));
  }
  EXPECT_EQ(before, 0U);
  EXPECT_GT(port(0).waits, 0U);
  for (std::uint32_t i = 0; i < kCommands; ++i) {
    ASSERT_EQ(send(0, 0, std::as_writable_bytes(std::span(&i, 1))).progressed, Progressed::kDone);
    port(0).server.turn();
    while (at(0).words().inline_done <= i) port(0).server.turn();
  }
  settle();
  ASSERT_EQ(at(0).events.size(), kCommands);
  for (std::uint32_t i = 0; i < kCommands; ++i) {
    EXPECT_EQ(at(0).events[i].cookie, cookie(1 + i));
    EXPECT_EQ(room[i], i);
  }
}

/// Of the client's announcement, the processor uses up one with an answer, and one with returned space.
TEST_F(RingPortTest, AClientThatSleepsUntilItsProcessorAnswersOrTakesCommandsIsWoken) {
  make();
  NicWords& words = at(0).words();
  const std::uint64_t& rung = port(0).ring_counters().processor.bells_rung;
  words.client_waits = 1;
  Envelope envelope;
  EXPECT_FALSE(port(0).probe(kKey, kIgnoreNothing, envelope));
  EXPECT_EQ(words.client_waits, 0U) << "an answer";
  EXPECT_EQ(rung, 1U);
  std::array<std::uint32_t, kWakeBytes / 64 + 1> room{};
  for (std::size_t i = 0; i < room.size(); ++i)
    receive(0, std::as_writable_bytes(std::span(&room[i], 1)), cookie(1 + i));
  words.client_waits = 1;
  port(0).memory->command_producer().announce_waiting();
  while (port(0).server.turn() > 0) {
  }
  EXPECT_EQ(words.client_waits, 0U) << "returned space";
  EXPECT_EQ(rung, 2U);
}

// Questions.

TEST_F(RingPortTest, AProbeThatFoundNothingIsNotAskedAgainUntilAMessageCame) {
  make();
  Envelope envelope;
  EXPECT_FALSE(port(1).probe(kKey, kIgnoreNothing, envelope));
  const std::size_t asked = port(1).waits;
  EXPECT_GT(asked, 0U);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(port(1).probe(kKey, kIgnoreNothing, envelope));
  EXPECT_EQ(port(1).waits, asked);
  EXPECT_FALSE(port(1).probe(kOtherKey, kIgnoreNothing, envelope));
  EXPECT_GT(port(1).waits, asked) << "another question";

  std::vector<std::byte> bytes = bytes_of(100, 1);
  send(0, 1, bytes);
  settle();
  EXPECT_TRUE(port(1).probe(kKey, kIgnoreNothing, envelope));
  EXPECT_EQ(envelope.key, kKey);
  EXPECT_EQ(envelope.length_bytes, bytes.size());
  EXPECT_FALSE(port(1).probe(kOtherKey, kIgnoreNothing, envelope));
  EXPECT_TRUE(port(1).probe(MatchKey{}, ~MatchKey{}, envelope)) << "the mask came along";
}

/// A client that looked at another number would probe between the two, hear that nothing has come, and wait
/// for the other one, which does not change again.
TEST_F(RingPortTest, NoMessageIsSeenToHaveArrivedBeforeAProbeLooksForIt) {
  make();
  Envelope envelope;
  send(1, 0, {}, nullptr, SendMode::kStandard, kOtherKey);
  settle();  // They know each other.
  const std::uint64_t before = port(0).arrivals();
  ASSERT_FALSE(port(0).probe(kKey, kIgnoreNothing, envelope));
  send(1, 0, {});
  port(1).server.turn();
  while (port(0).host.counters().received_unexpected == before) {  // The client has not been told.
    ASSERT_TRUE(network->advance());
    port(0).host.progress();
  }
  port(0).server.tell_counters();
  ASSERT_EQ(port(0).memory->counters().received_unexpected, before + 1);
  EXPECT_EQ(port(0).arrivals(), before);
  EXPECT_FALSE(port(0).probe(kKey, kIgnoreNothing, envelope)) << "not asked again";
  EXPECT_EQ(port(0).arrivals(), before);
  port(0).server.turn();
  EXPECT_EQ(port(0).arrivals(), before + 1);
  EXPECT_TRUE(port(0).probe(kKey, kIgnoreNothing, envelope));
}

TEST_F(RingPortTest, AMatchedProbeTakesTheMessageOutOfMatching) {
  make();
  std::vector<std::byte> bytes = bytes_of(100, 1), room(100);
  MessageId message{};
  Envelope envelope;
  EXPECT_FALSE(port(1).matched_probe(kKey, kIgnoreNothing, message, envelope));
  send(0, 1, bytes);
  settle();
  ASSERT_TRUE(port(1).matched_probe(kKey, kIgnoreNothing, message, envelope));
  EXPECT_EQ(envelope.length_bytes, bytes.size());
  EXPECT_FALSE(port(1).probe(kKey, kIgnoreNothing, envelope));
  EXPECT_EQ(port(1).receive_matched(message, {room.data(), room.size(), nullptr}, cookie(1), envelope),
            Progressed::kPending);
  settle();
  EXPECT_EQ(at(1).of(cookie(1)).kind, Event::Kind::kReceiveDone);
  EXPECT_EQ(at(1).of(cookie(1)).key, kKey);
  EXPECT_EQ(room, bytes);
}

TEST_F(RingPortTest, CancellingAReceiveThatWaitsOneThatIsDoneAndAStaleName) {
  make();
  std::vector<std::byte> bytes = bytes_of(8, 1), room(8), other_room(8);
  const OperationId waiting = receive(0, room, cookie(1));
  const OperationId done = receive(0, other_room, cookie(2));
  EXPECT_TRUE(port(0).cancel_receive(waiting));
  send(0, 0, bytes);
  port(0).server.turn();
  EXPECT_FALSE(port(0).cancel_receive(done)) << "its event waits in the ring";
  settle();
  EXPECT_FALSE(at(0).has(cookie(1)));
  EXPECT_EQ(at(0).of(cookie(2)).status, Status::kOk);
  EXPECT_EQ(other_room, bytes);
  const std::size_t asked = port(0).waits;
  for (const OperationId stale : {waiting, done, kNoOperation, OperationId{UINT64_MAX}})
    EXPECT_FALSE(port(0).cancel_receive(stale));
  EXPECT_EQ(port(0).waits, asked);
}

TEST_F(RingPortTest, ACancelledSendThatWaitsHasNoEventOfItsOwn) {
  make();
  std::vector<std::byte> bytes = bytes_of(8, 1), room(8);
  const Sent sent = send(0, 1, bytes, cookie(1), SendMode::kSynchronous, kKey, 5);
  settle();
  EXPECT_EQ(port(0).cancel_send(sent.operation, PeerId{1}, kKey, 5, cookie(2)), Progressed::kPending);
  settle();
  EXPECT_EQ(at(0).of(cookie(2)).kind, Event::Kind::kCancelDone);
  EXPECT_TRUE(at(0).of(cookie(2)).is_cancelled);
  EXPECT_FALSE(at(0).has(cookie(1)));
  Envelope envelope;
  EXPECT_FALSE(port(1).probe(kKey, kIgnoreNothing, envelope));
  // Its name is free again, on both sides.
  bool reused = false;
  receive(1, room, cookie(3));
  for (std::uintptr_t i = 10; i < 14; ++i) {
    const Sent next = send(0, 1, bytes, cookie(i), SendMode::kSynchronous);
    EXPECT_NE(next.operation, sent.operation);
    reused |= static_cast<std::uint32_t>(next.operation) == static_cast<std::uint32_t>(sent.operation);
    receive(1, room, cookie(i));
  }
  EXPECT_TRUE(reused);
  receive(1, room, cookie(4));
  settle();
  for (std::uintptr_t i = 10; i < 14; ++i) EXPECT_EQ(at(0).of(cookie(i)).status, Status::kOk);
  EXPECT_FALSE(port(0).server.is_refused());
}

TEST_F(RingPortTest, ASendThatWasReceivedIsNotCancelled) {
  make();
  std::vector<std::byte> bytes = bytes_of(8, 1), room(8);
  receive(1, room, cookie(3));
  const Sent sent = send(0, 1, bytes, cookie(1), SendMode::kSynchronous, kKey, 5);
  work();
  at(0).take();  // kCardWanted.
  work();
  ASSERT_FALSE(at(0).has(cookie(1))) << "the event waits in the ring";
  EXPECT_EQ(port(0).cancel_send(sent.operation, PeerId{1}, kKey, 5, cookie(2)), Progressed::kPending);
  settle();
  EXPECT_FALSE(at(0).of(cookie(2)).is_cancelled);
  EXPECT_EQ(at(0).of(cookie(1)).status, Status::kOk);
  EXPECT_EQ(room, bytes);
}

TEST_F(RingPortTest, AnInlineSendThatWaitsForItsPeerIsCancelledByItsId) {
  make();
  at(0).introduces = false;
  std::vector<std::byte> bytes = bytes_of(8, 1), other = bytes_of(8, 2), room(8);
  EXPECT_EQ(send(0, 1, bytes, nullptr, SendMode::kStandard, kKey, 5).progressed, Progressed::kDone);
  EXPECT_EQ(send(0, 1, other, nullptr, SendMode::kStandard, kKey, 6).progressed, Progressed::kDone);
  settle();
  ASSERT_EQ(at(0).words().inline_done, 0U);
  EXPECT_EQ(port(0).cancel_send(kNoOperation, PeerId{1}, kKey, 5, cookie(2)), Progressed::kDone);
  settle();
  EXPECT_FALSE(at(0).has(cookie(2)));
  EXPECT_EQ(at(0).words().inline_done, 1U);
  port(0).introduce(PeerId{1}, cards[1]);
  receive(1, room, cookie(3));
  settle();
  EXPECT_EQ(room, other);
  EXPECT_EQ(at(0).words().inline_done, 2U);
}

/// Its event is where the client takes it without a call: it is done, and its message stays.
TEST_F(RingPortTest, ASendWhoseEventWaitsToBeTakenIsNotCancelled) {
  make();
  std::vector<std::byte> bytes = bytes_of(kInlineBytes + 1, 1), room(bytes.size());
  const Sent sent = send(0, 0, bytes, cookie(1), SendMode::kStandard, kKey, 5);
  ASSERT_EQ(sent.progressed, Progressed::kPending);
  work();
  port(0).progress();
  EXPECT_EQ(port(0).cancel_send(sent.operation, PeerId{0}, kKey, 5, cookie(2)), Progressed::kFailed);
  receive(0, room, cookie(3));
  settle();
  EXPECT_EQ(at(0).of(cookie(1)).kind, Event::Kind::kSendDone);
  EXPECT_FALSE(at(0).has(cookie(2)));
  EXPECT_EQ(room, bytes);
}

/// What needs no peer is decided when the call returns: MPI_Cancel, then MPI_Request_get_status.
TEST_F(RingPortTest, ACancellationThatNeedsNoPeerIsDecidedAtOnce) {
  make();
  at(0).introduces = false;
  std::vector<std::byte> bytes = bytes_of(8, 1), room(8);
  for (const std::uint32_t to : {0U, 1U}) {  // To itself, and to one that is not introduced.
    const Sent sent = send(0, to, bytes, cookie(1), SendMode::kSynchronous, kKey, 5);
    ASSERT_EQ(sent.progressed, Progressed::kPending);
    EXPECT_EQ(port(0).cancel_send(sent.operation, PeerId{to}, kKey, 5, cookie(2)), Progressed::kDone);
    settle();
    EXPECT_FALSE(at(0).has(cookie(1)));
    EXPECT_FALSE(at(0).has(cookie(2)));
  }
  // One that has matched is done, and its event is there.
  const Sent sent = send(0, 0, bytes, cookie(3), SendMode::kSynchronous, kKey, 5);
  receive(0, room, cookie(4));
  EXPECT_EQ(port(0).cancel_send(sent.operation, PeerId{0}, kKey, 5, cookie(2)), Progressed::kFailed);
  at(0).take();
  EXPECT_EQ(at(0).of(cookie(3)).status, Status::kOk);
  EXPECT_EQ(room, bytes);
  EXPECT_FALSE(port(0).server.is_refused());
}

TEST_F(RingPortTest, APurgeFinishesReceivesAndReturnsAfterwards) {
  make();
  receive(0, {}, cookie(1));
  receive(0, {}, cookie(2), kOtherKey);
  const MatchPattern doomed{MatchKey{}, ~MatchKey{}}, spared{kOtherKey, kIgnoreNothing};
  port(0).purge(PurgeScope::kAll, {&doomed, 1}, {&spared, 1}, Status::kPeerFailed);
  settle();
  EXPECT_TRUE(at(0).of(cookie(1)).is_cancelled);
  EXPECT_EQ(at(0).of(cookie(1)).status, Status::kPeerFailed);
  EXPECT_FALSE(at(0).has(cookie(2)));
}

// Names.

TEST_F(RingPortTest, ANameThatIsOverIsNotFoundAlthoughItsSlotIsUsedAgain) {
  make();
  std::vector<std::byte> bytes = bytes_of(8, 1), room(8);
  const OperationId first = receive(0, room, cookie(1));
  send(0, 0, bytes);
  settle();
  ASSERT_TRUE(at(0).has(cookie(1)));
  const OperationId second = receive(0, room, cookie(2));
  ASSERT_EQ(static_cast<std::uint32_t>(second), static_cast<std::uint32_t>(first));
  ASSERT_NE(second, first);
  EXPECT_FALSE(port(0).cancel_receive(first));
  send(0, 0, bytes);
  settle();
  EXPECT_EQ(at(0).of(cookie(2)).status, Status::kOk);

  const OperationId third = receive(0, room, cookie(3));
  EXPECT_FALSE(port(0).cancel_receive(second));
  EXPECT_TRUE(port(0).cancel_receive(third));
}

/// The processor finds the old name's slot in use by the new one.
TEST_F(RingPortTest, TheProcessorDoesNotTakeAnOldNameForANewOne) {
  make();
  std::vector<std::byte> room(8);
  RingProducer commands = port(0).memory->command_producer();
  const auto give = [&](CommandKind kind, std::uint64_t operation) {
    CommandRecord command;
    command.kind = kind;
    command.operation = OperationId{operation};
    command.bits = kKey.bits;
    command.initiator = kKey.initiator;
    command.address = reinterpret_cast<std::uintptr_t>(room.data());
    command.length_bytes = room.size();
    ASSERT_TRUE(commands.has_room(sizeof command));
    std::memcpy(commands.payload(), &command, sizeof command);
    commands.publish(RecordKind::kMessage, sizeof command);
    port(0).server.turn();
  };
  constexpr std::uint64_t kOld = (std::uint64_t{1} << 32) + 1, kNew = (std::uint64_t{2} << 32) + 1;
  give(CommandKind::kReceive, kOld);
  give(CommandKind::kCancelReceive, kOld);
  EXPECT_EQ(at(0).words().answer, 1U);
  give(CommandKind::kReceive, kNew);
  give(CommandKind::kCancelReceive, kOld);
  EXPECT_EQ(at(0).words().answered, 2U);
  EXPECT_EQ(at(0).words().answer, 0U);
  give(CommandKind::kCancelReceive, kNew);
  EXPECT_EQ(at(0).words().answer, 1U);
  EXPECT_FALSE(port(0).server.is_refused());
}

// Rubbish.

/// A client that writes what it likes into the command ring of process 0. Process 1 has another client.
class HostileClient : public RingPortTest {
 protected:
  HostileClient() {
    make();
    commands_ = port(0).memory->command_producer();
  }
  /// Other processes, which know nothing of what was given.
  void begin_again() {
    processes.clear();
    cards.clear();
    make();
    commands_ = port(0).memory->command_producer();
  }
  void give(std::span<const std::byte> bytes, RecordKind kind = RecordKind::kMessage) {
    ASSERT_TRUE(commands_.has_room(bytes.size()));
    std::memcpy(commands_.payload(), bytes.data(), bytes.size());
    commands_.publish(kind, bytes.size());
  }
  void give(const CommandRecord& command, std::size_t more_bytes = 0) {
    std::vector<std::byte> bytes(sizeof command + more_bytes);
    std::memcpy(bytes.data(), &command, sizeof command);
    give(bytes);
  }
  static CommandRecord command(CommandKind kind, std::uint64_t operation = 0) {
    CommandRecord command;
    command.kind = kind;
    command.operation = OperationId{operation};
    return command;
  }
  std::uint64_t answered() { return at(0).words().answered; }
  static constexpr std::uint64_t name(std::uint32_t number) { return std::uint64_t{1} << 32 | number; }
  bool is_refused() {
    for (int i = 0; i < 3; ++i) port(0).server.turn();
    return port(0).server.is_refused();
  }
  /// It is refused, and takes nothing more. The other client does not notice.
  void expect_refused() {
    EXPECT_TRUE(is_refused());
    const std::uint64_t answered = at(0).words().answered;
    give(command(CommandKind::kStopKeeping));
    EXPECT_TRUE(is_refused());
    EXPECT_EQ(at(0).words().answered, answered);

    std::vector<std::byte> bytes = bytes_of(8, 1), room(8);
    receive(1, room, cookie(1));
    send(1, 1, bytes);
    settle();
    EXPECT_EQ(at(1).of(cookie(1)).status, Status::kOk);
    EXPECT_EQ(room, bytes);
    EXPECT_FALSE(port(1).server.is_refused());
  }

 private:
  RingProducer commands_;
};

TEST_F(HostileClient, IsNotRefusedForWhatIsRight) {
  give(command(CommandKind::kReceive, name(1)));
  give(command(CommandKind::kProbe), sizeof(MatchKey));
  give(command(CommandKind::kPurge));
  EXPECT_FALSE(is_refused());
  EXPECT_EQ(at(0).words().answered, 2U);
}

/// It looks at all receives and messages, while the processor's other clients wait.
TEST_F(HostileClient, APurgeEndsItsTurn) {
  for (int i = 0; i < 3; ++i) give(command(CommandKind::kPurge));
  give(command(CommandKind::kStopKeeping));
  give(command(CommandKind::kStopKeeping));
  for (const std::uint64_t after : {1U, 2U, 3U, 5U}) {
    port(0).server.turn();
    EXPECT_EQ(answered(), after);
  }
}

TEST_F(HostileClient, IsRefusedForAWrongKind) {
  give(command(static_cast<CommandKind>(0)));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAKindBehindTheLast) {
  give(command(static_cast<CommandKind>(static_cast<int>(CommandKind::kSchedule) + 1)));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForARecordThatIsNoMessage) {
  const std::byte write[sizeof(WriteRecord)] = {};
  give(write, RecordKind::kWrite);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForARecordHeaderThatIsRubbish) {
  auto* const header = reinterpret_cast<std::uint64_t*>(port(0).memory->command_producer().payload()) - 1;
  std::atomic_ref<std::uint64_t>(*header).store(0xDEADBEEFDEADBEEF);
  EXPECT_TRUE(is_refused());
}
TEST_F(HostileClient, IsRefusedForACommandWithoutAHead) {
  const std::byte little[4] = {std::byte{static_cast<unsigned char>(CommandKind::kReceive)}};
  give(little);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForHalfACommand) {
  CommandRecord half = command(CommandKind::kReceive, name(1));
  give(std::as_bytes(std::span(&half, 1)).first(sizeof half - 8));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForBytesBehindACommand) {
  give(command(CommandKind::kReceive, name(1)), 8);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAProbeWithoutAMask) {
  give(command(CommandKind::kProbe));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAMode) {
  CommandRecord wrong = command(CommandKind::kSend, name(1));
  wrong.mode = 3;
  give(wrong);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForNamesThatAreNone) {
  give(command(CommandKind::kReceive, 0));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForANameWithoutAGeneration) {
  give(command(CommandKind::kReceive, 1));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForANameOutOfRange) {
  give(command(CommandKind::kReceive, name(2)));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForANameFarOutOfRange) {
  give(command(CommandKind::kSend, UINT64_MAX));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForANameInUse) {
  give(command(CommandKind::kReceive, name(1)));
  EXPECT_FALSE(is_refused());
  give(command(CommandKind::kReceive, name(1) + (std::uint64_t{1} << 32)));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForTooManyPartsOfAPacket) {
  CommandRecord wrong = command(CommandKind::kPacket, name(1));
  wrong.count = kMostPacketParts + 1;
  give(wrong, wrong.count * sizeof(Payload));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAPacketWithPartsThatAreNotThere) {
  CommandRecord wrong = command(CommandKind::kPacket, name(1));
  wrong.count = 2;
  give(wrong, sizeof(Payload));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAPacketWithAWrongHeaderLength) {
  CommandRecord wrong = command(CommandKind::kPacket, name(1));
  wrong.send_id = 9;
  give(wrong, 8);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAPurgeOfAWrongSize) {
  CommandRecord wrong = command(CommandKind::kPurge);
  wrong.count = 2;
  give(wrong, sizeof(MatchPattern));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAPurgeOfAnEnormousSize) {
  CommandRecord wrong = command(CommandKind::kPurge);
  wrong.count = UINT16_MAX;
  wrong.send_id = UINT32_MAX;
  give(wrong, sizeof(MatchPattern));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForAPurgeWithAReasonThatIsNone) {
  CommandRecord wrong = command(CommandKind::kPurge);
  wrong.length_bytes = 255;
  give(wrong);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForSchedulesThatNoClientGives) {
  const auto is_refused_for = [this](const std::vector<ScheduleStep>& steps, std::size_t cut_bytes = 0) {
    begin_again();
    const CommandRecord head = command(CommandKind::kSchedule, name(1));
    std::vector<std::byte> bytes(sizeof head + steps.size() * sizeof(ScheduleStep));
    std::memcpy(bytes.data(), &head, sizeof head);
    if (!steps.empty()) std::memcpy(bytes.data() + sizeof head, steps.data(), bytes.size() - sizeof head);
    give(std::span(bytes).first(bytes.size() - cut_bytes));
    return is_refused();
  };
  ScheduleStep right;
  right.kind = StepKind::kCombine;
  right.operation = AtomicOperation::kSum;
  right.type = AtomicType::kInt32;
  EXPECT_FALSE(is_refused_for({right}));
  EXPECT_FALSE(is_refused_for(std::vector(kMostScheduleSteps, right)));
  EXPECT_TRUE(is_refused_for({}));
  EXPECT_TRUE(is_refused_for({right}, 1));
  EXPECT_TRUE(is_refused_for(std::vector(kMostScheduleSteps + 1, right)));
  const auto wrong = [&](auto change) {
    ScheduleStep step = right;
    change(step);
    return is_refused_for({right, step});
  };
  EXPECT_TRUE(wrong([](ScheduleStep& step) { step.kind = StepKind::kEnd; }));
  EXPECT_TRUE(wrong([](ScheduleStep& step) { step.kind = StepKind{255}; }));
  EXPECT_TRUE(wrong([](ScheduleStep& step) { step.operation = AtomicOperation::kSwap; }));
  EXPECT_TRUE(wrong([](ScheduleStep& step) { step.operation = AtomicOperation{255}; }));
  EXPECT_TRUE(wrong([](ScheduleStep& step) { step.type = AtomicType::kEnd; }));
  EXPECT_TRUE(wrong([](ScheduleStep& step) { step.length_bytes = 7; }));
  static constexpr PayloadLayout kPacked{.kind = PayloadLayout::Kind::kPacked};
  EXPECT_TRUE(wrong([](ScheduleStep& step) { step.layout = &kPacked; }));
  EXPECT_TRUE(wrong([](ScheduleStep& step) {
    step.kind = StepKind::kReceive;
    step.layout = &kPacked;
  }));
}
TEST_F(HostileClient, IsRefusedForANameOfTheProcessorsSteps) {
  give(command(CommandKind::kReceive, std::uint64_t{ScheduleRunner::kStepGeneration} << 32 | 1));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForALongInlineSend) {
  std::vector<std::byte> bytes(sizeof(InlineRecord) + kInlineBytes + 1);
  bytes[0] = static_cast<std::byte>(CommandKind::kSendInline);
  give(bytes);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForMoreInlineSendsThanThereMayBe) {
  InlineRecord to_a_stranger{CommandKind::kSendInline, 0, 0, 1, 0, 0, 0};
  for (std::uint64_t i = 0; i < kInlineCommands; ++i) give(std::as_bytes(std::span(&to_a_stranger, 1)));
  EXPECT_FALSE(is_refused());
  give(std::as_bytes(std::span(&to_a_stranger, 1)));
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForALongCard) {
  give(command(CommandKind::kIntroduce), kInlineBytes);
  EXPECT_FALSE(is_refused());
  give(command(CommandKind::kIntroduce), kInlineBytes + 1);
  expect_refused();
}
TEST_F(HostileClient, IsRefusedForSharingWithAProcessorOfItsOwn) {
  give(command(CommandKind::kShare));
  expect_refused();
}
/// It would get no event any more, and wait for ever.
TEST_F(HostileClient, IsRefusedForAnImpossibleWordOfWhatItHasTaken) {
  void* const page = ::mmap(nullptr, sizeof(RingControl), PROT_READ | PROT_WRITE, MAP_SHARED,
                            port(0).memory->files()[PortMemory::kEventFile], 0);
  ASSERT_NE(page, MAP_FAILED);
  static_cast<RingControl*>(page)->consumer_position.store(std::uint64_t{1} << 40);
  ::munmap(page, sizeof(RingControl));
  CommandRecord receive = command(CommandKind::kReceiveMatched, name(1));  // Ends at once, with an error.
  for (std::uint32_t i = 1; i < kEventRingBytes / 64 + 10 && !is_refused(); ++i) {
    receive.operation = OperationId{std::uint64_t{i} << 32 | 1};
    give(receive);
  }
  EXPECT_TRUE(is_refused());
}
TEST_F(HostileClient, IsRefusedForAnEmptyPacket) {
  InlineRecord empty{CommandKind::kPacketInline, 0, 0, 1, 0, 0, 0};
  give(std::as_bytes(std::span(&empty, 1)));
  expect_refused();
}

/// Two clients in other processes, on two nodes whose device takes its time to register memory.
class ClientsOfTwoNodes : public testing::Test {
 protected:
  static constexpr std::size_t kLength = 200'000;
  /// The arena keeps no block so long for the next one.
  static constexpr std::size_t kBlockBytes = SharedArena::kMostKeptBytes + (1U << 20);

  ClientsOfTwoNodes() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      networks_[i] = network_.make_provider(PeerId{i});
      nodes_[i] = std::make_unique<Exchange>(PeerId{i}, 2, networks_[i].get());
      ports_[i] = nodes_[i]->attach(PeerId{i});
      others_[i] = std::make_unique<OtherProcess>(2, *ports_[i]);
      Provider* const providers[] = {ports_[i].get()};
      EngineConfig config;
      config.self = PeerId{i};
      config.senders = 2;
      config.landing_numbers = ports_[i]->landing_numbers();
      clients_[i] = std::make_unique<SteppedRings>(config, providers, i + 1, others_[i].get());
      blocks_[i] = clients_[i]->arena()->allocate(kBlockBytes);
    }
  }
  ~ClientsOfTwoNodes() override {
    for (auto& client : clients_) client.reset();
    for (auto& port : ports_) port.reset();
    EXPECT_EQ(network_.violations(), std::vector<std::string>{});
  }
  static FakeConfig config() {
    FakeConfig config;
    config.write_threshold_bytes = 1000;
    config.registering_costs = true;
    return config;
  }
  void step() {
    network_.advance();
    for (std::uint32_t i = 0; i < 2; ++i) {
      nodes_[i]->poll();
      clients_[i]->progress();
      for (Event event; clients_[i]->next_event(event);) {
        if (event.kind == Event::Kind::kCardWanted)
          clients_[i]->introduce(event.peer, clients_[index_of(event.peer)]->card());
        received_ += event.kind == Event::Kind::kReceiveDone;
        sent_ += event.kind == Event::Kind::kSendDone;
      }
    }
  }
  /// From block to block.
  void send(std::size_t length_bytes) {
    std::memset(blocks_[0], ++filler_, length_bytes);
    OperationId operation;
    Envelope envelope;
    Status status;
    const int received = received_, sent = sent_;
    const MatchKey key = make_match_key(1, 0, 0);
    ASSERT_EQ(clients_[1]->post_receive(key, kIgnoreNothing, {blocks_[1], length_bytes, nullptr}, nullptr,
                                        operation, envelope),
              Progressed::kPending);
    ASSERT_EQ(clients_[0]->send(PeerId{1}, SendMode::kSynchronous, key, {blocks_[0], length_bytes, nullptr},
                                0, nullptr, operation, status),
              Progressed::kPending);
    for (int i = 0; i < 20'000 && (received_ == received || sent_ == sent); ++i) step();
    ASSERT_EQ(received_, received + 1);
    ASSERT_EQ(sent_, sent + 1);
    EXPECT_EQ(blocks_[1][0], std::byte{filler_});
    EXPECT_EQ(blocks_[1][length_bytes - 1], std::byte{filler_});
  }
  const Counters& counters(std::uint32_t i) { return clients_[i]->counters(); }

  FakeNetwork network_{config()};
  std::array<std::unique_ptr<Provider>, 2> networks_;
  std::array<std::unique_ptr<Exchange>, 2> nodes_;
  std::array<std::unique_ptr<ExchangePort>, 2> ports_;
  std::array<std::unique_ptr<OtherProcess>, 2> others_;
  std::array<std::unique_ptr<SteppedRings>, 2> clients_;
  std::array<std::byte*, 2> blocks_{};
  unsigned char filler_ = 0;
  int received_ = 0, sent_ = 0;
};

TEST_F(ClientsOfTwoNodes, SharedMemoryIsWrittenToAndStaysRegisteredUntilItIsUnshared) {
  for (const int times : {1, 2}) {
    for (int i = 0; i < 3; ++i) send(kLength);
    for (const std::uint32_t i : {0U, 1U}) {
      EXPECT_EQ(counters(i).pin_misses, static_cast<unsigned>(times));
      EXPECT_EQ(counters(i).pin_hits, 2U * static_cast<unsigned>(times));
      EXPECT_TRUE(clients_[i]->arena()->give_back(blocks_[i]));
      blocks_[i] = clients_[i]->arena()->allocate(kBlockBytes);  // Perhaps at the same address.
      for (int steps = 0; steps < 10; ++steps) step();
      EXPECT_EQ(counters(i).pin_invalidations, static_cast<unsigned>(times));
    }
  }
  EXPECT_EQ(counters(0).bulk_written, 6U);
  EXPECT_EQ(counters(0).bulk_bounced, 0U);
}

TEST_F(ClientsOfTwoNodes, WhatIsShortForTheirDeviceIsNotRegistered) {
  send(999);
  EXPECT_EQ(counters(0).bulk_bounced + counters(0).bulk_written, 1U);
  EXPECT_EQ(counters(0).pin_misses + counters(1).pin_misses, 0U);
}

/// Clients in other processes. Client 1 announces a long part of a packet to client 0.
class HostileOtherProcess : public TwoClients {
 protected:
  std::span<std::byte> block(std::uint32_t i) { return {clients_[i]->arena()->allocate(kLength), kLength}; }
  void send_packet(std::span<const std::byte> bytes) {
    const std::array<std::byte, 40> header{};
    const Payload data{const_cast<std::byte*>(bytes.data()), bytes.size(), nullptr};
    Status status = Status::kOk;
    ASSERT_EQ(clients_[1]->send_packet(PeerId{0}, header, {&data, 1}, nullptr, status), Progressed::kPending);
  }
};

TEST_F(HostileOtherProcess, ALongPartIsWrittenToItsPlaceInSharedMemory) {
  const auto sent = block(1), room = block(0);
  std::memset(sent.data(), 0x3C, kLength);
  send_packet(sent);
  ASSERT_TRUE(await(0, Event::Kind::kPacketOffer));
  clients_[0]->place_packet(PeerId{1}, {room.data(), kLength, nullptr});
  ASSERT_TRUE(await(0, Event::Kind::kPacketPlaced));
  EXPECT_EQ(room.front(), std::byte{0x3C});
  EXPECT_EQ(room.back(), std::byte{0x3C});
  EXPECT_EQ(clients_[0]->counters().packet_bytes_placed, kLength);
}

TEST_F(HostileOtherProcess, APlaceThatIsNotSharedIsNoPlace) {
  const auto sent = block(1);
  std::vector<std::byte> room(kLength);
  send_packet(sent);
  ASSERT_TRUE(await(0, Event::Kind::kPacketOffer));
  clients_[0]->place_packet(PeerId{1}, {room.data(), kLength, nullptr});
  EXPECT_TRUE(await(0, Event::Kind::kPacket));
  EXPECT_EQ(clients_[0]->counters().packet_bytes_placed, 0u);
}

/// The memory of the first answer is in use: another answer must not take its place.
TEST_F(HostileOtherProcess, ASecondAnswerToAnOfferHasNoEffect) {
  const auto sent = block(1), room = block(0), other = block(0);
  std::memset(sent.data(), 0x3C, kLength);
  send_packet(sent);
  ASSERT_TRUE(await(0, Event::Kind::kPacketOffer));
  clients_[0]->place_packet(PeerId{1}, {room.data(), kLength, nullptr});
  clients_[0]->place_packet(PeerId{1}, {other.data(), kLength, nullptr});
  ASSERT_TRUE(await(0, Event::Kind::kPacketPlaced));
  EXPECT_EQ(room.back(), std::byte{0x3C});
  EXPECT_EQ(other.back(), std::byte{});
}

/// The kernel's copy of so little would take longer than all else.
TEST_F(HostileOtherProcess, AShortMessageForMemoryThatIsNotSharedComesWithItsEvent) {
  const std::array<Piece, 2> pieces{{{1, 2}, {5, 1}}};
  const PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces,
                             .piece_count = 2,
                             .pieces = pieces.data(),
                             .element_bytes = 3,
                             .extent_bytes = 8};
  for (const PayloadLayout* const its_layout : {static_cast<const PayloadLayout*>(nullptr), &layout})
    for (const std::size_t length : {std::size_t{3}, kInlineBytes - kInlineBytes % 3, 3 * kInlineBytes}) {
      const std::vector<std::byte> sent = bytes_of(length, length);
      std::vector<std::byte> room(3 * length), expected(3 * length);
      const Payload payload{room.data(), length, its_layout};
      scatter({expected.data(), length, its_layout}, 0, sent);
      OperationId operation{};
      Envelope envelope;
      ASSERT_EQ(clients_[0]->post_receive(kKey, kIgnoreNothing, payload, cookie(1), operation, envelope),
                Progressed::kPending);
      Status status = Status::kOk;
      clients_[1]->send(PeerId{0}, SendMode::kStandard, kKey,
                        {const_cast<std::byte*>(sent.data()), length, nullptr}, 0, cookie(2), operation,
                        status);
      for (std::uint64_t before = clients_[0]->counters().received_expected, turns = 0;
           clients_[0]->counters().received_expected == before; ++turns) {
        ASSERT_LT(turns, 2000u);
        exchange_.poll();
        for (auto& client : clients_) client->server.turn();
        // Who asks for a card gets it: only the first message does.
        if (clients_[1]->progress() > 0)
          for (Event event; clients_[1]->next_event(event);)
            if (event.kind == Event::Kind::kCardWanted)
              clients_[1]->introduce(event.peer, clients_[0]->card());
      }
      EXPECT_EQ(room == std::vector<std::byte>(room.size()), length <= kInlineBytes) << length;
      ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
      EXPECT_EQ(room, expected) << length;
    }
}

TEST_F(HostileOtherProcess, AShortMessageIsNotLookedForWhereItWasToBeStaged) {
  PayloadLayout layout{.kind = PayloadLayout::Kind::kPacked};
  layout.pack = [](const void*, std::size_t, std::byte*, std::size_t) noexcept {};
  layout.unpack = [](void* context, std::size_t offset, const std::byte* from, std::size_t length) noexcept {
    std::memcpy(static_cast<std::byte*>(context) + offset, from, length);
  };
  std::vector<std::byte> room(kLength);
  const std::vector<std::byte> sent = bytes_of(8, 1);
  others_[0]->shares_nothing = true;
  OperationId operation{};
  Envelope envelope;
  clients_[0]->post_receive(kKey, kIgnoreNothing, {room.data(), kLength, &layout}, cookie(1), operation,
                            envelope);
  Status status = Status::kOk;
  clients_[1]->send(PeerId{0}, SendMode::kStandard, kKey, {const_cast<std::byte*>(sent.data()), 8, nullptr},
                    0, cookie(2), operation, status);
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), room.begin()));
}

/// Messages of one neighbour to the other, and back, while the kernel refuses copies.
class RefusedCopies : public HostileOtherProcess {
 protected:
  RefusedCopies() {
    for (auto& other : others_) other->failed_copies = 1;
  }
  struct Message {
    std::size_t length = 0;
    SendMode mode = SendMode::kStandard;
    const PayloadLayout* layout = nullptr;
  };
  /// From 1 to 0. The receive is posted first, or last.
  void exchange(const Message& what, bool is_expected) {
    SCOPED_TRACE(testing::Message() << what.length << " bytes, expected: " << is_expected);
    std::vector<std::byte> sent = bytes_of(3 * what.length, what.length), room(3 * what.length),
                           packed(what.length);
    const Payload payload{sent.data(), what.length, what.layout},
        place{room.data(), what.length, what.layout};
    std::vector<std::byte> expected(room.size());
    gather(payload, 0, packed);
    scatter({expected.data(), what.length, what.layout}, 0, packed);
    OperationId operation{};
    Envelope envelope;
    Status status = Status::kOk;
    const auto receive = [&] {
      EXPECT_EQ(clients_[0]->post_receive(kKey, kIgnoreNothing, place, cookie(1), operation, envelope),
                Progressed::kPending);
    };
    if (is_expected) receive();
    const Progressed progressed =
        clients_[1]->send(PeerId{0}, what.mode, kKey, payload, 0, cookie(2), operation, status);
    if (!is_expected) {
      for (int turns = 0; turns < 50; ++turns) pump();
      receive();
    }
    const int sends = progressed == Progressed::kPending;
    for (int turns = 0; turns < 20'000 && (received_ == 0 || sent_ < sends); ++turns) pump();
    EXPECT_EQ(std::exchange(received_, 0), 1);
    EXPECT_EQ(std::exchange(sent_, 0), sends);
    EXPECT_EQ(room, expected);
    for (auto& other : others_) EXPECT_FALSE(other->memory.is_broken()) << other->memory.reason();
  }
  /// A turn of all. Answers who asks for a card.
  void pump() {
    exchange_.poll();
    for (auto& client : clients_) {
      client->progress();
      for (Event event; client->next_event(event);) {
        received_ += event.kind == Event::Kind::kReceiveDone;
        sent_ += event.kind == Event::Kind::kSendDone;
        if (event.kind == Event::Kind::kCardWanted)
          client->introduce(event.peer, clients_[index_of(event.peer)]->card());
      }
    }
  }
  void exchange_all() {
    static constexpr std::array<Piece, 2> kPieces{{{1, 2}, {5, 1}}};
    static constexpr PayloadLayout kLayout{.kind = PayloadLayout::Kind::kPieces,
                                           .piece_count = 2,
                                           .pieces = kPieces.data(),
                                           .element_bytes = 3,
                                           .extent_bytes = 8};
    for (const std::size_t length : {6u, 3'000u, 99'000u, 1'200'000u})
      for (const SendMode mode : {SendMode::kStandard, SendMode::kSynchronous})
        for (const bool is_expected : {true, false}) {
          exchange({length, mode, nullptr}, is_expected);
          exchange({length, mode, &kLayout}, is_expected);
        }
  }

  int received_ = 0, sent_ = 0;
};

TEST_F(RefusedCopies, AllMessagesArriveWhateverIsRefusedAndWheneverItBegins) {
  constexpr std::pair<int, int> kCases[] = {{0, EPERM}, {1, EFAULT}, {2, EPERM}, {5, EFAULT}};
  for (const auto& [allowed, error] : kCases) {
    for (auto& other : others_) {
      other->kernel.allowed = other->kernel.copies + allowed;
      other->kernel.error = error;
    }
    exchange_all();
  }
  // All that is refused for good is staged from then on.
  EXPECT_GT(clients_[1]->ring_counters().client.staged, 0u);
  const int copies = others_[1]->kernel.copies;
  exchange_all();
  EXPECT_EQ(others_[1]->kernel.copies, copies);
}

TEST_F(RefusedCopies, ReadsAloneOrWritesAlone) {
  others_[0]->kernel.allowed = others_[1]->kernel.allowed = 0;
  for (auto& other : others_) other->kernel.error = EFAULT;
  others_[0]->kernel.refuses_reads = others_[1]->kernel.refuses_reads = false;
  exchange_all();
  for (auto& other : others_) {
    other->kernel.refuses_reads = true;
    other->kernel.refuses_writes = false;
  }
  exchange_all();
}

/// Who never sends hears of it, too: else the processor would keep each message that it receives.
TEST_F(RefusedCopies, WhoOnlyReceivesStagesFromThenOn) {
  others_[0]->kernel.allowed = 0;
  exchange({99'000, SendMode::kStandard, nullptr}, true);
  EXPECT_EQ(clients_[0]->ring_counters().client.staged, 0u);
  exchange({99'000, SendMode::kStandard, nullptr}, true);
  EXPECT_EQ(clients_[0]->ring_counters().client.staged, 1u);
}

/// What cannot be staged waits until the processor asks for it, a part at a time.
TEST_F(RefusedCopies, WhatFindsNoRoomToBeStagedArrivesNevertheless) {
  for (auto& other : others_) other->kernel.allowed = 0;
  exchange({8'000, SendMode::kStandard, nullptr}, true);
  std::vector<std::byte*> taken;
  others_[1]->shares_nothing = true;
  while (std::byte* const block = clients_[1]->arena()->allocate(kGivenBytes)) taken.push_back(block);
  ASSERT_FALSE(clients_[1]->arena()->allocate(3'000'000));
  others_[1]->shares_nothing = false;
  std::byte* const window = clients_[1]->arena()->allocate(kGivenBytes);
  ASSERT_TRUE(window != nullptr && clients_[1]->arena()->give_back(window));
  others_[1]->shares_nothing = true;
  exchange({3'000'000, SendMode::kStandard, nullptr}, true);
}

/// Without memory that both reach, the commands take the bytes along.
TEST_F(RefusedCopies, AllMessagesArriveWithoutSharedMemory) {
  for (auto& other : others_) {
    other->kernel.allowed = 0;
    other->shares_nothing = true;
  }
  exchange_all();
  EXPECT_FALSE(clients_[1]->arena()->allocate(1));
}

/// A slot may hold several parts, which come one after the other.
TEST_F(RefusedCopies, PacketsArrive) {
  constexpr std::size_t kPart = 9'000;
  others_[1]->kernel.allowed = 0;
  std::vector<std::byte> sent = bytes_of(3 * kPart, 1);
  const std::array<std::byte, 40> header{};
  std::array<Payload, 3> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = {sent.data() + i * kPart, kPart, nullptr};
  Status status = Status::kOk;
  ASSERT_EQ(clients_[1]->send_packet(PeerId{0}, header, parts, nullptr, status), Progressed::kPending);
  std::vector<std::byte> arrived;
  for (int turns = 0; turns < 20'000 && arrived.size() < sent.size() + 40; ++turns) {
    exchange_.poll();
    for (std::uint32_t each = 0; each < 2; ++each) {
      clients_[each]->progress();
      for (Event event; clients_[each]->next_event(event);) {
        if (event.kind == Event::Kind::kCardWanted)
          clients_[each]->introduce(event.peer, clients_[index_of(event.peer)]->card());
        if (event.kind == Event::Kind::kPacket)
          arrived.insert(arrived.end(), event.bytes, event.bytes + event.length_bytes);
        if (event.kind == Event::Kind::kPacketOffer) clients_[each]->place_packet(event.peer, {});
      }
    }
  }
  ASSERT_EQ(arrived.size(), sent.size() + 40);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), arrived.begin() + 40));
}

/// A client that names memory that it does not have hears of no success.
TEST_F(RefusedCopies, NoReceiveSucceedsWithoutItsBytes) {
  void* const nobodys = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nobodys, MAP_FAILED);
  std::vector<std::byte> sent = bytes_of(5'000, 1);
  OperationId operation{};
  Envelope envelope;
  Status status = Status::kOk;
  clients_[0]->post_receive(kKey, kIgnoreNothing, {static_cast<std::byte*>(nobodys), 5'000, nullptr},
                            cookie(1), operation, envelope);
  clients_[1]->send(PeerId{0}, SendMode::kStandard, kKey, {sent.data(), sent.size(), nullptr}, 0, cookie(2),
                    operation, status);
  EXPECT_FALSE(await(0, Event::Kind::kReceiveDone));
  EXPECT_TRUE(others_[0]->memory.is_broken());
  ::munmap(nobodys, 8192);
}

TEST_F(HostileOtherProcess, ShortMessagesWaitForRoomWithTheirEvents) {
  constexpr std::size_t kMessages = 1500;
  static_assert(kMessages * record_bytes(sizeof(EventRecord) + kInlineBytes) > kEventRingBytes);
  std::vector<std::vector<std::byte>> room(kMessages, std::vector<std::byte>(kInlineBytes));
  for (std::size_t i = 0; i < kMessages; ++i) {
    OperationId operation{};
    Envelope envelope;
    clients_[0]->post_receive(kKey, kIgnoreNothing, {room[i].data(), kInlineBytes, nullptr}, cookie(1 + i),
                              operation, envelope);
    clients_[0]->server.turn();
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    std::vector<std::byte> sent = bytes_of(kInlineBytes, i);
    OperationId operation{};
    Status status = Status::kOk;
    clients_[1]->send(PeerId{0}, SendMode::kStandard, kKey, {sent.data(), sent.size(), nullptr}, 0, nullptr,
                      operation, status);
    // Client 0 takes nothing, but for the first time, when a card is asked for.
    if (i == 0) {
      ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
    }
    while (clients_[0]->counters().received_expected <= i) {
      exchange_.poll();
      clients_[0]->server.turn();
      clients_[1]->progress();
      for (Event event; clients_[1]->next_event(event);) {
      }
    }
  }
  for (std::size_t i = 1; i < kMessages; ++i) ASSERT_TRUE(await(0, Event::Kind::kReceiveDone)) << i;
  for (std::size_t i = 0; i < kMessages; ++i) ASSERT_EQ(room[i], bytes_of(kInlineBytes, i)) << i;
}

/// The processor of client 0 is hostile: it has no turn of its own.
TEST_F(HostileOtherProcess, NoMoreIsWrittenThanAReceiveHasRoomForAndNothingOfASend) {
  SteppedRings& client = *clients_[0];
  RingProducer events = client.memory->event_producer();
  std::array<std::byte, 16> room{};
  OperationId operation{};
  const auto receive = [&] {
    Envelope envelope;
    EXPECT_EQ(
        client.post_receive(kKey, kIgnoreNothing, {room.data(), 8, nullptr}, cookie(1), operation, envelope),
        Progressed::kPending);
  };
  const auto give_message = [&](std::size_t length_bytes) {
    EventRecord event;
    event.kind = Event::Kind::kReceiveDone;
    event.operation = operation;
    event.length_bytes = length_bytes;
    ASSERT_TRUE(events.has_room(sizeof event + length_bytes));
    std::memcpy(events.payload(), &event, sizeof event);
    std::memset(events.payload() + sizeof event, 0xEE, length_bytes);
    events.publish(RecordKind::kMessage, sizeof event + length_bytes);
    client.RingPort::progress();
    Event taken;
    EXPECT_TRUE(client.next_event(taken));
  };
  receive();
  give_message(9);
  EXPECT_EQ(room, (std::array<std::byte, 16>{}));
  receive();
  give_message(8);
  EXPECT_EQ(room[7], std::byte{0xEE});
  EXPECT_EQ(room[8], std::byte{});
  // The name of a receive that is over is used again.
  room = {};
  std::vector<std::byte> sent(2 * kInlineBytes);
  Status status = Status::kOk;
  EXPECT_EQ(client.send(PeerId{1}, SendMode::kStandard, kKey, {sent.data(), sent.size(), nullptr}, 0,
                        cookie(2), operation, status),
            Progressed::kPending);
  give_message(8);
  EXPECT_EQ(room, (std::array<std::byte, 16>{}));
}

/// The processor compares each message that comes with all receives of such masks, while others wait.
TEST_F(HostileOtherProcess, HasFewReceivesThatOnlyAWalkFinds) {
  std::uint32_t posted = 0;
  const auto post = [&](const MatchKey& ignore) {
    OperationId operation;
    Envelope envelope;
    clients_[0]->post_receive(MatchKey{++posted, 0}, ignore, {}, nullptr, operation, envelope);
    clients_[0]->server.turn();
  };
  while (posted < RingServer::kMostWalked) post(MatchKey{posted + 1, 1});
  for (const MatchKey& ignore : {kIgnoreNothing, kIgnoreInitiator, kIgnoreTag, kIgnoreInitiatorAndTag})
    post(ignore);
  EXPECT_FALSE(others_[0]->memory.is_broken());
  EXPECT_EQ(clients_[0]->counters().posted_depth, posted);
  post(MatchKey{1, 1});
  EXPECT_EQ(clients_[0]->counters().posted_depth, posted - 1);
  EXPECT_NE(others_[0]->memory.reason().find("a mask that is none of MPI's"), std::string::npos);
}

TEST_F(HostileOtherProcess, IsRefusedForAPacketToItself) {
  const std::array<std::byte, 8> header{};
  Status status = Status::kOk;
  clients_[0]->send_packet(PeerId{0}, header, {}, nullptr, status);
  clients_[0]->server.turn();
  EXPECT_TRUE(clients_[0]->server.is_refused());
}

TEST_F(HostileOtherProcess, IsRefusedForAScheduleWithAStranger) {
  struct {
    CommandRecord command;
    ScheduleStep step;
  } record;
  record.command.kind = CommandKind::kSchedule;
  record.command.operation = OperationId{std::uint64_t{1} << 32 | 1};
  record.step.kind = StepKind::kReceive;
  for (const std::uint32_t peer : {1U, 2U}) {
    record.step.peer = peer;
    RingProducer commands = clients_[0]->memory->command_producer();
    if (peer == 2) commands = clients_[1]->memory->command_producer();
    ASSERT_TRUE(commands.has_room(sizeof record));
    std::memcpy(commands.payload(), &record, sizeof record);
    commands.publish(RecordKind::kMessage, sizeof record);
    SteppedRings& client = *clients_[peer - 1];
    client.server.turn();
    EXPECT_EQ(client.server.is_refused(), peer == 2) << "there are two";
  }
}
TEST_F(HostileOtherProcess, IsRefusedForACopyThatItHasNotTaken) {
  RingProducer commands = clients_[0]->memory->command_producer();
  CommandRecord command;
  command.kind = CommandKind::kCopied;
  ASSERT_TRUE(commands.has_room(sizeof command));
  std::memcpy(commands.payload(), &command, sizeof command);
  commands.publish(RecordKind::kMessage, sizeof command);
  clients_[0]->server.turn();
  EXPECT_TRUE(clients_[0]->server.is_refused());
}

/// A processor that writes what it likes into the event ring of process 0. It has no turn of its own.
class HostileProcessor : public RingPortTest {
 protected:
  HostileProcessor() {
    make();
    events_ = port(0).memory->event_producer();
  }
  void give(std::span<const std::byte> bytes) {
    ASSERT_TRUE(events_.has_room(bytes.size()));
    std::memcpy(events_.payload(), bytes.data(), bytes.size());
    events_.publish(RecordKind::kMessage, bytes.size());
  }
  void give(Event::Kind kind, OperationId operation) {
    EventRecord event;
    event.kind = kind;
    event.operation = operation;
    give(std::as_bytes(std::span(&event, 1)));
  }
  void expect_no_event() {
    Event event;
    for (int i = 0; i < 3; ++i) {
      port(0).progress();
      EXPECT_FALSE(port(0).next_event(event));
    }
  }

 private:
  RingProducer events_;
};

TEST_F(HostileProcessor, GivesNoEventByAShortRecord) {
  const std::byte little[sizeof(EventRecord) - 1] = {
      std::byte{static_cast<unsigned char>(Event::Kind::kPeerFailed)}};
  give(little);
  expect_no_event();
}
TEST_F(HostileProcessor, GivesNoEventOfAnUnknownKind) {
  give(static_cast<Event::Kind>(static_cast<int>(Event::Kind::kWarning) + 1), kNoOperation);
  expect_no_event();
}
TEST_F(HostileProcessor, GivesNoEventByARecordHeaderThatIsRubbish) {
  auto* const header = reinterpret_cast<std::uint64_t*>(port(0).memory->event_producer().payload()) - 1;
  std::atomic_ref<std::uint64_t>(*header).store(0xDEADBEEFDEADBEEF);
  expect_no_event();
}
/// The glue takes the cookie of a schedule for something else than that of a message.
TEST_F(HostileProcessor, EndsNoMessageAsAScheduleAndNoScheduleAsAMessage) {
  const OperationId message = receive(0, {}, cookie(1));
  give(Event::Kind::kScheduleDone, message);
  ScheduleStep step;
  step.kind = StepKind::kCount;
  ASSERT_TRUE(port(0).schedule({&step, 1}, {}, cookie(2)));
  const OperationId schedule{static_cast<std::uint64_t>(message) + 1};
  for (const auto kind : {Event::Kind::kSendDone, Event::Kind::kReceiveDone, Event::Kind::kCancelDone})
    give(kind, schedule);
  expect_no_event();
  give(Event::Kind::kScheduleDone, schedule);
  Event event;
  port(0).progress();
  ASSERT_TRUE(port(0).next_event(event));
  EXPECT_EQ(event.cookie, cookie(2));
}
TEST_F(HostileProcessor, CompletesNothingThatHasNoName) {
  const OperationId operation = receive(0, {}, cookie(1));
  for (const OperationId wrong :
       {kNoOperation, OperationId{1}, OperationId{UINT64_MAX},
        OperationId{static_cast<std::uint64_t>(operation) + 1},
        OperationId{static_cast<std::uint64_t>(operation) + (std::uint64_t{1} << 32)}})
    for (const auto kind : {Event::Kind::kSendDone, Event::Kind::kReceiveDone, Event::Kind::kCancelDone})
      give(kind, wrong);
  expect_no_event();
  give(Event::Kind::kReceiveDone, operation);
  give(Event::Kind::kReceiveDone, operation);
  Event event;
  port(0).progress();
  ASSERT_TRUE(port(0).next_event(event));
  EXPECT_EQ(event.cookie, cookie(1));
  expect_no_event();
}

// Sleep.

TEST_F(RingPortTest, AnEventEndsTheSleepOfTheClientOnce) {
  make();
  const int bell = port(0).descriptors()[0];
  settle();
  for (std::uintptr_t sleep = 1; sleep < 4; ++sleep) {
    receive(0, {}, cookie(2 * sleep));
    receive(0, {}, cookie(2 * sleep + 1));
    port(0).server.turn();
    port(0).progress();
    ASSERT_TRUE(port(0).arm());
    ASSERT_FALSE(is_readable(bell));
    send(0, 0, {});
    EXPECT_FALSE(is_readable(bell));
    port(0).server.turn();
    EXPECT_TRUE(is_readable(bell));
    EXPECT_FALSE(port(0).at_rest());
    send(0, 0, {});
    port(0).server.turn();
    std::uint64_t rings = 0;
    ASSERT_EQ(::read(bell, &rings, sizeof rings), static_cast<ssize_t>(sizeof rings));
    EXPECT_EQ(rings, 1U);
    port(0).disarm();
    settle();
    EXPECT_TRUE(at(0).has(cookie(2 * sleep + 1)));
  }
}

TEST_F(RingPortTest, EachCommandAndEachEventIsCounted) {
  make();
  std::vector<std::byte> small = bytes_of(8, 1), longer = bytes_of(5000, 2), room(5000);
  receive(1, room, cookie(1));
  send(0, 1, small);
  settle();  // They know each other.
  const RingCounters sender = port(0).ring_counters(), receiver = port(1).ring_counters();
  for (std::uintptr_t i = 0; i < 10; ++i) {
    receive(1, room, cookie(10 + 2 * i));
    send(0, 1, small);
    receive(1, room, cookie(11 + 2 * i));
    send(0, 1, longer, cookie(11 + 2 * i));
    settle();
  }
  EXPECT_EQ(port(0).ring_counters().client.commands - sender.client.commands, 20U);
  EXPECT_EQ(port(0).ring_counters().processor.events - sender.processor.events, 10U)
      << "small ones have none";
  EXPECT_EQ(port(1).ring_counters().client.commands - receiver.client.commands, 20U);
  EXPECT_EQ(port(1).ring_counters().processor.events - receiver.processor.events, 20U);
  for (const std::uint32_t i : {0U, 1U}) {
    EXPECT_EQ(port(i).ring_counters().client.bells_rung, 0U) << "nobody slept";
    EXPECT_EQ(port(i).ring_counters().processor.bells_rung, 0U);
  }
}

TEST_F(RingPortTest, ASleepCostsOneBellHoweverMuchComes) {
  make();
  const RingCounters& counters = port(0).ring_counters();
  for (std::uintptr_t sleep = 1; sleep < 4; ++sleep) {
    settle();
    for (std::uintptr_t i = 0; i < 5; ++i) receive(0, {}, cookie(10 * sleep + i));
    port(0).server.turn();
    port(0).progress();
    ASSERT_TRUE(port(0).arm());
    ASSERT_TRUE(port(0).server.arm());
    for (int i = 0; i < 5; ++i) send(0, 0, {});
    port(0).server.disarm();
    for (int i = 0; i < 5; ++i) port(0).server.turn();
    port(0).disarm();
    EXPECT_EQ(counters.client.sleeps, sleep);
    EXPECT_EQ(counters.processor.sleeps, sleep);
    EXPECT_EQ(counters.client.bells_rung, sleep);
    EXPECT_EQ(counters.processor.bells_rung, sleep);
  }
  // Who finds work was about to sleep, and a bell may have been rung for it.
  ASSERT_FALSE(port(0).arm());
  receive(0, {}, cookie(1));
  ASSERT_FALSE(port(0).server.arm());
  EXPECT_EQ(counters.client.sleeps, 4U);
  EXPECT_EQ(counters.processor.sleeps, 4U);
}

TEST_F(RingPortTest, TheClientDoesNotSleepWhileAnEventWaits) {
  make();
  receive(0, {}, cookie(1));
  send(0, 0, {});
  port(0).server.turn();
  EXPECT_FALSE(port(0).arm());
  port(0).disarm();
  EXPECT_FALSE(is_readable(port(0).descriptors()[0]));
  settle();
  EXPECT_TRUE(port(0).arm());
}

/// A client that waits for a message to probe hears of it, although there is no event.
TEST_F(RingPortTest, AMessageForAProbeEndsTheSleepOfTheClient) {
  make();
  Envelope envelope;
  settle();
  ASSERT_FALSE(port(0).probe(kKey, kIgnoreNothing, envelope));
  ASSERT_TRUE(port(0).arm());
  send(0, 0, {});
  port(0).server.turn();
  EXPECT_TRUE(is_readable(port(0).descriptors()[0]));
  port(0).disarm();
  EXPECT_TRUE(port(0).may_have_work());
  EXPECT_GT(port(0).progress(), 0U);
  EXPECT_EQ(port(0).progress(), 0U) << "told once";

  // Between the probe and arm().
  ASSERT_FALSE(port(0).probe(kOtherKey, kIgnoreNothing, envelope));
  send(0, 0, {});
  port(0).server.turn();
  EXPECT_FALSE(port(0).arm());
}

TEST_F(RingPortTest, ACommandEndsTheSleepOfTheProcessor) {
  make();
  const int bell = port(0).memory->nic_bell().sleeper;
  settle();
  for (int sleep = 0; sleep < 3; ++sleep) {
    ASSERT_TRUE(port(0).server.arm());
    ASSERT_FALSE(is_readable(bell));
    receive(0, {}, cookie(1));
    EXPECT_TRUE(is_readable(bell));
    port(0).server.disarm();
    EXPECT_FALSE(is_readable(bell));
    receive(0, {}, cookie(2));
    EXPECT_FALSE(is_readable(bell)) << "nobody sleeps";
    EXPECT_FALSE(port(0).server.arm()) << "a command waits";
    settle();
  }
}

TEST_F(RingPortTest, RoomForEventsThatWaitEndsTheSleepOfTheProcessor) {
  make();
  const int bell = port(0).memory->nic_bell().sleeper;
  constexpr std::size_t kMessages = 17'000;
  for (std::size_t i = 0; i < kMessages; ++i) receive(0, {}, cookie(1 + i));
  for (std::size_t i = 0; i < kMessages; ++i) {
    send(0, 0, {});
    port(0).server.turn();
  }
  while (port(0).server.turn() > 0) continue;
  ASSERT_TRUE(port(0).server.arm());
  ASSERT_FALSE(is_readable(bell));
  std::size_t sleeps = 0;
  for (int quiet = 0; quiet < 3; ++quiet) {
    if (at(0).take() > 0) quiet = -1;
    if (!is_readable(bell)) continue;
    ++sleeps;
    port(0).server.disarm();
    while (port(0).server.turn() > 0) continue;
    port(0).server.arm();
  }
  EXPECT_GT(sleeps, 0U);
  EXPECT_EQ(std::count_if(at(0).events.begin(), at(0).events.end(),
                          [](const Event& event) { return event.kind == Event::Kind::kReceiveDone; }),
            std::ptrdiff_t{kMessages});
}

TEST_F(RingPortTest, IsNotIdleUntilTheEngineHasLetAllLeave) {
  make();
  at(0).introduces = false;
  settle();
  ASSERT_TRUE(port(0).idle());
  std::vector<std::byte> bytes = bytes_of(8, 1);
  send(0, 1, bytes);
  EXPECT_FALSE(port(0).idle());
  settle();
  EXPECT_FALSE(port(0).idle()) << "the peer is not introduced";
  port(0).introduce(PeerId{1}, cards[1]);
  EXPECT_FALSE(port(0).idle());
  settle();
  EXPECT_TRUE(port(0).idle());
  receive(0, {}, cookie(1));
  EXPECT_FALSE(port(0).idle()) << "the processor has not seen it";
  port(0).server.turn();
  EXPECT_TRUE(port(0).idle());
}

/// An engine that does what the test says.
class ScriptedPort final : public Port {
 public:
  Progressed send(PeerId, SendMode, const MatchKey&, const Payload&, std::uint32_t, Cookie its_cookie,
                  OperationId& operation, Status& status) noexcept override {
    given = its_cookie;
    operation = progressed == Progressed::kPending ? OperationId{77} : kNoOperation;
    status = reason;
    return progressed;
  }
  ch3_offload_lane_t* lane(PeerId) noexcept override { return nullptr; }
  void nudge(PeerId) noexcept override {}
  Progressed send_packet(PeerId, std::span<const std::byte>, std::span<const Payload>, Cookie its_cookie,
                         Status& status) noexcept override {
    given = its_cookie;
    status = reason;
    return progressed;
  }
  Progressed post_receive(const MatchKey&, const MatchKey&, const Payload&, Cookie, OperationId&,
                          Envelope&) noexcept override {
    return Progressed::kFailed;
  }
  bool receive_now(const MatchKey&, const MatchKey&, const Payload&, Envelope&) noexcept override {
    return false;
  }
  bool probe(const MatchKey&, const MatchKey&, Envelope&) noexcept override { return false; }
  bool matched_probe(const MatchKey&, const MatchKey&, MessageId&, Envelope&) noexcept override {
    return false;
  }
  std::uint64_t arrivals() const noexcept override { return 0; }
  Progressed receive_matched(MessageId, const Payload&, Cookie, Envelope&) noexcept override {
    return Progressed::kFailed;
  }
  bool cancel_receive(OperationId) noexcept override { return false; }
  Progressed cancel_send(OperationId, PeerId, const MatchKey&, std::uint32_t, Cookie) noexcept override {
    return Progressed::kFailed;
  }
  void classify(std::uint64_t channel, TrafficClass traffic_class) noexcept override {
    classified = {channel, traffic_class};
  }
  void purge(PurgeScope, std::span<const MatchPattern>, std::span<const MatchPattern>,
             Status) noexcept override {}
  void introduce(PeerId, std::string_view) noexcept override {}
  void place_packet(PeerId, const Payload&) noexcept override {}
  void fail_peer(PeerId peer) noexcept override { failed.push_back(index_of(peer)); }
  void close_peer(PeerId) noexcept override {}
  std::size_t progress() noexcept override { return 0; }
  bool next_event(Event&) noexcept override { return false; }
  ch3_offload_events_t& events() noexcept override { return events_; }
  bool idle() const noexcept override { return true; }
  bool at_rest() const noexcept override { return true; }
  bool may_have_work() noexcept override { return false; }
  bool arm() noexcept override { return true; }
  void disarm() noexcept override {}
  std::span<const int> descriptors() const noexcept override { return {}; }
  bool keeps_memory() const noexcept override { return false; }
  void memory_gone(const void*, std::size_t) noexcept override {}
  void stop_keeping_memory() noexcept override {}
  std::string card() const override { return {}; }
  const CounterPage& counters() const noexcept override { return counters_; }
  int write_trace(const std::string&) noexcept override { return 0; }

  /// What was given last ends so.
  void end(Status status) noexcept {
    auto& event = reinterpret_cast<Event&>(events_.slots[events_.written++ % CH3_OFFLOAD_EVENT_SLOTS]);
    event = {.kind = Event::Kind::kSendDone, .status = status, .cookie = given};
  }

  Progressed progressed = Progressed::kPending;
  Status reason = Status::kOk;
  Cookie given = nullptr;
  std::vector<std::uint32_t> failed;  ///< Peers, as fail_peer() heard.
  std::pair<std::uint64_t, TrafficClass> classified{};

 private:
  ch3_offload_events_t events_{};
  CounterPage counters_{};
};

/// A client whose engine is scripted. Its commands are written by hand.
class ScriptedServer : public testing::Test {
 protected:
  void give(CommandKind kind, std::uint32_t peer) {
    const struct {
      InlineRecord head;
      std::uint64_t payload;
    } command{{kind, 0, 0, peer, 0, 0, 0}, 1};
    ASSERT_TRUE(commands.has_room(sizeof command));
    std::memcpy(commands.payload(), &command, sizeof command);
    commands.publish(RecordKind::kMessage, sizeof command);
  }

  PortMemory memory = std::move(PortMemory::make().value());
  ScriptedPort engine;
  RingServer server{engine, memory, nullptr};
  RingProducer commands = memory.command_producer();
};

TEST_F(ScriptedServer, AClassComesAlongWithItsChannel) {
  CommandRecord command;
  command.kind = CommandKind::kClassify;
  command.mode = static_cast<std::uint8_t>(TrafficClass::kBulk);
  command.bits = std::uint64_t{7} << 32;
  std::memcpy(commands.payload(), &command, sizeof command);
  commands.publish(RecordKind::kMessage, sizeof command);
  server.turn();
  EXPECT_FALSE(server.is_refused());
  EXPECT_EQ(engine.classified, std::pair(std::uint64_t{7} << 32, TrafficClass::kBulk));
}

/// They were done for the client: the peer would miss them, and take what comes after them.
TEST_F(ScriptedServer, ThePeerOfAnInlineCommandThatIsLostForWantOfMemoryFails) {
  for (const CommandKind kind : {CommandKind::kSendInline, CommandKind::kPacketInline}) {
    engine.failed.clear();
    give(kind, 5);
    server.turn();
    EXPECT_TRUE(engine.failed.empty());
    engine.end(Status::kNoMemory);
    server.turn();
    EXPECT_EQ(engine.failed, std::vector<std::uint32_t>{5});
  }
  EXPECT_EQ(memory.words().inline_done, 2U);
}

TEST_F(ScriptedServer, AnInlineCommandForWhichThereIsNoMemoryIsGivenAgain) {
  for (const CommandKind kind : {CommandKind::kSendInline, CommandKind::kPacketInline}) {
    const std::uint64_t done = memory.words().inline_done;
    engine.progressed = Progressed::kFailed;
    engine.reason = Status::kNoMemory;
    give(kind, 5);
    server.turn();
    EXPECT_EQ(memory.words().inline_done, done);
    engine.progressed = Progressed::kDone;
    engine.reason = Status::kOk;
    server.turn();
    EXPECT_EQ(memory.words().inline_done, done + 1);
  }
  EXPECT_TRUE(engine.failed.empty());
}

}  // namespace ring_port_test
}  // namespace ch3_offload
