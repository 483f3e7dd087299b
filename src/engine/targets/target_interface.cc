#include "engine/targets/target_interface.h"

#include <new>
#include <utility>

namespace ch3_offload {

TargetInterface::TargetInterface(const TargetInterfaceConfig& config, TargetBoard& board,
                                 std::size_t& due) noexcept
    : config_(config),
      resources_(config.limits, board.registers),
      counters_(board.counters),
      triggers_(config.limits.most_triggered, due) {}

Status TargetInterface::prepare() noexcept {
  try {
    tables_.resize(config_.most_tables);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  if (const Status status = counters_.prepare(); status != Status::kOk) return status;
  if (const Status status = triggers_.prepare(kMostTargetCounters); status != Status::kOk) return status;
  return resources_.prepare();
}

QueueId TargetInterface::make_queue(const TargetEventRing& ring) noexcept {
  TargetEventWriter* const queue = queues_.take();
  if (queue == nullptr) return kNoQueue;
  if (queue->attach(ring)) return QueueId{queue->pool_id};
  queues_.give_back(*queue);
  return kNoQueue;
}

void TargetInterface::free_queue(QueueId id) noexcept {
  if (TargetEventWriter* const queue = find(id)) queues_.give_back(*queue);
}

void TargetInterface::free_counter(CounterId id) noexcept {
  if (!counters_.free(id)) return;
  triggers_.cancel(counter_index(id), [this](const TriggeredAction& action) { forget(action); });
}

void TargetInterface::change_counter(const TargetCountChange& change) noexcept {
  if (!counters_.is_live(change.counter)) return;
  const bool adds = change.kind == TargetCountChange::Kind::kAdd;
  changed(change.counter,
          adds ? counters_.add(change.counter, change.amount) : counters_.set(change.counter, change.amount));
}

void TargetInterface::changed(CounterId id, const TargetCount& count) noexcept {
  ++told_;
  triggers_.reached(counter_index(id), count.sum());
}

Status TargetInterface::trigger(const TargetTrigger& when, const TriggeredAction& action) noexcept {
  if (!counters_.is_live(when.counter)) return Status::kUnsupported;
  return triggers_.add(counter_index(when.counter), counters_.read(when.counter).sum(), when.threshold,
                       action);
}

Status TargetInterface::trigger_append(const TargetTrigger& when, std::uint32_t index, TargetListKind list,
                                       const TargetDescription& description, TargetId& id,
                                       const TargetReach& reach) noexcept {
  id = kNoTarget;
  TargetTable* const its = table(index);
  if (its == nullptr) return Status::kUnsupported;
  if (const Status status = its->prepare(description, list, id, reach); status != Status::kOk) return status;
  const Status status = trigger(when, TriggeredAppend{index, id});
  if (status != Status::kOk) its->drop(std::exchange(id, kNoTarget));
  return status;
}

void TargetInterface::carry_out(const TriggeredAction& action) noexcept {
  if (const auto* const change = std::get_if<TargetCountChange>(&action)) change_counter(*change);
  if (const auto* const append = std::get_if<TriggeredAppend>(&action))
    if (TargetTable* const its = table(append->table)) its->link(append->id);
  if (const auto* const unlink = std::get_if<TriggeredUnlink>(&action))
    if (TargetTable* const its = table(unlink->table)) static_cast<void>(its->unlink(unlink->id));
}

/// An entry that will not be appended is gone.
void TargetInterface::forget(const TriggeredAction& action) noexcept {
  if (const auto* const append = std::get_if<TriggeredAppend>(&action))
    if (TargetTable* const its = table(append->table)) its->drop(append->id);
}

void TargetInterface::cancel_triggered(CounterId id) noexcept {
  if (!counters_.is_live(id)) return;
  triggers_.cancel(counter_index(id), [this](const TriggeredAction& action) { forget(action); });
}

Status TargetInterface::make_table(std::uint32_t index, QueueId queue, bool has_flow_control) noexcept {
  const bool has_queue = find(queue) != nullptr;
  if (index >= tables_.size() || (has_flow_control && !has_queue)) return Status::kUnsupported;
  if (tables_[index] != nullptr) return Status::kAgain;
  tables_[index].reset(new (std::nothrow) Index(*this, {index, has_queue, has_flow_control}, queue));
  return tables_[index] == nullptr ? Status::kNoMemory : Status::kOk;
}

Status TargetInterface::free_table(std::uint32_t index) noexcept {
  const TargetTable* const one = table(index);
  if (one == nullptr) return Status::kUnsupported;
  if (!one->is_unused() || !tables_[index]->lock.is_idle()) return Status::kAgain;
  tables_[index].reset();
  return Status::kOk;
}

TargetTable* TargetInterface::table(std::uint32_t index) noexcept {
  return index < tables_.size() && tables_[index] != nullptr ? &tables_[index]->table : nullptr;
}

TargetLock* TargetInterface::lock(std::uint32_t index) noexcept {
  const bool has_one = config_.has_locks && index < tables_.size() && tables_[index] != nullptr;
  return has_one ? &tables_[index]->lock : nullptr;
}

bool TargetInterface::identify(std::uint32_t peer, ProcessId process, UserId user) noexcept {
  try {
    if (peer >= identities_.size()) identities_.resize(std::size_t{peer} + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  identities_[peer] = {process, user, true};
  return true;
}

TargetPlacement TargetInterface::arrive(std::uint32_t peer, std::uint32_t table_index,
                                        TargetHeader& header) noexcept {
  const bool is_known = peer < identities_.size() && identities_[peer].is_known;
  header.key.initiator = is_known ? identities_[peer].process : make_logical_id(peer);
  header.user = is_known ? identities_[peer].user : config_.user;
  if (!is_known && config_.identifies_all) {
    ++resources_.registers.permission_violations;
    return TargetPlacement::refused(TargetFailure::kPermissionViolation);
  }
  if (TargetTable* const found = table(table_index)) return found->arrive(header);
  ++resources_.registers.drops;
  return TargetPlacement::refused(TargetFailure::kDropped);
}

TargetPlacement TargetInterface::arrive_in_runs(std::uint32_t peer, std::uint32_t table_index,
                                                TargetHeader& header, TargetRuns runs) noexcept {
  const std::uint64_t length_bytes = header.length_bytes;
  header.length_bytes = runs.span_bytes(length_bytes);
  TargetPlacement placement = arrive(peer, table_index, header);
  const bool has_room = placement.length_bytes == header.length_bytes;
  header.length_bytes = length_bytes;
  if (placement.is_refused()) return placement;
  placement.length_bytes = has_room ? length_bytes : 0;
  if (has_room) return placement;
  table(table_index)->finish(placement, header, TargetFailure::kDropped);
  ++resources_.registers.drops;
  return TargetPlacement::refused(TargetFailure::kDropped);
}

void TargetInterface::tell(QueueId queue, const TargetEvent& event) noexcept {
  TargetEventWriter* const found = find(queue);
  if (found == nullptr || (is_silent_ != nullptr && *is_silent_)) return;
  ++told_;
  found->push(event);
}

void TargetInterface::count(CounterId id, bool success, std::uint64_t amount) noexcept {
  if (!counters_.is_live(id) || (is_silent_ != nullptr && *is_silent_)) return;
  changed(id, counters_.add(id, success ? TargetCount{amount, 0} : TargetCount{0, amount}));
}

bool TargetInterface::Index::reserve(std::size_t events) noexcept {
  TargetEventWriter* const found = owner.find(queue);
  return found != nullptr && found->reserve(events);
}

void TargetInterface::Index::unreserve(std::size_t events) noexcept {
  if (TargetEventWriter* const found = owner.find(queue)) found->unreserve(events);
}

}  // namespace ch3_offload
