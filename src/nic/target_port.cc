#include "nic/target_port.h"

#include <type_traits>

namespace ch3_offload {
namespace {

using Kind = TargetCommandKind;

TargetCommand named(Kind kind, std::uint64_t name) noexcept {
  TargetCommand command;
  command.kind = kind;
  command.name = name;
  return command;
}

TargetCommand of_table(Kind kind, std::uint32_t index, std::uint64_t name = 0) noexcept {
  TargetCommand command = named(kind, name);
  command.table = index;
  return command;
}

template <class Option>
TargetCommand of_list(Kind kind, std::uint32_t index, Option option) noexcept {
  TargetCommand command = of_table(kind, index);
  command.option = static_cast<std::uint8_t>(option);
  return command;
}

TargetCommand at(const TargetTrigger& when, TargetCommand command) noexcept {
  command.counter = when.counter;
  command.threshold = when.threshold;
  return command;
}

template <class T>
std::span<const std::byte> bytes_of(const T& object) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&object, 1));
}

}  // namespace

TargetAnswer TargetPort::ask_about(unsigned number, TargetCommand question,
                                   std::span<const std::byte> more) noexcept {
  if (number >= kTargetInterfaces) return {};
  question.interface = static_cast<std::uint8_t>(number);
  return ask(question, more);
}

Status TargetPort::open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept {
  TargetCommand command = named(Kind::kOpen, 0);
  command.address = reinterpret_cast<std::uint64_t>(&board);
  return ask_about(number, command, bytes_of(config)).status;
}

bool TargetPort::close(unsigned number) noexcept {
  return ask_about(number, named(Kind::kClose, 0)).status != Status::kAgain;
}

Status TargetPort::set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept {
  TargetCommand command = named(Kind::kSetRanks, 0);
  command.address = reinterpret_cast<std::uint64_t>(ranks.data());
  command.length = ranks.size();
  return ask_about(number, command).status;
}

QueueId TargetPort::make_queue(unsigned number, const TargetEventRing& ring) noexcept {
  return QueueId{ask_about(number, named(Kind::kMakeQueue, 0), bytes_of(ring)).name};
}

void TargetPort::free_queue(unsigned number, QueueId queue) noexcept {
  ask_about(number, named(Kind::kFreeQueue, static_cast<std::uint64_t>(queue)));
}

CounterId TargetPort::make_counter(unsigned number) noexcept {
  return CounterId{ask_about(number, named(Kind::kMakeCounter, 0)).name};
}

void TargetPort::free_counter(unsigned number, CounterId counter) noexcept {
  ask_about(number, named(Kind::kFreeCounter, static_cast<std::uint64_t>(counter)));
}

void TargetPort::change_counter(unsigned number, const TargetCountChange& change) noexcept {
  ask_about(number, named(Kind::kChangeCounter, 0), bytes_of(change));
}

void TargetPort::cancel_triggered(unsigned number, CounterId counter) noexcept {
  ask_about(number, named(Kind::kCancelTriggered, static_cast<std::uint64_t>(counter)));
}

Status TargetPort::make_table(unsigned number, std::uint32_t index, QueueId queue,
                              bool has_flow_control) noexcept {
  TargetCommand command = of_table(Kind::kMakeTable, index, static_cast<std::uint64_t>(queue));
  command.option = has_flow_control ? 1 : 0;
  return ask_about(number, command).status;
}

Status TargetPort::free_table(unsigned number, std::uint32_t index) noexcept {
  return ask_about(number, of_table(Kind::kFreeTable, index)).status;
}

void TargetPort::enable_table(unsigned number, std::uint32_t index) noexcept {
  ask_about(number, of_table(Kind::kEnableTable, index));
}

bool TargetPort::disable_table(unsigned number, std::uint32_t index) noexcept {
  return ask_about(number, of_table(Kind::kDisableTable, index)).status != Status::kAgain;
}

Status TargetPort::append(unsigned number, std::uint32_t index, TargetListKind list,
                          const TargetDescription& description, TargetId& id) noexcept {
  const TargetAnswer answer = ask_about(number, of_list(Kind::kAppend, index, list), bytes_of(description));
  id = TargetId{answer.name};
  return answer.status;
}

void TargetPort::search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
                        const TargetDescription& description) noexcept {
  ask_about(number, of_list(Kind::kSearch, index, mode), bytes_of(description));
}

TargetTable::Unlinked TargetPort::unlink(unsigned number, std::uint32_t index, TargetId id) noexcept {
  const TargetAnswer answer =
      ask_about(number, of_table(Kind::kUnlink, index, static_cast<std::uint64_t>(id)));
  return answer.status == Status::kOk ? static_cast<TargetTable::Unlinked>(answer.name)
                                      : TargetTable::Unlinked::kUnknown;
}

Status TargetPort::trigger(const TargetTrigger& when, ProcessId process,
                           const TargetRequest& request) noexcept {
  TargetCommand command = at(when, named(Kind::kTriggerRequest, 0));
  command.process = process;
  return ask_about(request.interface, command, bytes_of(request)).status;
}

Status TargetPort::trigger(const TargetTrigger& when, unsigned number,
                           const TargetCountChange& change) noexcept {
  return ask_about(number, at(when, named(Kind::kTriggerCount, 0)), bytes_of(change)).status;
}

Status TargetPort::trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                  TargetListKind list, const TargetDescription& description,
                                  TargetId& id) noexcept {
  const TargetAnswer answer =
      ask_about(number, at(when, of_list(Kind::kTriggerAppend, index, list)), bytes_of(description));
  id = TargetId{answer.name};
  return answer.status;
}

Status TargetPort::trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                  TargetId id) noexcept {
  return ask_about(number, at(when, of_table(Kind::kTriggerUnlink, index, static_cast<std::uint64_t>(id))))
      .status;
}

}  // namespace ch3_offload
