// Engine: the sending side of messages.
//
// A message leaves as one slot (short), several (eager), RTS with its payload (optimistic: small, but
// out of byte credit) or RTS alone (rendezvous); docs/wire-format.md has the exchange of each.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

bool fits_one_slot(const Peer& peer, const Payload& payload) noexcept {
  return sizeof(wire::EagerHeader) + payload.length_bytes <= peer.max_slot_bytes;
}

}  // namespace

Progressed Engine::send(PeerId id, SendMode mode, const MatchKey& key, const Payload& payload,
                        std::uint32_t send_id, Cookie cookie, OperationId& operation,
                        Status& status) noexcept {
  State& state = *state_;
  operation = kNoOperation;
  if (id == state.config.self) {
    return state.send_to_self(mode, key, payload, send_id, cookie, operation, status);
  }
  Peer* const peer = state.known(id);
  status = state.may_send(id, peer);
  if (status != Status::kOk) return Progressed::kFailed;
  const std::uint64_t number = ++peer->books->messages_sent;
  state.trace(TraceEvent::kSendPosted, id, number, payload.length_bytes, cookie);
  if (mode != SendMode::kSynchronous && state.send_at_once(*peer, key, payload, send_id)) {
    return Progressed::kDone;
  }
  SendOperation* const send = state.make_send(*peer, mode, key, payload, send_id, cookie, number);
  if (send == nullptr) {
    status = Status::kNoMemory;
    return Progressed::kFailed;
  }
  const Progressed progressed = state.submit(*send, status);
  if (progressed != Progressed::kPending) return progressed;
  if (send->state == SendState::kQueued) {
    state.trace(TraceEvent::kSendQueued, id, number, payload.length_bytes);
  }
  operation = OperationId{kSendOperation | send->pool_id};
  return progressed;
}

/// Null: no memory.
SendOperation* Engine::State::make_send(Peer& peer, SendMode mode, const MatchKey& key,
                                        const Payload& payload, std::uint32_t send_id, Cookie cookie,
                                        std::uint64_t number) noexcept {
  SendOperation* const send = sends.take();
  if (send == nullptr) return nullptr;
  send->mode = mode;
  send->send_id = send_id;
  send->peer = &peer;
  send->cookie = cookie;
  send->key = key;
  send->payload = payload;
  send->number = number;
  return send;
}

/// A whole message in one slot. Inlined, since a call costs a small message 6 % of its instructions.
[[gnu::always_inline]] inline Status Engine::State::send_short(Peer& peer, unsigned flags,
                                                               const MatchKey& key, const Payload& payload,
                                                               std::uint32_t send_id,
                                                               std::uint64_t number) noexcept {
  const std::size_t length = payload.length_bytes;
  const std::size_t slot_bytes = sizeof(wire::EagerHeader) + length;
  std::span<std::byte> slot;
  const Status status = reserve(peer, slot_bytes, slot);
  if (status != Status::kOk) return status;
  if (!try_gather(payload, 0, slot.subspan(sizeof(wire::EagerHeader)))) return Status::kAgain;
  wire::EagerHeader header;
  header.common = common(peer, wire::Kind::kEager, flags);
  header.bits = key.bits;
  header.initiator = key.initiator;
  header.send_id = send_id;
  wire::put(slot, header);
  trace(TraceEvent::kSendShort, peer.id, number, length);
  peer.provider->commit(*peer.endpoint, slot_bytes);
  peer.books->credit_bytes -= wire::cost_of(length);
  ++counters.sent_short;
  return Status::kOk;
}

bool Engine::State::send_at_once(Peer& peer, const MatchKey& key, const Payload& payload,
                                 std::uint32_t send_id) noexcept {
  return peer.state == PeerState::kConnected && peer.queued == 0 && may_send_eager(peer, payload) &&
         fits_one_slot(peer, payload) &&
         send_short(peer, 0, key, payload, send_id, peer.books->messages_sent) == Status::kOk;
}

