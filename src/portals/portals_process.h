// What a process needs below its Portals interfaces: a port to its network processor, and who it is.
//
// It is made with the first interface and goes with the last one. The library asks make_portals_process();
// tests link a function of their own.
//
// Threads: one at a time, except where a function says otherwise.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/targets/target_entry.h"
#include "engine/targets/target_key.h"
#include "nic/target_port.h"
#include "nic/wait_policy.h"
#include "rdma/status.h"

namespace ch3_offload::portals {

/// What the fabric and the processor can do, as PtlNIInit() tells it. Lengths are in bytes.
struct ProcessLimits {
  std::uint64_t most_message_bytes = 0;
  std::uint64_t most_atomic_bytes = 0;        ///< What fits a slot of every provider.
  std::uint64_t most_fetch_atomic_bytes = 0;  ///< Likewise.
  std::uint64_t most_ordered_bytes = 0;       ///< What is ordered with all that was sent before it.
  std::uint64_t most_volatile_bytes = 0;      ///< Of a request with kVolatile.
  std::uint32_t most_triggered = 0;           ///< Operations that wait for counting events, of an interface.
  bool binds_inaccessible = false;            ///< Entries may name memory that is not mapped.
  bool orders_all = false;                    ///< `most_ordered_bytes` holds whatever the offsets.
  bool has_coherent_atomics = true;
};

class PortalsProcess {
 public:
  virtual ~PortalsProcess() = default;

  virtual TargetPort& port() noexcept = 0;

  /// nid and pid, and the user as peers see it. Constant.
  virtual ProcessId self() const noexcept = 0;
  virtual UserId user() const noexcept = 0;
  virtual const ProcessLimits& limits() const noexcept = 0;

  /// Whether the processor works while no thread is in a call, and ends a sleep for all that it does.
  /// Constant; any thread may ask.
  virtual bool works_alone() const noexcept = 0;

  /// How a thread of this process waits. Each thread has its own.
  virtual WaitPolicy wait_policy() const noexcept = 0;

  /// What WaitPolicy's kLook asks of the calling thread.
  virtual void look() noexcept {}

  /// Says what the processor has for the user, to stderr. Called when the port has worked.
  virtual void say_news() noexcept = 0;

  /// A thread has waited in a call for seconds, and operations may be under way. Says once why they may be so
  /// for ever, if the driver is why.
  virtual void waits_for_long() noexcept {}
};

/// Makes what this process needs. `pid`: the wanted one; nothing: a free one. kAgain: another process of this
/// node has that pid. kUnsupported: no process can have it. kNoMemory. Else the message says what is wrong.
Result<std::unique_ptr<PortalsProcess>> make_portals_process(std::optional<std::uint32_t> pid);

}  // namespace ch3_offload::portals
