// HOSTILE BYTES for operations on target entries: forged requests and answers, one by one. Each costs the
// connection to the attacker, or is answered, and harms nobody else.

#include <gtest/gtest.h>

#include "engine/hostile_targets.h"

namespace ch3_offload {
namespace {

using wire::Kind;

class EngineTargetHostile : public HostileTargets {
 protected:
  /// In a world of its own.
  void expect_request_refused(const char* what, const Bytes& message) {
    begin();
    attack(message);
    expect_refused(what);
  }
  void begin() {
    processes.clear();
    cards.clear();
    make_three();
  }
  /// The number on the wire of a request of the victim to the attacker.
  std::uint32_t open_request(const TargetRequest& request) {
    EXPECT_EQ(start(kVictim, kAttacker, request), Status::kOk);
    settle();
    const Kind kind = request.is_get() ? Kind::kGet : Kind::kPut;
    return last_heard<wire::TargetRequestHeader>(kind).operation;
  }
  std::uint32_t open_put(std::size_t length_bytes,
                         TargetAcknowledgement acknowledgement = TargetAcknowledgement::kFull) {
    data = pattern(length_bytes);
    TargetRequest request = put_from(kVictim, data);
    request.acknowledgement = acknowledgement;
    return open_request(request);
  }
  std::uint32_t open_get(std::size_t length_bytes) {
    data.assign(length_bytes, std::byte{0});
    return open_request(get_from(kVictim, data));
  }
  static Bytes cts(std::uint32_t operation, std::uint64_t wanted_bytes) {
    return forged::cts(operation, wanted_bytes, 0);
  }

