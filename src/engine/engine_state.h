// The engine's inside: its objects and the functions that its source files share.
//
// Included by src/engine/engine*.cc only. engine.cc: progress and probes; engine_events.cc: what the client
// is told; engine_peers.cc: introductions; engine_send.cc and engine_receive.cc: the two sides of a message;
// engine_self.cc: messages of a process to itself; engine_packets.cc: the packet stream; engine_flow.cc:
// queues that wait for room, byte credit; engine_cancel.cc: cancel, purge and failure.
//
// An operation that has finished stays in its pool until the client takes its event, which it holds.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/intrusive_list.h"
#include "engine/matcher.h"
#include "engine/payload_blocks.h"
#include "engine/pool.h"
#include "engine/trace.h"
#include "engine/wire.h"

namespace ch3_offload {

struct IncomingMessage;
struct Peer;

/// What all operations that finish with an event have in common. The operation holds its event, so no event is
/// lost for want of memory.
struct Operation {
  enum class Kind : std::uint8_t { kSend, kReceive, kCancel };
  explicit Operation(Kind its_kind) noexcept : kind(its_kind) {}

  const Kind kind;
  Status status = Status::kOk;  ///< Once it has finished.
  bool is_cancelled = false;    ///< Likewise.
  Cookie cookie = nullptr;
  Operation* next_finished = nullptr;  ///< State::finished.
};

enum class SendState : std::uint8_t {
  kQueued,         ///< In Peer::queue, nothing sent.
  kStreaming,      ///< In Peer::queue, its slots go out one after another (eager or packet).
  kAwaitingMatch,  ///< Sent (RTS, optimistic or synchronous eager); CTS, ACK or a cancel reply is due. A packet: CTS or ACK.
                   ///< To oneself: in State::matcher, as a message.
  kWriteReady,     ///< In Peer::bulk: CTS is here, the write is to be posted.
  kWriting,        ///< The provider reads the payload; on_write_done is due.
  kBouncing,       ///< In Peer::bulk: CTS is here, the payload goes out through slots.
  kFinished,       ///< In State::finished.
};

/// Registered memory of one operation, from hold_memory() to let_go().
struct HeldMemory {
  bool held = false;
  MemoryRegion region{};   ///< While held.
  Region* kept = nullptr;  ///< The cache's region, if it came from one.
};

/// What a packet that could not leave at once keeps.
struct PacketParts {
  std::vector<std::byte> header;
  std::vector<Payload> data;
  std::size_t total_bytes = 0;  ///< Header and data.
  std::size_t sent_bytes = 0;   ///< Of those: what has left.
  /// What comes before goes through slots: the receiver has no place for it.
  std::size_t refused_until = 0;
};

struct SendOperation : Operation {
  SendOperation() noexcept : Operation(Kind::kSend) {}

  std::uint64_t pool_id = 0;
  SendState state = SendState::kQueued;
  SendMode mode = SendMode::kStandard;
  bool detached = false;      ///< Done for its caller: `copy` holds the payload, no event comes.
  bool cancelling = false;    ///< A cancel request is under way; while kStreaming, it goes when all has left.
  bool acknowledged = false;  ///< The ACK came early: while streaming, cancelling or writing.
  bool announced = false;     ///< An RTS has left: a CTS may come.
  bool optimistic = false;    ///< The payload went with the RTS: an ACK may come, too.
  std::uint32_t send_id = 0;
  std::uint32_t number_on_wire = 0;  ///< The receiver's name for it; 0: it has none yet (number_send()).
  std::uint32_t transfer = 0;        ///< The receiver's id, from the CTS.
  Peer* peer = nullptr;
  MatchKey key{};
  Payload payload;               ///< Of a packet: the part that is announced.
  std::uint64_t number = 0;      ///< For the trace. 0: a packet.
  std::size_t sent_bytes = 0;    ///< Of the payload: streamed or bounced so far.
  std::size_t wanted_bytes = 0;  ///< What the CTS asked for.
  RemoteMemory remote{};
  bool writable = false;  ///< The CTS allows a write to `remote`.
  HeldMemory memory;      ///< The payload, to be read by the device.
  std::unique_ptr<std::byte[]> copy;     ///< Sender-side buffer, see EngineConfig::send_buffer_bytes.
  std::unique_ptr<PacketParts> packet;   ///< Not null: a packet, not a message.
  IncomingMessage* to_self = nullptr;    ///< The message as this process will receive it.
  ListHook<SendOperation> queue_hook{};  ///< Peer::queue.
  ListHook<SendOperation> bulk_hook{};   ///< Peer::bulk.
  ListHook<SendOperation> peer_hook{};   ///< Peer::sends.
  KeyedHook<SendOperation> wire_hook{};  ///< State::sends_on_wire, with a number.
};

enum class ReceiveState : std::uint8_t {
  kPosted,        ///< In the matcher.
  kStreaming,     ///< Attached to an eager message whose parts arrive.
  kAwaitingPeer,  ///< Matched an RTS; the CTS is due as soon as there is a connection with the sender.
  kAwaitingData,  ///< CTS sent; a write or bounced parts are due.
  kFinished,      ///< In State::finished.
};

struct ReceiveOperation : PostedEntry, Operation {
  ReceiveOperation() noexcept : Operation(Kind::kReceive) {}

