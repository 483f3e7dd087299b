// The engine: MPI matching and the message protocol as a deterministic, single-threaded state machine.
//
// Commands come in as calls (send, post_receive, probe, cancel, ...), the providers' events through
// progress(). Results are return values, or events that the client takes with next_event(): the engine never
// calls its client. The same code runs under every driver (src/nic); test/engine/simulation_test.cc runs a
// thousand of them in one address space. It knows nothing of MPICH: cookies and match keys are the client's.
//
// Threads: one at a time. Blocking: none. Allocation: none on the small-message path (eager or short,
// connected peer, posted receive or a small unexpected one); pools grow by slabs otherwise.
// Protocols: docs/wire-format.md. MPI sections: 3.5 (order), 3.8 (probe, cancel), 3.4 (modes).

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dme/pin_down_cache.h"
#include "engine/ch3_offload_events.h"
#include "engine/match_key.h"
#include "rdma/log_scope.h"
#include "rdma/provider.h"
#include "rdma/status.h"

namespace ch3_offload {

class Trace;

/// The caller's name for a request; returned unchanged, never interpreted.
using Cookie = void*;

/// Names an unfinished operation of one engine. kNoOperation: finished at once. Stale handles are
/// recognised (a generation is inside).
enum class OperationId : std::uint64_t {};
inline constexpr OperationId kNoOperation{0};

/// Names a message taken by matched_probe().
enum class MessageId : std::uint64_t {};

/// A run of bytes of an element.
struct Piece {
  std::ptrdiff_t offset_bytes;  ///< From the element's address.
  std::size_t length_bytes;     ///< Not 0.
};

struct TargetRuns;

/// How a payload that is not contiguous is read and written. Must stay as it is until the operation is done.
struct PayloadLayout {
  enum class Kind : std::uint32_t {
    /// Plain data: the payload is a row of equal elements, and each is a row of pieces. Payload::address is
    /// the first element's. The last element may be cut by the payload's length.
    kPieces,
    /// The client's functions move one byte range of the packed message at a time. A range begins where the
    /// one before it ended, or at 0. Payload::address is their context, which is one operation's and the
    /// engine's until the operation is over. They need the client's address space and may be called by any
    /// thread: the engine's, in progress() and in commands. They must not call the engine.
    kPacked,
    /// As kPacked, and a FetchedLayout: the bytes may have to come from elsewhere first.
    kFetched
  };
  Kind kind;
  // kPieces:
  std::uint32_t piece_count = 0;    ///< Not 0.
  const Piece* pieces = nullptr;    ///< Of one element, in the order of the message.
  std::size_t element_bytes = 0;    ///< Of the message: the sum of the pieces.
  std::ptrdiff_t extent_bytes = 0;  ///< From one element to the next.
  // kPacked:
  void (*pack)(const void* context, std::size_t offset_bytes, std::byte* destination,
               std::size_t length_bytes) noexcept = nullptr;
  void (*unpack)(void* context, std::size_t offset_bytes, const std::byte* source,
                 std::size_t length_bytes) noexcept = nullptr;
};

/// Of a payload that its reader may not be able to read yet: kFetched.
struct FetchedLayout : PayloadLayout {
  /// As pack(). False: the bytes were asked for, and nothing was copied: the engine tries again in a later
  /// progress(). pack() itself is for who cannot wait.
  bool (*try_pack)(const void* context, std::size_t offset_bytes, std::byte* destination,
                   std::size_t length_bytes) noexcept = nullptr;
  /// As pack() and unpack(), of the data in runs of which the first begins at `first_bytes`.
  void (*pack_runs)(const void* context, std::size_t first_bytes, const TargetRuns& runs,
                    std::size_t offset_bytes, std::byte* destination,
                    std::size_t length_bytes) noexcept = nullptr;
  void (*unpack_runs)(void* context, std::size_t first_bytes, const TargetRuns& runs,
                      std::size_t offset_bytes, const std::byte* source,
                      std::size_t length_bytes) noexcept = nullptr;
};

/// A send buffer, or a receive buffer of that capacity: contiguous memory when layout is null. Must stay
/// valid until the operation is done.
struct Payload {
  std::byte* address = nullptr;
  std::size_t length_bytes = 0;
  const PayloadLayout* layout = nullptr;
};

/// How urgent a message is. What finds no room in a provider waits by peer and class, and leaves in rounds:
/// in each, a class may send its kClassShareBytes. Of the classes that have some left, the first in this
/// order goes next. So a class that sends all the time delays a message of a more urgent one by what has
/// begun to leave (a slot, the slots of an eager message, a write), and of any other by what is left of the
/// round. Of a write, 64 KiB count: the device, or the kernel, shares what it has itself.
enum class TrafficClass : std::uint8_t { kLatency, kDefault, kBulk };
inline constexpr std::size_t kTrafficClasses = 3;
inline constexpr std::array<std::int64_t, kTrafficClasses> kClassShareBytes = {64 << 10, 32 << 10, 16 << 10};
constexpr std::size_t index_of(TrafficClass one) noexcept { return static_cast<std::size_t>(one); }

enum class SendMode : std::uint8_t { kStandard, kSynchronous, kReady };

/// What a finished receive, or a probe, says of its message.
struct Envelope {
  MatchKey key{};                ///< The message's own, with the always-ignored bits.
  std::size_t length_bytes = 0;  ///< Length of the message as sent, even when truncated.
  Status status = Status::kOk;   ///< kTruncated: capacity was smaller.
};

/// What a command that can finish at once came to.
enum class Progressed : std::uint8_t {
  kDone,     ///< Finished: no event will come.
  kPending,  ///< An event will come with the cookie.
  kFailed,   ///< Failed at once (status says why): no event will come.
};

/// The first so many bytes of a packet are never cut: they arrive in one event.
inline constexpr std::size_t kUncutPacketBytes = 120;

/// What the engine tells its client: plain data, so that it can cross to another thread or process.
struct Event {
  enum class Kind : std::uint8_t {
    kSendDone,      ///< cookie, status. A pending send or packet is finished. Its buffer is the client's
                    ///< again.
    kReceiveDone,   ///< cookie, status, key, length_bytes: as an Envelope. A pending receive is finished. If
                    ///< is_cancelled, purge() finished it, and key is the receive's own.
    kCancelDone,    ///< cookie, is_cancelled. A pending cancel_send is decided. If it is cancelled, its
                    ///< kSendDone will not come.
    kPacket,        ///< peer, bytes, length_bytes. The next bytes of the peer's packet stream, valid until
                    ///< progress().
    kPacketOffer,   ///< peer, length_bytes. So many bytes of the packet stream wait at the peer:
                    ///< place_packet() must follow.
    kPacketPlaced,  ///< peer, length_bytes. The next bytes of that stream are where place_packet() said.
    kPeerFailed,    ///< peer, status. The peer is dead or its connection broke. Its operations were finished
                    ///< before. Posted receives are the client's to judge (purge). Once for each peer.
    kCardWanted,    ///< peer. Something is to be sent to it, and it has not connected to this process:
                    ///< introduce() must follow.
    kLaneMade,      ///< peer. From now on it has a lane(), if the driver has lanes.
    kWarning,       ///< bytes, length_bytes, scope: a line for the user, valid until the next next_event().
    kWindowDone,    ///< cookie, status. Not the engine's: Channel tells it of an operation on a window.
    kScheduleDone,  ///< cookie, status: the first failure. Not the engine's: the processor tells it of a
                    ///< schedule (nic/schedule.h).
  };
  Kind kind{};
  Status status = Status::kOk;
  bool is_cancelled = false;
  LogScope scope = LogScope::kProcess;
  PeerId peer{};
  Cookie cookie = nullptr;
  MatchKey key{};
  std::size_t length_bytes = 0;
  const std::byte* bytes = nullptr;
};

/// A set of keys: those that `key` matches as a receive.
struct MatchPattern {
  MatchKey key{};
  MatchKey ignore{};
};

/// What purge() removes.
enum class PurgeScope : std::uint8_t {
  kAll,              ///< Posted receives and unexpected messages.
  kReceivesFromOne,  ///< Posted receives that name a source.
  kReceivesFromAny,  ///< Posted receives from any source.
};

/// The numbers that an engine may give what is written to its memory: immediates of those writes.
struct LandingNumbers {
  std::uint32_t base = 0;  ///< In bits outside of `mask`.
  std::uint32_t mask = UINT32_MAX;
};

struct EngineConfig {
  PeerId self{};
  /// About how many processes may send to one receiver: no limit, see send_buffer_bytes.
  std::uint32_t senders = 1;
  /// Longest payload sent without asking (eager). Bytes.
  std::size_t eager_limit_bytes = 64 * 1024;
  /// For unexpected messages of all peers together, payload and envelopes; lent out as byte credits. Bytes.
  std::size_t unexpected_budget_bytes = 64 * 1024 * 1024;
  /// Eager-sized standard sends kept on the sending side while they wait for credit, operation and copy of
  /// the payload, so that the send is done for its caller. Bytes; 0 turns it off. All `senders` together keep
  /// at most as many for one receiver as unexpected_budget_bytes pays envelopes for (and at least 64 each).
  std::size_t send_buffer_bytes = 64 * 1024 * 1024;
  /// A longer message or put to oneself, or get from oneself, is copied in parts, one in each progress().
  /// A longer atomic operation on oneself fails. Whoever runs several engines sets it, so that none of them
  /// holds the others up. Bytes.
  std::size_t self_copy_bytes = SIZE_MAX;
  /// What never takes part in matching (MPICH's error bits inside the tag).
  MatchKey always_ignored{};
  /// Which bits of a key name the message's channel. The messages of a channel keep their order. Those of
  /// different channels do so if their classes are the same. 0: there is one channel.
  std::uint64_t channel_bits = 0;
  /// Of packets, and of the channels of which classify() has said nothing.
  TrafficClass traffic_class = TrafficClass::kDefault;
  /// Peers from this number on are the second client's: what is told of them comes by next_book_event().
  PeerId first_book_peer{UINT32_MAX};
  /// Peers from this number on are reached by the providers that add_providers() has added, and by no others.
  PeerId first_foreign_peer{UINT32_MAX};
  /// Memory that is kept registered from one transfer to the next, with each provider where that pays.
  PinDownConfig pin_down;
  /// Other engines whose writes arrive over the same provider have others.
  LandingNumbers landing_numbers;
  /// Where events are recorded; null: nowhere. Not owned.
  Trace* trace = nullptr;
  /// Becomes true when a message with kProgramKey waits, or an operation of a program has ended. Null: there
  /// are no programs. Not owned.
  bool* program_news = nullptr;
  /// Whether memory_gone() is called for memory of the processor's own, so that payloads of programs may stay
  /// registered. If not, they go through slots.
  bool program_memory_is_watched = true;
  /// What a program may use, and all of them together of the time (modules/module.h).
  std::size_t program_memory_bytes = std::size_t{1} << 20;
  std::uint64_t program_instructions = 200'000;
  unsigned program_time_percent = 50;
};

/// What the engine counts since the start, and levels. Plain numbers, no order between them.
struct Counters {
  std::uint64_t sent_short = 0, sent_eager = 0, sent_rendezvous = 0, sent_optimistic = 0;
  std::uint64_t sent_buffered = 0;  ///< Finished by a sender-side copy.
  std::uint64_t sent_to_self = 0;
  std::uint64_t bulk_written = 0;  ///< Rendezvous moved by write-with-immediate.
  std::uint64_t bulk_bounced = 0;  ///< Rendezvous moved through slots.
  std::uint64_t received_expected = 0, received_unexpected = 0;
  std::uint64_t dropped_payloads = 0;  ///< Optimistic payloads that did not fit the budget.
  std::uint64_t credits_requested = 0, credit_messages = 0;
  std::uint64_t packets_sent = 0, packet_bytes_received = 0;
  std::uint64_t packet_bytes_placed = 0;  ///< Of those received: by rendezvous, to where they belong.
  std::uint64_t cancelled_sends = 0, failed_peers = 0;
  std::uint64_t posted_depth = 0, unexpected_depth = 0;  ///< Levels: now in the queues.
  /// What unexpected messages cost of the budget, envelopes included: now, and most ever.
  std::uint64_t unexpected_bytes = 0, unexpected_bytes_peak = 0;
  std::uint64_t unexpected_announced = 0;  ///< Level: those whose payload the sender keeps. No cost.
  std::uint64_t pending_sends = 0;         ///< Level: unfinished sends and packets, buffered ones too.
  std::uint64_t lent_bytes = 0;            ///< Byte credits lent to peers now.
  std::uint64_t connected_peers = 0;
  std::uint64_t cards_wanted = 0;  ///< Peers whose card the client was asked for.
  // The pin-down caches, all together (PinDownStatistics).
  std::uint64_t pin_hits = 0, pin_misses = 0, pin_evictions = 0, pin_invalidations = 0, pin_refused = 0;
  std::uint64_t pinned_bytes = 0, pinned_regions = 0;  ///< Levels.
};

/// All counters, in whole pages of their own, without a pointer: a driver can put memory there that it shares
/// with its client. Whoever runs the engine is the one writer (a client that sends through a lane, too: it
/// counts sent_short and packets_sent). Each number is a word that others may read at any time.
inline constexpr std::size_t kCounterPageBytes = 4096;
struct alignas(kCounterPageBytes) CounterPage : Counters {
  ProviderCounters providers;  ///< Of all providers together.
};
static_assert(sizeof(CounterPage) == kCounterPageBytes);

class TargetInterface;
struct TargetBoard;
struct TargetInterfaceConfig;
struct TargetRequest;
struct TargetTrigger;
/// Keeps memory that a request of a client in another process names, as this process reaches it. Null: the
/// client keeps it.
using TargetHold = std::shared_ptr<const void>;

class Engine {
 public:
  /// `providers` in order of preference; the first that reaches a peer carries it. Not owned, must
  /// outlive the engine.
  Engine(const EngineConfig& config, std::span<Provider* const> providers);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Those of peers from EngineConfig::first_foreign_peer on, with which memory is registered anew each time.
  /// Not owned, must outlive the engine. Throws std::bad_alloc; then nothing has changed.
  void add_providers(std::span<Provider* const> providers);

