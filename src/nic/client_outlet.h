// Where what a client sends leaves the processor that runs its engine.
//
// Threads: one at a time.

#pragma once

#include "rdma/provider.h"

namespace ch3_offload {

class ClientOutlet {
 public:
  /// The client, as its engine numbers it.
  virtual PeerId rank() const noexcept = 0;
  /// Nothing that is committed from now on leaves: the client's memory could not be read.
  virtual void silence() noexcept = 0;
  /// The client's turn has stopped in the midst of a copy, and others go on: what it has reserved stays so.
  virtual void be_late() noexcept {}
  /// The client has ended in the midst of such a turn. Whoever must hear of it does.
  virtual void say_ended() noexcept {}

 protected:
  ~ClientOutlet() = default;
};

}  // namespace ch3_offload
