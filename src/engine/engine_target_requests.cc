// Engine: operations on target entries, the initiator's side.
//
// A put that fits one slot leaves with its data, a longer one is announced and awaits its CTS, as a message
// does. A get grants its memory with the request, so it needs no CTS. docs/wire-format.md has the exchanges.

#include <cassert>
#include <new>

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

bool is_atomic(const TargetRequest& request) noexcept {
  return request.operation != TargetOperation::kPut && request.operation != TargetOperation::kGet &&
         !request.is_of_lock();
}

std::size_t operand_bytes(const TargetRequest& request) noexcept {
  const bool has_one = request.operation == TargetOperation::kSwap && takes_operand(request.atomic_operation);
  return has_one ? element_bytes(request.atomic_type) : 0;
}

/// Whether the target would take it. It fails the connection for anything else.
bool is_sound(const TargetRequest& request) noexcept {
  const std::size_t length = request.source.memory.length_bytes;
  if (request.runs.are_many() && (request.interface != kWindowInterface || request.is_of_lock() ||
                                  request.runs.span_bytes(request.length_bytes()) == 0))
    return false;
  if ((request.source.options & kVolatile) != 0 && length > kMostVolatileBytes) return false;
  if (request.is_of_lock()) {
    const bool is_unlock = request.operation == TargetOperation::kUnlock;
    return length == 0 && is_unlock == (request.acknowledgement == TargetAcknowledgement::kNone);
  }
  if (!is_atomic(request)) return true;
  const bool swaps = request.operation == TargetOperation::kSwap;
  return is_supported(request.atomic_operation, request.atomic_type) &&
         is_swap(request.atomic_operation) == swaps &&
         length_of(request.atomic_operation, request.atomic_type, length) == length &&
         (!request.returns_data() || request.destination.memory.length_bytes == length);
}

wire::Kind kind_of(TargetOperation operation) noexcept {
  switch (operation) {
    case TargetOperation::kPut: return wire::Kind::kPut;
    case TargetOperation::kGet: return wire::Kind::kGet;
    case TargetOperation::kAtomic: return wire::Kind::kAtomic;
    case TargetOperation::kFetchAtomic: return wire::Kind::kFetchAtomic;
    default: return wire::Kind::kSwap;
  }
}

/// Of an event at the initiator.
TargetEvent make_event(const TargetRequest& request, TargetEventKind kind, TargetFailure failure) noexcept {
  TargetEvent event;
  event.kind = kind;
  event.failure = failure;
  event.table = request.table;
  event.cookie = request.cookie;
  event.header.key.bits = request.bits;
  event.header.header_data = request.header_data;
  event.header.length_bytes = request.length_bytes();
  event.header.operation = request.operation;
  event.header.atomic_operation = static_cast<std::uint8_t>(request.atomic_operation);
  event.header.atomic_type = static_cast<std::uint8_t>(request.atomic_type);
  return event;
}

bool is_wanted(const TargetOrigin& origin, TargetFailure failure, std::uint32_t disabling) noexcept {
  return origin.queue != kNoQueue &&
         (failure != TargetFailure::kNone || (origin.options & (disabling | kNoOriginSuccessEvent)) == 0);
}

/// Of an answer. A request that failed found no entry, as far as its initiator hears.
TargetListKind list_of(const wire::TargetAnswerHeader& answer) noexcept {
  return static_cast<TargetListKind>(answer.list);
}

bool wants_acknowledgement(const TargetRequest& request) noexcept {
  return !request.returns_data() && request.acknowledgement != TargetAcknowledgement::kNone;
}

/// Of its data, what the request itself carries if that fits a slot.
std::size_t data_bytes(const TargetRequest& request) noexcept {
  return request.is_get() ? 0 : request.source.memory.length_bytes;
}

/// All but what names the request and the memory that its data comes back to.
wire::TargetRequestHeader header_of(const TargetRequest& request, const wire::CommonHeader& common) noexcept {
  wire::TargetRequestHeader header;
  header.common = common;
  header.common.client = wire::kTargetClient;
  header.bits = number_of(request.bits);
  header.length_bytes = request.length_bytes();
  header.offset_bytes = request.offset_bytes;
  header.header_data = request.header_data;
  header.table = request.table;
  header.interface = request.interface;
  header.atomic_operation = static_cast<std::uint8_t>(request.atomic_operation);
  header.atomic_type = static_cast<std::uint8_t>(request.atomic_type);
  if (request.runs.are_many()) [[unlikely]] {
    header.bits = request.runs.block_bytes;
    header.header_data = request.runs.stride_bytes;
  }
  return header;
}