  std::uint64_t pool_id = 0;
  Payload payload;
  // From the match on:
  Peer* peer = nullptr;
  MatchKey message_key{};
  std::uint64_t number = 0;  ///< For the trace.
  std::size_t total_bytes = 0;
  // Of a message that does not come in one slot:
  ReceiveState state = ReceiveState::kPosted;
  bool written = false;                ///< A part was written: no other may be bounced.
  bool packet_part = false;            ///< Peer::placing: no message.
  HeldMemory memory;                   ///< The payload; held: the peer may write to it.
  std::size_t received_bytes = 0;      ///< Parts so far, written or bounced.
  std::size_t wanted_bytes = 0;        ///< min(total, capacity).
  std::uint32_t remote_operation = 0;  ///< The sender's.
  std::uint32_t transfer = 0;          ///< The sender's name for it; 0: it has none (number_transfer()).
  ListHook<ReceiveOperation> peer_hook{};  ///< Peer::receives, from the match to the end.
  KeyedHook<ReceiveOperation> wire_hook{};  ///< State::transfers, with a number.

  /// For Pool. What is not here is set before it is read.
  void recycle() noexcept {
    is_cancelled = false;
    state = ReceiveState::kPosted;
    written = packet_part = false;
    received_bytes = 0;
    transfer = 0;
  }
};

enum class MessageState : std::uint8_t {
  kWhole,      ///< The payload is here.
  kStreaming,  ///< Parts of an eager message arrive; Peer::incoming points here.
  kRts,        ///< The envelope is here, the payload is the sender's.
  kToSelf,     ///< The same of a message from this process, whose send is `send_to_self`.
  kBroken,     ///< Its sender died before the payload was whole.
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
  bool discard = false;         ///< kStreaming and purged: its parts are dropped.
  bool taken = false;           ///< By matched_probe(): no longer in the matcher.
  bool has_block = false;       ///< The payload is in `block`, not in `inline_payload`.
  std::uint32_t operation = 0;  ///< The sender's, when it has one (RTS, synchronous).
  std::uint32_t send_id = 0;    ///< The sender's name for kCancel, 0: none.
  Peer* peer = nullptr;
  std::uint64_t number = 0;     ///< For the trace.
  std::size_t total_bytes = 0;
  union {
    std::array<std::byte, kInlineBytes> inline_payload;
    std::byte* block;  ///< Of State::blocks, for a payload longer than kInlineBytes. Owned.
    SendOperation* send_to_self;  ///< kToSelf.
  };

  /// For Pool. What is not here is set before it is read.
  void recycle() noexcept {
    if (has_block) PayloadBlocks::release(block);
    state = MessageState::kWhole;
    synchronous = optimistic = discard = taken = has_block = false;
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
  std::uint32_t token = 0;  ///< The peer's name for it.
  std::uint64_t operation = 0;  ///< The pending send's id in State::sends, 0: it was done.
  ListHook<CancelRequest> hook{};
};

enum class PeerState : std::uint8_t {
  kKnown,      ///< It has spoken to us; we have nothing to send.
  kAsked,      ///< Something waits to be sent, and introduce() is due.
  kConnected,  ///< We can send.
  kFailed,
};

/// A part of a packet whose sender awaits a CTS.
struct PartOffer {
  std::size_t length_bytes = 0;  ///< 0: there is none.
  std::uint32_t operation = 0;   ///< The sender's.
};

struct Peer {
  explicit Peer(PeerId peer) noexcept : id(peer) {}

