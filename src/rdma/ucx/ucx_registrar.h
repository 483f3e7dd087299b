// Registers memory with UCX, for every fabric that UCX has (UCP 1.13 and later; documentation: ucp_mem_map, ucp_rkey_pack).
//
// UCX's keys are as long as the fabrics in use make them: they do not fit a RemoteKey. packed_key() has what a peer needs;
// how it gets there is up to the provider that writes with UCX.
//
// Threads: all from any.

#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "rdma/registrar.h"

namespace ch3_offload {

class UcxRegistrar final : public Registrar {
 public:
  /// Opens UCX, as its own variables (UCX_TLS, UCX_NET_DEVICES) have it, but for the registration caches of UCP and of its verbs
  /// transports: what the pin-down cache lets go would stay pinned in there. `features`: UCP_FEATURE_*;
  /// UCP_FEATURE_RMA is always among them. kUnsupported: no transport; kNoMemory.
  static Result<std::unique_ptr<UcxRegistrar>> open(std::uint64_t features);

  /// REQUIRES: everything registered was deregistered; what was made of context() is gone.
  ~UcxRegistrar() override = default;

  /// As Registrar has it. Verbs devices refuse memory that cannot be written even for Access::kRead, for UCX registers all for
  /// writing. UCX writes refusals to its log (standard output, but for UCX_LOG_FILE and UCX_LOG_LEVEL).
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;

  /// For ucp_ep_rkey_unpack() at a peer. Valid until the region is deregistered.
  static std::span<const std::byte> packed_key(const MemoryRegion& region) noexcept;

  /// For workers and endpoints. Owned by the registrar.
  ucp_context_h context() const noexcept { return context_.get(); }

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const noexcept { ucp_cleanup(context); }
  };
  using Context = std::unique_ptr<ucp_context, Cleanup>;

  explicit UcxRegistrar(Context context) : context_(std::move(context)) {}

  Context context_;
};

}  // namespace ch3_offload
