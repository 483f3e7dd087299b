// The memory that peers may write to, by its key: what a device's memory regions are to verbs.
//
// Threads: one at a time. Only add() allocates.

#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "rdma/registrar.h"

namespace ch3_offload {

class TcpLandings {
 public:
  /// kNoMemory.
  Status add(std::byte* address, std::size_t length_bytes, Access access, MemoryRegion& region) noexcept {
    if (free_ == kNone) {
      try {
        entries_.emplace_back();
      } catch (const std::bad_alloc&) {
        return Status::kNoMemory;
      }
      free_ = static_cast<std::uint32_t>(entries_.size() - 1);
    }
    const std::uint32_t index = free_;
    Entry& entry = entries_[index];
    free_ = entry.next_free;
    entry.address = address;
    entry.length_bytes = length_bytes;
    entry.is_used = true;
    entry.is_writable = access == Access::kWrite;
    region = {address, length_bytes, RemoteKey{std::uint64_t{entry.life} << 32 | index}, 0};
    return Status::kOk;
  }
  /// REQUIRES: add() made the region.
  void remove(const MemoryRegion& region) noexcept {
    const auto index = static_cast<std::uint32_t>(region.remote_key);
    Entry& entry = entries_[index];
    entry.is_used = false;
    ++entry.life;
    entry.next_free = free_;
    free_ = index;
  }
  /// Whether a peer that names this key may write there. Any input.
  bool permits(std::uint64_t key, std::uint64_t address, std::size_t length_bytes) const noexcept {
    const auto index = static_cast<std::uint32_t>(key);
    if (index >= entries_.size()) return false;
    const Entry& entry = entries_[index];
    const auto begin = reinterpret_cast<std::uintptr_t>(entry.address);
    return entry.is_used && entry.is_writable && entry.life == key >> 32 && address >= begin &&
           address - begin <= entry.length_bytes && length_bytes <= entry.length_bytes - (address - begin);
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Entry {
    std::byte* address = nullptr;
    std::size_t length_bytes = 0;
    std::uint32_t life = 0;  ///< Counts the uses of this entry, so that an old key opens nothing.
    std::uint32_t next_free = kNone;
    bool is_used = false;
    bool is_writable = false;
  };
  std::vector<Entry> entries_;
  std::uint32_t free_ = kNone;
};

}  // namespace ch3_offload
