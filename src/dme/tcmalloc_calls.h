// Hooks of gperftools' tcmalloc. tcmalloc has its own mmap, munmap and mremap, which bypass the C library and
// so libucm's hooks. It reports such calls to hooks of its own.

#pragma once

#include <cstddef>

namespace ch3_offload {

/// Called with a range of memory that is about to be unmapped, or that was mapped.
using RangeCall = void (*)(void* address, std::size_t length_bytes);

/// Makes tcmalloc call `going` when it unmaps memory and `come` when it has mapped memory. Returns false if
/// the process has no tcmalloc, or if tcmalloc refuses. Call it once in a process. Not thread-safe.
bool watch_tcmalloc(RangeCall going, RangeCall come) noexcept;

}  // namespace ch3_offload
