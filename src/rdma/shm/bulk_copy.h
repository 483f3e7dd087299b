// Copies directly between two processes (process_vm_writev, process_vm_readv).

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace ch3_offload {

enum class BulkMethod {
  kAutomatic,  ///< write() for long payloads, where it is faster.
  kStream,     ///< No write(): all payload is copied through the ring.
  kCma,        ///< write() for all but short payloads (cross-memory attach).
};

/// With kAutomatic: what is shorter goes through the ring, and whether the rest should be written is found
/// out (rdma/write_choice.h). Bytes.
inline constexpr std::size_t kLeastTimedBytes = std::size_t{128} << 10;
/// From this length on, it is written until more is known: a copy by the kernel takes 0.2 to 0.7 of the
/// ring's time where the cores share no cache, and 1.3 times, with streams up to 3 times, where they do.
/// Bytes.
inline constexpr std::size_t kLeastWrittenBytes = std::size_t{512} << 10;

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
