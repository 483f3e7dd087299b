// The trace: a ring of the latest events of one side of the port, for `ch3-offload-trace` and for
// post-mortems. The engine has one, and its client another (nic/traced_port.h).
//
// Off (a null pointer in the engine) it costs one predictable branch an event. On, an event is one
// clock read and one 40-byte store; the ring keeps the latest events and never allocates or blocks. The
// kernel gives the ring's pages as they are first written, so a ring that is never full costs what is in it.
// Threads: record() from the side's thread only; write() from the same thread.
//
// A message is named by (source process, destination process, number): both sides count the messages of
// their ordered stream, from 1, so the name needs no bytes on the wire. A command is named by its cookie,
// which both sides of the port know. A cookie may be used again when its command is over. If rings are
// between the two sides, each has cookies of its own, and the command's position in the ring joins them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "rdma/provider.h"

namespace ch3_offload {

/// What happened. The comment gives the meaning of `number` and `detail` in TraceRecord. The events with (C)
/// have the command's cookie.
enum class TraceEvent : std::uint8_t {
  // The sending side; number: the message's number to that peer. 0 here and below: a part of a packet.
  kSendPosted = 0,   ///< detail: length_bytes
  kSendQueued,       ///< no room or an older send waits; detail: length_bytes
  kSendBuffered,     ///< (C) copied on the sending side; detail: length_bytes
  kSendShort,        ///< one slot, whole; detail: length_bytes
  kSendEager,        ///< several slots; detail: length_bytes
  kRtsSent,          ///< detail: length_bytes
  kOptimisticSent,   ///< RTS with the payload inside; detail: length_bytes
  kCtsArrived,       ///< detail: length the receiver wants
  kWritePosted,      ///< detail: length_bytes
  kWriteDone,        ///< detail: Status
  kBounceStarted,    ///< payload goes through slots; detail: length_bytes
  kAckArrived,       ///< the match of a synchronous or the acceptance of an optimistic send
  kSendDone,         ///< (C) detail: Status
  kCancelRequested,  ///< (C) number: 0, the send may be done already; detail: send_id
  kCancelDecided,    ///< (C) number: 0; detail: 1 cancelled, 0 not
  // The receiving side; number: the message's number from that peer.
  kMessageArrived,  ///< its envelope is here; detail: length_bytes
  kMatched,         ///< (C) with a posted receive, or by a later one; detail: the key, abridged (match_key.h)
  kUnexpected,      ///< no receive matched; detail: length_bytes
  kPayloadDropped,  ///< optimistic payload did not fit; detail: length_bytes
  kCtsSent,         ///< detail: length wanted
  kAckSent,
  kReceiveDone,  ///< (C) detail: Status
  // Neither; number is 0.
  kReceivePosted,     ///< (C) peer: self; detail: the key, abridged; 0 for what the receive ignores
  kReceiveCancelled,  ///< (C)
  kProbe,             ///< detail: 1 found
  kCreditRequested,   ///< the peer ran out; detail: bytes it gets
  kCreditSent,        ///< detail: bytes returned or granted
  kPacketSent,        ///< (C) detail: length_bytes
  kPacketArrived,     ///< detail: length_bytes
  kPeerConnected,
  kPeerFailed,        ///< detail: Status
  kSleep,             ///< the client's side: the process goes to sleep
  kWake,              ///< likewise
  kMemoryRegistered,  ///< the pin-down cache did not have it; detail: bytes of the region
  kMemoryRefused,     ///< the payload goes through slots; detail: length_bytes
  kMemoryEvicted,  ///< given up for room by the pin-down cache, seen by progress; peer: self; detail: regions
  kMemoryGone,     ///< its memory went away, seen by progress; peer: self; detail: regions
  // The client's side of the port. number of a command: for how many ns the client was in the call.
  kSendGiven,     ///< (C) outcome; detail: length_bytes
  kPacketGiven,   ///< (C) outcome; detail: length_bytes
  kReceiveGiven,  ///< (C) outcome; peer: self; detail: the key, abridged; 0 for what the receive ignores
  kMatchedReceiveGiven,  ///< (C) outcome; peer: self
  kCancelGiven,          ///< (C) outcome; of a send; detail: send_id
  kSendTaken,            ///< (C) peer: self; the event of a send or packet; detail: Status
  kReceiveTaken,         ///< (C) peer: self; detail: Status
  kCancelTaken,          ///< (C) peer: self; detail: 1 cancelled, 0 not
  kNewsTaken,            ///< any other event; detail: Event::Kind (engine.h)
  // Between a client and a processor with rings. peer: self.
  kCommandPublished,  ///< (C) the client's side; of the command before it; detail: its position in the ring
  kCommandTaken,  ///< (C) the engine's side: the processor executes it now; detail: its position in the ring
  kEventPublished,  ///< (C) the engine's side: the command's event goes into the ring; detail: Event::Kind
  kCount
};

/// Which side of the port recorded a trace.
enum class TraceSide : std::uint16_t { kEngine = 0, kClient = 1 };

/// Whether such an event is one of the client's side.
constexpr bool is_of_client(TraceEvent event) noexcept {
  return (event >= TraceEvent::kSendGiven && event <= TraceEvent::kCommandPublished) ||
         event == TraceEvent::kSleep || event == TraceEvent::kWake;
}

/// The constant's name without its k.
const char* trace_event_name(TraceEvent event) noexcept;

/// One event as it stands in the ring and in the file. Little-endian, fixed layout.
struct TraceRecord {
  std::uint64_t time_ns;     ///< CLOCK_MONOTONIC, or the simulation's clock.
  std::uint64_t number;      ///< Message number, see TraceEvent.
  std::uint64_t detail;      ///< See TraceEvent.
  std::uint64_t cookie;      ///< Of the command that the event belongs to. 0: none, or it has no cookie.
  std::uint32_t peer;        ///< PeerId of the other side.
  std::uint8_t event;        ///< TraceEvent.
  std::uint8_t outcome;      ///< Of a command of the client: Progressed (engine.h). Else 0.
  std::uint8_t reserved[2];  ///< 0.
};
static_assert(sizeof(TraceRecord) == 40);

inline constexpr char kTraceMagic[8] = {'C', 'H', '3', 'T', 'R', 'A', 'C', 'E'};
inline constexpr std::uint32_t kTraceVersion = 3;

/// What TraceRecord::time_ns counts.
enum class TraceClock : std::uint16_t {
  kMonotonic = 0,  ///< CLOCK_MONOTONIC: comparable between the processes of one node.
  kSimulated = 1,  ///< The simulation's clock: comparable between all processes.
};

/// One instant on two clocks.
struct TraceClockPair {
  std::uint64_t clock_ns;     ///< The clock of the records.
  std::uint64_t realtime_ns;  ///< CLOCK_REALTIME: since 1970, comparable between nodes as far as NTP goes.
};

/// The start of a trace file; `count` records follow, oldest first. Little-endian. docs/trace.md is the
/// reference.
struct TraceFileHeader {
  char magic[8];               ///< kTraceMagic
  std::uint32_t version;       ///< kTraceVersion
  std::uint32_t record_bytes;  ///< sizeof(TraceRecord)
  std::uint32_t self;          ///< PeerId of the process that wrote the file.
  std::uint32_t job_size;      ///< Processes in the job; self and every record's peer are below it.
  std::uint64_t node_id;       ///< Equal in two files: their monotonic clocks are the same clock.
  std::uint64_t count;         ///< Records in the file.
  std::uint64_t first_index;   ///< Events recorded before the first one kept, all of them lost.
  TraceClockPair at_start;     ///< When the trace was made.
  TraceClockPair at_write;     ///< When the file was written.
  std::uint32_t process_id;    ///< As getpid() says.
  std::uint16_t clock;         ///< TraceClock
  std::uint16_t side;          ///< TraceSide
  char host[40];               ///< Name of the node, cut if longer, always ends in NUL.
};
static_assert(sizeof(TraceFileHeader) == 128 && offsetof(TraceFileHeader, at_start) == 48 &&
              offsetof(TraceFileHeader, host) == 88);

class Trace {
 public:
  using Clock = std::uint64_t (*)() noexcept;

