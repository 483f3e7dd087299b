// Parting: two processes that wait for each other leave the processor that they share.
//
// Beside another busy process, the scheduler may put two processes that exchange messages on one processor.
// Each one gives it to the other when it waits, so both get what they ask for, and the balancer sees nothing
// to mend: as many processes run on each processor as can be. They exchange messages some fifty times as
// slowly as they would on two processors, although the stranger has one of these half of the time.
//
// So a process that waits says on which processor it does (WaitingPlace), and looks where the others are.
// If one of them has just waited on the same processor, the process moves to a processor of its affinity mask
// on which no process of the node was that it knows. Which of the two moves needs no agreement: one
// processor runs one of them at a time, and this one says where it goes before it goes. The next one finds
// itself alone.
//
// To move, a thread binds itself to the processor, and then restores its affinity mask. It stays where it is
// until the scheduler moves it. So a thread that has one processor never moves, and the mask of a thread
// that moves is the same afterwards. (Where the mask was a control group's and none of its own, it is its
// own from then on: processors that the group gets later are not in it.)
//
// Where moving does not help, because the two meet again soon, or because there is no free processor, the
// next move waits twice as long. After a move that took long, it waits for the longest time.
//
// Threads: one at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "rdma/processor_set.h"
#include "rdma/waiting_place.h"

namespace ch3_offload {

class Parting {
 public:
  /// What it asks of the kernel, for the calling thread.
  struct Machine {
    std::uint64_t (*now_ns)() noexcept;  ///< Monotonic, and the same for all processes of the node.
    std::optional<std::uint32_t> (*processor)() noexcept;  ///< On which it runs. Nothing: cannot tell.
    ProcessorSet (*allowed)();                             ///< Its affinity mask.
    /// Moves it to a processor of its affinity mask `allowed`, which is the same afterwards. False: it may
    /// not.
    bool (*move)(std::uint32_t processor, const ProcessorSet& allowed) noexcept;
  };
  static const Machine& this_machine() noexcept;

  explicit Parting(const Machine& machine = this_machine()) noexcept : machine_(machine) {}

  /// To be called by a wait when WaitPolicy says kLook. Says where the calling thread waits, and moves it if
  /// one of `places.peers` waits there, too. Returns whether it has moved. A look makes no system call; a
  /// move makes some, and takes until the thread gets the other processor.
  bool look(const WaitingPlaces& places) noexcept;

  /// How often look() has moved its caller. Constant address.
  const std::uint64_t& partings() const noexcept { return partings_; }

 private:
  bool meets_one(std::span<const WaitingPlace* const> peers, std::uint32_t here,
                 std::uint64_t now_ns) noexcept;
  bool may_move(std::uint64_t now_ns) noexcept;
  bool move(const WaitingPlaces& places, std::uint32_t here, std::uint64_t now_ns);

  Machine machine_;
  std::uint64_t partings_ = 0;
  std::size_t next_peer_ = 0;      ///< With which the next look begins, modulo their number.
  std::uint64_t tried_at_ns_ = 0;  ///< When it has moved last, or could not. 0: never.
  std::uint64_t pause_ns_ = 0;     ///< Before this time has passed since then, it does not move.
  bool has_met_since_ = false;     ///< A peer was met again since tried_at_ns_.
};

}  // namespace ch3_offload
