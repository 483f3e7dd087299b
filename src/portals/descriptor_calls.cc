// portals4.h: memory descriptors.

#include "portals/call.h"
#include "portals/iovec.h"

using namespace ch3_offload;
using namespace ch3_offload::portals;

int PtlMDBind(ptl_handle_ni_t ni_handle, const ptl_md_t* md, ptl_handle_md_t* md_handle) {
  return with_interface(ni_handle, [&](Library&, Library::Lock&, Interface& interface) -> int {
    if (md == nullptr || md_handle == nullptr || (md->options & ~PTL_MD_OPTIONS_MASK) != 0)
      return PTL_ARG_INVALID;
    MemoryDescriptor::Reports reports;
    if (!find_queue(interface, md->eq_handle, reports.queue) ||
        !find_counter(interface, md->ct_handle, reports.counter))
      return PTL_ARG_INVALID;
    const ptl_ni_limits_t& limits = interface.limits();
    if ((md->options & PTL_IOVEC) != 0 &&
        (md->length > static_cast<ptl_size_t>(limits.max_iovecs) || !length_of_iovec(md->start, md->length)))
      return PTL_ARG_INVALID;
    if (interface.descriptors.live() >= static_cast<std::size_t>(limits.max_mds)) return PTL_NO_SPACE;
    *md_handle = interface.descriptors.add(std::make_shared<MemoryDescriptor>(*md, reports));
    return PTL_OK;
  });
}

int PtlMDRelease(ptl_handle_md_t md_handle) {
  return with_interface_of(md_handle, [md_handle](Library&, Library::Lock&, Interface& interface) -> int {
    if (interface.descriptors.find(md_handle) == nullptr) return PTL_ARG_INVALID;
    interface.descriptors.remove(md_handle);
    return PTL_OK;
  });
}
