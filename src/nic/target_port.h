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
//   questions   return when the processor has answered: they make and free things, or need an answer
//   operations  return at once: request()
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
#include "rdma/status.h"

namespace ch3_offload {

class TargetPort {
 public:
  virtual ~TargetPort() = default;

  /// Makes the memory of boards and of rings of events. Constant.
  virtual std::shared_ptr<ToldMemory> told_memory() noexcept { return told_heap(); }

  // Questions.

  /// Opens interface `number`, below kTargetInterfaces. `board` is the client's, of told_memory(), and stays
  /// where it is until close(). kAgain: it is open, or not closed yet. kUnsupported: no such number, or the
  /// processor does not see the board. kNoMemory.
  virtual Status open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept = 0;
  /// Its tables, queues and counters are gone, and to peers it has no such table. Operations that have not
  /// ended are forgotten. Returns true when none of them touches the client's memory any more. Until then the
  /// caller lets time pass, calls progress() and asks again: a transfer that a peer or a device carries out
  /// cannot be revoked.
  virtual bool close(unsigned number) noexcept = 0;
  /// From now on, processes are ranks of `ranks` to the entries of that interface: physical ids by rank.
  /// kNoMemory.
  virtual Status set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept = 0;

  /// The ring's memory is the client's, of told_memory(), and stays where it is until free_queue(). kNoQueue:
  /// no memory, the ring has no room for what it says, or the processor does not see it.
  virtual QueueId make_queue(unsigned number, const TargetEventRing& ring) noexcept = 0;
  virtual void free_queue(unsigned number, QueueId queue) noexcept = 0;

  /// At 0. Where it is on the board: counter_index(). kNoCounter: there are as many as may be.
  virtual CounterId make_counter(unsigned number) noexcept = 0;
  /// What waits for it is forgotten.
  virtual void free_counter(unsigned number, CounterId counter) noexcept = 0;
  /// Done when it returns. What it triggers begins, in order, but a cycle of triggers goes on in later turns.
  virtual void change_counter(unsigned number, const TargetCountChange& change) noexcept = 0;
  /// Forgets what waits for that counter.
  virtual void cancel_triggered(unsigned number, CounterId counter) noexcept = 0;

  /// As TargetInterface's.
  virtual Status make_table(unsigned number, std::uint32_t index, QueueId queue,
                            bool has_flow_control) noexcept = 0;
  virtual Status free_table(unsigned number, std::uint32_t index) noexcept = 0;
  virtual void enable_table(unsigned number, std::uint32_t index) noexcept = 0;
  /// Returns true when no operation is in flight there any more: until then the caller asks again.
  virtual bool disable_table(unsigned number, std::uint32_t index) noexcept = 0;

  /// As TargetTable's.
  virtual Status append(unsigned number, std::uint32_t index, TargetListKind list,
                        const TargetDescription& description, TargetId& id) noexcept = 0;
  virtual void search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
                      const TargetDescription& description) noexcept = 0;
  virtual TargetTable::Unlinked unlink(unsigned number, std::uint32_t index, TargetId id) noexcept = 0;

  // Operations, and what waits for counting events.

  /// As Engine::request(), of the process with that physical id. kOk: its events will come, also that it
  /// failed. Else nothing was done, and no event comes.
  virtual Status request(ProcessId process, const TargetRequest& request) noexcept = 0;
  /// The same, or a change of a counting event, when the trigger's counter reaches its threshold; now if it
  /// has. In the order of the thresholds, then in the order of these calls. kNoMemory: as many wait as may.
  /// kUnsupported: there is no such counting event. Questions.
  virtual Status trigger(const TargetTrigger& when, ProcessId process,
                         const TargetRequest& request) noexcept = 0;
  virtual Status trigger(const TargetTrigger& when, unsigned number,
                         const TargetCountChange& change) noexcept = 0;
  /// The same of an entry. Its id is the client's at once, and unlink() says kInUse until it has linked. If
  /// the list is full then, its link event says that it was dropped, and the id is stale.
  virtual Status trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                TargetListKind list, const TargetDescription& description,
                                TargetId& id) noexcept = 0;
  /// The same. No event comes. An entry that is in use then stays linked.
  virtual Status trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                TargetId id) noexcept = 0;

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
};

}  // namespace ch3_offload