unsigned flags_of(const TargetRuns& runs) noexcept { return runs.are_many() ? wire::kRuns : 0U; }

/// What a success counts.
std::uint64_t amount_of(const TargetOrigin& origin, TargetFailure failure, std::uint64_t bytes) noexcept {
  return failure == TargetFailure::kNone && (origin.options & kCountOriginBytes) != 0 ? bytes : 1;
}

}  // namespace

TargetInterface* Engine::open_targets(unsigned number, const TargetInterfaceConfig& config,
                                      TargetBoard& board) noexcept {
  if (number >= kTargetInterfaces || !targets_are_closed(number)) return nullptr;
  std::unique_ptr<TargetInterface> made(new (std::nothrow) TargetInterface(config, board, state_->own_work));
  if (made == nullptr || made->prepare() != Status::kOk) return nullptr;
  state_->interfaces[number] = std::move(made);
  return state_->interfaces[number].get();
}

bool Engine::State::may_request(const TargetRequest& request) const noexcept {
  return request.interface < kTargetInterfaces && interfaces[request.interface] != nullptr &&
         is_sound(request);
}

Status Engine::request(PeerId id, const TargetRequest& request, const TargetHold& hold) noexcept {
  return state_->may_request(request) ? state_->begin_request(id, request, hold) : Status::kUnsupported;
}

/// REQUIRES: may_request().
Status Engine::State::begin_request(PeerId id, const TargetRequest& request,
                                    const TargetHold& hold) noexcept {
  if (id == config.self) return request.is_of_lock() ? lock_own(request) : request_to_self(request, hold);
  // A triggered operation may come after the end of the process that it names.
  Peer* const peer = known(id);
  if (const Status status = may_send(id, peer); status != Status::kOk) return status;
  if (request_at_once(*peer, request)) return Status::kOk;
  TargetOutgoing* const one = target_operations.take();
  if (one == nullptr) return Status::kNoMemory;
  one->request = request;
  one->hold = hold;
  one->peer = peer;
  peer->outgoing.push_back(*one);
  enqueue(*one);
  if (peer->state == PeerState::kConnected)
    flush(*peer);
  else
    want_connection(*peer);
  return Status::kOk;
}

/// A put or an atomic that awaits no answer needs no object if nothing waits before it. Returns false if it
/// has not left.
bool Engine::State::request_at_once(Peer& peer, const TargetRequest& request) noexcept {
  if (request.returns_data() || request.is_of_lock() || wants_acknowledgement(request)) return false;
  const wire::Kind kind = kind_of(request.operation);
  const unsigned flags = (kind == wire::Kind::kPut ? wire::kPayload : 0U) | flags_of(request.runs);
  const std::size_t header_bytes = wire::request_header_bytes(kind, flags);
  const std::size_t length = request.source.memory.length_bytes;
  if (length > peer.max_slot_bytes || header_bytes + length > peer.max_slot_bytes) return false;
  if (!write_by_lane(peer, request, kind, flags) && !write_slot(peer, request, kind, flags)) return false;
  tell_send(request, TargetFailure::kNone);
  return true;
}

/// Writes a request with its data into the provider's ring. Returns false if there is no lane, or if it is
/// closed.
inline bool Engine::State::write_by_lane(Peer& peer, const TargetRequest& request, wire::Kind kind,
                                         unsigned flags) noexcept {
  ch3_offload_lane_t* const lane = peer.lane;
  if (lane == nullptr) return false;
  const std::size_t header_bytes = wire::request_header_bytes(kind, flags);
  const std::size_t length = request.source.memory.length_bytes;
  const std::size_t behind_common = header_bytes - sizeof(wire::CommonHeader) + length;
  void* const place = ch3_offload_lane_begin_packet(lane, behind_common);
  if (place == nullptr) return false;
  std::byte* const slot = static_cast<std::byte*>(place) - sizeof(wire::CommonHeader);
  const wire::TargetRequestHeader header = header_of(request, {kind, static_cast<std::uint8_t>(flags)});
  if (kind == wire::Kind::kPut)
    std::memcpy(slot, &header, wire::kWholePutHeaderBytes);
  else
    std::memcpy(slot, &header, header_bytes);
  gather(request.source_bytes(), 0, {slot + header_bytes, length});
  const std::uint64_t common =
      static_cast<std::uint64_t>(kind) | std::uint64_t{flags} << 8 | std::uint64_t{wire::kTargetClient} << 16;
  if (ch3_offload_lane_end_slot(lane, common, behind_common) == CH3_OFFLOAD_LANE_SENT_TO_SLEEPER)
    peer.provider->nudge(*peer.endpoint);
  return true;
}

