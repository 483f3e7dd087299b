// Engine: operations on target entries, the target's side.
//
// A table decides at once which entry an operation finds, and where. The data of a short put is in its slot,
// that of a long one comes after a CTS. Atomic operations are carried out as they arrive. A reply leaves in
// the order of what else goes to the peer. If it does not fit a slot, its data goes apart, and the answer
// follows.
//
// What the table refuses is answered with the reason, if the initiator awaits an answer.

#include <new>

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

TargetOperation operation_of(wire::Kind kind) noexcept {
  switch (kind) {
    case wire::Kind::kPut: return TargetOperation::kPut;
    case wire::Kind::kGet: return TargetOperation::kGet;
    case wire::Kind::kAtomic: return TargetOperation::kAtomic;
    case wire::Kind::kFetchAtomic: return TargetOperation::kFetchAtomic;
    default: return TargetOperation::kSwap;
  }
}

bool returns_data(wire::Kind kind) noexcept {
  return kind != wire::Kind::kPut && kind != wire::Kind::kAtomic;
}

bool has_flag(const wire::TargetRequestHeader& request, unsigned flag) noexcept {
  return (request.common.flags & flag) != 0;
}

/// Whether the initiator awaits an answer to it, whatever becomes of it.
bool is_answered(const wire::TargetRequestHeader& request) noexcept {
  return returns_data(request.common.kind) || has_flag(request, wire::kWantAck);
}

bool is_announced(const wire::TargetRequestHeader& request) noexcept {
  return request.common.kind == wire::Kind::kPut && !has_flag(request, wire::kPayload);
}

std::size_t operand_bytes(const wire::TargetRequestHeader& request) noexcept {
  const AtomicOperation operation{request.atomic_operation};
  const AtomicType type{request.atomic_type};
  const bool has_one =
      request.common.kind == wire::Kind::kSwap && is_supported(operation, type) && takes_operand(operation);
  return has_one ? element_bytes(type) : 0;
}

/// What the header does not say, as it is what follows.
std::uint64_t length_of(const wire::TargetRequestHeader& request, std::size_t arrived_bytes) noexcept {
  if (is_announced(request) || request.common.kind == wire::Kind::kGet) return request.length_bytes;
  const std::size_t operand = operand_bytes(request);
  return arrived_bytes - std::min(operand, arrived_bytes);
}

bool is_sound_atomic(const wire::TargetRequestHeader& request, std::size_t arrived_bytes) noexcept {
  const AtomicOperation operation{request.atomic_operation};
  const AtomicType type{request.atomic_type};
  if (!is_supported(operation, type) || is_swap(operation) != (request.common.kind == wire::Kind::kSwap))
    return false;
  return arrived_bytes >= operand_bytes(request) &&
         length_of(operation, type, request.length_bytes) == request.length_bytes;
}

/// Whether an honest initiator could have sent it, with so many bytes behind the header.
bool is_sound(const wire::TargetRequestHeader& request, std::size_t arrived_bytes) noexcept {
  if ((is_answered(request) || is_announced(request)) && request.operation == 0) return false;
  if (returns_data(request.common.kind) && request.length_bytes > 0 && request.transfer == 0) return false;
  switch (request.common.kind) {
    case wire::Kind::kPut: return !is_announced(request) || (arrived_bytes == 0 && request.length_bytes > 0);
    case wire::Kind::kGet: return arrived_bytes == 0;
    default: return is_sound_atomic(request, arrived_bytes);
  }
}

TargetHeader header_of(const wire::TargetRequestHeader& request) noexcept {
  TargetHeader header;
  header.key.bits = MatchBits{request.bits};
  header.length_bytes = request.length_bytes;
  header.offset_bytes = request.offset_bytes;
  header.header_data = request.header_data;
  header.operation = operation_of(request.common.kind);
  header.atomic_operation = request.atomic_operation;
  header.atomic_type = request.atomic_type;
  return header;
}

wire::Kind answer_to(wire::Kind request) noexcept {
  return returns_data(request) ? wire::Kind::kTargetReply : wire::Kind::kTargetAck;
}

}  // namespace

