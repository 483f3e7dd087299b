// What a waiting process does after a poll that found nothing: poll again, give its core away, or sleep.
//
// | the process | polls for at most | gives its core away |
// |---|---|---|
// | has a core of its own | 20 ms | after 5 us, now and then, to other threads of the process |
// | shares cores (the node's processes outnumber them) | 50 us, and 8 turns | after each poll |
// | as above, but giving the core away did harm | 1 ms; 0.5 us where cores are shared | no |
//
// On a core of its own, the time follows what would have paid off. If a wait ended while it polled, or
// within this time after it fell asleep, the next wait polls for longer. If a wait slept for longer, the
// time is halved, and the rest of that wait hardly polls: alarms may cut it into many sleeps.
//
// A turn is the time between giving the core away and getting it back. Two kinds of turns do harm:
//
//   SLOW TURN: a program that computes got the core and kept it for a time slice. A message that arrived
//   meanwhile had to wait; it would have woken a sleeper at once.
//   IDLE TURN: nobody got the core, although the awaited process wanted it. The scheduler does this when the
//   processes are in different scheduling groups (control groups, or sessions with autogrouping).
//
// On a core of its own, a wait of more than 5 us looks whether a peer waits on the same processor
// (nic/parting.h), every 100 us at most.
//
// A slow turn after which nothing was found ends in a sleep. After several harmful turns, the core is not
// given away for a while.
//
// Threads: one at a time.

#pragma once

#include <cstdint>

#include "nic/cores.h"

namespace ch3_offload {

class WaitPolicy {
 public:
  enum class Step {
    kPoll,
    kYield,  ///< Give the core away (sched_yield), then poll.
    kLook,   ///< Parting::look(), then poll. Whoever has no Parting polls.
    kSleep,
  };

  using Clock = std::uint64_t (*)() noexcept;
  struct Clocks {
    Clock now_ns;     ///< Monotonic.
    Clock others_ns;  ///< Processor time that the other threads of this process have used.
    Clock switches;   ///< How often this thread lost its core while it was ready to run.
  };

  /// `longest_us`: the longest time of polling; -1: as above. `processes`: of the job on this node; 0:
  /// unknown.
  WaitPolicy(std::int64_t longest_us, std::uint32_t processes, Cores cores, Clocks clocks) noexcept;

  /// A wait begins.
  void begin() noexcept;

  /// Polling found nothing: returns what to do now. Without yields it reads the clock every few calls only.
  Step next() noexcept;

  /// Sleeping begins and ends now. REQUIRES: next() said so.
  void sleeps() noexcept { slept_at_ns_ = clocks_.now_ns(); }
  void wakes() noexcept;

  /// Polling found something: the time starts anew.
  void found() noexcept;

  /// Whether the processes of this node outnumber its cores: fruitless tests should yield, too.
  bool is_crowded() const noexcept { return is_crowded_; }

  /// How long the next wait polls, unless turns are slow.
  std::uint64_t spin_ns() const noexcept { return spin_.now_ns; }

 private:
  /// A time of polling that adapts.
  struct Spin {
    std::uint64_t longest_ns;
    std::uint64_t shortest_ns;
    std::uint64_t soon_ns;   ///< A sleep shorter than this should have been polling.
    std::uint64_t again_ns;  ///< In a wait that has slept for longer.
    std::uint64_t now_ns;    ///< Of the next wait.
  };

  static Spin willing(std::int64_t longest_us, bool is_crowded) noexcept;
  static Spin wary(std::int64_t longest_us, bool is_crowded) noexcept;
  Spin& spin() noexcept { return is_wary_ ? wary_spin_ : spin_; }
  void spin_anew() noexcept;
  Step next_at(std::uint64_t now_ns) noexcept;
  bool end_turn(std::uint64_t now_ns, bool found) noexcept;
  void doubt(std::uint64_t now_ns) noexcept;
  bool turns_were_idle() noexcept;
  bool others_need_the_core(std::uint64_t now_ns) noexcept;

  // Constant, until another policy is assigned.
  Clocks clocks_;
  bool is_crowded_;
  bool may_part_;       ///< There are cores to part to.
  double spare_cores_;  ///< What other threads of this process may use beside this one's core.
  Spin spin_;
  Spin wary_spin_;

  // This spin.
  std::uint64_t began_at_ns_ = 0;    ///< 0: no clock was read yet.
  std::uint64_t yielded_at_ns_ = 0;  ///< 0: the last step was no yield.
  std::uint64_t looked_at_ns_ = 0;   ///< When the other threads' time was read. 0: not yet.
  std::uint64_t others_at_ns_ = 0;   ///< What it was.
  std::uint32_t polls_ = 0;          ///< Since the clock was read.
  std::uint32_t turns_ = 0;          ///< Yields.
  std::uint64_t slept_at_ns_ = 0;
  std::uint64_t looks_at_ns_ = 0;  ///< When kLook may come again.
  bool slept_long_ = false;        ///< In this wait.

  // Slow and idle turns.
  bool is_wary_ = false;     ///< The core is not given away.
  std::uint32_t doubt_ = 0;  ///< Grows with each turn that did harm, falls with each one that helped.
  std::uint64_t switches_before_ = 0;  ///< When turns_were_idle() was asked last.
  std::uint64_t turns_before_ = 0;     ///< Yields since then.
  std::uint64_t wary_until_ns_ = 0;    ///< End of the last such time.
  std::uint64_t wary_length_ns_ = 0;   ///< Length of it.
};

}  // namespace ch3_offload