  const PeerId id;
  PeerState state = PeerState::kKnown;
  bool closed = false;         ///< It said goodbye.
  bool write_refused = false;  ///< The provider cannot write to it.
  // What the client has not been told yet (State::peer_news).
  bool wants_card = false;       ///< kCardWanted.
  bool has_offer = false;        ///< kPacketOffer: `offer`.
  bool has_failed = false;       ///< kPeerFailed.
  std::size_t placed_bytes = 0;  ///< kPacketPlaced; 0: nothing was placed.

  bool recalling = false;      ///< A credit recall is under way.
  Status doom = Status::kOk;   ///< Not kOk: why it failed, or why it will. Nothing is sent to it any more.
  Provider* provider = nullptr;
  Endpoint* endpoint = nullptr;           ///< That provider's. Both are set from kConnected on.
  std::array<PinDownCache*, 2> caches{};  ///< Of that provider, by Access, one or two; null: it needs none.
  std::size_t max_slot_bytes = 0;

  // Sending.
  ch3_offload_lane_t own_lane{};  ///< The books until the provider has a lane, or if it never does.
  ch3_offload_lane_t* lane = &own_lane;
  std::size_t buffered_sends = 0;  ///< Of `sends`: those that a copy has finished.
  /// Messages and packets, in order. A packet stays at the head while a part of it goes by rendezvous.
  IntrusiveList<SendOperation, &SendOperation::queue_hook> queue;
  IntrusiveList<SendOperation, &SendOperation::bulk_hook> bulk;  ///< Rendezvous payload, any order.

  /// The head of the queue, if anything of it may leave now.
  SendOperation* next() const noexcept {
    SendOperation* const head = queue.front();
    return head == nullptr || head->state <= SendState::kStreaming ? head : nullptr;
  }
  IntrusiveList<ControlMessage, &ControlMessage::hook> control;
  IntrusiveList<SendOperation, &SendOperation::peer_hook> sends;  ///< Unfinished.
  IntrusiveList<CancelRequest, &CancelRequest::hook> cancels;

  // Receiving. Invariant: window = available + owed (both in `lane`) + charges of messages held here.
  std::uint64_t messages_received = 0;
  std::uint64_t received_at_look = 0;  ///< messages_received when reclaim_for() looked last.
  std::size_t window_bytes = 0;     ///< Lent to the peer.
  IncomingMessage* incoming = nullptr;  ///< The eager message whose parts arrive.
  std::size_t incoming_bytes = 0;       ///< Of its payload: what has arrived.
  ReceiveOperation* incoming_receive = nullptr;  ///< The receive that matched it, if one did.
  ReceiveOperation* placing = nullptr;  ///< The part of a packet that arrives by rendezvous.
  PartOffer offer;                      ///< Such a part that place_packet() has not answered yet.
  IntrusiveList<ReceiveOperation, &ReceiveOperation::peer_hook> receives;

  ListHook<Peer> active_hook{};  ///< State::active: something waits to leave.
  ListHook<Peer> credit_hook{};  ///< State::credit_due: enough is owed for a message of its own.
  ListHook<Peer> borrower_hook{};  ///< State::borrowers: window_bytes is not 0.
  ListHook<Peer> news_hook{};      ///< State::peer_news.
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

/// The kind of an OperationId, above the id in the pool.
inline constexpr std::uint64_t kSendOperation = std::uint64_t{1} << Pool<SendOperation>::kIdBits;
inline constexpr std::uint64_t kReceiveOperation = std::uint64_t{2} << Pool<SendOperation>::kIdBits;

struct Engine::State final : Sink {
  State(const EngineConfig& settings, std::span<Provider* const> fabrics);