  /// What other processes must know to send here: "v=<wire version>;<address>;...", the addresses being the
  /// providers' in order of preference. Printable ASCII without spaces.
  std::string card() const;

  /// Takes the next event. Returns false if there is none. Completions come first, in the order in which the
  /// operations finished; then news of peers, then the bytes of a packet, then warnings.
  bool next_event(Event& event) noexcept;
  /// Takes the next news of a peer from EngineConfig::first_book_peer on: kCardWanted, kLaneMade,
  /// kPeerFailed. Returns false if there is none. It may wait for as long as its client likes.
  bool next_book_event(Event& event) noexcept;
  /// Whether next_event() would return true.
  bool has_events() const noexcept;
  PeerId self() const noexcept;
  /// Where completions wait. A client may take them from there instead, and calls next_event() when the ring
  /// is empty and `others` is not 0.
  ch3_offload_events_t& events() noexcept;

  /// Answers kCardWanted, or comes before it; then the card is kept until something is to be sent to the
  /// peer. `card`: what the peer published (its Engine::card()), with the names of PeerNames where the two
  /// have no common numbers (card_with_names()). Empty: the card cannot be had, and the peer fails. What
  /// waits for the peer leaves, or is finished with the reason.
  void introduce(PeerId peer, std::string_view card) noexcept;

