// The lock of a table of target entries: many readers or one writer, in the order in which they ask.
//
// It guards nothing here: processes agree to take it before they address the memory behind the table (MPI 4.0,
// section 12.5.3). Whoever asks waits for the answer, which comes when the lock is theirs.
//
// A holder that dies leaves memory in a state that nobody knows. So the lock is broken from then on, and
// nobody gets it any more.
//
// Threads: one. Allocation: ask().

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

namespace ch3_offload {

class TargetLock {
 public:
  enum class Mode : std::uint8_t { kShared, kExclusive };
  /// Somebody who has asked. `question`: what its answer names.
  struct Waiter {
    std::uint32_t peer = 0;
    std::uint32_t question = 0;
    Mode mode{};
  };

  /// Asks. The answer comes by take_granted() or take_refused(). Returns false if the peer holds it or has
  /// asked already. Throws std::bad_alloc: then it has not asked.
  bool ask(const Waiter& waiter);
  /// Gives it back. Returns false if the peer does not hold it.
  bool give_back(std::uint32_t peer) noexcept;
  /// The peer has died. Its question is forgotten. If it held the lock, that is broken.
  void forget(std::uint32_t peer) noexcept;

  /// From now on nobody gets it.
  void give_up() noexcept { is_broken_ = true; }
  /// Nobody has it, or will have it.
  bool is_idle() const noexcept { return waiting_.empty() && holders_ == 0; }

  /// The next one that has the lock from now on. Returns false if there is none.
  bool take_granted(Waiter& waiter) noexcept;
  /// The next one that will never have it. Returns false if there is none.
  bool take_refused(Waiter& waiter) noexcept;

 private:
  std::deque<Waiter> waiting_;                   ///< The oldest first.
  std::unordered_map<std::uint32_t, bool> has_;  ///< Of each that has asked: whether it has the lock.
  std::size_t holders_ = 0;                      ///< More than one: shared.
  Mode held_{};                                  ///< If there are holders.
  bool is_broken_ = false;
};

}  // namespace ch3_offload