  const EngineConfig config;
  const std::vector<Provider*> providers;
  /// Two for each provider (caches_of()). Constant, for memory_gone() comes from any thread.
  const std::vector<std::unique_ptr<PinDownCache>> caches;
  const std::size_t most_buffered_sends;  ///< To one peer.
  Counters counters;
  Matcher matcher;
  std::vector<std::unique_ptr<Peer>> peers;  ///< By PeerId; null: never spoken to.
  /// By PeerId: what it sent, or its end, was lost, because there was no memory for its Peer.
  std::vector<bool> missed;
  std::size_t missed_count = 0;
  Pool<SendOperation> sends;
  Pool<ReceiveOperation> receives;
  Pool<IncomingMessage> messages;
  Pool<ControlMessage> controls;
  Pool<CancelRequest> cancels;
  PayloadBlocks blocks;  ///< For `messages`.
  IntrusiveList<Peer, &Peer::active_hook> active;
  IntrusiveList<Peer, &Peer::credit_hook> credit_due;
  /// What goes over the wire is named by running numbers, of which 32 bits are enough: one comes again only
  /// after 4 billion others, and never while it is in use. 32 bits of a pool's id would not last so long.
  static std::uint64_t number_of_send(const SendOperation& send) noexcept { return send.number_on_wire; }
  static std::uint64_t number_of_transfer(const ReceiveOperation& receive) noexcept {
    return receive.transfer;
  }
  KeyedQueues<SendOperation, &SendOperation::wire_hook, &number_of_send> sends_on_wire;
  KeyedQueues<ReceiveOperation, &ReceiveOperation::wire_hook, &number_of_transfer> transfers;
  std::uint32_t last_send_number = 0;
  std::uint32_t last_transfer = 0;
  std::uint32_t last_token = 0;
  /// Peers with a window; those looked at for a recall come last.
  IntrusiveList<Peer, &Peer::borrower_hook> borrowers;
  std::size_t lent_bytes = 0;            ///< Sum of all windows.
  std::size_t optimistic_bytes = 0;      ///< Cost of the messages here that nobody had credit for.
  std::size_t buffered_bytes = 0;        ///< Sends finished by a copy, kBufferedSendBytes and the copy each.
  std::size_t writes_in_flight = 0;
  std::size_t introductions_due = 0;     ///< Peers that are kAsked.
  std::size_t provider_turn = 0;         ///< The next provider to poll.
  std::size_t queues_waiting = 0;        ///< Peers of whose packet a part goes by rendezvous.
  std::uint64_t evictions_traced = 0;      ///< Of all pin-down caches together.
  std::uint64_t invalidations_traced = 0;  ///< Likewise.
  bool refusal_told = false;         ///< The user knows that memory could not be registered.
  SendOperation* submitting = nullptr;  ///< The send whose call is on the stack: it finishes without an event.
  Status submitted_status = Status::kOk;

  // Events that wait to be taken (engine_events.cc).
  ch3_offload_events_t events{};
  FinishedQueue finished;  ///< Those that found no room in `events`, and all after them.
  IntrusiveList<Peer, &Peer::news_hook> peer_news;
  /// Of a packet: polling has stopped there, and the bytes are in the provider's slot. Empty: there is none.
  std::span<const std::byte> packet_bytes;
  Peer* packet_peer = nullptr;
  std::deque<std::string> warnings;
  std::string warning_told;       ///< The text of the last kWarning.

  /// What announces a slot is recorded before the slot is committed. Otherwise a receiver on the same clock
  /// could record the arrival earlier than the departure.
  void trace(TraceEvent event, PeerId peer, std::uint64_t number, std::uint64_t detail) noexcept {
    if (config.trace != nullptr) config.trace->record(event, peer, number, detail);
  }

  // engine_events.cc
  void warn(std::string text) noexcept;
  void tell(Peer& peer) noexcept;  ///< There is news of it.
  bool has_events() const noexcept {
    return events.taken != events.written || !finished.empty() || !packet_bytes.empty() ||
           !peer_news.empty() || !warnings.empty();
  }
  Event* free_slot() noexcept {
    const bool has_room = events.written - events.taken < CH3_OFFLOAD_EVENT_SLOTS && finished.empty();
    return has_room ? reinterpret_cast<Event*>(&events.slots[events.written % CH3_OFFLOAD_EVENT_SLOTS])
                    : nullptr;
  }
  void complete(Operation& operation) noexcept;  ///< It is in no queue. The last thing done with it.
  void complete_receive(ReceiveOperation& receive, Status status, const MatchKey& key,
                        std::size_t length_bytes) noexcept;
  void fill(Event& event, Operation& operation) noexcept;
  void take_news(Event& event) noexcept;

