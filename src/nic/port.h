// The port: all that a client asks of its network processor, and all that it hears from it.
//
// A client (MPI through the glue, a Portals library) gives commands and takes events. An engine runs behind
// the port. src/engine/engine.h says what each command means.
//
//   driver   where the engine runs                 source
//   host     inside the client's calls, no queue   nic/host_driver.h
//   thread   in a thread of the client's process   nic/thread_driver.h
//   process  in a process of the node              nic/process_driver.h, ch3_offload/nicd.h
//
// What all drivers keep:
//
// - A command never calls back. It may finish at once, which is permitted and never promised. Otherwise an
//   event comes with the cookie of the command.
// - Events come from events() and next_event() only. Each operation has the memory of its event, so none is
//   lost.
// - Everything that crosses is plain data: numbers, keys, addresses and pieces of payloads, patterns. The two
//   functions of a PayloadLayout of kind kPacked are the exception. They need the client's address space.
// - The engine asks by events, and commands answer: introduce() answers kCardWanted, place_packet() answers
//   kPacketOffer.
//
// Threads: one at a time, except where a function says otherwise. Blocking: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "nic/schedule.h"
#include "nic/shared_arena.h"

namespace ch3_offload {

/// What a client and its processor count at the rings between them. Each word has one writer.
struct RingCounters {
  struct alignas(64) {
    std::uint64_t commands = 0;    ///< Published.
    std::uint64_t bells_rung = 0;  ///< The processor's: system calls.
    std::uint64_t sleeps = 0;      ///< Announced by arm().
    std::uint64_t staged = 0;      ///< Payloads that the client copied because only it can reach them.
    std::uint64_t copied = 0;      ///< Messages that it copied because its processor would copy them twice.
    std::uint64_t schedules = 0;   ///< Given to its processor.
  } client;
  struct alignas(64) {
    std::uint64_t events = 0;      ///< Published.
    std::uint64_t bells_rung = 0;  ///< The client's.
    std::uint64_t sleeps = 0;
  } processor;
};
inline constexpr RingCounters kNoRings{};

/// When a command was published in a ring, and where.
struct CommandStamp {
  std::uint64_t published_ns =
      0;                       ///< Just before the processor could see it, by the trace's clock. 0: never.
  std::uint64_t position = 0;  ///< Of its record.
};

class Port {
 public:
  virtual ~Port() = default;

  // Commands. As the functions of Engine with these names.

  virtual Progressed send(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                          std::uint32_t send_id, Cookie cookie, OperationId& operation,
                          Status& status) noexcept = 0;
  /// May return nullptr at any time: then send() is the only way.
  virtual ch3_offload_lane_t* lane(PeerId peer) noexcept = 0;
  virtual void nudge(PeerId peer) noexcept = 0;
  virtual Progressed send_packet(PeerId peer, std::span<const std::byte> header,
                                 std::span<const Payload> data, Cookie cookie, Status& status) noexcept = 0;
  virtual Progressed post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                                  Cookie cookie, OperationId& operation, Envelope& envelope) noexcept = 0;
  /// May return false at any time: then post_receive() is the way.
  virtual bool receive_now(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                           Envelope& envelope) noexcept = 0;
  virtual bool probe(const MatchKey& key, const MatchKey& ignore, Envelope& envelope) noexcept = 0;
  virtual bool matched_probe(const MatchKey& key, const MatchKey& ignore, MessageId& message,
                             Envelope& envelope) noexcept = 0;
  /// How many messages have come before their receive, as far as probe() knows. After a probe that found
  /// nothing: a message that it would find changes this number. The counters may be ahead of it.
  virtual std::uint64_t arrivals() const noexcept = 0;
  virtual Progressed receive_matched(MessageId message, const Payload& payload, Cookie cookie,
                                     Envelope& envelope) noexcept = 0;
  virtual bool cancel_receive(OperationId operation) noexcept = 0;
  virtual Progressed cancel_send(OperationId operation, PeerId peer, const MatchKey& key,
                                 std::uint32_t send_id, Cookie cookie) noexcept = 0;
  /// Carries out a schedule. Its memory and layouts are the processor's until kScheduleDone comes with the
  /// cookie. What lies behind a message that is shorter than its receive may be written, too. False:
  /// nothing was done, and the client does it by itself. That may be at any time, and is always so if the
  /// engine runs inside the client's calls.
  virtual bool schedule(std::span<const ScheduleStep>, const ScheduleMarks&, Cookie) noexcept {
    return false;
  }
  /// The most steps that schedule() takes. 0: it takes none.
  virtual std::size_t most_schedule_steps() const noexcept { return 0; }
  virtual void classify(std::uint64_t channel, TrafficClass traffic_class) noexcept = 0;
  virtual void purge(PurgeScope scope, std::span<const MatchPattern> doomed,
                     std::span<const MatchPattern> spared, Status reason) noexcept = 0;
  virtual void introduce(PeerId peer, std::string_view card) noexcept = 0;
  virtual void place_packet(PeerId peer, const Payload& place) noexcept = 0;
  virtual void fail_peer(PeerId peer) noexcept = 0;
  virtual void close_peer(PeerId peer) noexcept = 0;
  /// False: the driver cannot, or there is no memory; nothing has changed.
  virtual bool add_providers(std::span<Provider* const>) noexcept { return false; }
  virtual bool forget_peer(PeerId) noexcept { return false; }

