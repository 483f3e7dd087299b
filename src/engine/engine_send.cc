// Engine: the sending side of messages.
//
// A message leaves as one slot (short), several (eager), RTS with its payload (optimistic: small, but
// out of byte credit) or RTS alone (rendezvous); docs/wire-format.md has the exchange of each.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// Parts of eager messages and packets are not cut finer than this to use the rest of a slot queue.
std::size_t part_bytes(std::size_t max_slot_bytes, std::size_t header_bytes,
                       std::size_t remaining_bytes) noexcept {
  return std::min(max_slot_bytes - header_bytes, remaining_bytes);
}

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
  status = state.may_send(peer, id);
  if (status != Status::kOk) return Progressed::kFailed;
  const std::uint64_t number = ++peer->lane->messages_sent;
  state.trace(TraceEvent::kSendPosted, id, number, payload.length_bytes);
  if (mode != SendMode::kSynchronous && state.send_at_once(*peer, key, payload, send_id)) {
    return Progressed::kDone;
  }
  SendOperation* const send = state.make_send(*peer, mode, key, payload, send_id, cookie, number);
  if (send == nullptr) {
    status = Status::kNoMemory;
    return Progressed::kFailed;
  }
  return state.submit(*send, operation, status);
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
  wire::EagerHeader header;
  header.common = common(peer, wire::Kind::kEager, flags);
  header.bits = key.bits;
  header.initiator = key.initiator;
  header.send_id = send_id;
  wire::put(slot, header);
  gather(payload, 0, slot.subspan(sizeof header));
  trace(TraceEvent::kSendShort, peer.id, number, length);
  peer.provider->commit(*peer.endpoint, slot_bytes);
  peer.lane->credit_bytes -= wire::cost_of(length);
  ++counters.sent_short;
  return Status::kOk;
}

bool Engine::State::send_at_once(Peer& peer, const MatchKey& key, const Payload& payload,
                                 std::uint32_t send_id) noexcept {
  return peer.state == PeerState::kConnected && peer.queue.empty() && may_send_eager(peer, payload) &&
         fits_one_slot(peer, payload) &&
         send_short(peer, 0, key, payload, send_id, peer.lane->messages_sent) == Status::kOk;
}

/// The first of the slots of a message that one slot cannot hold.
Status Engine::State::send_first(SendOperation& operation) noexcept {
  Peer& peer = *operation.peer;
  const std::size_t length = operation.payload.length_bytes;
  const bool synchronous = operation.mode == SendMode::kSynchronous;
  const std::size_t part = part_bytes(peer.max_slot_bytes, sizeof(wire::EagerFirstHeader), length);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::EagerFirstHeader) + part, slot);
  if (status != Status::kOk) return status;
  wire::EagerFirstHeader header;
  header.eager.common = common(peer, wire::Kind::kEagerFirst, synchronous ? wire::kSynchronous : 0U);
  header.eager.bits = operation.key.bits;
  header.eager.initiator = operation.key.initiator;
  header.eager.send_id = synchronous ? number_send(operation) : operation.send_id;
  header.total_bytes = length;
  wire::put(slot, header);
  gather(operation.payload, 0, slot.subspan(sizeof header, part));
  trace(TraceEvent::kSendEager, peer.id, operation.number, length);
  peer.provider->commit(*peer.endpoint, sizeof header + part);
  peer.lane->credit_bytes -= wire::cost_of(length);
  operation.sent_bytes = part;
  operation.state = SendState::kStreaming;
  ++counters.sent_eager;
  return Status::kOk;
}

/// Sends what can be sent of it now. `id` is set if the send is pending.
Progressed Engine::State::submit(SendOperation& operation, OperationId& id, Status& status) noexcept {
  Peer& peer = *operation.peer;
  peer.sends.push_back(operation);
  peer.queue.push_back(operation);
  gate(peer);
  const OperationId its_id{kSendOperation | operation.pool_id};
  submitting = &operation;
  if (peer.state == PeerState::kConnected) flush(peer); else want_connection(peer);
  const bool is_over = std::exchange(submitting, nullptr) == nullptr;
  status = is_over ? submitted_status : Status::kOk;
  if (is_over) return status == Status::kOk ? Progressed::kDone : Progressed::kFailed;
  if (operation.state == SendState::kQueued) {
    trace(TraceEvent::kSendQueued, peer.id, operation.number, operation.payload.length_bytes);
  }
  id = its_id;
  return Progressed::kPending;
}