  // engine_peers.cc
  Peer* find(PeerId id) const noexcept {  ///< Null: it is not known.
    return index_of(id) < peers.size() ? peers[index_of(id)].get() : nullptr;
  }
  Peer* known(PeerId id) noexcept {  ///< Null: no such process in the job, or no memory.
    Peer* const peer = find(id);
    return peer != nullptr ? peer : make_known(id);
  }
  /// As known(). Who cannot be known for want of memory will be failed.
  Peer* met(PeerId id) noexcept {
    Peer* const peer = find(id);
    return peer != nullptr ? peer : meet(id);
  }
  Peer* make_known(PeerId id) noexcept;
  Peer* meet(PeerId id) noexcept;
  /// `peer`: known(id). kOk, kPeerFailed, kUnreachable (no such process in the job) or kNoMemory.
  Status may_send(const Peer* peer, PeerId id) const noexcept;
  void want_connection(Peer& peer) noexcept;     ///< Asks for its card, unless that was done.
  Status make_connection(Peer& peer, std::string_view card);
  void connected(Peer& peer) noexcept;           ///< What waited for the connection goes on.
  void ran_short(Peer& peer) noexcept;           ///< No memory or descriptors for a connection now.
  void adopt_lane(Peer& peer) noexcept;
  void gate(Peer& peer) noexcept;                ///< Opens or closes its lane.
  void activate(Peer& peer) noexcept;            ///< Something waits to leave for it.
  void doom(Peer& peer, Status reason) noexcept;  ///< progress() will fail it.

  // engine_self.cc
  Progressed send_to_self(SendMode mode, const MatchKey& key, const Payload& payload, std::uint32_t send_id,
                          Cookie cookie, OperationId& operation, Status& status) noexcept;
  void take_from_self(IncomingMessage& message, const Payload& payload) noexcept;
  bool cancel_to_self(SendOperation* send, const MatchKey& key, std::uint32_t send_id) noexcept;

