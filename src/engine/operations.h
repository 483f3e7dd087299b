// The engine's objects: sends, packets, receives, messages, and the payloads that move by rendezvous.
//
// Included by src/engine/engine_state.h only. All of them live in pools of Engine::State. An operation is
// done with its event: see Engine::State::complete().

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/intrusive_list.h"
#include "engine/matcher.h"
#include "engine/payload_blocks.h"
#include "engine/pool.h"
#include "engine/states.h"
#include "engine/wire.h"

namespace ch3_offload {

struct IncomingMessage;
struct Peer;
struct ReceiveOperation;

/// What all operations that finish with an event have in common. The operation holds its event, so no event
/// is lost for want of memory.
struct Operation {
  enum class Kind : std::uint8_t { kSend, kPacket, kReceive, kCancel, kTarget };
  explicit Operation(Kind its_kind) noexcept : kind(its_kind) {}

  const Kind kind;
  Status status = Status::kOk;  ///< Once it has finished.
  bool is_cancelled = false;    ///< Likewise.
  bool is_of_program = false;   ///< Its end is told by next_program_end(), not by an event.
  Cookie cookie = nullptr;
  Operation* next_finished = nullptr;  ///< State::finished.
};

/// Registered memory of one operation, from hold_memory() to let_go().
struct HeldMemory {
  bool held = false;
  MemoryRegion region{};   ///< While held.
  Region* kept = nullptr;  ///< The cache's region, if it came from one.
};

/// A payload that leaves after its CTS: a message's, or a part of a packet.
struct Outbound {
  OutboundState state = OutboundState::kIdle;
  Payload payload;
  std::size_t wanted_bytes = 0;  ///< What the CTS asked for.
  std::size_t sent_bytes = 0;    ///< Of those: bounced so far.
  std::uint32_t landing = 0;     ///< The receiver's name for it, from the CTS.
  RemoteMemory remote{};         ///< Where a write may put it.
  HeldMemory memory;             ///< The payload, to be read by the device.
};

/// What leaves in the order of a Backlog: a message, a packet, or an operation on a target entry.
struct Outgoing : Operation {
  using Operation::Operation;

  std::uint64_t pool_id = 0;
  std::uint32_t number_on_wire = 0;  ///< The receiver's name for it; 0: it has none yet (number_outgoing()).
  TrafficClass traffic_class{};      ///< Since it was queued.
  Peer* peer = nullptr;
  std::uint64_t number = 0;  ///< For the trace. 0: a packet.
  Outbound outbound;
  ListHook<Outgoing> queue_hook{};  ///< Backlog::queue.
  ListHook<Outgoing> bulk_hook{};   ///< Backlog::bulk.
  ListHook<Outgoing> peer_hook{};   ///< Peer::outgoing.
  KeyedHook<Outgoing> wire_hook{};  ///< State::on_wire, with a number.
};

struct SendOperation : Outgoing {
  SendOperation() noexcept : Outgoing(Kind::kSend) {}

  SendState state = SendState::kQueued;
  SendMode mode = SendMode::kStandard;
  bool detached = false;    ///< Done for its caller: `copy` holds the payload, no event comes.
  bool cancelling = false;  ///< A cancel is undecided. While it streams, the request goes when all has left.
  std::uint32_t send_id = 0;
  MatchKey key{};
  Payload payload;
  std::size_t sent_bytes = 0;         ///< Streamed so far.
  std::unique_ptr<std::byte[]> copy;  ///< Sender-side buffer, see EngineConfig::send_buffer_bytes.
  union {
    IncomingMessage* to_self = nullptr;  ///< kKept: the message as this process will receive it.
    ReceiveOperation* copied_to;         ///< kCopying: where the payload goes.
  };
};

/// A packet that could not leave at once. Outgoing::outbound is the part that is announced.
struct PacketOperation : Outgoing {
  PacketOperation() noexcept : Outgoing(Kind::kPacket) {}

  PacketState state = PacketState::kStreaming;
  std::vector<std::byte> header;
  std::vector<Payload> data;
  std::size_t total_bytes = 0;  ///< Header and data.
  std::size_t sent_bytes = 0;   ///< Of those: what has left.
  /// What comes before goes through slots: the receiver has no place for it.
  std::size_t refused_until = 0;
};

/// A payload that comes after our CTS: a message's, or a part of a packet.
struct Landing {
  LandingState state = LandingState::kAwaitingPeer;
  bool is_timed = false;        ///< By WriteTerms::choice.
  std::uint32_t timed_run = 0;  ///< WriteChoice::Choice::run.
  Peer* peer = nullptr;
  ReceiveOperation* receive = nullptr;  ///< Null: a part of a packet, Peer::placing, or a TargetLanding.
  Payload payload;
  std::size_t wanted_bytes = 0;
  std::size_t received_bytes = 0;      ///< Parts so far, written or bounced.
  std::uint32_t remote_operation = 0;  ///< The sender's.
  std::uint32_t number = 0;            ///< The sender's name for it; 0: it has none (number_landing()).
  HeldMemory memory;                   ///< The payload; held: the peer may write to it.
  KeyedHook<Landing> wire_hook{};      ///< State::landings, with a number.
};

/// The part of a packet that goes straight to its place.
struct PlacedPart {
  std::uint64_t pool_id = 0;
  Landing landing;
};

struct ReceiveOperation : PostedEntry, Operation {
  ReceiveOperation() noexcept : Operation(Kind::kReceive) {}

