// Where what a client sends leaves the processor that runs its engine.
//
// Threads: one.

#pragma once

#include "rdma/provider.h"

namespace ch3_offload {

class ClientOutlet {
 public:
  /// The client, as its engine numbers it.
  virtual PeerId rank() const noexcept = 0;
  /// Nothing that is committed from now on leaves: the client's memory could not be read.
  virtual void silence() noexcept = 0;

 protected:
  ~ClientOutlet() = default;
};

}  // namespace ch3_offload
