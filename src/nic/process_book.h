// Which peer of an engine a process is.
//
// Portals names a process by its node and a number there, an engine by a small number of its own. A book
// gives numbers to processes, and introduces this process to those that it has not met: each side learns the
// other's card, and by which number it is known there. A process that introduces itself to this one gets a
// number, too.
//
// A process that has gone leaves its number, which is given to another one in its next generation. So nothing
// grows with the number of processes that were.
//
// The book is the processor's: it works while the client computes.
//
// Threads: one, the engine's. Blocking: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/engine.h"
#include "engine/targets/target_interface.h"

namespace ch3_offload {

class ProcessBook {
 public:
  /// Hears of processes. Its functions must not call the book.
  class Listener {
   public:
    /// From now on `peer` is that process. `user` has been proved.
    virtual void on_process(PeerId peer, ProcessId process, UserId user) noexcept = 0;
    /// `peer` can be reached by that card (Engine::introduce()). Empty: it cannot be reached.
    virtual void on_card(PeerId peer, std::string_view card) noexcept = 0;
    /// `peer` has ended: another process has its id now, and a number of its own.
    virtual void on_replaced(PeerId peer) noexcept = 0;
    /// find() does not give the number of `peer`, which has failed, any more. Returns whether nothing else
    /// uses it, either: then its next generation is free. Otherwise the book asks again.
    virtual bool on_unused(PeerId peer) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  virtual ~ProcessBook() = default;

  /// This process.
  virtual ProcessId self() const noexcept = 0;
  virtual UserId user() const noexcept = 0;
  /// Whether the number of each peer is its rank, which is known without on_process().
  virtual bool knows_all() const noexcept { return false; }

  /// The peer that a process is. A process that is not known gets a number, and the next poll() calls
  /// on_process() and begins the introduction: on_card() will come. Itself: the engine's own number.
  /// kNoMemory: also if there is no number left.
  virtual Status find(ProcessId process, PeerId& peer) noexcept = 0;
  /// The engine says that the peer failed. If the same process is named again, it gets a new number: it may
  /// have been started anew. One that was never reached may keep the dead number for a while.
  virtual void forget(PeerId peer) noexcept = 0;

  /// Does what there is to do. Returns how many things happened.
  virtual std::size_t poll(Listener& listener) noexcept = 0;
  /// Becomes readable when poll() has work. Constant. -1: it is never (tests).
  virtual int descriptor() const noexcept = 0;
  /// Nanoseconds until poll() has something to do by time. UINT64_MAX: nothing.
  virtual std::uint64_t next_due_ns() const noexcept = 0;
};

}  // namespace ch3_offload