/// A message that is none of MPI's. `header`: its own, copied. False: it is not this client's either.
bool Engine::State::on_target_message(Peer& peer, const wire::CommonHeader& header,
                                      std::span<const std::byte> message) noexcept {
  if (header.client != wire::kTargetClient) return false;
  peer.books->credit_bytes += header.credit_bytes;
  switch (header.kind) {
    case wire::Kind::kTargetAck:
    case wire::Kind::kTargetReply: return on_target_answer(peer, message);
    case wire::Kind::kTargetAbandon: return on_target_abandon(peer, message);
    case wire::Kind::kTargetLock:
    case wire::Kind::kTargetUnlock: return on_target_lock(peer, message);
    default: return on_target_request(peer, message);
  }
}

void Engine::State::send_target_answer(Peer& peer, wire::Kind kind,
                                       const wire::TargetAnswerHeader& answer) noexcept {
  wire::TargetAnswerHeader header = answer;
  header.common.client = wire::kTargetClient;
  send_control(peer, kind, 0, header);
}

bool Engine::State::on_target_request(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::TargetRequestHeader request;
  if (!wire::get_request(message, request)) return false;
  const auto arrived = message.subspan(wire::request_header_bytes(request.common.kind, request.common.flags));
  request.length_bytes = length_of(request, arrived.size());
  if (!is_sound(request, arrived.size())) return false;
  TargetRuns runs;
  if (has_flag(request, wire::kRuns)) [[unlikely]] {
    runs = {request.bits, request.header_data};
    request.bits = request.header_data = 0;
    if (request.interface != kWindowInterface || runs.span_bytes(request.length_bytes) == 0) return false;
  }
  const wire::Kind answer = answer_to(request.common.kind);
  TargetHeader header = header_of(request);
  const bool is_open = request.interface < kTargetInterfaces && interfaces[request.interface] != nullptr;
  const TargetPlacement placement =
      is_open ? interfaces[request.interface]->arrive(slot_of(peer.id), request.table, header, runs)
              : TargetPlacement::refused(TargetFailure::kDropped);
  if (placement.is_refused()) {
    if (is_answered(request) || is_announced(request))
      send_target_answer(peer, answer, make_answer(placement.failure, request.operation));
    return true;
  }
  if (header.operation == TargetOperation::kGet) {
    reply_to_get(peer, request, header, placement, runs);
  } else if (header.operation != TargetOperation::kPut) {
    run_atomic(peer, request, header, placement, runs, arrived);
  } else if (is_announced(request) && placement.length_bytes > 0) {
    await_data(peer, request, header, placement, runs);
  } else {
    EntryPart part;
    const Payload memory = payload_of(placement, runs, part);
    scatter(memory, 0, arrived.first(memory.length_bytes));
    interfaces[request.interface]->table(request.table)->finish(placement, header, TargetFailure::kNone);
    if (is_answered(request) || is_announced(request))
      send_target_answer(peer, answer, make_acknowledgement(placement, request.operation));
  }
  return true;
}

// ---- long puts ----

void Engine::State::await_data(Peer& peer, const wire::TargetRequestHeader& request,
                               const TargetHeader& header, const TargetPlacement& placement,
                               TargetRuns runs) noexcept {
  TargetArrival* const arrival = target_arrivals.take();
  if (arrival == nullptr) {
    interfaces[request.interface]
        ->table(request.table)
        ->finish(placement, header, TargetFailure::kUndeliverable);
    return doom(peer, Status::kNoMemory);
  }
  arrival->placement = placement;
  arrival->header = header;
  arrival->interface = request.interface;
  arrival->table = request.table;
  arrival->wants_ack = has_flag(request, wire::kWantAck);
  const Payload memory = payload_of(placement, runs, arrival->part);
  start_landing(arrival->landing, peer, memory, memory.length_bytes, request.operation);
  arrival->landing.arrival = arrival;
  peer.arrivals.push_back(*arrival);
  if (peer.state == PeerState::kConnected)
    grant(arrival->landing);
  else
    want_connection(peer);
}