  /// Sends a message. `send_id` (not 0 if cancellable) names it to cancel_send after it is done. kDone:
  /// the buffer is free. kPending: kSendDone will come. kFailed: `status` (kPeerFailed, kNoMemory).
  Progressed send(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                  std::uint32_t send_id, Cookie cookie, OperationId& operation, Status& status) noexcept;

  /// The peer's lane (ch3_offload_lane.h). nullptr: there is none, or none yet. Valid as long as the
  /// provider.
  ch3_offload_lane_t* lane(PeerId peer) noexcept;
  /// Must follow CH3_OFFLOAD_LANE_SENT_TO_SLEEPER.
  void nudge(PeerId peer) noexcept;

  /// Appends to the packet stream to `peer`: header and data are one uninterrupted run of bytes, in order
  /// with the messages of its class (EngineConfig::traffic_class). Contiguous data beyond the eager limit,
  /// and long enough for a write to pay, goes by rendezvous if the receiver knows its place; what is behind
  /// it waits for that. kDone: all was copied. kPending: `header` was copied, `data` is the engine's until
  /// kSendDone.
  Progressed send_packet(PeerId peer, std::span<const std::byte> header, std::span<const Payload> data,
                         Cookie cookie, Status& status) noexcept;

  /// Answers kPacketOffer: where the bytes belong. `place` is contiguous memory that stays valid until
  /// kPacketPlaced or kPeerFailed. If it is shorter than the offer, the rest is offered again or comes by
  /// kPacket. If it is empty or too short for a write to pay, all bytes come by kPacket, and it is not
  /// touched.
  void place_packet(PeerId peer, const Payload& place) noexcept;

