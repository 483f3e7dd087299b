#include "dme/pin_down_cache.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

namespace ch3_offload {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// Adds to a counter whose writers hold a lock, so that no atomic addition is needed.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
  counter.store(counter.load(kRelaxed) + amount, kRelaxed);
}

void push(Region*& list, Region& region) noexcept {
  region.next = list;
  list = &region;
}

}  // namespace

PinDownCache::PinDownCache(Registrar& registrar, const PinDownConfig& config)
    : registrar_(registrar),
      config_(config),
      page_shift_(static_cast<unsigned>(std::countr_zero(static_cast<unsigned long>(sysconf(_SC_PAGESIZE))))),
      keeping_(config.keep && fork_mark_.works()) {}

PinDownCache::~PinDownCache() {
  if (!fork_mark_.is_owner()) return;
  flush();
}

/// Describes a range as a Request. Returns false if the range is empty or lies beyond the address space.
bool PinDownCache::is_request(const void* address, std::size_t length_bytes, Access access,
                              Request& request) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (length_bytes == 0 || begin > UINTPTR_MAX - length_bytes) return false;
  request = {begin, length_bytes, access, pages_of(address, length_bytes)};
  return request.pages.last <= PageTable::kPages;
}

PageRange PinDownCache::pages_of(const void* address, std::size_t length_bytes) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin >> page_shift_, ((begin + length_bytes - 1) >> page_shift_) + 1};
}

/// Takes a reference to the live region that covers the request and returns it, or null. The whole path of a
/// hit.
Region* PinDownCache::find(const Request& request) noexcept {
  const std::lock_guard table(table_lock_);
  Region* const region = table_.find(request.pages.first);
  if (region == nullptr || region->state != RegionState::kLive || region->access < request.access)
    return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(region->memory.address);
  const std::uintptr_t offset = request.address - begin;  // Wraps to a huge value if request begins first.
  if (offset >= region->memory.length_bytes || request.length_bytes > region->memory.length_bytes - offset)
    return nullptr;
  ++region->references;
  region->used_again = true;
  add(hits_, 1);
  return region;
}

Status PinDownCache::acquire(const void* address, std::size_t length_bytes, Access access,
                             Region*& region) noexcept {
  Request request;
  if (!fork_mark_.is_owner() || !is_request(address, length_bytes, access, request))
    return Status::kUnsupported;
  region = find(request);
  return region != nullptr ? Status::kOk : acquire_slowly(request, region);
}

void PinDownCache::release(Region& region) noexcept {
  if (!fork_mark_.is_owner()) return;
  end_use(region);
  reap();
}

void PinDownCache::discard(Region& region) noexcept {
  if (!fork_mark_.is_owner()) return;
  {
    const std::lock_guard table(table_lock_);
    if (region.state == RegionState::kLive) retire(region);
  }
  release(region);
}

Status PinDownCache::acquire_slowly(const Request& request, Region*& region) noexcept {
  const std::lock_guard guard(registering_);
  reap_locked();
  region = find(request);  // Another thread may have registered it meanwhile.
  if (region != nullptr) return Status::kOk;
  const Status status = register_new(request, region);
  if (status != Status::kOk) add(refused_, 1);
  return status;
}

/// Registers a region for a miss. Tries a region that covers all overlapping regions first; if that is
/// refused, one of the request's own pages.
Status PinDownCache::register_new(const Request& request, Region*& region) noexcept {
  const std::size_t own_bytes = request.pages.count() << page_shift_;
  if (own_bytes > config_.most_bytes) return Status::kNoMemory;
  for (const bool extend : {true, false}) {
    if (!prepare()) return Status::kNoMemory;
    Region& made = take_pending(request, extend);
    const bool extended = made.memory.length_bytes > own_bytes || made.access != request.access;
    reap_locked();  // The regions that it replaces.
    const Status status = register_region(made);
    if (status == Status::kOk) {
      region = &made;
      return status;
    }
    forget(made);
    if (!extended) return status;
  }
  return Status::kNoMemory;
}

