// The engine's inside: its state, and the functions that its source files share. Its objects are in
// operations.h and peer.h, their states in states.h.
//
// Included by src/engine/engine*.cc only. engine.cc: progress and probes; engine_events.cc: what the client
// is told; engine_peers.cc: introductions; engine_send.cc and engine_receive.cc: the two sides of a message;
// engine_rendezvous.cc: payloads that move after a CTS; engine_self.cc: messages of a process to itself;
// engine_packets.cc: the packet stream; engine_classes.cc: traffic classes; engine_flow.cc: queues that wait
// for room, byte credit;
// engine_cancel.cc: cancel, purge and failure; engine_target_requests.cc and engine_target_arrivals.cc: the
// two sides of an operation on target entries; engine_target_own.cc: where both are this process;
// engine_target_triggers.cc: triggered ones;
// engine_target_close.cc: the end of an interface.

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
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/intrusive_list.h"
#include "engine/matcher.h"
#include "engine/operations.h"
#include "engine/payload_blocks.h"
#include "engine/payload_layout.h"
#include "engine/peer.h"
#include "engine/pool.h"
#include "engine/target_operations.h"
#include "engine/trace.h"
#include "engine/wire.h"
#include "rdma/peer_table.h"

namespace ch3_offload {

struct Engine::State final : Sink {
  State(const EngineConfig& settings, std::span<Provider* const> fabrics);

  const EngineConfig config;
  std::vector<Provider*> providers;  ///< Those of foreign peers come last, from first_foreign_provider on.
  const std::size_t first_foreign_provider;
  /// Two for each of the others (caches_of()). Constant, for memory_gone() comes from any thread.
  const std::vector<std::unique_ptr<PinDownCache>> caches;
  const bool has_caches;                  ///< Any of these.
  const std::size_t most_buffered_sends;  ///< To one peer.
  Matcher matcher;
  PeerTable<Peer> peers;
  MissedPeers missed;
  Pool<SendOperation> sends;
  Pool<PacketOperation> packets;
  Pool<PlacedPart> placed_parts;
  Pool<ReceiveOperation> receives;
  Pool<IncomingMessage> messages;
  Pool<ControlMessage> controls;
  Pool<CancelRequest> cancels;
  PayloadBlocks blocks;  ///< For `messages`.
  IntrusiveList<Peer, &Peer::active_hook, true> active;
  IntrusiveList<Peer, &Peer::credit_hook> credit_due;
  IntrusiveList<Outgoing, &Outgoing::bulk_hook> self_copies;  ///< To oneself, in kCopying.
  std::size_t own_work = 0;  ///< Those, and the triggered operations that are due (TargetTriggers).
  /// What goes over the wire is named by running numbers, of which 32 bits are enough: one comes again only
  /// after 4 billion others, and never while it is in use. 32 bits of a pool's id would not last so long.
  static std::uint64_t number_of_outgoing(const Outgoing& one) noexcept { return one.number_on_wire; }
  static std::uint64_t number_of_landing(const Landing& landing) noexcept { return landing.number; }
  KeyedQueues<Outgoing, &Outgoing::wire_hook, &number_of_outgoing> on_wire;
  KeyedQueues<Landing, &Landing::wire_hook, &number_of_landing> landings;
  std::uint32_t last_outgoing = 0;
  std::uint32_t last_landing = 0;
  std::size_t live_landings = 0;  ///< With a number.
  std::uint32_t last_token = 0;
  /// Peers with a window; those looked at for a recall come last.
  IntrusiveList<Peer, &Peer::borrower_hook, true> borrowers;
  std::size_t optimistic_bytes = 0;  ///< Cost of the messages here that nobody had credit for.
  std::size_t buffered_bytes = 0;    ///< Sends finished by a copy, kBufferedSendBytes and the copy each.
  std::size_t writes_in_flight = 0;
  std::size_t receives_under_way = 0;      ///< In Peer::receives, of all peers.
  std::size_t introductions_due = 0;       ///< Peers that are kWanted or kAsked.
  std::size_t provider_turn = 0;           ///< The next provider to poll.
  std::size_t queues_waiting = 0;          ///< Peers of whose packet a part goes by rendezvous.
  std::uint64_t evictions_traced = 0;      ///< Of all pin-down caches together.
  std::uint64_t invalidations_traced = 0;  ///< Likewise.
  /// By channel: those whose class is not EngineConfig::traffic_class.
  std::unordered_map<std::uint64_t, TrafficClass> classes;
  bool refusal_told = false;       ///< The user knows that memory could not be registered.
  Outgoing* submitting = nullptr;  ///< Its call is on the stack: it finishes without an event.
  Status submitted_status = Status::kOk;

