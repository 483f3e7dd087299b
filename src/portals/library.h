// The library of one process: what PtlInit() and PtlNIInit() have made, its lock, and its waiting threads.
//
// THE LOCK. One mutex guards everything that is not read without a lock: the port, the interfaces, their
// objects, and the number of sleepers. A waiting thread gives it up between two looks. What is read without
// it: counting events (counting_events.h), whether a queue may have an event (event_queue.h), and the atomic
// members below.
//
// SLEEPERS. A thread that has waited long enough arms the port and sleeps on its descriptors and on a
// descriptor of the library's. The first sleeper arms, the last one disarms. A thread that sleeps in MPI is
// one, too, if the port works in calls only. The library's descriptor wakes all of them: if one was woken, if
// another thread's call has done something that the port does not tell of, if something was freed, and for
// PtlAbort(). It stays readable until the last one has left. The port's processor outlives its sleepers.
//
// Threads: any.

#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>

#include "ch3_offload/call_driven.h"
#include "dme/fork_mark.h"
#include "nic/waiter.h"
#include "portals/interface.h"
#include "portals/portals_process.h"
#include "rdma/file_descriptor.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload::portals {

class Library final : private CallDriven {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// The one of this process. Never destroyed: threads may be in calls when the program ends.
  static Library& instance() noexcept;

  // Init and Fini.

  int init() noexcept;
  void fini() noexcept;
  void abort() noexcept;
  /// False in a child of fork(): what the parent has made is not the child's.
  bool is_ready() const noexcept {
    return init_count_.load(std::memory_order_relaxed) > 0 && fork_mark_.is_owner();
  }
  bool is_aborted() const noexcept { return is_aborted_.load(std::memory_order_relaxed); }

  // Interfaces.

  /// Opens it, or uses it once more. Throws std::bad_alloc, with no effect.
  int open_interface(Lock& lock, unsigned number, std::optional<std::uint32_t> pid,
                     const ptl_ni_limits_t* desired, Interface*& opened);
  /// Undoes one use of it.
  void release_interface(Lock& lock, Interface& interface) noexcept;

  /// Null: there is no such interface, or that is no handle of one.
  Interface* find_interface(ptl_handle_ni_t handle) noexcept;
  /// The open interface of an object. Null: there is none. The object may be stale all the same.
  Interface* interface_with(ptl_handle_any_t handle) noexcept;
  /// The same, open or not, and without the lock.
  Interface* interface_at(unsigned number) noexcept {
    return interfaces_[number].load(std::memory_order_acquire);
  }

  // Under the lock.

  Lock lock() noexcept { return Lock(mutex_); }
  /// REQUIRES: an interface is open.
  PortalsProcess& process() noexcept { return *process_; }
  TargetPort& port() noexcept { return process_->port(); }
  /// Lets the port work. Returns how many things happened.
  std::size_t work() noexcept;
  /// As work(), for whoever asks the port again and again. If nothing happened, it gives the lock and the
  /// core away.
  void work_and_yield(Lock& lock) noexcept;
  /// Something has changed that sleepers may wait for, and that the port does not tell of.
  void changed() noexcept {
    if (!works_alone()) wake();
  }
  /// Wakes all sleepers.
  void wake() noexcept;

  /// Counts on, for whoever looks at several things and wants to begin with another one each time.
  std::size_t next_turn() noexcept { return turns_++; }

  /// PortalsProcess::works_alone(). Without the lock.
  bool works_alone() const noexcept { return works_alone_.load(std::memory_order_relaxed); }

  /// Waits until `condition` is met. It has
  ///   bool may_be_met() noexcept            a hint, without the lock
  ///   std::optional<int> take() noexcept    under the lock: what to return
  /// Returns that, PTL_ABORTED, or `when_over` after `timeout` milliseconds. Looks once at least.
  template <class Condition>
  int wait(Lock& lock, Condition& condition, ptl_time_t timeout, int when_over) noexcept;

 private:
  /// One thread's waiting: what of it does not depend on the condition.
  class Wait;
  template <class Condition>
  class WaitFor;

  Library() = default;
  void end_process(Lock& lock) noexcept;
  std::size_t work_for_other() noexcept override;
  bool begin_sleep(SleepSet& set) noexcept override;
  void end_sleep() noexcept override;

