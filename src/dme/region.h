// A registered region of the pin-down cache. PinDownCache::acquire() returns it, release() takes it back.

#pragma once

#include <atomic>
#include <cstdint>

#include "rdma/registrar.h"

namespace ch3_offload {

enum class RegionState : std::uint8_t {
  kFree,     ///< Unused.
  kPending,  ///< In the table; its registration has not finished.
  kLive,     ///< In the table and registered. acquire() finds it.
  kRetired,  ///< Removed from the table. Deregistered when its last reference is released.
};

/// Fits one cache line: with many regions, the load of this line dominates the cost of a hit.
struct alignas(64) Region {
  /// The number of references, and the flag kClosed: no new reference may be taken. Both are in one word, so
  /// that one atomic addition takes a reference and reads the flag. A thread that finds kClosed set after its
  /// addition returns the reference at once.
  std::atomic<std::uint64_t> use{kClosed};
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  // Constant while a thread holds a reference that it took from the open region.
  MemoryRegion memory;  ///< The registration. Covers at least the bytes that acquire() asked for.
  Access access = Access::kRead;

  std::atomic<bool> used_again{
      false};  ///< A hit since the registration, or since the last visit of eviction.

  bool registered = false;  ///< The registrar made `memory`. Guarded by the cache's registering_.
  RegionState state = RegionState::kFree;  ///< Guarded by the cache's table_lock_.
  Region* next = nullptr;                  ///< In the free or the retired list. Guarded by table_lock_.
};
static_assert(sizeof(Region) == 64);

}  // namespace ch3_offload
