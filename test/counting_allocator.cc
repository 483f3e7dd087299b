#include "counting_allocator.h"

#include <cstdlib>
#include <new>

namespace {

using namespace ch3_offload;

/// In front of the memory, so that what is freed can be counted.
struct alignas(16) Header {
  std::size_t bytes;
  bool is_marked;
};

void* allocate(std::size_t bytes) noexcept {
  ++allocator::allocations;
  allocator::allocated_bytes += bytes;
  if (const std::uint64_t left = allocator::left; left != allocator::kPlenty) {
    if (left == 0) return nullptr;
    allocator::left = left - 1;
  }
  auto* const header = static_cast<Header*>(std::malloc(sizeof(Header) + bytes));
  if (header == nullptr) return nullptr;
  const auto marks = allocator::marks.load();
  *header = {.bytes = bytes, .is_marked = marks != nullptr && marks()};
  allocator::live_bytes += static_cast<std::int64_t>(bytes);
  if (header->is_marked) allocator::live_bytes_marked += static_cast<std::int64_t>(bytes);
  return header + 1;
}

void* allocate_or_throw(std::size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  auto* const header = static_cast<Header*>(memory) - 1;
  allocator::live_bytes -= static_cast<std::int64_t>(header->bytes);
  if (header->is_marked) allocator::live_bytes_marked -= static_cast<std::int64_t>(header->bytes);
  std::free(header);
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