  /// Receives the oldest matching message. kDone: `envelope` is filled, payload delivered.
  /// kPending: kReceiveDone will come.
  Progressed post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload, Cookie cookie,
                          OperationId& operation, Envelope& envelope) noexcept;

  /// Receives the oldest matching message if it is here whole. Returns false if it is not, or if there is
  /// none: post_receive() then says more.
  bool receive_now(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                   Envelope& envelope) noexcept;

  /// Whether a message waits that such a receive would take; fills `envelope`. Does not poll.
  bool probe(const MatchKey& key, const MatchKey& ignore, Envelope& envelope) noexcept;

  /// As probe, and takes the message out of matching: receive_matched() must follow.
  bool matched_probe(const MatchKey& key, const MatchKey& ignore, MessageId& message,
                     Envelope& envelope) noexcept;

  /// Receives a message taken by matched_probe. As post_receive.
  Progressed receive_matched(MessageId message, const Payload& payload, Cookie cookie,
                             Envelope& envelope) noexcept;

  /// Takes a posted receive back. True: it had not matched, and no event will come. False: it has matched,
  /// and its event has come or will.
  bool cancel_receive(OperationId operation) noexcept;

  /// Tries to take a send back before it matches: `operation` if its event has not come, else the message
  /// (peer, key, send_id). kDone: cancelled. kFailed: not cancelled. kPending: kCancelDone will come.
  Progressed cancel_send(OperationId operation, PeerId peer, const MatchKey& key, std::uint32_t send_id,
                         Cookie cookie) noexcept;

