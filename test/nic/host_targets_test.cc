// What HostTargets shares with the first client of its engine: events, and the news of peers.

#include "nic/host_targets.h"

#include <gtest/gtest.h>

#include "nic/target_ports_world.h"

namespace ch3_offload {
namespace host_targets_test {

class HostTargetsTest : public TargetPortsWorld {
 protected:
  HostTargetsTest() : TargetPortsWorld(TargetDriver::kHost) {}

  FakeSide& side(std::uint32_t i) { return static_cast<FakeSide&>(*clients[i].side); }
  HostDriver& driver(std::uint32_t i) { return *side(i).driver; }
};

constexpr MatchKey kKey = make_match_key(1, 2, 3);

TEST_F(HostTargetsTest, WhileTheFirstClientHasEventsTheEngineDoesNotWork) {
  make();
  std::vector<std::byte> memory(8), data = pattern(8);
  append(1, entry_of(1, memory));
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack 8");  // Both are introduced.
  expect_came(1, "put 8");
  OperationId operation;
  Envelope envelope;
  Status status = Status::kOk;
  std::byte room[8], bytes[8]{};
  ASSERT_EQ(driver(1).post_receive(kKey, kIgnoreNothing, {room, 8, nullptr}, room, operation, envelope),
            Progressed::kPending);
  ASSERT_NE(
      driver(0).send(PeerId{1}, SendMode::kStandard, kKey, {bytes, 8, nullptr}, 0, bytes, operation, status),
      Progressed::kFailed);
  for (int steps = 0; steps < 10 && !driver(1).engine().has_events(); ++steps) {
    network->advance();
    static_cast<void>(driver(1).progress());
  }
  ASSERT_TRUE(driver(1).engine().has_events()) << "the receive is done, and nobody has heard";
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  for (int i = 0; i < 10; ++i) {
    network->advance();
    static_cast<void>(port(1).progress());
  }
  EXPECT_EQ(came(1), "");
  Event event;
  ASSERT_TRUE(driver(1).next_event(event));
  EXPECT_EQ(event.kind, Event::Kind::kReceiveDone);
  EXPECT_EQ(event.cookie, room);
  expect_begun(0, "send 0, ack 8");
}

TEST_F(HostTargetsTest, NewsOfTheBooksPeersGoToTheBookOnly) {
  make();
  std::vector<std::byte> data = pattern(8), memory(8), got(100'000);
  append(1, entry_of(1, memory));
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack 8");
  network->kill(PeerId{1});
  clients[1].side.reset();
  providers[1].reset();
  ASSERT_EQ(port(0).request(process_of(1), get_from(0, got)), Status::kOk);
  for (int i = 0; i < 50 && side(0).book->forgotten.empty(); ++i) {
    network->advance();
    static_cast<void>(port(0).progress());
    Event event;
    EXPECT_FALSE(driver(0).next_event(event)) << "the first client hears of it";
  }
  EXPECT_EQ(side(0).book->forgotten, std::vector<std::uint32_t>{1});
  EXPECT_EQ(begun(0), "reply undeliverable 0");
}

/// The first client's peers are below that number.
TEST_F(HostTargetsTest, NewsOfOtherPeersGoToTheFirstClient) {
  FakeNetwork its_network{FakeConfig{}};
  const auto provider = its_network.make_provider(PeerId{0});
  Provider* const its_providers[] = {provider.get()};
  EngineConfig config;
  config.senders = 10;
  config.first_book_peer = PeerId{5};
  HostDriver its_driver(config, its_providers);
  FakeProcessBook book(0, {{process_of(0), UserId{1}, ""}});
  HostTargets targets(its_driver, book);
  OperationId operation;
  Status status = Status::kOk;
  std::byte byte{};
  ASSERT_EQ(
      its_driver.send(PeerId{4}, SendMode::kStandard, kKey, {&byte, 1, nullptr}, 0, &byte, operation, status),
      Progressed::kPending);
  ASSERT_EQ(
      its_driver.send(PeerId{5}, SendMode::kStandard, kKey, {&byte, 1, nullptr}, 0, &byte, operation, status),
      Progressed::kPending);
  for (int i = 0; i < 5; ++i) static_cast<void>(targets.progress());
  Event event;
  ASSERT_TRUE(its_driver.next_event(event));
  EXPECT_EQ(event.kind, Event::Kind::kCardWanted);
  EXPECT_EQ(event.peer, PeerId{4});
  EXPECT_FALSE(its_driver.next_event(event));
}

}  // namespace host_targets_test
}  // namespace ch3_offload
