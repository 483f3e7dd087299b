// Engine: the locks of tables, both sides.
//
// A lock is asked for in the order of what else goes to the peer, and answered when the initiator has it. Who
// holds it gives it back without an answer. A peer that dies with it breaks it: whoever waits is told.

#include <new>

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

TargetLock::Mode mode_of(TargetOperation operation) noexcept {
  return operation == TargetOperation::kLockExclusive ? TargetLock::Mode::kExclusive
                                                      : TargetLock::Mode::kShared;
}

}  // namespace

// The initiator.

Status Engine::State::transmit_lock(TargetOutgoing& one) noexcept {
  Peer& peer = *one.peer;
  const TargetRequest& request = one.request;
  std::span<std::byte> slot;
  wire::TargetLockHeader header;
  if (const Status status = reserve(peer, sizeof header, slot); status != Status::kOk) return status;
  const bool is_unlock = request.operation == TargetOperation::kUnlock;
  header.common = common(peer, is_unlock ? wire::Kind::kTargetUnlock : wire::Kind::kTargetLock, 0);
  header.common.client = wire::kTargetClient;
  if (!is_unlock) header.operation = number_outgoing(one);
  header.table = request.table;
  header.interface = request.interface;
  header.is_exclusive = request.operation == TargetOperation::kLockExclusive ? 1 : 0;
  wire::put(slot, header);
  peer.provider->commit(*peer.endpoint, sizeof header);
  spend(one, sizeof header);
  dequeue(one);
  one.send_is_told = true;
  kTargetRequestMachine.must_step(one.state,
                                  is_unlock ? TargetRequestEvent::kDone : TargetRequestEvent::kLeft);
  if (is_unlock) release_target(one);
  return Status::kOk;
}

/// REQUIRES: may_request().
Status Engine::State::lock_own(const TargetRequest& request) noexcept {
  TargetLock* const lock = interfaces[request.interface]->lock(request.table);
  const std::uint32_t self = index_of(config.self);
  if (request.operation == TargetOperation::kUnlock) {
    if (lock == nullptr || !lock->give_back(self)) return Status::kUnsupported;
  } else if (lock == nullptr) {
    tell_answer(request, make_answer(TargetFailure::kDropped));
    return Status::kOk;
  } else {
    const std::uint32_t question = ++own_lock_questions;
    try {
      own_locks.emplace(question, request);
      if (!lock->ask({self, question, mode_of(request.operation)})) {
        own_locks.erase(question);
        return Status::kUnsupported;
      }
    } catch (const std::bad_alloc&) {
      own_locks.erase(question);
      return Status::kNoMemory;
    }
  }
  settle_lock(request.interface, request.table, TargetFailure::kLockBroken);
  return Status::kOk;
}

// The target.

bool Engine::State::on_target_lock(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::TargetLockHeader header;
  if (!wire::get(message, header) || message.size() != sizeof header) return false;
  const bool is_unlock = header.common.kind == wire::Kind::kTargetUnlock;
  if (header.is_exclusive > 1 || is_unlock != (header.operation == 0)) return false;
  TargetLock* lock = nullptr;
  if (header.interface < kTargetInterfaces && interfaces[header.interface] != nullptr)
    lock = interfaces[header.interface]->lock(header.table);
  if (is_unlock) {
    if (lock == nullptr) return true;  // The interface was closed: it has no locks any more.
    if (!lock->give_back(index_of(peer.id))) return false;
  } else if (lock == nullptr) {
    send_target_answer(peer, wire::Kind::kTargetAck, make_answer(TargetFailure::kDropped, header.operation));
    return true;
  } else {
    const auto mode = header.is_exclusive != 0 ? TargetLock::Mode::kExclusive : TargetLock::Mode::kShared;
    try {
      if (!lock->ask({index_of(peer.id), header.operation, mode})) return false;
    } catch (const std::bad_alloc&) {
      doom(peer, Status::kNoMemory);
      return true;
    }
  }
  settle_lock(header.interface, header.table, TargetFailure::kLockBroken);
  return true;
}

/// Tells those who have the lock now, or never will.
void Engine::State::settle_lock(std::uint8_t interface, std::uint32_t table, TargetFailure refusal) noexcept {
  TargetLock& lock = *interfaces[interface]->lock(table);
  TargetLock::Waiter waiter;
  while (lock.take_granted(waiter)) answer_lock(interface, waiter, TargetFailure::kNone);
  while (lock.take_refused(waiter)) answer_lock(interface, waiter, refusal);
}

void Engine::State::answer_lock(std::uint8_t interface, const TargetLock::Waiter& waiter,
                                TargetFailure failure) noexcept {
  if (waiter.peer != index_of(config.self))
    return send_target_answer(*peers.at(PeerId{waiter.peer}), wire::Kind::kTargetAck,
                              make_answer(failure, waiter.question));
  const auto own = own_locks.find(waiter.question);
  if (own == own_locks.end() || own->second.interface != interface) return;
  const TargetRequest request = own->second;
  own_locks.erase(own);
  tell_answer(request, make_answer(failure));
}

/// The peer has failed.
void Engine::State::forget_locks(Peer& peer) noexcept {
  for (std::uint8_t number = 0; number < kTargetInterfaces; ++number) {
    TargetInterface* const interface = interfaces[number].get();
    if (interface == nullptr || !interface->has_locks()) continue;
    for (std::uint32_t table = 0; table < interface->most_tables(); ++table) {
      TargetLock* const lock = interface->lock(table);
      if (lock == nullptr) continue;
      lock->forget(index_of(peer.id));
      settle_lock(number, table, TargetFailure::kLockBroken);
    }
  }
}

/// The interface is about to close.
void Engine::State::abandon_locks(std::uint8_t number) noexcept {
  TargetInterface& interface = *interfaces[number];
  for (std::uint32_t table = 0; table < interface.most_tables(); ++table) {
    TargetLock* const lock = interface.lock(table);
    if (lock == nullptr) continue;
    lock->give_up();
    settle_lock(number, table, TargetFailure::kDropped);
  }
}

}  // namespace ch3_offload
