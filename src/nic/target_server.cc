#include "nic/target_server.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace ch3_offload {
namespace {

/// Commands in one turn, so that the engine has its own.
constexpr std::size_t kMostTargetCommands = 32;

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

bool is_in_range(const TargetCountChange& change) noexcept {
  return is_at_most(change.kind, TargetCountChange::Kind::kAdd);
}

bool is_in_range(const TargetRequest& request) noexcept {
  return is_at_most(request.operation, TargetOperation::kUnlock) &&
         is_at_most(request.acknowledgement, TargetAcknowledgement::kCompleted);
}

}  // namespace

TargetServer::TargetServer(HostTargets& targets, PortMemory& memory, ClientMemory* client) noexcept
    : targets_(targets),
      addresses_(client),
      memory_(memory),
      words_(memory.words()),
      ring_counters_(memory.ring_counters().processor),
      commands_(memory.command_consumer()) {
  words_.idle_at.store(kNotIdle, std::memory_order_relaxed);
  if (client != nullptr) targets_.fall_silent_when(client->broken());
}

std::size_t TargetServer::turn() noexcept {
  const std::size_t happened = take_commands() + targets_.serve();
  tell();
  return happened;
}

void TargetServer::close() noexcept {
  for (unsigned number = 0; number < kTargetInterfaces; ++number) {
    static_cast<void>(targets_.close(number));
    addresses_.forget(number);
  }
}

std::size_t TargetServer::take_commands() noexcept {
  std::size_t taken = 0;
  for (; taken < kMostTargetCommands && !is_refused_; ++taken) {
    const std::uint64_t header = commands_.header();
    if (header == 0) break;
    RingConsumer::Record record;
    is_refused_ =
        !commands_.parse(header, record) || record.kind != RecordKind::kMessage || !execute(record.payload);
    if (is_refused_) break;
    commands_.advance(record);
  }
  if (taken > 0 && commands_.release()) [[unlikely]]
    memory_.wake_from_wait(ring_counters_.bells_rung);
  return taken;
}

bool TargetServer::execute(std::span<const std::byte> record) noexcept {
  TargetCommandRecord command;
  if (record.size() < sizeof command) return false;
  std::memcpy(&command, record.data(), sizeof command);
  if (command.interface >= kTargetInterfaces || command.option > 1) return false;
  const auto more = record.subspan(sizeof command);
  switch (command.kind) {
    case TargetCommandKind::kOpen: return open(command, more);
    case TargetCommandKind::kMakeQueue: return make_queue(command, more);
    case TargetCommandKind::kAppend:
    case TargetCommandKind::kTriggerAppend:
    case TargetCommandKind::kSearch: return describe(command, more);
    case TargetCommandKind::kChangeCounter:
    case TargetCommandKind::kTriggerCount: return change(command, more);
    case TargetCommandKind::kRequest:
    case TargetCommandKind::kTriggerRequest: return request(command, more);
    default: return more.empty() && execute_alone(command);
  }
}

/// A command that is nothing but its head.
bool TargetServer::execute_alone(const TargetCommandRecord& command) noexcept {
  const unsigned number = command.interface;
  switch (command.kind) {
    case TargetCommandKind::kClose: {
      const bool is_closed = targets_.close(number);
      addresses_.forget(number);
      answer(is_closed ? Status::kOk : Status::kAgain);
      return true;
    }
    case TargetCommandKind::kSetRanks:
      answer(addresses_.set_ranks(targets_, number, command.address, command.length));
      return true;
    case TargetCommandKind::kFreeQueue:
      targets_.free_queue(number, QueueId{command.name});
      addresses_.forget(number, QueueId{command.name});
      break;
    case TargetCommandKind::kMakeCounter: {
      const CounterId counter = targets_.make_counter(number);
      answer(counter == kNoCounter ? Status::kNoMemory : Status::kOk, static_cast<std::uint64_t>(counter));
      return true;
    }
    case TargetCommandKind::kFreeCounter: targets_.free_counter(number, CounterId{command.name}); break;
    case TargetCommandKind::kCancelTriggered:
      targets_.cancel_triggered(number, CounterId{command.name});
      break;
    case TargetCommandKind::kMakeTable:
      answer(targets_.make_table(number, command.table, QueueId{command.name}, command.option != 0));
      return true;
    case TargetCommandKind::kFreeTable: answer(targets_.free_table(number, command.table)); return true;
    case TargetCommandKind::kEnableTable: targets_.enable_table(number, command.table); break;
    case TargetCommandKind::kDisableTable:
      answer(targets_.disable_table(number, command.table) ? Status::kOk : Status::kAgain);
      return true;
    case TargetCommandKind::kUnlink:
      answer(Status::kOk,
             static_cast<std::uint64_t>(targets_.unlink(number, command.table, TargetId{command.name})));
      return true;
    case TargetCommandKind::kTriggerUnlink:
      answer(targets_.trigger_unlink({command.counter, command.threshold}, number, command.table,
                                     TargetId{command.name}));
      return true;
    default: return false;
  }
  answer(Status::kOk);
  return true;
}

