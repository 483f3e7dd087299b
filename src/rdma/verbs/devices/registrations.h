// The caller's memory, registered with the device of each rail.
//
// Threads: as rdma/provider.h says. Registering blocks as long as the kernel takes to pin the pages.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rdma/provider.h"
#include "rdma/verbs/devices/rail.h"
#include "rdma/verbs/devices/verbs_handles.h"
#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {

class Registrations {
 public:
  /// `rails` stay as they are, and outlive this.
  explicit Registrations(std::span<const std::unique_ptr<Rail>> rails) noexcept : rails_(rails) {}

  /// `region`: its local key is a number for local_key(), its remote key holds one of 32 bits for each rail.
  /// kNoMemory: other memory could make room. kUnsupported: this memory cannot be registered.
  Status add(void* address, std::size_t length_bytes, Access access, bool on_demand,
             MemoryRegion& region) noexcept;
  void remove(MemoryRegion& region) noexcept;
  std::size_t count() const noexcept { return regions_.size() - free_.size(); }

  /// `region`: MemoryRegion::local_key. REQUIRES: the rail was not lost when the memory was registered.
  std::uint32_t local_key(std::size_t region, std::uint8_t rail) const noexcept {
    return regions_[region][rail]->lkey;
  }
  static std::uint32_t remote_key(RemoteKey keys, std::uint8_t rail) noexcept {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(keys) >> (32 * rail));
  }

 private:
  std::span<const std::unique_ptr<Rail>> rails_;
  std::vector<std::array<Registration, VerbsAddress::kMostRails>> regions_;  ///< One for each rail.
  std::vector<std::uint32_t> free_;                                          ///< In regions_.
};

}  // namespace ch3_offload