  std::vector<std::byte> data;
};

TEST_F(EngineTargetHostile, RequestsThatNoInitiatorSends) {
  using wire::kPayload;
  using wire::kWantAck;
  for (const auto& [kind, flags] :
       std::initializer_list<std::pair<Kind, unsigned>>{{Kind::kPut, kPayload},
                                                        {Kind::kPut, 0},
                                                        {Kind::kGet, 0},
                                                        {Kind::kGet, wire::kWritable},
                                                        {Kind::kAtomic, 0},
                                                        {Kind::kSwap, 0}}) {
    Bytes cut = with_data(request_header(kind, 8, flags), 0);
    cut.pop_back();
    expect_request_refused("a header that is cut", cut);
    cut.resize(sizeof(wire::CommonHeader));
    expect_request_refused("nothing but the common header", cut);
  }
  expect_request_refused("an announced put with data", with_data(request_header(Kind::kPut, 8), 8));
  expect_request_refused("an announced put of nothing", with_data(request_header(Kind::kPut, 0), 0));
  expect_request_refused("a get with data", with_data(request_header(Kind::kGet, 8), 8));
  auto header = request_header(Kind::kPut, 100);
  header.operation = 0;
  expect_request_refused("an announced put that nobody can clear", with_data(header, 0));
  header = request_header(Kind::kPut, 8, kPayload | kWantAck);
  header.operation = 0;
  expect_request_refused("an acknowledgement for nobody", with_data(header, 8));
  header = request_header(Kind::kGet, 8);
  header.operation = 0;
  expect_request_refused("a reply for nobody", with_data(header, 0));
  for (const std::uint64_t block : {0, 3, 8, 16})
    for (const std::uint64_t stride : {std::uint64_t{0}, std::uint64_t{7}, UINT64_MAX / 2, UINT64_MAX}) {
      header = request_header(Kind::kPut, 16, kPayload | kWantAck | wire::kRuns);
      header.interface = kWindowInterface;
      header.bits = block;
      header.header_data = stride;
      const bool is_sound = block == 16 && stride == UINT64_MAX / 2;  // One run.
      if (!is_sound) expect_request_refused("runs that no initiator names", with_data(header, 16));
    }
  header.bits = 8;
  header.header_data = 16;
  header.interface = 0;
  expect_request_refused("runs of an entry that is none of a window's", with_data(header, 16));
  header = request_header(Kind::kGet, 8);
  header.transfer = 0;
  expect_request_refused("data for nobody", with_data(header, 0));
  header = request_header(Kind::kAtomic, 6);
  header.atomic_type = static_cast<std::uint8_t>(AtomicType::kInt32);
  expect_request_refused("half an element", with_data(header, 6));
  header.atomic_type = 200;
  expect_request_refused("no type", with_data(header, 6));
  header = request_header(Kind::kAtomic, 8);
  header.atomic_operation = static_cast<std::uint8_t>(AtomicOperation::kSwap);
  expect_request_refused("a swap that is no swap", with_data(header, 8));
  header = request_header(Kind::kSwap, 8);
  expect_request_refused("a sum that is a swap", with_data(header, 8));
  header.atomic_operation = static_cast<std::uint8_t>(AtomicOperation::kCompareSwap);
  header.atomic_type = static_cast<std::uint8_t>(AtomicType::kUint64);
  expect_request_refused("a conditional swap whose operand is cut", with_data(header, 7));
  header.length_bytes = 16;
  expect_request_refused("a conditional swap of two elements", with_data(header, 24));
  header.atomic_operation = 250;
  expect_request_refused("no operation", with_data(header, 8));
}

TEST_F(EngineTargetHostile, KindsThatTheClientDoesNotHave) {
  for (const unsigned kind : {0U, 1U, 6U, 13U, 21U, 255U}) {
    auto header = request_header(Kind{static_cast<std::uint8_t>(kind)}, 8);
    expect_request_refused("a kind of no client, or of the other one", with_data(header, 8));
  }
  auto header = request_header(Kind::kPut, 8, wire::kPayload);
  for (const std::uint16_t client : {0, 2, 0xFFFF}) {
    header.common.client = client;
    expect_request_refused("another client", with_data(header, 8));
  }
}

TEST_F(EngineTargetHostile, RequestsForWhatThereIsNotAreAnswered) {
  make_three();
  auto header = request_header(Kind::kPut, 8, wire::kPayload | wire::kWantAck);
  const auto failure_of = [&] {
    attack(with_data(header, 8));
    settle();
    return static_cast<TargetFailure>(last_heard<wire::TargetAnswerHeader>(Kind::kTargetAck).failure);
  };
  header.interface = 1;
  EXPECT_EQ(failure_of(), TargetFailure::kDropped);
  header.interface = 200;
  EXPECT_EQ(failure_of(), TargetFailure::kDropped);
  header.interface = 0;
  header.table = 0xFFFF;
  EXPECT_EQ(failure_of(), TargetFailure::kDropped);
  header.table = kTable;
  EXPECT_EQ(failure_of(), TargetFailure::kNone);
  EXPECT_FALSE(victim_has_failed_the_attacker());
  expect_unharmed();
}

TEST_F(EngineTargetHostile, LengthsAndOffsetsAreHeldAgainstTheEntry) {
  make_three();
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{kEntryBytes - 1}, std::uint64_t{kEntryBytes}, UINT64_MAX}) {
    for (const std::uint64_t length : {std::uint64_t{1}, std::uint64_t{kEntryBytes + 1}, UINT64_MAX}) {
      auto header = request_header(Kind::kGet, length);
      header.offset_bytes = offset;
      attack(with_data(header, 0));
      settle();
      const std::uint64_t room = offset < kEntryBytes ? kEntryBytes - offset : 0;
      EXPECT_EQ(last_heard<wire::TargetAnswerHeader>(Kind::kTargetReply).length_bytes,
                std::min(room, length));
    }
  }
  auto header = request_header(Kind::kPut, 100, wire::kPayload | wire::kWantAck);
  header.offset_bytes = kEntryBytes - 10;
  attack(with_data(header, 100));
  settle();
  EXPECT_EQ(last_heard<wire::TargetAnswerHeader>(Kind::kTargetAck).length_bytes, 10u);
  header = request_header(Kind::kPut, UINT64_MAX);
  attack(with_data(header, 0));
  settle();
  EXPECT_EQ(last_heard<wire::CtsHeader>(Kind::kCts).wanted_bytes, kEntryBytes);
  EXPECT_FALSE(victim_has_failed_the_attacker());
  attack(forged::data(last_heard<wire::CtsHeader>(Kind::kCts).transfer, 1, 100));
  expect_refused("data that does not begin at the beginning");
}

TEST_F(EngineTargetHostile, DataOfALongPutThatIsTooMuch) {
  begin();
  attack(with_data(request_header(Kind::kPut, 60), 0));
  settle();
  const std::uint32_t transfer = last_heard<wire::CtsHeader>(Kind::kCts).transfer;
  attack(forged::data(transfer, 0, 61));
  expect_refused("more data than the target wants");
}

