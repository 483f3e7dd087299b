// Reports memory that leaves the address space or gets other pages.
//
// The events come from UCX's libucm, which hooks these calls of the whole process: munmap, mmap (MAP_FIXED),
// mremap, shmat, shmdt, brk, sbrk and madvise (DONTNEED, FREE, REMOVE). malloc is not replaced. libucm is
// loaded by the first watch(), so a process without a network provider has no hooks.
//
// Two kinds of events are not seen: system calls that bypass the C library, such as the loader's own
// (dlclose), and a mapped file that becomes shorter (ftruncate, fallocate).

#pragma once

#include <cstddef>
#include <memory>

#include "rdma/status.h"

namespace ch3_offload {

class MemoryEvents {
 public:
  /// Called before the range is unmapped, in the thread that unmaps it. That thread may be inside an
  /// allocator, so the function must not allocate, nor wait for a thread that allocates.
  using Unmapped = void (*)(void* argument, const void* address, std::size_t length_bytes) noexcept;

  /// Installs the hooks and tests each hooked call on memory of its own. The hooks stay for the life of the
  /// process. Call it from one thread at a time, best when the process starts.
  /// Errors, after which nothing is watched; the message says which: libucm is missing (always so in a static
  /// program); a call is not seen because another library replaced it; a sanitizer's malloc is in use.
  static Result<std::unique_ptr<MemoryEvents>> watch(Unmapped unmapped, void* argument);

  MemoryEvents(const MemoryEvents&) = delete;
  MemoryEvents& operator=(const MemoryEvents&) = delete;
  /// Waits until no call of `unmapped` is running.
  ~MemoryEvents();

  /// mremap(2) with all five arguments. libucm's hook of mremap() passes on four and so loses the address
  /// that MREMAP_FIXED needs. From any thread, with or without hooks. Errors: those of mremap(2).
  static void* remap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags,
                     void* new_address) noexcept;

 private:
  MemoryEvents(Unmapped unmapped, void* argument) noexcept : unmapped_(unmapped), argument_(argument) {}

  friend struct UcmHooks;
  const Unmapped unmapped_;
  void* const argument_;
};

}  // namespace ch3_offload
