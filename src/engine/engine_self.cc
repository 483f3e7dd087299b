// Engine: messages of a process to itself.
//
// The matcher treats them as all others. If the receive is posted, the payload is copied from buffer to
// buffer. Otherwise the message is kept as if a peer had sent it without credit: a small one with its payload
// if the budget has room, any other as an envelope. The send of an envelope ends with its receive.
// A payload beyond EngineConfig::self_copy_bytes is copied by progress(), in parts.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// Whether the payload may have to come from elsewhere: its copy must be able to wait.
bool may_be_away(const Payload& payload) noexcept {
  return payload.layout != nullptr && payload.layout->kind == PayloadLayout::Kind::kFetched;
}

/// What fits.
std::size_t common_bytes(const Payload& from, const Payload& to) noexcept {
  return std::min(from.length_bytes, to.length_bytes);
}

}  // namespace

Progressed Engine::State::send_to_self(SendMode mode, const MatchKey& key, const Payload& payload,
                                       std::uint32_t send_id, Cookie cookie, OperationId& operation,
                                       Status& status) noexcept {
  Peer* const self = known(config.self);
  status = Status::kNoMemory;
  if (self == nullptr) return Progressed::kFailed;
  const std::uint64_t number = ++self->books->messages_sent;
  trace(TraceEvent::kSendPosted, self->id, number, payload.length_bytes, cookie);
  ++self->messages_received;
  ++counters.sent_to_self;
  if (ReceiveOperation* const receive = take_posted(key)) {
    status = Status::kOk;
    ++counters.received_expected;
    trace(TraceEvent::kMatched, self->id, number, abridged(key), receive->cookie);
    const std::size_t wanted_bytes = common_bytes(payload, receive->payload);
    const bool at_once = wanted_bytes <= config.self_copy_bytes && !may_be_away(payload);
    SendOperation* const send =
        at_once ? nullptr : make_send(*self, mode, key, payload, send_id, cookie, number);
    if (send != nullptr) {
      kSendMachine.must_step(send->state, SendEvent::kKeptHere);
      self->outgoing.push_back(*send);
      begin_self_copy(*send, *receive);
      operation = OperationId{kSendOperation | send->pool_id};
      return Progressed::kPending;
    }
    Status received = wanted_bytes == payload.length_bytes ? Status::kOk : Status::kTruncated;
    if (copy_range(payload, receive->payload, 0, wanted_bytes) < wanted_bytes)
      received = status = Status::kNoMemory;
    trace(TraceEvent::kReceiveDone, self->id, number, static_cast<std::uint64_t>(received), receive->cookie);
    complete_receive(*receive, received, key, payload.length_bytes);
    trace(TraceEvent::kSendDone, self->id, number, static_cast<std::uint64_t>(status), cookie);
    return status == Status::kOk ? Progressed::kDone : Progressed::kFailed;
  }

  const std::size_t cost = wire::cost_of(std::min(payload.length_bytes, config.eager_limit_bytes));
  if (mode != SendMode::kSynchronous && payload.length_bytes <= config.eager_limit_bytes && room_for(cost)) {
    IncomingMessage* const kept = keep(*self, key, payload.length_bytes, {});
    if (kept == nullptr) return Progressed::kFailed;
    kept->send_id = send_id;
    kept->optimistic = true;
    optimistic_bytes += cost;
    if (try_gather(payload, 0, {kept->stored(), payload.length_bytes})) {
      add_unexpected(*kept);
      status = Status::kOk;
      trace(TraceEvent::kSendDone, self->id, number, 0, cookie);
      return Progressed::kDone;
    }
    forget_message(*kept);
    --counters.received_unexpected;  // It is counted below.
  }

  SendOperation* const send = make_send(*self, mode, key, payload, send_id, cookie, number);
  IncomingMessage* const message = send == nullptr ? nullptr : messages.take();
  if (message == nullptr) {
    if (send != nullptr) sends.give_back(*send);
    return Progressed::kFailed;
  }
  kSendMachine.must_step(send->state, SendEvent::kKeptHere);
  send->to_self = message;
  self->outgoing.push_back(*send);
  message->state = MessageState::kToSelf;
  message->key = key;
  message->peer = self;
  message->number = number;
  message->total_bytes = payload.length_bytes;
  message->send_to_self = send;
  ++counters.unexpected_announced;
  ++counters.received_unexpected;
  trace(TraceEvent::kUnexpected, self->id, number, payload.length_bytes);
  add_unexpected(*message);
  status = Status::kOk;
  operation = OperationId{kSendOperation | send->pool_id};
  return Progressed::kPending;
}

