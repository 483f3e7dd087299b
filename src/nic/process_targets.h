// The second client's port where the engine runs in a process that serves the node: the other half of
// ProcessDriver (process_driver.h).
//
// Boards and rings of events are in memory that this process shares with its processor. The memory of entries
// and requests may be any: what is not shared, the processor copies by the kernel. The bytes of a short
// source are in its command. If the processor ends, this process ends in its next wait, progress() or arm().
//
// Threads: as TargetPort, and one at a time with the first client's. fork: a child has no port.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "nic/ring_targets.h"
#include "nic/shared_arena.h"

namespace ch3_offload {

/// The processor, as the driver knows it.
class NicdProcess {
 public:
  /// As RingTargets'.
  virtual void rest_in(ProcessorWait& wait) noexcept = 0;
  /// Ends this process if the processor has ended or will have no more of it.
  virtual void check_processor() noexcept = 0;
  /// Readable when it has.
  virtual int connection() const noexcept = 0;

 protected:
  ~NicdProcess() = default;
};

/// Told memory that the processor maps, too.
class SharedToldMemory final : public ToldMemory {
 public:
  explicit SharedToldMemory(SharesMemory& processor) noexcept : arena_(processor) {}
  /// The processor does not serve the port any more, and unmaps the memory. This process keeps it.
  void detach() noexcept { arena_.end_sharing(); }

  std::byte* allocate(std::size_t length_bytes) noexcept override { return arena_.allocate(length_bytes); }
  void give_back(std::byte* memory) noexcept override { static_cast<void>(arena_.give_back(memory)); }

 private:
  static_assert(SharedArena::kLeastBytes >= kAlignment);
  SharedArena arena_;
};

class ProcessTargets final : public RingTargets {
 public:
  /// All outlive the port. Throws std::bad_alloc.
  ProcessTargets(PortMemory& memory, const WaitPolicy& wait, NicdProcess& processor, SharesMemory& shares)
      : RingTargets(memory, wait, ShortSource::kGiven),
        processor_(processor),
        told_(std::make_shared<SharedToldMemory>(shares)),
        descriptors_{memory.client_bell().sleeper, processor.connection()} {}
  ~ProcessTargets() override { told_->detach(); }

  std::shared_ptr<ToldMemory> told_memory() noexcept override { return told_; }

  std::size_t progress() noexcept override {
    const std::size_t happened = RingTargets::progress();
    if (happened == 0 && ++fruitless_ < kFruitlessBeforeCheck) return 0;
    if (happened == 0) processor_.check_processor();
    fruitless_ = 0;
    return happened;
  }
  bool arm() noexcept override {
    processor_.check_processor();
    return RingTargets::arm();
  }
  std::span<const int> descriptors() const noexcept override { return descriptors_; }

 private:
  static constexpr std::uint32_t kFruitlessBeforeCheck = 1U << 14;

  void rest_in(ProcessorWait& wait) noexcept override { processor_.rest_in(wait); }

  NicdProcess& processor_;
  const std::shared_ptr<SharedToldMemory> told_;
  const std::array<int, 2> descriptors_;
  std::uint32_t fruitless_ = 0;  ///< Calls of progress() since the processor was looked at.
};

}  // namespace ch3_offload