/// The first of the slots of a message that one slot cannot hold.
Status Engine::State::send_first(SendOperation& send) noexcept {
  Peer& peer = *send.peer;
  const std::size_t length = send.payload.length_bytes;
  const bool synchronous = send.mode == SendMode::kSynchronous;
  const std::size_t part = part_bytes(peer.max_slot_bytes, sizeof(wire::EagerFirstHeader), length);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::EagerFirstHeader) + part, slot);
  if (status != Status::kOk) return status;
  if (!try_gather(send.payload, 0, slot.subspan(sizeof(wire::EagerFirstHeader), part))) return Status::kAgain;
  wire::EagerFirstHeader header;
  header.eager.common = common(peer, wire::Kind::kEagerFirst, synchronous ? wire::kSynchronous : 0U);
  header.eager.bits = send.key.bits;
  header.eager.initiator = send.key.initiator;
  header.eager.send_id = synchronous ? number_outgoing(send) : send.send_id;
  header.total_bytes = length;
  wire::put(slot, header);
  trace(TraceEvent::kSendEager, peer.id, send.number, length);
  peer.provider->commit_part(*peer.endpoint, sizeof header + part);
  peer.books->credit_bytes -= wire::cost_of(length);
  spend(send, sizeof header + part);
  send.sent_bytes = part;
  peer.streaming = &send;
  kSendMachine.must_step(send.state, synchronous ? SendEvent::kSynchronousPartLeft : SendEvent::kPartLeft);
  ++counters.sent_eager;
  return Status::kOk;
}

/// Sends what can be sent of it now. Unless it is kPending, the caller must not use it any more.
Progressed Engine::State::submit(Outgoing& outgoing, Status& status) noexcept {
  Peer& peer = *outgoing.peer;
  peer.outgoing.push_back(outgoing);
  enqueue(outgoing);
  submitting = &outgoing;
  if (peer.state == PeerState::kConnected)
    flush(peer);
  else
    want_connection(peer);
  const bool is_over = std::exchange(submitting, nullptr) == nullptr;
  status = is_over ? submitted_status : Status::kOk;
  if (!is_over) return Progressed::kPending;
  return status == Status::kOk ? Progressed::kDone : Progressed::kFailed;
}

Status Engine::State::transmit(Outgoing& outgoing) noexcept {
  if (outgoing.kind != Operation::Kind::kSend) [[unlikely]] {
    if (outgoing.kind == Operation::Kind::kTarget)
      return transmit_target(static_cast<TargetOutgoing&>(outgoing));
    return stream_packet(static_cast<PacketOperation&>(outgoing));
  }
  auto& send = static_cast<SendOperation&>(outgoing);
  return send.state == SendState::kQueued ? transmit_message(send) : stream(send);
}

/// Whether a small send that lacks credit waits for the next progress(), which polls before it sends: what
/// the peer has lent before comes back. A sender that never waits never polls, so it would copy each message
/// and announce it while its credit is there to be read.
bool Engine::State::may_have_credit_unread(const SendOperation& send) const noexcept {
  const Peer& peer = *send.peer;
  return submitting != nullptr && send.payload.length_bytes <= config.eager_limit_bytes &&
         peer.books->messages_sent > peer.messages_announced + peer.queued;
}

Status Engine::State::transmit_message(SendOperation& send) noexcept {
  Peer& peer = *send.peer;
  if (!may_send_eager(peer, send.payload))
    return may_have_credit_unread(send) ? Status::kAgain : announce(send);
  if (!fits_one_slot(peer, send.payload)) return send_first(send);

  const bool synchronous = send.mode == SendMode::kSynchronous;
  const Status status = send_short(peer, synchronous ? wire::kSynchronous : 0U, send.key, send.payload,
                                   synchronous ? number_outgoing(send) : send.send_id, send.number);
  if (status != Status::kOk) return status;
  spend(send, sizeof(wire::EagerHeader) + send.payload.length_bytes);
  dequeue(send);
  if (synchronous) {
    kSendMachine.must_step(send.state, SendEvent::kSynchronousLeft);
  } else {
    finish_send(send, Status::kOk);
  }
  return Status::kOk;
}

