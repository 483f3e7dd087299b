// Engine: triggered operations. A counting event may reach a threshold anywhere: in a message's arrival, in a
// command, in a triggered operation. What becomes due then waits in its interface (TargetTriggers) until it
// is run from here, and never from within another operation.

#include <variant>

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// Of one interface, in one turn. A cycle of triggers goes on in the next turns.
constexpr std::size_t kMostTriggered = 64;

}  // namespace

Status Engine::trigger(const TargetTrigger& when, PeerId peer, const TargetRequest& request,
                       const TargetHold& hold) noexcept {
  if (!state_->may_request(request)) return Status::kUnsupported;
  const Status status =
      state_->interfaces[request.interface]->trigger(when, TriggeredRequest{peer, request, hold});
  static_cast<void>(state_->run_triggered());
  return status;
}

std::size_t Engine::run_triggered() noexcept { return state_->run_triggered(); }

std::size_t Engine::State::run_triggered() noexcept {
  std::size_t ran = 0;
  for (const auto& interface : interfaces) {
    TriggeredAction action;
    for (std::size_t left = kMostTriggered; interface != nullptr && left > 0 && interface->take_due(action);
         --left, ++ran) {
      if (const auto* const request = std::get_if<TriggeredRequest>(&action))
        run(*request);
      else
        interface->carry_out(action);
    }
  }
  return ran;
}

void Engine::State::run(const TriggeredRequest& triggered) noexcept {
  if (begin_request(triggered.peer, triggered.request, triggered.hold) != Status::kOk)
    tell_refused(triggered.request);
}

}  // namespace ch3_offload
