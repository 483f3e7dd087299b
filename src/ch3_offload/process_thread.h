// The thread that runs the engines of this process with the thread driver: MPI's and that of Portals. The
// first client starts it, and it ends with the last one.
//
// So two clients of a process, which know nothing of each other, have one processor and one progress.
//
// Threads: any.

#pragma once

#include <memory>

#include "nic/nic_thread.h"
#include "nic/wait_policy.h"
#include "rdma/status.h"

namespace ch3_offload {

/// `wait`: how it waits, if it is new. A child of fork() has one of its own. Errors as NicThread::start().
/// Throws std::bad_alloc.
Result<std::shared_ptr<NicThread>> find_or_start_process_thread(const WaitPolicy& wait);

}  // namespace ch3_offload
