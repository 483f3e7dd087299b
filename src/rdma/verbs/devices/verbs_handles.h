// Owning handles for libibverbs objects. Declare parents before children: members are destroyed in reverse.

#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace ch3_offload {

template <auto Destroy>
struct VerbsDeleter {
  template <class T>
  void operator()(T* object) const noexcept {
    Destroy(object);  // Fails only where a child still lives, which the order of members forbids.
  }
};

using DeviceContext = std::unique_ptr<ibv_context, VerbsDeleter<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, VerbsDeleter<ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, VerbsDeleter<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, VerbsDeleter<ibv_destroy_cq>>;
using SharedReceiveQueue = std::unique_ptr<ibv_srq, VerbsDeleter<ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, VerbsDeleter<ibv_destroy_qp>>;
using Registration = std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>>;

}  // namespace ch3_offload