bool TargetServer::open(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept {
  TargetInterfaceConfig config;
  if (command.address == 0 || !read_whole(more, config)) return false;
  answer(addresses_.open(targets_, command.interface, config, command.address));
  return true;
}

bool TargetServer::make_queue(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept {
  TargetEventRing ring;
  if (!read_whole(more, ring)) return false;
  const QueueId queue = addresses_.make_queue(targets_, command.interface, ring);
  answer(queue == kNoQueue ? Status::kNoMemory : Status::kOk, static_cast<std::uint64_t>(queue));
  return true;
}

bool TargetServer::describe(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept {
  TargetDescription description;
  if (!read_whole(more, description)) return false;
  if (command.kind == TargetCommandKind::kSearch) {
    const auto mode = static_cast<TargetTable::SearchMode>(command.option);
    description.layout = nullptr;  // A search has no memory.
    targets_.search(command.interface, command.table, mode, description);
    answer(Status::kOk);
    return true;
  }
  TargetReach reach;
  const TargetAddresses::Taken taken = addresses_.take(description, reach);
  if (taken == TargetAddresses::Taken::kRubbish) return false;
  if (taken == TargetAddresses::Taken::kNoMemory) {
    answer(Status::kNoMemory);
    return true;
  }
  TargetId id = kNoTarget;
  const auto list = static_cast<TargetListKind>(command.option);
  const Status status = command.kind == TargetCommandKind::kAppend
                            ? targets_.append(command.interface, command.table, list, description, id, reach)
                            : targets_.trigger_append({command.counter, command.threshold}, command.interface,
                                                      command.table, list, description, id, reach);
  answer(status, static_cast<std::uint64_t>(id));
  return true;
}

bool TargetServer::change(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept {
  TargetCountChange change;
  if (!read_whole(more, change) || !is_in_range(change)) return false;
  if (command.kind == TargetCommandKind::kTriggerCount) {
    answer(targets_.trigger({command.counter, command.threshold}, command.interface, change));
    return true;
  }
  targets_.change_counter(command.interface, change);
  answer(Status::kOk);
  return true;
}

bool TargetServer::request(const TargetCommandRecord& command, std::span<const std::byte> more) noexcept {
  TargetRequest request;
  if (!read_whole(more, request) || !is_in_range(request) || request.interface != command.interface)
    return false;
  TargetHold hold;
  const TargetAddresses::Taken taken = addresses_.take(request, hold);
  if (taken == TargetAddresses::Taken::kRubbish) return false;
  const bool has_memory = taken == TargetAddresses::Taken::kTaken;
  if (command.kind == TargetCommandKind::kTriggerRequest) {
    answer(has_memory ? targets_.trigger({command.counter, command.threshold}, command.process, request, hold)
                      : Status::kNoMemory);
    return true;
  }
  const Status status = has_memory ? targets_.request(command.process, request, hold) : Status::kNoMemory;
  if (status != Status::kOk) targets_.tell_refused(request);
  return true;
}

// Answers, and what is new.

void TargetServer::answer(Status status, std::uint64_t name) noexcept {
  words_.status = status;
  words_.answer = name;
  // Pairs with RingTargets::ask(), which then sees the answer, and what was told before it.
  words_.answered.store(++answered_, std::memory_order_seq_cst);  // "The sleep rule".
  memory_.wake_from_wait(ring_counters_.bells_rung);
}

void TargetServer::tell() noexcept {
  bool has_news = false;
  if (const std::uint64_t told = targets_.told(); told != told_) {
    told_ = told;
    words_.told.store(told, std::memory_order_seq_cst);  // "The sleep rule".
    has_news = true;
  }
  const std::uint64_t idle_at = targets_.idle() ? commands_.position() : kNotIdle;
  if (idle_told_ != idle_at) {
    idle_told_ = idle_at;
    words_.idle_at.store(idle_at, std::memory_order_seq_cst);  // "The sleep rule": MPI_Finalize waits for it.
    has_news = has_news || idle_at != kNotIdle;
  }
  if (has_news) PortMemory::ring(words_.client_sleeps, memory_.client_bell(), ring_counters_.bells_rung);
}

// Waiting.

bool TargetServer::arm() noexcept {
  PortMemory::count(ring_counters_.sleeps);  // Before: whoever rings finds it counted.
  const bool may_sleep = memory_.announce_nic_sleep();
  if (may_sleep && (is_refused_ || commands_.header(std::memory_order_seq_cst) == 0)) return true;
  disarm();
  return false;
}

void TargetServer::disarm() noexcept { PortMemory::quiet(words_.nic_sleeps, memory_.nic_bell()); }

}  // namespace ch3_offload
