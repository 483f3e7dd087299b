// portals4.h: list entries and match list entries.

#include <new>
#include <optional>

#include "portals/call.h"
#include "portals/iovec.h"
#include "portals/translation.h"

using namespace ch3_offload;
using namespace ch3_offload::portals;

namespace {

/// Which initiators match `match_id`: the process, and the part of it that may differ.
TargetKey initiator_key(const Interface& interface, const ptl_process_t& match_id,
                        TargetKey& ignore) noexcept {
  TargetKey key;
  if (interface.is_logical()) {
    key.initiator = make_logical_id(match_id.rank);
    ignore.initiator = match_id.rank == PTL_RANK_ANY ? kAnyProcess : kExactProcess;
    return key;
  }
  key.initiator = physical_id_of(match_id);
  const std::uint64_t any_nid = match_id.phys.nid == PTL_NID_ANY ? number_of(kAnyNid) : 0;
  const std::uint64_t any_pid = match_id.phys.pid == PTL_PID_ANY ? number_of(kAnyPid) : 0;
  ignore.initiator = ProcessId{any_nid | any_pid};
  return key;
}

/// What both kinds of entries have. Returns false if it is wrong. The layout of one in pieces is missing.
template <class Entry>
bool describe_memory(const Interface& interface, const Entry& entry,
                     TargetDescription& description) noexcept {
  if (!find_counter(interface, entry.ct_handle, description.counter)) return false;
  description.options = entry_options(entry.options);
  description.user = UserId{entry.uid};
  description.start = static_cast<std::byte*>(entry.start);
  description.length_bytes = entry.length;
  if ((entry.options & PTL_IOVEC) == 0) return true;
  if (entry.length > static_cast<ptl_size_t>(interface.limits().max_iovecs)) return false;
  const std::optional<std::uint64_t> length_bytes = length_of_iovec(entry.start, entry.length);
  if (!length_bytes) return false;
  description.start = nullptr;
  description.length_bytes = *length_bytes;
  return true;
}

bool describe(const Interface& interface, const ptl_le_t& le, TargetDescription& description) noexcept {
  return !interface.has_matching() && (le.options & ~PTL_LE_APPEND_OPTIONS_MASK) == 0 &&
         describe_memory(interface, le, description);
}

bool describe(const Interface& interface, const ptl_me_t& me, TargetDescription& description) noexcept {
  if (!interface.has_matching() || (me.options & ~PTL_ME_APPEND_OPTIONS_MASK) != 0) return false;
  description.ignore = {};
  description.key = initiator_key(interface, me.match_id, description.ignore);
  description.key.bits = MatchBits{me.match_bits};
  description.ignore.bits = MatchBits{me.ignore_bits};
  description.min_free_bytes = me.min_free;
  return describe_memory(interface, me, description);
}

/// When a call of this page has its effect. Without it: now.
struct AppendStart {
  ptl_handle_ct_t counter;
  ptl_size_t threshold;
};

/// Returns false if there is no such counting event.
bool find_trigger(const Interface& interface, const AppendStart& start, TargetTrigger& trigger) noexcept {
  trigger = {interface.counters.id_of(start.counter), start.threshold};
  return trigger.counter != kNoCounter;
}

template <class Entry>
int append(HandleKind kind, ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const Entry* entry,
           ptl_list_t ptl_list, void* user_ptr, ptl_handle_any_t* handle,
           const std::optional<AppendStart>& start = {}) noexcept {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    TargetDescription description;
    if (!interface.has_table(pt_index) || ptl_list > PTL_OVERFLOW_LIST || entry == nullptr ||
        handle == nullptr || !describe(interface, *entry, description))
      return PTL_ARG_INVALID;
    TargetTrigger trigger;
    if (start && !find_trigger(interface, *start, trigger)) return PTL_ARG_INVALID;
    description.cookie = user_ptr;
    if ((entry->options & PTL_IOVEC) != 0 && description.length_bytes > 0) {
      try {
        description.layout =
            &interface.layouts.prepare(static_cast<const ptl_iovec_t*>(entry->start), entry->length);
      } catch (const std::bad_alloc&) {
        return PTL_NO_SPACE;
      }
    }
    EntryName name{interface.entry_opening(), pt_index, kNoTarget};
    const Status status =
        start ? library.port().trigger_append(trigger, interface.number(), pt_index, list_of(ptl_list),
                                              description, name.id)
              : library.port().append(interface.number(), pt_index, list_of(ptl_list), description, name.id);
    if (name.id == kNoTarget)
      interface.layouts.forget();
    else
      interface.layouts.name(name.id);
    if (status == Status::kAgain) return PTL_LIST_TOO_LONG;
    if (status != Status::kOk) return code_of(status);
    *handle = name.id == kNoTarget ? PTL_INVALID_HANDLE : make_entry_handle(kind, interface.number(), name);
    return PTL_OK;
  });
}

