// HostTargets: what each command of a Portals library does to the engine (target_command.h).

#include <cstring>
#include <type_traits>

#include "nic/host_targets.h"

namespace ch3_offload {
namespace {

using Kind = TargetCommandKind;

/// What follows the head of a command, and nothing else.
template <class T>
bool read_whole(std::span<const std::byte> from, T& object) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from.size() != sizeof object) return false;
  std::memcpy(&object, from.data(), sizeof object);
  return true;
}

/// Reads it as a number: it may be no value of the enumeration.
template <class Enum>
bool is_at_most(const Enum& value, Enum last) noexcept {
  return static_cast<std::underlying_type_t<Enum>>(value) <= static_cast<std::underlying_type_t<Enum>>(last);
}

bool is_in_range(const TargetRequest& request) noexcept {
  return is_at_most(request.operation, TargetOperation::kUnlock) &&
         is_at_most(request.acknowledgement, TargetAcknowledgement::kCompleted);
}

TargetTrigger trigger_of(const TargetCommand& command) noexcept {
  return {command.counter, command.threshold};
}

TargetAnswer named_or_no_memory(std::uint64_t name) noexcept {
  return {name == 0 ? Status::kNoMemory : Status::kOk, name};
}

}  // namespace

TargetAnswer HostTargets::ask(const TargetCommand& question, std::span<const std::byte> more) noexcept {
  TargetAnswer answer;
  static_cast<void>(execute(question, more, answer));  // TargetPort gives no rubbish.
  return answer;
}

bool HostTargets::execute(const TargetCommand& command, std::span<const std::byte> more,
                          TargetAnswer& answer) noexcept {
  if (command.interface >= kTargetInterfaces || command.option > 1) return false;
  answer = {};
  switch (command.kind) {
    case Kind::kOpen: return open(command, more, answer);
    case Kind::kMakeQueue: return make_queue(command, more, answer);
    case Kind::kChangeCounter:
    case Kind::kTriggerCount: return change(command, more, answer);
    case Kind::kAppend:
    case Kind::kTriggerAppend:
    case Kind::kSearch: return describe(command, more, answer);
    case Kind::kRequest:
    case Kind::kTriggerRequest: return request(command, more, answer);
    default: break;
  }
  // The others are nothing but their heads.
  if (!more.empty() || !is_at_most(command.kind, Kind::kTriggerUnlink) || command.kind == Kind{})
    return false;
  TargetInterface* const interface = at(command.interface);
  if (command.kind == Kind::kClose)
    answer.status = close_interface(command.interface);
  else if (command.kind == Kind::kSetRanks)
    answer.status = set_ranks(command);
  else if (interface != nullptr)
    answer = of_interface(command, *interface);
  return true;
}

TargetAnswer HostTargets::of_interface(const TargetCommand& command, TargetInterface& interface) noexcept {
  switch (command.kind) {
    case Kind::kFreeQueue:
      interface.free_queue(QueueId{command.name});
      addresses_.forget(command.interface, QueueId{command.name});
      return {Status::kOk};
    case Kind::kMakeCounter: return named_or_no_memory(static_cast<std::uint64_t>(interface.make_counter()));
    case Kind::kFreeCounter: interface.free_counter(CounterId{command.name}); return {Status::kOk};
    case Kind::kCancelTriggered: interface.cancel_triggered(CounterId{command.name}); return {Status::kOk};
    case Kind::kMakeTable:
      return {interface.make_table(command.table, QueueId{command.name}, command.option != 0)};
    case Kind::kFreeTable: return {interface.free_table(command.table)};
    case Kind::kTriggerUnlink: {
      const Status status =
          interface.trigger(trigger_of(command), TriggeredUnlink{command.table, TargetId{command.name}});
      static_cast<void>(engine_.run_triggered());
      return {status};
    }
    default: break;
  }
  TargetTable* const table = interface.table(command.table);
  return table == nullptr ? TargetAnswer{} : of_table(command, *table);
}

TargetAnswer HostTargets::of_table(const TargetCommand& command, TargetTable& table) noexcept {
  switch (command.kind) {
    case Kind::kEnableTable: table.enable(); return {Status::kOk};
    case Kind::kDisableTable: table.disable(); return {table.in_flight() == 0 ? Status::kOk : Status::kAgain};
    default:  // kUnlink.
      return {Status::kOk, static_cast<std::uint64_t>(table.unlink(TargetId{command.name}))};
  }
}

