// A client of this process beside MPI whose engine runs in calls only (Portals with NIC=host). MPI's calls
// move that engine, too. Without this, two processes would hang where one waits in MPI for the other, and the
// other waits in Portals for the first.
//
// The client's calls do not move MPI's engine: it has no lock, and these calls may come from any thread.
//
// Threads: any, unless a function says otherwise.

#pragma once

#include <cstddef>

#include "nic/waiter.h"

namespace ch3_offload {

class CallDriven {
 public:
  /// Works without waiting, unless another thread does. Returns how many things happened.
  virtual std::size_t work_for_other() noexcept = 0;
  /// Announces that the caller sleeps, and adds what ends the sleep: end_sleep() must follow. Never waits.
  /// False: there may be work, and nothing was announced. Any thread, as end_sleep().
  virtual bool begin_sleep(SleepSet& set) noexcept = 0;
  virtual void end_sleep() noexcept = 0;

 protected:
  ~CallDriven() = default;
};

/// Whoever moves such a client in its own calls.
class MovesCallDriven {
 public:
  /// There is one now. Called by another thread at any time, which waits meanwhile.
  virtual void call_driven_came() noexcept = 0;

  MovesCallDriven* next_mover = nullptr;  ///< Of the list of movers, whose it is.

 protected:
  ~MovesCallDriven() = default;
};

/// From now on it is moved. REQUIRES: there is none, and it lives until the process ends.
void set_call_driven(CallDriven& client) noexcept;
/// There is none any more. It may still be called, from calls that have begun.
void reset_call_driven() noexcept;
/// Null: there is none.
CallDriven* call_driven() noexcept;

/// The mover hears of each that comes, and at once if there is one.
void add_mover(MovesCallDriven& mover) noexcept;
/// It hears nothing any more. Has no effect if it was not added.
void remove_mover(MovesCallDriven& mover) noexcept;

}  // namespace ch3_offload
