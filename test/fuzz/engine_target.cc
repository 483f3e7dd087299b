// The engine against a hostile conversation: messages, immediates and deaths of peers, room and failures of
// the provider, and the program's own commands, in any order, also between two events.
//
// Required beyond what the sanitizers see: every request is finished exactly once, its buffer whole and no
// longer registered; the budget for unexpected payload holds at all times; what breaks the rules of the wire
// (WireRules) ends the connection; nobody but the hostile peers fails; and after the end of all peers nothing
// is held and nothing lent.

#include "fuzz/engine_target.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "engine/card.h"
#include "fuzz/engine_seeds.h"
#include "fuzz/stand_in_provider.h"
#include "fuzz/target.h"
#include "fuzz/wire_rules.h"
#include "engine/engine.h"
#include "engine/event_handler.h"
#include "nic/host_driver.h"
#include "engine/payload_buffer.h"
#include "engine/trace.h"
#include "engine/wire.h"

namespace ch3_offload::fuzz {
namespace engine_target {

constexpr std::size_t kMostSteps = 1000;
constexpr Status kEnds[] = {Status::kOk, Status::kUnsupported, Status::kPeerFailed, Status::kAgain};
constexpr Status kRefusals[] = {Status::kOk, Status::kUnreachable, Status::kNoMemory, Status::kPeerFailed};

constexpr PeerId kHostilePeers[] = {PeerId{kHostile}, PeerId{kOtherHostile}};

EngineConfig engine_config(std::uint8_t bits) {
  EngineConfig config;
  config.self = PeerId{kSelf};
  config.senders = kJobSize;
  config.eager_limit_bytes = (bits & kSmallEager) != 0 ? 1000 : 16 * 1024;
  config.unexpected_budget_bytes = (bits & kNoBudget) != 0      ? 0
                                   : (bits & kSmallBudget) != 0 ? 20'000
                                                                : 1 << 20;
  config.send_buffer_bytes = (bits & kSendBuffer) != 0 ? 20'000 : 0;
  return config;
}

Capabilities capabilities(std::uint8_t bits) {
  const bool write = (bits & kWrites) != 0;
  return {"stand-in", (bits & kSmallSlots) != 0 ? std::size_t{256} : std::size_t{4096}, write,
          write ? std::size_t{100} : SIZE_MAX};
}

/// Something that the engine finishes with an event, at once, or not at all when it is taken back.
struct Request {
  enum class Kind : std::uint8_t { kSend, kPacket, kReceive, kCancel };
  Kind kind;
  bool pending = false;
  bool in_call = false;  ///< The call that begins it has not returned: its owner cannot name it yet.
  PeerId peer{};
  MatchKey key{};
  std::uint32_t send_id = 0;
  OperationId operation = kNoOperation;
  std::unique_ptr<PayloadBuffer> buffer;  ///< Gone when the request is finished: a late access shows.
  bool contiguous = true;
  Request* cancelled = nullptr;  ///< kCancel: the send that is to be taken back, if it was pending.
  bool asked = false;            ///< kSend: a cancel was tried.

  Cookie cookie() { return this; }
};

class Conversation final : public EventHandler {
 public:
  explicit Conversation(std::span<const std::byte> bytes)
      : input_(bytes),
        settings_(input_.u8()),
        provider_(kJobSize + 1, capabilities(settings_)),
        trace_(PeerId{kSelf}, kJobSize, 1024, []() noexcept { return std::uint64_t{1}; }),
        config_(engine_config(settings_)) {
    if ((settings_ & kTraced) != 0) config_.trace = &trace_;
    Provider* const providers[] = {&provider_};
    engine_.emplace(config_, providers);
    provider_.reached = PeerId{kNeighbour};
    provider_.committed = [this](PeerId to, auto message) {
      require(rules_[index_of(to)].sent(message) || broke_.count(to) != 0,
              "nothing overtakes a part of a packet");
    };
    provider_.refused = [this](PeerId to) { rules_[index_of(to)].held_back(); };
    provider_.delivering = [this](PeerId from, auto message) {
      if (rules_[index_of(from)].breaks(message)) broke_.insert(from);
    };
    provider_.delivering_write = [this](PeerId from, Immediate immediate, std::size_t length_bytes) {
      if (rules_[index_of(from)].write_breaks(static_cast<std::uint32_t>(immediate), length_bytes))
        broke_.insert(from);
    };
    greet();
  }

