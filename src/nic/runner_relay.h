// Threads that take turns at running the loop of a processor that serves other processes. One of them runs
// it: the runner. A page of a client may come late (userfaultfd, swap, a file on a slow server), and the
// kernel's copy waits for it. The other clients do not:
//
//   the runner                  copies          waits for the page   asks for its place, goes on in the midst
//                                                                    of the client's turn
//   a spare thread, meanwhile   looks twice     is the runner        gives it back between two turns
//
// All that the loop works with belongs to the runner. While a copy is late, the loop leaves the client alone
// whose turn it is in, and what that turn has begun (ClientMemory::is_late()).
//
// A copy is late if its thread sleeps in it, which the kernel says of the thread (/proc). A long copy is not
// late, nor is one whose thread has lost its core: both go on by themselves, and a spare thread would need
// that core, too.
//
// A copy costs an atomic store and an exchange more. A spare thread looks every 4 ms, every 0.2 ms during a
// copy that gives way, and not while the runner sleeps.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "nic/client_memory.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {

class RunnerRelay final : public MemoryCopier {
 public:
  /// Runs until there is no more to do (false), or until is_asked() (true). It begins in the midst of another
  /// thread's turn, unless it is the first.
  using Loop = std::function<bool()>;

  /// Without a descriptor or a thread, the loop waits for late pages.
  RunnerRelay() noexcept;
  ~RunnerRelay() override = default;

  /// Runs the loop, in this thread and others, until it says that there is no more to do. A copy that is
  /// late even then waits for memory that may never come: the process ends.
  void run(Loop loop);

  // By the runner.

  /// Whether a thread wants its place back.
  bool is_asked() const noexcept { return is_asked_.load(std::memory_order_relaxed); }
  /// Readable while that is so. -1: it never is.
  int descriptor() const noexcept { return bell_.get(); }
  /// How often the place has been taken: if it was during a call, the loop has gone on meanwhile.
  std::uint64_t takeovers() const noexcept { return takeovers_; }
  void sleeps() noexcept { is_asleep_.store(true, std::memory_order_relaxed); }
  void wakes() noexcept;

  ssize_t copy(pid_t thread, const iovec& here, std::span<const iovec> there,
               bool is_write) noexcept override;
  ssize_t copy_by_file(const FileDescriptor& memory, const iovec& here, std::span<const iovec> there,
                       bool is_write) noexcept override;
  bool may_have(pid_t pid, const iovec& there, bool is_write) noexcept override;
  void give_way() noexcept override { gives_way_ = true; }

 private:
  std::uint64_t begin() noexcept;
  void end(std::uint64_t copy) noexcept;
  void take_part(bool is_runner);
  bool become_runner();
  bool watch(std::unique_lock<std::mutex>& lock);
  bool runner_sleeps() const noexcept;
  void give_place() noexcept;
  void end_all();
  void add_spare();

  Loop loop_;
  const FileDescriptor bell_;  ///< An eventfd.

  // The runner's.
  std::uint64_t copies_ = 0;
  std::uint64_t takeovers_ = 0;
  bool gives_way_ = false;  ///< With the next copy.

  /// The number of the runner's copy. 0: it is in none. Who changes it to 0 is the runner: the thread of the
  /// copy when it is over, or a spare one. Released with the copy's begin, acquired by a spare one.
  alignas(64) std::atomic<std::uint64_t> copying_{0};
  std::atomic<pid_t> runner_{0};  ///< Its thread. Released and acquired with `copying_`.
  std::atomic<bool> is_asked_{false};
  std::atomic<bool> is_asleep_{false};
  std::atomic<bool> is_dozing_{false};  ///< The spare thread does not look: whoever wakes, wakes it.

  std::mutex mutex_;  ///< Of all below.
  std::condition_variable looks_;
  std::condition_variable spares_;
  std::condition_variable returns_;
  std::uint64_t hurried_ = 0;   ///< The copy whose runner gives way at once.
  std::uint64_t asked_ = 0;     ///< Threads that have asked for their place,
  std::uint64_t returned_ = 0;  ///< and that have got it.
  std::uint64_t away_ = 0;      ///< Threads whose place was taken, and that have not got it back.
  bool is_watched_ = false;     ///< A spare thread looks.
  bool ends_ = false;
  std::vector<std::thread> others_;  ///< All but that of run().
};

}  // namespace ch3_offload
