// What memcheck (valgrind) cannot see: that another process, or a device, has written memory of this process.
//
// Compiled without valgrind's headers, this has no effect. With them, it is some instructions that do nothing
// unless the process runs under memcheck.

#pragma once

#include <cstddef>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif

namespace ch3_offload {

/// Whether valgrind runs the process, and the library can see that.
inline bool under_memcheck() noexcept {
#ifdef RUNNING_ON_VALGRIND
  return RUNNING_ON_VALGRIND != 0;
#else
  return false;
#endif
}

/// Tells memcheck that this memory has been written from outside. Otherwise it reports each branch of the
/// program that depends on what it has received there.
inline void written_from_outside([[maybe_unused]] const std::byte* address,
                                 [[maybe_unused]] std::size_t length_bytes) noexcept {
#ifdef VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE
  static_cast<void>(VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE(address, length_bytes));
#endif
}

}  // namespace ch3_offload
