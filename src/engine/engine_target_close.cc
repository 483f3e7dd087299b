// Engine: the end of an interface. Its tables and queues go at once. What has not ended is made to touch
// neither them nor the client's memory:
//
//   request of this process  | queued                      | forgotten: the peer has not heard of it
//                            | is copied here in parts     | forgotten
//                            | awaits a CTS or an answer   | stays as a name, for the peer will answer
//                            | its data leaves by slots    | kTargetAbandon, forgotten
//                            | its data is being written   | the close waits: a device reads the memory
//                            | data comes back by slots    | the data is dropped
//                            | data may be written to it   | the close waits: the peer was granted the memory
//   reply to a get           | queued, leaves by slots     | says that it was dropped
//                            | its data is being written   | the close waits
//   put that arrives         | awaits the connection       | is dropped
//                            | data comes by slots         | the data is dropped
//                            | data may be written         | the close waits
//
// What stays has kNoInterface for its interface.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// Keeps what the peer's answers are checked with, and names nothing of the client any more.
void disown(TargetRequest& request) noexcept {
  request.interface = kNoInterface;
  for (TargetOrigin* const origin : {&request.source, &request.destination}) {
    const std::size_t length_bytes = origin->memory.length_bytes;
    *origin = {};
    origin->memory.length_bytes = length_bytes;
  }
}

bool is_being_written(const Outgoing& one) noexcept { return one.outbound.state == OutboundState::kWriting; }

}  // namespace

void Engine::close_targets(unsigned number) noexcept {
  State& state = *state_;
  if (number >= kTargetInterfaces || state.interfaces[number] == nullptr) return;
  for (const auto& peer : state.peers)
    if (peer != nullptr) state.abandon(*peer, static_cast<std::uint8_t>(number));
  state.abandon_locks(static_cast<std::uint8_t>(number));
  state.interfaces[number].reset();
}

bool Engine::targets_are_closed(unsigned number) const noexcept {
  return number >= kTargetInterfaces ||
         (state_->interfaces[number] == nullptr && state_->closing[number] == 0);
}

void Engine::State::abandon(Peer& peer, std::uint8_t interface) noexcept {
  Outgoing* next = nullptr;
  for (Outgoing* outgoing = peer.outgoing.front(); outgoing != nullptr; outgoing = next) {
    next = decltype(peer.outgoing)::next(*outgoing);
    if (outgoing->kind != Operation::Kind::kTarget) continue;
    auto& one = static_cast<TargetOutgoing&>(*outgoing);
    if ((one.is_reply ? one.interface : one.request.interface) != interface) continue;
    if (one.is_reply)
      abandon_reply(one);
    else
      abandon_request(one);
  }
  TargetArrival* next_arrival = nullptr;
  for (TargetArrival* arrival = peer.arrivals.front(); arrival != nullptr; arrival = next_arrival) {
    next_arrival = decltype(peer.arrivals)::next(*arrival);
    if (arrival->interface == interface) abandon_arrival(*arrival);
  }
}

void Engine::State::abandon_request(TargetOutgoing& one) noexcept {
  const std::uint8_t interface = one.request.interface;
  if (one.state == TargetRequestState::kQueued) return release_target(one);
  if (one.state == TargetRequestState::kCopying) return abandon_own_move(one);
  if (one.state == TargetRequestState::kMoving || one.state == TargetRequestState::kMovingAnswered)
    return abandon_put(one);
  if (one.landing.memory.held) {
    one.request.interface = kNoInterface;
    return await_close(one, interface);
  }
  one.landing.payload = {};  // What comes is dropped.
  disown(one.request);
}

/// A long put whose data leaves.
void Engine::State::abandon_put(TargetOutgoing& one) noexcept {
  if (is_being_written(one)) {
    await_close(one, one.request.interface);
    return disown(one.request);
  }
  if (one.state != TargetRequestState::kMovingAnswered) {  // Else the target has ended it.
    wire::TargetAbandonHeader header;
    header.common.client = wire::kTargetClient;
    header.transfer = one.outbound.landing;
    send_control(*one.peer, wire::Kind::kTargetAbandon, 0, header);
  }
  release_target(one);
}

void Engine::State::abandon_reply(TargetOutgoing& one) noexcept {
  const std::uint8_t interface = one.interface;
  one.interface = kNoInterface;
  if (!std::exchange(one.holds_entry, false)) return;  // The data is a copy.
  if (is_being_written(one)) return await_close(one, interface);
  one.data = {};
  one.answer = make_answer(TargetFailure::kDropped, one.answer.operation);
  if (one.state == TargetRequestState::kQueued) return;
  send_target_answer(*one.peer, wire::Kind::kTargetReply, one.answer);
  end_reply(one, TargetFailure::kDropped);
}

void Engine::State::abandon_arrival(TargetArrival& arrival) noexcept {
  TargetLanding& landing = arrival.landing;
  const std::uint8_t interface = arrival.interface;
  arrival.interface = kNoInterface;
  if (landing.memory.held) return await_close(arrival, interface);
  landing.payload = {};  // What comes is dropped.
  if (landing.state != LandingState::kAwaitingPeer) return;
  send_target_answer(*landing.peer, wire::Kind::kTargetAck,
                     make_answer(TargetFailure::kDropped, landing.remote_operation));
  arrival.wants_ack = false;
  end_arrival(arrival, TargetFailure::kDropped);
}

/// The initiator of a long put has closed its interface.
bool Engine::State::on_target_abandon(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::TargetAbandonHeader header;
  if (!wire::get(message, header) || message.size() != sizeof header) return false;
  Landing* const landing = landings.oldest(header.transfer);
  const bool is_of_packet = peer.placing != nullptr && landing == &peer.placing->landing;
  if (landing == nullptr || landing->peer != &peer || landing->receive != nullptr || is_of_packet)
    return false;
  TargetArrival* const arrival = static_cast<TargetLanding*>(landing)->arrival;
  if (arrival == nullptr) return false;
  end_arrival(*arrival, TargetFailure::kUndeliverable);
  return true;
}

}  // namespace ch3_offload