Status Engine::State::stream(SendOperation& send) noexcept {
  Peer& peer = *send.peer;
  const std::size_t total = send.payload.length_bytes;
  const std::size_t part =
      part_bytes(peer.max_slot_bytes, sizeof(wire::CommonHeader), total - send.sent_bytes);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::CommonHeader) + part, slot);
  if (status != Status::kOk) return status;
  if (!try_gather(send.payload, send.sent_bytes, slot.subspan(sizeof(wire::CommonHeader), part)))
    return Status::kAgain;
  wire::put(slot, common(peer, wire::Kind::kEagerNext, 0));
  const std::size_t slot_bytes = sizeof(wire::CommonHeader) + part;
  if (send.sent_bytes + part < total)
    peer.provider->commit_part(*peer.endpoint, slot_bytes);
  else
    peer.provider->commit(*peer.endpoint, slot_bytes);
  spend(send, slot_bytes);
  send.sent_bytes += part;
  if (send.sent_bytes < total) return Status::kOk;
  peer.streaming = nullptr;
  dequeue(send);
  if (send.mode == SendMode::kSynchronous) kSendMachine.must_step(send.state, SendEvent::kSynchronousLeft);
  if (send.cancelling) {
    ask_for_late_cancel(send);
  } else if (send.state == SendState::kStreaming || send.state == SendState::kAccepted) {
    finish_send(send, Status::kOk);
  }
  return Status::kOk;
}

Status Engine::State::announce(SendOperation& send) noexcept {
  Peer& peer = *send.peer;
  const std::size_t length = send.payload.length_bytes;
  const bool small = length <= config.eager_limit_bytes;  // It is credit that is missing.
  const std::size_t with_payload = sizeof(wire::RtsHeader) + length;
  // The acceptance of a payload is no match: a synchronous send waits for its CTS.
  const bool optimistic = small && send.mode != SendMode::kSynchronous && with_payload <= peer.max_slot_bytes;
  const std::size_t slot_bytes = optimistic ? with_payload : sizeof(wire::RtsHeader);
  std::span<std::byte> slot;
  const Status status = reserve(peer, slot_bytes, slot);
  if (status != Status::kOk) return status;
  if (optimistic && !try_gather(send.payload, 0, slot.subspan(sizeof(wire::RtsHeader), length)))
    return Status::kAgain;
  wire::RtsHeader header;
  header.common = common(peer, wire::Kind::kRts,
                         (send.mode == SendMode::kSynchronous ? wire::kSynchronous : 0U) |
                             (small ? wire::kWantCredit : 0U) | (optimistic ? wire::kPayload : 0U));
  header.bits = send.key.bits;
  header.initiator = send.key.initiator;
  header.total_bytes = length;
  header.operation = number_outgoing(send);
  header.send_id = send.send_id;
  wire::put(slot, header);
  trace(optimistic ? TraceEvent::kOptimisticSent : TraceEvent::kRtsSent, peer.id, send.number, length);
  peer.provider->commit(*peer.endpoint, slot_bytes);
  ++peer.messages_announced;
  spend(send, slot_bytes);
  kSendMachine.must_step(send.state, optimistic ? SendEvent::kAnnouncedWithPayload : SendEvent::kAnnounced);
  dequeue(send);
  ++(optimistic ? counters.sent_optimistic : counters.sent_rendezvous);
  if (small && send.mode == SendMode::kStandard) keep_copy(send);
  return Status::kOk;
}

/// Finishes a small send that is only short of credit for its caller, by keeping its payload here: so
/// a program that leans on eager sends does not stop when the receiver's budget is spent. The receiver
/// keeps an envelope for each, so each sender has its share of what all of them may leave there.
void Engine::State::keep_copy(SendOperation& send) noexcept {
  const std::size_t length = send.payload.length_bytes;
  const std::size_t cost = kBufferedSendBytes + length;
  if (cost > config.send_buffer_bytes - std::min(buffered_bytes, config.send_buffer_bytes) ||
      send.peer->buffered_sends >= most_buffered_sends) {
    return;
  }
  // The event needs an operation of its own, because this one lives on.
  SendOperation* const told = &send == submitting ? nullptr : sends.take();
  if (told == nullptr && &send != submitting) return;
  std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[std::max<std::size_t>(length, 1)]);
  if (copy == nullptr || !try_gather(send.payload, 0, {copy.get(), length})) {
    if (told != nullptr) sends.give_back(*told);
    return;
  }
  send.payload = {copy.get(), length, nullptr};
  send.copy = std::move(copy);
  send.detached = true;
  buffered_bytes += cost;
  ++send.peer->buffered_sends;
  ++counters.sent_buffered;
  trace(TraceEvent::kSendBuffered, send.peer->id, send.number, length, send.cookie);
  if (told == nullptr) {
    submitting = nullptr;
    submitted_status = Status::kOk;
    return;
  }
  told->cookie = send.cookie;
  told->is_of_program = send.is_of_program;
  kSendMachine.must_step(told->state, SendEvent::kDone);
  complete(*told);
}

