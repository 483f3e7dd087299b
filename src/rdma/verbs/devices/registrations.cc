#include "rdma/verbs/devices/registrations.h"

#include <cerrno>
#include <new>
#include <utility>

namespace ch3_offload {

Status Registrations::add(void* address, std::size_t length_bytes, Access access, bool on_demand,
                          MemoryRegion& region) noexcept {
  const int rights = (access == Access::kWrite ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0) |
                     (on_demand ? IBV_ACCESS_ON_DEMAND : 0);
  std::array<Registration, VerbsAddress::kMostRails> registrations;
  std::uint64_t keys = 0;
  for (const std::unique_ptr<Rail>& rail : rails_) {
    if (rail->lost) continue;
    Registration& one = registrations[rail->index];
    one.reset(ibv_reg_mr(rail->domain(), address, length_bytes, rights));
    if (one == nullptr)
      return errno == ENOMEM || errno == EAGAIN || errno == ENOSPC ? Status::kNoMemory : Status::kUnsupported;
    keys |= std::uint64_t{one->rkey} << (32 * rail->index);
  }
  try {
    if (free_.empty()) {
      if (regions_.size() == regions_.capacity()) regions_.reserve(2 * regions_.size() + 1);
      free_.reserve(regions_.capacity());  // remove() must not allocate.
      regions_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(regions_.size() - 1));
    }
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{keys}, free_.back()};
  free_.pop_back();
  regions_[region.local_key] = std::move(registrations);
  return Status::kOk;
}

void Registrations::remove(MemoryRegion& region) noexcept {
  regions_[region.local_key] = {};
  free_.push_back(static_cast<std::uint32_t>(region.local_key));
  region = {};
}

}  // namespace ch3_offload
