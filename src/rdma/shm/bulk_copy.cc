#include "rdma/shm/bulk_copy.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "rdma/file_descriptor.h"

namespace ch3_offload {
namespace {

using Clock = std::chrono::steady_clock;

/// The most that one system call copies. The kernel pins pages in small groups, so longer calls gain nothing.
constexpr std::size_t kBulkChunkBytes = std::size_t{64} << 20;

/// Returns the time of the fastest of several runs. Slower runs were disturbed.
template <class Work>
Clock::duration fastest(int runs, Work work) {
  Clock::duration best = Clock::duration::max();
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    work();
    best = std::min(best, Clock::now() - start);
  }
  return best;
}

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

std::size_t calibrate_write_threshold(std::size_t ring_bytes, bool share_one_core) {
  constexpr std::size_t kSizes[] = {std::size_t{64} << 10, std::size_t{256} << 10, std::size_t{1} << 20};
  constexpr int kRuns = 3;
  std::vector<std::byte> source(kSizes[2], std::byte{1});
  std::vector<std::byte> target(kSizes[2], std::byte{2});
  std::vector<std::byte> ring(ring_bytes, std::byte{3});
  const auto direct = [&](std::size_t size) {
    return copy_to_process(::getpid(), reinterpret_cast<std::uintptr_t>(target.data()), source.data(), size);
  };
  if (direct(1) != RemoteCopy::kDone) return SIZE_MAX;
  // All copies measured here are in one core. With a core for each process, each does half of the work,
  // either way, and a byte changes cores twice through the ring, once in a copy by the kernel. A change of
  // cores is counted as a copy between buffers, of which the ring takes two:
  //
  //   by_call / 2 + by_ring / 2 < by_ring / 2 + 2 * (by_ring / 2), that is by_call < 2 * by_ring
  const int most = share_one_core ? 1 : 2;
  std::size_t threshold = SIZE_MAX;
  for (const std::size_t size : kSizes) {
    const auto by_call = fastest(kRuns, [&] { static_cast<void>(direct(size)); });
    const auto by_ring = fastest(kRuns, [&] {
      for (std::size_t at = 0; at < size; at += ring_bytes) {
        const std::size_t part = std::min(ring_bytes, size - at);
        std::memcpy(ring.data(), source.data() + at, part);
        std::memcpy(target.data() + at, ring.data(), part);
      }
    });
    if (by_call >= most * by_ring)
      threshold = SIZE_MAX;
    else if (threshold == SIZE_MAX)
      threshold = size;
  }
  return threshold;
}

}  // namespace ch3_offload
