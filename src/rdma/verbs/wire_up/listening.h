// Where a process listens for introductions: its addresses and its TCP port.

#pragma once

#include <cstdint>
#include <vector>

#include "rdma/file_descriptor.h"
#include "rdma/log.h"
#include "rdma/status.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {

/// Listens at each of `address.hosts`, at the same port, which it sets. An address after the first that does
/// not work is logged and taken out. Errors: no port of the range is free; the first address does not work.
Result<std::vector<FileDescriptor>> listen_for_introductions(const VerbsConfig& config, const Log& log,
                                                             VerbsAddress& address);

}  // namespace ch3_offload
