#include "dme/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace ch3_offload {

namespace {

std::size_t page_bytes() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

ForkMark::ForkMark() {
  void* const page = mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  works_ = madvise(page, page_bytes(), MADV_WIPEONFORK) == 0;
  *static_cast<unsigned char*>(page) = 1;
  page_ = static_cast<unsigned char*>(page);
}

ForkMark::~ForkMark() { munmap(const_cast<unsigned char*>(page_), page_bytes()); }

}  // namespace ch3_offload
