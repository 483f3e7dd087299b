// The states of the engine's objects. docs/state-machines.md shows them; test/engine/states_test.cc compares.

#pragma once

#include <array>
#include <cstdint>

#include "engine/state_machine.h"

namespace ch3_offload {

// ---- sends ----

enum class SendState : std::uint8_t {
  kQueued,                ///< In Backlog::queue, nothing sent.
  kStreaming,             ///< In Backlog::queue: eager, its parts leave one after another.
  kStreamingSynchronous,  ///< The same of a synchronous send.
  kStreamingMatched,      ///< The same, and its ACK is here.
  kAwaitingAck,           ///< A synchronous eager message has left.
  kAwaitingCts,           ///< Its RTS has left.
  kAwaitingCtsOrAck,      ///< Its RTS has left, with the payload.
  kAccepted,              ///< All has left and the ACK is here. Done, unless a cancel is undecided.
  kMoving,                ///< Its CTS is here: see OutboundState.
  kKept,                  ///< To oneself: in State::matcher, as a message.
  kCopying,               ///< To oneself: in State::self_copies. It has matched, and is copied in parts.
  kFinished,              ///< In State::finished, or gone.
};
enum class SendEvent : std::uint8_t {
  kPartLeft,             ///< The first of several.
  kSynchronousPartLeft,  ///< The same of a synchronous send.
  kSynchronousLeft,      ///< All of a synchronous eager message.
  kAnnounced,
  kAnnouncedWithPayload,
  kKeptHere,
  kMatchedHere,
  kCts,
  kAck,
  kDone,
  kCancelled,
  kFailed,
};
inline constexpr StateMachine kSendMachine(
    "send",
    std::array{"Queued", "Streaming", "StreamingSynchronous", "StreamingMatched", "AwaitingAck",
               "AwaitingCts", "AwaitingCtsOrAck", "Accepted", "Moving", "Kept", "Copying", "Finished"},
    std::array{"PartLeft", "SynchronousPartLeft", "SynchronousLeft", "Announced", "AnnouncedWithPayload",
               "KeptHere", "MatchedHere", "Cts", "Ack", "Done", "Cancelled", "Failed"},
    std::to_array<Transition<SendState, SendEvent>>({
        {SendState::kQueued, SendEvent::kPartLeft, SendState::kStreaming},
        {SendState::kQueued, SendEvent::kSynchronousPartLeft, SendState::kStreamingSynchronous},
        {SendState::kQueued, SendEvent::kSynchronousLeft, SendState::kAwaitingAck},
        {SendState::kQueued, SendEvent::kAnnounced, SendState::kAwaitingCts},
        {SendState::kQueued, SendEvent::kAnnouncedWithPayload, SendState::kAwaitingCtsOrAck},
        {SendState::kQueued, SendEvent::kKeptHere, SendState::kKept},
        {SendState::kQueued, SendEvent::kDone, SendState::kFinished},
        {SendState::kQueued, SendEvent::kCancelled, SendState::kFinished},
        {SendState::kQueued, SendEvent::kFailed, SendState::kFinished},
        {SendState::kStreaming, SendEvent::kDone, SendState::kFinished},
        {SendState::kStreaming, SendEvent::kFailed, SendState::kFinished},
        {SendState::kStreamingSynchronous, SendEvent::kAck, SendState::kStreamingMatched},
        {SendState::kStreamingSynchronous, SendEvent::kSynchronousLeft, SendState::kAwaitingAck},
        {SendState::kStreamingSynchronous, SendEvent::kFailed, SendState::kFinished},
        {SendState::kStreamingMatched, SendEvent::kSynchronousLeft, SendState::kAccepted},
        {SendState::kStreamingMatched, SendEvent::kFailed, SendState::kFinished},
        {SendState::kAwaitingAck, SendEvent::kAck, SendState::kAccepted},
        {SendState::kAwaitingAck, SendEvent::kCancelled, SendState::kFinished},
        {SendState::kAwaitingAck, SendEvent::kFailed, SendState::kFinished},
        {SendState::kAwaitingCts, SendEvent::kCts, SendState::kMoving},
        {SendState::kAwaitingCts, SendEvent::kCancelled, SendState::kFinished},
        {SendState::kAwaitingCts, SendEvent::kFailed, SendState::kFinished},
        {SendState::kAwaitingCtsOrAck, SendEvent::kCts, SendState::kMoving},
        {SendState::kAwaitingCtsOrAck, SendEvent::kAck, SendState::kAccepted},
        {SendState::kAwaitingCtsOrAck, SendEvent::kCancelled, SendState::kFinished},
        {SendState::kAwaitingCtsOrAck, SendEvent::kFailed, SendState::kFinished},
        {SendState::kAccepted, SendEvent::kDone, SendState::kFinished},
        {SendState::kAccepted, SendEvent::kCancelled, SendState::kFinished},
        {SendState::kAccepted, SendEvent::kFailed, SendState::kFinished},
        {SendState::kMoving, SendEvent::kDone, SendState::kFinished},
        {SendState::kMoving, SendEvent::kFailed, SendState::kFinished},
        {SendState::kKept, SendEvent::kMatchedHere, SendState::kCopying},
        {SendState::kKept, SendEvent::kDone, SendState::kFinished},
        {SendState::kKept, SendEvent::kCancelled, SendState::kFinished},
        {SendState::kKept, SendEvent::kFailed, SendState::kFinished},
        {SendState::kCopying, SendEvent::kDone, SendState::kFinished},
    }));

// ---- packets, and the part of one that goes by rendezvous ----

enum class PacketState : std::uint8_t {
  kStreaming,    ///< In Backlog::queue: its bytes leave through slots.
  kPartOffered,  ///< The RTS of a part has left.
  kPartMoving,   ///< Its CTS is here: see OutboundState.
  kPartMoved,    ///< All of the part has left; its ACK is due.
  kPartPlaced,   ///< Its ACK is here; the provider may still read it.
  kFinished,     ///< In State::finished, or gone.
};
enum class PacketEvent : std::uint8_t {
  kOffered,
  kCts,
  kRefused,  ///< A CTS that wants nothing: the part goes through slots.
  kMoved,
  kAck,
  kDone,
  kFailed,
};
inline constexpr StateMachine kPacketMachine(
    "packet", std::array{"Streaming", "PartOffered", "PartMoving", "PartMoved", "PartPlaced", "Finished"},
    std::array{"Offered", "Cts", "Refused", "Moved", "Ack", "Done", "Failed"},
    std::to_array<Transition<PacketState, PacketEvent>>({
        {PacketState::kStreaming, PacketEvent::kOffered, PacketState::kPartOffered},
        {PacketState::kStreaming, PacketEvent::kDone, PacketState::kFinished},
        {PacketState::kStreaming, PacketEvent::kFailed, PacketState::kFinished},
        {PacketState::kPartOffered, PacketEvent::kCts, PacketState::kPartMoving},
        {PacketState::kPartOffered, PacketEvent::kRefused, PacketState::kStreaming},
        {PacketState::kPartOffered, PacketEvent::kFailed, PacketState::kFinished},
        {PacketState::kPartMoving, PacketEvent::kMoved, PacketState::kPartMoved},
        {PacketState::kPartMoving, PacketEvent::kAck, PacketState::kPartPlaced},
        {PacketState::kPartMoving, PacketEvent::kFailed, PacketState::kFinished},
        {PacketState::kPartMoved, PacketEvent::kAck, PacketState::kStreaming},
        {PacketState::kPartMoved, PacketEvent::kFailed, PacketState::kFinished},
        {PacketState::kPartPlaced, PacketEvent::kMoved, PacketState::kStreaming},
        {PacketState::kPartPlaced, PacketEvent::kFailed, PacketState::kFinished},
    }));

// ---- a payload that leaves after its CTS ----

enum class OutboundState : std::uint8_t {
  kIdle,        ///< There is none.
  kWriteReady,  ///< In Backlog::bulk: a write is to be posted.
  kWriting,     ///< The provider reads the payload; on_write_done() is due.
  kBouncing,    ///< In Backlog::bulk: it leaves through slots.
};
enum class OutboundEvent : std::uint8_t {
  kMayWrite,
  kMustBounce,
  kPosted,
  kUnwritable,  ///< The provider cannot write to this peer.
  kMoved,       ///< All of it, or the provider has failed.
};
inline constexpr StateMachine kOutboundMachine(
    "outbound payload", std::array{"Idle", "WriteReady", "Writing", "Bouncing"},
    std::array{"MayWrite", "MustBounce", "Posted", "Unwritable", "Moved"},
    std::to_array<Transition<OutboundState, OutboundEvent>>({
        {OutboundState::kIdle, OutboundEvent::kMayWrite, OutboundState::kWriteReady},
        {OutboundState::kIdle, OutboundEvent::kMustBounce, OutboundState::kBouncing},
        {OutboundState::kWriteReady, OutboundEvent::kPosted, OutboundState::kWriting},
        {OutboundState::kWriteReady, OutboundEvent::kUnwritable, OutboundState::kBouncing},
        {OutboundState::kWriting, OutboundEvent::kUnwritable, OutboundState::kBouncing},
        {OutboundState::kWriting, OutboundEvent::kMoved, OutboundState::kIdle},
        {OutboundState::kBouncing, OutboundEvent::kMoved, OutboundState::kIdle},
    }));

// ---- operations on target entries ----

enum class TargetRequestState : std::uint8_t {
  kQueued,          ///< In Backlog::queue, nothing sent.
  kCopying,         ///< To oneself: in State::self_copies. It has an entry, and is copied in parts.
  kAwaitingCts,     ///< A long put was announced.
  kMoving,          ///< Its CTS is here, or a long reply leaves: see OutboundState.
  kMovingAnswered,  ///< The same of a put, and its answer is here. The provider may still read the data.
  kAwaitingAnswer,  ///< All has left.
  kAwaitingData,    ///< The answer is here, and the data that it announces comes apart.
  kFinished,        ///< About to be freed.
};
enum class TargetRequestEvent : std::uint8_t {
  kCopies,
  kAnnounced,
  kLeft,  ///< All of it, and an answer is awaited.
  kMoves,
  kCts,
  kAnswer,
  kAnswerBeforeData,
  kMoved,
  kDone,
  kFailed,
};
inline constexpr StateMachine kTargetRequestMachine(
    "target request",
    std::array{"Queued", "Copying", "AwaitingCts", "Moving", "MovingAnswered", "AwaitingAnswer",
               "AwaitingData", "Finished"},
    std::array{"Copies", "Announced", "Left", "Moves", "Cts", "Answer", "AnswerBeforeData", "Moved", "Done",
               "Failed"},
    std::to_array<Transition<TargetRequestState, TargetRequestEvent>>({
        {TargetRequestState::kQueued, TargetRequestEvent::kCopies, TargetRequestState::kCopying},
        {TargetRequestState::kQueued, TargetRequestEvent::kAnnounced, TargetRequestState::kAwaitingCts},
        {TargetRequestState::kQueued, TargetRequestEvent::kLeft, TargetRequestState::kAwaitingAnswer},
        {TargetRequestState::kQueued, TargetRequestEvent::kMoves, TargetRequestState::kMoving},
        {TargetRequestState::kQueued, TargetRequestEvent::kDone, TargetRequestState::kFinished},
        {TargetRequestState::kQueued, TargetRequestEvent::kFailed, TargetRequestState::kFinished},
        {TargetRequestState::kCopying, TargetRequestEvent::kDone, TargetRequestState::kFinished},
        {TargetRequestState::kAwaitingCts, TargetRequestEvent::kCts, TargetRequestState::kMoving},
        {TargetRequestState::kAwaitingCts, TargetRequestEvent::kAnswer, TargetRequestState::kFinished},
        {TargetRequestState::kAwaitingCts, TargetRequestEvent::kFailed, TargetRequestState::kFinished},
        {TargetRequestState::kMoving, TargetRequestEvent::kAnswer, TargetRequestState::kMovingAnswered},
        {TargetRequestState::kMoving, TargetRequestEvent::kMoved, TargetRequestState::kAwaitingAnswer},
        {TargetRequestState::kMoving, TargetRequestEvent::kDone, TargetRequestState::kFinished},
        {TargetRequestState::kMoving, TargetRequestEvent::kFailed, TargetRequestState::kFinished},
        {TargetRequestState::kMovingAnswered, TargetRequestEvent::kMoved, TargetRequestState::kFinished},
        {TargetRequestState::kMovingAnswered, TargetRequestEvent::kFailed, TargetRequestState::kFinished},
        {TargetRequestState::kAwaitingAnswer, TargetRequestEvent::kAnswer, TargetRequestState::kFinished},
        {TargetRequestState::kAwaitingAnswer, TargetRequestEvent::kAnswerBeforeData,
         TargetRequestState::kAwaitingData},
        {TargetRequestState::kAwaitingAnswer, TargetRequestEvent::kFailed, TargetRequestState::kFinished},
        {TargetRequestState::kAwaitingData, TargetRequestEvent::kDone, TargetRequestState::kFinished},
        {TargetRequestState::kAwaitingData, TargetRequestEvent::kFailed, TargetRequestState::kFinished},
    }));

// ---- receives ----

enum class ReceiveState : std::uint8_t {
  kPosted,     ///< In the matcher, or just made.
  kStreaming,  ///< Attached to an eager message whose parts arrive.
  kLanding,    ///< Matched an RTS: see LandingState.
  kFinished,   ///< In State::finished, or gone.
};
enum class ReceiveEvent : std::uint8_t {
  kPartArrived,  ///< The first of several, or those that have come so far.
  kAnnounced,
  kDone,
  kPurged,
  kFailed,
};
inline constexpr StateMachine kReceiveMachine(
    "receive", std::array{"Posted", "Streaming", "Landing", "Finished"},
    std::array{"PartArrived", "Announced", "Done", "Purged", "Failed"},
    std::to_array<Transition<ReceiveState, ReceiveEvent>>({
        {ReceiveState::kPosted, ReceiveEvent::kPartArrived, ReceiveState::kStreaming},
        {ReceiveState::kPosted, ReceiveEvent::kAnnounced, ReceiveState::kLanding},
        {ReceiveState::kPosted, ReceiveEvent::kDone, ReceiveState::kFinished},
        {ReceiveState::kPosted, ReceiveEvent::kPurged, ReceiveState::kFinished},
        {ReceiveState::kStreaming, ReceiveEvent::kDone, ReceiveState::kFinished},
        {ReceiveState::kStreaming, ReceiveEvent::kFailed, ReceiveState::kFinished},
        {ReceiveState::kLanding, ReceiveEvent::kDone, ReceiveState::kFinished},
        {ReceiveState::kLanding, ReceiveEvent::kFailed, ReceiveState::kFinished},
    }));

// ---- a payload that comes after our CTS ----

enum class LandingState : std::uint8_t {
  kAwaitingPeer,  ///< The CTS is due as soon as there is a connection with the sender.
  kGranted,       ///< The CTS has left, and nothing has come.
  kWritten,       ///< Parts have been written.
  kBounced,       ///< Parts have come through slots.
};
enum class LandingEvent : std::uint8_t { kCtsSent, kPartWritten, kPartBounced };
inline constexpr StateMachine kLandingMachine(
    "landing payload", std::array{"AwaitingPeer", "Granted", "Written", "Bounced"},
    std::array{"CtsSent", "PartWritten", "PartBounced"},
    std::to_array<Transition<LandingState, LandingEvent>>({
        {LandingState::kAwaitingPeer, LandingEvent::kCtsSent, LandingState::kGranted},
        {LandingState::kGranted, LandingEvent::kPartWritten, LandingState::kWritten},
        {LandingState::kGranted, LandingEvent::kPartBounced, LandingState::kBounced},
        {LandingState::kWritten, LandingEvent::kPartWritten, LandingState::kWritten},
        {LandingState::kBounced, LandingEvent::kPartBounced, LandingState::kBounced},
    }));

// ---- messages that no receive has taken, or whose parts still arrive ----

enum class MessageState : std::uint8_t {
  kWhole,      ///< The payload is here.
  kStreaming,  ///< Parts of an eager message arrive; Peer::incoming points here.
  kDiscarded,  ///< The same, and purged: its parts are dropped.
  kRts,        ///< The envelope is here, the payload is the sender's.
  kToSelf,     ///< The same of a message from this process, whose send is `send_to_self`.
  kBroken,     ///< Its sender died before the payload was whole.
};
enum class MessageEvent : std::uint8_t { kLastPart, kPurged, kSenderDied };
inline constexpr StateMachine kMessageMachine(
    "message", std::array{"Whole", "Streaming", "Discarded", "Rts", "ToSelf", "Broken"},
    std::array{"LastPart", "Purged", "SenderDied"},
    std::to_array<Transition<MessageState, MessageEvent>>({
        {MessageState::kStreaming, MessageEvent::kLastPart, MessageState::kWhole},
        {MessageState::kStreaming, MessageEvent::kPurged, MessageState::kDiscarded},
        {MessageState::kStreaming, MessageEvent::kSenderDied, MessageState::kBroken},
        {MessageState::kDiscarded, MessageEvent::kLastPart, MessageState::kWhole},
        {MessageState::kDiscarded, MessageEvent::kSenderDied, MessageState::kWhole},
    }));

}  // namespace ch3_offload
