// Engine: the receiving side of messages.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// The length of many payloads, one number: not worth a call.
constexpr std::size_t kCommonBytes = 8;

/// Copies a whole message into the buffer of its receive. kOk or kTruncated.
[[gnu::always_inline]] inline Status deliver_whole(const Payload& room,
                                                   std::span<const std::byte> payload) noexcept {
  if (payload.size() == kCommonBytes && room.length_bytes >= kCommonBytes && room.layout == nullptr) {
    std::memcpy(room.address, payload.data(), kCommonBytes);
    return Status::kOk;
  }
  scatter(room, 0, payload);
  return payload.size() <= room.length_bytes ? Status::kOk : Status::kTruncated;
}

}  // namespace

void Engine::State::drop_payload(IncomingMessage& message) noexcept {
  if (!message.has_block) return;
  blocks.give_back(message.block, message.total_bytes);
  message.has_block = false;
}

/// One that takes of the budget.
[[gnu::always_inline]] inline void Engine::State::forget_kept(IncomingMessage& message) noexcept {
  const std::size_t cost = wire::cost_of(message.total_bytes);
  counters.unexpected_bytes -= cost;
  if (message.optimistic) [[unlikely]] {
    optimistic_bytes -= cost;
  } else {
    repay(*message.peer, cost);
  }
  drop_payload(message);
  messages.give_back(message);
}

void Engine::State::forget_message(IncomingMessage& message) noexcept {
  if (!message.is_announced()) return forget_kept(message);
  --counters.unexpected_announced;
  messages.give_back(message);
}

/// Delivers a message whose payload is here. REQUIRES: it is not in the matcher.
[[gnu::always_inline]] inline void Engine::State::consume_whole(IncomingMessage& message,
                                                                const Payload& payload, Cookie cookie,
                                                                Envelope& envelope) noexcept {
  Peer& peer = *message.peer;
  trace(TraceEvent::kMatched, peer.id, message.number, abridged(message.key), cookie);
  envelope.key = message.key;
  envelope.length_bytes = message.total_bytes;
  envelope.status = deliver_whole(payload, {message.stored(), message.total_bytes});
  if (message.synchronous) [[unlikely]]
    send_ack(peer, message.operation, message.number);
  trace(TraceEvent::kReceiveDone, peer.id, message.number, static_cast<std::uint64_t>(envelope.status),
        cookie);
  forget_kept(message);
}

Progressed Engine::post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                                Cookie cookie, OperationId& operation, Envelope& envelope) noexcept {
  State& state = *state_;
  operation = kNoOperation;
  if (auto* const message = static_cast<IncomingMessage*>(state.matcher.find_unexpected(key, ignore))) {
    return state.consume(*message, payload, cookie, &operation, envelope);
  }
  ReceiveOperation* const receive = state.receives.take();
  if (receive == nullptr) {
    envelope = {key, 0, Status::kNoMemory};
    return Progressed::kFailed;
  }
  receive->key = key;
  receive->ignore = ignore;
  receive->payload = payload;
  receive->cookie = cookie;
  state.matcher.post(*receive);
  state.trace(TraceEvent::kReceivePosted, state.config.self, 0, abridged(key & ~ignore), cookie);
  operation = OperationId{kReceiveOperation | receive->pool_id};
  return Progressed::kPending;
}

bool Engine::receive_now(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                         Envelope& envelope) noexcept {
  State& state = *state_;
  auto* const message = static_cast<IncomingMessage*>(state.matcher.find_unexpected(key, ignore));
  if (message == nullptr || message->state != MessageState::kWhole) return false;
  state.matcher.remove(*message);
  state.consume_whole(*message, payload, nullptr, envelope);
  return true;
}

bool Engine::matched_probe(const MatchKey& key, const MatchKey& ignore, MessageId& message,
                           Envelope& envelope) noexcept {
  State& state = *state_;
  auto* const found = static_cast<IncomingMessage*>(state.matcher.find_unexpected(key, ignore));
  state.trace(TraceEvent::kProbe, state.config.self, 0, found != nullptr);
  if (found == nullptr) return false;
  envelope = {found->key, found->total_bytes, Status::kOk};
  state.take(*found);
  message = MessageId{found->pool_id};
  return true;
}

