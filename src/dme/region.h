// A registered region of the pin-down cache: what acquire() gives and release() takes.

#pragma once

#include <atomic>
#include <cstdint>

#include "rdma/registrar.h"

namespace ch3_offload {

enum class RegionState : std::uint8_t {
  kFree,     ///< Names no memory.
  kPending,  ///< In the table, being registered.
  kLive,     ///< In the table; found by those who look.
  kRetired,  ///< Out of the table; deregistered when its last user is gone.
};

/// One cache line: with many regions, what a hit waits for is this line.
struct alignas(64) Region {
  /// References, and kClosed: nobody new may use it. One word, so that a reference is taken and the state seen in one step.
  /// Who finds that it took a reference to a closed region gives it back at once.
  std::atomic<std::uint64_t> use{kClosed};
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  // Constant while somebody holds a reference to the open region.
  MemoryRegion memory;  ///< What the registrar made; holds at least the bytes that were asked for.
  Access access = Access::kRead;

  std::atomic<bool> used_again{
      false};  ///< Found since it was registered, or since its last turn for eviction.

  bool registered = false;  ///< `memory` is the registrar's. Guarded by the cache's registering_.
  RegionState state = RegionState::kFree;  ///< Guarded, as `next` is, by the cache's table lock.
  Region* next = nullptr;                  ///< In the list of free or retired ones.
};
static_assert(sizeof(Region) == 64);

}  // namespace ch3_offload
