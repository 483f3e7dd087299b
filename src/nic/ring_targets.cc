#include "nic/ring_targets.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "engine/payload_layout.h"

namespace ch3_offload {

RingTargets::RingTargets(PortMemory& memory, const WaitPolicy& wait, ShortSource short_source) noexcept
    : memory_(memory),
      words_(memory.words()),
      counters_(memory.ring_counters()),
      commands_(memory.command_producer()),
      bell_(memory.client_bell().sleeper),
      waiter_(wait),
      short_source_(short_source) {}

void RingTargets::wake_processor() noexcept {
  PortMemory::ring(words_.nic_sleeps, memory_.nic_bell(), counters_.client.bells_rung);
}

void RingTargets::give(const TargetCommand& command, std::span<const std::byte> more) noexcept {
  const std::size_t length_bytes = sizeof command + more.size();
  if (!commands_.has_room(length_bytes)) [[unlikely]] {
    ProcessorWait wait(memory_, waiter_, commands_, length_bytes);
    while (!wait.is_over()) {
      wake_processor();
      rest_in(wait);
    }
  }
  std::memcpy(commands_.payload(), &command, sizeof command);
  if (!more.empty()) std::memcpy(commands_.payload() + sizeof command, more.data(), more.size());
  PortMemory::count(counters_.client.commands);
  memory_.publish_command(commands_, length_bytes, counters_.client.bells_rung);
}

TargetAnswer RingTargets::ask(const TargetCommand& question, std::span<const std::byte> more) noexcept {
  give(question, more);
  ProcessorWait wait(memory_, waiter_, ++questions_);
  while (!wait.is_over()) rest_in(wait);
  return {words_.status, words_.answer};
}

Status RingTargets::request(ProcessId process, const TargetRequest& request) noexcept {
  if (request.interface >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommand command;
  command.kind = TargetCommandKind::kRequest;
  command.interface = request.interface;
  command.process = process;
  const Payload& source = request.source.memory;
  if (short_source_ == ShortSource::kRead || request.is_get() || source.length_bytes > kMostVolatileBytes ||
      (request.source.options & kVolatile) != 0) {
    give(command, std::as_bytes(std::span(&request, 1)));
    return Status::kOk;
  }
  TargetRequest with_bytes = request;
  with_bytes.source.options |= kVolatile;
  gather(source, 0, std::span(with_bytes.volatile_bytes).first(source.length_bytes));
  give(command, std::as_bytes(std::span(&with_bytes, 1)));
  return Status::kOk;
}

// Waiting.

std::size_t RingTargets::progress() noexcept {
  const std::uint64_t told = words_.told.load(std::memory_order_acquire);
  return static_cast<std::size_t>(told - std::exchange(told_seen_, told));
}

bool RingTargets::idle() const noexcept {
  // Sequentially consistent after arm(): "The sleep rule".
  return words_.idle_at.load(std::memory_order_seq_cst) == commands_.position();
}

bool RingTargets::arm() noexcept {
  armed_ = true;
  PortMemory::count(counters_.client.sleeps);                // Before: whoever rings finds it counted.
  words_.client_sleeps.store(1, std::memory_order_seq_cst);  // "The sleep rule".
  if (words_.told.load(std::memory_order_seq_cst) == told_seen_) return true;
  disarm();
  return false;
}

void RingTargets::disarm() noexcept {
  if (!std::exchange(armed_, false)) return;
  PortMemory::quiet(words_.client_sleeps, memory_.client_bell());
}

}  // namespace ch3_offload
