// A thread of network processing in the client's process. It runs the works that its users have given to it:
// engines, and the servers of their clients. MPI and Portals of one process share one thread.
//
// The thread polls while there is traffic, and sleeps when there is none (waiter.h, as a waiting client).
// It takes no signal but those of faults, and holds no lock.
//
// Threads: each function says which.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "nic/fencing.h"
#include "nic/waiter.h"
#include "rdma/file_descriptor.h"
#include "rdma/processor_set.h"
#include "rdma/status.h"

namespace ch3_offload {

/// What such a thread runs. The thread alone calls it, from NicThread::add() to NicThread::remove().
class NicWork {
 public:
  /// Works without waiting. Returns how many things happened.
  virtual std::size_t turn() noexcept = 0;
  /// Announces a sleep. Returns false, with no effect, if there is work. "The sleep rule"
  /// (rdma/shm/doorbell.h).
  virtual bool arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
  /// While it is armed: adds what ends the sleep.
  virtual void add_to(SleepSet& set) const noexcept = 0;
  /// Brings up to date what its client reads of it. Called before a sleep, and about once in a millisecond.
  virtual void tell_counters() noexcept {}

 protected:
  ~NicWork() = default;
};

class NicThread {
 public:
  /// Begins. `wait`: how it waits. kNoMemory, kDeviceFailed: no thread.
  static Result<std::shared_ptr<NicThread>> start(const WaitPolicy& wait);
  /// Ends the thread. REQUIRES: it runs nothing, and is not the caller.
  ~NicThread();
  NicThread(const NicThread&) = delete;
  NicThread& operator=(const NicThread&) = delete;

  /// From now on the thread runs on `processors` only. kDeviceFailed: it may not, and runs where it could
  /// before. Any thread.
  std::optional<Error> bind(const ProcessorSet& processors);

  /// Returns when the thread runs `work`, too. Any thread but this one. kNoMemory: it does not, as it runs
  /// kMostWorks others.
  std::optional<Error> add(NicWork& work);
  /// Returns when the thread does not run `work` any more. Has no effect if it did not. Any thread but this
  /// one.
  void remove(NicWork& work) noexcept;

  /// From its beginning to its end the thread runs nothing. Any thread but this one. Nothing is added or
  /// removed meanwhile.
  class Pause {
   public:
    explicit Pause(NicThread& thread) noexcept;
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    NicThread& thread_;
    const std::scoped_lock<std::mutex> lock_;
  };

  /// Whether the caller is the thread.
  bool runs_here() const noexcept;
  /// True for the first caller in this process: it tells the user what concerns the thread and not its works,
  /// and is the same when MPI begins again. Any thread.
  static bool first_to_say() noexcept { return !is_said_.exchange(true, std::memory_order_relaxed); }
  /// Of the commands of its clients that are threads of this process. Constant.
  Fencing fencing() const noexcept { return fencing_; }

 private:
  static constexpr std::size_t kMostWorks = 16;
  struct Works {
    std::array<NicWork*, kMostWorks> works{};
    std::size_t count = 0;

    std::span<NicWork* const> all() const noexcept { return std::span(works).first(count); }
  };

  NicThread(const WaitPolicy& wait, FileDescriptor bell);

  // By the thread. What Waiter calls, and the loop around it.

  friend class Waiter;
  std::size_t turn() noexcept;
  WaitPolicy::Step arm() noexcept;
  void disarm() noexcept;
  void look() noexcept {}
  void pause(WaitPolicy::Step step) noexcept { pause_alone(step); }
  void sleep(SleepSet& set) noexcept;
  void run() noexcept;

  Works& spare() noexcept { return works_[offered_.load(std::memory_order_relaxed) == &works_[0] ? 1 : 0]; }
  void offer(const Works& works) noexcept;
  void ring() noexcept;

  const Fencing fencing_;
  const FileDescriptor bell_;  ///< An eventfd: ends the thread's sleep.
  std::atomic<bool> ends_{false};
  static inline std::atomic<bool> is_said_{false};
  std::mutex changing_;         ///< Held by whoever adds or removes.
  std::array<Works, 2> works_;  ///< One is offered and constant. The other is changed, under changing_.
  std::atomic<const Works*> offered_{&works_[0]};  ///< What the thread is to run. Stored under changing_.
  std::atomic<const Works*> runs_{&works_[0]};     ///< What it runs. Stored by the thread.

  // The thread's.
  Waiter waiter_;
  bool is_told_ = true;        ///< Nothing has happened since the counters were told.
  std::uint64_t told_at_ = 0;  ///< When they were, by CycleClock.

  std::thread thread_;
};

}  // namespace ch3_offload
