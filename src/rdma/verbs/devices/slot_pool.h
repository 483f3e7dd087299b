// Registered memory, cut into slots of one size. Grows by slabs up to a bound; a slab is registered once with
// each of the devices that use it.
//
// Threads: as rdma/provider.h says. take() and give_back() neither allocate nor block; grow() registers
// memory.

#pragma once

#include <sys/mman.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rdma/status.h"
#include "rdma/verbs/devices/verbs_handles.h"

namespace ch3_offload {

class SlotPool {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  static constexpr std::size_t kMostDomains = 2;

  /// `slot_bytes`: a multiple of 64. `most_slots` is rounded up to whole slabs. The 1 to kMostDomains
  /// `domains` outlive the pool.
  SlotPool(std::span<ibv_pd* const> domains, std::size_t slot_bytes, std::uint32_t slots_per_slab,
           std::uint32_t most_slots)
      : domains_(domains.begin(), domains.end()),
        slot_bytes_(slot_bytes),
        slots_per_slab_(slots_per_slab),
        most_slabs_((most_slots + slots_per_slab - 1) / slots_per_slab) {
    assert(slot_bytes % 64 == 0 && slots_per_slab > 0 && !domains.empty() && domains.size() <= kMostDomains);
    slabs_.reserve(most_slabs_);
    free_.reserve(std::size_t{most_slabs_} * slots_per_slab);
  }

  /// Adds a slab: all its slots are free. kAgain: the bound is reached. kNoMemory: memory or its registration
  /// was refused; the message says which limit.
  std::optional<Error> grow();

  /// What there is now is all.
  void stop_growing() noexcept { most_slabs_ = static_cast<std::uint32_t>(slabs_.size()); }
  /// The device of the `domain`th domain failed: slabs that are added from now on are not registered with it.
  void abandon_domain(std::size_t domain) noexcept { domains_[domain] = nullptr; }

  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(slabs_.size()) * slots_per_slab_; }
  std::uint32_t most() const noexcept { return most_slabs_ * slots_per_slab_; }
  /// Whether more than `kept` slots are free, or the pool may grow.
  bool may_take(std::uint32_t kept = 0) const noexcept { return free_.size() > kept || count() < most(); }
  std::uint32_t free_count() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  std::size_t registered_bytes() const noexcept { return count() * slot_bytes_; }

  /// A free slot, the one used last first (it is in the cache); kNone: all are taken.
  std::uint32_t take() noexcept {
    if (free_.empty()) return kNone;
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::uint32_t slot) noexcept {
    assert(slot < count() && free_.size() < count());
    free_.push_back(slot);  // Room was reserved.
  }

  std::byte* address(std::uint32_t slot) const noexcept {
    return slabs_[slot / slots_per_slab_].memory.address + slot % slots_per_slab_ * slot_bytes_;
  }
  /// For the device of the `domain`th domain. REQUIRES: it was not abandoned.
  std::uint32_t local_key(std::uint32_t slot, std::size_t domain) const noexcept {
    return slabs_[slot / slots_per_slab_].registrations[domain]->lkey;
  }

 private:
  /// Whole pages of our own, so that a fork or a free() nearby cannot take them away.
  struct Pages {
    Pages() = default;
    Pages(Pages&& other) noexcept : address(other.address), length(other.length) { other.address = nullptr; }
    Pages& operator=(Pages&&) = delete;
    ~Pages() {
      if (address != nullptr) ::munmap(address, length);
    }
    std::byte* address = nullptr;
    std::size_t length = 0;
  };
  struct Slab {
    Pages memory;
    std::array<Registration, kMostDomains> registrations;  // Gone before the memory.
  };

  std::vector<ibv_pd*> domains_;
  std::size_t slot_bytes_;
  std::uint32_t slots_per_slab_;
  std::uint32_t most_slabs_;
  std::vector<Slab> slabs_;
  std::vector<std::uint32_t> free_;
};

/// "raise it (...)"
std::string locked_memory_remedy();

/// "registering N bytes failed: ...", with the limit that is too small and the remedy.
Error registration_error(std::size_t length_bytes, int error_number);

}  // namespace ch3_offload
