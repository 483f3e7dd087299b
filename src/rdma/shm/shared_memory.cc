#include "rdma/shm/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "rdma/system_error.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace ch3_offload {

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    address_ = std::exchange(other.address_, nullptr);
    length_bytes_ = std::exchange(other.length_bytes_, 0);
  }
  return *this;
}

void Mapping::reset() noexcept {
  if (address_ != nullptr) ::munmap(address_, length_bytes_);
  address_ = nullptr;
  length_bytes_ = 0;
}

bool Mapping::populate(std::size_t offset_bytes, std::size_t length_bytes) const noexcept {
  // EINVAL: the kernel cannot, and the faults come one by one. EFAULT: one would be a SIGBUS.
  return ::madvise(address_ + offset_bytes, length_bytes, MADV_POPULATE_WRITE) == 0 ||
         (errno != ENOMEM && errno != EFAULT);
}

Result<FileDescriptor> make_shared_file(const char* name, std::size_t length_bytes) {
  FileDescriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return system_error("shm: memfd_create", errno);
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      length_bytes > limit.rlim_cur)
    return system_error("shm: shared memory beyond the limit of a file's size (ulimit -f)", EFBIG);
  if (::ftruncate(file.get(), static_cast<off_t>(length_bytes)) != 0)
    return system_error("shm: ftruncate of shared memory", errno);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return system_error("shm: sealing shared memory", errno);
  return file;
}

std::optional<Error> reserve_pages(const FileDescriptor& file, std::size_t offset_bytes,
                                   std::size_t length_bytes) {
  // 2: no promises. Then a page that is missing would end the process that touches it (SIGBUS).
  const FileDescriptor setting(::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
  char mode = '0';
  if (!setting.valid() || ::read(setting.get(), &mode, 1) != 1 || mode != '2') return {};
  if (::fallocate(file.get(), 0, static_cast<off_t>(offset_bytes), static_cast<off_t>(length_bytes)) == 0)
    return {};
  return system_error("shm: reserving shared memory", ENOMEM);
}

Result<FileDescriptor> make_reserved_file(const char* name, std::size_t length_bytes) {
  Result<FileDescriptor> file = make_shared_file(name, length_bytes);
  if (!file.ok()) return file;
  if (std::optional<Error> error = reserve_pages(file.value(), 0, length_bytes)) return std::move(*error);
  return file;
}

void seal_against_new_writers(const FileDescriptor& file) noexcept {
  // An older kernel returns EINVAL. Peers can then write to our doorbell, which disturbs only their wake-ups.
  static_cast<void>(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
}

bool is_sealed_file(const FileDescriptor& file, std::size_t length_bytes) noexcept {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return false;
  struct stat status {};
  struct statfs system {};
  return ::fstatfs(file.get(), &system) == 0 && system.f_type == TMPFS_MAGIC &&
         ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<std::size_t>(status.st_size) == length_bytes;
}

Result<Mapping> map_shared(const FileDescriptor& file, std::size_t length_bytes, MapAccess access) {
  const int protection = access == MapAccess::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* address = ::mmap(nullptr, length_bytes, protection, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return system_error("shm: mapping shared memory", errno);
  Mapping mapping(static_cast<std::byte*>(address), length_bytes);
  static_cast<void>(::madvise(address, length_bytes, MADV_DONTFORK));
  return mapping;
}

Result<Mapping> map_mirrored(const FileDescriptor& file, std::size_t once_bytes, std::size_t twice_bytes) {
  const std::size_t total = once_bytes + 2 * twice_bytes;
  void* address = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return system_error("shm: reserving address space for a ring", errno);
  Mapping mapping(static_cast<std::byte*>(address), total);
  const auto map_part = [&](std::size_t at, std::size_t length, std::size_t file_offset) {
    return ::mmap(mapping.address() + at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(),
                  static_cast<off_t>(file_offset)) != MAP_FAILED;
  };
  if (!map_part(0, once_bytes + twice_bytes, 0) ||
      !map_part(once_bytes + twice_bytes, twice_bytes, once_bytes))
    return system_error("shm: mapping a ring", errno);
  static_cast<void>(::madvise(address, total, MADV_DONTFORK));
  return mapping;
}

}  // namespace ch3_offload