/// The same by a slot. Returns false if there is no room, or if something waits for it.
bool Engine::State::write_slot(Peer& peer, const TargetRequest& request, wire::Kind kind,
                               unsigned flags) noexcept {
  if (peer.state != PeerState::kConnected || peer.queued != 0) return false;
  const std::size_t header_bytes = wire::request_header_bytes(kind, flags);
  const std::size_t length = request.source.memory.length_bytes;
  std::span<std::byte> slot;
  if (reserve(peer, header_bytes + length, slot) != Status::kOk) return false;
  wire::put_request(slot, header_of(request, common(peer, kind, flags)));
  gather(request.source_bytes(), 0, slot.subspan(header_bytes, length));
  peer.provider->commit(*peer.endpoint, header_bytes + length);
  return true;
}

void Engine::State::tell_send(const TargetRequest& request, TargetFailure failure) noexcept {
  const TargetOrigin& origin = request.source;
  const bool has_event = is_wanted(origin, failure, kNoSendEvent);
  const bool counts = (origin.options & kCountSend) != 0;
  if (!has_event && !counts) return;
  if (request.is_get() || interfaces[request.interface] == nullptr) return;
  TargetInterface& interface = *interfaces[request.interface];
  if (has_event) interface.tell(origin.queue, make_event(request, TargetEventKind::kSend, failure));
  if (counts)
    interface.count(origin.counter, failure == TargetFailure::kNone,
                    amount_of(origin, failure, origin.memory.length_bytes));
}

void Engine::State::tell_answer(const TargetRequest& request,
                                const wire::TargetAnswerHeader& answer) noexcept {
  const auto failure = static_cast<TargetFailure>(answer.failure);
  const TargetOrigin& origin = request.answered();
  if (interfaces[request.interface] == nullptr || failure == TargetFailure::kUntold) return;
  TargetInterface& interface = *interfaces[request.interface];
  const bool is_reply = request.returns_data();
  if (!is_reply && request.acknowledgement == TargetAcknowledgement::kNone) return;
  const bool has_event = is_reply || request.acknowledgement == TargetAcknowledgement::kFull;
  if (has_event && is_wanted(origin, failure, 0)) {
    TargetEvent event =
        make_event(request, is_reply ? TargetEventKind::kReply : TargetEventKind::kAck, failure);
    event.list = list_of(answer);
    event.length_bytes = answer.length_bytes;
    event.header.offset_bytes = answer.offset_bytes;
    interface.tell(origin.queue, event);
  }
  // An acknowledgement of completion says that the operation is over, and so is no failure of the target.
  const bool completed = request.acknowledgement == TargetAcknowledgement::kCompleted &&
                         failure != TargetFailure::kUndeliverable;
  const TargetFailure counted = !is_reply && completed ? TargetFailure::kNone : failure;
  if ((origin.options & (is_reply ? kCountReply : kCountAck)) != 0)
    interface.count(origin.counter, counted == TargetFailure::kNone,
                    amount_of(origin, counted, completed ? request.length_bytes() : answer.length_bytes));
}

void Engine::tell_refused(const TargetRequest& request) noexcept {
  const bool is_open =
      request.interface < kTargetInterfaces && state_->interfaces[request.interface] != nullptr;
  if (is_open) state_->tell_refused(request);
}

/// REQUIRES: its interface is open.
void Engine::State::tell_refused(const TargetRequest& request) noexcept {
  tell_send(request, TargetFailure::kUndeliverable);
  tell_answer(request, make_answer(TargetFailure::kUndeliverable));
}

Status Engine::State::transmit_target(TargetOutgoing& one) noexcept {
  if (one.is_reply) return transmit_reply(one);
  return one.request.is_of_lock() ? transmit_lock(one) : transmit_request(one);
}

/// Names and grants the memory that the data comes back to. Once.
bool Engine::State::prepare_landing(TargetOutgoing& one) noexcept {
  if (one.landing.number != 0) return one.landing.memory.held;
  Peer& peer = *one.peer;
  const Payload& memory = one.request.destination.memory;
  start_landing(one.landing, peer, memory, memory.length_bytes, 0);
  one.landing.request = &one;
  kLandingMachine.must_step(one.landing.state, LandingEvent::kCtsSent);
  number_landing(one.landing);
  const Capabilities& can = peer.provider->capabilities();
  return one.request.is_get() && can.write && one.landing.number != 0 && memory.layout == nullptr &&
         memory.length_bytes >= peer.write_terms.threshold_bytes &&
         hold_memory(peer, memory, memory.length_bytes, Access::kWrite, one.landing.memory);
}

