#include "engine/page_arena.h"

#include <sys/mman.h>

#include <new>

namespace ch3_offload {

namespace {

/// Addresses only; memory comes as it is used.
constexpr std::size_t kReservedBytes = std::size_t{64} << 30;

}  // namespace

PageArena::PageArena() {
  void* const memory = mmap(nullptr, kReservedBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<std::byte*>(memory);
}

PageArena::~PageArena() { munmap(begin_, kReservedBytes); }

void* PageArena::do_allocate(std::size_t length_bytes, std::size_t) {
  const std::size_t pages = (length_bytes + kPageBytes - 1) / kPageBytes;
  // A longer one will do: its rest goes back, so that buffers come to lie across old ones' borders.
  const auto found = free_.lower_bound(pages);
  if (found != free_.end()) {
    std::byte* const memory = found->second.back();
    const std::size_t left = found->first - pages;
    found->second.pop_back();
    if (found->second.empty()) free_.erase(found);
    if (left > 0) free_[left].push_back(memory + pages * kPageBytes);
    return memory;
  }
  if (kReservedBytes - used_bytes_ < pages * kPageBytes) throw std::bad_alloc();
  std::byte* const memory = begin_ + used_bytes_;
  used_bytes_ += pages * kPageBytes;
  return memory;
}

void PageArena::do_deallocate(void* address, std::size_t length_bytes, std::size_t) {
  const std::size_t pages = (length_bytes + kPageBytes - 1) / kPageBytes;
  auto* const memory = static_cast<std::byte*>(address);
  free_[pages].push_back(memory);
  if (on_free) on_free(memory, pages * kPageBytes);
}

}  // namespace ch3_offload
