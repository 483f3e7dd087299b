// The processor's half of a port: takes one client's commands from its ring, gives them to the engine's port,
// and puts the events into the client's ring.
//
// It never waits for the client. A completion that finds the ring full stays in the memory of its operation.
// A packet, or news of a peer, that finds it full stays in the engine, which then does not work until there
// is room: what it delivers next would have to be kept, too.
//
// A client that gives rubbish is refused: nothing more of it is taken. It harms only itself.
//
// Threads: one, the engine's. Allocation: its table of operations grows to the greatest number that was
// pending, a line for the user is copied, and what ScheduleRunner says.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/trace.h"
#include "nic/client_memory.h"
#include "nic/port.h"
#include "nic/port_memory.h"
#include "nic/schedule_runner.h"
#include "nic/user_key.h"

namespace ch3_offload {

/// What a client in another process may ask for, beside what its port does.
class ClientServices {
 public:
  /// Gives the client the rings of such a port, and serves it from now on. False: it may not have one, or has
  /// one, or there is no memory.
  virtual bool attach_targets() noexcept = 0;
  virtual void detach_targets() noexcept = 0;
  /// From now on, the client's engine reaches foreign peers, by providers that this key proves. Says so over
  /// the client's socket, or why not. False: they are not reached.
  virtual bool reach_foreign(const UserKey& key) noexcept = 0;

 protected:
  ~ClientServices() = default;
};

class RingServer {
 public:
  /// Receives and messages of a client in another process that its processor walks for a mask that is none of
  /// MPI's (matcher.h): it serves others meanwhile. A client that has more of them and gives such a mask is
  /// refused.
  static constexpr std::size_t kMostWalked = 1024;

  /// All outlive the server. `trace`: the engine's; null: there is none. `client`: the memory of a client in
  /// another process; null: it is in this one. `services`: for such a client; null: it has none.
  RingServer(Port& port, PortMemory& memory, Trace* trace, ClientMemory* client = nullptr,
             ClientServices* services = nullptr) noexcept;
  ~RingServer();
  RingServer(const RingServer&) = delete;
  RingServer& operator=(const RingServer&) = delete;

  /// Takes commands, lets the engine work, gives events. Returns how many things happened.
  std::size_t turn() noexcept;

  /// As Port's, with all that is kept here of the peer.
  bool forget_peer(PeerId peer) noexcept;

  /// Announces a sleep: from now on, a command, and room for events that wait, ring the processor's bell.
  /// Returns false if there is work. "The sleep rule".
  bool arm() noexcept;
  void disarm() noexcept;

  /// Brings the counters that the client sees up to date.
  void tell_counters() noexcept;
  /// Keeps a line for the client's user.
  void warn(LogScope scope, std::string_view line) noexcept;

  bool is_refused() const noexcept { return is_refused_; }
  /// Whether a command waits in the ring.
  bool has_commands() const noexcept { return commands_.header() != 0; }
  /// Whether an event waits for room in the ring, and the engine for the event.
  bool is_blocked() const noexcept { return holds_; }

 private:
  /// What came of a command.
  enum class Outcome : std::uint8_t {
    kTaken,
    kWalked,   ///< Taken, and the last of this turn: all receives and messages were looked at.
    kLater,    ///< There is no memory: nothing was done.
    kRubbish,  ///< No client of ours gives that.
  };
  /// What an operation does with its payloads.
  enum class Use : std::uint8_t { kSend, kReceive };
  /// What the client has named.
  struct Operation {
    std::uint32_t generation = 0;                 ///< 0: nothing, or over.
    std::uint32_t next = 0;                       ///< Index + 1 in the queue of those that wait for room.
    OperationId engines = kNoOperation;           ///< The engine's name, while it is pending there.
    OperationId cancels = kNoOperation;           ///< Of a cancellation: the send, or a copy's number.
    OperationId cancels_engines = kNoOperation;   ///< The engine's name for it.
    EventRecord event{};                          ///< While it waits for room.
    std::unique_ptr<ClientMemory::Part[]> parts;  ///< Of a client in another process. None after its end.

    std::uint32_t part_count = 0;
    std::size_t told_bytes = 0;  ///< Of what its part keeps: given by kReceiveBytes.

    /// Of a receive that has succeeded: what is not in the client's memory.
    std::span<const std::byte> kept(const EventRecord& its_event) const noexcept {
      const bool is_whole = its_event.status == Status::kOk || its_event.status == Status::kTruncated;
      return parts != nullptr && is_whole ? parts[0].kept() : std::span<const std::byte>();
    }
  };
  /// Of a client in another process: where the bytes of a peer's packet are to go.
  struct Place {
    bool is_wanted = false;  ///< kPacketOffer was published, and no answer has come.
    ClientMemory::Part part;
  };
  /// A small send whose peer cannot take it yet.
  struct Copy {
    OperationId engines = kNoOperation;
    InlineRecord command{};
    std::uint64_t age = 0;
    std::array<std::byte, kInlineBytes> bytes;
  };