  // Events.

  /// Lets the engine work where it has no thread of its own. Returns how many things happened.
  /// REQUIRES: as Engine::progress().
  virtual std::size_t progress() noexcept = 0;
  /// Takes the next event, in the order of Engine::next_event(). Returns false if there is none.
  virtual bool next_event(Event& event) noexcept = 0;
  /// Where completions wait; see Engine::events(). Constant for the port's life.
  virtual ch3_offload_events_t& events() noexcept = 0;

  // Waiting: for a client that has found nothing and wants to sleep.

  /// Returns whether nothing that has to leave this process waits to leave, nor is the payload of a receive
  /// awaited (Engine::idle()). The events of what has ended can be taken then.
  virtual bool idle() const noexcept = 0;
  /// Returns whether progress() could send nothing now and no event waits to be taken.
  virtual bool at_rest() const noexcept = 0;
  /// Returns false only if progress() would find nothing but housekeeping to do. Cheaper than progress().
  virtual bool may_have_work() noexcept = 0;
  /// From now on, work makes one of descriptors() readable. The caller then calls progress() once more, and
  /// sleeps only if that returns 0. Returns false, and announces nothing, if there is work already.
  virtual bool arm() noexcept = 0;
  /// Ends the effect of arm(). Has no effect without it.
  virtual void disarm() noexcept = 0;
  /// To be polled for POLLIN during a sleep. Constant for the port's life, so any thread may call it.
  virtual std::span<const int> descriptors() const noexcept = 0;
  /// In how many nanoseconds progress() has something to do that no descriptor tells of. UINT64_MAX: never.
  virtual std::uint64_t next_due_ns() const noexcept { return UINT64_MAX; }

  // Memory that stays registered between transfers; see Engine.

  virtual bool keeps_memory() const noexcept = 0;
  virtual void memory_gone(const void* address,
                           std::size_t length_bytes) noexcept = 0;  ///< Any thread, any time.
  virtual void stop_keeping_memory() noexcept = 0;

  /// Memory for messages that the processor reaches as its own. nullptr: it reaches all memory of the client
  /// so. Constant for the port's life.
  virtual SharedArena* arena() noexcept { return nullptr; }

  // What it is.

  /// What other processes must know to reach this one: printable ASCII without spaces. Throws std::bad_alloc.
  virtual std::string card() const = 0;
  /// The page stays where it is. Its numbers are those of now, or were a short time ago.
  virtual const CounterPage& counters() const noexcept = 0;
  /// Likewise. Zeros of a port without rings.
  virtual const RingCounters& ring_counters() const noexcept { return kNoRings; }
  /// Writes the trace of the engine's side, if there is one. Returns 0 or errno.
  virtual int write_trace(const std::string& path) noexcept = 0;
  /// For the trace of the client's side: the last command that went into a ring. A port without rings, or
  /// without a trace, has none.
  virtual CommandStamp last_command() const noexcept { return {}; }
};

}  // namespace ch3_offload