Progressed Engine::receive_matched(MessageId id, const Payload& payload, Cookie cookie,
                                   Envelope& envelope) noexcept {
  State& state = *state_;
  IncomingMessage* const message = state.messages.find(static_cast<std::uint64_t>(id));
  if (message == nullptr || !message->taken) {
    envelope = {MatchKey{}, 0, Status::kProtocol};
    return Progressed::kFailed;
  }
  return state.consume(*message, payload, cookie, nullptr, envelope);
}

/// Gives a message to a receive. A message whose payload is not here yet needs an operation, which
/// `operation` (may be null) names. kFailed: there was no memory for one, and the message stays.
Progressed Engine::State::consume(IncomingMessage& message, const Payload& payload, Cookie cookie,
                                  OperationId* operation, Envelope& envelope) noexcept {
  if (message.state == MessageState::kWhole) [[likely]] {
    unlink(message);
    consume_whole(message, payload, cookie, envelope);
    return Progressed::kDone;
  }
  envelope = {message.key, message.total_bytes, Status::kOk};
  Peer& peer = *message.peer;
  const bool lost = message.state == MessageState::kBroken ||
                    (message.state == MessageState::kRts && peer.state == PeerState::kFailed);
  const bool to_self = message.state == MessageState::kToSelf && !copies_in_parts(message, payload);
  if (lost || to_self) {
    unlink(message);
    trace(TraceEvent::kMatched, peer.id, message.number, abridged(message.key), cookie);
    if (to_self) take_from_self(message, payload);
    if (payload.length_bytes < message.total_bytes) envelope.status = Status::kTruncated;
    if (lost) envelope.status = Status::kPeerFailed;
    trace(TraceEvent::kReceiveDone, peer.id, message.number, static_cast<std::uint64_t>(envelope.status),
          cookie);
    forget_message(message);
    return Progressed::kDone;
  }

  ReceiveOperation* const receive = receives.take();
  if (receive == nullptr) {
    envelope.status = Status::kNoMemory;
    return Progressed::kFailed;
  }
  unlink(message);
  trace(TraceEvent::kMatched, peer.id, message.number, abridged(message.key), cookie);
  receive->payload = payload;
  receive->cookie = cookie;
  if (message.state == MessageState::kStreaming) {
    kReceiveMachine.must_step(receive->state, ReceiveEvent::kPartArrived);
    receive->peer = &peer;
    receive->message_key = message.key;
    receive->number = message.number;
    receive->total_bytes = message.total_bytes;
    await_payload(*receive, peer);
    scatter(payload, 0, {message.stored(), peer.incoming_bytes});
    drop_payload(message);
    peer.incoming_receive = receive;
    if (message.synchronous) send_ack(peer, message.operation, message.number);
  } else if (message.state == MessageState::kToSelf) {
    begin_self_copy(*message.send_to_self, *receive);
    forget_message(message);
  } else {
    const std::uint32_t remote_operation = message.operation;
    const MatchKey key = message.key;
    const std::size_t total_bytes = message.total_bytes;
    const std::uint64_t number = message.number;
    forget_message(message);
    if (start_transfer(*receive, peer, remote_operation, key, total_bytes, number)) {
      if (payload.length_bytes < total_bytes) envelope.status = Status::kTruncated;
      receives.give_back(*receive);
      return Progressed::kDone;
    }
  }
  if (operation != nullptr) *operation = OperationId{kReceiveOperation | receive->pool_id};
  return Progressed::kPending;
}