  /// From now on the messages of a channel are of that class. Those of its messages that wait to leave come
  /// along, so their order does not change. `channel`: a key's bits; those that name no channel do not count.
  /// Has no effect for want of memory, or beyond 65,536 channels of other classes than the config's.
  void classify(std::uint64_t channel, TrafficClass traffic_class) noexcept;

  /// Removes what matches one of `doomed` and none of `spared`. Receives are finished with `reason`
  /// (kReceiveDone). The senders of unexpected messages are told that these were received; payload that still
  /// travels is dropped as it arrives. A pending send to oneself fails with `reason`.
  void purge(PurgeScope scope, std::span<const MatchPattern> doomed, std::span<const MatchPattern> spared,
             Status reason) noexcept;

  /// Opens a Portals network interface (src/engine/targets/target_interface.h), of which there may be five:
  /// `number` is below kTargetInterfaces. It is the client's to use, between two calls of the engine. `board`
  /// is where it is told what was counted, and outlives the interface. Null: no memory, or it is open or not
  /// closed yet.
  TargetInterface* open_targets(unsigned number, const TargetInterfaceConfig& config,
                                TargetBoard& board) noexcept;

  /// Closes an interface: it is not the client's any more, and peers find no table there. Operations that
  /// have not ended are forgotten. Until targets_are_closed(), a transfer that is under way may use the
  /// client's memory: one that the provider carries out, or that a peer was granted. The board is free at
  /// once.
  void close_targets(unsigned number) noexcept;
  bool targets_are_closed(unsigned number) const noexcept;

