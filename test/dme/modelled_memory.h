// A process's address space in a model, and a registrar over it that remembers which pages it pinned: so a use of a stale
// registration is seen, without a device.
//
// Each page of the model has a frame, 0 when it is not mapped; mapping gives it a new one. A registration keeps the frames it found.
// Threads: map(), unmap() and move() of one page exclude uses of that page (that is what a correct program does); else from any.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dme/pin_down_cache.h"

namespace ch3_offload {

class ModelledMemory : public Registrar {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  explicit ModelledMemory(std::size_t pages) : frames_(pages) {}

  /// An address that is never dereferenced. Well apart from real ones, and not at the start of a node of the table.
  static std::byte* address_of(std::size_t page) noexcept {
    return reinterpret_cast<std::byte*>(kBase + page * kPageBytes);  // NOLINT(performance-no-int-to-ptr)
  }

  /// Gives the pages new frames.
  void map(std::size_t first, std::size_t count) noexcept {
    for (std::size_t page = first; page < first + count; ++page)
      frames_[page].store(next_frame_.fetch_add(1));
  }

  /// Takes the frames away. `cache`, if any, is told before, as it is in a real process.
  void unmap(std::size_t first, std::size_t count, PinDownCache* cache) noexcept {
    if (cache != nullptr) cache->invalidate(address_of(first), count * kPageBytes);
    for (std::size_t page = first; page < first + count; ++page) frames_[page].store(0);
  }

  /// Moves frames over others', as mremap(MREMAP_FIXED) does. The ranges do not overlap.
  void move(std::size_t first, std::size_t to, std::size_t count, PinDownCache* cache) noexcept {
    unmap(to, count, cache);
    if (cache != nullptr) cache->invalidate(address_of(first), count * kPageBytes);
    for (std::size_t i = 0; i < count; ++i) frames_[to + i].store(frames_[first + i].exchange(0));
  }

  bool is_mapped(std::size_t first, std::size_t count) const noexcept {
    for (std::size_t page = first; page < first + count; ++page)
      if (frames_[page].load() == 0) return false;
    return true;
  }

  /// What is wrong with using the bytes through that registration, or an empty string.
  std::string why_wrong(const std::byte* address, std::size_t length_bytes, Access access,
                        const MemoryRegion& memory) {
    const std::lock_guard guard(lock_);
    const auto found = registrations_.find(memory.local_key);
    if (found == registrations_.end()) return "the region is not registered";
    const Registration& registration = found->second;
    if (address < registration.address ||
        address + length_bytes > registration.address + registration.length_bytes)
      return "the region does not hold the bytes";
    if (registration.access < access) return "the region may not be written to";
    const std::size_t first = page_of(address);
    const std::size_t last = page_of(address + length_bytes - 1);
    const std::size_t base = page_of(registration.address);
    for (std::size_t page = first; page <= last; ++page)
      if (registration.frames[page - base] != frames_[page].load()) return "a stale page";
    return {};
  }

  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override {
    auto* const begin = static_cast<std::byte*>(address);
    Registration registration{begin, length_bytes, access, {}};
    for (std::size_t page = page_of(begin); page <= page_of(begin + length_bytes - 1); ++page) {
      const std::uint64_t frame = page < frames_.size() ? frames_[page].load() : 0;
      if (frame == 0) return Status::kUnsupported;
      registration.frames.push_back(frame);
      if (pauses) std::this_thread::yield();
    }
    const std::lock_guard guard(lock_);
    if (access == Access::kWrite && page_of(begin) < read_only_pages) return Status::kUnsupported;
    if (refusals > 0) {
      --refusals;
      return Status::kNoMemory;
    }
    if (registered_bytes_ + length_bytes > limit_bytes) return Status::kNoMemory;
    registered_bytes_ += length_bytes;
    most_registered_bytes = std::max(most_registered_bytes, registered_bytes_);
    ++registered;
    const std::uint64_t key = ++last_key_;
    registrations_.emplace(key, std::move(registration));
    most_registrations = std::max(most_registrations, registrations_.size());
    region = {begin, length_bytes, RemoteKey{key}, key};
    return Status::kOk;
  }

  void deregister_memory(MemoryRegion& region) noexcept override {
    const std::lock_guard guard(lock_);
    const auto found = registrations_.find(region.local_key);
    if (found == registrations_.end()) {
      ++wrong_deregistrations;
      return;
    }
    registered_bytes_ -= found->second.length_bytes;
    registrations_.erase(found);
    region = {};
  }

  std::size_t live() {
    const std::lock_guard guard(lock_);
    return registrations_.size();
  }
  std::size_t registered_bytes() {
    const std::lock_guard guard(lock_);
    return registered_bytes_;
  }

  // Set before use.
  bool pauses = false;                 ///< Registering takes time, so that other threads come between.
  std::size_t limit_bytes = SIZE_MAX;  ///< What the "device" pins at most.
  std::size_t read_only_pages = 0;     ///< Pages before this one cannot be registered for writing.
  std::size_t refusals = 0;            ///< So many registrations are refused.
  // Seen.
  std::size_t registered = 0;
  std::size_t wrong_deregistrations = 0;
  std::size_t most_registered_bytes = 0;
  std::size_t most_registrations = 0;

 private:
  static constexpr std::uintptr_t kBase = 0x100'0000'0000 + 509 * kPageBytes;

  struct Registration {
    std::byte* address;
    std::size_t length_bytes;
    Access access;
    std::vector<std::uint64_t> frames;
  };

  static std::size_t page_of(const std::byte* address) noexcept {
    return (reinterpret_cast<std::uintptr_t>(address) - kBase) / kPageBytes;
  }

  std::vector<std::atomic<std::uint64_t>> frames_;
  std::atomic<std::uint64_t> next_frame_{1};
  std::mutex lock_;  // Guards all below, and what is seen.
  std::map<std::uint64_t, Registration> registrations_;
  std::size_t registered_bytes_ = 0;
  std::uint64_t last_key_ = 0;
};

}  // namespace ch3_offload
