#include "rdma/shm/bulk_copy.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rdma/file_descriptor.h"

namespace ch3_offload {
namespace {

/// The most that one system call copies. The kernel pins pages in small groups, so longer calls gain nothing.
constexpr std::size_t kBulkChunkBytes = std::size_t{64} << 20;

/// `call`: process_vm_writev or process_vm_readv.
template <class Call>
RemoteCopy copy_by(Call call, pid_t pid, std::byte* here, std::uint64_t there,
                   std::size_t length_bytes) noexcept {
  std::size_t done = 0;
  while (done < length_bytes) {
    const std::size_t length = std::min(length_bytes - done, kBulkChunkBytes);
    const iovec local{here + done, length};
    const iovec remote{reinterpret_cast<void*>(there + done), length};
    const ssize_t copied = call(pid, &local, 1, &remote, 1, 0);
    if (copied > 0) {
      done += static_cast<std::size_t>(copied);
      continue;
    }
    if (copied < 0 && errno == EINTR) continue;
    if (copied == 0 || errno == EFAULT) return RemoteCopy::kFault;
    return done == 0 ? RemoteCopy::kRefused : RemoteCopy::kGone;
  }
  return RemoteCopy::kDone;
}

}  // namespace

RemoteCopy copy_to_process(pid_t pid, std::uint64_t destination, const std::byte* source,
                           std::size_t length_bytes) noexcept {
  return copy_by(::process_vm_writev, pid, const_cast<std::byte*>(source), destination, length_bytes);
}

RemoteCopy copy_from_process(pid_t pid, std::uint64_t source, std::byte* destination,
                             std::size_t length_bytes) noexcept {
  return copy_by(::process_vm_readv, pid, destination, source, length_bytes);
}

void let_peers_write(const char* scope_file) noexcept {
  const FileDescriptor file(::open(scope_file, O_RDONLY | O_CLOEXEC));
  char scope = 0;
  if (!file.valid() || ::read(file.get(), &scope, 1) != 1 || scope != '1') return;
  static_cast<void>(::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0));  // On failure payload is streamed.
}

bool has_process_copies() noexcept {
  std::byte target{};
  const std::byte source{1};
  // The process is known by this thread: its first one may have ended.
  return copy_to_process(::gettid(), reinterpret_cast<std::uintptr_t>(&target), &source, 1) ==
         RemoteCopy::kDone;
}

}  // namespace ch3_offload
