// Engine: operations of a process on its own target entries. Nothing crosses a provider, and the initiator's
// side and the target's are one.
//
// A long put or get is copied in parts, one in a turn, so that others have theirs (engine_self.cc).

#include <array>
#include <memory>
#include <new>

#include "engine/engine_state.h"

namespace ch3_offload {
namespace {

TargetHeader header_of(const TargetRequest& request) noexcept {
  TargetHeader header;
  header.key.bits = request.bits;
  header.length_bytes = request.length_bytes();
  header.offset_bytes = request.offset_bytes;
  header.header_data = request.header_data;
  header.operation = request.operation;
  header.atomic_operation = static_cast<std::uint8_t>(request.atomic_operation);
  header.atomic_type = static_cast<std::uint8_t>(request.atomic_type);
  return header;
}

}  // namespace

/// `hold`: of the request's memory.
Status Engine::State::request_to_self(const TargetRequest& request, const TargetHold& hold) noexcept {
  TargetHeader header = header_of(request);
  const bool is_move = request.operation == TargetOperation::kPut || request.is_get();
  // As one that does not fit a peer's slot.
  if (!is_move && header.length_bytes > config.self_copy_bytes) {
    tell_refused(request);
    return Status::kOk;
  }
  const TargetPlacement placement =
      interfaces[request.interface]->arrive(index_of(config.self), request.table, header, request.runs);
  if (placement.is_refused()) {
    tell_send(request, TargetFailure::kNone);
    tell_answer(request, make_answer(placement.failure));
  } else if (!is_move) {
    run_own_atomic(request, header, placement);
  } else if (placement.length_bytes > config.self_copy_bytes) {
    begin_own_move(request, hold, header, placement);
  } else {
    EntryPart part;
    move_own(request, payload_of(placement, request.runs, part), 0, placement.length_bytes);
    end_own(request, header, placement, TargetFailure::kNone);
  }
  return Status::kOk;
}

/// A range of what a put or a get moves. `memory`: the entry's.
void Engine::State::move_own(const TargetRequest& request, const Payload& memory, std::size_t offset_bytes,
                             std::size_t length_bytes) noexcept {
  // The memory of a second client is here, or its processor drops it.
  static_cast<void>(request.is_get()
                        ? copy_range(memory, request.destination.memory, offset_bytes, length_bytes)
                        : copy_range(request.source_bytes(), memory, offset_bytes, length_bytes));
}

void Engine::State::begin_own_move(const TargetRequest& request, const TargetHold& hold,
                                   const TargetHeader& header, const TargetPlacement& placement) noexcept {
  TargetOutgoing* const one = target_operations.take();
  Peer* const self = known(config.self);
  if (one == nullptr || self == nullptr) {
    if (one != nullptr) target_operations.give_back(*one);
    return end_own(request, header, placement, TargetFailure::kUndeliverable);
  }
  one->request = request;
  one->hold = hold;
  one->header = header;
  one->placement = placement;
  one->data = payload_of(placement, request.runs, one->part);
  one->peer = self;
  self->outgoing.push_back(*one);
  kTargetRequestMachine.must_step(one->state, TargetRequestEvent::kCopies);
  begin_turns(*one);
}

void Engine::State::continue_own_move(TargetOutgoing& one) noexcept {
  const std::size_t length_bytes = one.placement.length_bytes;
  const std::size_t part = std::min(config.self_copy_bytes, length_bytes - one.outbound.sent_bytes);
  move_own(one.request, one.data, one.outbound.sent_bytes, part);
  one.outbound.sent_bytes += part;
  if (one.outbound.sent_bytes < length_bytes) return self_copies.push_back(one);
  --own_work;
  kTargetRequestMachine.must_step(one.state, TargetRequestEvent::kDone);
  end_own(one.request, one.header, one.placement, TargetFailure::kNone);
  release_target(one);
}

void Engine::State::abandon_own_move(TargetOutgoing& one) noexcept {
  self_copies.remove(one);
  --own_work;
  release_target(one);
}

void Engine::State::run_own_atomic(const TargetRequest& request, const TargetHeader& header,
                                   TargetPlacement placement) noexcept {
  placement.length_bytes = length_of(request.atomic_operation, request.atomic_type, placement.length_bytes);
  const EntryMemory entry_memory(placement, request.runs);
  const std::size_t length_bytes = placement.length_bytes;
  // The source may be the target's memory, or have gaps.
  std::array<std::byte, TargetOutgoing::kInlineBytes> short_copy;
  std::unique_ptr<std::byte[]> long_copy;
  if (length_bytes > short_copy.size()) long_copy.reset(new (std::nothrow) std::byte[length_bytes]);
  std::byte* const copy = length_bytes > short_copy.size() ? long_copy.get() : short_copy.data();
  if (!entry_memory.is_there() || copy == nullptr)
    return end_own(request, header, placement, TargetFailure::kUndeliverable);
  const std::span<std::byte> memory = entry_memory.bytes();
  const auto data = std::span(copy, length_bytes);
  gather(request.source_bytes(), 0, data);
  if (request.returns_data()) scatter(request.destination.memory, 0, memory);
  if (!changes_nothing(request.atomic_operation, data)) {
    apply(request.atomic_operation, request.atomic_type, request.operand, data, memory);
    entry_memory.store();
  }
  end_own(request, header, placement, TargetFailure::kNone);
}

/// The request has been placed.
void Engine::State::end_own(const TargetRequest& request, const TargetHeader& header,
                            const TargetPlacement& placement, TargetFailure failure) noexcept {
  interfaces[request.interface]->table(request.table)->finish(placement, header, failure);
  if (failure != TargetFailure::kNone) return tell_refused(request);
  tell_send(request, TargetFailure::kNone);
  tell_answer(request, request.returns_data() ? make_answer(placement) : make_acknowledgement(placement));
}

}  // namespace ch3_offload
