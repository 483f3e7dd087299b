// A registered region of the pin-down cache: what acquire() gives and release() takes.

#pragma once

#include <atomic>
#include <cstdint>
#include <list>

#include "dme/page_table.h"
#include "rdma/registrar.h"

namespace ch3_offload {

enum class RegionState : std::uint8_t {
  kFree,     ///< Names no memory.
  kPending,  ///< In the table, being registered.
  kLive,     ///< In the table; found by those who look.
  kRetired,  ///< Out of the table; deregistered when its last user is gone.
};

struct Region {
  /// References, and kClosed: nobody new may use it. One word, so that a reference is taken and the state seen in one step.
  /// Who finds that it took a reference to a closed region gives it back at once.
  std::atomic<std::uint64_t> use{kClosed};
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  /// How often it was found. Threads that find one region at the same moment may count once.
  std::atomic<std::uint64_t> hits{0};

  // Constant while somebody holds a reference to the open region.
  PageRange pages;
  Access access = Access::kRead;
  MemoryRegion memory;  ///< What the registrar made; holds at least the bytes that were asked for.

  // Guarded by the cache's table lock.
  RegionState state = RegionState::kFree;
  std::uint64_t hits_seen = 0;        ///< `hits` when its turn for eviction came last.
  std::list<Region>::iterator place;  ///< Itself, in the list of its state.
};

}  // namespace ch3_offload
