// Copying straight into another process's memory (process_vm_writev), and when that pays.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace ch3_offload {

enum class BulkMethod {
  kAutomatic,  ///< write() where the calibration says that it pays.
  kStream,     ///< Never write(): everything is copied through the ring.
  kCma,        ///< write() always (cross-memory attach).
};

enum class RemoteCopy {
  kDone,
  kRefused,  ///< Not allowed here (EPERM, ENOSYS, ESRCH, ...); nothing was written. errno is kept.
  kGone,     ///< The process vanished on the way.
  kFault,    ///< Not memory of that process that the kernel can pin (or not of ours); part may be written.
};

/// Copies into the memory of process `pid`. Blocks for as long as the copy takes.
RemoteCopy copy_to_process(pid_t pid, std::uint64_t destination, const std::byte* source,
                           std::size_t length_bytes) noexcept;

inline constexpr const char* kYamaScope = "/proc/sys/kernel/yama/ptrace_scope";

/// Lets any process of this user write into this one (and trace it: PR_SET_PTRACER_ANY) where Yama grants
/// that to ancestors only, as its scope 1 does; peers are no ancestors. For the rest of the process's life.
/// `scope_file`: says which scope; without it there is no Yama.
void let_peers_write(const char* scope_file = kYamaScope) noexcept;

/// From which length on one copy by process_vm_writev is expected to beat two copies through a buffer of
/// `ring_bytes`; SIZE_MAX: never, or not allowed. Measures for at most about 2 ms.
std::size_t calibrate_write_threshold(std::size_t ring_bytes);

}  // namespace ch3_offload