/// Provides a free Region and enough spare nodes for one insert(). Returns false if there is no memory.
/// REQUIRES: registering_ is held.
bool PinDownCache::prepare() noexcept {
  bool needs_region = false;
  std::size_t spare = 0;
  {
    const std::lock_guard table(table_lock_);
    needs_region = free_ == nullptr;
    spare = table_.spare_nodes();
  }
  // Only a thread that holds registering_ takes free regions or spare nodes away.
  try {
    if (needs_region) {
      Region& fresh = regions_made_.emplace_back();
      const std::lock_guard table(table_lock_);
      push(free_, fresh);
    }
    for (; spare < PageTable::kNodesForInsert; ++spare) {
      PageTable::Node& node = nodes_made_.emplace_back();
      const std::lock_guard table(table_lock_);
      table_.add_spare(node);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

/// Puts a pending region with one reference into the table (RULE TABLE BEFORE REGISTRAR) and retires the
/// regions that it overlaps. With `extend`, the new region covers their pages and access, too, if most_bytes
/// permits. If the cache keeps nothing, the new region is retired from the start and not in the table.
Region& PinDownCache::take_pending(const Request& request, bool extend) noexcept {
  const std::lock_guard table(table_lock_);
  Region& made = *free_;
  free_ = made.next;
  made.references = 1;
  made.access = request.access;
  made.used_again = false;
  const auto names = [&](std::uintptr_t address, std::size_t length_bytes) {
    made.memory = {reinterpret_cast<std::byte*>(address), length_bytes};  // NOLINT(performance-no-int-to-ptr)
  };
  if (!keeping_.load(kRelaxed)) {
    names(request.address, request.length_bytes);
    made.state = RegionState::kRetired;
    return made;
  }
  PageRange all = request.pages;
  Access access = request.access;
  while (Region* const other = table_.first_in(request.pages)) {
    const PageRange pages = pages_of(other->memory.address, other->memory.length_bytes);
    all = {std::min(all.first, pages.first), std::max(all.last, pages.last)};
    access = std::max(access, other->access);
    retire(*other);
  }
  if (extend && all.count() << page_shift_ <= config_.most_bytes) {
    made.access = access;
  } else {
    all = request.pages;
  }
  names(all.first << page_shift_, all.count() << page_shift_);
  made.state = RegionState::kPending;
  table_.insert(all, made);
  return made;
}

bool PinDownCache::has_room(std::size_t bytes) const noexcept {
  return regions_.load(kRelaxed) < config_.most_regions && bytes <= config_.most_bytes &&
         registered_bytes_.load(kRelaxed) <= config_.most_bytes - bytes;
}

/// Registers the range of region.memory and makes the region live. Evicts others if room is missing, twice
/// as many after each refusal of the registrar.
Status PinDownCache::register_region(Region& region) noexcept {
  const MemoryRegion wanted = region.memory;
  while (!has_room(wanted.length_bytes)) {
    if (!evict(1)) return Status::kNoMemory;
  }
  MemoryRegion memory;
  for (std::size_t count = 1;; count *= 2) {
    const Status status =
        registrar_.register_memory(wanted.address, wanted.length_bytes, region.access, memory);
    if (status == Status::kOk) break;
    if (status != Status::kNoMemory || is_hopeless(wanted.length_bytes)) return status;
    if (evict(count)) continue;
    if (count > 1 && regions_.load(kRelaxed) == 0) {
      hopeless_bytes_ = wanted.length_bytes;
      hopeless_requests_ = 0;
    }
    return status;
  }
  if (wanted.length_bytes >= hopeless_bytes_) hopeless_bytes_ = SIZE_MAX;
  add(misses_, 1);
  add(regions_, 1);
  add(registered_bytes_, wanted.length_bytes);
  region.registered = true;
  make_live(region, memory);
  return Status::kOk;
}

/// Returns true if eviction is not worth trying for a request of this length: it was in vain for a request of
/// this length or less. After 64 such requests it is tried again, because a shortage that other processes
/// cause may have ended.
bool PinDownCache::is_hopeless(std::size_t length_bytes) noexcept {
  constexpr std::uint32_t kForgottenAfter = 64;
  if (length_bytes < hopeless_bytes_) return false;
  if (++hopeless_requests_ < kForgottenAfter) return true;
  hopeless_bytes_ = SIZE_MAX;
  return false;
}

/// Lets find() return a registered region. If it was invalidated meanwhile, or the cache keeps nothing, it
/// stays retired, and its only user is the caller of acquire().
void PinDownCache::make_live(Region& region, const MemoryRegion& memory) noexcept {
  const std::lock_guard table(table_lock_);
  region.memory.remote_key = memory.remote_key;
  region.memory.local_key = memory.local_key;
  if (region.state != RegionState::kPending) return;
  region.state = RegionState::kLive;
  ++live_count_;
}

/// Undoes take_pending() for a region that could not be registered. The next reap_locked() frees it.
void PinDownCache::forget(Region& region) noexcept {
  {
    const std::lock_guard table(table_lock_);
    if (region.state == RegionState::kPending) retire(region);
  }
  end_use(region);
}

void PinDownCache::end_use(Region& region) noexcept {
  const std::lock_guard table(table_lock_);
  --region.references;
  if (region.state == RegionState::kRetired) make_due(region);
}

/// Removes a region from the table: RULE RETIRED FIRST.
/// REQUIRES: table_lock_ is held; the region is in the table.
void PinDownCache::retire(Region& region) noexcept {
  table_.erase(pages_of(region.memory.address, region.memory.length_bytes));
  if (region.state == RegionState::kLive) --live_count_;
  region.state = RegionState::kRetired;
  make_due(region);
}

/// Lets reap() deregister a retired region, unless it has references. REQUIRES: table_lock_ is held.
void PinDownCache::make_due(Region& region) noexcept {
  if (region.references != 0) return;
  region.next = due_.load(kRelaxed);
  due_.store(&region, kRelaxed);
}

/// Retires the next region that is not in use and had no hit since the last visit. Returns false if all are
/// in use. REQUIRES: registering_ is held.
bool PinDownCache::evict_one() noexcept {
  const std::lock_guard table(table_lock_);
  for (bool noted = true; noted && live_count_ > 0;) {
    noted = false;
    for (std::size_t turns = regions_made_.size(); turns > 0; --turns) {
      if (next_turn_ >= regions_made_.size()) next_turn_ = 0;
      Region& region = regions_made_[next_turn_++];
      if (region.state != RegionState::kLive || region.references != 0) continue;
      if (region.used_again) {
        region.used_again = false;
        noted = true;  // The next round may evict it.
        continue;
      }
      retire(region);
      add(evictions_, 1);
      return true;
    }
  }
  return false;
}

/// Deregisters `count` regions that are not in use, or as many as there are. Returns false if there is none.
bool PinDownCache::evict(std::size_t count) noexcept {
  std::size_t evicted = 0;
  while (evicted < count && evict_one()) ++evicted;
  reap_locked();
  return evicted > 0;
}

void PinDownCache::invalidate(const void* address, std::size_t length_bytes) noexcept {
  const std::uintptr_t to_the_end = UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(address);
  if (!fork_mark_.is_owner() || length_bytes == 0) return;
  const PageRange pages = pages_of(address, std::min(length_bytes, to_the_end));
  const std::lock_guard table(table_lock_);
  while (Region* const region = table_.first_in(pages)) {
    retire(*region);
    add(invalidations_, 1);
  }
}

void PinDownCache::reap_now() noexcept {
  // Do not wait for the lock: its holder may be registering gigabytes. If it is taken, a later call reaps.
  const std::unique_lock guard(registering_, std::try_to_lock);
  if (guard.owns_lock() && fork_mark_.is_owner()) reap_locked();
}

/// Deregisters retired regions without references. REQUIRES: registering_ is held.
void PinDownCache::reap_locked() noexcept {
  if (due_.load(kRelaxed) == nullptr) return;
  Region* unused = nullptr;
  {
    const std::lock_guard table(table_lock_);
    unused = due_.exchange(nullptr, kRelaxed);
  }
  while (unused != nullptr) {
    Region& region = *unused;
    unused = region.next;
    if (region.registered) {
      registered_bytes_.store(registered_bytes_.load(kRelaxed) - region.memory.length_bytes, kRelaxed);
      regions_.store(regions_.load(kRelaxed) - 1, kRelaxed);
      registrar_.deregister_memory(region.memory);
      region.registered = false;
    }
    const std::lock_guard table(table_lock_);
    region.state = RegionState::kFree;
    push(free_, region);
  }
}

void PinDownCache::flush() noexcept {
  if (!fork_mark_.is_owner()) return;
  const std::lock_guard guard(registering_);
  retire_all([](const Region& region) { return region.references == 0; });
  reap_locked();
}

void PinDownCache::stop_keeping() noexcept {
  if (!fork_mark_.is_owner()) return;
  const std::lock_guard guard(registering_);
  keeping_.store(false, kRelaxed);
  retire_all([](const Region&) { return true; });
  reap_locked();
}

/// Retires all live regions for which `which` returns true. REQUIRES: registering_ is held.
template <class Which>
void PinDownCache::retire_all(Which which) noexcept {
  const std::lock_guard table(table_lock_);
  for (Region& region : regions_made_) {
    if (region.state == RegionState::kLive && which(region)) retire(region);
  }
}

PinDownStatistics PinDownCache::statistics() const noexcept {
  return {.hits = hits_.load(kRelaxed),
          .misses = misses_.load(kRelaxed),
          .evictions = evictions_.load(kRelaxed),
          .invalidations = invalidations_.load(kRelaxed),
          .refused = refused_.load(kRelaxed),
          .registered_bytes = registered_bytes_.load(kRelaxed),
          .regions = regions_.load(kRelaxed)};
}

}  // namespace ch3_offload
