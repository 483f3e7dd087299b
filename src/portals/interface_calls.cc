// portals4.h: the library, its interfaces, maps of ranks, and who this process is.

#include <algorithm>
#include <climits>

#include "portals/call.h"
#include "portals/translation.h"

using namespace ch3_offload;
using namespace ch3_offload::portals;

namespace {

/// The interface of an object that is there. Null: it is not.
Interface* owner_of(Library& library, ptl_handle_any_t handle) {
  Interface* const interface = library.interface_with(handle);
  if (interface == nullptr) return nullptr;
  bool exists = false;
  switch (kind_of(handle)) {
    case HandleKind::kInterface: exists = interface->handle() == handle; break;
    case HandleKind::kQueue: exists = interface->queues.find(handle) != nullptr; break;
    case HandleKind::kCounter: exists = interface->counters.is_live(handle); break;
    case HandleKind::kDescriptor: exists = interface->descriptors.find(handle) != nullptr; break;
    // An entry that is not linked any more still tells its interface: only the port knows.
    case HandleKind::kListEntry:
    case HandleKind::kMatchEntry: exists = entry_of(handle).opening == interface->entry_opening(); break;
  }
  return exists ? interface : nullptr;
}

}  // namespace

int PtlInit(void) { return Library::instance().init(); }
void PtlFini(void) { Library::instance().fini(); }
void PtlAbort(void) { Library::instance().abort(); }

int PtlNIInit(ptl_interface_t iface, unsigned int options, ptl_pid_t pid, const ptl_ni_limits_t* desired,
              ptl_ni_limits_t* actual, ptl_handle_ni_t* ni_handle) {
  Library& library = Library::instance();
  if (!library.is_ready()) return PTL_NO_INIT;
  const std::optional<unsigned> number = interface_number(options);
  if ((iface != PTL_IFACE_DEFAULT && iface != 0) || !number || ni_handle == nullptr) return PTL_ARG_INVALID;
  const std::optional<std::uint32_t> wanted = pid == PTL_PID_ANY ? std::nullopt : std::optional(pid);
  try {
    Library::Lock lock = library.lock();
    Interface* interface = nullptr;
    const int code = library.open_interface(lock, *number, wanted, desired, interface);
    if (code != PTL_OK) return code;
    if (actual != nullptr) *actual = interface->limits();
    *ni_handle = interface->handle();
    return PTL_OK;
  } catch (const std::bad_alloc&) {
    return PTL_NO_SPACE;
  }
}

int PtlNIFini(ptl_handle_ni_t ni_handle) {
  Library& library = Library::instance();
  if (!library.is_ready()) return PTL_NO_INIT;
  Library::Lock lock = library.lock();
  Interface* const interface = library.find_interface(ni_handle);
  if (interface == nullptr) return PTL_ARG_INVALID;
  library.release_interface(lock, *interface);
  return PTL_OK;
}

int PtlNIStatus(ptl_handle_ni_t ni_handle, ptl_sr_index_t status_register, ptl_sr_value_t* status) {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) {
    const TargetRegisterWords& registers = interface.board().registers;
    const std::atomic<std::uint64_t>* word = nullptr;
    switch (status_register) {
      case PTL_SR_DROP_COUNT: word = &registers.drops; break;
      case PTL_SR_PERMISSION_VIOLATIONS: word = &registers.permission_violations; break;
      case PTL_SR_OPERATION_VIOLATIONS: word = &registers.operation_violations; break;
    }
    if (word == nullptr || status == nullptr) return PTL_ARG_INVALID;
    library.work();
    *status =
        static_cast<ptl_sr_value_t>(std::min<std::uint64_t>(word->load(std::memory_order_relaxed), INT_MAX));
    return PTL_OK;
  });
}

int PtlNIHandle(ptl_handle_any_t handle, ptl_handle_ni_t* ni_handle) {
  const auto find = [handle](Library& library) { return owner_of(library, handle); };
  return call(find, [ni_handle](Library&, Library::Lock&, Interface& interface) {
    if (ni_handle == nullptr) return PTL_ARG_INVALID;
    *ni_handle = interface.handle();
    return PTL_OK;
  });
}

int PtlSetMap(ptl_handle_ni_t ni_handle, ptl_size_t map_size, const ptl_process_t* mapping) {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    if (!interface.is_logical() || map_size == 0 || map_size > PTL_RANK_ANY || mapping == nullptr)
      return PTL_ARG_INVALID;
    std::vector<ProcessId> ranks(map_size);
    std::transform(mapping, mapping + map_size, ranks.begin(), physical_id_of);
    const Status status = library.port().set_ranks(interface.number(), ranks);
    if (status != Status::kOk) return code_of(status);
    interface.set_ranks(std::move(ranks));
    return PTL_OK;
  });
}

int PtlGetMap(ptl_handle_ni_t ni_handle, ptl_size_t map_size, ptl_process_t* mapping,
              ptl_size_t* actual_map_size) {
  return with_interface(ni_handle, [&](Library&, Library::Lock&, Interface& interface) {
    if (!interface.is_logical() || (map_size > 0 && mapping == nullptr) || actual_map_size == nullptr)
      return PTL_ARG_INVALID;
    const auto ranks = interface.ranks().first(std::min<std::size_t>(map_size, interface.ranks().size()));
    std::transform(ranks.begin(), ranks.end(), mapping, [](ProcessId id) { return process_of(id, false); });
    *actual_map_size = interface.ranks().size();
    return PTL_OK;
  });
}

int PtlGetUid(ptl_handle_ni_t ni_handle, ptl_uid_t* uid) {
  return with_interface(ni_handle, [uid](Library& library, Library::Lock&, Interface&) {
    if (uid == nullptr) return PTL_ARG_INVALID;
    *uid = static_cast<ptl_uid_t>(library.process().user());
    return PTL_OK;
  });
}

int PtlGetId(ptl_handle_ni_t ni_handle, ptl_process_t* id) {
  return with_interface(ni_handle, [id](Library& library, Library::Lock&, Interface& interface) {
    if (id == nullptr) return PTL_ARG_INVALID;
    const ProcessId self = library.process().self();
    if (!interface.is_logical()) {
      *id = process_of(self, false);
      return PTL_OK;
    }
    const auto ranks = interface.ranks();
    const auto found = std::find(ranks.begin(), ranks.end(), self);
    if (found == ranks.end()) return PTL_ARG_INVALID;
    *id = process_of(make_logical_id(static_cast<std::uint32_t>(found - ranks.begin())), true);
    return PTL_OK;
  });
}

int PtlGetPhysId(ptl_handle_ni_t ni_handle, ptl_process_t* id) {
  return with_interface(ni_handle, [id](Library& library, Library::Lock&, Interface&) {
    if (id == nullptr) return PTL_ARG_INVALID;
    *id = process_of(library.process().self(), false);
    return PTL_OK;
  });
}

int PtlStartBundle(ptl_handle_ni_t ni_handle) {
  return with_interface(ni_handle, [](Library&, Library::Lock&, Interface& interface) {
    ++interface.bundles;
    return PTL_OK;
  });
}

int PtlEndBundle(ptl_handle_ni_t ni_handle) {
  return with_interface(ni_handle, [](Library&, Library::Lock&, Interface& interface) {
    if (interface.bundles == 0) return PTL_ARG_INVALID;
    --interface.bundles;
    return PTL_OK;
  });
}

int PtlHandleIsEqual(ptl_handle_any_t handle1, ptl_handle_any_t handle2) {
  return handle1 == handle2 ? 1 : 0;
}
