// The Dynamic Memory Engine's pin-down cache: keeps memory registered after its transfer, for the next one from or to the same
// place (Tezuka et al., "Pin-down Cache", IPPS 1998).
//
//   Region* region;
//   if (cache.acquire(buffer, length, Access::kWrite, region) == Status::kOk) {
//     ... region->memory holds at least those bytes ...
//     cache.release(*region);
//   }
//
// Regions are whole pages and do not overlap: a request inside one is a hit, wherever it begins; one that overlaps some
// replaces them by one over all of it. What is not in use is kept until a budget or the device asks for room: then the ones
// that were not used since their last turn go first (second chance, so that hits take no lock). Memory that
// leaves the process's address space must be told to invalidate(), before it goes: see memory_events.h.
//
// RULE CLOSED FIRST. A region is closed before it is deregistered or forgotten, always in the same step that takes it out of
// the table, under the table lock; from then on its last user lets it go. So whoever holds a reference to an open region
// holds registered memory, and no lock is needed to take one.
//
// RULE TABLE BEFORE REGISTRAR. A region is in the table before it is registered, so that an invalidation in between finds it.
//
// Threads: all from any. A hit takes no lock. Two locks: registering_ is held across calls of the registrar (one at a time)
// and allocation; table_lock_, taken within it, covers the table and lists for moments, never across allocation, and is all
// that invalidate() takes: it is safe in the midst of an allocator.
// In a child after fork(), which owns no registration, acquire() answers kUnsupported and everything else does nothing.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "dme/fork_mark.h"
#include "dme/page_table.h"
#include "dme/region.h"
#include "dme/sharded_counter.h"
#include "rdma/registrar.h"
#include "rdma/status.h"

namespace ch3_offload {

struct PinDownConfig {
  std::size_t most_bytes = SIZE_MAX;    ///< Registered at once, in use or not.
  std::size_t most_regions = SIZE_MAX;  ///< The same, counted.
  /// Keep regions after their use. Off: each acquire() registers just what it names, release() deregisters it.
  bool keep = true;
};

struct PinDownStatistics {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;            ///< Registrations made.
  std::uint64_t evictions = 0;         ///< Regions given up for room.
  std::uint64_t invalidations = 0;     ///< Regions whose memory went away.
  std::uint64_t refused = 0;           ///< Requests that found no room, or memory that cannot be registered.
  std::uint64_t registered_bytes = 0;  ///< Now.
  std::uint64_t regions = 0;           ///< Now.
};

class PinDownCache {
 public:
  /// `registrar` outlives the cache. Throws std::bad_alloc.
  PinDownCache(Registrar& registrar, const PinDownConfig& config);
  PinDownCache(const PinDownCache&) = delete;
  PinDownCache& operator=(const PinDownCache&) = delete;
  /// REQUIRES: nobody calls it any more. Regions that are still held stay registered.
  ~PinDownCache();

  /// Registered memory that holds the range, for `access` at least, to be used until release().
  /// A hit neither blocks nor allocates; a miss calls the registrar.
  /// kNoMemory: no room, although everything that is not in use was given up. kUnsupported: that memory cannot be registered.
  Status acquire(const void* address, std::size_t length_bytes, Access access, Region*& region) noexcept;

  /// The same for many pieces: `regions[i]` holds `pieces[i]`, and each is to be released. Pieces that share pages or lie
  /// next to each other are registered together. All or nothing.
  /// REQUIRES: as many regions as pieces.
  Status acquire_all(std::span<const std::span<const std::byte>> pieces, Access access,
                     std::span<Region*> regions) noexcept;

  /// REQUIRES: one acquire() for each release(); nothing is under way that uses the region.
  void release(Region& region) noexcept;

  /// As release(), and the region is not kept: somebody who must not use it any more still could.
  void discard(Region& region) noexcept;

  /// Whether acquire() would be a hit now.
  bool holds(const void* address, std::size_t length_bytes, Access access) noexcept;