  // engine_send.cc
  bool send_at_once(Peer& peer, const MatchKey& key, const Payload& payload, std::uint32_t send_id) noexcept;
  /// The payload fits the byte credit, and is small enough not to be announced.
  bool may_send_eager(const Peer& peer, const Payload& payload) const noexcept {
    const std::size_t length = payload.length_bytes;
    return length <= config.eager_limit_bytes && wire::cost_of(length) <= peer.lane->credit_bytes;
  }
  Status send_short(Peer& peer, unsigned flags, const MatchKey& key, const Payload& payload,
                    std::uint32_t send_id, std::uint64_t number) noexcept;
  SendOperation* make_send(Peer& peer, SendMode mode, const MatchKey& key, const Payload& payload,
                           std::uint32_t send_id, Cookie cookie, std::uint64_t number) noexcept;
  Status send_first(SendOperation& operation) noexcept;
  Progressed submit(SendOperation& operation, OperationId& id, Status& status) noexcept;
  Status transmit(SendOperation& operation) noexcept;   ///< The head of the queue; kOk: it has left.
  Status stream(SendOperation& operation) noexcept;
  Status announce(SendOperation& operation) noexcept;
  Status bulk_step(SendOperation& operation) noexcept;  ///< One write or one part.
  void bounce_instead(SendOperation& operation) noexcept;
  void keep_copy(SendOperation& operation) noexcept;
  void finish_send(SendOperation& operation, Status status) noexcept;
  void finish_bulk(SendOperation& operation, Status status) noexcept;  ///< All of `wanted_bytes` has left, or failed.
  void dequeue(SendOperation& operation) noexcept;
  void unlink_send(SendOperation& operation) noexcept;   ///< Takes it out of everything.
  void release_send(SendOperation& operation) noexcept;  ///< And frees it. No event.
  std::uint32_t number_send(SendOperation& operation) noexcept;  ///< Its name on the wire.
  bool on_cts(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_ack(Peer& peer, std::span<const std::byte> message) noexcept;

  // engine_receive.cc
  bool on_eager_first(Peer& peer, std::span<const std::byte> message) noexcept;
  bool arrive(Peer& peer, const wire::EagerHeader& header, std::span<const std::byte> part,
              std::size_t total_bytes) noexcept;
  void attach(Peer& peer, ReceiveOperation& receive, const MatchKey& key, std::span<const std::byte> part,
              std::size_t total_bytes, std::uint64_t number) noexcept;
  bool on_eager_next(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_rts(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_data(Peer& peer, std::span<const std::byte> message) noexcept;
  ReceiveOperation* take_posted(const MatchKey& key) noexcept {
    return static_cast<ReceiveOperation*>(matcher.take_posted(key));
  }
  IncomingMessage* keep(Peer& peer, const MatchKey& key, std::size_t total_bytes,
                        std::span<const std::byte> head) noexcept;
  void count_kept(std::size_t cost) noexcept;
  void drop_payload(IncomingMessage& message) noexcept;  ///< What of it is in a block.
  void deliver_part(IncomingMessage& message, std::span<const std::byte> part) noexcept;
  void unlink(IncomingMessage& message) noexcept;
  void forget_message(IncomingMessage& message) noexcept;  ///< Frees it; its credit goes back.
  void consume_whole(IncomingMessage& message, const Payload& payload, Envelope& envelope) noexcept;
  Progressed consume(IncomingMessage& message, const Payload& payload, Cookie cookie,
                     OperationId* operation, Envelope& envelope) noexcept;
  bool start_transfer(ReceiveOperation& receive, Peer& peer, std::uint32_t remote_operation,
                      const MatchKey& key, std::size_t total_bytes, std::uint64_t number) noexcept;
  void grant(ReceiveOperation& receive) noexcept;  ///< Sends the CTS. REQUIRES: the peer is connected.
  void finish_receive(ReceiveOperation& receive, Status status) noexcept;
  void unlink_receive(ReceiveOperation& receive) noexcept;  ///< Takes a matched one out of everything.
  std::uint32_t number_transfer(ReceiveOperation& receive) noexcept;  ///< Its name on the wire.
  void finish_whole(ReceiveOperation& receive, Peer& peer, const MatchKey& key,
                    std::span<const std::byte> payload, std::uint64_t number) noexcept;

  // engine_packets.cc
  bool packet_at_once(Peer& peer, std::span<const std::byte> header,
                      std::span<const Payload> data, std::size_t total_bytes) noexcept;
  Status stream_packet(SendOperation& operation) noexcept;
  Status offer_part(SendOperation& operation, const Payload& part) noexcept;
  void resume_packet(SendOperation& operation) noexcept;  ///< The offered part is there, or was refused.
  bool on_part_placed(SendOperation& operation) noexcept;
  bool on_packet(Peer& peer, std::span<const std::byte> message, Delivery& delivery) noexcept;
  bool on_part_offered(Peer& peer, const wire::RtsHeader& header) noexcept;
  void finish_placing(ReceiveOperation& receive, Status status) noexcept;

  // engine_memory.cc
  std::array<PinDownCache*, 2> caches_of(std::size_t provider) const noexcept;  ///< By Access.
  bool hold_memory(Peer& peer, std::byte* address, std::size_t length_bytes, Access access,
                   HeldMemory& memory) noexcept;  ///< False: refused, bounce.
  void let_go(Peer& peer, HeldMemory& memory) noexcept;
  void add_statistics(Counters& counters) const noexcept;
  void trace_pin_down() noexcept;  ///< What the caches gave up or lost since the last time.

  // engine_flow.cc
  std::size_t flush(Peer& peer) noexcept;  ///< Sends what there is room for; how many slots.
  bool send_waiting_control(Peer& peer) noexcept;
  Status reserve(Peer& peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept;
  wire::CommonHeader common(Peer& peer, wire::Kind kind, unsigned flags) noexcept;
  template <class Header>
  void send_control(Peer& peer, wire::Kind kind, unsigned flags, Header header) noexcept;
  void send_ack(Peer& peer, std::uint32_t operation, std::uint64_t number) noexcept;
  /// False: the peer had no credit for that.
  bool charge(Peer& peer, std::size_t payload_bytes) noexcept {
    // In this order nothing overflows, whatever length the peer claims.
    std::uint64_t& available = peer.lane->available_bytes;
    if (available < wire::kEnvelopeBytes || payload_bytes > available - wire::kEnvelopeBytes) return false;
    available -= wire::cost_of(payload_bytes);
    return true;
  }
  /// What was charged is free again.
  void repay(Peer& peer, std::size_t cost) noexcept {
    if (peer.state == PeerState::kFailed) [[unlikely]]
      return shrink_window(peer, cost);
    peer.lane->owed_bytes += cost;
    // A quarter of the window: early enough that a stream of eager messages does not stall, late enough
    // that most credit rides on messages that go that way anyhow.
    if (!peer.credit_hook.linked && peer.lane->owed_bytes * 4 >= peer.window_bytes)
      credit_due.push_back(peer);
  }
  void grant_more(Peer& peer, std::uint64_t payload_bytes) noexcept;  ///< It had no credit for that.
  void reclaim_for(const Peer& asking) noexcept;  ///< Takes credit back from those who do not use it.
  void reclaim_from(Peer& peer) noexcept;
  void grow_window(Peer& peer, std::size_t bytes) noexcept;
  void shrink_window(Peer& peer, std::size_t bytes) noexcept;
  void send_due_credit() noexcept;
  std::size_t free_budget() const noexcept;
  bool room_for(std::size_t cost) const noexcept { return cost <= free_budget(); }
  bool on_recall(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_return(Peer& peer, std::span<const std::byte> message) noexcept;

  // engine_cancel.cc
  void ask_for_cancel(Peer& peer, const CancelRequest& request, const MatchKey& key,
                      std::uint32_t id) noexcept;
  void ask_for_late_cancel(const SendOperation& operation) noexcept;
  bool on_cancel(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_cancel_reply(Peer& peer, std::span<const std::byte> message) noexcept;
  void purge_message(IncomingMessage& message, Status reason) noexcept;
  void end(Peer& peer) noexcept;  ///< Fails it, now or after on_peer_down(). Not from a Sink's call.
  void fail(Peer& peer, Status reason) noexcept;

  // Sink
  Delivery on_message(PeerId id, std::span<const std::byte> message) noexcept override;
  void on_write_arrived(PeerId id, Immediate immediate, std::size_t length_bytes) noexcept override;
  void on_write_done(PeerId id, WorkId work, Status status) noexcept override;
  void on_peer_down(PeerId id, Status reason) noexcept override;
};

/// Copies payload[offset, offset + out.size()) out; the caller keeps it in bounds.
inline void gather(const Payload& payload, std::size_t offset, std::span<std::byte> out) noexcept {
  if (out.empty()) return;
  if (payload.layout == nullptr) {
    std::memcpy(out.data(), payload.address + offset, out.size());
  } else {
    payload.layout->pack(payload.address, offset, out.data(), out.size());
  }
}

/// Copies `part` into the payload at `offset`; what is beyond its capacity is dropped.
inline void scatter(const Payload& payload, std::size_t offset,
                    std::span<const std::byte> part) noexcept {
  if (offset >= payload.length_bytes) return;
  const std::size_t length = std::min(part.size(), payload.length_bytes - offset);
  if (payload.layout != nullptr) [[unlikely]] {
    if (length > 0) payload.layout->unpack(payload.address, offset, part.data(), length);
  } else if (length == 8) {  // Not worth a call.
    std::memcpy(payload.address + offset, part.data(), 8);
  } else if (length > 0) {
    std::memcpy(payload.address + offset, part.data(), length);
  }
}

template <class Header>
void Engine::State::send_control(Peer& peer, wire::Kind kind, unsigned flags, Header header) noexcept {
  static_assert(sizeof(Header) <= wire::kLongestHeaderBytes);
  if (peer.doom != Status::kOk) return;
  std::span<std::byte> slot;
  if (peer.state != PeerState::kConnected) {
    want_connection(peer);
  } else if (peer.control.empty() && reserve(peer, sizeof header, slot) == Status::kOk) {
    header.common = common(peer, kind, flags);
    wire::put(slot, header);
    peer.provider->commit(*peer.endpoint, sizeof header);
    return;
  }
  ControlMessage* const waiting = controls.take();
  if (waiting == nullptr) return doom(peer, Status::kNoMemory);
  header.common.kind = kind;
  header.common.flags = static_cast<std::uint8_t>(flags);
  wire::put(waiting->bytes, header);
  waiting->length_bytes = sizeof header;
  peer.control.push_back(*waiting);
  if (peer.state == PeerState::kConnected) activate(peer);
}

}  // namespace ch3_offload
