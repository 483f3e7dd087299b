// What crosses between a client and its network processor: two rings of records and a page of words, in
// memory that both map. docs/nic-host-interface.md describes it.
//
// Commands go to the processor, events come back. A record of a ring (rdma/shm/ring.h) begins at a cache
// line, with 8 bytes of the ring's own. So a command or an event of 56 bytes is one line. What does not fit
// follows in the lines behind.
//
// A client names its operations (OperationId) and keeps its cookies: what comes back is the name. Addresses
// are the client's. Nothing else here depends on where it is mapped.
//
// Trust: each side may get rubbish from the other. The processor checks each command's kind and length, and
// refuses the client with the first wrong one. The client checks each event, and the name in it.
//
// Threads: the command ring and the client's words belong to the client, the event ring and the processor's
// words to the processor.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/engine.h"

namespace ch3_offload {

/// Of all that is here, and of what the two say before (nicd_protocol.h). Another number after each change: a
/// client and a processor of different numbers do not meet.
inline constexpr std::uint32_t kNicInterfaceVersion = 15;

enum class CommandKind : std::uint8_t {
  kSend = 1,        ///< CommandRecord. kSendDone follows.
  kSendInline,      ///< InlineRecord, payload. No event: `inline_done` counts it.
  kPacket,          ///< CommandRecord, Payload[count], header of send_id bytes. kSendDone follows.
  kPacketInline,    ///< InlineRecord, bytes. No event: `inline_done` counts it.
  kReceive,         ///< CommandRecord. kReceiveDone follows.
  kReceiveMasked,   ///< CommandRecord, MatchKey: the mask.
  kReceiveMatched,  ///< CommandRecord; bits: the MessageId. kReceiveDone follows.
  kCancelReceive,   ///< CommandRecord. Question.
  kCancelSend,      ///< CommandRecord; address: the send's name. Question. If kPending: kCancelDone.
  kProbe,           ///< CommandRecord, MatchKey: the mask. Question.
  kMatchedProbe,    ///< Likewise.
  kPurge,           ///< CommandRecord, MatchPattern[count], MatchPattern[send_id]. Question.
  kIntroduce,       ///< CommandRecord, card.
  kPlacePacket,     ///< CommandRecord: peer, address, length_bytes.
  kFailPeer,        ///< CommandRecord: peer.
  kClosePeer,       ///< CommandRecord: peer.
  kStopKeeping,     ///< CommandRecord. Question.
  kWriteTrace,      ///< CommandRecord, path. Question.
  kClassify,        ///< CommandRecord: bits, and as its mode the TrafficClass.
  kShare,           ///< CommandRecord: address, length_bytes. NicdShare came before it. Question.
  kUnshare,         ///< CommandRecord: address.
  kAttachTargets,   ///< CommandRecord. Question. NicdTargets comes before the answer 1.
  kDetachTargets,   ///< CommandRecord. Question.
  kGiveBytes,     ///< CommandRecord, as kBytesWanted asked: count: which payload of the operation; bits: from
                  ///< which of its bytes on; address, length_bytes: where they are in shared memory. An
                  ///< address of 0: they follow, at most kPacketPartBytes.
  kCopied,        ///< CommandRecord, as kCopyOffered has offered: bits: the number; length_bytes: that many
                  ///< bytes are copied. Fewer than were offered: the client could not copy the rest.
  kSchedule,      ///< CommandRecord, ScheduleStep[]; bits, address: the ScheduleMarks. kScheduleDone follows.
  kReachForeign,  ///< CommandRecord; bits: UserKey::proves(); the key's bytes. Question. NicdForeign comes
                  ///< before the answer, which is 1 if the processor reaches foreign peers from now on.
  kForgetPeer,    ///< CommandRecord: peer. Question: whether it is forgotten.
};

/// Answer to kAttachTargets, instead of 0: the kernel does not let the processor reach the client's memory.
inline constexpr std::uint64_t kTargetsRefused = 2;

/// The head of a command whose payload is in the record.
struct InlineRecord {
  CommandKind kind{};
  std::uint8_t mode = 0;  ///< SendMode, PurgeScope or TrafficClass.
  std::uint16_t count = 0;
  std::uint32_t peer = 0;
  std::uint64_t bits = 0;
  std::uint32_t initiator = 0;
  std::uint32_t send_id = 0;
};
static_assert(sizeof(InlineRecord) == 24);

/// The head of any other command.
struct CommandRecord : InlineRecord {
  OperationId operation = kNoOperation;
  std::uint64_t address = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t layout = 0;  ///< Address of a PayloadLayout; 0: contiguous.
};
static_assert(sizeof(CommandRecord) == 56);

/// The head of an event: Event, with the operation's name for a cookie and no `bytes`: those follow.
struct EventRecord {
  Event::Kind kind{};
  Status status{};
  std::uint8_t is_cancelled = 0;  ///< Not 0: it is. No bool, for the client may get rubbish.
  LogScope scope{};
  std::uint32_t peer = 0;
  OperationId operation = kNoOperation;
  std::uint64_t bits = 0;
  std::uint32_t initiator = 0;
  std::uint32_t reserved = 0;
  std::uint64_t length_bytes = 0;
};
static_assert(sizeof(EventRecord) == 40);

/// Events of the rings alone: for copies that the client makes.
inline constexpr Event::Kind kReceiveBytes{32};  ///< operation; length_bytes: offset. Bytes of its message,
                                                 ///< which the client copies. kReceiveDone follows.
                                                 ///< bits: as in kBytesWanted.
inline constexpr Event::Kind kBytesWanted{33};   ///< operation, of a send or packet; length_bytes: offset;
    ///< initiator: which of its payloads. kGiveBytes must follow.
    ///< bits not 0: the client should stage all from now on.
inline constexpr Event::Kind kCopyOffered{34};  ///< operation, of a receive; length_bytes: of its message,
                                                ///< which lies at address `bits` of process `initiator`.
                                                ///< peer: its number in NicWords::offered. The client may
                                                ///< take it there, and copy it to the beginning of its
                                                ///< buffer. Then kCopied must follow.
/// The client gives so many of them at once, if there are so many.
inline constexpr std::size_t kGivenBytes = std::size_t{1} << 20;

/// Payloads and packets up to here are copied into the command. So are messages into the event of their
/// receive, if only the kernel could write them into the client's memory.
inline constexpr std::size_t kInlineBytes = 1024;
/// So many inline commands may be on their way. What waits for its peer is kept by the processor.
inline constexpr std::uint64_t kInlineCommands = 64;
inline constexpr std::size_t kCommandRingBytes = std::size_t{256} << 10;
inline constexpr std::size_t kEventRingBytes = std::size_t{1} << 20;
/// Parts of a packet's data.
inline constexpr std::size_t kMostPacketParts = 64;
/// A packet comes in parts of at most this length.
inline constexpr std::size_t kPacketPartBytes = std::size_t{16} << 10;
/// A longer line for the user is cut.
inline constexpr std::size_t kWarningBytes = 4096;

/// A client has so many foreign peers at a time, in the slots behind the ranks of its job.
inline constexpr std::uint32_t kMostForeignPeers = 1U << 16;

/// Nobody's position: nothing is idle.
inline constexpr std::uint64_t kNotIdle = UINT64_MAX;

/// The page. Each word has one writer, but for `offered` and the three of sleep: whoever rings clears those.
struct NicWords {
  // The processor's.
  /// How many questions are answered. What follows is the answer to the last one.
  alignas(64) std::atomic<std::uint64_t> answered;
  std::uint64_t answer;  ///< 0: no. kMatchedProbe: MessageId. kCancelSend: Progressed. kWriteTrace: errno.
  std::uint64_t bits;    ///< Of the Envelope, as what follows.
  std::uint32_t initiator;
  Status status;
  std::uint64_t length_bytes;

