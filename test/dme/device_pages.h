// A registrar over a real RDMA device, which writes to itself: what it writes through a registration must be what the process then reads.

#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "dme/pages_under_test.h"
#include "rdma/verbs/devices/rail.h"
#include "rdma/verbs/verbs_endpoint.h"

namespace ch3_offload {

class DevicePages final : public PagesUnderTest {
 public:
  /// `device`: as MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE.
  static Result<std::unique_ptr<DevicePages>> open(std::string_view device);

  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  bool meets_memory(const MemoryRegion& region, std::byte* address, std::size_t length_bytes) override;

 private:
  explicit DevicePages(std::unique_ptr<Rail> rail) : rail_(std::move(rail)) {}

  std::mutex lock_;
  std::unique_ptr<Rail> rail_;
  VerbsEndpoint peer_{PeerId{0}};  ///< Whose the queue pairs are.
  QueuePair sender_;
  QueuePair receiver_;
  std::vector<std::byte> source_;
  Registration source_registration_;  // Gone before the memory.
  std::uint64_t news_ = 1;            ///< Not written before.
};

}  // namespace ch3_offload
