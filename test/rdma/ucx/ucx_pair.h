// Two UCX workers of one process, one of which writes into the memory of the other as a peer would: by address and packed key.

#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rdma/status.h"

namespace ch3_offload {

/// One call at a time.
class UcxPair {
 public:
  /// `context` outlives the pair.
  static Result<std::unique_ptr<UcxPair>> open(ucp_context_h context) {
    std::unique_ptr<UcxPair> pair(new UcxPair);
    for (ucp_worker_h* const worker : {&pair->writer_, &pair->target_}) {
      ucp_worker_params_t params{};
      params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
      params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
      const ucs_status_t status = ucp_worker_create(context, &params, worker);
      if (status != UCS_OK) return failed("no worker", status);
    }
    ucp_address_t* address = nullptr;
    std::size_t address_bytes = 0;
    ucs_status_t status = ucp_worker_get_address(pair->target_, &address, &address_bytes);
    if (status != UCS_OK) return failed("no address", status);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = address;
    status = ucp_ep_create(pair->writer_, &params, &pair->endpoint_);
    ucp_worker_release_address(pair->target_, address);
    if (status != UCS_OK) return failed("no endpoint", status);
    return pair;
  }

  UcxPair(const UcxPair&) = delete;
  UcxPair& operator=(const UcxPair&) = delete;

  ~UcxPair() {
    if (endpoint_ != nullptr) {
      const ucp_request_param_t in_order{};
      finish(ucp_ep_close_nbx(endpoint_, &in_order));
    }
    for (ucp_worker_h const worker : {writer_, target_})
      if (worker != nullptr) ucp_worker_destroy(worker);
  }

  /// Whether `bytes` were written to `address` of the memory that the key grants, and are there.
  bool write(std::span<const std::byte> bytes, void* address, std::span<const std::byte> packed_key) {
    ucp_rkey_h key = nullptr;
    if (ucp_ep_rkey_unpack(endpoint_, packed_key.data(), &key) != UCS_OK) return false;
    const ucp_request_param_t plain{};
    const bool written = finish(ucp_put_nbx(endpoint_, bytes.data(), bytes.size(),
                                            reinterpret_cast<std::uintptr_t>(address), key, &plain)) &&
                         finish(ucp_ep_flush_nbx(endpoint_, &plain));
    ucp_rkey_destroy(key);
    return written;
  }

 private:
  UcxPair() = default;

  static Error failed(const char* what, ucs_status_t status) {
    return {Status::kUnsupported, 0, std::string("ucx: ") + what + ": " + ucs_status_string(status)};
  }

  bool finish(ucs_status_ptr_t request) {
    if (request == nullptr) return true;
    if (UCS_PTR_IS_ERR(request)) return false;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    ucs_status_t status = UCS_INPROGRESS;
    while (status == UCS_INPROGRESS && std::chrono::steady_clock::now() < deadline) {
      ucp_worker_progress(writer_);
      ucp_worker_progress(target_);
      status = ucp_request_check_status(request);
    }
    ucp_request_free(request);
    return status == UCS_OK;
  }

  ucp_worker_h writer_ = nullptr;
  ucp_worker_h target_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

}  // namespace ch3_offload
