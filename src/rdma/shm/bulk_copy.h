// Copies directly between two processes (process_vm_writev, process_vm_readv).

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace ch3_offload {

enum class BulkMethod {
  kAutomatic,  ///< write() for long payloads.
  kStream,     ///< No write(): all payload is copied through the ring.
  kCma,        ///< write() for all but short payloads (cross-memory attach).
};

enum class RemoteCopy {
  kDone,
  kRefused,  ///< The kernel refused (EPERM, ENOSYS, ESRCH, ...). Nothing was written. errno says why.
  kGone,     ///< The process ended during the copy.
  kFault,    ///< The kernel cannot access the memory at one of the two ends. Part may have been written.
};

/// Copies into the memory of process `pid`. Returns when the copy is complete.
RemoteCopy copy_to_process(pid_t pid, std::uint64_t destination, const std::byte* source,
                           std::size_t length_bytes) noexcept;
/// Copies from the memory of process `pid`. Returns when the copy is complete.
RemoteCopy copy_from_process(pid_t pid, std::uint64_t source, std::byte* destination,
                             std::size_t length_bytes) noexcept;

inline constexpr const char* kYamaScope = "/proc/sys/kernel/yama/ptrace_scope";

/// Permits all processes of this user to write into this one, to read it and to trace it
/// (PR_SET_PTRACER_ANY), if Yama's scope is 1, which permits only ancestors; peers are not ancestors. Lasts
/// as long as the process. `scope_file` holds Yama's scope. If it does not exist, there is no Yama.
void let_peers_write(const char* scope_file = kYamaScope) noexcept;

/// Whether the kernel has these calls, and lets this process make them.
bool has_process_copies() noexcept;

}  // namespace ch3_offload
