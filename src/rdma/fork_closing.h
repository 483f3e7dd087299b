// Descriptors that a forked child must not keep. A child that did (Python's multiprocessing forks) would hide
// its parent's death: the kernel would still take dials to the parent's port, and the device would answer for
// its queue pairs.
//
// A process-wide list with a pthread_atfork() handler: the child closes what is listed before fork() returns.
// vfork() and posix_spawn() need none: the descriptors are close-on-exec.
//
// Threads: any. A mutex guards the list; it is held across fork(), so that the child finds the list whole.

#pragma once

namespace ch3_offload {

/// Lists `descriptor` until the object is destroyed. Does not own it. Destroy the object before the
/// descriptor is closed.
class ForkClosing {
 public:
  ForkClosing() = default;
  /// Throws std::bad_alloc.
  explicit ForkClosing(int descriptor);
  ForkClosing(ForkClosing&& other) noexcept;
  ForkClosing& operator=(ForkClosing&& other) noexcept;
  ~ForkClosing();

 private:
  void forget() noexcept;

  int descriptor_ = -1;  ///< -1: none.
};

}  // namespace ch3_offload