  // Sleeping, under the lock. arm() returns false if there is something to do instead. Else disarm() must
  // follow; between them may be enter_sleep(), which adds what ends the sleep, and leave_sleep().

  bool arm() noexcept { return sleepers_ > 0 || port().arm(); }
  void disarm() noexcept {
    if (sleepers_ == 0) port().disarm();
  }
  void enter_sleep(SleepSet& set) noexcept;
  void leave_sleep() noexcept;
  /// Whether operations of this process may be under way: they have a memory descriptor. Under the lock.
  bool may_await_answers() noexcept;
  static int code_of(const Error& error) noexcept;
  Waiter& waiter_of_this_thread() noexcept;

  const ForkMark fork_mark_;
  std::mutex mutex_;
  std::atomic<unsigned> init_count_{0};
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> works_alone_{false};
  std::array<std::atomic<Interface*>, kInterfaces>
      interfaces_{};                         ///< Null: it was never opened. Never freed.
  std::unique_ptr<PortalsProcess> process_;  ///< Null: no interface is open.
  std::uint64_t processes_made_ = 0;
  FileDescriptor wake_descriptor_;  ///< An eventfd. Made by the first init().
  std::size_t turns_ = 0;
  unsigned sleepers_ = 0;         ///< Threads, that of MPI among them.
  unsigned waiters_ = 0;          ///< Threads in wait(), sleepers among them.
  bool is_ending_ = false;        ///< process_ waits for its sleepers to leave.
  std::condition_variable left_;  ///< A sleeper or a waiter has left; an interface or process_ has ended.
};

/// Registers the thread as a waiter for its life. Under the lock, all of it. What Waiter calls is public.
class Library::Wait {
 public:
  using Step = WaitPolicy::Step;

  Wait(Library& library, Lock& lock, ptl_time_t timeout) noexcept;
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  Waiter& waiter() noexcept { return waiter_; }
  bool is_over() const noexcept { return deadline_ns_ != kNoDeadline && monotonic_ns() >= deadline_ns_; }

  Step arm() noexcept { return library_.arm() ? Step::kSleep : Step::kPoll; }
  void disarm() noexcept { library_.disarm(); }
  void look() noexcept { library_.process().look(); }
  /// Gives the lock up meanwhile.
  void sleep(SleepSet& set) noexcept;

 protected:
  Library& library_;
  Lock& lock_;

 private:
  static constexpr std::uint64_t kNoDeadline = UINT64_MAX;

  /// So long a wait is said, if the port works in calls only: it may be for ever.
  static constexpr std::uint64_t kLongNs = 2'000'000'000;

  Waiter& waiter_;
  const std::uint64_t deadline_ns_;
  std::uint64_t first_sleep_ns_ = 0;  ///< 0: there was none.
  bool is_said_;                      ///< That it is long, or it need not be.
};

template <class Condition>
class Library::WaitFor final : public Wait {
 public:
  WaitFor(Library& library, Lock& lock, ptl_time_t timeout, Condition& condition) noexcept
      : Wait(library, lock, timeout), condition_(condition), looks_(library.works_alone() ? 32 : 0) {}

  std::size_t turn() noexcept { return library_.work() + (condition_.may_be_met() ? 1 : 0); }
  /// Gives the lock up meanwhile.
  void pause(Step step) noexcept {
    lock_.unlock();
    pause_alone(step);
    for (int i = 0; i < looks_ && !condition_.may_be_met(); ++i) {
    }
    lock_.lock();
  }

 private:
  Condition& condition_;
  const int looks_;  ///< Without the lock, in a pause. None if the port works in calls only.
};

template <class Condition>
int Library::wait(Lock& lock, Condition& condition, ptl_time_t timeout, int when_over) noexcept {
  std::optional<WaitFor<Condition>> waiting;
  for (;;) {
    if (is_aborted()) return PTL_ABORTED;
    if (const std::optional<int> met = condition.take()) return *met;
    const bool has_worked = work() > 0;
    if (const std::optional<int> met = condition.take()) return *met;
    if (timeout == 0) return when_over;
    if (!waiting) waiting.emplace(*this, lock, timeout, condition);
    if (has_worked) waiting->waiter().found();
    if (waiting->is_over()) return when_over;
    waiting->waiter().rest(*waiting);
  }
}

}  // namespace ch3_offload::portals