/// A receive takes a message whose payload is still the send's.
void Engine::State::take_from_self(IncomingMessage& message, const Payload& payload) noexcept {
  SendOperation& send = *message.send_to_self;
  // What may be away is copied in parts.
  static_cast<void>(copy_range(send.payload, payload, 0, common_bytes(send.payload, payload)));
  finish_send(send, Status::kOk);
}

/// Whether a message to oneself and the payload of its receive are too long to be copied at once.
bool Engine::State::copies_in_parts(const IncomingMessage& message, const Payload& payload) const noexcept {
  if (message.state != MessageState::kToSelf) return false;
  const Payload& sent = message.send_to_self->payload;
  return may_be_away(sent) || common_bytes(sent, payload) > config.self_copy_bytes;
}

/// `receive` is in no queue, and has its payload and its cookie.
void Engine::State::begin_self_copy(SendOperation& send, ReceiveOperation& receive) noexcept {
  kReceiveMachine.must_step(receive.state, ReceiveEvent::kPartArrived);
  receive.peer = send.peer;
  receive.message_key = send.key;
  receive.number = send.number;
  receive.total_bytes = send.payload.length_bytes;
  await_payload(receive, *send.peer);
  kSendMachine.must_step(send.state, SendEvent::kMatchedHere);
  send.copied_to = &receive;
  begin_turns(send);
}

void Engine::State::begin_turns(Outgoing& one) noexcept {
  self_copies.push_back(one);
  ++own_work;
}

std::size_t Engine::State::copy_to_self() noexcept {
  Outgoing& one = *self_copies.pop_front();
  if (one.kind != Operation::Kind::kTarget) return continue_self_copy(static_cast<SendOperation&>(one));
  continue_own_move(static_cast<TargetOutgoing&>(one));
  return 1;
}

std::size_t Engine::State::continue_self_copy(SendOperation& send) noexcept {
  ReceiveOperation& receive = *send.copied_to;
  const std::size_t wanted_bytes = common_bytes(send.payload, receive.payload);
  const std::size_t part = std::min(config.self_copy_bytes, wanted_bytes - send.sent_bytes);
  const std::size_t copied = copy_range(send.payload, receive.payload, send.sent_bytes, part);
  send.sent_bytes += copied;
  if (copied < part) {
    self_copies.push_back(send);
    return copied > 0;
  }
  if (send.sent_bytes < wanted_bytes) {
    self_copies.push_back(send);  // They take turns.
  } else {
    --own_work;
    finish_receive(receive, wanted_bytes == send.payload.length_bytes ? Status::kOk : Status::kTruncated);
    finish_send(send, Status::kOk);
  }
  return 1;
}

/// `send`: pending, or null: done for its caller. False: it has matched.
bool Engine::State::cancel_to_self(SendOperation* send, const MatchKey& key, std::uint32_t send_id) noexcept {
  IncomingMessage* found = nullptr;
  if (send != nullptr) {
    if (send->state == SendState::kCopying) return false;
    found = send->to_self;
    if (found->taken) return false;
    kSendMachine.must_step(send->state, SendEvent::kCancelled);
    release_send(*send);
  } else {
    found = static_cast<IncomingMessage*>(matcher.newest_with_key(key));
    while (found != nullptr && !(found->peer->id == config.self && found->state == MessageState::kWhole &&
                                 found->key == key && send_id != 0 && found->send_id == send_id)) {
      found = static_cast<IncomingMessage*>(Matcher::older_with_same_key(*found));
    }
    if (found == nullptr) return false;
  }
  matcher.remove(*found);
  forget_message(*found);
  ++counters.cancelled_sends;
  return true;
}

}  // namespace ch3_offload
