#include "nic/ring_targets.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "engine/payload_layout.h"

namespace ch3_offload {
namespace {

TargetCommandRecord command_of(TargetCommandKind kind, unsigned number, std::uint32_t table = 0) noexcept {
  TargetCommandRecord command;
  command.kind = kind;
  command.interface = static_cast<std::uint8_t>(number);
  command.table = table;
  return command;
}
TargetCommandRecord named(TargetCommandKind kind, unsigned number, std::uint64_t name,
                          std::uint32_t table = 0) noexcept {
  TargetCommandRecord command = command_of(kind, number, table);
  command.name = name;
  return command;
}

template <class T>
std::span<const std::byte> bytes_of(const T& object) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&object, 1));
}

}  // namespace

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

void RingTargets::give(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept {
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

RingTargets::Answer RingTargets::ask(const TargetCommandRecord& question,
                                     std::span<const std::byte> more) noexcept {
  give(question, more);
  ProcessorWait wait(memory_, waiter_, ++questions_);
  while (!wait.is_over()) rest_in(wait);
  return {words_.status, words_.answer};
}

// Questions.

Status RingTargets::open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept {
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command = command_of(TargetCommandKind::kOpen, number);
  command.address = reinterpret_cast<std::uint64_t>(&board);
  return ask(command, bytes_of(config)).status;
}

bool RingTargets::close(unsigned number) noexcept {
  return number >= kTargetInterfaces ||
         ask(command_of(TargetCommandKind::kClose, number)).status == Status::kOk;
}

Status RingTargets::set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept {
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command = command_of(TargetCommandKind::kSetRanks, number);
  command.address = reinterpret_cast<std::uint64_t>(ranks.data());
  command.length = ranks.size();
  return ask(command).status;
}

QueueId RingTargets::make_queue(unsigned number, const TargetEventRing& ring) noexcept {
  if (number >= kTargetInterfaces) return kNoQueue;
  return QueueId{ask(command_of(TargetCommandKind::kMakeQueue, number), bytes_of(ring)).name};
}

void RingTargets::free_queue(unsigned number, QueueId queue) noexcept {
  if (number < kTargetInterfaces)
    ask(named(TargetCommandKind::kFreeQueue, number, static_cast<std::uint64_t>(queue)));
}

CounterId RingTargets::make_counter(unsigned number) noexcept {
  if (number >= kTargetInterfaces) return kNoCounter;
  return CounterId{ask(command_of(TargetCommandKind::kMakeCounter, number)).name};
}

void RingTargets::free_counter(unsigned number, CounterId counter) noexcept {
  if (number < kTargetInterfaces)
    ask(named(TargetCommandKind::kFreeCounter, number, static_cast<std::uint64_t>(counter)));
}

void RingTargets::change_counter(unsigned number, const TargetCountChange& change) noexcept {
  if (number < kTargetInterfaces)
    ask(command_of(TargetCommandKind::kChangeCounter, number), bytes_of(change));
}

void RingTargets::cancel_triggered(unsigned number, CounterId counter) noexcept {
  if (number < kTargetInterfaces)
    ask(named(TargetCommandKind::kCancelTriggered, number, static_cast<std::uint64_t>(counter)));
}

Status RingTargets::make_table(unsigned number, std::uint32_t index, QueueId queue,
                               bool has_flow_control) noexcept {
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command =
      named(TargetCommandKind::kMakeTable, number, static_cast<std::uint64_t>(queue), index);
  command.option = has_flow_control ? 1 : 0;
  return ask(command).status;
}

Status RingTargets::free_table(unsigned number, std::uint32_t index) noexcept {
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  return ask(command_of(TargetCommandKind::kFreeTable, number, index)).status;
}

void RingTargets::enable_table(unsigned number, std::uint32_t index) noexcept {
  if (number < kTargetInterfaces) ask(command_of(TargetCommandKind::kEnableTable, number, index));
}

bool RingTargets::disable_table(unsigned number, std::uint32_t index) noexcept {
  return number >= kTargetInterfaces ||
         ask(command_of(TargetCommandKind::kDisableTable, number, index)).status == Status::kOk;
}

Status RingTargets::append(unsigned number, std::uint32_t index, TargetListKind list,
                           const TargetDescription& description, TargetId& id) noexcept {
  id = kNoTarget;
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command = command_of(TargetCommandKind::kAppend, number, index);
  command.option = static_cast<std::uint8_t>(list);
  const Answer answer = ask(command, bytes_of(description));
  id = TargetId{answer.name};
  return answer.status;
}

void RingTargets::search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
                         const TargetDescription& description) noexcept {
  if (number >= kTargetInterfaces) return;
  TargetCommandRecord command = command_of(TargetCommandKind::kSearch, number, index);
  command.option = static_cast<std::uint8_t>(mode);
  ask(command, bytes_of(description));
}

TargetTable::Unlinked RingTargets::unlink(unsigned number, std::uint32_t index, TargetId id) noexcept {
  if (number >= kTargetInterfaces) return TargetTable::Unlinked::kUnknown;
  return static_cast<TargetTable::Unlinked>(
      ask(named(TargetCommandKind::kUnlink, number, static_cast<std::uint64_t>(id), index)).name);
}

// Operations.

Status RingTargets::request(ProcessId process, const TargetRequest& request) noexcept {
  if (request.interface >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command = command_of(TargetCommandKind::kRequest, request.interface);
  command.process = process;
  const Payload& source = request.source.memory;
  if (short_source_ == ShortSource::kRead || request.is_get() || source.length_bytes > kMostVolatileBytes ||
      (request.source.options & kVolatile) != 0) {
    give(command, bytes_of(request));
    return Status::kOk;
  }
  TargetRequest with_bytes = request;
  with_bytes.source.options |= kVolatile;
  gather(source, 0, std::span(with_bytes.volatile_bytes).first(source.length_bytes));
  give(command, bytes_of(with_bytes));
  return Status::kOk;
}

Status RingTargets::trigger(const TargetTrigger& when, ProcessId process,
                            const TargetRequest& request) noexcept {
  if (request.interface >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command = command_of(TargetCommandKind::kTriggerRequest, request.interface);
  command.process = process;
  command.counter = when.counter;
  command.threshold = when.threshold;
  return ask(command, bytes_of(request)).status;
}

Status RingTargets::trigger(const TargetTrigger& when, unsigned number,
                            const TargetCountChange& change) noexcept {
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command = command_of(TargetCommandKind::kTriggerCount, number);
  command.counter = when.counter;
  command.threshold = when.threshold;
  return ask(command, bytes_of(change)).status;
}

Status RingTargets::trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                   TargetListKind list, const TargetDescription& description,
                                   TargetId& id) noexcept {
  id = kNoTarget;
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command = command_of(TargetCommandKind::kTriggerAppend, number, index);
  command.option = static_cast<std::uint8_t>(list);
  command.counter = when.counter;
  command.threshold = when.threshold;
  const Answer answer = ask(command, bytes_of(description));
  id = TargetId{answer.name};
  return answer.status;
}

Status RingTargets::trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                   TargetId id) noexcept {
  if (number >= kTargetInterfaces) return Status::kUnsupported;
  TargetCommandRecord command =
      named(TargetCommandKind::kTriggerUnlink, number, static_cast<std::uint64_t>(id), index);
  command.counter = when.counter;
  command.threshold = when.threshold;
  return ask(command).status;
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
