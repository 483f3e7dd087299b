// The client's half of a port whose engine runs elsewhere: commands go into a ring, events come from one.
//
// A send of at most kInlineBytes is copied into its command and is done for the client, as long as fewer
// than kInlineCommands are on their way. Any other send, and each receive, is pending. A probe, a matched
// probe and a cancellation wait for their answer. The cancellation of a send that has left is pending then. A
// probe that found nothing is not asked again before a message has come or another command was given.
//
// The processor always takes commands, so whoever finds the ring full waits for it, and not for a peer.
//
// Threads: as Port. fork: a child has no port.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/trace.h"
#include "nic/nicd_protocol.h"
#include "nic/port.h"
#include "nic/port_memory.h"
#include "nic/processor_wait.h"
#include "nic/shared_arena.h"
#include "nic/staged_schedule.h"

namespace ch3_offload {

/// Which payloads are copied within the client before a command names them, or after its event.
enum class Staging : std::uint8_t {
  kNone,         ///< None: the processor is in the client's address space.
  kPacked,       ///< Those of kind kPacked: only the client can call their functions.
  kSmallPieces,  ///< Also those, up to 64 MiB, whose pieces are so small that the kernel takes longer.
  kAll,          ///< All but contiguous memory that is shared: the kernel copies no other.
};
// What finds no room to be staged is named as it is. Then, and where the kernel refuses a copy unexpectedly,
// the processor asks for the bytes of a send when its turn comes (kBytesWanted), and gives those of a receive
// by events (kReceiveBytes). Bytes of a send that still find no room go with their command (kGiveBytes).

class RingPort : public Port, protected SharesMemory {
 public:
  Progressed send(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                  std::uint32_t send_id, Cookie cookie, OperationId& operation,
                  Status& status) noexcept final;
  ch3_offload_lane_t* lane(PeerId) noexcept final { return nullptr; }
  void nudge(PeerId) noexcept final {}
  Progressed send_packet(PeerId peer, std::span<const std::byte> header, std::span<const Payload> data,
                         Cookie cookie, Status& status) noexcept final;
  Progressed post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload, Cookie cookie,
                          OperationId& operation, Envelope& envelope) noexcept final;
  bool receive_now(const MatchKey&, const MatchKey&, const Payload&, Envelope&) noexcept final {
    return false;
  }
  bool probe(const MatchKey& key, const MatchKey& ignore, Envelope& envelope) noexcept final;
  bool matched_probe(const MatchKey& key, const MatchKey& ignore, MessageId& message,
                     Envelope& envelope) noexcept final;
  std::uint64_t arrivals() const noexcept final { return words_.arrivals.load(std::memory_order_acquire); }
  Progressed receive_matched(MessageId message, const Payload& payload, Cookie cookie,
                             Envelope& envelope) noexcept final;
  bool cancel_receive(OperationId operation) noexcept final;
  Progressed cancel_send(OperationId operation, PeerId peer, const MatchKey& key, std::uint32_t send_id,
                         Cookie cookie) noexcept final;
  bool schedule(std::span<const ScheduleStep> steps, const ScheduleMarks& marks,
                Cookie cookie) noexcept final;
  std::size_t most_schedule_steps() const noexcept final { return kMostScheduleSteps; }
  void classify(std::uint64_t channel, TrafficClass traffic_class) noexcept final;
  /// REQUIRES: at most 2,000 patterns.
  void purge(PurgeScope scope, std::span<const MatchPattern> doomed, std::span<const MatchPattern> spared,
             Status reason) noexcept final;
  void introduce(PeerId peer, std::string_view card) noexcept final;
  void place_packet(PeerId peer, const Payload& place) noexcept final;
  void fail_peer(PeerId peer) noexcept final { of_peer(CommandKind::kFailPeer, peer); }
  void close_peer(PeerId peer) noexcept final { of_peer(CommandKind::kClosePeer, peer); }

  std::size_t progress() noexcept override;
  bool next_event(Event& event) noexcept final;
  ch3_offload_events_t& events() noexcept final { return events_; }

  bool idle() const noexcept final;
  bool at_rest() const noexcept final;
  bool may_have_work() noexcept final { return !at_rest(); }
  bool arm() noexcept override;
  void disarm() noexcept final;
  std::span<const int> descriptors() const noexcept override { return {&bell_, 1}; }

  void stop_keeping_memory() noexcept final;
  /// The numbers of a short time ago; exact while the processor has nothing to do.
  const CounterPage& counters() const noexcept override { return memory_.counters(); }
  const RingCounters& ring_counters() const noexcept final { return counters_; }
  int write_trace(const std::string& path) noexcept final;
  CommandStamp last_command() const noexcept final { return last_command_; }
  SharedArena* arena() noexcept final { return staging_ == Staging::kNone ? nullptr : &arena_; }

 protected:
  /// `memory` outlives the port. `wait`: how it waits for its processor. `trace`: the processor's, whose
  /// clock stamps the commands; null: they are not stamped. A payload that is staged is packed into other
  /// memory when its send is given, and unpacked from there when the event of its receive is taken. `self`:
  /// this process, as it numbers itself: what it sends to itself, and may be short, is staged, so that such
  /// a send never waits for its receive.
  RingPort(PortMemory& memory, const WaitPolicy& wait, const Trace* trace, Staging staging = Staging::kNone,
           PeerId self = kNobody) noexcept;
  static constexpr PeerId kNobody{UINT32_MAX};

  ~RingPort() override { arena_.detach(); }

  /// Gives the processor a file, which kShare will name. False: it did not get it.
  virtual bool send_share(const NicdShare&, const FileDescriptor&) noexcept { return false; }

