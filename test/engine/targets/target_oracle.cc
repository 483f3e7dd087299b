#include "engine/targets/target_oracle.h"

#include <algorithm>

namespace ch3_offload {

namespace {

bool key_matches(const TargetDescription& its, const TargetHeader& header) {
  const std::uint64_t bits = number_of(its.key.bits) | number_of(its.ignore.bits);
  const std::uint64_t id = number_of(its.key.initiator) | number_of(its.ignore.initiator);
  return (number_of(header.key.bits) | number_of(its.ignore.bits)) == bits &&
         (number_of(header.key.initiator) | number_of(its.ignore.initiator)) == id;
}

TargetEventKind kind_of(TargetOperation operation, bool overflow) {
  int kind = static_cast<int>(std::min(operation, TargetOperation::kFetchAtomic)) * 2;
  if (operation == TargetOperation::kPut) kind = static_cast<int>(TargetEventKind::kPut);
  if (operation == TargetOperation::kGet) kind = static_cast<int>(TargetEventKind::kGet);
  return static_cast<TargetEventKind>(kind + (overflow ? 1 : 0));
}

}  // namespace

bool TargetOracle::fits(const Entry& entry, const TargetHeader& header) {
  if (!entry.its.has(kNoTruncate)) return true;
  const auto begin =
      static_cast<unsigned __int128>(entry.its.has(kManageLocal) ? entry.offset : header.offset_bytes);
  return begin + header.length_bytes <= entry.its.length_bytes;
}

void TargetOracle::tell(TargetEventKind kind, TargetFailure failure, TargetListKind list,
                        const TargetDescription& its, std::uint32_t disabling, const TargetHeader* header,
                        const Entry* memory, std::uint64_t offset, std::uint64_t length) {
  if (!config_.has_events || its.has(disabling)) return;
  TargetEvent event;
  event.kind = kind;
  event.failure = failure;
  event.list = list;
  event.table = config_.index;
  event.cookie = its.cookie;
  if (header != nullptr) {
    event.header = *header;
    event.start = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(memory->its.start) +
                                               std::min(offset, memory->its.length_bytes));
    event.length_bytes = length;
  }
  told.on_event(event);
}

void TargetOracle::count(const TargetDescription& its, std::uint32_t option, bool success,
                         std::uint64_t length) {
  if (!its.has(option) || its.counter == kNoCounter) return;
  told.on_count(its.counter, success, success && its.has(kCountBytes) ? length : 1);
}

void TargetOracle::release(const EntryPtr& entry) {
  if (--entry->uses > 0 || entry->linked) return;
  --entries_;
  if (entry->free_event_reserved) told.unreserve(1);
  if (entry->auto_unlinked && entry->list == TargetListKind::kOverflow)
    tell(TargetEventKind::kAutoFree, TargetFailure::kNone, entry->list, entry->its, kNoUnlinkEvent);
}

void TargetOracle::settle(const HeaderPtr& header, TargetFailure failure) {
  const EntryPtr taker = header->taker;
  if (header->taken) {
    tell(kind_of(header->header.operation, true), failure, TargetListKind::kOverflow, taker->its,
         kNoOverflowEvent, &header->header, header->entry.get(), header->offset, header->length);
    count(taker->its, kCountOverflow, failure == TargetFailure::kNone, header->length);
    if (header->unlink_follows)
      tell(TargetEventKind::kAutoUnlink, TargetFailure::kNone, TargetListKind::kPriority, taker->its,
           kNoUnlinkEvent);
  }
  --headers_;
  release(header->entry);
  if (header->taken && !header->searched) release(taker);
}

