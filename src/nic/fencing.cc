#include "nic/fencing.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ch3_offload {
namespace {

long membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0); }

}  // namespace

Fencing fencing_of_threads() noexcept {
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 ? Fencing::kAsymmetric : Fencing::kFull;
}

bool fence_sleeper(Fencing fencing) noexcept {
  return fencing == Fencing::kFull || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

}  // namespace ch3_offload