  /// Gives a question and waits for its answer.
  std::uint64_t ask(const CommandRecord& question, std::span<const std::byte> more = {}) noexcept;
  /// Likewise one that is nothing but its kind.
  std::uint64_t ask(CommandKind question) noexcept;

  /// Whether the next event is rubbish: none will be taken any more.
  bool reads_rubbish() noexcept;

  /// Copies from the memory of another process, whose pid the processor has given. False: not all of it.
  virtual bool copy_from(pid_t process, std::uint64_t address, std::byte* to,
                         std::size_t length_bytes) noexcept;

  /// Called again and again until the wait is over.
  virtual void rest_in(ProcessorWait& wait) noexcept { static_cast<void>(wait.rest()); }

 private:
  /// Of what others could copy, if slowly, no more is staged: it takes memory until it is over. Bytes.
  static constexpr std::size_t kMostStagedBytes = std::size_t{64} << 20;
  /// What the client has named. Its name is stale once it is finished.
  struct Operation {
    std::uint32_t generation = 1;
    std::uint32_t next_free = 0;  ///< Index + 1; 0: none.
    bool is_live = false;
    Cookie cookie = nullptr;
    OperationId cancelled = kNoOperation;      ///< Of a cancellation: the send.
    SharedBlock staged;                        ///< Null: nothing is.
    Payload receives;                          ///< Of a receive: where the client wants the message.
    std::vector<Payload> sends;                ///< Of a send or packet: as named, for a processor elsewhere.
    std::vector<SharedBlock> given;            ///< Of each of `sends`, what was asked for last.
    std::size_t steps = 0;                     ///< Of a schedule.
    std::unique_ptr<StagedSchedule> schedule;  ///< Whose memory is staged; in `staged`. Null: none.
  };

  OperationId name(Cookie cookie) noexcept;
  const Payload& name_with(Cookie cookie, const Payload& payload,
                           bool (RingPort::*stage)(OperationId, Payload&) noexcept, Payload& staged,
                           OperationId& operation) noexcept;
  bool must_stage(const Payload& payload) noexcept;
  bool stage_sends(OperationId operation, std::span<Payload> payloads, bool is_to_self = false) noexcept;
  bool stage_send(OperationId operation, Payload& payload) noexcept {
    return stage_sends(operation, {&payload, 1});
  }
  bool stage_to_self(OperationId operation, Payload& payload) noexcept {
    return stage_sends(operation, {&payload, 1}, true);
  }
  bool stage_receive(OperationId operation, Payload& payload) noexcept;
  std::byte* make_staged(OperationId operation, std::size_t length_bytes, bool must_be_ours) noexcept;
  bool share(const std::byte* address, std::size_t length_bytes, const FileDescriptor& file) noexcept final;
  void unshare(const std::byte* address) noexcept final;
  Operation* find(OperationId operation) noexcept;
  void forget(OperationId operation) noexcept;

  void wake_processor() noexcept;
  std::byte* begin_command(std::size_t length_bytes) noexcept;
  void await_room(std::size_t length_bytes) noexcept;
  CommandRecord& begin_record(CommandKind kind, const MatchKey& key, const Payload& payload,
                              std::size_t more_bytes = 0) noexcept;
  void give(const CommandRecord& command, std::span<const std::byte> more = {}) noexcept;
  void end_command(std::size_t length_bytes) noexcept;
  bool begin_inline(std::size_t length_bytes) noexcept;
  void of_peer(CommandKind kind, PeerId peer) noexcept;
  std::uint64_t await_answer() noexcept;
  std::uint64_t ask_probe(CommandKind kind, const MatchKey& key, const MatchKey& ignore,
                          Envelope& envelope) noexcept;

  std::size_t take_events() noexcept;
  bool look(EventRecord& event, std::span<const std::byte>& more) noexcept;
  bool translate(const EventRecord& record, std::span<const std::byte> more, Event& event) noexcept;
  void step_over() noexcept;
  void stage_from_now(const EventRecord& record) noexcept;
  void take_bytes(const EventRecord& record, std::span<const std::byte> bytes) noexcept;
  void give_bytes(const EventRecord& wanted) noexcept;
  void make_copy(const EventRecord& offer) noexcept;
  bool stage_schedule(OperationId operation, std::span<const ScheduleStep>& steps) noexcept;

  PortMemory& memory_;
  NicWords& words_;
  RingCounters& counters_;
  RingProducer commands_;
  RingConsumer ring_;
  const int bell_;
  Waiter waiter_;  ///< For the processor.
  ch3_offload_events_t events_{};
  const Trace* const trace_;
  Staging staging_;
  const PeerId self_;
  SharedArena arena_{*this};  ///< Before operations_, which have blocks of it.
  CommandStamp last_command_;
  bool armed_ = false;

  std::vector<Operation> operations_;
  std::uint32_t free_ = 0;  ///< Index + 1 of a free one; 0: none.
  std::uint64_t inline_given_ = 0;
  std::uint64_t inline_done_ = 0;  ///< As far as is known.
  std::uint64_t questions_ = 0;
  std::size_t steps_ = 0;  ///< Of the schedules that are not over.
  /// As far as progress() has counted them: who probes before each progress() misses none in its sleep.
  std::uint64_t arrivals_seen_ = 0;

  /// The last probe that found nothing, and when.
  struct Fruitless {
    MatchKey key{};
    MatchKey ignore{};
    std::uint64_t arrivals = UINT64_MAX;
    std::uint64_t position = 0;  ///< Of the command ring, behind it.
  };
  Fruitless fruitless_;
};

}  // namespace ch3_offload