  /// Starts an operation on target entries of `peer` (src/engine/target_request.h). The memory of its origins
  /// is the engine's until their events: send and ack, or reply. kOk: these will come, or have come.
  /// kUnsupported: there is no such interface or atomic operation, or the lengths do not fit. kPeerFailed,
  /// kNoMemory. Of these no event comes.
  ///
  /// An atomic operation and its operand must fit one slot of the peer. Else it fails as undeliverable.
  /// `hold`: of the memory of its origins, until nothing uses it any more.
  Status request(PeerId peer, const TargetRequest& request, const TargetHold& hold = {}) noexcept;
  /// The same when a counting event of the request's interface reaches a threshold; now if it has. What
  /// request() would refuse then fails as undeliverable: its events come. kOk. kUnsupported: as request(), or
  /// there is no such counting event. kNoMemory: as many wait as may.
  Status trigger(const TargetTrigger& when, PeerId peer, const TargetRequest& request,
                 const TargetHold& hold = {}) noexcept;
  /// Tells that a request failed as undeliverable which request() has refused, if there is such an interface.
  void tell_refused(const TargetRequest& request) noexcept;
  /// Begins what is due: after a change of a counting event by the client. Returns how many. A bounded
  /// number; progress() goes on with the others.
  std::size_t run_triggered() noexcept;

  // Programs of the processor (src/modules): they send and receive as the client does, but hear of what has
  // ended by next_program_end().

  struct ProgramEnd {
    Cookie cookie = nullptr;
    Status status = Status::kOk;
  };
  /// As send() of a message without a name. kPending: its end is told.
  Progressed send_for_program(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                              Cookie cookie, Status& status) noexcept;
  /// Takes the oldest message with `key`, which is one of programs. Returns false if there is none. `sender`:
  /// the process at the other end of its connection. receive_for_program() must follow.
  bool next_program_message(const MatchKey& key, MessageId& message, PeerId& sender,
                            std::size_t& length_bytes) noexcept;
  /// As receive_matched(). kPending: its end is told.
  Progressed receive_for_program(MessageId message, const Payload& payload, Cookie cookie,
                                 Status& status) noexcept;
  bool next_program_end(ProgramEnd& end) noexcept;
  /// Tells the client's user a line.
  void warn(LogScope scope, std::string text) noexcept;

  /// Polls the providers and moves what can move. Returns how many things happened. REQUIRES: all events were
  /// taken: events() is empty and has no packet, and `others` is 0 or next_event() has returned false.
  std::size_t progress() noexcept;

  /// Whether nothing that has to leave this process waits to leave: no queued message, packet, control
  /// message or payload. And whether no payload is awaited that a receive has matched. Messages that wait for
  /// a receive or an answer do not count, nor do receives that wait for a message; packets that do count.
  /// Credit does not count: nobody needs it of a process that ends.
  bool idle() const noexcept;
  /// Whether there is nothing that progress() could send now, credit included.
  bool at_rest() const noexcept;

  /// Declares `peer` dead (the process manager said so). As if its connection had broken: what had arrived
  /// from it is delivered first, by progress(); one without a connection fails at once. Has no effect on
  /// oneself.
  void fail_peer(PeerId peer) noexcept;

  /// Frees what was kept of a peer of the book that has failed, also by the providers. The caller never names
  /// this PeerId again; operations that still do are kPeerFailed. Its next_generation() may be another
  /// process. Returns false if something still uses it: call it again later.
  bool forget_peer(PeerId peer) noexcept;

  /// `peer` said goodbye: the end of its connection is not a failure. Unfinished operations with it
  /// still are.
  void close_peer(PeerId peer) noexcept;

  /// Whether registrations outlive their transfer, so that memory_gone() must be called.
  bool keeps_memory() const noexcept;

  /// That memory is about to leave the address space, or to get other pages. From any thread at any time, in
  /// the midst of an allocator too: neither allocates nor waits for anybody who does.
  void memory_gone(const void* address, std::size_t length_bytes) noexcept;

  /// From now on each transfer registers its own memory: nobody can call memory_gone() in time.
  void stop_keeping_memory() noexcept;

  /// Brings up to date what is not counted as it happens: posted_depth, unexpected_depth, pending_sends, and
  /// the numbers of the pin-down caches and of the providers. The page stays where it is.
  const CounterPage& counters() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ch3_offload
