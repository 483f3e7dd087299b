// The engine's message protocol on the wire: one header at the start of every slot.
//
// Little-endian, fixed-width, no padding; kWireVersion is agreed when a connection is made (it is part
// of the card). docs/wire-format.md is the reference. Headers are copied out of the slot, never
// overlaid: a slot may be hostile and may change.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "rdma/ch3_offload_lane.h"

namespace ch3_offload::wire {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr unsigned kWireVersion = 12;

/// What a message costs of byte credit beside its payload: the receiver keeps an envelope for it.
inline constexpr std::size_t kEnvelopeBytes = 160;

/// What a message of that length costs of byte credit. REQUIRES: the sum can be represented.
constexpr std::size_t cost_of(std::size_t payload_bytes) noexcept { return kEnvelopeBytes + payload_bytes; }

enum class Kind : std::uint8_t {
  kEager = 1,    ///< A whole message: EagerHeader, payload to the end of the slot.
  kEagerFirst,   ///< Head of a longer eager message: EagerFirstHeader, payload.
  kEagerNext,    ///< The next part of it: CommonHeader, payload. Only control and kData come between.
  kPacket,       ///< The next bytes of the packet stream: CommonHeader, bytes.
  kRts,          ///< Ready to send: RtsHeader; with kPayload also the payload (optimistic).
  kCts,          ///< Clear to send, the answer to one kRts: CtsHeader.
  kData,         ///< Part of a bounced payload: DataHeader, payload.
  kAck,          ///< A synchronous eager send matched, an optimistic payload was taken, a part is there.
  kCredit,       ///< Nothing but the credit in CommonHeader.
  kRecall,       ///< Asks for byte credit back: RecallHeader.
  kReturn,       ///< Gives byte credit back: RecallHeader.
  kCancel,       ///< Asks to take a message back: CancelHeader.
  kCancelReply,  ///< CancelReplyHeader.
  // Of kTargetClient: operations on target entries.
  kPut,            ///< TargetRequestHeader; with kPayload the data, else a kCts is awaited.
  kGet,            ///< TargetRequestHeader.
  kAtomic,         ///< TargetRequestHeader, data.
  kFetchAtomic,    ///< TargetRequestHeader, data.
  kSwap,           ///< TargetRequestHeader, the operand if there is one, data.
  kTargetAck,      ///< TargetAnswerHeader: the end of a kPut or kAtomic, the answer to a kTargetLock.
  kTargetReply,    ///< TargetAnswerHeader: the end of the others; with kPayload the data.
  kTargetAbandon,  ///< TargetAbandonHeader: of a kPut that was cleared, nothing more comes.
  kTargetLock,     ///< TargetLockHeader: asks for the lock of a table. kTargetAck: has it, or never will.
  kTargetUnlock,   ///< TargetLockHeader: gives it back.
  kEnd
};

// Flags of CommonHeader.
inline constexpr unsigned kSynchronous = 1;   ///< kEager, kEagerFirst, kRts: the sender waits for the match.
inline constexpr unsigned kRuns = 1;          ///< kPut to kSwap: TargetRequestHeader::bits, header_data.
inline constexpr unsigned kChosen = 1;        ///< kCts: kWritable says what the receiver has chosen.
inline constexpr unsigned kWantCredit = 2;    ///< kRts: the sender had no byte credit for an eager send.
inline constexpr unsigned kPayload = 4;       ///< kRts, kPut, kTargetReply: the payload follows.
inline constexpr unsigned kWritable = 8;      ///< kCts, kGet: address and key are valid for a write.
inline constexpr unsigned kByOperation = 16;  ///< kCancel: the id is an operation, not a send id.
inline constexpr unsigned kCancelled = 32;    ///< kCancelReply: the message was taken out.
inline constexpr unsigned kPacketPart = 64;   ///< kRts: no message, the next bytes of the packet stream.
inline constexpr unsigned kWantAck = 128;     ///< kPut, kAtomic: the initiator awaits a kTargetAck.

// Clients.
inline constexpr std::uint16_t kMessageClient = 0;  ///< MPI. Also kCts and kData of an operation on an entry.
inline constexpr std::uint16_t kTargetClient = 1;   ///< Operations on target entries.

struct CommonHeader {
  Kind kind{};
  std::uint8_t flags = 0;
  std::uint16_t client = 0;        ///< Which client of the receiving process it is for.
  std::uint32_t credit_bytes = 0;  ///< Byte credit given to the receiver of this slot.
};

struct EagerHeader {
  CommonHeader common;
  std::uint64_t bits = 0;
  std::uint32_t send_id = 0;  ///< For kCancel; with kSynchronous the sender's operation, for kAck too.
  std::uint32_t initiator = 0;
};

struct EagerFirstHeader {
  EagerHeader eager;
  std::uint64_t total_bytes = 0;  ///< Of the whole payload.
};

struct RtsHeader {
  CommonHeader common;
  std::uint64_t bits = 0;
  std::uint64_t total_bytes = 0;
  std::uint32_t operation = 0;  ///< The sender's.
  std::uint32_t send_id = 0;    ///< For kCancel after an optimistic payload was taken.
  std::uint32_t initiator = 0;
  std::uint32_t reserved = 0;
};

struct CtsHeader {
  CommonHeader common;
  std::uint32_t operation = 0;     ///< The sender's, from the RTS.
  std::uint32_t transfer = 0;      ///< The receiver's: immediate of the write, id in kData.
  std::uint64_t wanted_bytes = 0;  ///< The receiver takes that much of the head; 0: nothing follows.
  std::uint64_t address = 0;       ///< With kWritable: where a write may put it,
  std::uint64_t remote_key = 0;    ///< and the key that grants it.
};

struct DataHeader {
  CommonHeader common;
  std::uint32_t transfer = 0;
  std::uint32_t reserved = 0;
  std::uint64_t offset_bytes = 0;  ///< Parts come in order; the receiver checks.
};

struct AckHeader {
  CommonHeader common;
  std::uint32_t operation = 0;
  std::uint32_t reserved = 0;
};

struct CreditHeader {
  CommonHeader common;
};

struct RecallHeader {
  CommonHeader common;
  std::uint64_t bytes = 0;
};

struct CancelHeader {
  CommonHeader common;
  std::uint64_t bits = 0;
  std::uint32_t send_id = 0;
  std::uint32_t token = 0;  ///< Comes back in the reply.
  std::uint32_t initiator = 0;
  std::uint32_t reserved = 0;
};

struct CancelReplyHeader {
  CommonHeader common;
  std::uint32_t token = 0;
  std::uint32_t reserved = 0;
};

/// An operation on the target entries of the receiver. Who has sent it is known from the connection. A
/// message has request_header_bytes() of it, so that a short put, atomic or get takes one cache line.
struct TargetRequestHeader {
  CommonHeader common;
  std::uint64_t bits = 0;  ///< With kRuns: the length of each run of the window's memory.
  std::uint64_t offset_bytes = 0;
  std::uint64_t header_data = 0;  ///< With kRuns: from one run's beginning to the next one's.
  std::uint32_t operation = 0;  ///< The initiator's. 0: it awaits no answer.
  std::uint16_t table = 0;
  std::uint8_t interface = 0;
  std::uint8_t atomic_operation = 0;
  // Here a kPut with its data ends.
  std::uint32_t transfer = 0;  ///< kGet, kFetchAtomic, kSwap: immediate of a write, id in kData.
  std::uint8_t atomic_type = 0;
  std::uint8_t reserved_byte = 0;
  std::uint16_t reserved = 0;
  // Here an atomic, a fetch-atomic and a swap end.
  std::uint64_t length_bytes = 0;  ///< kGet, kPut without its data. Of the others it is what follows.
  // Here all others end.
  std::uint64_t address = 0;     ///< kGet with kWritable: where a write may put the data,
  std::uint64_t remote_key = 0;  ///< and the key that grants it.
};

/// Of a kPut with its data.
inline constexpr std::size_t kWholePutHeaderBytes = offsetof(TargetRequestHeader, transfer);

/// How much of a TargetRequestHeader a message has. REQUIRES: `kind` is that of a request.
constexpr std::size_t request_header_bytes(Kind kind, unsigned flags) noexcept {
  if (kind == Kind::kPut)
    return (flags & kPayload) != 0 ? kWholePutHeaderBytes : offsetof(TargetRequestHeader, address);
  if (kind != Kind::kGet) return offsetof(TargetRequestHeader, length_bytes);
  return (flags & kWritable) != 0 ? sizeof(TargetRequestHeader) : offsetof(TargetRequestHeader, address);
}

struct TargetAnswerHeader {
  CommonHeader common;
  std::uint32_t operation = 0;     ///< From the request.
  std::uint16_t failure = 0;       ///< A TargetFailure. Not 0: what follows is 0.
  std::uint16_t list = 0;          ///< A TargetListKind: where the entry was found.
  std::uint64_t length_bytes = 0;  ///< Of the data that was put or gotten.
  std::uint64_t offset_bytes = 0;  ///< Where it is in the memory of the entry.
};

struct TargetLockHeader {
  CommonHeader common;
  std::uint32_t operation = 0;  ///< The initiator's, of kTargetLock.
  std::uint16_t table = 0;
  std::uint8_t interface = 0;
  std::uint8_t is_exclusive = 0;  ///< 0 or 1, of kTargetLock.
};
struct TargetAbandonHeader {
  CommonHeader common;
  std::uint32_t transfer = 0;  ///< The receiver's, from the CTS.
  std::uint32_t reserved = 0;
};

static_assert(sizeof(CommonHeader) == 8 && offsetof(CommonHeader, credit_bytes) == 4);
static_assert(sizeof(EagerHeader) == 24 && offsetof(EagerHeader, send_id) == 16);
static_assert(sizeof(EagerFirstHeader) == 32 && offsetof(EagerFirstHeader, total_bytes) == 24);
static_assert(sizeof(RtsHeader) == 40 && offsetof(RtsHeader, initiator) == 32);
static_assert(sizeof(CtsHeader) == 40 && offsetof(CtsHeader, remote_key) == 32);
static_assert(sizeof(DataHeader) == 24 && offsetof(DataHeader, offset_bytes) == 16);
static_assert(sizeof(AckHeader) == 16);
static_assert(sizeof(RecallHeader) == 16);
static_assert(sizeof(CancelHeader) == 32 && offsetof(CancelHeader, initiator) == 24);
static_assert(sizeof(CancelReplyHeader) == 16);
static_assert(sizeof(TargetRequestHeader) == 72 && offsetof(TargetRequestHeader, transfer) == 40);
static_assert(sizeof(TargetAnswerHeader) == 32 && offsetof(TargetAnswerHeader, list) == 14);
static_assert(sizeof(TargetAbandonHeader) == 16);
static_assert(sizeof(TargetLockHeader) == 16 && offsetof(TargetLockHeader, table) == 12);

// ch3_offload_lane_send() writes such a message.
static_assert(sizeof(EagerHeader) == CH3_OFFLOAD_LANE_MESSAGE_HEADER_BYTES &&
              offsetof(EagerHeader, bits) == 8 &&
              sizeof(CommonHeader) == CH3_OFFLOAD_LANE_PACKET_HEADER_BYTES &&
              kEnvelopeBytes == CH3_OFFLOAD_LANE_ENVELOPE_BYTES &&
              static_cast<int>(Kind::kEager) == CH3_OFFLOAD_LANE_MESSAGE_KIND &&
              static_cast<int>(Kind::kPacket) == CH3_OFFLOAD_LANE_PACKET_KIND);

/// The longest header of MPI's messages and of what is a message without a payload.
inline constexpr std::size_t kLongestHeaderBytes = sizeof(CtsHeader);

/// Copies a header to the start of a slot. REQUIRES: the slot is long enough.
template <class Header>
void put(std::span<std::byte> slot, const Header& header) noexcept {
  static_assert(std::is_trivially_copyable_v<Header>);
  std::memcpy(slot.data(), &header, sizeof header);
}

/// Copies a header out of a message. False: the message is too short.
template <class Header>
[[nodiscard]] bool get(std::span<const std::byte> message, Header& header) noexcept {
  if (message.size() < sizeof header) return false;
  std::memcpy(&header, message.data(), sizeof header);
  return true;
}

/// The same of a TargetRequestHeader, of which a message has a part. REQUIRES: its kind is that of a request.
inline void put_request(std::span<std::byte> slot, const TargetRequestHeader& header) noexcept {
  std::memcpy(slot.data(), &header, request_header_bytes(header.common.kind, header.common.flags));
}

/// What the message does not have is 0. False: it is no request, or too short.
[[nodiscard]] inline bool get_request(std::span<const std::byte> message,
                                      TargetRequestHeader& header) noexcept {
  CommonHeader common;
  if (!get(message, common) || common.kind < Kind::kPut || common.kind > Kind::kSwap) return false;
  const std::size_t length = request_header_bytes(common.kind, common.flags);
  if (message.size() < length) return false;
  header = {};
  if (length == kWholePutHeaderBytes)  // Without a call.
    std::memcpy(static_cast<void*>(&header), message.data(), kWholePutHeaderBytes);
  else
    std::memcpy(static_cast<void*>(&header), message.data(), length);
  return true;
}

}  // namespace ch3_offload::wire
