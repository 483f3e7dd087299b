#include "nic/traced_port.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/trace_contents.h"
#include "nic/host_driver.h"
#include "nic/stepped_rings.h"

namespace ch3_offload {
namespace {

constexpr MatchKey kKey = make_match_key(1, 0, 3);

std::uint64_t instant = 0;
std::uint64_t next_instant() noexcept { return ++instant; }

/// A process that speaks to itself, and the traces of both sides of its port.
class TracedPortTest : public testing::Test {
 protected:
  TracedPortTest() {
    std::string pattern = testing::TempDir() + "ch3-trace-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    EngineConfig config;
    config.trace = &engine_trace_;
    port = std::make_unique<TracedPort>(std::make_unique<HostDriver>(config, std::span<Provider* const>{}),
                                        client_trace_);
  }
  ~TracedPortTest() override { std::filesystem::remove_all(directory_); }

  Progressed send(SendMode mode, Cookie cookie, OperationId& operation) {
    Status status{};
    return port->send(PeerId{0}, mode, kKey, {bytes.data(), bytes.size(), nullptr}, 7, cookie, operation,
                      status);
  }
  Progressed receive(Cookie cookie, OperationId& operation) {
    Envelope envelope;
    return port->post_receive(kKey, kIgnoreNothing, {room.data(), room.size(), nullptr}, cookie, operation,
                              envelope);
  }
  Event take() {
    Event event;
    EXPECT_TRUE(port->next_event(event));
    return event;
  }
  TraceContents contents_of(const Trace& trace) const {
    const std::string path = directory_ + "/trace";
    EXPECT_EQ(trace.write(path), 0);
    return read_back(path);
  }
  const std::string& directory() const { return directory_; }
  /// From now on, the port is one with rings.
  void make_rings() {
    EngineConfig config;
    config.trace = &engine_trace_;
    port = std::make_unique<TracedPort>(
        std::make_unique<SteppedRings>(config, std::span<Provider* const>{}, 1), client_trace_);
  }
  TraceContents client() const { return contents_of(client_trace_); }
  TraceContents engine() const { return contents_of(engine_trace_); }

 private:
  std::string directory_;
  Trace engine_trace_{PeerId{0}, 1, 0, next_instant};
  Trace client_trace_{PeerId{0}, 1, 0, next_instant, TraceSide::kClient};