  std::size_t take_commands() noexcept;
  void trace_taken(Cookie cookie) noexcept;
  Outcome execute(std::span<const std::byte> record) noexcept;
  Outcome take_text(const CommandRecord& command, std::span<const std::byte> more) noexcept;
  Outcome send_inline(const InlineRecord& command, std::span<const std::byte> payload) noexcept;
  Outcome packet_inline(const InlineRecord& command, std::span<const std::byte> bytes) noexcept;
  Outcome send(const CommandRecord& command) noexcept;
  Outcome packet(const CommandRecord& command, std::span<const std::byte> more) noexcept;
  Outcome receive(const CommandRecord& command, const MatchKey& ignore) noexcept;
  Outcome receive_matched(const CommandRecord& command) noexcept;
  Outcome cancel_send(const CommandRecord& command) noexcept;
  Outcome purge(const CommandRecord& command, std::span<const std::byte> more) noexcept;
  Outcome place_packet(const CommandRecord& command) noexcept;
  Outcome share(const CommandRecord& command) noexcept;
  Outcome attach_targets() noexcept;
  Outcome reach_foreign(const CommandRecord& command, std::span<const std::byte> more) noexcept;
  Outcome give_bytes(const CommandRecord& command, std::span<const std::byte> more) noexcept;
  Outcome schedule(const CommandRecord& command, std::span<const std::byte> more) noexcept;
  void answer(std::uint64_t answer, const Envelope& envelope = {}) noexcept;
  void answer_probe(const CommandRecord& command, const MatchKey& ignore) noexcept;
  bool cancel_receive(OperationId operation) noexcept;
  bool may_walk(const MatchKey& mask) const noexcept;

  Outcome begin(OperationId operation) noexcept;
  Outcome take(OperationId operation, std::span<Payload> payloads, Use use) noexcept;
  Operation* find(OperationId operation) noexcept;
  static void end(Operation& operation) noexcept;
  void forget_cancelled(OperationId operation, OperationId engines) noexcept;

  std::size_t give_events() noexcept;
  void complete(const Event& event) noexcept;
  void finish(OperationId operation, EventRecord event) noexcept;
  bool give_done(Operation& entry, const EventRecord& event) noexcept;
  bool give_waiting() noexcept;
  bool give_held() noexcept;
  bool give_offer(const EventRecord& offer) noexcept;
  std::size_t give_warnings(bool has_room) noexcept;
  std::size_t give_wanted(bool has_room) noexcept;
  std::size_t give_offer_of_copy(bool has_room) noexcept;
  std::size_t advance_schedules() noexcept;
  bool is_broken() const noexcept { return client_ != nullptr && client_->is_broken(); }
  bool publish(const EventRecord& event, std::span<const std::byte> more = {}) noexcept;
  void tell_arrivals() noexcept;
  void tell_words() noexcept;
  void copy_done(std::size_t index) noexcept;

  Port& port_;
  PortMemory& memory_;
  NicWords& words_;
  const CounterPage& counters_;
  decltype(RingCounters::processor)& ring_counters_;
  RingConsumer commands_;
  RingProducer ring_;
  Trace* const trace_;
  ClientMemory* const client_;
  ClientServices* const services_;
  std::uint64_t trace_taken_ = ~std::uint64_t{0};  ///< Position of the command that the trace has last.
  bool is_refused_ = false;

  std::map<std::uint32_t, Place> places_;  ///< By peer.
  std::vector<Operation> operations_;      ///< By the number in the client's name, less 1.
  std::uint32_t first_waiting_ = 0;        ///< A number. 0: none.
  std::uint32_t last_waiting_ = 0;
  ScheduleRunner schedules_;
  std::deque<std::pair<LogScope, std::string>> warnings_;
  Event held_{};  ///< Not a completion.
  bool holds_ = false;
  std::size_t held_given_bytes_ = 0;  ///< Of held_, if it is a packet.

  std::array<Copy, kInlineCommands> copies_;
  std::uint64_t taken_copies_ = 0;  ///< A bit for each.
  std::uint64_t copies_used_ = 0;
  static_assert(kInlineCommands == 64);
  std::uint64_t inline_done_ = 0;
  std::uint64_t inline_told_ = 0;
  std::uint64_t arrivals_told_ = 0;
  std::uint64_t idle_told_ = kNotIdle;
  std::uint64_t answered_ = 0;
  bool has_news_ = false;  ///< A client that sleeps has to wake up.
};

}  // namespace ch3_offload
