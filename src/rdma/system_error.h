// Turns a failed system call of set-up into an Error that a user can act on.

#pragma once

#include <string_view>

#include "rdma/status.h"

namespace ch3_offload {

/// "`what` failed: <strerror>"; for a limit that was reached, which one, its value and the remedy.
/// Status kNoMemory for EMFILE, ENFILE, ENOMEM and ENOBUFS, kPeerFailed for ECONNREFUSED and
/// ECONNRESET, otherwise kDeviceFailed.
Error system_error(std::string_view what, int error_number);

}  // namespace ch3_offload
