#include "fuzz/engine_seeds.h"

#include "engine/match_key.h"
#include "engine/wire.h"
#include "fuzz/engine_target.h"

namespace ch3_offload::fuzz {
namespace {

using wire::Kind;

constexpr std::uint64_t kBits = make_match_key(1, 0, 0).bits;  // The byte 0 of match_key().
constexpr std::uint8_t kEndless = 255;
constexpr std::uint8_t kCancellable = 9;  // A send id.

/// The index of a length in kLengths.
constexpr std::uint8_t index_of_length(std::uint32_t length) {
  std::uint8_t index = 0;
  while (kLengths[index] != length) ++index;
  return index;
}

/// Spells steps.
class Steps {
 public:
  explicit Steps(std::uint8_t configuration = 0) { seed_.u8(configuration); }

  Steps& send(std::uint32_t length, std::uint8_t mode = 0, std::uint8_t send_id = 0) {
    return step(Step::kSend, {0, mode, index_of_length(length), 0, send_id});
  }
  Steps& receive(std::uint32_t capacity, std::uint8_t ignored = 0, std::uint8_t bits = 0) {
    return step(Step::kReceive, {bits, ignored, index_of_length(capacity)});
  }
  Steps& progress() { return step(Step::kProgress, {1}); }
  template <class Header>
  Steps& message(const Header& header, std::uint32_t payload = 0) {
    return put(Step::kMessage, header, payload).progress();
  }
  template <class Header>
  Steps& answer(const Header& header, std::uint32_t payload = 0, std::uint8_t ago = 0) {
    put(Step::kAnswer, header, payload);
    seed_.u8(ago);
    return progress();
  }
  Steps& step(Step name, std::initializer_list<std::uint8_t> arguments = {}) {
    seed_.u8(static_cast<std::uint8_t>(name));
    for (const std::uint8_t argument : arguments) seed_.u8(argument);
    return *this;
  }
  /// The next messages are of that one of the hostile peers.
  Steps& from(std::uint8_t peer) {
    peer_ = peer;
    return *this;
  }
  const Bytes& done() const { return seed_.done(); }

 private:
  template <class Header>
  Steps& put(Step name, const Header& header, std::uint32_t payload) {
    step(name, {peer_, sizeof header});
    seed_.bytes(std::as_bytes(std::span(&header, 1))).u8(kFill16).u16(static_cast<std::uint16_t>(payload));
    return *this;
  }