/// Tells the table, unless its interface was closed.
void Engine::State::finish_placement(std::uint8_t interface, std::uint16_t table,
                                     const TargetPlacement& placement, const TargetHeader& header,
                                     TargetFailure failure) noexcept {
  if (interfaces[interface] != nullptr)
    interfaces[interface]->table(table)->finish(placement, header, failure);
}

void Engine::State::end_arrival(TargetArrival& arrival, TargetFailure failure) noexcept {
  Peer& peer = *arrival.landing.peer;
  const bool is_abandoned = arrival.interface == kNoInterface;
  finish_placement(arrival.interface, arrival.table, arrival.placement, arrival.header, failure);
  if (arrival.wants_ack && failure == TargetFailure::kNone && is_abandoned)
    send_target_answer(peer, wire::Kind::kTargetAck,
                       make_answer(TargetFailure::kDropped, arrival.landing.remote_operation));
  if (arrival.wants_ack && failure == TargetFailure::kNone && !is_abandoned)
    send_target_answer(peer, wire::Kind::kTargetAck,
                       make_acknowledgement(arrival.placement, arrival.landing.remote_operation));
  end_close(arrival);
  end_landing(arrival.landing);
  peer.arrivals.remove(arrival);
  target_arrivals.give_back(arrival);
}

// ---- replies ----

/// Null: no memory, and the peer is doomed.
TargetOutgoing* Engine::State::make_reply(Peer& peer, const wire::TargetRequestHeader& request) noexcept {
  TargetOutgoing* const one = target_operations.take();
  if (one == nullptr) {
    doom(peer, Status::kNoMemory);
    return nullptr;
  }
  one->is_reply = true;
  one->peer = &peer;
  one->interface = request.interface;
  one->table = request.table;
  one->transfer = request.transfer;
  one->remote = {request.address, RemoteKey{request.remote_key}};
  one->is_writable = request.common.kind == wire::Kind::kGet && has_flag(request, wire::kWritable);
  one->answer = make_answer(TargetFailure::kNone, request.operation);
  return one;
}

/// `data` of it is set.
void Engine::State::enqueue_reply(TargetOutgoing& one) noexcept {
  Peer& peer = *one.peer;
  one.answer = make_answer(one.placement, one.answer.operation);
  one.answer.length_bytes = one.data.length_bytes;
  ++peer.replies;
  peer.outgoing.push_back(one);
  enqueue(one);
  // Not flushed from here: a callback of the provider.
  if (peer.state == PeerState::kConnected)
    activate(peer);
  else
    want_connection(peer);
}

bool Engine::State::reply_fits(const Peer& peer, std::size_t data_bytes) const noexcept {
  return data_bytes <= peer.max_slot_bytes &&
         sizeof(wire::TargetAnswerHeader) + data_bytes <= peer.max_slot_bytes;
}

/// REQUIRES: reply_fits(). kAgain: there is no room now.
Status Engine::State::write_reply(Peer& peer, const wire::TargetAnswerHeader& answer,
                                  const Payload& data) noexcept {
  wire::TargetAnswerHeader header = answer;
  const std::size_t slot_bytes = sizeof header + data.length_bytes;
  std::span<std::byte> slot;
  if (const Status status = reserve(peer, slot_bytes, slot); status != Status::kOk) return status;
  header.common = common(peer, wire::Kind::kTargetReply, data.length_bytes > 0 ? wire::kPayload : 0U);
  header.common.client = wire::kTargetClient;
  wire::put(slot, header);
  gather(data, 0, slot.subspan(sizeof header, data.length_bytes));
  peer.provider->commit(*peer.endpoint, slot_bytes);
  return Status::kOk;
}

/// A reply needs no object if its data fits a slot and nothing waits before it. Returns false if it has not
/// left.
bool Engine::State::reply_at_once(Peer& peer, const wire::TargetAnswerHeader& answer,
                                  const Payload& data) noexcept {
  const bool may_leave = peer.state == PeerState::kConnected && peer.doom == Status::kOk && peer.queued == 0;
  return may_leave && reply_fits(peer, data.length_bytes) && write_reply(peer, answer, data) == Status::kOk;
}

