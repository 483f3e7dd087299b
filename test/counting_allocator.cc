#include "counting_allocator.h"

#include <cstdlib>
#include <new>

namespace {

using namespace ch3_offload;

constexpr std::size_t kHeaderBytes = 16;  // The size is in front, so that what is freed can be counted.

void* allocate(std::size_t bytes) noexcept {
  ++allocator::allocations;
  allocator::allocated_bytes += bytes;
  if (const std::uint64_t left = allocator::left; left != allocator::kPlenty) {
    if (left == 0) return nullptr;
    allocator::left = left - 1;
  }
  auto* const memory = static_cast<std::size_t*>(std::malloc(bytes + kHeaderBytes));
  if (memory == nullptr) return nullptr;
  allocator::live_bytes += static_cast<std::int64_t>(bytes);
  *memory = bytes;
  return memory + kHeaderBytes / sizeof *memory;
}

void* allocate_or_throw(std::size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  auto* const start = static_cast<std::size_t*>(memory) - kHeaderBytes / sizeof(std::size_t);
  allocator::live_bytes -= static_cast<std::int64_t>(*start);
  std::free(start);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
// Inlined, they make GCC believe that free() is handed what operator new returned by mistake.
[[gnu::noinline]] void operator delete(void* memory) noexcept { release(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { release(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { release(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
