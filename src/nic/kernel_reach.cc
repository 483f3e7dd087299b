#include "nic/kernel_reach.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ch3_offload {

bool are_in_kernel_reach(std::span<const std::span<const std::byte>> all) noexcept {
  std::array<iovec, 64> there;
  std::array<std::byte, there.size()> copies;
  while (!all.empty()) {
    std::size_t count = 0;
    for (; !all.empty() && count + 2 <= there.size(); all = all.subspan(1)) {
      if (all.front().empty()) continue;
      auto* const first = const_cast<std::byte*>(all.front().data());
      there[count++] = {first, 1};
      there[count++] = {first + all.front().size() - 1, 1};
    }
    if (count == 0) continue;
    const iovec here{copies.data(), count};
    // By this thread: the process's first one may have ended.
    const ssize_t copied = ::process_vm_readv(::gettid(), &here, 1, there.data(), count, 0);
    if (copied != static_cast<ssize_t>(count) && (copied >= 0 || errno == EFAULT)) return false;
  }
  return true;
}

bool is_in_kernel_reach(const void* address, std::size_t length_bytes) noexcept {
  const std::span<const std::byte> one(static_cast<const std::byte*>(address), length_bytes);
  return are_in_kernel_reach({&one, 1});
}

}  // namespace ch3_offload
