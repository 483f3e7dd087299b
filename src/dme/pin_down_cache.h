// The pin-down cache of the Dynamic Memory Engine (DME): keeps memory registered after a transfer, for the
// next transfer from or to the same memory (Tezuka et al., "Pin-down Cache", IPPS 1998).
//
//   Region* region;
//   if (cache.acquire(buffer, length, Access::kWrite, region) == Status::kOk) {
//     ... region->memory covers at least those bytes ...
//     cache.release(*region);
//   }
//
// Hits and misses. A region consists of whole pages. Regions do not overlap. A request inside one region is a
// hit. A miss registers a new region; if the request overlaps regions, the new region replaces them and
// covers their pages, too.
//
// Eviction. A region that is not in use stays registered until a limit of PinDownConfig or the device
// requires room. Then regions without a hit since eviction's last visit are deregistered first (the clock
// algorithm, "second chance"): a hit only sets a flag of its region.
//
// Invalidation. invalidate() must be called before memory leaves the address space: see memory_events.h.
//
// RULE RETIRED FIRST. Remove a region from the table before it is deregistered or forgotten. Deregister it
// only when it has no references. So a reference guarantees registered memory.
//
// RULE TABLE BEFORE REGISTRAR. Put a region into the table before it is registered, so that an invalidation
// during the registration finds it.
//
// Threads: Any thread may call any function, at any time.
//
//   lock           held for
//   registering_   calls of the registrar (one at a time), allocation, eviction
//   table_lock_    short accesses to the table and the lists, never during allocation; taken after
//                  registering_ where both are held
//
// A hit, invalidate() and a release() without deregistration take table_lock_ only. So invalidate() may run
// inside an allocator, also in a thread that is inside acquire() or release().
//
// fork(): A child owns no registration. There acquire() returns kUnsupported and all other functions do
// nothing.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "dme/fork_mark.h"
#include "dme/page_table.h"
#include "dme/region.h"
#include "rdma/registrar.h"
#include "rdma/status.h"

namespace ch3_offload {

struct PinDownConfig {
  std::size_t most_bytes = SIZE_MAX;    ///< Limit on registered bytes, in use or not.
  std::size_t most_regions = SIZE_MAX;  ///< Limit on registered regions, in use or not.
  /// Keep regions registered after their use. False: each acquire() registers exactly its range, and
  /// release() deregisters it.
  bool keep = true;
};

struct PinDownStatistics {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;            ///< Registrations made.
  std::uint64_t evictions = 0;         ///< Regions deregistered to make room.
  std::uint64_t invalidations = 0;     ///< Regions removed because their memory was unmapped.
  std::uint64_t refused = 0;           ///< Requests without room, or for memory that cannot be registered.
  std::uint64_t registered_bytes = 0;  ///< Current.
  std::uint64_t regions = 0;           ///< Current.
};

class PinDownCache {
 public:
  /// REQUIRES: `registrar` outlives the cache. Throws std::bad_alloc.
  PinDownCache(Registrar& registrar, const PinDownConfig& config);
  PinDownCache(const PinDownCache&) = delete;
  PinDownCache& operator=(const PinDownCache&) = delete;
  /// Deregisters all regions that are not in use. Others stay registered. REQUIRES: no thread calls the
  /// cache.
  ~PinDownCache();

  /// Returns a region that covers the range and permits at least `access`. The caller uses it until
  /// release(). A hit does not allocate. A miss calls the registrar.
  /// kNoMemory: no room, even after eviction of regions that are not in use. kUnsupported: the memory cannot
  /// be registered.
  Status acquire(const void* address, std::size_t length_bytes, Access access, Region*& region) noexcept;

  /// Ends one use of a region. REQUIRES: an acquire() for each release(); no transfer uses the region.
  void release(Region& region) noexcept;

  /// release() for a region that must not stay registered, because a failed peer might still write to it.
  void discard(Region& region) noexcept;

  /// Removes all regions that overlap the range. Call it before the range leaves the address space or gets
  /// other pages. Neither allocates nor calls the registrar: reap(), a miss or a release() deregisters the
  /// removed regions later.
  void invalidate(const void* address, std::size_t length_bytes) noexcept;

  /// Deregisters removed regions that are not in use. Cheap when there are none.
  void reap() noexcept {
    if (due_.load(std::memory_order_relaxed) != nullptr) reap_now();
  }

  /// Deregisters all regions that are not in use.
  void flush() noexcept;

  /// Sets PinDownConfig::keep to false. Regions in use are deregistered when their last reference is
  /// released.
  void stop_keeping() noexcept;

  bool keeps() const noexcept { return keeping_.load(std::memory_order_relaxed); }

  // Single fields of PinDownStatistics.
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
  Region* find(const Request& request) noexcept;
  Status acquire_slowly(const Request& request, Region*& region) noexcept;
  Status register_new(const Request& request, Region*& region) noexcept;
  bool prepare() noexcept;
  Region& take_pending(const Request& request, bool extend) noexcept;
  Status register_region(Region& region) noexcept;
  bool is_hopeless(std::size_t length_bytes) noexcept;
  void make_live(Region& region, const MemoryRegion& memory) noexcept;
  PageRange pages_of(const void* address, std::size_t length_bytes) const noexcept;
  void forget(Region& region) noexcept;
  void retire(Region& region) noexcept;
  void end_use(Region& region) noexcept;
  void make_due(Region& region) noexcept;
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
  /// Length of the shortest request that the registrar refused although all regions had been evicted for it.
  /// For some time, requests of this length or more fail without eviction. SIZE_MAX: there is none.
  /// Guarded by registering_.
  std::size_t hopeless_bytes_ = SIZE_MAX;
  std::uint32_t hopeless_requests_ = 0;  ///< Requests that failed so since. Guarded by registering_.

  // Both grow under registering_ and never shrink.
  std::deque<Region> regions_made_;
  std::deque<PageTable::Node> nodes_made_;
  std::size_t next_turn_ = 0;  ///< Index in regions_made_ of eviction's next visit: the hand of the clock.

  std::mutex table_lock_;
  // Guarded by table_lock_.
  PageTable table_;
  Region* free_ = nullptr;  ///< Unused regions.
  std::size_t live_count_ = 0;
  /// Retired regions without references: to deregister. Changed under table_lock_; whether there are any is
  /// read without a lock.
  std::atomic<Region*> due_{nullptr};

  // hits_ and invalidations_ are written under table_lock_, the others under registering_. All are read
  // without a lock, so the values that statistics() returns may be of different moments.
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
  std::atomic<std::uint64_t> evictions_{0};
  std::atomic<std::uint64_t> invalidations_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> registered_bytes_{0};
  std::atomic<std::uint64_t> regions_{0};
};

}  // namespace ch3_offload