  void run() {
    for (std::size_t steps = 0; !input_.empty() && steps < kMostSteps; ++steps) {
      take(Step{input_.below(static_cast<std::uint8_t>(Step::kCount))});
      check_budget();
    }
    end();
  }

  void on_send_done(Cookie cookie, Status status) noexcept override {
    Request& request = *static_cast<Request*>(cookie);
    require(request.kind == Request::Kind::kSend || request.kind == Request::Kind::kPacket, "a send is done");
    require(status != Status::kAgain && status != Status::kUnsupported, "a send is done or has failed");
    finish(request);
    reenter();
  }
  void on_receive_done(Cookie cookie, const Envelope& envelope) noexcept override {
    Request& request = *static_cast<Request*>(cookie);
    require(request.kind == Request::Kind::kReceive, "a receive is done");
    check_envelope(request, envelope);
    finish(request);
    reenter();
  }
  void on_cancel_done(Cookie cookie, bool cancelled) noexcept override {
    Request& request = *static_cast<Request*>(cookie);
    require(request.kind == Request::Kind::kCancel, "a cancel is decided");
    finish(request);
    // Not both cancelled and done: finish() requires that it was pending.
    if (cancelled && request.cancelled != nullptr) finish(*request.cancelled);
    reenter();
  }
  void on_packet(PeerId, std::span<const std::byte> bytes) noexcept override {
    touch(bytes);
    reenter();
  }
  Payload on_packet_offer(PeerId peer, std::size_t length_bytes) noexcept override {
    places_.erase(peer);  // The engine left that one alone, or it writes to memory that is gone.
    constexpr std::size_t kMostBytes = 100'000;
    if (length_bytes % 3 == 0) return {};
    auto& place = places_[peer];
    const std::size_t wanted = length_bytes % 3 == 1 ? length_bytes : length_bytes / 2 + 1;
    place = std::make_unique<PayloadBuffer>(std::min(wanted, kMostBytes));
    return place->payload();
  }
  void on_packet_placed(PeerId peer, std::size_t length_bytes) noexcept override {
    const auto place = places_.extract(peer);
    require(!place.empty() && length_bytes > 0 && length_bytes <= place.mapped()->length_bytes(),
            "a part of a packet is where it was taken");
    require(place.mapped()->check_guards().empty(), "a part of a packet keeps to its place");
    require_taken_back(*place.mapped());
    touch({place.mapped()->payload().address, length_bytes});
    reenter();
  }
  void on_peer_failed(PeerId peer, Status reason) noexcept override {
    if (const auto place = places_.extract(peer); !place.empty()) require_taken_back(*place.mapped());
    require(reason != Status::kOk, "a failure has a reason");
    require(peer != PeerId{kNeighbour} || ended_, "only hostile peers fail");
    require(failed_.insert(peer).second, "a peer fails once");
    reenter();
  }
  std::string on_card_wanted(PeerId peer) override {
    require(peer != PeerId{kSelf}, "nobody is introduced to itself");
    return card_version() + ";stand-in";
  }
  void on_warning(LogScope, std::string_view text) noexcept override {
    require(!text.empty(), "a warning says something");
  }

