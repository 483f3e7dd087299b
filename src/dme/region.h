// A registered region of the pin-down cache. PinDownCache::acquire() returns it, release() takes it back.

#pragma once

#include <cstdint>

#include "rdma/registrar.h"

namespace ch3_offload {

enum class RegionState : std::uint8_t {
  kFree,     ///< Unused.
  kPending,  ///< In the table; its registration has not finished.
  kLive,     ///< In the table and registered. acquire() finds it.
  kRetired,  ///< Not in the table. Deregistered when its last reference is released.
};

struct Region {
  // Constant while there are references.
  MemoryRegion memory;  ///< The registration. Covers at least the bytes that acquire() asked for.
  Access access = Access::kRead;

  bool registered = false;  ///< The registrar made `memory`. Guarded by the cache's registering_.

  // Guarded by the cache's table_lock_.
  bool used_again = false;  ///< A hit since the registration, or since the last visit of eviction.
  RegionState state = RegionState::kFree;
  std::uint32_t references = 0;  ///< Calls of acquire() whose release() is still to come.
  Region* next = nullptr;        ///< In the free list, or in the list of regions to deregister.
};

}  // namespace ch3_offload