/// Whether that is a handle of that kind of entry. The entry may be gone.
bool is_entry(const Interface& interface, HandleKind kind, ptl_handle_any_t handle) noexcept {
  const EntryName name = entry_of(handle);
  return kind_of(handle) == kind && name.opening == interface.entry_opening() &&
         interface.has_table(name.table);
}

int unlink(HandleKind kind, ptl_handle_any_t handle) noexcept {
  return with_interface_of(handle, [=](Library& library, Library::Lock&, Interface& interface) {
    const EntryName name = entry_of(handle);
    if (!is_entry(interface, kind, handle)) return PTL_ARG_INVALID;
    switch (library.port().unlink(interface.number(), name.table, name.id)) {
      case TargetTable::Unlinked::kOk: interface.layouts.drop(name.id); return PTL_OK;
      case TargetTable::Unlinked::kInUse: return PTL_IN_USE;
      case TargetTable::Unlinked::kUnknown: break;
    }
    return PTL_ARG_INVALID;
  });
}

template <class Entry>
int search(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const Entry* entry, ptl_search_op_t operation,
           void* user_ptr) noexcept {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) {
    TargetDescription description;
    if (!interface.has_table(pt_index) || operation > PTL_SEARCH_DELETE || entry == nullptr ||
        !describe(interface, *entry, description))
      return PTL_ARG_INVALID;
    description.cookie = user_ptr;
    const bool deletes = operation == PTL_SEARCH_DELETE;
    library.port().search(interface.number(), pt_index,
                          deletes ? TargetTable::SearchMode::kDelete : TargetTable::SearchMode::kOnly,
                          description);
    return PTL_OK;
  });
}

}  // namespace

int PtlLEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_le_t* le, ptl_list_t ptl_list,
                void* user_ptr, ptl_handle_le_t* le_handle) {
  return append(HandleKind::kListEntry, ni_handle, pt_index, le, ptl_list, user_ptr, le_handle);
}
int PtlLEUnlink(ptl_handle_le_t le_handle) { return unlink(HandleKind::kListEntry, le_handle); }
int PtlLESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_le_t* le,
                ptl_search_op_t ptl_search_op, void* user_ptr) {
  return search(ni_handle, pt_index, le, ptl_search_op, user_ptr);
}

int PtlMEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_me_t* me, ptl_list_t ptl_list,
                void* user_ptr, ptl_handle_me_t* me_handle) {
  return append(HandleKind::kMatchEntry, ni_handle, pt_index, me, ptl_list, user_ptr, me_handle);
}
int PtlMEUnlink(ptl_handle_me_t me_handle) { return unlink(HandleKind::kMatchEntry, me_handle); }
int PtlMESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_me_t* me,
                ptl_search_op_t ptl_search_op, void* user_ptr) {
  return search(ni_handle, pt_index, me, ptl_search_op, user_ptr);
}

int PtlTriggeredMEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_me_t* me,
                         ptl_list_t ptl_list, void* user_ptr, ptl_handle_me_t* me_handle,
                         ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold) {
  return append(HandleKind::kMatchEntry, ni_handle, pt_index, me, ptl_list, user_ptr, me_handle,
                AppendStart{trig_ct_handle, threshold});
}

int PtlTriggeredMEUnlink(ptl_handle_me_t me_handle, ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold) {
  return with_interface_of(me_handle, [=](Library& library, Library::Lock&, Interface& interface) -> int {
    TargetTrigger trigger;
    const EntryName name = entry_of(me_handle);
    if (!is_entry(interface, HandleKind::kMatchEntry, me_handle) ||
        !find_trigger(interface, {trig_ct_handle, threshold}, trigger))
      return PTL_ARG_INVALID;
    return code_of(library.port().trigger_unlink(trigger, interface.number(), name.table, name.id));
  });
}
