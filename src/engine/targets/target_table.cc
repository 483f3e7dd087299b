#include "engine/targets/target_table.h"

#include <utility>

#include "engine/payload_layout.h"

namespace ch3_offload {

namespace {

TargetEventKind event_of(TargetOperation operation) noexcept {
  switch (operation) {
    case TargetOperation::kPut: return TargetEventKind::kPut;
    case TargetOperation::kGet: return TargetEventKind::kGet;
    case TargetOperation::kAtomic: return TargetEventKind::kAtomic;
    default: return TargetEventKind::kFetchAtomic;
  }
}

TargetEventKind overflow_event_of(TargetOperation operation) noexcept {
  switch (operation) {
    case TargetOperation::kPut: return TargetEventKind::kPutOverflow;
    case TargetOperation::kGet: return TargetEventKind::kGetOverflow;
    case TargetOperation::kAtomic: return TargetEventKind::kAtomicOverflow;
    default: return TargetEventKind::kFetchAtomicOverflow;
  }
}

/// What an entry must allow for that operation.
std::uint32_t permission_for(TargetOperation operation) noexcept {
  switch (operation) {
    case TargetOperation::kPut:
    case TargetOperation::kAtomic: return kAllowPut;
    case TargetOperation::kGet: return kAllowGet;
    default: return kAllowPut | kAllowGet;
  }
}

TargetFailure violation_of(const TargetEntry& entry, const TargetHeader& header) noexcept {
  if (entry.its.user != kAnyUser && entry.its.user != header.user) return TargetFailure::kPermissionViolation;
  const std::uint32_t needed = permission_for(header.operation);
  return (entry.its.options & needed) == needed ? TargetFailure::kNone : TargetFailure::kOperationViolation;
}

/// The event of an operation whose data is in `entry`.
TargetEvent make_event(TargetEventKind kind, TargetFailure failure, const TargetPlacement& placement,
                       const TargetHeader& header, void* cookie) noexcept {
  TargetEvent event;
  event.kind = kind;
  event.failure = failure;
  event.list = placement.entry->list;
  event.table = placement.entry->table;
  event.cookie = cookie;
  event.start = placement.start();
  event.length_bytes = placement.length_bytes;
  event.header = header;
  return event;
}

/// Where the data of a header is.
TargetPlacement placement_of(const UnexpectedHeader& header) noexcept {
  TargetPlacement placement;
  placement.entry = header.entry;
  placement.offset_bytes = header.offset_bytes;
  placement.length_bytes = header.length_bytes;
  return placement;
}

bool is_allowed(const PayloadLayout* layout, std::uint64_t length_bytes) noexcept {
  return layout == nullptr ||
         (layout->kind == PayloadLayout::Kind::kPieces && layout->piece_count > 0 &&
          layout->piece_count <= kMostEntryPieces && layout->element_bytes == length_bytes);
}

}  // namespace

std::byte* TargetPlacement::start_in_pieces() const noexcept {
  const TargetDescription& its = entry->its;
  std::byte* found = its.start;
  if (offset_bytes < its.length_bytes)
    for_each_run({its.start, its.length_bytes, its.layout}, offset_bytes, 1,
                 [&](std::byte* memory, std::size_t) { found = memory; });
  return found;
}

void TargetTable::tell(TargetEventKind kind, TargetListKind list, void* cookie,
                       TargetFailure failure) noexcept {
  TargetEvent event;
  event.kind = kind;
  event.failure = failure;
  event.list = list;
  event.table = config_.index;
  event.cookie = cookie;
  listener_.on_event(event);
}

void TargetTable::tell_auto_unlink(std::uint32_t options, TargetListKind list, void* cookie) noexcept {
  if (wants(options, kNoUnlinkEvent)) tell(TargetEventKind::kAutoUnlink, list, cookie);
}

/// `amount`: of the operation, in bytes; 1 if its options do not count bytes.
void TargetTable::count(CounterId counter, bool counts, TargetFailure failure,
                        std::uint64_t amount) noexcept {
  if (!counts || counter == kNoCounter) return;
  const bool success = failure == TargetFailure::kNone;
  listener_.on_count(counter, success, success ? amount : 1);
}

Status TargetTable::append(const TargetDescription& description, TargetListKind list, TargetId& id,
                           const TargetReach& reach) noexcept {
  id = kNoTarget;
  if (is_allowed(description.layout, description.length_bytes) && is_full_for(description, list))
    return Status::kAgain;
  if (const Status status = prepare(description, list, id, reach); status != Status::kOk) return status;
  TargetEntry& entry = *resources_.find(std::exchange(id, kNoTarget));
  entry.is_prepared = false;
  const std::uint64_t its_id = entry.pool_id;
  const Status status = link(entry);
  if (resources_.find(TargetId{its_id}) != nullptr && entry.is_linked) id = TargetId{its_id};
  return status;
}

/// Whether the list has no room for it. One that is used once may find a header before it needs room.
bool TargetTable::is_full_for(const TargetDescription& description, TargetListKind list) noexcept {
  const bool may_find = list == TargetListKind::kPriority && description.has(kUseOnce);
  return !has_room_for(description, list_of(list)) && !may_find;
}

bool TargetTable::has_room_for(const TargetDescription& description, const TargetList& list) const noexcept {
  return list.size() < resources_.limits().most_list_entries && list.takes(description.ignore);
}

Status TargetTable::prepare(const TargetDescription& description, TargetListKind list, TargetId& id,
                            const TargetReach& reach) noexcept {
  id = kNoTarget;
  if (!is_allowed(description.layout, description.length_bytes)) return Status::kUnsupported;
  TargetEntry* const entry = resources_.take_entry();
  if (entry == nullptr) return Status::kNoMemory;
  ++live_entries_;
  entry->its = description;
  entry->reach = reach;
  entry->table = config_.index;
  entry->list = list;
  entry->is_prepared = true;
  id = TargetId{entry->pool_id};
  return Status::kOk;
}

TargetEntry* TargetTable::find_prepared(TargetId id) noexcept {
  TargetEntry* const entry = resources_.find(id);
  return entry != nullptr && entry->table == config_.index && entry->is_prepared ? entry : nullptr;
}

void TargetTable::link(TargetId id) noexcept {
  TargetEntry* const entry = find_prepared(id);
  if (entry == nullptr) return;
  entry->is_prepared = false;
  const TargetDescription its = entry->its;
  const TargetListKind list = entry->list;
  if (link(*entry) != Status::kOk && wants(its.options, kNoLinkEvent))
    tell(TargetEventKind::kLink, list, its.cookie, TargetFailure::kDropped);
}

void TargetTable::drop(TargetId id) noexcept {
  TargetEntry* const entry = find_prepared(id);
  if (entry == nullptr) return;
  entry->is_prepared = false;
  free_if_unused(*entry);
}

/// Frees the entry if it has not linked. kAgain: the list is full.
Status TargetTable::link(TargetEntry& entry) noexcept {
  const bool drains = entry.list == TargetListKind::kPriority;
  TargetList& entries = list_of(entry.list);
  const bool is_full = !has_room_for(entry.its, entries);
  ++entry.in_flight;  // A header that is whole gives it up at once. It must not free the entry yet.
  const bool used_up = drains && !is_full_for(entry.its, entry.list) && drain(entry, &entry).used_up;
  --entry.in_flight;
  if (used_up || is_full) {
    free_if_unused(entry);
    return used_up ? Status::kOk : Status::kAgain;
  }
  entry.is_linked = true;
  entries.append(entry);
  if (wants(entry.its.options, kNoLinkEvent)) tell(TargetEventKind::kLink, entry.list, entry.its.cookie);
  return Status::kOk;
}

/// Takes the headers that wait for such an entry. `taker`: the entry itself, or null for a search.
TargetTable::Drained TargetTable::drain(TargetEntry& entry, TargetEntry* taker) noexcept {
  Drained drained;
  const bool advances = entry.its.has(kManageLocal) && entry.its.has(kAdvanceByUnexpected);
  headers_.for_each_match(entry.its.key, entry.its.ignore, [&](UnexpectedHeader& header) {
    if (!entry.can_take(header.header)) return true;
    drained.found = true;
    drained.used_up = entry.its.has(kUseOnce);
    if (advances) {
      const std::uint64_t room_bytes = entry.room_behind(entry.local_offset_bytes);
      entry.local_offset_bytes += std::min(header.header.length_bytes, room_bytes);
      drained.used_up = drained.used_up || entry.is_used_up();
    }
    take(header, {taker, entry.its.options, entry.its.counter, entry.its.cookie,
                  taker != nullptr && drained.used_up});
    return !drained.used_up;
  });
  return drained;
}

/// Takes a header out of the list.
void TargetTable::take(UnexpectedHeader& header, const HeaderTaker& taker) noexcept {
  headers_.remove(header);
  header.is_taken = true;
  header.taker = taker;
  if (taker.entry != nullptr) ++taker.entry->headers;
  if (!header.is_in_flight) settle(header, TargetFailure::kNone);
}

/// Ends a header that is in no list. If it was taken, its overflow event comes now.
void TargetTable::settle(UnexpectedHeader& header, TargetFailure failure) noexcept {
  TargetEntry& entry = *header.entry;
  const HeaderTaker taker = header.taker;
  if (header.is_taken) {
    const bool counts_bytes = (taker.options & kCountBytes) != 0;
    if (wants(taker.options, kNoOverflowEvent))
      listener_.on_event(make_event(overflow_event_of(header.header.operation), failure, placement_of(header),
                                    header.header, taker.cookie));
    count(taker.counter, (taker.options & kCountOverflow) != 0, failure,
          counts_bytes ? header.length_bytes : 1);
    if (taker.unlink_follows) tell_auto_unlink(taker.options, TargetListKind::kPriority, taker.cookie);
  }
  resources_.give_back(header);
  --entry.headers;
  free_if_unused(entry);
  if (taker.entry == nullptr) return;
  --taker.entry->headers;
  free_if_unused(*taker.entry);
}

void TargetTable::search(const TargetDescription& description, SearchMode mode) noexcept {
  TargetEntry seeker;
  seeker.its = description;
  bool found = false;
  const bool counts_overflow = description.has(kCountOverflow);
  if (mode == SearchMode::kDelete) {
    found = drain(seeker, nullptr).found;
  } else {
    headers_.for_each_match(description.key, description.ignore, [&](UnexpectedHeader& header) {
      if (!seeker.can_take(header.header)) return true;
      found = true;
      if (wants(description.options, kNoCommEvent))
        listener_.on_event(make_event(TargetEventKind::kSearch, TargetFailure::kNone, placement_of(header),
                                      header.header, description.cookie));
      count(description.counter, counts_overflow, TargetFailure::kNone,
            description.has(kCountBytes) ? header.length_bytes : 1);
      return !description.has(kUseOnce);
    });
  }
  if (!found && wants(description.options, kNoCommEvent))
    tell(TargetEventKind::kSearch, TargetListKind::kOverflow, description.cookie, TargetFailure::kNoMatch);
  // A search that is not to be used once ends because nothing more matches.
  if (!found || !description.has(kUseOnce))
    count(description.counter, counts_overflow, TargetFailure::kNoMatch, 0);
}

TargetTable::Unlinked TargetTable::unlink(TargetId id) noexcept {
  TargetEntry* const entry = resources_.find(id);
  if (entry == nullptr || entry->table != config_.index) return Unlinked::kUnknown;
  if (entry->in_flight > 0 || entry->headers > 0 || entry->is_prepared) return Unlinked::kInUse;
  list_of(entry->list).remove(*entry);
  entry->is_linked = false;
  free_if_unused(*entry);
  return Unlinked::kOk;
}

/// Frees an entry that is in no list and that nothing refers to.
void TargetTable::free_if_unused(TargetEntry& entry) noexcept {
  if (entry.is_linked || entry.in_flight > 0 || entry.headers > 0) return;
  if (entry.has_reserved_event) listener_.unreserve(1);
  if (entry.was_auto_unlinked && entry.list == TargetListKind::kOverflow &&
      wants(entry.its.options, kNoUnlinkEvent))
    tell(TargetEventKind::kAutoFree, entry.list, entry.its.cookie);
  --live_entries_;
  resources_.give_back(entry);
}

TargetPlacement TargetTable::refuse(TargetFailure failure) noexcept {
  TargetRegisterWords& registers = resources_.registers;
  switch (failure) {
    case TargetFailure::kPermissionViolation: ++registers.permission_violations; break;
    case TargetFailure::kOperationViolation: ++registers.operation_violations; break;
    default: ++registers.drops;
  }
  TargetPlacement refused;
  refused.failure = failure;
  return refused;
}

/// Entries, headers or events have run out. `tells`: the client wants to hear of it.
TargetPlacement TargetTable::run_dry(bool tells) noexcept {
  if (!config_.has_flow_control) return refuse(TargetFailure::kDropped);
  is_enabled_ = false;
  owes_disabled_event_ = tells;
  tell_disabled_if_due();
  return refuse(TargetFailure::kTableDisabled);
}

void TargetTable::tell_disabled_if_due() noexcept {
  if (!owes_disabled_event_ || in_flight_ > 0) return;
  owes_disabled_event_ = false;
  if (config_.has_events) tell(TargetEventKind::kTableDisabled, TargetListKind::kPriority, nullptr);
}

TargetPlacement TargetTable::arrive(const TargetHeader& header) noexcept {
  if (!is_enabled_) return refuse(TargetFailure::kTableDisabled);
  TargetEntry* entry = priority_.find(header);
  if (entry == nullptr) entry = overflow_.find(header);
  if (entry == nullptr) return run_dry(true);
  const TargetFailure violation = violation_of(*entry, header);
  if (violation != TargetFailure::kNone) return refuse(violation);
  TargetPlacement placement = place(*entry, header);
  const bool keeps_header = entry->list == TargetListKind::kOverflow && !entry->its.has(kNoUnexpectedHeader);
  const bool has_room = (!keeps_header || resources_.has_header()) && reserve_events(placement);
  if (!has_room) return run_dry(!entry->its.has(kNoFlowControlEvent));
  if (keeps_header) placement.header = &resources_.take_header();
  commit(placement, header);
  return placement;
}

/// Where the operation goes. Changes nothing.
inline TargetPlacement TargetTable::place(TargetEntry& entry, const TargetHeader& header) const noexcept {
  TargetPlacement placement;
  placement.entry = &entry;
  placement.list = entry.list;
  placement.is_untold = entry.its.has(kNoAcknowledgement);
  placement.offset_bytes = entry.offset_for(header.offset_bytes);
  const std::uint64_t room_bytes = entry.room_behind(placement.offset_bytes);
  placement.length_bytes = std::min(header.length_bytes, room_bytes);
  placement.unlinks =
      entry.its.has(kUseOnce) ||
      (entry.its.has(kManageLocal) && room_bytes - placement.length_bytes < entry.its.min_free_bytes);
  return placement;
}

/// Keeps room for the events that the operation can have. Returns false if there is not as much.
inline bool TargetTable::reserve_events(TargetPlacement& placement) noexcept {
  if (!config_.has_flow_control || !config_.has_events) return true;
  TargetEntry& entry = *placement.entry;
  const bool has_unlink_event = placement.unlinks && wants(entry.its.options, kNoUnlinkEvent);
  const bool has_free_event = has_unlink_event && entry.list == TargetListKind::kOverflow;
  placement.reserved_events = static_cast<std::uint8_t>(wants(entry.its.options, kNoCommEvent)) +
                              static_cast<std::uint8_t>(has_unlink_event);
  if (!listener_.reserve(placement.reserved_events + std::size_t{has_free_event})) return false;
  entry.has_reserved_event = has_free_event;
  return true;
}

inline void TargetTable::commit(TargetPlacement& placement, const TargetHeader& header) noexcept {
  TargetEntry& entry = *placement.entry;
  ++in_flight_;
  ++entry.in_flight;
  if (entry.its.has(kManageLocal)) entry.local_offset_bytes += placement.length_bytes;
  if (UnexpectedHeader* const kept = placement.header; kept != nullptr) {
    kept->header = header;
    kept->entry = &entry;
    kept->offset_bytes = placement.offset_bytes;
    kept->length_bytes = placement.length_bytes;
    ++entry.headers;
    headers_.append(*kept);
  }
  if (!placement.unlinks) return;
  list_of(entry.list).remove(entry);
  entry.is_linked = false;
  entry.was_auto_unlinked = true;
}

void TargetTable::finish(const TargetPlacement& placement, const TargetHeader& header,
                         TargetFailure failure) noexcept {
  TargetEntry& entry = *placement.entry;
  const TargetDescription& its = entry.its;
  if (placement.reserved_events > 0) listener_.unreserve(placement.reserved_events);
  const std::uint32_t disabling =
      failure == TargetFailure::kNone ? kNoCommEvent | kNoSuccessEvent : kNoCommEvent;
  if (wants(its.options, disabling))
    listener_.on_event(make_event(event_of(header.operation), failure, placement, header, its.cookie));
  count(its.counter, its.has(kCountComm), failure, its.has(kCountBytes) ? placement.length_bytes : 1);
  if (placement.unlinks) tell_auto_unlink(its.options, entry.list, its.cookie);
  --entry.in_flight;
  --in_flight_;
  if (UnexpectedHeader* const kept = placement.header; kept != nullptr) {
    kept->is_in_flight = false;
    const bool failed = failure != TargetFailure::kNone;
    if (failed && !kept->is_taken) headers_.remove(*kept);
    if (failed || kept->is_taken) settle(*kept, failure);
  } else {
    free_if_unused(entry);
  }
  tell_disabled_if_due();
}

}  // namespace ch3_offload