  /// How many inline commands are done.
  alignas(64) std::atomic<std::uint64_t> inline_done;
  /// Position of the command ring up to which all has left (Port::idle()), and its events are published.
  std::atomic<std::uint64_t> idle_at;

  /// How many unexpected messages came. Stored before the next answer and the next event.
  alignas(64) std::atomic<std::uint64_t> arrivals;

  alignas(64) std::atomic<std::uint32_t> nic_sleeps;  ///< Not 0: ring. The client clears it when it rings.

  // The client's.
  alignas(64) std::atomic<std::uint32_t> client_sleeps;  ///< Likewise, the other way round.
  /// Not 0: the client sleeps on this word until an answer or room in the ring of commands comes
  /// (processor_wait.h). The processor clears it and wakes the client.
  std::atomic<std::uint32_t> client_waits;

  // The processor's, for a second client (target_command.h).
  alignas(64) std::atomic<std::uint64_t> told;  ///< How many things its board and its rings have told it.

  // Both sides'.
  /// The number of the copy that the client may take. It does so by adding OfferedCopies::kTaken, if the word
  /// is still the number. 0, or another one: it is withdrawn.
  alignas(64) std::atomic<std::uint64_t> offered;
};
static_assert(offsetof(NicWords, inline_done) == 64 && offsetof(NicWords, idle_at) == 72 &&
              offsetof(NicWords, arrivals) == 128 && offsetof(NicWords, nic_sleeps) == 192 &&
              offsetof(NicWords, client_sleeps) == 256 && offsetof(NicWords, client_waits) == 260 &&
              offsetof(NicWords, told) == 320 && offsetof(NicWords, offered) == 384 &&
              sizeof(NicWords) <= 4096);

}  // namespace ch3_offload
