// portals4.h: indices of the portal table.

#include "portals/call.h"

using namespace ch3_offload;
using namespace ch3_offload::portals;

int PtlPTAlloc(ptl_handle_ni_t ni_handle, unsigned int options, ptl_handle_eq_t eq_handle,
               ptl_pt_index_t pt_index_req, ptl_pt_index_t* pt_index) {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    QueueId queue;
    if ((options & ~PTL_PT_ALLOC_OPTIONS_MASK) != 0 || pt_index == nullptr ||
        !find_queue(interface, eq_handle, queue))
      return PTL_ARG_INVALID;
    const bool has_flow_control = (options & PTL_PT_FLOWCTRL) != 0;
    if (has_flow_control && queue == kNoQueue) return PTL_PT_EQ_NEEDED;
    std::uint32_t index = pt_index_req;
    if (pt_index_req == PTL_PT_ANY) {
      const std::optional<std::uint32_t> free = interface.free_table();
      if (!free) return PTL_PT_FULL;
      index = *free;
    } else if (index >= interface.most_tables()) {
      return PTL_ARG_INVALID;
    } else if (interface.has_table(index)) {
      return PTL_PT_IN_USE;
    }
    const Status status = library.port().make_table(interface.number(), index, queue, has_flow_control);
    if (status != Status::kOk) return code_of(status);
    // It has no entry yet, so nothing is in flight.
    if ((options & PTL_PT_ALLOC_DISABLED) != 0)
      static_cast<void>(library.port().disable_table(interface.number(), index));
    interface.set_table(index, true);
    *pt_index = index;
    return PTL_OK;
  });
}

int PtlPTFree(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index) {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    if (!interface.has_table(pt_index)) return PTL_ARG_INVALID;
    const Status status = library.port().free_table(interface.number(), pt_index);
    if (status == Status::kAgain) return PTL_IN_USE;
    if (status != Status::kOk) return code_of(status);
    interface.set_table(pt_index, false);
    return PTL_OK;
  });
}

int PtlPTDisable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index) {
  return with_interface(ni_handle, [&](Library& library, Library::Lock& lock, Interface& interface) -> int {
    // Another thread may free the table, or close the interface, while this one lets others work.
    while (interface.is_open() && interface.handle() == ni_handle && interface.has_table(pt_index)) {
      if (library.port().disable_table(interface.number(), pt_index)) return PTL_OK;
      library.work_and_yield(lock);
    }
    return PTL_ARG_INVALID;
  });
}

int PtlPTEnable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index) {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    if (!interface.has_table(pt_index)) return PTL_ARG_INVALID;
    library.port().enable_table(interface.number(), pt_index);
    return PTL_OK;
  });
}
