// Descriptors and mappings that a forked child must not keep. A child that did (Python's multiprocessing
// forks) would hide its parent's death: the kernel would still take dials to the parent's port, and the
// device would answer for its queue pairs. A mapping of a device keeps it open, as a descriptor does.
//
// A process-wide list with a pthread_atfork() handler: before fork() returns, the child closes what is
// listed. If a device is, the child also unmaps the RDMA devices (/dev/infiniband/uverbs*). libibverbs maps
// them, and a child may not use them anyway (ibv_fork_init(3)). vfork() and posix_spawn() need none of it:
// the descriptors are close-on-exec, and mappings end there.
//
// Threads: any. A mutex guards the list; it is held across fork(), so that the child finds the list whole.

#pragma once

#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "rdma/file_descriptor.h"

namespace ch3_offload {

/// Lists `descriptor` until the object is destroyed. Does not own it. Destroy the object before the
/// descriptor is closed.
class ForkClosing {
 public:
  ForkClosing() = default;
  enum class Kind : std::uint8_t { kSocket, kDevice };
  /// Throws std::bad_alloc.
  explicit ForkClosing(int descriptor, Kind kind = Kind::kSocket);
  ForkClosing(ForkClosing&& other) noexcept;
  ForkClosing& operator=(ForkClosing&& other) noexcept;
  ~ForkClosing();

 private:
  void forget() noexcept;

  int descriptor_ = -1;  ///< -1: none.
};

/// A descriptor that is listed as long as it is open.
class ForkClosedDescriptor {
 public:
  ForkClosedDescriptor() = default;
  /// Without memory for the list, a child keeps it.
  explicit ForkClosedDescriptor(FileDescriptor descriptor) noexcept : descriptor_(std::move(descriptor)) {
    try {
      if (valid()) closing_ = ForkClosing(descriptor_.get());
    } catch (const std::bad_alloc&) {
    }
  }
  ForkClosedDescriptor(ForkClosedDescriptor&&) noexcept = default;
  ForkClosedDescriptor& operator=(ForkClosedDescriptor&& other) noexcept {
    if (this == &other) return *this;
    reset();
    descriptor_ = std::move(other.descriptor_);
    closing_ = std::move(other.closing_);
    return *this;
  }

  operator const FileDescriptor&() const noexcept { return descriptor_; }
  int get() const noexcept { return descriptor_.get(); }
  bool valid() const noexcept { return descriptor_.valid(); }
  void reset() noexcept {
    closing_ = ForkClosing();
    descriptor_.reset();
  }

 private:
  FileDescriptor descriptor_;
  ForkClosing closing_;  ///< Ends before the descriptor.
};

/// Unmaps all mappings of files whose path begins with `path`. Async-signal-safe. Without /proc it has no
/// effect.
void unmap_files(std::string_view path) noexcept;

}  // namespace ch3_offload