/// Answers an RTS for a receive that is in no queue. True: nothing is to be moved, the receive is done
/// (and still the caller's). False: its data will come.
bool Engine::State::start_transfer(ReceiveOperation& receive, Peer& peer, std::uint32_t remote_operation,
                                   const MatchKey& key, std::size_t total_bytes,
                                   std::uint64_t number) noexcept {
  receive.peer = &peer;
  receive.message_key = key;
  receive.number = number;
  receive.total_bytes = total_bytes;
  const std::size_t wanted_bytes = std::min(total_bytes, receive.payload.length_bytes);
  if (wanted_bytes == 0) {
    wire::CtsHeader header;
    header.operation = remote_operation;
    trace(TraceEvent::kCtsSent, peer.id, number, 0);
    send_control(peer, wire::Kind::kCts, 0, header);
    return true;
  }
  kReceiveMachine.must_step(receive.state, ReceiveEvent::kAnnounced);
  start_landing(receive.landing, peer, receive.payload, wanted_bytes, remote_operation).receive = &receive;
  await_payload(receive, peer);
  if (peer.state == PeerState::kConnected)
    grant(receive.landing);
  else
    want_connection(peer);
  return false;
}

/// Finishes a receive that has just matched the peer's latest message, with a payload that is all here.
[[gnu::always_inline]] inline void Engine::State::finish_whole(ReceiveOperation& receive, Peer& peer,
                                                               const MatchKey& key,
                                                               std::span<const std::byte> payload) noexcept {
  const Status status = deliver_whole(receive.payload, payload);
  ++counters.received_expected;
  if (config.trace != nullptr) [[unlikely]] {
    record(TraceEvent::kMatched, peer.id, peer.messages_received, abridged(key), receive.cookie);
    record(TraceEvent::kReceiveDone, peer.id, peer.messages_received, static_cast<std::uint64_t>(status),
           receive.cookie);
  }
  complete_receive(receive, status, key, payload.size());
}

/// With room for a payload that is not kept in the message itself. Null: no memory.
IncomingMessage* Engine::State::make_with_block(std::size_t total_bytes) noexcept {
  IncomingMessage* const message = messages.take();
  if (message == nullptr) return nullptr;
  message->block = blocks.take(total_bytes);
  if (message->block == nullptr) {
    messages.give_back(*message);
    return nullptr;
  }
  message->has_block = true;
  return message;
}

/// Makes an unexpected message with room for its payload and `head` in it. Null: no memory.
IncomingMessage* Engine::State::keep(Peer& peer, const MatchKey& key, std::size_t total_bytes,
                                     std::span<const std::byte> head) noexcept {
  IncomingMessage* const message =
      total_bytes <= IncomingMessage::kInlineBytes ? messages.take() : make_with_block(total_bytes);
  if (message == nullptr) return nullptr;
  message->key = key;
  message->peer = &peer;
  message->number = peer.messages_received;
  message->total_bytes = total_bytes;
  if (head.size() == kCommonBytes) {
    std::memcpy(message->stored(), head.data(), kCommonBytes);
  } else if (!head.empty()) {
    ch3_offload_copy(message->stored(), head.data(), head.size());
  }
  count_kept(wire::cost_of(total_bytes));
  ++counters.received_unexpected;
  trace(TraceEvent::kUnexpected, peer.id, message->number, total_bytes);
  return message;
}

/// The first part of an eager message, or all of it.
[[gnu::always_inline]] inline bool Engine::State::arrive(Peer& peer, const wire::EagerHeader& header,
                                                         std::span<const std::byte> part,
                                                         std::size_t total_bytes) noexcept {
  ch3_offload_books_t& books = *peer.books;
  if (peer.incoming != nullptr || total_bytes < part.size() || !charge(books, total_bytes)) return false;
  ++peer.messages_received;
  trace(TraceEvent::kMessageArrived, peer.id, peer.messages_received, total_bytes);
  const MatchKey key{header.bits, header.initiator};
  ReceiveOperation* const receive = take_posted(key);
  if (receive == nullptr) {
    keep_eager(peer, header, part, total_bytes);
    return true;
  }
  if ((header.common.flags & wire::kSynchronous) != 0) [[unlikely]]
    send_ack(peer, header.send_id, peer.messages_received);
  if (part.size() == total_bytes) {
    owe(peer, books, wire::cost_of(total_bytes));  // It has not failed: on_message() has looked.
    finish_whole(*receive, peer, key, part);
  } else {
    attach(peer, *receive, key, part, total_bytes, peer.messages_received);
  }
  return true;
}

