// The engine's objects for operations on target entries. Included by src/engine/engine_state.h only.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/entry_memory.h"
#include "engine/operations.h"
#include "engine/target_request.h"
#include "engine/targets/target_interface.h"

namespace ch3_offload {

/// The interface of an operation whose own was closed: it is never open, so nobody is told of the operation.
inline constexpr std::uint8_t kNoInterface = kTargetInterfaces;

struct TargetArrival;
struct TargetOutgoing;

/// What the initiator hears of a request. `operation`: the initiator's name for it.
inline wire::TargetAnswerHeader make_answer(TargetFailure failure, std::uint32_t operation = 0) noexcept {
  wire::TargetAnswerHeader answer;
  answer.operation = operation;
  answer.failure = static_cast<std::uint16_t>(failure);
  return answer;
}
/// Of one that was placed.
inline wire::TargetAnswerHeader make_answer(const TargetPlacement& placement,
                                            std::uint32_t operation = 0) noexcept {
  wire::TargetAnswerHeader answer = make_answer(TargetFailure::kNone, operation);
  answer.list = static_cast<std::uint16_t>(placement.list);
  answer.length_bytes = placement.length_bytes;
  answer.offset_bytes = placement.offset_bytes;
  return answer;
}
/// The acknowledgement of a put or an atomic that was placed.
inline wire::TargetAnswerHeader make_acknowledgement(const TargetPlacement& placement,
                                                     std::uint32_t operation = 0) noexcept {
  return placement.is_untold ? make_answer(TargetFailure::kUntold, operation)
                             : make_answer(placement, operation);
}

/// A payload of an operation on an entry that comes by a write or through slots. One of the two is set.
struct TargetLanding : Landing {
  TargetOutgoing* request = nullptr;  ///< The data of a get comes back to its initiator.
  TargetArrival* arrival = nullptr;   ///< The data of a put comes to its target.
};

/// A request of this process, or its reply to one that returns data. Outgoing::outbound is a payload that
/// does not fit the slot.
struct TargetOutgoing : Outgoing {
  TargetOutgoing() noexcept : Outgoing(Kind::kTarget) {}

  TargetRequestState state = TargetRequestState::kQueued;
  bool is_reply = false;
  bool send_is_told = false;        ///< A request: its send event has come, or none will.
  wire::TargetAnswerHeader answer;  ///< A reply's own. Of a request: the one that is here.
  // A request:
  TargetRequest request;
  TargetHold hold;        ///< Of the request's memory.
  TargetLanding landing;  ///< Of what returns data.
  // A reply:
  Payload data;
  EntryPart part;              ///< What `data` is of the entry.
  RemoteMemory remote{};       ///< With is_writable: where a write may put the data.
  std::uint32_t transfer = 0;  ///< The initiator's name for it.
  bool is_writable = false;
  bool holds_entry = false;  ///< A get: `placement` finishes when the data has left.
  TargetPlacement placement;
  TargetHeader header;
  std::uint8_t interface = 0;
  std::uint16_t table = 0;
  // Both:
  std::uint8_t closing = kNoInterface;  ///< Whose close waits for it: a device or the peer uses its memory.
  /// The old data of an atomic: it must not change any more.
  static constexpr std::size_t kInlineBytes = 64;
  std::array<std::byte, kInlineBytes> inline_copy{};
  std::unique_ptr<std::byte[]> long_copy;
};

/// A put whose data has not come yet.
struct TargetArrival {
  std::uint64_t pool_id = 0;
  TargetLanding landing;
  EntryPart part;  ///< What lands, of the entry.
  TargetPlacement placement;
  TargetHeader header;
  std::uint8_t interface = 0;
  std::uint16_t table = 0;
  bool wants_ack = false;
  std::uint8_t closing = kNoInterface;  ///< Whose close waits for it: the peer may write to its memory.
  ListHook<TargetArrival> peer_hook{};  ///< Peer::arrivals.
};

}  // namespace ch3_offload
