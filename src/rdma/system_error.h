// Describes a failed system call as an Error that a user can act on.

#pragma once

#include <string_view>

#include "rdma/status.h"

namespace ch3_offload {

/// Returns an Error with the message "`what` failed: <strerror>". If a limit of open files was reached, the
/// message also says how to raise it.
///
///   errno                                            status
///   EMFILE, ENFILE, ENOMEM, ENOBUFS, ETOOMANYREFS    kNoMemory
///   ECONNREFUSED, ECONNRESET, EPIPE                  kPeerFailed
///   all others                                       kDeviceFailed
Error system_error(std::string_view what, int error_number);

}  // namespace ch3_offload