Status Engine::State::transmit(SendOperation& operation) noexcept {
  if (operation.state == SendState::kStreaming) return stream(operation);
  Peer& peer = *operation.peer;
  if (!may_send_eager(peer, operation.payload)) return announce(operation);
  if (!fits_one_slot(peer, operation.payload)) return send_first(operation);

  const bool synchronous = operation.mode == SendMode::kSynchronous;
  const std::uint32_t send_id = synchronous ? number_send(operation) : operation.send_id;
  const Status status = send_short(peer, synchronous ? wire::kSynchronous : 0U, operation.key,
                                   operation.payload, send_id, operation.number);
  if (status != Status::kOk) return status;
  dequeue(operation);
  if (synchronous) {
    operation.state = SendState::kAwaitingMatch;
  } else {
    finish_send(operation, Status::kOk);
  }
  return Status::kOk;
}

Status Engine::State::stream(SendOperation& operation) noexcept {
  if (operation.packet != nullptr) return stream_packet(operation);
  Peer& peer = *operation.peer;
  const std::size_t total = operation.payload.length_bytes;
  const std::size_t part =
      part_bytes(peer.max_slot_bytes, sizeof(wire::CommonHeader), total - operation.sent_bytes);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::CommonHeader) + part, slot);
  if (status != Status::kOk) return status;
  wire::put(slot, common(peer, wire::Kind::kEagerNext, 0));
  gather(operation.payload, operation.sent_bytes, slot.subspan(sizeof(wire::CommonHeader), part));
  peer.provider->commit(*peer.endpoint, sizeof(wire::CommonHeader) + part);
  operation.sent_bytes += part;
  if (operation.sent_bytes < total) return Status::kOk;
  dequeue(operation);
  if (operation.mode == SendMode::kSynchronous && (!operation.acknowledged || operation.cancelling)) {
    operation.state = SendState::kAwaitingMatch;
    if (operation.cancelling) ask_for_late_cancel(operation);
  } else {
    finish_send(operation, Status::kOk);
  }
  return Status::kOk;
}

Status Engine::State::announce(SendOperation& operation) noexcept {
  Peer& peer = *operation.peer;
  const std::size_t length = operation.payload.length_bytes;
  const bool small = length <= config.eager_limit_bytes;  // It is credit that is missing.
  const std::size_t with_payload = sizeof(wire::RtsHeader) + length;
  // The acceptance of a payload is no match: a synchronous send waits for its CTS.
  const bool optimistic =
      small && operation.mode != SendMode::kSynchronous && with_payload <= peer.max_slot_bytes;
  const std::size_t slot_bytes = optimistic ? with_payload : sizeof(wire::RtsHeader);
  std::span<std::byte> slot;
  const Status status = reserve(peer, slot_bytes, slot);
  if (status != Status::kOk) return status;
  wire::RtsHeader header;
  header.common = common(peer, wire::Kind::kRts,
                         (operation.mode == SendMode::kSynchronous ? wire::kSynchronous : 0U) |
                             (small ? wire::kWantCredit : 0U) | (optimistic ? wire::kPayload : 0U));
  header.bits = operation.key.bits;
  header.initiator = operation.key.initiator;
  header.total_bytes = length;
  header.operation = number_send(operation);
  header.send_id = operation.send_id;
  wire::put(slot, header);
  if (optimistic) gather(operation.payload, 0, slot.subspan(sizeof header, length));
  trace(optimistic ? TraceEvent::kOptimisticSent : TraceEvent::kRtsSent, peer.id, operation.number, length);
  peer.provider->commit(*peer.endpoint, slot_bytes);
  operation.state = SendState::kAwaitingMatch;
  operation.announced = true;
  operation.optimistic = optimistic;
  dequeue(operation);
  ++(optimistic ? counters.sent_optimistic : counters.sent_rendezvous);
  if (small && operation.mode == SendMode::kStandard) keep_copy(operation);
  return Status::kOk;
}