  // Events that wait to be taken (engine_events.cc).
  ch3_offload_events_t events{};
  FinishedQueue finished;  ///< Those that found no room in `events`, and all after them.
  IntrusiveList<Peer, &Peer::news_hook> peer_news;
  IntrusiveList<Peer, &Peer::news_hook> book_news;  ///< Of peers from EngineConfig::first_book_peer on.
  struct Warning {
    LogScope scope;
    std::string text;
  };
  std::deque<Warning> warnings;
  std::string warning_told;  ///< The text of the last kWarning.

  FinishedQueue program_ends;  ///< Operations of the processor's programs that have ended.

  // The second client: operations on target entries.
  std::array<std::unique_ptr<TargetInterface>, kTargetInterfaces + 1> interfaces;  ///< Null: not open.
  std::array<std::size_t, kTargetInterfaces> closing{};  ///< Operations that the close of each waits for.
  Pool<TargetOutgoing> target_operations;
  Pool<TargetArrival> target_arrivals;
  std::unordered_map<std::uint32_t, TargetRequest> own_locks;  ///< That this process awaits of itself.
  std::uint32_t own_lock_questions = 0;

  CounterPage counters;  ///< Whole pages: nothing else that is written lies there.

  /// What announces a slot is recorded before the slot is committed. Otherwise a receiver on the same clock
  /// could record the arrival earlier than the departure.
  void trace(TraceEvent event, PeerId peer, std::uint64_t number, std::uint64_t detail,
             Cookie cookie = nullptr) noexcept {
    if (config.trace != nullptr) [[unlikely]]
      record(event, peer, number, detail, cookie);
  }
  [[gnu::noinline, gnu::cold]] void record(TraceEvent event, PeerId peer, std::uint64_t number,
                                           std::uint64_t detail, Cookie cookie) noexcept {
    config.trace->record(event, peer, number, detail, cookie);
  }

  /// A step that a peer has caused. Returns false if its state does not allow it, and says so to the user.
  template <class Machine, class State, class Event>
  bool follow(const Peer& peer, const Machine& machine, State& state, Event event) noexcept {
    if (machine.step(state, event)) [[likely]]
      return true;
    warn_of_breach(peer, machine.name(), machine.name_of(state), machine.name_of(event));
    return false;
  }
  void warn_of_breach(const Peer& peer, const char* machine, const char* state, const char* event) noexcept;

