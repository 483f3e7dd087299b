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
#include "nic/target_command.h"
#include "nic/waiter.h"

namespace ch3_offload {

class TargetServer {
 public:
  /// Both outlive the server.
  TargetServer(HostTargets& targets, PortMemory& memory) noexcept;

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
  /// Returns false for rubbish.
  bool execute(std::span<const std::byte> record) noexcept;
  void answer(const TargetAnswer& answer) noexcept;
  void tell() noexcept;

  HostTargets& targets_;
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