void Engine::State::reply_to_get(Peer& peer, const wire::TargetRequestHeader& request,
                                 const TargetHeader& header, const TargetPlacement& placement,
                                 TargetRuns runs) noexcept {
  EntryPart part;
  if (reply_at_once(peer, make_answer(placement, request.operation), payload_of(placement, runs, part)))
    return interfaces[request.interface]
        ->table(request.table)
        ->finish(placement, header, TargetFailure::kNone);
  TargetOutgoing* const one = make_reply(peer, request);
  if (one == nullptr)
    return interfaces[request.interface]
        ->table(request.table)
        ->finish(placement, header, TargetFailure::kUndeliverable);
  one->data = payload_of(placement, runs, one->part);
  one->placement = placement;
  one->header = header;
  one->holds_entry = true;
  enqueue_reply(*one);
}

void Engine::State::run_atomic(Peer& peer, const wire::TargetRequestHeader& request,
                               const TargetHeader& header, TargetPlacement placement, TargetRuns runs,
                               std::span<const std::byte> operand_and_data) noexcept {
  const AtomicOperation operation{request.atomic_operation};
  const AtomicType type{request.atomic_type};
  placement.length_bytes = length_of(operation, type, placement.length_bytes);
  TargetTable& table = *interfaces[request.interface]->table(request.table);
  const EntryMemory entry_memory(placement, runs);
  if (!entry_memory.is_there()) {
    doom(peer, Status::kNoMemory);
    return table.finish(placement, header, TargetFailure::kUndeliverable);
  }
  const std::span<std::byte> memory = entry_memory.bytes();
  TargetOutgoing* reply = nullptr;
  if (returns_data(request.common.kind)) {
    reply = make_reply(peer, request);
    if (reply == nullptr) return table.finish(placement, header, TargetFailure::kUndeliverable);
    std::byte* old = reply->inline_copy.data();
    if (memory.size() > reply->inline_copy.size()) {
      reply->long_copy.reset(new (std::nothrow) std::byte[memory.size()]);
      old = reply->long_copy.get();
    }
    if (old == nullptr) {
      target_operations.give_back(*reply);
      doom(peer, Status::kNoMemory);
      return table.finish(placement, header, TargetFailure::kUndeliverable);
    }
    if (!memory.empty()) std::memcpy(old, memory.data(), memory.size());
    reply->data = {old, memory.size(), nullptr};
    reply->placement = placement;
  }
  const std::size_t operand = operand_bytes(request);
  const auto data = operand_and_data.subspan(operand, memory.size());
  if (!changes_nothing(operation, data)) {
    apply(operation, type, operand_and_data.first(operand), data, memory);
    entry_memory.store();
  }
  table.finish(placement, header, TargetFailure::kNone);
  if (reply != nullptr) return enqueue_reply(*reply);
  if (has_flag(request, wire::kWantAck))
    send_target_answer(peer, wire::Kind::kTargetAck, make_acknowledgement(placement, request.operation));
}

Status Engine::State::transmit_reply(TargetOutgoing& one) noexcept {
  Peer& peer = *one.peer;
  const std::size_t length = one.data.length_bytes;
  if (!reply_fits(peer, length)) {
    dequeue(one);
    kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kMoves);
    one.outbound.payload = one.data;
    start_moving_target(one, length, one.transfer, one.remote, one.is_writable);
    return Status::kOk;
  }
  if (const Status status = write_reply(peer, one.answer, one.data); status != Status::kOk) return status;
  spend(one, sizeof one.answer + length);
  dequeue(one);
  kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kDone);
  end_reply(one, TargetFailure::kNone);
  return Status::kOk;
}

/// Frees it.
void Engine::State::end_reply(TargetOutgoing& one, TargetFailure failure) noexcept {
  if (one.holds_entry) finish_placement(one.interface, one.table, one.placement, one.header, failure);
  --one.peer->replies;
  release_target(one);
}

}  // namespace ch3_offload
