// A client's wait for its processor: for the answer to a question, or for room in its ring of commands.
//
// A processor that runs on another core answers within some hundred nanoseconds, and it waits for nobody. So
// the client polls first. A processor that shares its core with others, or that was stopped, takes longer.
// Then Waiter decides when the client gives its core away, and when it sleeps.
//
// No wake-up is lost ("The sleep rule" of rdma/shm/doorbell.h). The client sleeps by futex(2) on the word in
// which it announces its sleep:
//
//   client                                    processor
//   1. announce: client_waits = 1             1. publish the answer, or return space
//   2. look for it once more                  2. look at client_waits
//   3. FUTEX_WAIT while client_waits is 1     3. if it is 1: store 0, FUTEX_WAKE
//
// The steps 1 and 2 of both are sequentially consistent. So either the client finds what was published, or
// the processor finds the word set. The kernel compares the word and queues the sleeper in one step, so a
// store of 0 after step 2 ends the sleep, too.
//
// The client's bell does not serve for this. While one thread asks, another one of the client may sleep on
// the bell (Channel::sleep), and who reads the bell would take the other's wake-up.
//
// LOCK KEPT. The caller keeps its client's lock (MPICH's critical section, the mutex of Portals) in this
// wait. There is one question at a time, and its answer is in words that the next question would overwrite.
// Commands keep the order of their calls: one that waits for room must not be overtaken. The callers are in
// the midst of a change: a request that has no operation yet, a cancellation that is not decided, a list of
// windows. So another thread that came in would find half of it. It would not come far either: nearly all it
// can do is a command to the same processor. The wait for peers, which may last for ever, gives the lock up
// (ch3_progress.c, Library::Wait).
//
// A sleep ends after 20 ms at the latest, so that the caller can see whether the processor lives.
//
// Threads: as the client's half of the port.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "nic/port_memory.h"
#include "nic/waiter.h"

namespace ch3_offload {

/// One wait, from its beginning to its end.
class ProcessorWait {
 public:
  /// For the answer to the question with this number, which was given. All outlive the wait.
  ProcessorWait(PortMemory& memory, Waiter& waiter, std::uint64_t question) noexcept
      : memory_(memory), waiter_(waiter), question_(question) {}
  /// For room for such a command.
  ProcessorWait(PortMemory& memory, Waiter& waiter, RingProducer& commands,
                std::size_t length_bytes) noexcept
      : memory_(memory), waiter_(waiter), commands_(&commands), length_bytes_(length_bytes) {}
  ~ProcessorWait() {
    if (turns_ > kTurnsAlone) waiter_.found();
  }
  ProcessorWait(const ProcessorWait&) = delete;
  ProcessorWait& operator=(const ProcessorWait&) = delete;

  /// Whether it is there. What the processor stored before can be read then.
  bool is_over() noexcept {
    if (commands_ != nullptr) return commands_->has_room(length_bytes_);
    return memory_.words().answered.load(std::memory_order_acquire) == question_;
  }

  /// Polls, gives the core away or sleeps. To be called again and again until it is over. Returns whether the
  /// caller should see if the processor lives.
  bool rest() noexcept {
    constexpr std::uint32_t kTurnsPerLook = 1024;
    if (++turns_ <= kTurnsAlone) return false;
    if (turns_ == kTurnsAlone + 1) waiter_.begin();
    is_late_ = turns_ % kTurnsPerLook == 0;
    waiter_.rest(*this);
    return is_late_;
  }

  /// For tests.
  void set_longest_sleep(std::uint64_t longest_ns) noexcept { longest_sleep_ns_ = longest_ns; }

 private:
  /// Before it asks the Waiter, which reads the clock.
  static constexpr std::uint32_t kTurnsAlone = 200;

  friend class Waiter;
  /// The last look before a sleep.
  std::size_t turn() noexcept {
    if (commands_ != nullptr) return commands_->has_room_for_sure(length_bytes_) ? 1 : 0;
    return memory_.words().answered.load(std::memory_order_seq_cst) == question_ ? 1 : 0;
  }
  WaitPolicy::Step arm() noexcept {
    PortMemory::count(memory_.ring_counters().client.sleeps);  // Before: whoever rings finds it counted.
    memory_.words().client_waits.store(1, std::memory_order_seq_cst);
    if (commands_ != nullptr) commands_->announce_waiting();
    return WaitPolicy::Step::kSleep;
  }
  /// Relaxed: a processor that sees it late only makes a useless call.
  void disarm() noexcept { memory_.words().client_waits.store(0, std::memory_order_relaxed); }
  void look() noexcept {}
  void pause(WaitPolicy::Step step) noexcept { pause_alone(step); }
  void sleep(SleepSet&) noexcept { is_late_ = !memory_.sleep_in_wait(longest_sleep_ns_); }

  PortMemory& memory_;
  Waiter& waiter_;
  RingProducer* const commands_ = nullptr;  ///< Null: it waits for an answer.
  const std::size_t length_bytes_ = 0;
  const std::uint64_t question_ = 0;
  std::uint64_t longest_sleep_ns_ = 20'000'000;
  std::uint32_t turns_ = 0;
  bool is_late_ = false;
};

}  // namespace ch3_offload