 private:
  void require_taken_back(PayloadBuffer& place) {
    const Payload payload = place.payload();
    require(!provider_.registered(payload.address, payload.length_bytes),
            "a place is its owner's alone again");
  }
  /// Everybody lends the engine credit, and the first hostile peer has some of the engine's.
  void greet() {
    const std::uint32_t credit_bytes = (settings_ & kLittleCredit) != 0 ? 1000 : 100'000;
    const wire::CreditHeader credit{.common = {.kind = wire::Kind::kCredit, .credit_bytes = credit_bytes}};
    for (const std::uint32_t peer : {kHostile, kOtherHostile, kNeighbour}) {
      provider_.message(PeerId{peer}, std::as_bytes(std::span(&credit, 1)));
    }
    constexpr MatchKey kHello = make_match_key(9, 9, 9);
    const wire::RtsHeader hello{.common = {wire::Kind::kRts, wire::kWantCredit | wire::kPayload},
                                .bits = kHello.bits,
                                .operation = 1,
                                .initiator = kHello.initiator};
    Request& request = make_request(Request::Kind::kReceive);
    give_buffer(request, 0, false);
    Envelope envelope;
    settle(request, engine_->post_receive(kHello, kIgnoreNothing, payload_of(request), request.cookie(),
                                          request.operation, envelope));
    provider_.message(PeerId{kHostile}, std::as_bytes(std::span(&hello, 1)));
    progress();
    require(!request.pending, "the greeting is received");
    requests_.clear();
  }
  PeerId hostile_peer() { return kHostilePeers[input_.below(2)]; }
  std::size_t length() { return kLengths[input_.u8() % std::size(kLengths)]; }
  MatchKey match_key() {
    const std::uint8_t byte = input_.u8();
    return make_match_key(1 + (byte & 1), byte >> 1 & 3, byte >> 3 & 3);
  }
  MatchKey ignore() {
    constexpr MatchKey kMasks[] = {kIgnoreNothing, kIgnoreInitiator, kIgnoreTag, kIgnoreInitiatorAndTag,
                                   MatchKey{5}};
    return kMasks[input_.u8() % std::size(kMasks)];
  }

  Request& make_request(Request::Kind kind) {
    requests_.push_back(std::make_unique<Request>());
    requests_.back()->kind = kind;
    return *requests_.back();
  }
  void give_buffer(Request& request, std::size_t length_bytes, bool strided) {
    // Long strided ones would cost more than all the rest, and show no more.
    if (strided) length_bytes = std::min<std::size_t>(length_bytes, 5000);
    request.buffer = std::make_unique<PayloadBuffer>(length_bytes, strided ? 24 : 0, strided ? 7 : 0);
    request.contiguous = !strided;
  }
  Payload payload_of(Request& request) {
    return request.buffer == nullptr ? Payload{} : request.buffer->payload();
  }

  /// The request's owner has it back, and does with it what hurts most.
  void finish(Request& request) {
    require(request.pending, "a request is finished once");
    request.pending = false;
    release(request);
  }
  void release(Request& request) {
    if (request.buffer == nullptr) return;
    require_none(request.buffer->check_guards());
    const Payload payload = request.buffer->payload();
    require(!request.contiguous || payload.length_bytes == 0 ||
                !provider_.registered(payload.address, payload.length_bytes),
            "a finished request's buffer is not registered");
    request.buffer.reset();
  }
  /// What a command said at once.
  void settle(Request& request, Progressed progressed) {
    request.in_call = false;
    request.pending = progressed == Progressed::kPending;
    if (!request.pending) release(request);
  }
  void check_envelope(const Request& request, const Envelope& envelope) {
    if (envelope.status == Status::kRevoked) return;
    const std::size_t capacity = request.buffer->length_bytes();
    require(envelope.status != Status::kOk || envelope.length_bytes <= capacity,
            "what is received whole fits");
    require(envelope.status != Status::kTruncated || envelope.length_bytes > capacity, "what fits is whole");
  }
  /// Who broke the rules has failed, or will with the end of its connection.
  void check_refusals() {
    for (const PeerId peer : broke_) {
      const bool over = failed_.count(peer) != 0 || given_up_.count(peer) != 0 || provider_.will_end(peer);
      require(over, "who breaks the rules of the wire is refused");
    }
  }
  std::size_t progress() {
    const std::size_t happened = ch3_offload::progress(*engine_, *this);
    if (depth_ == 0) check_refusals();
    return happened;
  }
  void check_budget() {
    const Counters& counters = engine_->counters();
    require(counters.unexpected_bytes <= config_.unexpected_budget_bytes,
            "unexpected messages are within the budget");
    require(counters.lent_bytes <= config_.unexpected_budget_bytes, "lent credit is within the budget");
  }
  void reenter() {
    if (reentries_ == 0 || depth_ == 3) return;
    --reentries_;
    ++depth_;
    constexpr auto kFirst = static_cast<std::uint8_t>(Step::kProgress);
    constexpr auto kCommands = static_cast<std::uint8_t>(Step::kReenter) - kFirst;
    take(Step{static_cast<std::uint8_t>(kFirst + input_.below(kCommands))});
    --depth_;
  }