TEST_F(EngineTargetHostile, AnswersThatNobodyAwaits) {
  for (const Kind kind : {Kind::kTargetAck, Kind::kTargetReply}) {
    expect_request_refused("an answer to nothing", answer_of(kind, 1, 0));
    expect_request_refused("an answer to operation 0", answer_of(kind, 0, 0));
  }
  begin();
  attack(answer_of(Kind::kTargetReply, open_put(100), 0));
  expect_refused("a reply to a put");
  begin();
  attack(answer_of(Kind::kTargetAck, open_get(100), 0));
  expect_refused("an acknowledgement of a get");
  begin();
  std::uint32_t operation = open_put(100);
  attack(answer_of(Kind::kTargetAck, operation, 100));
  settle();
  EXPECT_EQ(begun(kVictim), "send 0, ack 100");
  attack(answer_of(Kind::kTargetAck, operation, 100));
  expect_refused("a second answer");
}

TEST_F(EngineTargetHostile, AnswersThatCannotBeTrue) {
  begin();
  attack(answer_of(Kind::kTargetAck, open_put(100), 101));
  expect_refused("more than was put");
  begin();
  attack(answer_of(Kind::kTargetAck, open_put(100), 0, TargetFailure::kEnd));
  expect_refused("a failure that there is not");
  begin();
  attack(answer_of(Kind::kTargetAck, open_put(100), 5, TargetFailure::kDropped));
  expect_refused("a failure with a length");
  begin();
  attack(answer_of(Kind::kTargetAck, open_put(100), 5, TargetFailure::kUntold));
  expect_refused("an end that is not told, with a length");
  begin();
  attack(answer_of(Kind::kTargetReply, open_get(100), 0, TargetFailure::kUntold));
  expect_refused("a reply that is not told");
  begin();
  const std::uint32_t put = open_put(100);
  attack(answer_of(Kind::kTargetAck, put, 0, TargetFailure::kUntold));
  attack(answer_of(Kind::kTargetAck, put, 0, TargetFailure::kUntold));
  expect_refused("an end, twice");
  for (const auto& [list, failure] : std::initializer_list<std::pair<std::uint16_t, TargetFailure>>{
           {2, TargetFailure::kNone}, {0xFFFF, TargetFailure::kNone}, {1, TargetFailure::kDropped}}) {
    begin();
    wire::TargetAnswerHeader header;
    header.common = {Kind::kTargetAck, 0, wire::kTargetClient};
    header.operation = open_put(100);
    header.failure = static_cast<std::uint16_t>(failure);
    header.list = list;
    attack(with_data(header, 0));
    expect_refused("a list that there is not, or of an entry that was not found");
  }
  begin();
  attack(answer_of(Kind::kTargetAck, open_put(100), 5, TargetFailure::kNone, wire::kPayload, 5));
  expect_refused("an acknowledgement with data");
  begin();
  attack(answer_of(Kind::kTargetReply, open_get(100), 50, TargetFailure::kNone, wire::kPayload, 51));
  expect_refused("more data than it says");
  begin();
  attack(answer_of(Kind::kTargetReply, open_get(100), 200, TargetFailure::kNone, wire::kPayload, 200));
  expect_refused("more data than was asked for");
  EXPECT_EQ(begun(kVictim), "reply undeliverable 0");
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(EngineTargetHostile, DataOfAGetThatDisagreesWithItsReply) {
  begin();
  std::uint32_t operation = open_get(100);
  const auto transfer = [&] { return last_heard<wire::TargetRequestHeader>(Kind::kGet).transfer; };
  attack(forged::data(transfer(), 0, 60));
  attack(answer_of(Kind::kTargetReply, operation, 59));
  expect_refused("less than has come");
  begin();
  operation = open_get(100);
  attack(forged::data(transfer(), 0, 60));
  attack(answer_of(Kind::kTargetReply, operation, 100, TargetFailure::kNone, wire::kPayload, 100));
  expect_refused("data by both ways");
  begin();
  operation = open_get(100);
  attack(answer_of(Kind::kTargetReply, operation, 60));
  attack(forged::data(transfer(), 0, 61));
  expect_refused("more than the reply says");
  begin();
  open_get(100);
  attack(forged::data(transfer(), 0, 101));
  expect_refused("more than was asked for");
  begin();
  operation = open_get(100);
  attack(answer_of(Kind::kTargetReply, operation, 60));
  attack(answer_of(Kind::kTargetReply, operation, 60));
  expect_refused("a second reply");
}

TEST_F(EngineTargetHostile, DataOfAGetMayComeAfterItsReply) {
  begin();
  const std::uint32_t operation = open_get(100);
  const std::uint32_t transfer = last_heard<wire::TargetRequestHeader>(Kind::kGet).transfer;
  attack(forged::data(transfer, 0, 10));
  attack(answer_of(Kind::kTargetReply, operation, 60));
  settle();
  EXPECT_EQ(begun(kVictim), "");
  attack(forged::data(transfer, 10, 50));
  settle();
  EXPECT_EQ(begun(kVictim), "reply 60");
  EXPECT_FALSE(victim_has_failed_the_attacker());
  expect_unharmed();
}

TEST_F(EngineTargetHostile, ClearancesThatNobodyAwaits) {
  begin();
  attack(cts(open_put(100), 100));
  expect_refused("for a put whose data has left");
  begin();
  attack(cts(open_get(100'000), 100));
  expect_refused("for a get");
  begin();
  attack(cts(open_put(100'000), 100'001));
  expect_refused("for more than was announced");
  begin();
  attack(cts(open_put(100'000), 0));
  expect_refused("for nothing");
  begin();
  const std::uint32_t operation = open_put(100'000);
  attack(cts(operation, 50));
  attack(cts(operation, 50));
  expect_refused("twice");
}

TEST_F(EngineTargetHostile, OnlyAPutThatWasClearedCanBeAbandoned) {
  wire::TargetAbandonHeader header;
  header.common = {Kind::kTargetAbandon, 0, wire::kTargetClient};
  header.transfer = 77;
  expect_request_refused("nothing", with_data(header, 0));
  begin();
  static_cast<void>(open_get(100'000));
  header.transfer = last_heard<wire::TargetRequestHeader>(Kind::kGet).transfer;
  attack(with_data(header, 0));
  expect_refused("the victim's own get");
  begin();
  attack(with_data(request_header(Kind::kPut, 30'000), 0));
  settle();
  header.transfer = last_heard<wire::CtsHeader>(Kind::kCts).transfer;
  attack(with_data(header, 1));
  expect_refused("with more than a header");
  begin();
  attack(with_data(request_header(Kind::kPut, 30'000), 0));
  settle();
  header.transfer = last_heard<wire::CtsHeader>(Kind::kCts).transfer;
  attack(with_data(header, 0));
  settle();
  EXPECT_FALSE(victim_has_failed_the_attacker()) << "a put that was cleared";
  EXPECT_EQ(came(kVictim), "put undeliverable 30000");
  attack(with_data(header, 0));
  expect_refused("the same again");
}

TEST_F(EngineTargetHostile, AnAnswerOfMpiNamesNoOperationOnAnEntry) {
  begin();
  attack(forged::ack(open_put(100)));
  expect_refused("an ACK");
  begin();
  attack(forged::ack(open_put(100'000)));
  expect_refused("an ACK of an announced put");
}

TEST_F(EngineTargetHostile, APutThatIsMovingAndWantsNoAnswerGetsNone) {
  network_config.slots_per_pair = 2;
  begin();
  const std::uint32_t operation = open_put(100'000, TargetAcknowledgement::kNone);
  attack(cts(operation, 100'000));
  attack(answer_of(Kind::kTargetAck, operation, 100));
  expect_refused("an answer that is not wanted");
}

TEST_F(EngineTargetHostile, AnAnswerBeforeTheDataHasLeftWaitsForIt) {
  network_config.slots_per_pair = 2;
  begin();
  const std::uint32_t operation = open_put(20'000);
  attack(cts(operation, 20'000));
  attack(answer_of(Kind::kTargetAck, operation, 20'000));
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(begun(kVictim), "");
  for (int i = 0; i < 20; ++i) {
    at(kAttacker).provider->poll(heard, 100);
    settle();
  }
  EXPECT_EQ(begun(kVictim), "send 0, ack 20000");
  EXPECT_FALSE(victim_has_failed_the_attacker());
  expect_unharmed();
}

TEST_F(EngineTargetHostile, ANeighboursAnswerIsNotTheAttackersToGive) {
  begin();
  auto mine = pattern(100);
  ASSERT_EQ(start(kVictim, kNeighbour, put_from(kVictim, mine)), Status::kOk);
  const auto only_the_victim_moves = [&] {
    for (int i = 0; i < 10; ++i) {
      network->advance();
      progress(kVictim);
    }
  };
  only_the_victim_moves();
  EXPECT_EQ(begun(kVictim), "send 0");
  attack(answer_of(Kind::kTargetAck, 1, 100));
  only_the_victim_moves();
  EXPECT_EQ(begun(kVictim), "");
  expect_refused("a guessed number");
  EXPECT_EQ(begun(kVictim), "ack dropped 0");
}

}  // namespace
}  // namespace ch3_offload
