// Which memory of this process the kernel copies for other processes (process_vm_readv): all but a device's
// (mappings of kind VM_IO or VM_PFNMAP) and secret memory (memfd_secret).
//
// Threads: any.

#pragma once

#include <cstddef>

namespace ch3_offload {

/// Whether a copy by another process would reach that memory. Asks the kernel for the first and for the last
/// byte, as a copy by this process from itself. Takes a system call, and as long as a page takes that comes
/// late. True: also if the kernel cannot be asked, or there are no bytes.
bool is_in_kernel_reach(const void* address, std::size_t length_bytes) noexcept;

}  // namespace ch3_offload