  void take(Step step);
  void peers_step(Step step);
  void provider_step(Step step);
  void commands_step(Step step);
  Bytes message();
  void answer(PeerId peer, Bytes& message, std::size_t ago);
  std::optional<std::uint32_t> id_for(wire::Kind answer, PeerId peer, std::size_t ago) const;
  void send();
  void receive();
  void send_packet();
  void cancel_send();
  void cancel_receive();
  void probe(bool take_it);
  void receive_matched(std::size_t which, std::size_t capacity);
  void send_to_self();
  void purge(bool everything, std::uint16_t context);

  void poll_until_quiet();
  void end();
  void end_hostile_peers();
  void expect_neighbour_unharmed();

  Input input_;
  const std::uint8_t settings_;
  StandInProvider provider_;
  Trace trace_;
  EngineConfig config_;
  std::optional<HostDriver> engine_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<MessageId> taken_;  ///< By matched_probe().
  std::array<WireRules, kJobSize + 1> rules_;  ///< By PeerId, with a process that nobody expected.
  std::map<PeerId, std::unique_ptr<PayloadBuffer>> places_;  ///< Where a part of a packet goes.
  std::set<PeerId> broke_;                                   ///< Who broke them.
  std::set<PeerId> given_up_;                                ///< By a command: its failure may be silent.
  std::set<PeerId> failed_;
  std::uint8_t reentries_ = 0;
  int depth_ = 0;
  bool ended_ = false;
};

void Conversation::take(Step step) {
  if (step < Step::kRoom) return peers_step(step);
  if (step < Step::kProgress) return provider_step(step);
  commands_step(step);
}

Bytes Conversation::message() {
  const auto head = input_.bytes(input_.below(64));
  Bytes bytes(head.begin(), head.end());
  const std::uint8_t index = input_.u8();
  const std::size_t payload = index == kFill16 ? input_.u16() : kLengths[index % std::size(kLengths)];
  bytes.resize(bytes.size() + payload, std::byte{0x42});
  return bytes;
}

/// The id that such an answer names, from what was sent to `peer` or to the other one.
std::optional<std::uint32_t> Conversation::id_for(wire::Kind answer, PeerId peer, std::size_t ago) const {
  if ((ago & kOfTheOther) != 0) peer = peer == PeerId{kHostile} ? PeerId{kOtherHostile} : PeerId{kHostile};
  ago %= kOfTheOther;
  const std::vector<Bytes>& sent = provider_.sent_to(peer);
  for (auto head = sent.rbegin(); head != sent.rend(); ++head) {
    wire::CommonHeader common;
    wire::EagerHeader eager;
    wire::RtsHeader rts;
    wire::CtsHeader cts;
    wire::CancelHeader cancel;
    std::optional<std::uint32_t> id;
    if (!wire::get(*head, common)) continue;
    const bool is_eager = common.kind == wire::Kind::kEager || common.kind == wire::Kind::kEagerFirst;
    const bool for_a_send = answer == wire::Kind::kCts || answer == wire::Kind::kAck;
    if (common.kind == wire::Kind::kRts && for_a_send) {
      if (wire::get(*head, rts)) id = rts.operation;
    } else if (is_eager && for_a_send && (common.flags & wire::kSynchronous) != 0) {
      if (wire::get(*head, eager)) id = eager.send_id;
    } else if (common.kind == wire::Kind::kCts && answer == wire::Kind::kData) {
      if (wire::get(*head, cts)) id = cts.transfer;
    } else if (common.kind == wire::Kind::kCancel && answer == wire::Kind::kCancelReply) {
      if (wire::get(*head, cancel)) id = cancel.token;
    }
    if (id && ago-- == 0) return id;
  }
  return {};
}

/// Makes an answer of a message: its id is one that was sent to `peer`.
void Conversation::answer(PeerId peer, Bytes& message, std::size_t ago) {
  wire::CommonHeader common;
  if (!wire::get(message, common)) return;
  const std::optional<std::uint32_t> id = id_for(common.kind, peer, ago);
  // Of kCts, kAck, kData and kCancelReply alike.
  constexpr std::size_t kOffset = offsetof(wire::CtsHeader, operation);
  static_assert(offsetof(wire::AckHeader, operation) == kOffset &&
                offsetof(wire::DataHeader, transfer) == kOffset &&
                offsetof(wire::CancelReplyHeader, token) == kOffset);
  if (id && message.size() >= kOffset + sizeof *id) std::memcpy(message.data() + kOffset, &*id, sizeof *id);
}

void Conversation::peers_step(Step step) {
  switch (step) {
    case Step::kMessage: {
      const PeerId peer = hostile_peer();
      return provider_.message(peer, message());
    }
    case Step::kAnswer: {
      const PeerId peer = hostile_peer();
      Bytes bytes = message();
      answer(peer, bytes, input_.u8());
      return provider_.message(peer, bytes);
    }
    case Step::kWriteArrived: {
      const PeerId peer = hostile_peer();
      const std::uint8_t which = input_.u8();
      const auto transfer = id_for(wire::Kind::kData, peer, which & 0x7F);
      if (!transfer) return;
      const std::size_t left = rules_[index_of(peer)].left_of(*transfer);
      return provider_.write_arrived(peer, Immediate{*transfer}, (which & 0x80) != 0 ? left / 2 : left);
    }
    case Step::kStrayWrite: {
      const PeerId peer = hostile_peer();
      const std::uint32_t immediate = input_.u32();
      return provider_.write_arrived(peer, Immediate{immediate}, immediate % 5000);
    }
    default: {
      const std::uint8_t which = input_.u8();
      return provider_.remote_write(which, std::byte{input_.u8()});
    }
  }
}

void Conversation::provider_step(Step step) {
  switch (step) {
    case Step::kRoom: {
      const std::uint8_t slots = input_.u8();
      provider_.room_slots = slots == 255 ? SIZE_MAX : slots;
      return;
    }
    case Step::kEndWrite: {
      const Status status = kEnds[input_.below(3)];
      return provider_.end_write(status);
    }
    case Step::kWriteAnswer: provider_.write_answer = kEnds[input_.below(4)]; return;
    case Step::kRefuse: {
      const std::uint8_t bits = input_.u8();
      provider_.refuses_registration = (bits & 1) != 0;
      provider_.connect_answer = kRefusals[bits >> 1 & 3];
      return;
    }
    default: {
      const PeerId peer = hostile_peer();
      return provider_.peer_down(peer, input_.flag() ? Status::kProtocol : Status::kPeerFailed);
    }
  }
}

void Conversation::commands_step(Step step) {
  switch (step) {
    case Step::kProgress:
      for (int turns = input_.below(8); turns >= 0; --turns) progress();
      return;
    case Step::kSend: return send();
    case Step::kReceive: return receive();
    case Step::kSendPacket: return send_packet();
    case Step::kCancelSend: return cancel_send();
    case Step::kCancelReceive: return cancel_receive();
    case Step::kProbe: return probe(false);
    case Step::kMatchedProbe: return probe(true);
    case Step::kReceiveMatched: {
      const std::size_t which = input_.u8();
      return receive_matched(which, length());
    }
    case Step::kSendToSelf: return send_to_self();
    case Step::kTakeEvents: take_events(*engine_, *this); return;
    case Step::kPurge: {
      const std::uint8_t bits = input_.u8();
      return purge((bits & 1) != 0, static_cast<std::uint16_t>(1 + (bits >> 1 & 1)));
    }
    case Step::kFailPeer:
    case Step::kClosePeer: {
      const PeerId peer = hostile_peer();
      given_up_.insert(peer);
      return step == Step::kFailPeer ? engine_->fail_peer(peer) : engine_->close_peer(peer);
    }
    default: reentries_ = input_.below(8); return;
  }
}

void Conversation::send() {
  constexpr std::uint32_t kReceivers[] = {kHostile, kOtherHostile, kNeighbour, kJobSize, kSelf};
  Request& request = make_request(Request::Kind::kSend);
  request.peer = PeerId{kReceivers[input_.below(std::size(kReceivers))]};
  const std::uint8_t mode = input_.u8();
  give_buffer(request, length(), (mode & 4) != 0);
  request.key = match_key();
  request.send_id = input_.u8();
  Status status = Status::kOk;
  request.pending = request.in_call = true;
  const Progressed progressed =
      engine_->send(request.peer, SendMode{static_cast<std::uint8_t>((mode & 3) % 3)}, request.key,
                    payload_of(request), request.send_id, request.cookie(), request.operation, status);
  require((progressed == Progressed::kFailed) == (status != Status::kOk), "a send that failed says why");
  require((progressed == Progressed::kPending) == (request.operation != kNoOperation),
          "a pending send has a name");
  settle(request, progressed);
}

void Conversation::receive() {
  Request& request = make_request(Request::Kind::kReceive);
  const std::uint8_t byte = input_.u8();
  request.key = make_match_key(1 + (byte & 1), byte >> 1 & 3, byte >> 3 & 3);
  const MatchKey ignored = ignore();
  give_buffer(request, length(), (byte & 128) != 0);
  Envelope envelope;
  const Progressed progressed = engine_->post_receive(request.key, ignored, payload_of(request),
                                                      request.cookie(), request.operation, envelope);
  require(progressed != Progressed::kFailed, "there is memory for a receive");
  if (progressed == Progressed::kDone) check_envelope(request, envelope);
  settle(request, progressed);
}

void Conversation::send_packet() {
  Request& request = make_request(Request::Kind::kPacket);
  request.peer = hostile_peer();
  const Bytes header(length() % 300, std::byte{0x48});
  give_buffer(request, length(), false);
  const Payload data[] = {payload_of(request)};
  Status status = Status::kOk;
  request.pending = request.in_call = true;
  const Progressed progressed = engine_->send_packet(request.peer, header, data, request.cookie(), status);
  settle(request, progressed);
}

void Conversation::cancel_send() {
  const std::size_t ago = input_.u8();
  if (requests_.empty()) return;
  Request& target = *requests_[requests_.size() - 1 - ago % requests_.size()];
  if (target.kind != Request::Kind::kSend || target.asked || target.in_call) return;
  target.asked = true;
  Request& request = make_request(Request::Kind::kCancel);
  request.peer = target.peer;
  request.cancelled = target.pending ? &target : nullptr;
  const Progressed progressed =
      engine_->cancel_send(target.operation, target.peer, target.key, target.send_id, request.cookie());
  if (progressed == Progressed::kDone && request.cancelled != nullptr) finish(target);
  settle(request, progressed);
}

void Conversation::cancel_receive() {
  const std::size_t ago = input_.u8();
  if (requests_.empty()) return;
  Request& target = *requests_[requests_.size() - 1 - ago % requests_.size()];
  if (target.in_call) return;
  if (engine_->cancel_receive(target.operation)) {
    require(target.kind == Request::Kind::kReceive, "receives are cancelled as such");
    finish(target);
  }
}

void Conversation::probe(bool take_it) {
  const MatchKey key = match_key();
  const MatchKey ignored = ignore();
  Envelope envelope;
  const bool there = engine_->probe(key, ignored, envelope);
  if (!take_it) return;
  MessageId message{};
  Envelope taken;
  require(engine_->matched_probe(key, ignored, message, taken) == there, "both probes find the same");
  if (!there) return;
  require(taken.length_bytes == envelope.length_bytes && taken.key == envelope.key, "the same message");
  taken_.push_back(message);
}

void Conversation::receive_matched(std::size_t which, std::size_t capacity) {
  if (taken_.empty()) return;
  const auto message = taken_.begin() + static_cast<std::ptrdiff_t>(which % taken_.size());
  Request& request = make_request(Request::Kind::kReceive);
  give_buffer(request, capacity, false);
  Envelope envelope;
  const Progressed progressed =
      engine_->receive_matched(*message, payload_of(request), request.cookie(), envelope);
  require(progressed != Progressed::kFailed, "a message that was taken is there");
  if (progressed == Progressed::kDone) check_envelope(request, envelope);
  require(!ended_ || progressed == Progressed::kDone, "nothing is awaited of who is gone");
  taken_.erase(message);
  settle(request, progressed);
}

void Conversation::send_to_self() {
  Request& request = make_request(Request::Kind::kSend);
  request.peer = PeerId{kSelf};
  request.key = match_key();
  give_buffer(request, length(), false);
  Status status = Status::kOk;
  const SendMode mode = input_.flag() ? SendMode::kSynchronous : SendMode::kStandard;
  const Progressed progressed = engine_->send(request.peer, mode, request.key, payload_of(request), 0,
                                              request.cookie(), request.operation, status);
  require(progressed != Progressed::kFailed, "there is memory for a message to oneself");
  settle(request, progressed);
}

void Conversation::purge(bool everything, std::uint16_t context) {
  const MatchPattern doomed{make_match_key(context, 0, 0), everything ? ~MatchKey{} : kIgnoreInitiatorAndTag};
  engine_->purge(PurgeScope::kAll, {&doomed, 1}, {}, Status::kRevoked);
}

void Conversation::poll_until_quiet() {
  for (int quiet = 0; quiet < 2;) quiet = progress() > 0 ? 0 : quiet + 1;
  check_budget();
}

void Conversation::end_hostile_peers() {
  constexpr PeerId kAll[] = {kHostilePeers[0], kHostilePeers[1], PeerId{kJobSize}};
  for (const PeerId peer : kAll) {
    given_up_.insert(peer);
    engine_->fail_peer(peer);
  }
  poll_until_quiet();
  while (provider_.posted_writes() > 0) provider_.end_write(Status::kOk);
  for (const PeerId peer : kAll) provider_.peer_down(peer, Status::kPeerFailed);
  poll_until_quiet();
}

/// Messages of the neighbour arrive, and go to it.
void Conversation::expect_neighbour_unharmed() {
  const MatchKey key = make_match_key(77, 3, 7);
  Request& request = make_request(Request::Kind::kReceive);
  give_buffer(request, 100, false);
  Envelope envelope;
  settle(request, engine_->post_receive(key, kIgnoreNothing, payload_of(request), request.cookie(),
                                        request.operation, envelope));
  require(request.pending, "nothing from the neighbour is there yet");
  // Without credit: it may have been recalled, or there is no budget.
  const wire::RtsHeader header{.common = {wire::Kind::kRts, wire::kPayload},
                               .bits = key.bits,
                               .operation = 2,
                               .initiator = key.initiator};
  provider_.message(PeerId{kNeighbour}, std::as_bytes(std::span(&header, 1)));
  poll_until_quiet();
  require(!request.pending, "the neighbour's message is received");

  const std::size_t sent = provider_.sent_to(PeerId{kNeighbour}).size();
  Request& packet = make_request(Request::Kind::kPacket);
  Status status = Status::kOk;
  const Bytes text(10, std::byte{0x4E});
  packet.pending = true;
  settle(packet, engine_->send_packet(PeerId{kNeighbour}, text, {}, packet.cookie(), status));
  poll_until_quiet();
  require(!packet.pending && status == Status::kOk, "a packet for the neighbour is sent");
  require(provider_.sent_to(PeerId{kNeighbour}).size() > sent, "a packet for the neighbour has left");
}

void Conversation::end() {
  reentries_ = 0;
  provider_.room_slots = SIZE_MAX;
  provider_.write_answer = Status::kOk;
  provider_.connect_answer = Status::kOk;
  end_hostile_peers();
  for (const auto& request : requests_) {
    const bool posted = request->kind == Request::Kind::kReceive;
    const bool neighbours = request->peer == PeerId{kNeighbour};
    const bool own = request->peer == PeerId{kSelf};
    require(posted || neighbours || own || !request->pending, "what a dead peer had to answer is finished");
  }
  purge(true, 0);
  take_events(*engine_, *this);
  expect_neighbour_unharmed();

  ended_ = true;
  engine_->fail_peer(PeerId{kNeighbour});
  while (provider_.posted_writes() > 0) provider_.end_write(Status::kPeerFailed);
  provider_.peer_down(PeerId{kNeighbour}, Status::kPeerFailed);
  poll_until_quiet();
  while (!taken_.empty()) receive_matched(0, 100);
  take_events(*engine_, *this);
  for (const auto& request : requests_) require(!request->pending, "every request is finished");
  const Counters& counters = engine_->counters();
  require(counters.posted_depth == 0 && counters.unexpected_depth == 0, "the queues are empty");
  require(counters.unexpected_bytes == 0, "no payload is kept");
  require(counters.unexpected_bytes_peak <= config_.unexpected_budget_bytes, "the budget held");
  require(counters.lent_bytes == 0, "what the dead were lent is back");
  require(counters.connected_peers == 0, "nobody is connected");
  require(provider_.regions() == 0, "no memory is registered");
  require(engine_->idle(), "nothing waits to leave");
}

const Target kTarget(
    "engine", [](std::span<const std::byte> input) { Conversation(input).run(); }, engine_seeds);

}  // namespace engine_target
}  // namespace ch3_offload::fuzz
