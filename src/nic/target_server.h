// The processor's half of the second client's port: takes its commands from a ring, gives them to
// HostTargets, and tells the client that there is something new on its board.
//
// The engine's progress is not its business: who runs the engine calls turn() beside it. It never waits for
// the client. A client that gives rubbish is refused: nothing more of it is taken.
//
// Threads: one, the engine's. Allocation: as HostTargets.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "nic/host_targets.h"
#include "nic/port_memory.h"
#include "nic/target_addresses.h"
#include "nic/target_records.h"
#include "nic/waiter.h"

namespace ch3_offload {

class TargetServer {
 public:
  /// All outlive the server. `client`: the memory of a client in another process; null: it is in this one.
  TargetServer(HostTargets& targets, PortMemory& memory, ClientMemory* client = nullptr) noexcept;
  /// Closes all interfaces: the client has gone, or has no port any more. What has not ended touches neither
  /// its board nor its rings of events.
  void close() noexcept;

  /// Takes commands, does what the book has to do, tells the client. Returns how many things happened.
  std::size_t turn() noexcept;

  /// Announces a sleep: from now on, a command rings the processor's bell. Returns false if there is work.
  /// "The sleep rule".
  bool arm() noexcept;
  void disarm() noexcept;
  /// What ends a sleep, beside the engine's providers.
  void add_to(SleepSet& set) const noexcept {
    set.add(memory_.nic_bell().sleeper);
    set.add(targets_.book_descriptor());
    set.end_after(targets_.next_due_ns());
  }

  bool is_refused() const noexcept { return is_refused_; }
  /// Whether a command waits in the ring.
  bool has_commands() const noexcept { return commands_.header() != 0; }

 private:
  std::size_t take_commands() noexcept;
  /// All of these return false for rubbish.
  bool execute(std::span<const std::byte> record) noexcept;
  bool execute_alone(const TargetCommandRecord& command) noexcept;
  bool open(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept;
  bool describe(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept;
  bool make_queue(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept;
  bool change(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept;
  bool request(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept;
  void answer(Status status, std::uint64_t name = 0) noexcept;
  void tell() noexcept;

  HostTargets& targets_;
  TargetAddresses addresses_;
  PortMemory& memory_;
  NicWords& words_;
  decltype(RingCounters::processor)& ring_counters_;
  RingConsumer commands_;
  bool is_refused_ = false;
  std::uint64_t answered_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t idle_told_ = kNotIdle;
};

}  // namespace ch3_offload