Status Engine::State::transmit_request(TargetOutgoing& one) noexcept {
  Peer& peer = *one.peer;
  const TargetRequest& request = one.request;
  const wire::Kind kind = kind_of(request.operation);
  const bool is_put = request.operation == TargetOperation::kPut;
  const std::size_t operand = operand_bytes(request);
  const std::size_t data = data_bytes(request);
  const std::size_t with_data = wire::request_header_bytes(kind, wire::kPayload) + operand + data;
  const bool is_whole = data <= peer.max_slot_bytes && with_data <= peer.max_slot_bytes;
  if (!is_whole && !is_put) {
    dequeue(one);
    fail_target(one);
    return Status::kOk;
  }
  const bool is_writable = request.returns_data() && request.length_bytes() > 0 && prepare_landing(one);
  const bool wants_ack = wants_acknowledgement(request);
  const bool is_answered = request.returns_data() || wants_ack;
  const unsigned flags = (is_put && is_whole ? wire::kPayload : 0U) | (wants_ack ? wire::kWantAck : 0U) |
                         (is_writable ? wire::kWritable : 0U) | flags_of(request.runs);
  const std::size_t header_bytes = wire::request_header_bytes(kind, flags);
  const std::size_t slot_bytes = header_bytes + (is_whole ? operand + data : 0);
  std::span<std::byte> slot;
  const Status status = reserve(peer, slot_bytes, slot);
  if (status != Status::kOk) return status;
  wire::TargetRequestHeader header = header_of(request, common(peer, kind, flags));
  if (is_writable) {
    header.address = reinterpret_cast<std::uint64_t>(request.destination.memory.address);
    header.remote_key = static_cast<std::uint64_t>(one.landing.memory.region.remote_key);
  }
  if (is_answered || !is_whole) header.operation = number_outgoing(one);
  header.transfer = one.landing.number;
  wire::put_request(slot, header);
  if (operand > 0) std::memcpy(slot.data() + header_bytes, request.operand.data(), operand);
  if (is_whole && data > 0) gather(request.source_bytes(), 0, slot.subspan(header_bytes + operand, data));
  peer.provider->commit(*peer.endpoint, slot_bytes);
  spend(one, slot_bytes);
  dequeue(one);
  if (!is_whole) {
    kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kAnnounced);
    return Status::kOk;
  }
  one.send_is_told = true;
  tell_send(request, TargetFailure::kNone);
  kTargetRequestMachine.must_step(one.state,
                                  is_answered ? TargetRequestEvent::kLeft : TargetRequestEvent::kDone);
  if (!is_answered) release_target(one);
  return Status::kOk;
}

bool Engine::State::on_target_cts(Peer& peer, TargetOutgoing& one, const wire::CtsHeader& header) noexcept {
  const Payload data = one.request.source_bytes();
  if (one.is_reply || header.wanted_bytes == 0 || header.wanted_bytes > data.length_bytes ||
      !follow(peer, kTargetRequestMachine, one.state, TargetRequestEvent::kCts))
    return false;
  if (one.request.interface == kNoInterface) {
    one.outbound.landing = header.transfer;
    abandon_put(one);
    return true;
  }
  one.outbound.payload = data;
  start_moving_target(one, header.wanted_bytes, header.transfer,
                      {header.address, RemoteKey{header.remote_key}},
                      (header.common.flags & wire::kWritable) != 0);
  return true;
}

/// An entry of a window has acknowledgements, and locks and replies are awaited whatever the entry.
static bool may_be_untold(const TargetRequest& request) noexcept {
  return !request.returns_data() && !request.is_of_lock() && request.interface != kWindowInterface;
}

