// Registers memory with UCX, for all fabrics of UCX (UCP 1.13 and later; see ucp_mem_map and ucp_rkey_pack).
//
// The length of UCX's keys depends on the fabrics in use, so a key does not fit a RemoteKey. packed_key()
// returns the key that a peer needs. A provider that writes with UCX must transport it to the peer.
//
// Threads: Any thread may call any function.

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
  /// Opens UCX as its own variables say (UCX_TLS, UCX_NET_DEVICES), but switches off the registration caches
  /// of UCP and of its verbs transports: they would keep memory pinned that the pin-down cache deregisters.
  /// `features` are UCP_FEATURE_* flags; UCP_FEATURE_RMA is always added.
  /// Errors: kUnsupported (no transport); kNoMemory.
  static Result<std::unique_ptr<UcxRegistrar>> open(std::uint64_t features);

  /// REQUIRES: all memory was deregistered; all objects made from context() were destroyed.
  ~UcxRegistrar() override = default;

  /// See Registrar. Verbs devices refuse read-only memory even for Access::kRead, because UCX registers all
  /// memory for writing. UCX logs a refusal to standard output, or as UCX_LOG_FILE and UCX_LOG_LEVEL say.
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;

  /// Returns the key for ucp_ep_rkey_unpack() at a peer. Valid until the region is deregistered.
  static std::span<const std::byte> packed_key(const MemoryRegion& region) noexcept;

  /// The context for workers and endpoints. The registrar owns it.
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