bool Engine::State::on_ack(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::AckHeader header;
  if (!wire::get(message, header)) return false;
  Outgoing* const outgoing = on_wire.oldest(header.operation);
  if (outgoing == nullptr || outgoing->peer != &peer) return false;
  trace(TraceEvent::kAckArrived, peer.id, outgoing->number, 0);
  if (outgoing->kind != Operation::Kind::kSend) [[unlikely]] {
    return outgoing->kind == Operation::Kind::kPacket &&
           on_part_placed(static_cast<PacketOperation&>(*outgoing));
  }
  auto& send = static_cast<SendOperation&>(*outgoing);
  if (!follow(peer, kSendMachine, send.state, SendEvent::kAck)) return false;
  // If the first part has matched, it is done when the last has left. If a cancel is undecided, its reply
  // decides: an accepted payload can still be cancelled.
  if (send.state == SendState::kAccepted && !send.cancelling) finish_send(send, Status::kOk);
  return true;
}

void Engine::State::enqueue(Outgoing& outgoing) noexcept {
  Peer& peer = *outgoing.peer;
  outgoing.traffic_class = outgoing.kind == Operation::Kind::kSend
                               ? class_of(static_cast<const SendOperation&>(outgoing).key.bits)
                               : config.traffic_class;
  peer.backlog_of(outgoing).queue.push_back(outgoing);
  ++peer.queued;
  gate(peer);
}

void Engine::State::dequeue(Outgoing& outgoing) noexcept {
  Peer& peer = *outgoing.peer;
  peer.backlog_of(outgoing).queue.remove(outgoing);
  --peer.queued;
  gate(peer);
}

void Engine::State::unlink_outgoing(Outgoing& outgoing) noexcept {
  Peer& peer = *outgoing.peer;
  if (peer.streaming == &outgoing) peer.streaming = nullptr;
  if (outgoing.bulk_hook.linked()) peer.backlog_of(outgoing).bulk.remove(outgoing);
  if (outgoing.queue_hook.linked()) dequeue(outgoing);
  let_go(peer, outgoing.outbound.memory);
  if (outgoing.number_on_wire != 0) on_wire.remove(outgoing);
  peer.outgoing.remove(outgoing);
}

void Engine::State::release_send(SendOperation& send) noexcept {
  unlink_outgoing(send);
  if (send.copy != nullptr) {
    buffered_bytes -= kBufferedSendBytes + send.payload.length_bytes;
    --send.peer->buffered_sends;
  }
  sends.give_back(send);
}

std::uint32_t Engine::State::number_outgoing(Outgoing& outgoing) noexcept {
  if (outgoing.number_on_wire != 0) return outgoing.number_on_wire;
  do ++last_outgoing;
  while (last_outgoing == 0 || on_wire.oldest(last_outgoing) != nullptr);
  outgoing.number_on_wire = last_outgoing;
  on_wire.append(outgoing);
  return last_outgoing;
}

/// If its call is on the stack, tells it what came of it: no event comes.
bool Engine::State::over_for_caller(Outgoing& outgoing, Status status) noexcept {
  if (&outgoing != submitting) return false;
  submitting = nullptr;
  submitted_status = status;
  return true;
}

/// The last thing done with it.
void Engine::State::finish_send(SendOperation& send, Status status) noexcept {
  trace(TraceEvent::kSendDone, send.peer->id, send.number, static_cast<std::uint64_t>(status),
        send.detached ? nullptr : send.cookie);
  kSendMachine.must_step(send.state, status == Status::kOk ? SendEvent::kDone : SendEvent::kFailed);
  if (over_for_caller(send, status) || send.detached) return release_send(send);
  unlink_outgoing(send);
  send.status = status;
  complete(send);
}

void Engine::State::finish_outgoing(Outgoing& outgoing, Status status) noexcept {
  if (outgoing.kind == Operation::Kind::kSend) {
    finish_send(static_cast<SendOperation&>(outgoing), status);
  } else if (outgoing.kind == Operation::Kind::kPacket) {
    finish_packet(static_cast<PacketOperation&>(outgoing), status);
  } else {
    fail_target(static_cast<TargetOutgoing&>(outgoing));
  }
}

}  // namespace ch3_offload