/// No receive has taken it.
[[gnu::flatten]] void Engine::State::keep_eager(Peer& peer, const wire::EagerHeader& header,
                                                std::span<const std::byte> part,
                                                std::size_t total_bytes) noexcept {
  IncomingMessage* const kept = keep(peer, {header.bits, header.initiator}, total_bytes, part);
  if (kept == nullptr) {
    repay(peer, wire::cost_of(total_bytes));
    return doom(peer, Status::kNoMemory);
  }
  kept->synchronous = (header.common.flags & wire::kSynchronous) != 0;
  (kept->synchronous ? kept->operation : kept->send_id) = header.send_id;
  if (part.size() < total_bytes) {
    kept->state = MessageState::kStreaming;
    peer.incoming = kept;
    peer.incoming_bytes = part.size();
    peer.incoming_receive = nullptr;
  }
  add_unexpected(*kept);
}

Delivery Engine::State::on_message(PeerId id, std::span<const std::byte> message) noexcept {
  Peer* const peer = met(id);
  if (peer == nullptr || peer->doom != Status::kOk) [[unlikely]]
    return Delivery::kTaken;
  wire::EagerHeader header;
  const bool is_short = wire::get(message, header) && header.common.kind == wire::Kind::kEager &&
                        header.common.client == wire::kMessageClient;
  if (!is_short) return dispatch(*peer, message);
  peer->books->credit_bytes += header.common.credit_bytes;
  const auto payload = message.subspan(sizeof header);
  if (!arrive(*peer, header, payload, payload.size())) [[unlikely]]
    doom(*peer, Status::kProtocol);
  return Delivery::kTaken;
}

bool Engine::State::on_eager_first(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::EagerFirstHeader header;
  if (!wire::get(message, header)) return false;
  return arrive(peer, header.eager, message.subspan(sizeof header), header.total_bytes);
}

/// Parts of a message that has matched go straight to the receive; nothing is kept but the books.
void Engine::State::attach(Peer& peer, ReceiveOperation& receive, const MatchKey& key,
                           std::span<const std::byte> part, std::size_t total_bytes,
                           std::uint64_t number) noexcept {
  kReceiveMachine.must_step(receive.state, ReceiveEvent::kPartArrived);
  receive.peer = &peer;
  receive.message_key = key;
  receive.number = number;
  receive.total_bytes = total_bytes;
  await_payload(receive, peer);
  IncomingMessage* const arriving = messages.take();
  if (arriving == nullptr) {
    repay(peer, wire::cost_of(total_bytes));
    return doom(peer, Status::kNoMemory);
  }
  arriving->state = MessageState::kStreaming;
  arriving->key = key;
  arriving->peer = &peer;
  arriving->number = number;
  arriving->total_bytes = total_bytes;
  count_kept(
      wire::cost_of(total_bytes));  // Its credit is spent until it is whole; forget_message() takes it off.
  peer.incoming = arriving;
  peer.incoming_bytes = 0;
  peer.incoming_receive = &receive;
  ++counters.received_expected;
  trace(TraceEvent::kMatched, peer.id, number, abridged(key), receive.cookie);
  deliver_part(*arriving, part);
}

bool Engine::State::on_eager_next(Peer& peer, std::span<const std::byte> message) noexcept {
  const auto part = message.subspan(sizeof(wire::CommonHeader));
  IncomingMessage* const incoming = peer.incoming;
  if (incoming == nullptr || part.empty() || part.size() > incoming->total_bytes - peer.incoming_bytes) {
    return false;
  }
  deliver_part(*incoming, part);
  return true;
}