  Seed seed_;
  std::uint8_t peer_ = 0;
};

wire::EagerHeader eager(std::uint8_t flags = 0, std::uint32_t id = 1) {
  return {.common = {Kind::kEager, flags}, .bits = kBits, .send_id = id};
}
wire::EagerFirstHeader eager_first(std::uint64_t total, std::uint8_t flags = 0) {
  return {.eager = {.common = {Kind::kEagerFirst, flags}, .bits = kBits, .send_id = 1}, .total_bytes = total};
}
wire::RtsHeader rts(std::uint64_t total, std::uint8_t flags = 0) {
  return {.common = {Kind::kRts, flags}, .bits = kBits, .total_bytes = total, .operation = 1, .send_id = 2};
}
/// A part of a packet. With kTaking, lengths that three divides are refused, those with remainder 2 are taken by halves.
constexpr auto kTaking = static_cast<std::uint8_t>(kWrites | kSmallEager);
wire::RtsHeader part(std::uint64_t total) { return rts(total, wire::kPacketPart); }
wire::CtsHeader cts(std::uint64_t wanted, std::uint8_t flags = 0) {
  return {
      .common = {Kind::kCts, flags}, .transfer = 1, .wanted_bytes = wanted, .address = 4096, .remote_key = 9};
}
wire::DataHeader data(std::uint64_t offset) { return {.common = {Kind::kData}, .offset_bytes = offset}; }
wire::CommonHeader common(Kind kind, std::uint32_t credit = 0) {
  return {.kind = kind, .credit_bytes = credit};
}
wire::AckHeader ack() { return {.common = {Kind::kAck}}; }
wire::RecallHeader recall(Kind kind, std::uint64_t bytes) { return {.common = {kind}, .bytes = bytes}; }
wire::CancelHeader cancel(std::uint32_t id, std::uint8_t flags = 0) {
  return {.common = {Kind::kCancel, flags}, .bits = kBits, .send_id = id, .token = 77};
}
wire::CancelReplyHeader cancel_reply(std::uint8_t flags) { return {.common = {Kind::kCancelReply, flags}}; }

void receiving(std::vector<Bytes>& seeds) {
  seeds.push_back(Steps().receive(1000).message(eager(), 200).done());
  seeds.push_back(Steps(kTraced).message(eager(), 200).step(Step::kProbe, {0, 3}).receive(100).done());
  seeds.push_back(Steps().receive(1000).message(eager(wire::kSynchronous), 8).done());
  seeds.push_back(Steps().message(eager(wire::kSynchronous), 8).receive(1000, 3).done());
  for (const std::uint32_t capacity : {100, 9999}) {  // Expected, unexpected and matched in between.
    const auto next = common(Kind::kEagerNext);
    seeds.push_back(Steps()
                        .receive(capacity)
                        .message(eager_first(9999), 4000)
                        .message(next, 4000)
                        .message(next, 1999)
                        .done());
    seeds.push_back(Steps().message(eager_first(9999), 4000).message(next, 5999).receive(capacity, 1).done());
    seeds.push_back(Steps()
                        .message(eager_first(9999, wire::kSynchronous), 4000)
                        .receive(capacity, 2)
                        .message(next, 5999)
                        .done());
  }
  seeds.push_back(Steps()
                      .message(eager_first(9999), 4000)
                      .step(Step::kPurge, {1})
                      .message(common(Kind::kEagerNext), 5999)
                      .done());
  for (const std::uint8_t configuration : {std::uint8_t{0}, kWrites}) {
    for (const std::uint32_t capacity : {4000, 60'000}) {
      const std::uint32_t half = capacity == 4000 ? 2000 : 8000;
      seeds.push_back(Steps(configuration)
                          .receive(capacity)
                          .message(rts(16'000))
                          .answer(data(0), half)
                          .answer(data(half), half)
                          .done());
      seeds.push_back(Steps(configuration)
                          .message(rts(16'000))
                          .receive(capacity, 0, 128)
                          .answer(data(0), half)
                          .answer(data(half), half)
                          .done());
    }
  }
  seeds.push_back(Steps(kWrites)
                      .receive(4000)
                      .message(rts(4000))
                      .step(Step::kRemoteWrite, {0, 1})
                      .step(Step::kWriteArrived, {0, 0})
                      .progress()
                      .done());
  seeds.push_back(Steps(kWrites).receive(4000).message(rts(4000)).step(Step::kFailPeer, {0}).done());
  const auto packet = common(Kind::kPacket);
  seeds.push_back(Steps(kTaking)
                      .message(packet, 40)
                      .message(part(4000))
                      .answer(data(0), 2000)
                      .answer(data(2000), 2000)
                      .message(packet, 40)
                      .done());
  seeds.push_back(Steps(kTaking)
                      .message(part(4000))
                      .step(Step::kRemoteWrite, {0, 1})
                      .step(Step::kWriteArrived, {0, 128})
                      .progress()
                      .step(Step::kWriteArrived, {0, 0})
                      .progress()
                      .message(part(4000))
                      .step(Step::kFailPeer, {0})
                      .done());
  seeds.push_back(Steps(kTaking).message(part(3999)).message(packet, 3999).done());
  seeds.push_back(Steps(kTaking).message(part(5000)).answer(data(0), 2501).message(part(2499)).done());
  seeds.push_back(Steps().message(rts(4000)).step(Step::kPurge, {1}).done());
  seeds.push_back(Steps()
                      .message(rts(4000))
                      .step(Step::kMatchedProbe, {0, 3})
                      .step(Step::kReceiveMatched, {0, 9})
                      .answer(data(0), 4000)
                      .done());
  const auto optimistic = static_cast<std::uint8_t>(wire::kPayload | wire::kWantCredit);
  for (const std::uint8_t configuration : {std::uint8_t{0}, kSmallBudget, kNoBudget}) {
    Steps steps(configuration);
    for (int i = 0; i < 3; ++i) steps.message(rts(3000, optimistic), 3000);
    seeds.push_back(steps.receive(4000).receive(4000).answer(data(0), 3000).done());
  }
  seeds.push_back(Steps().receive(4000).message(rts(3000, optimistic), 3000).done());
  // Credit moves from one to the other.
  for (const std::uint32_t returned : {100, 9'000'000}) {
    Steps moves(kSmallBudget);
    moves.message(rts(8, optimistic), 8).from(1);
    for (int i = 0; i < 4; ++i) moves.message(rts(8, optimistic), 8);
    seeds.push_back(moves.from(0).message(recall(Kind::kReturn, returned)).message(eager(), 3000).done());
  }
  seeds.push_back(Steps().message(common(Kind::kPacket), 100).message(common(Kind::kPacket), 3).done());
  seeds.push_back(Steps().message(eager(), 200).message(cancel(1)).done());
  seeds.push_back(
      Steps().message(rts(4000)).message(cancel(1, wire::kByOperation)).message(cancel(5)).done());
}

void sending(std::vector<Bytes>& seeds) {
  const auto first = common(Kind::kCredit, 5000);
  seeds.push_back(Steps().send(200).send(9999).send(9999, 4).message(first).progress().done());
  seeds.push_back(Steps(kSmallSlots).send(200, 1).answer(ack()).send(4000, 1).answer(ack()).done());
  for (const std::uint8_t configuration : {std::uint8_t{0}, kWrites}) {
    for (const std::uint64_t wanted : {std::uint64_t{0}, std::uint64_t{60'000}, std::uint64_t{5000}})
      seeds.push_back(Steps(configuration)
                          .send(60'000)
                          .answer(cts(wanted, wire::kWritable))
                          .step(Step::kEndWrite, {0})
                          .progress()
                          .done());
    for (const std::uint8_t answer : {1, 2, 3})
      seeds.push_back(Steps(configuration)
                          .step(Step::kWriteAnswer, {answer})
                          .send(60'000)
                          .answer(cts(60'000, wire::kWritable))
                          .step(Step::kWriteAnswer, {0})
                          .progress()
                          .done());
  }
  seeds.push_back(Steps(kWrites)
                      .send(60'000)
                      .answer(cts(60'000, wire::kWritable))
                      .step(Step::kEndWrite, {1})
                      .progress()
                      .done());
  seeds.push_back(Steps(kWrites)
                      .send(60'000)
                      .answer(cts(60'000, wire::kWritable))
                      .step(Step::kFailPeer, {0})
                      .step(Step::kEndWrite, {0})
                      .progress()
                      .done());
  seeds.push_back(Steps(kWrites)
                      .send(60'000)
                      .answer(cts(60'000, wire::kWritable))
                      .step(Step::kPeerDown, {0, 0})
                      .progress()
                      .done());
  for (const std::uint8_t configuration :
       {kLittleCredit, static_cast<std::uint8_t>(kLittleCredit | kSendBuffer)}) {
    seeds.push_back(Steps(configuration).send(1000).send(1000).answer(ack()).done());
    seeds.push_back(Steps(configuration).send(1000).send(1000).answer(cts(1000)).done());
    seeds.push_back(Steps(configuration)
                        .send(1000)
                        .send(1000, 0, kCancellable)
                        .step(Step::kCancelSend, {0})
                        .answer(cancel_reply(wire::kCancelled))
                        .done());
    seeds.push_back(Steps(configuration)
                        .send(1000)
                        .send(4000, 1)
                        .answer(cts(4000))
                        .message(recall(Kind::kRecall, 10))
                        .done());
  }
  seeds.push_back(
      Steps().send(100, 0, kCancellable).step(Step::kCancelSend, {0}).answer(cancel_reply(0)).done());
  seeds.push_back(
      Steps().send(60'000).step(Step::kCancelSend, {0}).answer(cancel_reply(wire::kCancelled)).done());
  seeds.push_back(
      Steps().send(60'000).step(Step::kCancelSend, {0}).answer(cts(60'000)).answer(cancel_reply(0)).done());
  seeds.push_back(Steps(kSmallSlots)
                      .step(Step::kRoom, {1})
                      .send(200)
                      .send(200)
                      .send(5000)
                      .step(Step::kCancelSend, {0})
                      .step(Step::kSendPacket, {0, 7, 9})
                      .step(Step::kRoom, {3})
                      .progress()
                      .step(Step::kRoom, {kEndless})
                      .progress()
                      .done());
  seeds.push_back(Steps()
                      .step(Step::kRoom, {0})
                      .message(eager(wire::kSynchronous), 8)
                      .receive(8)
                      .message(cancel(3))
                      .step(Step::kRoom, {kEndless})
                      .progress()
                      .done());
  seeds.push_back(
      Steps().step(Step::kRefuse, {2}).send(100).message(eager(wire::kSynchronous), 8).receive(8).done());
}

/// Packets of the engine's with 60,000 bytes of data, of which parts are announced.
void sending_parts(std::vector<Bytes>& seeds) {
  const auto packet = [](std::uint8_t configuration) {
    return Steps(static_cast<std::uint8_t>(kWrites | configuration))
        .step(Step::kSendPacket, {0, index_of_length(40), index_of_length(60'000)})
        .progress();
  };
  seeds.push_back(packet(0).answer(cts(60'000)).answer(ack()).done());
  seeds.push_back(packet(0).answer(cts(0)).send(8).done());
  seeds.push_back(
      packet(kSmallSlots).send(8).answer(cts(20'000)).answer(ack()).answer(cts(40'000)).answer(ack()).done());
  for (const std::uint8_t end :
       {std::uint8_t{0}, std::uint8_t{1}}) {  // The ACK before and after the write's end.
    Steps steps = packet(0);
    steps.answer(cts(60'000, wire::kWritable));
    if (end == 0) steps.answer(ack());
    steps.step(Step::kEndWrite, {0}).progress();
    if (end == 1) steps.answer(ack());
    seeds.push_back(steps.send(8).done());
  }
  seeds.push_back(
      packet(0).answer(cts(60'000, wire::kWritable)).step(Step::kPeerDown, {0, 1}).progress().done());
}

/// Near misses: each breaks one rule of the wire, at the moment when that would do the most harm.
void breaking(std::vector<Bytes>& seeds) {
  const auto add = [&seeds](const Steps& steps) { seeds.push_back(steps.done()); };
  // Answers to what the other peer was sent.
  add(Steps().receive(4000).message(rts(4000)).from(1).answer(data(0), 4000, kOfTheOther));
  add(Steps().send(60'000).from(1).answer(cts(60'000), 0, kOfTheOther));
  add(Steps().send(8, 1).from(1).answer(ack(), 0, kOfTheOther));
  add(Steps()
          .send(60'000)
          .step(Step::kCancelSend, {0})
          .from(1)
          .answer(cancel_reply(0), 0, kOfTheOther)
          .from(0)
          .answer(cancel_reply(0)));
  // Writes where none is allowed, and after parts.
  add(Steps().receive(4000).message(rts(4000)).step(Step::kWriteArrived, {0, 0}).progress());
  add(Steps(kWrites)
          .receive(4000)
          .message(rts(4000))
          .answer(data(0), 2000)
          .step(Step::kWriteArrived, {0, 0})
          .progress());
  // Answers of the wrong kind, or twice.
  add(Steps().send(8, 1).answer(cts(8)));
  add(Steps().send(60'000).answer(ack()));
  const auto little = kLittleCredit;
  add(Steps(kSmallSlots).step(Step::kRoom, {1}).send(5000, 1).answer(ack()).answer(ack()));
  add(Steps(little).send(1000).send(1000).step(Step::kCancelSend, {0}).answer(ack()).answer(ack()));
  add(Steps(little).send(1000).send(1000).step(Step::kCancelSend, {0}).answer(ack()).answer(cts(1000)));
  add(Steps()
          .send(60'000)
          .step(Step::kCancelSend, {0})
          .answer(cts(60'000))
          .answer(cancel_reply(wire::kCancelled)));
  // What is taken back while it arrives, and credit that nobody asked for.
  add(Steps().message(eager_first(9999), 4000).message(cancel(1)).message(common(Kind::kEagerNext), 5999));
  add(Steps().message(eager_first(9999), 4000).message(eager_first(9999), 4000));
  add(Steps().message(recall(Kind::kReturn, 1)));
  // What may not come while a part of a packet is taken, and parts that are none.
  add(Steps(kTaking).message(part(4000)).message(common(Kind::kPacket), 40));
  add(Steps(kTaking).message(part(4000)).message(part(4000)));
  add(Steps(kTaking).message(part(4000)).answer(data(0), 4000).answer(data(4000), 1));
  add(Steps().message(part(0)));
  add(Steps().message(part(40), 40));
  const auto packet = [] {
    return Steps(kWrites)
        .step(Step::kSendPacket, {0, index_of_length(40), index_of_length(60'000)})
        .progress();
  };
  add(packet().answer(ack()));
  add(packet().answer(cts(60'000)).answer(ack()).answer(ack()));
  add(packet().answer(cts(60'000)).answer(cts(60'000)));
  add(packet().answer(cts(60'001)));
}

void commands(std::vector<Bytes>& seeds) {
  seeds.push_back(Steps()
                      .step(Step::kSendToSelf, {0, index_of_length(8), 0})
                      .receive(8)
                      .receive(8)
                      .step(Step::kSendToSelf, {0, index_of_length(8), 1})
                      .step(Step::kTakeEvents, {})
                      .step(Step::kSendToSelf, {0, index_of_length(60'000), 0})
                      .step(Step::kCancelSend, {0})
                      .step(Step::kSendToSelf, {0, index_of_length(60'000), 0})
                      .receive(8)
                      .done());
  seeds.push_back(Steps()
                      .receive(8, 3)
                      .receive(8, 4)
                      .step(Step::kCancelReceive, {0})
                      .step(Step::kPurge, {0})
                      .step(Step::kClosePeer, {0})
                      .step(Step::kPeerDown, {0, 1})
                      .progress()
                      .done());
  seeds.push_back(Steps().step(Step::kReenter, {7}).receive(8).message(eager(), 8).send(8).receive(8).done());
}

}  // namespace

std::vector<Bytes> engine_seeds() {
  std::vector<Bytes> seeds;
  receiving(seeds);
  sending(seeds);
  sending_parts(seeds);
  breaking(seeds);
  commands(seeds);
  return seeds;
}

}  // namespace ch3_offload::fuzz
