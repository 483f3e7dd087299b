// The second client's half of a port whose engine runs in a thread of the same process, or in another process
// (process_targets.h): commands go into a ring, answers come in words. Events and counts are on the client's
// board.
//
// A question waits for its answer, and the processor answers without waiting for anybody. An operation does
// not wait. What the ring has no room for waits for the processor, and not for a peer.
//
// Threads: as TargetPort. fork: a child has no port.

#pragma once

#include <cstdint>
#include <span>

#include "nic/port_memory.h"
#include "nic/processor_wait.h"
#include "nic/target_port.h"

namespace ch3_offload {

class RingTargets : public TargetPort {
 public:
  /// What becomes of the source of a request that is short enough for its command.
  enum class ShortSource : std::uint8_t {
    kRead,   ///< The processor reads it: that is an access to memory.
    kGiven,  ///< Its bytes go into the command: the processor would read them by the kernel.
  };
  /// `memory` outlives the port. `wait`: how it waits for its processor.
  RingTargets(PortMemory& memory, const WaitPolicy& wait,
              ShortSource short_source = ShortSource::kRead) noexcept;

  Status request(ProcessId process, const TargetRequest& request) noexcept final;
  TargetAnswer ask(const TargetCommand& question, std::span<const std::byte> more) noexcept final;

  std::size_t progress() noexcept override;
  bool idle() const noexcept final;
  bool arm() noexcept override;
  void disarm() noexcept final;
  std::span<const int> descriptors() const noexcept override { return {&bell_, 1}; }
  std::uint64_t next_due_ns() const noexcept final { return UINT64_MAX; }
  const RingCounters& ring_counters() const noexcept { return counters_; }

 protected:
  /// As RingPort's.
  virtual void rest_in(ProcessorWait& wait) noexcept { static_cast<void>(wait.rest()); }

 private:
  void give(const TargetCommand& command, std::span<const std::byte> more) noexcept;
  void wake_processor() noexcept;

  PortMemory& memory_;
  NicWords& words_;
  RingCounters& counters_;
  RingProducer commands_;
  const int bell_;
  Waiter waiter_;  ///< For the processor.
  const ShortSource short_source_;
  bool armed_ = false;
  std::uint64_t questions_ = 0;
  std::uint64_t told_seen_ = 0;  ///< NicWords::told, as far as progress() has said.
};

}  // namespace ch3_offload
