// gperftools' tcmalloc brings its own mmap, munmap and mremap, which call the kernel past the C library and so past libucm's hooks.
// It has hooks of its own for those who want to know.

#pragma once

#include <cstddef>

namespace ch3_offload {

/// Called with a range: memory is about to go, or has come.
using RangeCall = void (*)(void* address, std::size_t length_bytes);

/// Has tcmalloc, where the process has it, call these for what its calls do, from now on. Once in a process; not thread-safe.
/// False: there is no tcmalloc, or it refused.
bool watch_tcmalloc(RangeCall going, RangeCall come) noexcept;

}  // namespace ch3_offload