 protected:
  std::unique_ptr<TracedPort> port;
  std::array<std::byte, 24> bytes{};
  std::array<std::byte, 24> room{};
  int one = 0, two = 0;  ///< Their addresses are cookies.
};

/// The event, cookie and outcome of each record.
std::string told(const TraceContents& contents, const void* one, const void* two) {
  std::string text;
  for (const TraceRecord& record : contents.records) {
    const auto cookie = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(record.cookie));
    text += std::string(trace_event_name(static_cast<TraceEvent>(record.event))) +
            (cookie == one   ? "(1)"
             : cookie == two ? "(2)"
                             : "") +
            std::to_string(record.outcome) + " ";
  }
  return text;
}

TEST_F(TracedPortTest, RecordsCommandsAsTheyAreGivenAndCompletionsAsTheyAreTaken) {
  OperationId operation{};
  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  ASSERT_EQ(send(SendMode::kStandard, &two, operation), Progressed::kDone);
  EXPECT_EQ(take().kind, Event::Kind::kReceiveDone);
  const TraceContents contents = client();
  EXPECT_EQ(contents.header.side, static_cast<std::uint16_t>(TraceSide::kClient));
  EXPECT_EQ(told(contents, &one, &two), "ReceiveGiven(1)1 SendGiven(2)0 ReceiveTaken(1)0 ");
  EXPECT_EQ(contents.records[0].detail, abridged(kKey));
  EXPECT_EQ(contents.records[1].detail, bytes.size());
  EXPECT_EQ(engine().header.side, static_cast<std::uint16_t>(TraceSide::kEngine));
}

TEST_F(TracedPortTest, BothSidesNameACommandByItsCookie) {
  OperationId operation{};
  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  ASSERT_EQ(send(SendMode::kStandard, &two, operation), Progressed::kDone);
  take();
  EXPECT_EQ(told(engine(), &one, &two),
            "ReceivePosted(1)0 SendPosted(2)0 Matched(1)0 ReceiveDone(1)0 SendDone(2)0 ");
}

TEST_F(TracedPortTest, ACommandHasTheTimeBeforeItAndHowLongItTook) {
  OperationId operation{};
  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  const TraceRecord given = client().records[0];
  const TraceRecord posted = engine().records[0];
  EXPECT_LT(given.time_ns, posted.time_ns);
  EXPECT_GT(given.time_ns + given.number, posted.time_ns);
}

TEST_F(TracedPortTest, CancelsAreCommands) {
  OperationId operation{};
  ASSERT_EQ(send(SendMode::kSynchronous, &one, operation), Progressed::kPending);
  ASSERT_EQ(port->cancel_send(operation, PeerId{0}, kKey, 7, &one), Progressed::kDone);
  EXPECT_EQ(told(client(), &one, &two), "SendGiven(1)1 CancelGiven(1)0 ");
  ASSERT_EQ(receive(&two, operation), Progressed::kPending);
  EXPECT_TRUE(port->cancel_receive(operation));
  EXPECT_EQ(told(engine(), &one, &two),
            "SendPosted(1)0 Unexpected0 CancelRequested(1)0 ReceivePosted(2)0 "
            "ReceiveCancelled(2)0 ");
}

TEST_F(TracedPortTest, AMatchedReceiveIsACommand) {
  OperationId operation{};
  ASSERT_EQ(send(SendMode::kSynchronous, &one, operation), Progressed::kPending);
  MessageId message{};
  Envelope envelope;
  ASSERT_TRUE(port->matched_probe(kKey, kIgnoreNothing, message, envelope));
  ASSERT_EQ(port->receive_matched(message, {room.data(), room.size(), nullptr}, &two, envelope),
            Progressed::kDone);
  EXPECT_EQ(take().cookie, &one);
  EXPECT_EQ(told(client(), &one, &two), "SendGiven(1)1 MatchedReceiveGiven(2)0 SendTaken(1)0 ");
}

TEST_F(TracedPortTest, NothingPassesByTheTrace) {
  OperationId operation{};
  ASSERT_EQ(send(SendMode::kStandard, &one, operation), Progressed::kDone);
  Envelope envelope;
  EXPECT_FALSE(port->receive_now(kKey, kIgnoreNothing, {room.data(), room.size(), nullptr}, envelope));
  EXPECT_EQ(port->lane(PeerId{0}), nullptr);
  ASSERT_EQ(receive(&two, operation), Progressed::kDone);

  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  ASSERT_EQ(send(SendMode::kStandard, &two, operation), Progressed::kDone);
  Event event;
  EXPECT_EQ(ch3_offload_take_event(&port->events()), nullptr);
  EXPECT_NE(port->events().others, 0u);
  EXPECT_EQ(take().cookie, &one);
  EXPECT_FALSE(port->next_event(event));
}

/// The same through rings, whose processor the test's calls run.
class TracedRingsTest : public TracedPortTest {
 protected:
  TracedRingsTest() { make_rings(); }
  /// Gives the processor turns until there is an event.
  Event await() {
    Event event;
    for (int turn = 0; turn < 100 && !port->next_event(event); ++turn) static_cast<void>(port->progress());
    return event;
  }
};

TEST_F(TracedRingsTest, TheCommandsPositionJoinsBothSides) {
  OperationId operation{};
  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  ASSERT_EQ(send(SendMode::kStandard, &two, operation), Progressed::kDone);
  EXPECT_EQ(await().cookie, &one);
  const TraceContents clients = client(), engines = engine();
  EXPECT_EQ(told(clients, &one, &two),
            "ReceiveGiven(1)1 CommandPublished(1)0 SendGiven(2)0 CommandPublished(2)0 ReceiveTaken(1)0 ");
  EXPECT_EQ(told(engines, &one, &two),
            "CommandTaken0 ReceivePosted0 CommandTaken0 SendPosted0 Matched0 ReceiveDone0 SendDone0 "
            "EventPublished0 ");
  EXPECT_EQ(clients.records[1].detail, engines.records[0].detail);
  EXPECT_EQ(clients.records[3].detail, engines.records[2].detail);
  EXPECT_NE(engines.records[0].detail, engines.records[2].detail);
  // What the engine does of a command has the cookie of its CommandTaken.
  EXPECT_EQ(engines.records[1].cookie, engines.records[0].cookie);
  EXPECT_EQ(engines.records[3].cookie, engines.records[2].cookie);
  EXPECT_EQ(engines.records[7].cookie, engines.records[0].cookie);
}

TEST_F(TracedRingsTest, ACommandIsPublishedWithinItsCallAndTakenAfterwards) {
  OperationId operation{};
  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  ASSERT_EQ(send(SendMode::kStandard, &two, operation), Progressed::kDone);
  await();
  const TraceContents clients = client(), engines = engine();
  EXPECT_GT(clients.records[1].time_ns, clients.records[0].time_ns);
  EXPECT_LT(clients.records[1].time_ns, clients.records[0].time_ns + clients.records[0].number);
  EXPECT_GT(engines.records[0].time_ns, clients.records[1].time_ns);
  EXPECT_GT(clients.records[4].time_ns, engines.records[7].time_ns);
}

TEST_F(TracedRingsTest, QuestionsAreNoCommandsOfTheTrace) {
  OperationId operation{};
  Envelope envelope;
  EXPECT_FALSE(port->probe(kKey, kIgnoreNothing, envelope));
  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  EXPECT_TRUE(port->cancel_receive(operation));
  EXPECT_EQ(told(client(), &one, &two), "ReceiveGiven(1)1 CommandPublished(1)0 ");
  EXPECT_EQ(told(engine(), &one, &two), "Probe0 CommandTaken0 ReceivePosted0 ReceiveCancelled0 ");
}

TEST_F(TracedRingsTest, TheProcessorWritesTheTraceOfItsSide) {
  OperationId operation{};
  ASSERT_EQ(receive(&one, operation), Progressed::kPending);
  const std::string path = directory() + "/engine";
  EXPECT_EQ(port->write_trace(path), 0);
  EXPECT_EQ(told(read_back(path), &one, &two), "CommandTaken0 ReceivePosted0 ");
  EXPECT_EQ(port->write_trace(directory() + "/none/engine"), ENOENT);
}

}  // namespace
}  // namespace ch3_offload
