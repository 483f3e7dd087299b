// Tells when memory leaves the address space, or gets other pages: by the hooks of UCX's libucm on munmap, mmap (MAP_FIXED), mremap,
// shmat, shmdt, brk, sbrk and madvise (DONTNEED, FREE, REMOVE), whoever calls them in the process. malloc is not replaced.
//
// libucm is loaded when it is first wanted: a process without a network provider has no hooks.
// Not seen: system calls that bypass libc, the loader's own among them (dlclose), and a file that is made shorter under its
// mapping (ftruncate, fallocate).

#pragma once

#include <cstddef>
#include <memory>

#include "rdma/status.h"

namespace ch3_offload {

class MemoryEvents {
 public:
  /// Called before the range goes, in the thread that takes it away, perhaps in the midst of an allocator: must not allocate,
  /// nor wait for anybody who does.
  using Unmapped = void (*)(void* argument, const void* address, std::size_t length_bytes) noexcept;

  /// Starts watching, and tries each of these calls on memory of its own. An error names the call that was not seen (a library
  /// replaced it) or says that there is no libucm (also: a static program), or a sanitizer's malloc; then nothing is watched.
  /// From one thread at a time; best when the process starts. The hooks stay for the life of the process.
  static Result<std::unique_ptr<MemoryEvents>> watch(Unmapped unmapped, void* argument);

  MemoryEvents(const MemoryEvents&) = delete;
  MemoryEvents& operator=(const MemoryEvents&) = delete;
  /// When it returns, no call of `unmapped` is under way.
  ~MemoryEvents();

  /// mremap(2), for those whose mremap() libucm has hooked: its hook knows four arguments, and what MREMAP_FIXED
  /// names is the fifth. From any thread, with hooks or without. Errors: as mremap(2).
  static void* remap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags,
                     void* new_address) noexcept;

 private:
  MemoryEvents(Unmapped unmapped, void* argument) noexcept : unmapped_(unmapped), argument_(argument) {}

  friend struct UcmHooks;
  const Unmapped unmapped_;
  void* const argument_;
};

}  // namespace ch3_offload