bool HostTargets::open(const TargetCommand& command, std::span<const std::byte> more,
                       TargetAnswer& answer) noexcept {
  TargetInterfaceConfig config;
  if (command.address == 0 || !read_whole(more, config)) return false;
  ClientShares::Found found;
  TargetBoard* const board = addresses_.find_board(command.address, config, found);
  if (board == nullptr) return true;
  answer.status = open(command.interface, config, *board);
  if (answer.status == Status::kOk) addresses_.keep(command.interface, std::move(found));
  return true;
}

bool HostTargets::make_queue(const TargetCommand& command, std::span<const std::byte> more,
                             TargetAnswer& answer) noexcept {
  TargetEventRing ring;
  if (!read_whole(more, ring)) return false;
  TargetInterface* const interface = at(command.interface);
  TargetAddresses::FoundRing found;
  if (interface == nullptr || !addresses_.find_ring(command.interface, ring, found)) return true;
  const QueueId queue = interface->make_queue(ring);
  if (queue != kNoQueue && !addresses_.keep(command.interface, queue, std::move(found))) {
    interface->free_queue(queue);
    return true;
  }
  answer = named_or_no_memory(static_cast<std::uint64_t>(queue));
  return true;
}

bool HostTargets::change(const TargetCommand& command, std::span<const std::byte> more,
                         TargetAnswer& answer) noexcept {
  TargetCountChange change;
  if (!read_whole(more, change) || !is_at_most(change.kind, TargetCountChange::Kind::kAdd)) return false;
  TargetInterface* const interface = at(command.interface);
  if (interface == nullptr) return true;
  answer.status = Status::kOk;
  if (command.kind == Kind::kTriggerCount)
    answer.status = interface->trigger(trigger_of(command), change);
  else
    interface->change_counter(change);
  static_cast<void>(engine_.run_triggered());
  return true;
}

bool HostTargets::describe(const TargetCommand& command, std::span<const std::byte> more,
                           TargetAnswer& answer) noexcept {
  TargetDescription description;
  if (!read_whole(more, description)) return false;
  TargetInterface* const interface = at(command.interface);
  TargetTable* const table = interface == nullptr ? nullptr : interface->table(command.table);
  TargetReach reach;
  if (command.kind == Kind::kSearch) {
    description.layout = nullptr;  // A search has no memory.
    if (table == nullptr) return true;
    table->search(description, static_cast<TargetTable::SearchMode>(command.option));
    answer.status = Status::kOk;
  } else {
    const TargetAddresses::Taken taken = addresses_.take(description, reach);
    if (taken == TargetAddresses::Taken::kRubbish) return false;
    if (taken == TargetAddresses::Taken::kNoMemory) {
      answer.status = Status::kNoMemory;
      return true;
    }
    const auto list = static_cast<TargetListKind>(command.option);
    TargetId id = kNoTarget;
    if (command.kind == Kind::kTriggerAppend && interface != nullptr)
      answer.status =
          interface->trigger_append(trigger_of(command), command.table, list, description, id, reach);
    else if (command.kind == Kind::kAppend && table != nullptr)
      answer.status = table->append(description, list, id, reach);
    answer.name = static_cast<std::uint64_t>(id);
  }
  static_cast<void>(engine_.run_triggered());  // Headers that were found may have been counted.
  return true;
}

bool HostTargets::request(const TargetCommand& command, std::span<const std::byte> more,
                          TargetAnswer& answer) noexcept {
  TargetRequest request;
  if (!read_whole(more, request) || !is_in_range(request) || request.interface != command.interface)
    return false;
  TargetHold hold;
  const TargetAddresses::Taken taken = addresses_.take(request, hold);
  if (taken == TargetAddresses::Taken::kRubbish) return false;
  answer.status = Status::kNoMemory;
  if (command.kind == Kind::kRequest) {
    if (taken == TargetAddresses::Taken::kTaken)
      answer.status = this->request(command.process, request, hold);
    if (answer.status != Status::kOk) engine_.tell_refused(request);  // It was promised its events.
    return true;
  }
  PeerId peer{};
  if (taken == TargetAddresses::Taken::kTaken) answer.status = book_.find(command.process, peer);
  if (taken == TargetAddresses::Taken::kTaken && answer.status == Status::kOk)
    answer.status = engine_.trigger(trigger_of(command), peer, request, hold);
  return true;
}

Status HostTargets::request(ProcessId process, const TargetRequest& request,
                            const TargetHold& hold) noexcept {
  PeerId peer{};
  if (const Status status = book_.find(process, peer); status != Status::kOk) return status;
  const Status status = engine_.request(peer, request, hold);
  if (status != Status::kPeerFailed) return status;
  engine_.tell_refused(request);
  return Status::kOk;
}

}  // namespace ch3_offload