  std::uint64_t pool_id = 0;
  ReceiveState state = ReceiveState::kPosted;
  Payload payload;
  // From the match on:
  Peer* peer = nullptr;
  MatchKey message_key{};
  std::uint64_t number = 0;  ///< For the trace.
  std::size_t total_bytes = 0;
  Landing landing;                         ///< While kLanding.
  ListHook<ReceiveOperation> peer_hook{};  ///< Peer::receives, while kStreaming or kLanding.

  /// For Pool. What is not here is set before it is read.
  void recycle() noexcept {
    state = ReceiveState::kPosted;
    is_cancelled = is_of_program = false;
  }
};

/// A message that no receive has taken, or whose parts still arrive. A flood leaves many: each byte counts.
struct IncomingMessage : UnexpectedEntry {
  static constexpr std::size_t kInlineBytes = 16;

  IncomingMessage() noexcept {}  // NOLINT: user-provided, so that the payload is not zeroed
  IncomingMessage(const IncomingMessage&) = delete;
  IncomingMessage& operator=(const IncomingMessage&) = delete;
  ~IncomingMessage() {
    if (has_block) PayloadBlocks::release(block);
  }

  std::uint64_t pool_id = 0;
  MessageState state = MessageState::kWhole;
  bool synchronous = false;     ///< Eager: an ACK is due at the match.
  bool optimistic = false;      ///< Kept without credit: it counts in State::optimistic_bytes.
  bool taken = false;           ///< By matched_probe(): no longer in the matcher.
  bool has_block = false;       ///< The payload is in `block`, not in `inline_payload`.
  std::uint32_t operation = 0;  ///< The sender's, when it has one (RTS, synchronous).
  std::uint32_t send_id = 0;    ///< The sender's name for kCancel, 0: none.
  Peer* peer = nullptr;
  std::uint64_t number = 0;  ///< For the trace.
  std::size_t total_bytes = 0;
  union {
    std::array<std::byte, kInlineBytes> inline_payload;
    std::byte* block;             ///< Of State::blocks, for a payload longer than kInlineBytes. Owned.
    SendOperation* send_to_self;  ///< kToSelf.
  };

  /// For Pool. What is not here is set before it is read.
  void recycle() noexcept {
    if (has_block) PayloadBlocks::release(block);
    state = MessageState::kWhole;
    synchronous = optimistic = taken = has_block = false;
    operation = send_id = 0;
    wildcards = nullptr;
  }

  std::byte* stored() noexcept { return has_block ? block : inline_payload.data(); }
  /// The payload is still the sender's.
  bool is_announced() const noexcept { return state == MessageState::kRts || state == MessageState::kToSelf; }
};

/// An unexpected message of up to kInlineBytes takes this much: the entry and its share of a table of
/// buckets that has just doubled (one to two buckets a key, and half of that for the table before).
inline constexpr std::size_t kEntryBytes = Pool<IncomingMessage>::bytes_per_object() + 3 * sizeof(void*);
static_assert(kEntryBytes <= wire::kEnvelopeBytes, "credit pays for what a message takes");

/// What a send that was finished by a copy takes beside the copy: no less than its envelope takes at the
/// receiver.
inline constexpr std::size_t kBufferedSendBytes = Pool<SendOperation>::bytes_per_object();
static_assert(kBufferedSendBytes >= kEntryBytes);

/// To one peer, however small the budget and large the job.
inline constexpr std::size_t kLeastBufferedSends = 64;

/// A short message of the protocol that waits for room. Not ordered with messages and packets.
struct ControlMessage {
  std::uint64_t pool_id = 0;
  std::size_t length_bytes = 0;
  std::array<std::byte, wire::kLongestHeaderBytes> bytes{};
  ListHook<ControlMessage> hook{};
};

/// A cancel request whose reply is due.
struct CancelRequest : Operation {
  CancelRequest() noexcept : Operation(Kind::kCancel) {}

  std::uint64_t pool_id = 0;
  std::uint32_t token = 0;      ///< The peer's name for it.
  std::uint64_t operation = 0;  ///< The pending send's id in State::sends, 0: it was done.
  ListHook<CancelRequest> hook{};
};

/// Operations that have finished, in that order.
class FinishedQueue {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  void push(Operation& operation) noexcept {
    operation.next_finished = nullptr;
    (head_ == nullptr ? head_ : tail_->next_finished) = &operation;
    tail_ = &operation;
  }
  /// REQUIRES: not empty().
  Operation& pop() noexcept {
    Operation& operation = *head_;
    head_ = operation.next_finished;
    return operation;
  }

 private:
  Operation* head_ = nullptr;
  Operation* tail_ = nullptr;  ///< Valid while head_ is not null.
};

// An OperationId, and the WorkId of a write: the id in a pool, with which pool in the bits that it leaves.
inline constexpr std::uint64_t kSendOperation = std::uint64_t{1} << Pool<SendOperation>::kIndexBits;
inline constexpr std::uint64_t kReceiveOperation = std::uint64_t{2} << Pool<SendOperation>::kIndexBits;
inline constexpr std::uint64_t kPacketOperation = std::uint64_t{3} << Pool<SendOperation>::kIndexBits;
inline constexpr std::uint64_t kTargetOperation = 0;  ///< On a target entry.

/// The id in the pool of that kind. 0: of another one.
constexpr std::uint64_t pool_id_of(std::uint64_t id, std::uint64_t kind) noexcept {
  constexpr std::uint64_t kAnyKind = kSendOperation | kReceiveOperation;
  return (id & kAnyKind) == kind ? id & ~kAnyKind : 0;
}

}  // namespace ch3_offload