/// True: the entry is used up.
bool TargetOracle::drain(const EntryPtr& entry, bool searches, bool& found) {
  for (std::size_t i = 0; i < waiting_.size();) {
    const HeaderPtr header = waiting_[i];
    if (!key_matches(entry->its, header->header) || !fits(*entry, header->header)) {
      ++i;
      continue;
    }
    found = true;
    bool used_up = entry->its.has(kUseOnce);
    if (entry->its.has(kManageLocal) && entry->its.has(kAdvanceByUnexpected)) {
      const auto end = static_cast<unsigned __int128>(entry->offset) + header->header.length_bytes;
      entry->offset = static_cast<std::uint64_t>(std::min<unsigned __int128>(end, entry->its.length_bytes));
      if (entry->its.length_bytes - entry->offset < entry->its.min_free_bytes) used_up = true;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    header->taken = true;
    header->searched = searches;
    header->taker = entry;
    header->unlink_follows = used_up && !searches;
    if (!searches) ++entry->uses;
    if (!header->in_flight) settle(header, TargetFailure::kNone);
    if (used_up) return true;
  }
  return false;
}

Status TargetOracle::append(const TargetDescription& its, TargetListKind list, EntryPtr& linked) {
  linked = nullptr;
  const bool full = list_of(list).size() >= limits_.most_list_entries;
  if (full && (list == TargetListKind::kOverflow || !its.has(kUseOnce))) return Status::kAgain;
  if (entries_ >= limits_.most_entries) return Status::kNoMemory;
  ++entries_;
  const auto entry = std::make_shared<Entry>();
  entry->its = its;
  entry->list = list;
  entry->uses = 1;  // Until the end of this function.
  bool found = false;
  const bool used_up = list == TargetListKind::kPriority && drain(entry, false, found);
  if (!used_up && !full) {
    entry->linked = true;
    list_of(list).push_back(entry);
    tell(TargetEventKind::kLink, TargetFailure::kNone, list, its, kNoLinkEvent);
    linked = entry;
  }
  release(entry);
  return used_up || !full ? Status::kOk : Status::kAgain;
}

void TargetOracle::search(const TargetDescription& its, TargetTable::SearchMode mode) {
  const auto seeker = std::make_shared<Entry>();
  seeker->its = its;
  bool found = false;
  if (mode == TargetTable::SearchMode::kDelete) {
    drain(seeker, true, found);
  } else {
    for (const HeaderPtr& header : waiting_) {
      if (!key_matches(its, header->header) || !fits(*seeker, header->header)) continue;
      found = true;
      tell(TargetEventKind::kSearch, TargetFailure::kNone, TargetListKind::kOverflow, its, kNoCommEvent,
           &header->header, header->entry.get(), header->offset, header->length);
      count(its, kCountOverflow, true, header->length);
      if (its.has(kUseOnce)) break;
    }
  }
  if (!found)
    tell(TargetEventKind::kSearch, TargetFailure::kNoMatch, TargetListKind::kOverflow, its, kNoCommEvent);
  if (!found || !its.has(kUseOnce)) count(its, kCountOverflow, false, 0);
}

TargetTable::Unlinked TargetOracle::unlink(const EntryPtr& entry) {
  if (!entry->linked && entry->uses == 0) return TargetTable::Unlinked::kUnknown;
  if (entry->uses > 0) return TargetTable::Unlinked::kInUse;
  std::erase(list_of(entry->list), entry);
  entry->linked = false;
  --entries_;
  return TargetTable::Unlinked::kOk;
}

TargetOracle::Operation TargetOracle::run_dry(bool tells) {
  ++registers.drops;
  Operation refused;
  refused.failure = TargetFailure::kDropped;
  if (!config_.has_flow_control) return refused;
  refused.failure = TargetFailure::kTableDisabled;
  enabled = false;
  disabled_event_due_ = tells;
  tell_disabled();
  return refused;
}

void TargetOracle::tell_disabled() {
  if (!disabled_event_due_ || in_flight_ > 0) return;
  disabled_event_due_ = false;
  tell(TargetEventKind::kTableDisabled, TargetFailure::kNone, TargetListKind::kPriority, {}, 0);
}

TargetOracle::Operation TargetOracle::arrive(const TargetHeader& header) {
  Operation operation;
  if (!enabled) {
    ++registers.drops;
    operation.failure = TargetFailure::kTableDisabled;
    return operation;
  }
  for (const auto* list : {&priority_, &overflow_}) {
    for (const EntryPtr& entry : *list) {
      if (operation.entry == nullptr && key_matches(entry->its, header) && fits(*entry, header))
        operation.entry = entry;
    }
  }
  if (operation.entry == nullptr) return run_dry(true);
  Entry& entry = *operation.entry;
  const bool gets = header.operation != TargetOperation::kPut && header.operation != TargetOperation::kAtomic;
  const bool puts = header.operation != TargetOperation::kGet;
  if (entry.its.user != kAnyUser && entry.its.user != header.user) {
    ++registers.permission_violations;
    operation.failure = TargetFailure::kPermissionViolation;
    return operation;
  }
  if ((puts && !entry.its.has(kAllowPut)) || (gets && !entry.its.has(kAllowGet))) {
    ++registers.operation_violations;
    operation.failure = TargetFailure::kOperationViolation;
    return operation;
  }
  operation.offset = entry.its.has(kManageLocal) ? entry.offset : header.offset_bytes;
  const std::uint64_t room =
      operation.offset > entry.its.length_bytes ? 0 : entry.its.length_bytes - operation.offset;
  operation.length = std::min(room, header.length_bytes);
  const std::uint64_t left = room - operation.length;
  operation.unlinks =
      entry.its.has(kUseOnce) ||
      (entry.its.has(kManageLocal) && entry.its.min_free_bytes != 0 && left < entry.its.min_free_bytes);
  const bool overflow = entry.list == TargetListKind::kOverflow;
  const bool keeps = overflow && !entry.its.has(kNoUnexpectedHeader);
  bool frees = false;
  if (keeps && headers_ >= limits_.most_headers) return run_dry(!entry.its.has(kNoFlowControlEvent));
  if (config_.has_flow_control && config_.has_events) {
    const bool tells_unlink = operation.unlinks && !entry.its.has(kNoUnlinkEvent);
    frees = tells_unlink && overflow;
    operation.reserved = (entry.its.has(kNoCommEvent) ? 0u : 1u) + (tells_unlink ? 1u : 0u);
    if (!told.reserve(operation.reserved + (frees ? 1u : 0u)))
      return run_dry(!entry.its.has(kNoFlowControlEvent));
  }
  entry.free_event_reserved = frees;
  ++in_flight_;
  ++entry.uses;
  if (entry.its.has(kManageLocal)) entry.offset += operation.length;
  if (keeps) {
    ++headers_;
    ++entry.uses;
    operation.header = std::make_shared<Header>();
    operation.header->header = header;
    operation.header->entry = operation.entry;
    operation.header->offset = operation.offset;
    operation.header->length = operation.length;
    waiting_.push_back(operation.header);
  }
  if (operation.unlinks) {
    std::erase(list_of(entry.list), operation.entry);
    entry.linked = false;
    entry.auto_unlinked = true;
  }
  return operation;
}

void TargetOracle::finish(const Operation& operation, const TargetHeader& header, TargetFailure failure) {
  const EntryPtr entry = operation.entry;
  const bool success = failure == TargetFailure::kNone;
  told.unreserve(operation.reserved);
  tell(kind_of(header.operation, false), failure, entry->list, entry->its,
       success ? kNoCommEvent | kNoSuccessEvent : kNoCommEvent, &header, entry.get(), operation.offset,
       operation.length);
  count(entry->its, kCountComm, success, operation.length);
  if (operation.unlinks)
    tell(TargetEventKind::kAutoUnlink, TargetFailure::kNone, entry->list, entry->its, kNoUnlinkEvent);
  --in_flight_;
  release(entry);
  if (operation.header != nullptr) {
    operation.header->in_flight = false;
    if (!success) std::erase(waiting_, operation.header);
    if (!success || operation.header->taken) settle(operation.header, failure);
  }
  tell_disabled();
}

}  // namespace ch3_offload
