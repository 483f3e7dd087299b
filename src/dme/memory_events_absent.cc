// Replaces memory_events.cc in a library that was built without UCX's headers.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dme/memory_events.h"

namespace ch3_offload {

Result<std::unique_ptr<MemoryEvents>> MemoryEvents::watch(Unmapped, void*) {
  return Error{Status::kUnsupported, 0,
               "this libch3offload was built without UCX (install its headers, libucx-dev on Debian, and "
               "build it again)"};
}

MemoryEvents::~MemoryEvents() = default;

void* MemoryEvents::remap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags,
                          void* new_address) noexcept {
  const long result = syscall(SYS_mremap, address, old_bytes, new_bytes, flags, new_address);
  return reinterpret_cast<void*>(result);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace ch3_offload