/// Finishes a small send that is only short of credit for its caller, by keeping its payload here: so
/// a program that leans on eager sends does not stop when the receiver's budget is spent. The receiver
/// keeps an envelope for each, so each sender has its share of what all of them may leave there.
void Engine::State::keep_copy(SendOperation& operation) noexcept {
  const std::size_t length = operation.payload.length_bytes;
  const std::size_t cost = kBufferedSendBytes + length;
  if (cost > config.send_buffer_bytes - std::min(buffered_bytes, config.send_buffer_bytes) ||
      operation.peer->buffered_sends >= most_buffered_sends) {
    return;
  }
  // The event needs an operation of its own, because this one lives on.
  SendOperation* const told = &operation == submitting ? nullptr : sends.take();
  if (told == nullptr && &operation != submitting) return;
  std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[std::max<std::size_t>(length, 1)]);
  if (copy == nullptr) {
    if (told != nullptr) sends.give_back(*told);
    return;
  }
  gather(operation.payload, 0, {copy.get(), length});
  operation.payload = {copy.get(), length, nullptr};
  operation.copy = std::move(copy);
  operation.detached = true;
  buffered_bytes += cost;
  ++operation.peer->buffered_sends;
  ++counters.sent_buffered;
  trace(TraceEvent::kSendBuffered, operation.peer->id, operation.number, length);
  if (told == nullptr) {
    submitting = nullptr;
    submitted_status = Status::kOk;
    return;
  }
  told->cookie = operation.cookie;
  told->state = SendState::kFinished;
  complete(*told);
}

bool Engine::State::on_cts(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::CtsHeader header;
  if (!wire::get(message, header)) return false;
  SendOperation* const operation = sends_on_wire.oldest(header.operation);
  if (operation == nullptr || operation->peer != &peer ||
      operation->state != SendState::kAwaitingMatch || !operation->announced || operation->acknowledged ||
      header.wanted_bytes > operation->payload.length_bytes) {
    return false;
  }
  trace(TraceEvent::kCtsArrived, peer.id, operation->number, header.wanted_bytes);
  if (header.wanted_bytes == 0) {
    if (operation->packet != nullptr) resume_packet(*operation); else finish_send(*operation, Status::kOk);
    return true;
  }
  if (operation->packet != nullptr) operation->announced = false;  // The next word on it is an ACK.
  operation->wanted_bytes = header.wanted_bytes;
  operation->transfer = header.transfer;
  operation->remote = {header.address, RemoteKey{header.remote_key}};
  operation->writable = (header.common.flags & wire::kWritable) != 0;
  const Capabilities& can = peer.provider->capabilities();
  const bool write = operation->writable && can.write && !peer.write_refused &&
                     operation->payload.layout == nullptr &&
                     operation->wanted_bytes >= can.write_threshold_bytes &&
                     hold_memory(peer, operation->payload.address, operation->wanted_bytes, Access::kRead,
                                 operation->memory);
  operation->state = write ? SendState::kWriteReady : SendState::kBouncing;
  if (!write) trace(TraceEvent::kBounceStarted, peer.id, operation->number, operation->wanted_bytes);
  peer.bulk.push_back(*operation);
  // Not from here: a callback of the provider. progress() flushes right after polling.
  activate(peer);
  return true;
}

bool Engine::State::on_ack(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::AckHeader header;
  if (!wire::get(message, header)) return false;
  SendOperation* const operation = sends_on_wire.oldest(header.operation);
  if (operation == nullptr || operation->peer != &peer || operation->acknowledged) return false;
  if (operation->packet != nullptr) return on_part_placed(*operation);
  if (operation->announced && !operation->optimistic) return false;
  const bool streaming = operation->state == SendState::kStreaming &&
                         operation->mode == SendMode::kSynchronous && operation->sent_bytes > 0;
  if (operation->state != SendState::kAwaitingMatch && !streaming) return false;
  trace(TraceEvent::kAckArrived, peer.id, operation->number, 0);
  if (streaming || operation->cancelling) {
    // The first part matched: done when the last has left. Or the cancel's reply decides: an accepted
    // payload can still be cancelled.
    operation->acknowledged = true;
  } else {
    finish_send(*operation, Status::kOk);
  }
  return true;
}

