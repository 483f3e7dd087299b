#include "nic/neighbour_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <new>

namespace ch3_offload {
namespace {

/// Invalid: this process may not open it, or the process that has it open has gone.
FileDescriptor open_file(const MemoryPlace& place) noexcept {
  char name[64];
  std::snprintf(name, sizeof(name), "/proc/%d/fd/%d", place.process, place.descriptor);
  FileDescriptor file(::open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  const bool is_it = file.valid() && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_ino == place.file_number && is_sealed_file(file, place.file_bytes);
  return is_it ? std::move(file) : FileDescriptor();
}

}  // namespace

std::byte* NeighbourMemory::map(const MemoryPlace& place, std::size_t length_bytes) noexcept {
  if (!place.is_somewhere() || place.offset_bytes > place.file_bytes ||
      length_bytes > place.file_bytes - place.offset_bytes)
    return nullptr;
  try {
    const std::pair name(place.process, place.file_number);
    auto entry = files_.find(name);
    if (entry == files_.end()) {
      const FileDescriptor file = open_file(place);
      if (!file.valid()) return nullptr;
      Result<Mapping> mapping = map_shared(file, place.file_bytes, MapAccess::kReadWrite);
      if (!mapping.ok()) return nullptr;
      entry = files_.try_emplace(name, File{std::move(mapping.value()), 0}).first;
    }
    if (entry->second.mapping.length_bytes() != place.file_bytes) return nullptr;
    ++entry->second.users;
    return entry->second.mapping.address() + place.offset_bytes;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void NeighbourMemory::unmap(const std::byte* address) noexcept {
  for (auto entry = files_.begin(); entry != files_.end(); ++entry) {
    File& file = entry->second;
    const auto offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(file.mapping.address());
    if (offset >= file.mapping.length_bytes()) continue;
    if (--file.users == 0) files_.erase(entry);
    return;
  }
}

bool SharedWithNeighbours::share(const std::byte* address, std::size_t length_bytes,
                                 const FileDescriptor& file) noexcept {
  static_cast<void>(file);
  if (files_ >= SharedArena::kMostOpenFiles) return false;  // It would not be mapped: malloc() serves.
  ++files_;
  static_cast<void>(::madvise(const_cast<std::byte*>(address), length_bytes, MADV_DOFORK));
  return true;
}

void SharedWithNeighbours::unshare(const std::byte* address) noexcept {
  static_cast<void>(address);
  --files_;
}

}  // namespace ch3_offload