  /// Keeps the latest `capacity_events` (rounded up to a power of two, at least 1024). Throws std::bad_alloc.
  Trace(PeerId self, std::uint32_t job_size, std::size_t capacity_events, Clock clock = monotonic_ns,
        TraceSide side = TraceSide::kEngine);

  void record(TraceEvent event, PeerId peer, std::uint64_t number, std::uint64_t detail,
              const void* cookie = nullptr) noexcept {
    record_at(clock_(), event, peer, number, detail, cookie);
  }

  /// Records an event of an earlier time: now() before a call that had to succeed first. One with a process
  /// of another world is left out: a trace is of one job.
  /// REQUIRES: nothing was recorded since that time.
  void record_at(std::uint64_t time_ns, TraceEvent event, PeerId peer, std::uint64_t number,
                 std::uint64_t detail, const void* cookie = nullptr, std::uint8_t outcome = 0) noexcept {
    if (index_of(peer) >= job_size_) return;
    TraceRecord& slot = records_[next_ & mask_];
    slot = TraceRecord{time_ns,        number,
                       detail,         reinterpret_cast<std::uintptr_t>(cookie),
                       index_of(peer), static_cast<std::uint8_t>(event),
                       outcome,        {}};
    ++next_;
  }
  std::uint64_t now() const noexcept { return clock_(); }
  PeerId self() const noexcept { return self_; }

  /// Writes header and events to `path` (0600, replaced atomically; by convention `<prefix>.<rank>.ch3trace`,
  /// the client's `<prefix>.<rank>.client.ch3trace`). Changes nothing here, so it may be called again later.
  /// Blocks on the file system, allocates nothing. Returns 0 or errno; then `path` is as it was before.
  int write(const std::string& path) const noexcept;

  static std::uint64_t monotonic_ns() noexcept;

 private:
  struct Free {
    void operator()(TraceRecord* records) const noexcept { std::free(records); }
  };

  PeerId self_;
  std::uint32_t job_size_;
  std::uint64_t mask_;      ///< Capacity minus one; the capacity is a power of two.
  std::uint64_t next_ = 0;  ///< Events recorded since the start; the ring holds the last mask_ + 1.
  Clock clock_;
  TraceSide side_;
  TraceClockPair start_;
  std::unique_ptr<TraceRecord[], Free> records_;
};

}  // namespace ch3_offload
