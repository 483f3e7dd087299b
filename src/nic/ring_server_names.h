// For the sources of RingServer only: the names under which the engine has the client's operations, and the
// records of events.

#pragma once

#include <cstdint>

#include "nic/nic_records.h"

namespace ch3_offload {

/// The engine's cookie of a copy is the copy's number: no name of a client is so small, for its generation is
/// not 0. That of a packet in a command is the peer's number, in a generation that no client gives.
inline constexpr std::uint32_t kPacketGeneration = UINT32_MAX - 1;

inline Cookie cookie_of(OperationId operation) noexcept {
  return reinterpret_cast<Cookie>(static_cast<std::uintptr_t>(operation));
}
inline std::uint32_t number_in(OperationId operation) noexcept {
  return static_cast<std::uint32_t>(operation);
}
inline std::uint32_t generation_in(OperationId operation) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(operation) >> 32);
}

inline EventRecord event_of(Event::Kind kind, Status status) noexcept {
  EventRecord event;
  event.kind = kind;
  event.status = status;
  return event;
}
inline EventRecord event_of(const Envelope& envelope) noexcept {
  EventRecord event = event_of(Event::Kind::kReceiveDone, envelope.status);
  event.bits = envelope.key.bits;
  event.initiator = envelope.key.initiator;
  event.length_bytes = envelope.length_bytes;
  return event;
}
inline EventRecord event_of(const Event& event) noexcept {
  EventRecord record = event_of({event.key, event.length_bytes, event.status});
  record.kind = event.kind;
  record.is_cancelled = event.is_cancelled;
  record.scope = event.scope;
  record.peer = index_of(event.peer);
  return record;
}

}  // namespace ch3_offload