bool Engine::State::on_target_answer(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::TargetAnswerHeader header;
  if (!wire::get(message, header)) return false;
  Outgoing* const outgoing = on_wire.oldest(header.operation);
  if (outgoing == nullptr || outgoing->peer != &peer || outgoing->kind != Operation::Kind::kTarget)
    return false;
  auto& one = static_cast<TargetOutgoing&>(*outgoing);
  const auto data = message.subspan(sizeof header);
  const bool is_reply = header.common.kind == wire::Kind::kTargetReply;
  const bool has_failed = header.failure != 0;
  const bool is_untold = header.failure == static_cast<std::uint16_t>(TargetFailure::kUntold);
  const bool has_data = (header.common.flags & wire::kPayload) != 0;
  if (one.is_reply || is_reply != one.request.returns_data() ||
      header.failure >= static_cast<std::uint16_t>(TargetFailure::kEnd) ||
      header.list > static_cast<std::uint16_t>(TargetListKind::kOverflow) ||
      (has_failed && header.list != 0) || header.length_bytes > one.request.length_bytes() ||
      (has_failed && header.length_bytes > 0) || data.size() != (has_data ? header.length_bytes : 0) ||
      (has_data && !is_reply) || (is_untold && !may_be_untold(one.request)))
    return false;
  one.answer = header;
  return is_reply ? take_reply(peer, one, data) : take_ack(peer, one);
}

bool Engine::State::take_ack(Peer& peer, TargetOutgoing& one) noexcept {
  const bool is_moving = one.state == TargetRequestState::kMoving;
  // A put that is moving was accepted: it gets an answer only if it wants one.
  if (is_moving && one.request.acknowledgement == TargetAcknowledgement::kNone) return false;
  if (!follow(peer, kTargetRequestMachine, one.state, TargetRequestEvent::kAnswer)) return false;
  if (!is_moving) end_request(one);
  return true;
}

bool Engine::State::take_reply(Peer& peer, TargetOutgoing& one, std::span<const std::byte> data) noexcept {
  TargetLanding& landing = one.landing;
  const std::size_t length_bytes = one.answer.length_bytes;
  const bool is_apart = data.empty() && length_bytes > 0;
  // A target that closes its interface ends a reply whose data has begun to come.
  const bool has_failed = one.answer.failure != 0;
  if (!has_failed && (is_apart ? landing.received_bytes > length_bytes : landing.received_bytes > 0))
    return false;
  const bool waits = is_apart && landing.received_bytes < length_bytes;
  if (!follow(peer, kTargetRequestMachine, one.state,
              waits ? TargetRequestEvent::kAnswerBeforeData : TargetRequestEvent::kAnswer))
    return false;
  if (waits) {
    landing.wanted_bytes = length_bytes;
  } else {
    const bool is_disowned = one.request.interface == kNoInterface && one.closing == kNoInterface;
    if (!is_disowned) scatter(one.request.destination.memory, 0, data);
    end_request(one);
  }
  return true;
}

/// All of its payload has left.
void Engine::State::target_moved(TargetOutgoing& one, Status) noexcept {
  if (one.is_reply) {
    kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kDone);
    send_target_answer(*one.peer, wire::Kind::kTargetReply, one.answer);
    return end_reply(one, TargetFailure::kNone);
  }
  one.send_is_told = true;
  tell_send(one.request, TargetFailure::kNone);
  let_go(*one.peer, one.outbound.memory);
  end_close(one);  // Nothing reads it any more.
  if (one.request.acknowledgement == TargetAcknowledgement::kNone) {
    kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kDone);
    return release_target(one);
  }
  kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kMoved);
  if (one.state == TargetRequestState::kFinished) end_request(one);
}

/// All that was wanted is here.
void Engine::State::target_landed(TargetLanding& landing) noexcept {
  if (landing.arrival != nullptr) return end_arrival(*landing.arrival, TargetFailure::kNone);
  TargetOutgoing& one = *landing.request;
  if (one.state != TargetRequestState::kAwaitingData) return;  // The answer says that it is all.
  kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kDone);
  end_request(one);
}

void Engine::State::end_request(TargetOutgoing& one) noexcept {
  if (!one.send_is_told) tell_send(one.request, TargetFailure::kNone);
  tell_answer(one.request, one.answer);
  release_target(one);
}

/// The peer has failed, or there is no connection for want of memory.
void Engine::State::fail_target(TargetOutgoing& one) noexcept {
  if (one.state != TargetRequestState::kFinished)
    kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kFailed);
  if (one.is_reply) return end_reply(one, TargetFailure::kUndeliverable);
  if (!one.send_is_told) tell_send(one.request, TargetFailure::kUndeliverable);
  tell_answer(one.request, make_answer(TargetFailure::kUndeliverable));
  release_target(one);
}

void Engine::State::release_target(TargetOutgoing& one) noexcept {
  end_close(one);
  unlink_outgoing(one);
  if (one.landing.number != 0) end_landing(one.landing);
  target_operations.give_back(one);
}

}  // namespace ch3_offload
