// Engine: what the programs of the processor send and receive (src/modules).
//
// Their messages are as all others: the same queues, credit and protocols. All have one of two keys, so a
// program's message is found by one look at the matcher, and no wildcard of MPI's finds it.

#include <utility>

#include "engine/engine_state.h"

namespace ch3_offload {

Progressed Engine::send_for_program(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                                    Cookie cookie, Status& status) noexcept {
  OperationId operation = kNoOperation;
  const Progressed progressed = send(peer, mode, key, payload, 0, cookie, operation, status);
  if (progressed == Progressed::kPending)
    state_->sends.find(pool_id_of(static_cast<std::uint64_t>(operation), kSendOperation))->is_of_program =
        true;
  return progressed;
}

bool Engine::next_program_message(const MatchKey& key, MessageId& message, PeerId& sender,
                                  std::size_t& length_bytes) noexcept {
  State& state = *state_;
  auto* const found = static_cast<IncomingMessage*>(state.matcher.find_unexpected(key, kIgnoreNothing));
  if (found == nullptr) return false;
  state.take(*found);
  message = MessageId{found->pool_id};
  sender = found->peer->id;
  length_bytes = found->total_bytes;
  return true;
}

Progressed Engine::receive_for_program(MessageId message, const Payload& payload, Cookie cookie,
                                       Status& status) noexcept {
  State& state = *state_;
  IncomingMessage* const found = state.messages.find(static_cast<std::uint64_t>(message));
  if (found == nullptr || !found->taken) {
    status = Status::kProtocol;
    return Progressed::kFailed;
  }
  OperationId operation = kNoOperation;
  Envelope envelope;
  const Progressed progressed = state.consume(*found, payload, cookie, &operation, envelope);
  status = envelope.status;
  if (progressed == Progressed::kPending)
    state.receives.find(pool_id_of(static_cast<std::uint64_t>(operation), kReceiveOperation))->is_of_program =
        true;
  return progressed;
}

bool Engine::next_program_end(ProgramEnd& end) noexcept {
  State& state = *state_;
  if (state.program_ends.empty()) return false;
  Event event;
  state.fill(event, state.program_ends.pop());
  end = {event.cookie, event.status};
  return true;
}

void Engine::warn(LogScope scope, std::string text) noexcept { state_->warn(scope, std::move(text)); }

}  // namespace ch3_offload
