// Stands in for topology.cc where hwloc is missing.

#include "nic/topology.h"

namespace ch3_offload {

Result<Topology> read_topology() {
  return Error{Status::kUnsupported, 0,
               "libch3offload was built without hwloc (install libhwloc-dev and build it again)"};
}

}  // namespace ch3_offload
