// A page of this process that comes late: whoever touches it, also the kernel in a copy, waits for serve().

#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "rdma/file_descriptor.h"

namespace ch3_offload {

class LateMemory {
 public:
  static constexpr std::size_t kBytes = 4096;

  LateMemory() : faults_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))) {
    uffdio_api api{};
    api.api = UFFD_API;
    memory_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_register region{};
    region.range = range();
    region.mode = UFFDIO_REGISTER_MODE_MISSING;
    is_late_ = faults_.valid() && ::ioctl(faults_.get(), UFFDIO_API, &api) == 0 &&
               ::ioctl(faults_.get(), UFFDIO_REGISTER, &region) == 0;
  }
  ~LateMemory() { ::munmap(memory_, kBytes); }
  LateMemory(const LateMemory&) = delete;
  LateMemory& operator=(const LateMemory&) = delete;

  /// False: this system has no userfaultfd for this user.
  bool is_late() const { return is_late_; }
  std::byte* address() const { return static_cast<std::byte*>(memory_); }
  /// Whether somebody waits for it.
  bool is_wanted() const {
    pollfd fault{faults_.get(), POLLIN, 0};
    return ::poll(&fault, 1, 0) == 1;
  }
  /// It comes, full of zeros.
  bool serve() {
    uffdio_zeropage page{};
    page.range = range();
    return ::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &page) == 0;
  }

 private:
  uffdio_range range() const { return {reinterpret_cast<std::uint64_t>(memory_), kBytes}; }

  const FileDescriptor faults_;
  void* memory_;
  bool is_late_;
};

}  // namespace ch3_offload