  /// The memory is about to leave the address space, or to get other pages. Neither allocates nor calls the registrar.
  /// What is deregistered for it is later: in reap() or a miss, or when its last user is gone.
  void invalidate(const void* address, std::size_t length_bytes) noexcept;

  /// Deregisters what was invalidated and is not in use. Cheap when there is nothing.
  void reap() noexcept {
    if (reap_is_due_.load(std::memory_order_relaxed)) reap_now();
  }

  /// Gives up all that is not in use.
  void flush() noexcept;

  /// From now on nothing is kept (PinDownConfig::keep); what is there goes as its users do.
  void stop_keeping() noexcept;

  bool keeps() const noexcept { return keeping_.load(std::memory_order_relaxed); }

  // PinDownStatistics' fields, one at a time.
  std::uint64_t misses() const noexcept { return misses_.load(std::memory_order_relaxed); }
  std::uint64_t evictions() const noexcept { return evictions_.load(std::memory_order_relaxed); }
  std::uint64_t invalidations() const noexcept { return invalidations_.load(std::memory_order_relaxed); }

  PinDownStatistics statistics() const noexcept;

 private:
  struct Request {
    std::uintptr_t address;
    std::size_t length_bytes;
    Access access;
    PageRange pages;
  };

  bool is_request(const void* address, std::size_t length_bytes, Access access,
                  Request& request) const noexcept;
  Region* find_open(const Request& request) noexcept;
  Status acquire_slowly(const Request& request, Region*& region) noexcept;
  Status register_new(const Request& request, Region*& region) noexcept;
  bool prepare() noexcept;
  Region& take_pending(const Request& request, bool extend) noexcept;
  Status register_region(Region& region) noexcept;
  bool is_hopeless(std::size_t length_bytes) noexcept;
  void open(Region& region, const MemoryRegion& memory) noexcept;
  PageRange pages_of(const void* address, std::size_t length_bytes) const noexcept;
  void forget(Region& region) noexcept;
  void retire(Region& region) noexcept;
  static bool close_unused(Region& region) noexcept;
  template <class Which>
  void retire_all(Which which) noexcept;
  bool evict_one() noexcept;
  bool evict(std::size_t count) noexcept;
  bool has_room(std::size_t bytes) const noexcept;
  void reap_now() noexcept;
  void reap_locked() noexcept;

  Registrar& registrar_;
  const PinDownConfig config_;
  const unsigned page_shift_;
  const ForkMark fork_mark_;
  std::atomic<bool> keeping_;

  std::mutex registering_;
  /// This much was refused although everything had been given up for it: giving up regions for as much again would not help,
  /// for a while. Under registering_.
  std::size_t hopeless_bytes_ = SIZE_MAX;
  std::uint32_t hopeless_requests_ = 0;  ///< Refused since, without giving up anything.

  // Grow under registering_, and never shrink.
  std::deque<Region> regions_made_;
  std::deque<PageTable::Node> nodes_made_;
  std::size_t next_turn_ = 0;  ///< For eviction, in regions_made_: the hand of the clock.

  std::mutex table_lock_;
  PageTable table_;         ///< Changes under table_lock_.
  Region* free_ = nullptr;  ///< These lists and each region's state: under table_lock_.
  Region* retired_ = nullptr;
  std::size_t live_count_ = 0;

  /// A retired region may have no users. Set, with release, by whoever took the last one away; cleared, with acquire, before
  /// retired_ is looked through, so that what set it is seen.
  std::atomic<bool> reap_is_due_{false};

  ShardedCounter hits_;
  // Written under a lock (registering_, invalidations_ under table_lock_); read by statistics() without, each by itself.
  std::atomic<std::uint64_t> misses_{0};
  std::atomic<std::uint64_t> evictions_{0};
  std::atomic<std::uint64_t> invalidations_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> registered_bytes_{0};
  std::atomic<std::uint64_t> regions_{0};
};

}  // namespace ch3_offload
