#include "rdma/verbs/dmabuf.h"

#include <dirent.h>
#include <sys/stat.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace ch3_offload {

namespace {

struct MappedFile {
  std::uint64_t inode = 0;
  std::uint64_t offset_bytes = 0;
};

/// What /proc/self/maps says of the memory.
std::optional<MappedFile> find_mapping(std::uintptr_t begin, std::uintptr_t end,
                                       std::string_view kind) noexcept {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose);
  if (maps == nullptr) return {};
  std::array<char, 512> line;  // Of a longer one the rest comes as a line that is none.
  while (std::fgets(line.data(), line.size(), maps.get()) != nullptr) {
    std::uintptr_t first = 0, last = 0;
    MappedFile file;
    std::array<char, 64> name{};
    if (std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR " %*4s %" SCNx64 " %*x:%*x %" SCNu64 " %63s",
                    &first, &last, &file.offset_bytes, &file.inode, name.data()) != 5)
      continue;
    if (begin < first || end > last) continue;
    if (!std::string_view(name.data()).starts_with(kind)) return {};
    file.offset_bytes += begin - first;
    return file;
  }
  return {};
}

bool is(const FileDescriptor& file, std::uint64_t inode, std::string_view kind) noexcept {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || status.st_ino != inode) return false;
  // Inode numbers are of one file system each.
  std::array<char, 64> link;
  std::array<char, 64> name{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file.get());
  const ssize_t length = ::readlink(link.data(), name.data(), name.size());
  return length > 0 && std::string_view(name.data(), static_cast<std::size_t>(length)).starts_with(kind);
}

}  // namespace

std::optional<DmabufRange> find_dmabuf(const void* address, std::size_t length_bytes,
                                       std::string_view kind) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::optional<MappedFile> mapped = find_mapping(begin, begin + length_bytes, kind);
  if (!mapped) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> descriptors(::opendir("/proc/self/fd"), &::closedir);
  if (descriptors == nullptr) return {};
  while (const dirent* const entry = ::readdir(descriptors.get())) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end != '\0') continue;
    struct stat status {};
    if (::fstat(static_cast<int>(number), &status) != 0 || status.st_ino != mapped->inode) continue;
    // The program may close it, and open another, while we look: a descriptor of our own stays what it is.
    FileDescriptor own(::fcntl(static_cast<int>(number), F_DUPFD_CLOEXEC, 0));
    if (own.valid() && is(own, mapped->inode, kind)) return DmabufRange{std::move(own), mapped->offset_bytes};
  }
  return {};
}

}  // namespace ch3_offload