  // engine_events.cc
  void warn(LogScope scope, std::string text) noexcept;
  void tell(Peer& peer) noexcept;  ///< There is news of it.
  bool has_events() const noexcept {
    return events.taken != events.written || !finished.empty() || events.packet != nullptr ||
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
  bool is_of_book(const Peer& peer) const noexcept {
    return index_of(peer.id) >= index_of(config.first_book_peer);
  }
  void take_news(Peer& peer, Event& event) noexcept;
  void remove_news(Peer& peer) noexcept;

  // engine_peers.cc
  /// Null: it is not known. Providers and the book name nobody whom forget_peer() has ended.
  Peer* find(PeerId id) const noexcept { return peers.at(id); }
  /// Null: no memory, or the number is of an ended generation: a command may come late.
  Peer* known(PeerId id) noexcept {
    Peer* const peer = peers.find(id);
    if (peer != nullptr) return peer;
    return peers.is_current(id) ? make_known(id) : nullptr;
  }
  /// As known(). Who cannot be known for want of memory will be failed.
  Peer* met(PeerId id) noexcept {
    Peer* const peer = peers.find(id);
    return peer != nullptr ? peer : meet(id);
  }
  Peer* make_known(PeerId id) noexcept;
  Peer* meet(PeerId id) noexcept;
  void know_missed() noexcept;  ///< Those for whom there is memory by now.
  /// `peer`: known(id). kOk, kPeerFailed or kNoMemory.
  Status may_send(PeerId id, const Peer* peer) const noexcept;
  /// The first of those by which a peer is reached, and how many they are.
  std::pair<std::size_t, std::size_t> providers_of(PeerId id) const noexcept {
    if (id >= config.first_foreign_peer)
      return {first_foreign_provider, providers.size() - first_foreign_provider};
    return {0, first_foreign_provider};
  }
  void want_connection(Peer& peer) noexcept;  ///< progress() will make one, unless that is under way.
  void seek(Peer& peer) noexcept;             ///< Connects to a kWanted peer, or asks for its card.
  Status connect_by_card(Peer& peer, std::string_view card);
  Status connect(Peer& peer, std::size_t provider_index, std::string_view address,
                 const std::optional<PeerNames>& names);
  void keep(Peer& peer, std::string_view card) noexcept;
  void tried_to_connect(Peer& peer, Status status) noexcept;
  void connected(Peer& peer) noexcept;  ///< What waited for the connection goes on.
  void ran_short(Peer& peer) noexcept;  ///< No memory or descriptors for a connection now.
  void adopt_lane(Peer& peer) noexcept;
  void gate(Peer& peer) noexcept;                 ///< Opens or closes its lane.
  void activate(Peer& peer) noexcept;             ///< Something waits to leave for it.
  void doom(Peer& peer, Status reason) noexcept;  ///< progress() will fail it.

  std::size_t do_own_work() noexcept;

  // engine_self.cc
  Progressed send_to_self(SendMode mode, const MatchKey& key, const Payload& payload, std::uint32_t send_id,
                          Cookie cookie, OperationId& operation, Status& status) noexcept;
  void take_from_self(IncomingMessage& message, const Payload& payload) noexcept;
  bool copies_in_parts(const IncomingMessage& message, const Payload& payload) const noexcept;
  void begin_self_copy(SendOperation& send, ReceiveOperation& receive) noexcept;
  void begin_turns(Outgoing& one) noexcept;
  std::size_t copy_to_self() noexcept;  ///< A part. REQUIRES: self_copies is not empty.
  std::size_t continue_self_copy(SendOperation& send) noexcept;  ///< 0: its bytes are not here.
  bool cancel_to_self(SendOperation* send, const MatchKey& key, std::uint32_t send_id) noexcept;

  // engine_send.cc
  bool send_at_once(Peer& peer, const MatchKey& key, const Payload& payload, std::uint32_t send_id) noexcept;
  /// The payload fits the byte credit, and is small enough not to be announced.
  bool may_send_eager(const Peer& peer, const Payload& payload) const noexcept {
    const std::size_t length = payload.length_bytes;
    return length <= config.eager_limit_bytes && wire::cost_of(length) <= peer.books->credit_bytes;
  }
  Status send_short(Peer& peer, unsigned flags, const MatchKey& key, const Payload& payload,
                    std::uint32_t send_id, std::uint64_t number) noexcept;
  SendOperation* make_send(Peer& peer, SendMode mode, const MatchKey& key, const Payload& payload,
                           std::uint32_t send_id, Cookie cookie, std::uint64_t number) noexcept;
  Status send_first(SendOperation& send) noexcept;
  Progressed submit(Outgoing& outgoing, Status& status) noexcept;
  Status transmit(Outgoing& outgoing) noexcept;  ///< The head of the queue; kOk: it has left.
  Status transmit_message(SendOperation& send) noexcept;
  bool may_have_credit_unread(const SendOperation& send) const noexcept;
  Status stream(SendOperation& send) noexcept;
  Status announce(SendOperation& send) noexcept;
  void keep_copy(SendOperation& send) noexcept;
  void finish_send(SendOperation& send, Status status) noexcept;
  void finish_outgoing(Outgoing& outgoing, Status status) noexcept;  ///< A message or a packet.
  bool over_for_caller(Outgoing& outgoing, Status status) noexcept;
  void enqueue(Outgoing& outgoing) noexcept;
  void dequeue(Outgoing& outgoing) noexcept;                   ///< It has left, or will not.
  void unlink_outgoing(Outgoing& outgoing) noexcept;           ///< Takes it out of everything.
  void release_send(SendOperation& send) noexcept;             ///< And frees it. No event.
  std::uint32_t number_outgoing(Outgoing& outgoing) noexcept;  ///< Its name on the wire.
  bool on_ack(Peer& peer, std::span<const std::byte> message) noexcept;

  // engine_rendezvous.cc
  bool on_cts(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_data(Peer& peer, std::span<const std::byte> message) noexcept;
  Status move(Outgoing& outgoing) noexcept;  ///< One write or one part.
  void moved(Outgoing& outgoing, Status status) noexcept;
  void bounce_instead(Outgoing& outgoing) noexcept;
  Landing& start_landing(Landing& landing, Peer& peer, const Payload& payload, std::size_t wanted_bytes,
                         std::uint32_t remote_operation) noexcept;
  static bool wants_write(Landing& landing) noexcept;
  static void stop_timing(Landing& landing) noexcept;
  void grant(Landing& landing) noexcept;  ///< Sends the CTS. REQUIRES: the peer is connected.
  void landed(Landing& landing) noexcept;
  void landed_for_no_receive(Landing& landing) noexcept;
  void end_landing(Landing& landing) noexcept;     ///< Nothing of it may come any more.
  void number_landing(Landing& landing) noexcept;  ///< Its name on the wire.

  /// Sends what it is to send, of whose payload outbound.payload is set, to a landing of the peer.
  void start_moving(Outgoing& outgoing, std::size_t wanted_bytes, std::uint32_t transfer, RemoteMemory remote,
                    bool is_writable) noexcept;
  void start_moving_target(TargetOutgoing& one, std::size_t wanted_bytes, std::uint32_t transfer,
                           RemoteMemory remote, bool is_writable) noexcept;

  // engine_target_requests.cc
  bool may_request(const TargetRequest& request) const noexcept;
  Status begin_request(PeerId id, const TargetRequest& request, const TargetHold& hold) noexcept;
  bool request_at_once(Peer& peer, const TargetRequest& request) noexcept;
  bool write_by_lane(Peer& peer, const TargetRequest& request, wire::Kind kind, unsigned flags) noexcept;
  bool write_slot(Peer& peer, const TargetRequest& request, wire::Kind kind, unsigned flags) noexcept;
  bool prepare_landing(TargetOutgoing& one) noexcept;
  Status transmit_target(TargetOutgoing& one) noexcept;
  Status transmit_request(TargetOutgoing& one) noexcept;
  bool on_target_cts(Peer& peer, TargetOutgoing& one, const wire::CtsHeader& header) noexcept;
  bool on_target_answer(Peer& peer, std::span<const std::byte> message) noexcept;
  bool take_ack(Peer& peer, TargetOutgoing& one) noexcept;
  bool take_reply(Peer& peer, TargetOutgoing& one, std::span<const std::byte> data) noexcept;
  void target_moved(TargetOutgoing& one, Status status) noexcept;
  void target_landed(TargetLanding& landing) noexcept;
  void fail_target(TargetOutgoing& one) noexcept;
  void end_request(TargetOutgoing& one) noexcept;  ///< With `answer`. Frees it.
  void release_target(TargetOutgoing& one) noexcept;
  void tell_refused(const TargetRequest& request) noexcept;
  void tell_send(const TargetRequest& request, TargetFailure failure) noexcept;
  void tell_answer(const TargetRequest& request, const wire::TargetAnswerHeader& answer) noexcept;

  // engine_target_triggers.cc
  std::size_t run_triggered() noexcept;
  void run(const TriggeredRequest& triggered) noexcept;

  // engine_target_close.cc
  void abandon(Peer& peer, std::uint8_t interface) noexcept;
  void abandon_locks(std::uint8_t interface) noexcept;
  void abandon_request(TargetOutgoing& one) noexcept;
  void abandon_put(TargetOutgoing& one) noexcept;
  void abandon_reply(TargetOutgoing& one) noexcept;
  void abandon_arrival(TargetArrival& arrival) noexcept;
  template <class Transfer>
  void await_close(Transfer& transfer, std::uint8_t interface) noexcept {
    transfer.closing = interface;
    ++closing[interface];
  }
  template <class Transfer>
  void end_close(Transfer& transfer) noexcept {
    if (transfer.closing != kNoInterface) --closing[std::exchange(transfer.closing, kNoInterface)];
  }
  bool on_target_abandon(Peer& peer, std::span<const std::byte> message) noexcept;

  // engine_target_locks.cc
  Status transmit_lock(TargetOutgoing& one) noexcept;
  Status lock_own(const TargetRequest& request) noexcept;
  bool on_target_lock(Peer& peer, std::span<const std::byte> message) noexcept;
  void settle_lock(std::uint8_t interface, std::uint32_t table, TargetFailure refusal) noexcept;
  void answer_lock(std::uint8_t interface, const TargetLock::Waiter& waiter, TargetFailure failure) noexcept;
  void forget_locks(Peer& peer) noexcept;

  // engine_target_own.cc
  Status request_to_self(const TargetRequest& request, const TargetHold& hold) noexcept;
  void move_own(const TargetRequest& request, const Payload& memory, std::size_t offset_bytes,
                std::size_t length_bytes) noexcept;
  void begin_own_move(const TargetRequest& request, const TargetHold& hold, const TargetHeader& header,
                      const TargetPlacement& placement) noexcept;
  void continue_own_move(TargetOutgoing& one) noexcept;
  void abandon_own_move(TargetOutgoing& one) noexcept;
  void run_own_atomic(const TargetRequest& request, const TargetHeader& header,
                      TargetPlacement placement) noexcept;
  void end_own(const TargetRequest& request, const TargetHeader& header, const TargetPlacement& placement,
               TargetFailure failure) noexcept;

  // engine_target_arrivals.cc
  void finish_placement(std::uint8_t interface, std::uint16_t table, const TargetPlacement& placement,
                        const TargetHeader& header, TargetFailure failure) noexcept;
  bool on_target_message(Peer& peer, const wire::CommonHeader& header,
                         std::span<const std::byte> message) noexcept;
  bool on_target_request(Peer& peer, std::span<const std::byte> message) noexcept;
  void await_data(Peer& peer, const wire::TargetRequestHeader& request, const TargetHeader& header,
                  const TargetPlacement& placement, TargetRuns runs) noexcept;
  void end_arrival(TargetArrival& arrival, TargetFailure failure) noexcept;
  void reply_to_get(Peer& peer, const wire::TargetRequestHeader& request, const TargetHeader& header,
                    const TargetPlacement& placement, TargetRuns runs) noexcept;
  void run_atomic(Peer& peer, const wire::TargetRequestHeader& request, const TargetHeader& header,
                  TargetPlacement placement, TargetRuns runs,
                  std::span<const std::byte> operand_and_data) noexcept;
  bool reply_fits(const Peer& peer, std::size_t data_bytes) const noexcept;
  Status write_reply(Peer& peer, const wire::TargetAnswerHeader& answer, const Payload& data) noexcept;
  bool reply_at_once(Peer& peer, const wire::TargetAnswerHeader& answer, const Payload& data) noexcept;
  TargetOutgoing* make_reply(Peer& peer, const wire::TargetRequestHeader& request) noexcept;
  void enqueue_reply(TargetOutgoing& one) noexcept;
  Status transmit_reply(TargetOutgoing& one) noexcept;
  void end_reply(TargetOutgoing& one, TargetFailure failure) noexcept;
  /// All of `answer` but its CommonHeader.
  void send_target_answer(Peer& peer, wire::Kind kind, const wire::TargetAnswerHeader& answer) noexcept;

  // engine_receive.cc
  bool on_eager_first(Peer& peer, std::span<const std::byte> message) noexcept;
  bool arrive(Peer& peer, const wire::EagerHeader& header, std::span<const std::byte> part,
              std::size_t total_bytes) noexcept;
  void keep_eager(Peer& peer, const wire::EagerHeader& header, std::span<const std::byte> part,
                  std::size_t total_bytes) noexcept;
  void attach(Peer& peer, ReceiveOperation& receive, const MatchKey& key, std::span<const std::byte> part,
              std::size_t total_bytes, std::uint64_t number) noexcept;
  bool on_eager_next(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_rts(Peer& peer, std::span<const std::byte> message) noexcept;
  /// No receive has taken it.
  void add_unexpected(IncomingMessage& message) noexcept {
    matcher.add(message);
    if (message.key.bits == kProgramKey.bits) [[unlikely]]
      tell_programs();
  }
  ReceiveOperation* take_posted(MatchKey key) noexcept {
    return static_cast<ReceiveOperation*>(matcher.take_posted(key));
  }
  IncomingMessage* keep(Peer& peer, const MatchKey& key, std::size_t total_bytes,
                        std::span<const std::byte> head) noexcept;
  IncomingMessage* make_with_block(std::size_t total_bytes) noexcept;
  void count_kept(std::size_t cost) noexcept {
    counters.unexpected_bytes += cost;
    counters.unexpected_bytes_peak = std::max(counters.unexpected_bytes_peak, counters.unexpected_bytes);
  }
  void drop_payload(IncomingMessage& message) noexcept;  ///< What of it is in a block.
  void deliver_part(IncomingMessage& message, std::span<const std::byte> part) noexcept;
  /// Takes a message out of the unexpected queue for a caller that receives it later.
  void take(IncomingMessage& message) noexcept {
    matcher.remove(message);
    message.taken = true;
    ++message.peer->taken_messages;
  }
  /// Takes a message out of the unexpected queue, or from whom take() gave it to.
  void unlink(IncomingMessage& message) noexcept {
    if (message.taken) {
      message.taken = false;
      --message.peer->taken_messages;
    } else {
      matcher.remove(message);
    }
  }
  void forget_message(IncomingMessage& message) noexcept;  ///< Frees it; its credit goes back.
  void forget_kept(IncomingMessage& message) noexcept;
  void consume_whole(IncomingMessage& message, const Payload& payload, Cookie cookie,
                     Envelope& envelope) noexcept;
  Progressed consume(IncomingMessage& message, const Payload& payload, Cookie cookie, OperationId* operation,
                     Envelope& envelope) noexcept;
  bool start_transfer(ReceiveOperation& receive, Peer& peer, std::uint32_t remote_operation,
                      const MatchKey& key, std::size_t total_bytes, std::uint64_t number) noexcept;
  /// The receive has matched a message of the peer, and its payload is yet to come.
  void await_payload(ReceiveOperation& receive, Peer& peer) noexcept {
    peer.receives.push_back(receive);
    ++receives_under_way;
  }
  void finish_receive(ReceiveOperation& receive, Status status) noexcept;
  void finish_whole(ReceiveOperation& receive, Peer& peer, const MatchKey& key,
                    std::span<const std::byte> payload) noexcept;

  // engine_packets.cc
  bool packet_at_once(Peer& peer, std::span<const std::byte> header, std::span<const Payload> data,
                      std::size_t total_bytes) noexcept;
  Status stream_packet(PacketOperation& packet) noexcept;
  Status offer_part(PacketOperation& packet, const Payload& part) noexcept;
  void resume_packet(PacketOperation& packet) noexcept;  ///< The offered part is there, or was refused.
  bool on_part_placed(PacketOperation& packet) noexcept;
  void finish_packet(PacketOperation& packet, Status status) noexcept;
  Delivery on_packet(Peer& peer, const wire::CommonHeader& header, std::span<const std::byte> bytes) noexcept;
  bool on_part_offered(Peer& peer, const wire::RtsHeader& header) noexcept;
  void finish_placing(Peer& peer, Status status) noexcept;

  // engine_memory.cc
  /// By Access; null: the provider needs none.
  std::array<PinDownCache*, 2> caches_of(std::size_t provider) const noexcept;
  static Registrar& registrar_of(const Peer& peer) noexcept {
    return peer.write_terms.registrar != nullptr ? *peer.write_terms.registrar : *peer.provider;
  }
  /// Whether it may be written, if it is registered: it is memory, or the peer's registrar may know it.
  static bool may_be_written(const Peer& peer, const Payload& payload) noexcept {
    return payload.layout == nullptr ||
           (payload.layout->kind == PayloadLayout::Kind::kFetched && peer.write_terms.registrar != nullptr);
  }
  /// Of the payload's beginning. False: refused, bounce. REQUIRES: may_be_written().
  bool hold_memory(Peer& peer, const Payload& payload, std::size_t length_bytes, Access access,
                   HeldMemory& memory) noexcept;
  void let_go(Peer& peer, HeldMemory& memory) noexcept;
  void sum_up_caches() noexcept;
  void trace_pin_down() noexcept;  ///< What the caches gave up or lost since the last time.

  // engine_flow.cc
  std::size_t flush(Peer& peer) noexcept;  ///< Sends what there is room for; how many slots.
  bool send_waiting_control(Peer& peer) noexcept;
  bool send_of(Peer& peer, Backlog& backlog) noexcept;
  /// So many bytes of it have left.
  static void spend(const Outgoing& outgoing, std::size_t length_bytes) noexcept {
    outgoing.peer->backlog_of(outgoing).left_bytes -= static_cast<std::int64_t>(length_bytes);
  }
  TrafficClass class_of(std::uint64_t bits) const noexcept;
  Status reserve(Peer& peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept;
  wire::CommonHeader common(Peer& peer, wire::Kind kind, unsigned flags) noexcept;
  template <class Header>
  void send_control(Peer& peer, wire::Kind kind, unsigned flags, Header header) noexcept;
  void send_ack(Peer& peer, std::uint32_t operation, std::uint64_t number) noexcept;
  /// False: the peer had no credit for that.
  static bool charge(ch3_offload_books_t& books, std::size_t payload_bytes) noexcept {
    // In this order nothing overflows, whatever length the peer claims.
    std::uint64_t& available = books.available_bytes;
    if (available < wire::kEnvelopeBytes || payload_bytes > available - wire::kEnvelopeBytes) return false;
    available -= wire::cost_of(payload_bytes);
    return true;
  }
  /// What was charged is free again.
  void repay(Peer& peer, std::size_t cost) noexcept {
    if (peer.state == PeerState::kFailed) [[unlikely]]
      return shrink_window(peer, cost);
    owe(peer, *peer.books, cost);
  }
  /// REQUIRES: it has not failed, and `books` are its own.
  void owe(Peer& peer, ch3_offload_books_t& books, std::size_t cost) noexcept {
    books.owed_bytes += cost;
    // A quarter of the window: early enough that a stream of eager messages does not stall, late enough
    // that most credit rides on messages that go that way anyhow.
    if (books.owed_bytes * 4 >= peer.window_bytes && !peer.credit_hook.linked()) [[unlikely]]
      let_credit_go(peer, cost);
  }
  void let_credit_go(Peer& peer, std::size_t cost) noexcept;  ///< A message of that cost has made it due.
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

  // engine_programs.cc
  void tell_programs() noexcept {
    if (config.program_news != nullptr) *config.program_news = true;
  }

  // engine_cancel.cc
  void ask_for_cancel(Peer& peer, const CancelRequest& request, const MatchKey& key,
                      std::uint32_t id) noexcept;
  void ask_for_late_cancel(const SendOperation& operation) noexcept;
  bool on_cancel(Peer& peer, std::span<const std::byte> message) noexcept;
  bool on_cancel_reply(Peer& peer, std::span<const std::byte> message) noexcept;
  void purge_message(IncomingMessage& message, Status reason) noexcept;
  void purge_messages_of(const Peer& peer) noexcept;
  void end(Peer& peer) noexcept;  ///< Fails it, now or after on_peer_down(). Not from a Sink's call.
  void fail(Peer& peer, Status reason) noexcept;

  // Sink
  Delivery dispatch(Peer& peer, std::span<const std::byte> message) noexcept;
  Delivery on_message(PeerId id, std::span<const std::byte> message) noexcept override;
  void on_write_arrived(PeerId id, Immediate immediate, std::size_t length_bytes) noexcept override;
  std::optional<PeerId> writer_of(Immediate immediate) const noexcept override;
  std::byte* on_write_shared(PeerId id, Immediate immediate, std::size_t length_bytes) noexcept override;
  bool is_landing(PeerId id, Immediate immediate, const std::byte* address,
                  std::size_t length_bytes) const noexcept override;
  void on_write_done(PeerId id, WorkId work, Status status) noexcept override;
  void on_peer_down(PeerId id, Status reason) noexcept override;
  bool awaits(PeerId id) const noexcept override;
};

/// As complete(), of a receive whose end is not in it yet. Inlined into the path of a short message.
[[gnu::always_inline]] inline void Engine::State::complete_receive(ReceiveOperation& receive, Status status,
                                                                   const MatchKey& key,
                                                                   std::size_t length_bytes) noexcept {
  if (Event* const event = free_slot()) [[likely]] {
    event->kind = Event::Kind::kReceiveDone;
    event->status = status;
    event->is_cancelled = false;
    event->cookie = receive.cookie;
    event->key = key;
    event->length_bytes = length_bytes;
    ++events.written;
    receives.give_back(receive);
    return;
  }
  // A short message comes here without a step.
  if (receive.state == ReceiveState::kPosted) kReceiveMachine.must_step(receive.state, ReceiveEvent::kDone);
  receive.status = status;
  receive.message_key = key;
  receive.total_bytes = length_bytes;
  complete(receive);
}

template <class Header>
void Engine::State::send_control(Peer& peer, wire::Kind kind, unsigned flags, Header header) noexcept {
  static_assert(sizeof(Header) <= wire::kLongestHeaderBytes);
  if (peer.doom != Status::kOk) return;
  std::span<std::byte> slot;
  if (peer.state != PeerState::kConnected) {
    want_connection(peer);
  } else if (peer.control.empty() && reserve(peer, sizeof header, slot) == Status::kOk) {
    const std::uint16_t client = header.common.client;
    header.common = common(peer, kind, flags);
    if constexpr (std::is_same_v<Header, wire::TargetAnswerHeader> ||
                  std::is_same_v<Header, wire::TargetAbandonHeader>)
      header.common.client = client;
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
