#include "engine/targets/target_interface.h"

#include <new>

namespace ch3_offload {

TargetInterface::TargetInterface(const TargetInterfaceConfig& config) noexcept
    : config_(config), resources_(config.limits) {}

Status TargetInterface::prepare() noexcept {
  try {
    tables_.resize(config_.most_tables);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  return resources_.prepare();
}

QueueId TargetInterface::make_queue(std::size_t events) noexcept {
  TargetEventQueue* const queue = queues_.take();
  if (queue == nullptr) return kNoQueue;
  if (queue->prepare(events, config_.most_tables)) return QueueId{queue->pool_id};
  queues_.give_back(*queue);
  return kNoQueue;
}

void TargetInterface::free_queue(QueueId id) noexcept {
  if (TargetEventQueue* const queue = find(id)) queues_.give_back(*queue);
}

bool TargetInterface::next_event(QueueId id, TargetEvent& event, bool& lost) noexcept {
  TargetEventQueue* const queue = find(id);
  return queue != nullptr && queue->take(event, lost);
}

CounterId TargetInterface::make_counter() noexcept {
  const Counter* const counter = counters_.take();
  return counter == nullptr ? kNoCounter : CounterId{counter->pool_id};
}

void TargetInterface::free_counter(CounterId id) noexcept {
  if (Counter* const one = counters_.find(static_cast<std::uint64_t>(id))) counters_.give_back(*one);
}

TargetCount* TargetInterface::counter(CounterId id) noexcept {
  return counters_.find(static_cast<std::uint64_t>(id));
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
  if (!one->is_unused()) return Status::kAgain;
  tables_[index].reset();
  return Status::kOk;
}

TargetTable* TargetInterface::table(std::uint32_t index) noexcept {
  return index < tables_.size() && tables_[index] != nullptr ? &tables_[index]->table : nullptr;
}

bool TargetInterface::identify(std::uint32_t peer, ProcessId process, UserId user) noexcept {
  try {
    identities_[peer] = {process, user};
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

Placement TargetInterface::arrive(std::uint32_t peer, std::uint32_t table_index,
                                  TargetHeader& header) noexcept {
  const auto known = identities_.find(peer);
  const bool is_known = known != identities_.end();
  header.key.initiator = is_known ? known->second.process : make_logical_id(peer);
  header.user = is_known ? known->second.user : config_.user;
  if (TargetTable* const found = table(table_index)) return found->arrive(header);
  ++resources_.registers.drops;
  Placement dropped;
  dropped.failure = TargetFailure::kDropped;
  return dropped;
}

void TargetInterface::tell(QueueId queue, const TargetEvent& event) noexcept {
  if (TargetEventQueue* const found = find(queue)) found->push(event);
}

void TargetInterface::count(CounterId id, bool success, std::uint64_t amount) noexcept {
  TargetCount* const found = counter(id);
  if (found != nullptr) (success ? found->success : found->failure) += amount;
}

bool TargetInterface::Index::reserve(std::size_t events) noexcept {
  TargetEventQueue* const found = owner.find(queue);
  return found != nullptr && found->reserve(events);
}

void TargetInterface::Index::unreserve(std::size_t events) noexcept {
  if (TargetEventQueue* const found = owner.find(queue)) found->unreserve(events);
}

}  // namespace ch3_offload
