// Copies that clients make: the class by itself, and messages of two clients of a node.

#include "nic/offered_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "nic/nic_records.h"
#include "nic/two_clients.h"

namespace ch3_offload {
namespace offered_copies_test {

using State = OfferedCopy::State;

std::uint64_t now = 1;
std::uint64_t test_clock() noexcept { return now; }
constexpr std::uint64_t kLong = CycleClock::kAbout20Microseconds << 20;

class OfferedCopiesTest : public testing::Test {
 protected:
  OfferedCopiesTest() {
    copies_.use(&word_);
    copies_.configure(test_clock, 1);
    for (OfferedCopy& one : copy_) one.length_bytes = kLength;
  }
  /// The server's part. Returns the number that the client hears.
  std::uint64_t publish() {
    if (copies_.open_next() == nullptr) return 0;
    copies_.told();
    return copies_.number();
  }
  /// The client's.
  bool take(std::uint64_t number) {
    return word_.compare_exchange_strong(number, number | OfferedCopies::kTaken);
  }

  static constexpr std::size_t kLength = 100'000;
  std::atomic<std::uint64_t> word_{0};
  OfferedCopies copies_;
  OfferedCopy copy_[3];
};

TEST_F(OfferedCopiesTest, IsTakenAndMade) {
  copies_.offer(copy_[0]);
  EXPECT_EQ(copies_.look(copy_[0]), State::kWaiting);
  const std::uint64_t number = publish();
  EXPECT_EQ(copies_.look(copy_[0]), State::kOpen);
  EXPECT_TRUE(take(number));
  now += kLong;
  EXPECT_EQ(copies_.look(copy_[0]), State::kTaken);
  EXPECT_TRUE(copies_.took_command(number, kLength));
  EXPECT_EQ(copies_.look(copy_[0]), State::kDone);
  EXPECT_FALSE(copies_.took_command(number, kLength));
}

TEST_F(OfferedCopiesTest, OfWhichAPartIsMissingHasFailed) {
  copies_.offer(copy_[0]);
  const std::uint64_t number = publish();
  EXPECT_TRUE(take(number));
  EXPECT_TRUE(copies_.took_command(number, kLength - 1));
  EXPECT_EQ(copies_.look(copy_[0]), State::kFailed);
}

TEST_F(OfferedCopiesTest, WhoTakesNoneInTimeIsAskedForNoneThatWaits) {
  for (OfferedCopy& one : copy_) copies_.offer(one);
  const std::uint64_t number = publish();
  EXPECT_FALSE(copies_.has_next());
  now += CycleClock::kAbout20Microseconds;
  EXPECT_EQ(copies_.look(copy_[0]), State::kOpen);
  now += kLong;
  for (OfferedCopy& one : copy_) EXPECT_EQ(copies_.look(one), State::kWithdrawn);
  EXPECT_FALSE(take(number));
  EXPECT_FALSE(copies_.took_command(number, kLength));
  copies_.offer(copy_[1]);
  EXPECT_NE(publish(), number);
  EXPECT_EQ(copies_.look(copy_[1]), State::kOpen);
}

TEST_F(OfferedCopiesTest, IsTakenBackInTheServersTurnsAlone) {
  copies_.offer(copy_[0]);
  copies_.offer(copy_[1]);
  const std::uint64_t number = publish();
  EXPECT_TRUE(copies_.is_open());
  now += kLong;
  copies_.expire();
  EXPECT_FALSE(copies_.is_open() || copies_.is_awaited());
  EXPECT_EQ(copy_[0].state, State::kWithdrawn);
  EXPECT_EQ(copy_[1].state, State::kWithdrawn);
  EXPECT_FALSE(take(number));
}

TEST_F(OfferedCopiesTest, ThatTheClientNeverHearsOfAreWithdrawn) {
  copies_.offer(copy_[0]);
  EXPECT_TRUE(copies_.is_awaited());
  now += kLong;
  copies_.offer(copy_[1]);
  EXPECT_EQ(copies_.look(copy_[0]), State::kWithdrawn);
  EXPECT_EQ(copies_.look(copy_[1]), State::kWithdrawn);
  copies_.offer(copy_[2]);
  EXPECT_EQ(copies_.look(copy_[2]), State::kWaiting);
}

TEST_F(OfferedCopiesTest, ThatWaitForAClientThatStopsAmidACopyAreWithdrawn) {
  copies_.offer(copy_[0]);
  copies_.offer(copy_[1]);
  const std::uint64_t number = publish();
  EXPECT_TRUE(take(number));
  copies_.expire();
  EXPECT_FALSE(copies_.is_open());
  EXPECT_TRUE(copies_.is_awaited());
  now += kLong;
  copies_.expire();
  EXPECT_EQ(copies_.look(copy_[0]), State::kTaken);
  EXPECT_EQ(copies_.look(copy_[1]), State::kWithdrawn);
  EXPECT_TRUE(copies_.took_command(number, kLength));
  EXPECT_EQ(copies_.look(copy_[0]), State::kDone);
}

TEST_F(OfferedCopiesTest, NobodyAnswersWhatHeHasNotTakenOrMoreThanAll) {
  copies_.offer(copy_[0]);
  const std::uint64_t number = publish();
  EXPECT_FALSE(copies_.took_command(number, kLength));
  EXPECT_TRUE(take(number));
  EXPECT_FALSE(copies_.took_command(number + 1, kLength));
  EXPECT_FALSE(copies_.took_command(number, kLength + 1));
}

TEST_F(OfferedCopiesTest, TheNextOneIsOfferedWhenThatBeforeIsOver) {
  copies_.offer(copy_[0]);
  copies_.offer(copy_[1]);
  const std::uint64_t number = publish();
  EXPECT_TRUE(take(number));
  EXPECT_EQ(publish(), 0u);
  copies_.withdraw(copy_[0]);  // Too late.
  EXPECT_EQ(copy_[0].state, State::kNone);
  EXPECT_EQ(publish(), 0u);
  EXPECT_TRUE(copies_.took_command(number, kLength));
  EXPECT_EQ(copy_[0].state, State::kNone);
  EXPECT_NE(publish(), 0u);
}

TEST_F(OfferedCopiesTest, WhatIsWithdrawnIsNotTaken) {
  copies_.offer(copy_[0]);
  copies_.offer(copy_[1]);
  const std::uint64_t number = publish();
  copies_.withdraw(copy_[0]);
  copies_.withdraw(copy_[1]);
  EXPECT_FALSE(take(number));
  EXPECT_FALSE(copies_.has_next());
}

TEST_F(OfferedCopiesTest, ThatCannotBeToldYetIsTheSameLater) {
  copies_.offer(copy_[0]);
  EXPECT_EQ(copies_.open_next(), &copy_[0]);
  const std::uint32_t number = copies_.number();
  EXPECT_EQ(copies_.open_next(), &copy_[0]);
  EXPECT_EQ(copies_.number(), number);
}

TEST_F(OfferedCopiesTest, AWordOfRubbishCountsAsTaken) {
  copies_.offer(copy_[0]);
  const std::uint64_t number = publish();
  word_ = ~std::uint64_t{0};
  now += kLong;
  EXPECT_EQ(copies_.look(copy_[0]), State::kTaken);
  EXPECT_TRUE(copies_.took_command(number, 0));
  EXPECT_EQ(copies_.look(copy_[0]), State::kFailed);
}

TEST(HasOurPids, ThisProcessHasAndNobodyHasNot) {
  EXPECT_TRUE(has_our_pids(::getpid()));
  EXPECT_FALSE(has_our_pids(pid_t{0x7FFF'FFFF}));
}

/// Client 1 sends to client 0.
class CopiedMessages : public TwoClients {
 protected:
  CopiedMessages() {
    std::iota(reinterpret_cast<unsigned char*>(sent_.data()),
              reinterpret_cast<unsigned char*>(sent_.data()) + kLength, std::uint8_t{1});
    others_[0]->memory.offers().configure(test_clock, OfferedCopies::kLeastBytes);
  }
  void receive(const Payload& place) {
    OperationId operation{};
    Envelope envelope;
    EXPECT_EQ(clients_[0]->post_receive(kKey, kIgnoreNothing, place, nullptr, operation, envelope),
              Progressed::kPending);
  }
  void send(const Payload& payload) {
    OperationId operation{};
    Status status = Status::kOk;
    EXPECT_EQ(clients_[1]->send(PeerId{0}, SendMode::kStandard, kKey, payload, 0, nullptr, operation, status),
              Progressed::kPending);
  }
  Payload whole(std::vector<std::byte>& bytes) { return {bytes.data(), kLength, nullptr}; }
  std::uint64_t copied() const { return clients_[0]->ring_counters().client.copied; }
  /// The processor's turns alone: no client is in a call.
  void compute(int turns) {
    for (; turns > 0; --turns)
      for (auto& client : clients_)
        if (client != nullptr) client->server.turn();
  }
  void connect() {
    receive({});
    OperationId operation{};
    Status status = Status::kOk;
    clients_[1]->send(PeerId{0}, SendMode::kStandard, kKey, {}, 0, nullptr, operation, status);
    ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  }

  static constexpr MatchKey kKey = make_match_key(1, 2, 3);
  std::vector<std::byte> sent_ = std::vector<std::byte>(kLength), room_ = std::vector<std::byte>(kLength);
};

TEST_F(CopiedMessages, ALongOneIsCopiedOnceByItsReceiver) {
  const int copies = others_[0]->kernel.copies + others_[1]->kernel.copies;
  receive(whole(room_));
  send(whole(sent_));
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_EQ(room_, sent_);
  EXPECT_EQ(copied(), 1u);
  EXPECT_EQ(clients_[1]->counters().bulk_written, 1u);
  EXPECT_EQ(others_[0]->kernel.copies + others_[1]->kernel.copies, copies);
}

TEST_F(CopiedMessages, OneThatIsLongerThanItsBufferFillsIt) {
  receive({room_.data(), kLength - 5, nullptr});
  send(whole(sent_));
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_EQ(copied(), 1u);
  std::fill(sent_.end() - 5, sent_.end(), std::byte{});
  EXPECT_EQ(room_, sent_);
}

TEST_F(CopiedMessages, TheProcessorCopiesForAReceiverThatComputes) {
  connect();
  receive(whole(room_));
  send(whole(sent_));
  compute(10);
  now += kLong;
  compute(100);
  EXPECT_EQ(room_, sent_);
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_EQ(copied(), 0u);
  EXPECT_EQ(clients_[1]->counters().bulk_bounced, 1u);
  receive(whole(room_));
  send(whole(sent_));
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_EQ(copied(), 1u);
}

TEST_F(CopiedMessages, TheProcessorMaySleepWhileACopyIsTakenButNotWhileOneIsOffered) {
  connect();
  receive(whole(room_));
  send(whole(sent_));
  compute(10);
  EXPECT_FALSE(clients_[0]->server.arm());
  NicWords& words = clients_[0]->memory->words();
  const std::uint64_t number = words.offered;
  words.offered = number | OfferedCopies::kTaken;
  compute(2);
  EXPECT_TRUE(clients_[0]->server.arm());
  EXPECT_TRUE(ports_[1]->arm());
  ports_[1]->disarm();
  clients_[0]->server.disarm();
  words.offered = number;  // As it was: the client takes it.
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_EQ(copied(), 1u);
}

/// The others need no turn of it.
TEST_F(CopiedMessages, OfAReceiverThatStopsAmidACopyOnlyThatOneWaits) {
  constexpr int kMessages = 40;
  connect();
  std::vector<std::vector<std::byte>> rooms(kMessages, std::vector<std::byte>(kLength));
  for (auto& room : rooms) {
    receive(whole(room));
    send(whole(sent_));
    compute(2);
  }
  compute(10);
  clients_[0]->memory->words().offered |= OfferedCopies::kTaken;
  compute(2);
  for (int i = 0; i < 100; ++i) {
    now += kLong;
    compute(20);
  }
  EXPECT_EQ(std::ranges::count(rooms, sent_), kMessages - 1);
}

TEST_F(CopiedMessages, AReceiverWhoseEventsFindNoRoomGetsItThroughSlots) {
  constexpr std::size_t kShort = 1500;
  static_assert(kShort * record_bytes(sizeof(EventRecord) + kInlineBytes) > kEventRingBytes);
  connect();
  std::vector<std::byte> little(kInlineBytes);
  for (std::size_t i = 0; i < kShort; ++i) {
    receive({little.data(), kInlineBytes, nullptr});
    OperationId operation{};
    Status status = Status::kOk;
    clients_[1]->send(PeerId{0}, SendMode::kStandard, kKey, {little.data(), kInlineBytes, nullptr}, 0,
                      nullptr, operation, status);
    while (clients_[0]->counters().received_expected < i + 2) {
      compute(1);
      clients_[1]->RingPort::progress();
      for (Event event; clients_[1]->next_event(event);) {
      }
    }
  }
  receive(whole(room_));
  send(whole(sent_));
  compute(10);
  EXPECT_EQ(clients_[0]->memory->words().offered, 0u);
  now += kLong;
  compute(100);
  EXPECT_EQ(room_, sent_);
}

/// The receiver would wait for it in the midst of a call.
TEST_F(CopiedMessages, MemoryOfWhichAPageIsNotThereIsNotOffered) {
  auto* const pages = static_cast<std::byte*>(
      ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  const auto last_page = kLength / 4096 * 4096;
  std::copy(sent_.begin(), sent_.begin() + last_page, pages);
  std::fill(sent_.begin() + last_page, sent_.end(), std::byte{});
  for (const std::uint64_t is_there : {0u, 1u}) {
    receive(whole(room_));
    send({pages, kLength, nullptr});
    ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
    EXPECT_EQ(copied(), is_there);
    EXPECT_EQ(room_, sent_);
    pages[last_page] = std::byte{};  // There from now on.
  }
  ::munmap(pages, kLength);
}

TEST_F(CopiedMessages, WhatOneOfThemSharesOrIsShortOrInPiecesIsNotOffered) {
  static constexpr Piece kPiece{0, 1};
  static constexpr PayloadLayout kPieces{.kind = PayloadLayout::Kind::kPieces,
                                         .piece_count = 1,
                                         .pieces = &kPiece,
                                         .element_bytes = 1,
                                         .extent_bytes = 1};
  others_[0]->staging = others_[1]->staging = Staging::kPacked;
  std::byte* const shared[] = {clients_[0]->arena()->allocate(kLength),
                               clients_[1]->arena()->allocate(kLength)};
  std::copy(sent_.begin(), sent_.end(), shared[1]);
  const auto pass = [&](const Payload& from, const Payload& to) {
    receive(to);
    send(from);
    ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
    EXPECT_TRUE(std::equal(to.address, to.address + to.length_bytes, sent_.begin()));
    EXPECT_EQ(copied(), 0u);
  };
  pass({shared[1], kLength, nullptr}, whole(room_));
  pass(whole(sent_), {shared[0], kLength, nullptr});
  pass({shared[1], kLength, nullptr}, {shared[0], kLength, nullptr});
  pass({sent_.data(), kLength, &kPieces}, whole(room_));
  pass(whole(sent_), {room_.data(), kLength, &kPieces});
  pass({sent_.data(), 20'000, nullptr}, {room_.data(), 20'000, nullptr});
  // And then one that is none of these.
  receive(whole(room_));
  send(whole(sent_));
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_EQ(copied(), 1u);
}

TEST_F(CopiedMessages, WhoCannotCopyIsAskedFourTimes) {
  others_[0]->failed_copies = 1;
  for (int i = 0; i < 8; ++i) {
    std::fill(room_.begin(), room_.end(), std::byte{});
    receive(whole(room_));
    send(whole(sent_));
    ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
    EXPECT_EQ(room_, sent_);
  }
  EXPECT_EQ(others_[0]->copies_asked, 4);
}

TEST_F(CopiedMessages, OfASenderThatHasEndedMeanwhileNothingIsReceived) {
  connect();
  receive(whole(room_));
  send(whole(sent_));
  compute(10);
  others_[1]->socket.client.reset();
  clients_[0]->RingPort::progress();
  EXPECT_EQ(copied(), 1u);
  EXPECT_FALSE(await(0, Event::Kind::kReceiveDone));
  EXPECT_TRUE(others_[1]->memory.is_broken());
}

TEST_F(CopiedMessages, OfASenderThatGoesBeforeItIsTakenTheReceiveFails) {
  connect();
  receive(whole(room_));
  send(whole(sent_));
  compute(10);
  clients_[1].reset();
  ports_[1].reset();
  compute(10);
  ASSERT_TRUE(await(0, Event::Kind::kReceiveDone));
  EXPECT_EQ(copied(), 0u);
  EXPECT_EQ(clients_[0]->memory->words().offered, 0u);
}

/// No client of ours offers such.
TEST_F(CopiedMessages, AnOfferOfRubbishIsAnsweredAndWritesNothing) {
  SteppedRings& client = *clients_[0];
  RingProducer events = client.memory->event_producer();
  const auto offer = [&](OperationId receive, std::size_t length_bytes) {
    EventRecord event;
    event.kind = kCopyOffered;
    event.operation = receive;
    event.peer = 7;
    event.bits = reinterpret_cast<std::uint64_t>(sent_.data());
    event.initiator = static_cast<std::uint32_t>(::getpid());
    event.length_bytes = length_bytes;
    client.memory->words().offered = 7;
    std::memcpy(events.payload(), &event, sizeof event);
    events.publish(RecordKind::kMessage, sizeof event);
    client.RingPort::progress();
    EXPECT_EQ(client.memory->words().offered, 7 | OfferedCopies::kTaken);
  };
  OperationId operation{};
  Envelope envelope;
  client.post_receive(kKey, kIgnoreNothing, {room_.data(), 8, nullptr}, nullptr, operation, envelope);
  offer(operation, 9);
  offer(kNoOperation, 8);
  offer(OperationId{static_cast<std::uint64_t>(operation) + 1}, 8);
  EXPECT_EQ(room_, std::vector<std::byte>(kLength));
  EXPECT_EQ(copied(), 0u);
  offer(operation, 8);
  EXPECT_EQ(copied(), 1u);
}

}  // namespace offered_copies_test
}  // namespace ch3_offload