void Engine::State::deliver_part(IncomingMessage& message, std::span<const std::byte> part) noexcept {
  Peer& peer = *message.peer;
  ReceiveOperation* const receive = peer.incoming_receive;
  if (receive != nullptr) {
    scatter(receive->payload, peer.incoming_bytes, part);
  } else if (message.state != MessageState::kDiscarded) {
    ch3_offload_copy(message.stored() + peer.incoming_bytes, part.data(), part.size());
  }
  peer.incoming_bytes += part.size();
  if (peer.incoming_bytes < message.total_bytes) return;
  peer.incoming = nullptr;
  const bool discarded = message.state == MessageState::kDiscarded;
  kMessageMachine.must_step(message.state, MessageEvent::kLastPart);
  if (discarded) return forget_message(message);
  if (receive == nullptr) return;
  const bool fits = message.total_bytes <= receive->payload.length_bytes;
  forget_message(message);
  finish_receive(*receive, fits ? Status::kOk : Status::kTruncated);
}

bool Engine::State::on_rts(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::RtsHeader header;
  if (!wire::get(message, header) || peer.incoming != nullptr) return false;
  if ((header.common.flags & wire::kPacketPart) != 0) {
    return message.size() == sizeof header && on_part_offered(peer, header);
  }
  const auto payload = message.subspan(sizeof header);
  const bool optimistic = (header.common.flags & wire::kPayload) != 0;
  if (payload.size() != (optimistic ? header.total_bytes : 0)) return false;
  const std::uint64_t number = ++peer.messages_received;
  const MatchKey key{header.bits, header.initiator};
  trace(TraceEvent::kMessageArrived, peer.id, number, header.total_bytes);
  const bool wants_credit = (header.common.flags & wire::kWantCredit) != 0;

  if (ReceiveOperation* const receive = take_posted(key)) {
    if (wants_credit) grant_more(peer, header.total_bytes);
    if (optimistic) {
      send_ack(peer, header.operation, number);
      finish_whole(*receive, peer, key, payload);
      return true;
    }
    ++counters.received_expected;
    trace(TraceEvent::kMatched, peer.id, number, abridged(key), receive->cookie);
    if (start_transfer(*receive, peer, header.operation, key, header.total_bytes, number)) {
      finish_receive(*receive, header.total_bytes > 0 ? Status::kTruncated : Status::kOk);
    }
    return true;
  }
  const std::size_t cost = wire::cost_of(payload.size());
  const bool take_payload = optimistic && room_for(cost);
  IncomingMessage* kept = nullptr;
  if (take_payload) {
    kept = keep(peer, key, payload.size(), payload);
  } else {
    kept = messages.take();
    if (kept != nullptr) {
      kept->state = MessageState::kRts;
      kept->key = key;
      kept->peer = &peer;
      kept->number = number;
      kept->total_bytes = header.total_bytes;
      ++counters.unexpected_announced;
      ++counters.received_unexpected;
      trace(TraceEvent::kUnexpected, peer.id, number, header.total_bytes);
    }
  }
  if (kept == nullptr) {
    doom(peer, Status::kNoMemory);
    return true;
  }
  kept->operation = header.operation;
  kept->send_id = header.send_id;
  kept->optimistic = take_payload;
  if (take_payload) optimistic_bytes += cost;
  add_unexpected(*kept);
  if (wants_credit) grant_more(peer, header.total_bytes);  // Of what this message has left.
  if (take_payload) {
    send_ack(peer, header.operation, number);
  } else if (optimistic) {
    ++counters.dropped_payloads;
    trace(TraceEvent::kPayloadDropped, peer.id, number, payload.size());
  }
  return true;
}

/// The last thing done with it. REQUIRES: it is not in the matcher.
void Engine::State::finish_receive(ReceiveOperation& receive, Status status) noexcept {
  trace(TraceEvent::kReceiveDone, receive.peer->id, receive.number, static_cast<std::uint64_t>(status),
        receive.cookie);
  if (receive.peer_hook.linked()) {
    receive.peer->receives.remove(receive);
    --receives_under_way;
  }
  if (receive.state == ReceiveState::kLanding) end_landing(receive.landing);
  const bool failed = status != Status::kOk && status != Status::kTruncated;
  kReceiveMachine.must_step(receive.state, failed ? ReceiveEvent::kFailed : ReceiveEvent::kDone);
  if (receive.is_of_program) [[unlikely]] {
    receive.status = status;
    return complete(receive);
  }
  complete_receive(receive, status, receive.message_key, receive.total_bytes);
}

}  // namespace ch3_offload
