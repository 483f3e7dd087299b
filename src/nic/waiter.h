// The one wait of all threads: polls, gives the core away, or sleeps, as WaitPolicy says.
//
// | who waits | for | by |
// |---|---|---|
// | NicThread | its works | round() |
// | Nicd | its groups | round() |
// | portals::Library | a condition; its port | rest(), which gives up the library's lock |
// | Channel | its ports; Portals of the process | next(), end_sleep(); the glue gives up MPICH's lock |
// | ProcessorWait | an answer of the processor, or room in its ring | rest(), which keeps the client's lock |
//
// What is awaited is of any class that has these functions. They may be private, with Waiter as a friend.
//
// | function | what it does |
// |---|---|
// | std::size_t turn() | works without waiting; returns how many things happened |
// | Step arm() | announces a sleep and returns kSleep, or returns what to do instead: kPoll, kYield |
// | void disarm() | undoes arm() |
// | void look() | what kLook asks for |
// | void pause(Step) | between two turns: lets others in; gives the core away if the step is kYield |
// | void sleep(SleepSet&) | adds what ends the sleep, and sleeps |
//
// next() and end_sleep() use arm(), disarm() and look() only.
//
// A sleep follows "The sleep rule" (rdma/shm/doorbell.h): arm() announces it, and then comes one more turn.
// The thread sleeps if nothing happened in that. A caller of next() does the last turn itself.
//
// Threads: one at a time. During SleepSet::sleep(), others may call found().

#pragma once

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "nic/wait_policy.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {

/// What ends a sleep: descriptors that become readable, and a time.
class SleepSet {
 public:
  void clear() noexcept {
    entries_.clear();
    due_ns_ = UINT64_MAX;
  }
  /// Passes over a negative descriptor. Without memory for one, the sleep is short instead.
  void add(int descriptor) noexcept {
    try {
      if (descriptor >= 0) entries_.push_back({descriptor, POLLIN, 0});
    } catch (const std::bad_alloc&) {
      end_after(0);
    }
  }
  void add(std::span<const int> descriptors) noexcept {
    for (const int descriptor : descriptors) add(descriptor);
  }
  /// There is something to do in so many nanoseconds that no descriptor tells of. UINT64_MAX: there is not.
  void end_after(std::uint64_t due_ns) noexcept { due_ns_ = std::min(due_ns_, due_ns); }

  /// Sleeps for `most_ms` at most; -1: as long as the set says. Returns whether the first descriptor is
  /// readable.
  bool sleep(int most_ms = -1) noexcept {
    const int due_ms = poll_ms(due_ns_);
    const int longest_ms = due_ms < 0 || (most_ms >= 0 && most_ms < due_ms) ? most_ms : due_ms;
    return ::poll(entries_.data(), entries_.size(), longest_ms) > 0 && entries_[0].revents != 0;
  }

  std::size_t size() const noexcept { return entries_.size(); }
  std::uint64_t due_ns() const noexcept { return due_ns_; }

 private:
  std::vector<pollfd> entries_;
  std::uint64_t due_ns_ = UINT64_MAX;
};

class Waiter {
 public:
  using Step = WaitPolicy::Step;

  explicit Waiter(const WaitPolicy& policy) noexcept : policy_(policy) {}

  /// A wait begins.
  void begin() noexcept { policy_.begin(); }
  /// Something happened.
  void found() noexcept { policy_.found(); }
  bool is_crowded() const noexcept { return policy_.is_crowded(); }
  /// A wait begins that follows another policy. May be called by arm().
  void begin(const WaitPolicy& policy) noexcept {
    policy_ = policy;
    policy_.begin();
  }

  /// After a turn in which nothing happened: returns what to do, which is kPoll, kYield or kSleep. kSleep: it
  /// is armed, and end_sleep() must follow. Before that the caller sleeps if one more turn finds nothing.
  template <class Awaited>
  Step next(Awaited& all) noexcept {
    const Step step = policy_.next();
    if (step == Step::kSleep) [[unlikely]] {
      const Step armed = all.arm();
      if (armed == Step::kSleep) policy_.sleeps();
      return armed;
    }
    if (step != Step::kLook) return step;
    all.look();
    return Step::kPoll;
  }
  template <class Awaited>
  void end_sleep(Awaited& all) noexcept {
    policy_.wakes();
    all.disarm();
  }
  /// For those who take steps by next(), and sleep by themselves.
  SleepSet& sleep_set() noexcept { return sleep_set_; }

  /// After a turn in which nothing happened: pauses or sleeps.
  template <class Awaited>
  void rest(Awaited& all) noexcept {
    const Step step = next(all);
    if (step != Step::kSleep) return all.pause(step);
    const bool has_happened = all.turn() > 0;  // "The sleep rule".
    if (!has_happened) {
      sleep_set_.clear();
      all.sleep(sleep_set_);
    }
    end_sleep(all);
    if (has_happened) found();
  }

  /// A turn, and a rest if nothing happened in it.
  template <class Awaited>
  void round(Awaited& all) noexcept {
    if (all.turn() > 0)
      found();
    else
      rest(all);
  }

 private:
  WaitPolicy policy_;
  SleepSet sleep_set_;
};

/// What a thread without a lock does between two turns.
inline void pause_alone(WaitPolicy::Step step) noexcept {
  if (step == WaitPolicy::Step::kYield) sched_yield();
}

/// Lets `port` work until `is_over()`: the end of a client. Does not sleep, since nothing tells when that is.
template <class Port, class Condition>
void work_until(Port& port, Condition is_over) noexcept {
  while (!is_over())
    if (port.progress() == 0) sched_yield();
}

}  // namespace ch3_offload
