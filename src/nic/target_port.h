// The port of the second client: all that a Portals library asks of its network processor.
//
// The first client's is port.h. The two share an engine and its progress, and nothing else: each has its own
// rings where the driver has rings.
//
// What the processor tells is in memory that the client has made, and that both see (target_board.h): events,
// counting events, status registers. So nobody has to ask for news, and a client that only reads needs no
// call. told_memory() makes such memory, for every driver. Whether the processor sees any other depends on
// the driver.
//
//   questions   are a command (target_command.h), and return when the processor has answered: they make and
//               free things, or need an answer
//   operations  return at once: request()
//
// A driver carries out ask() and request(), and lets time pass. The other functions here make commands of
// their arguments, and are the same with all drivers.
//
//   driver   where the engine runs                 source
//   host     inside the client's calls, no queue   nic/host_targets.h
//   thread   in a thread of the client's process   nic/ring_targets.h, nic/target_server.h
//   process  in a process that serves the node     nic/process_targets.h, nic/target_server.h
//
// Processes are named by their physical ids (make_physical_id()). The processor knows which peer of its
// engine that is, and introduces itself to one that it has not met (process_book.h).
//
// An operation that crosses a ring cannot be refused at once. If the processor refuses it, its events come,
// and say that it is undeliverable.
//
// Threads: one at a time, except where a function says otherwise. Blocking: questions wait for the processor.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/target_request.h"
#include "engine/targets/target_board.h"
#include "engine/targets/target_interface.h"
#include "engine/targets/told_memory.h"
#include "nic/target_command.h"
#include "rdma/status.h"

namespace ch3_offload {

class TargetPort {
 public:
  virtual ~TargetPort() = default;

  /// Makes the memory of boards and of rings of events. Constant.
  virtual std::shared_ptr<ToldMemory> told_memory() noexcept { return told_heap(); }

  // Questions. Of an interface that is not open, or a table that is not there, they answer kUnsupported,
  // kNoQueue, kNoCounter or kUnknown; close() and disable_table() then have nothing to wait for.

  /// Opens interface `number`, below kTargetInterfaces. `board` is the client's, of told_memory(), and stays
  /// where it is until close(). kAgain: it is open, or not closed yet. kUnsupported: no such number, or the
  /// processor does not see the board. kNoMemory.
  Status open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept;
  /// Its tables, queues and counters are gone, and to peers it has no such table. Operations that have not
  /// ended are forgotten. Returns true when none of them touches the client's memory any more. Until then the
  /// caller lets time pass, calls progress() and asks again: a transfer that a peer or a device carries out
  /// cannot be revoked.
  bool close(unsigned number) noexcept;
  /// From now on, processes are ranks of `ranks` to the entries of that interface: physical ids by rank.
  /// kNoMemory.
  Status set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept;

  /// The ring's memory is the client's, of told_memory(), and stays where it is until free_queue(). kNoQueue:
  /// no memory, the ring has no room for what it says, or the processor does not see it.
  QueueId make_queue(unsigned number, const TargetEventRing& ring) noexcept;
  void free_queue(unsigned number, QueueId queue) noexcept;

  /// At 0. Where it is on the board: counter_index(). kNoCounter: there are as many as may be.
  CounterId make_counter(unsigned number) noexcept;
  /// What waits for it is forgotten.
  void free_counter(unsigned number, CounterId counter) noexcept;
  /// Done when it returns. What it triggers begins, in order, but a cycle of triggers goes on in later turns.
  void change_counter(unsigned number, const TargetCountChange& change) noexcept;
  /// Forgets what waits for that counter.
  void cancel_triggered(unsigned number, CounterId counter) noexcept;

  /// As TargetInterface's.
  Status make_table(unsigned number, std::uint32_t index, QueueId queue, bool has_flow_control) noexcept;
  Status free_table(unsigned number, std::uint32_t index) noexcept;
  void enable_table(unsigned number, std::uint32_t index) noexcept;
  /// Returns true when no operation is in flight there any more: until then the caller asks again.
  bool disable_table(unsigned number, std::uint32_t index) noexcept;

  /// As TargetTable's.
  Status append(unsigned number, std::uint32_t index, TargetListKind list,
                const TargetDescription& description, TargetId& id) noexcept;
  void search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
              const TargetDescription& description) noexcept;
  TargetTable::Unlinked unlink(unsigned number, std::uint32_t index, TargetId id) noexcept;

  // Operations, and what waits for counting events.

  /// As Engine::request(), of the process with that physical id. kOk: its events will come, also that it
  /// failed. Else nothing was done, and no event comes.
  virtual Status request(ProcessId process, const TargetRequest& request) noexcept = 0;
  /// The same, or a change of a counting event, when the trigger's counter reaches its threshold; now if it
  /// has. In the order of the thresholds, then in the order of these calls. kNoMemory: as many wait as may.
  /// kUnsupported: there is no such counting event. Questions.
  Status trigger(const TargetTrigger& when, ProcessId process, const TargetRequest& request) noexcept;
  Status trigger(const TargetTrigger& when, unsigned number, const TargetCountChange& change) noexcept;
  /// The same of an entry. Its id is the client's at once, and unlink() says kInUse until it has linked. If
  /// the list is full then, its link event says that it was dropped, and the id is stale.
  Status trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index, TargetListKind list,
                        const TargetDescription& description, TargetId& id) noexcept;
  /// The same. No event comes. An entry that is in use then stays linked.
  Status trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                        TargetId id) noexcept;

  // Progress and waiting, as of Port. The client looks at its queues and counting events after progress(),
  // and after arm() has announced a sleep.

  virtual std::size_t progress() noexcept = 0;
  virtual bool idle() const noexcept = 0;
  virtual bool arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
  virtual std::span<const int> descriptors() const noexcept = 0;
  /// Nanoseconds until progress() has something to do by time: a sleep lasts so long at most. UINT64_MAX:
  /// nothing.
  virtual std::uint64_t next_due_ns() const noexcept = 0;

  /// Has a question answered, for the functions above. `more`: what follows its head. REQUIRES: there is an
  /// interface of that number.
  virtual TargetAnswer ask(const TargetCommand& question, std::span<const std::byte> more) noexcept = 0;

 private:
  TargetAnswer ask_about(unsigned number, TargetCommand question,
                         std::span<const std::byte> more = {}) noexcept;
};

}  // namespace ch3_offload
