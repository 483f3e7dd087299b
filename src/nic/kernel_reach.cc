#include "nic/kernel_reach.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ch3_offload {

bool is_in_kernel_reach(const void* address, std::size_t length_bytes) noexcept {
  if (length_bytes == 0) return true;
  auto* const first = static_cast<std::byte*>(const_cast<void*>(address));
  const std::array<iovec, 2> there{iovec{first, 1}, iovec{first + length_bytes - 1, 1}};
  std::array<std::byte, there.size()> copies;
  const iovec here{copies.data(), copies.size()};
  // By this thread: the process's first one may have ended.
  const ssize_t copied = ::process_vm_readv(::gettid(), &here, 1, there.data(), there.size(), 0);
  return copied == static_cast<ssize_t>(copies.size()) || (copied < 0 && errno != EFAULT);
}

}  // namespace ch3_offload