Status Engine::State::bulk_step(SendOperation& operation) noexcept {
  Peer& peer = *operation.peer;
  if (operation.state == SendState::kWriteReady) {
    const std::uint64_t posted_ns = config.trace != nullptr ? config.trace->now() : 0;
    const Status status = peer.provider->write(
        *peer.endpoint, operation.payload.address, operation.wanted_bytes, operation.memory.region,
        operation.remote, Immediate{operation.transfer}, WorkId{operation.pool_id});
    if (status == Status::kUnsupported) {
      bounce_instead(operation);
      return Status::kOk;
    }
    if (status != Status::kOk) return status;
    if (config.trace != nullptr) {
      config.trace->record_at(posted_ns, TraceEvent::kWritePosted, peer.id, operation.number,
                              operation.wanted_bytes);
    }
    operation.state = SendState::kWriting;
    peer.bulk.remove(operation);
    ++writes_in_flight;
    return Status::kOk;
  }
  const std::size_t part = part_bytes(peer.max_slot_bytes, sizeof(wire::DataHeader),
                                      operation.wanted_bytes - operation.sent_bytes);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::DataHeader) + part, slot);
  if (status != Status::kOk) return status;
  wire::DataHeader header;
  header.common = common(peer, wire::Kind::kData, 0);
  header.transfer = operation.transfer;
  header.offset_bytes = operation.sent_bytes;
  wire::put(slot, header);
  gather(operation.payload, operation.sent_bytes, slot.subspan(sizeof header, part));
  peer.provider->commit(*peer.endpoint, sizeof header + part);
  operation.sent_bytes += part;
  peer.bulk.remove(operation);
  if (operation.sent_bytes < operation.wanted_bytes) {
    peer.bulk.push_back(operation);  // Transfers take turns.
  } else {
    ++counters.bulk_bounced;
    finish_bulk(operation, Status::kOk);
  }
  return Status::kOk;
}

void Engine::State::on_write_done(PeerId, WorkId work, Status status) noexcept {
  SendOperation* const operation = sends.find(static_cast<std::uint64_t>(work));
  if (operation == nullptr || operation->state != SendState::kWriting) return;
  --writes_in_flight;
  Peer& peer = *operation->peer;
  trace(TraceEvent::kWriteDone, peer.id, operation->number, static_cast<std::uint64_t>(status));
  if (status != Status::kUnsupported) {
    counters.bulk_written += status == Status::kOk;
    return finish_bulk(*operation, status);
  }
  peer.bulk.push_back(*operation);
  bounce_instead(*operation);
  activate(peer);
}

/// The provider cannot write to this peer. The payload, which is in Peer::bulk, goes through slots.
void Engine::State::bounce_instead(SendOperation& operation) noexcept {
  operation.peer->write_refused = true;
  operation.state = SendState::kBouncing;
  trace(TraceEvent::kBounceStarted, operation.peer->id, operation.number, operation.wanted_bytes);
}

void Engine::State::finish_bulk(SendOperation& operation, Status status) noexcept {
  if (operation.packet == nullptr || status != Status::kOk) return finish_send(operation, status);
  operation.state = SendState::kAwaitingMatch;
  if (operation.acknowledged) resume_packet(operation);
}

/// It has left, or will not.
void Engine::State::dequeue(SendOperation& operation) noexcept {
  operation.peer->queue.remove(operation);
  gate(*operation.peer);
}

void Engine::State::unlink_send(SendOperation& operation) noexcept {
  Peer& peer = *operation.peer;
  if (operation.bulk_hook.linked) peer.bulk.remove(operation);
  if (operation.queue_hook.linked) {
    if (operation.state > SendState::kStreaming) --queues_waiting;
    dequeue(operation);
  }
  let_go(peer, operation.memory);
  if (operation.copy != nullptr) {
    buffered_bytes -= kBufferedSendBytes + operation.payload.length_bytes;
    --peer.buffered_sends;
  }
  if (operation.number_on_wire != 0) sends_on_wire.remove(operation);
  peer.sends.remove(operation);
}

void Engine::State::release_send(SendOperation& operation) noexcept {
  unlink_send(operation);
  sends.give_back(operation);
}

std::uint32_t Engine::State::number_send(SendOperation& operation) noexcept {
  if (operation.number_on_wire != 0) return operation.number_on_wire;
  do ++last_send_number;
  while (last_send_number == 0 || sends_on_wire.oldest(last_send_number) != nullptr);
  operation.number_on_wire = last_send_number;
  sends_on_wire.append(operation);
  return last_send_number;
}

/// The last thing done with an operation, unless it is `submitting`.
void Engine::State::finish_send(SendOperation& operation, Status status) noexcept {
  trace(TraceEvent::kSendDone, operation.peer->id, operation.number, static_cast<std::uint64_t>(status));
  if (&operation == submitting) {
    submitting = nullptr;
    submitted_status = status;
    return release_send(operation);
  }
  if (operation.detached) return release_send(operation);
  unlink_send(operation);
  operation.state = SendState::kFinished;
  operation.status = status;
  complete(operation);
}

}  // namespace ch3_offload
