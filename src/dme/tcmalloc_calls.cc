#include "dme/tcmalloc_calls.h"

#include <dlfcn.h>
#include <sys/types.h>

namespace ch3_offload {

namespace {

RangeCall memory_goes = nullptr;
RangeCall memory_came = nullptr;

// The hooks of gperftools/malloc_hook_c.h. Memory that mmap() or mremap() replaced is reported after the
// call, but before the caller can use the new memory.

void on_mmap(const void* result, const void*, std::size_t length_bytes, int, int, int, off_t) {
  memory_came(const_cast<void*>(result), length_bytes);
}

void on_munmap(const void* address, std::size_t length_bytes) {
  memory_goes(const_cast<void*>(address), length_bytes);
}

void on_mremap(const void* result, const void* address, std::size_t old_bytes, std::size_t new_bytes, int,
               const void*) {
  memory_goes(const_cast<void*>(address), old_bytes);
  memory_came(const_cast<void*>(result), new_bytes);
}

template <class Hook>
bool add(const char* name, Hook* hook) noexcept {
  using Add = int (*)(Hook*);
  const auto add_hook = reinterpret_cast<Add>(dlsym(RTLD_DEFAULT, name));
  return add_hook != nullptr && add_hook(hook) != 0;
}

}  // namespace

bool watch_tcmalloc(RangeCall going, RangeCall come) noexcept {
  memory_goes = going;
  memory_came = come;
  return add("MallocHook_AddMunmapHook", &on_munmap) && add("MallocHook_AddMmapHook", &on_mmap) &&
         add("MallocHook_AddMremapHook", &on_mremap);
}

}  // namespace ch3_offload
