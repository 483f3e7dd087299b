// Sealed anonymous files (memfd) and their mappings: the memory that two processes of a node share.
//
// A peer's file is mapped only if it can no longer shrink and has the expected size: is_sealed_file(). So a
// peer cannot make this process fault by truncating the file. A child does not inherit the mappings
// (MADV_DONTFORK), so it cannot write into its parent's rings.
//
// For set-up only: the functions may block and allocate.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "rdma/file_descriptor.h"
#include "rdma/status.h"

namespace ch3_offload {

/// An owned range of address space.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* address, std::size_t length_bytes) noexcept
      : address_(address), length_bytes_(length_bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)),
        length_bytes_(std::exchange(other.length_bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }

  std::byte* address() const noexcept { return address_; }
  std::size_t length_bytes() const noexcept { return length_bytes_; }
  bool valid() const noexcept { return address_ != nullptr; }
  void reset() noexcept;
  /// The memory stays mapped, and is nobody's.
  void release() noexcept { address_ = nullptr; }
  /// Takes the page faults of a part now, if the kernel can do that (Linux 5.14). One system call. False:
  /// there are not so many pages.
  bool populate(std::size_t offset_bytes, std::size_t length_bytes) const noexcept;

 private:
  std::byte* address_ = nullptr;  ///< nullptr: none.
  std::size_t length_bytes_ = 0;
};

/// Makes a file of `length_bytes` zeros that can neither shrink nor grow. One beyond RLIMIT_FSIZE is an
/// error, and not a signal.
Result<FileDescriptor> make_shared_file(const char* name, std::size_t length_bytes);

/// Sees to it that pages of such a file are there when they are touched. Has no effect where the kernel
/// promises more memory than there is (vm.overcommit_memory), as it does for malloc(). kNoMemory: there are
/// not so many.
std::optional<Error> reserve_pages(const FileDescriptor& file, std::size_t offset_bytes,
                                   std::size_t length_bytes);
/// make_shared_file(), and all of its pages are reserved.
Result<FileDescriptor> make_reserved_file(const char* name, std::size_t length_bytes);

/// Forbids new writable mappings of the file, if the kernel can do that (Linux 5.1). Existing mappings stay.
void seal_against_new_writers(const FileDescriptor& file) noexcept;

/// Returns whether a peer's file has exactly this length, can no longer shrink, and is one of small pages. To
/// touch a file of huge pages of which none is left would end this process.
bool is_sealed_file(const FileDescriptor& file, std::size_t length_bytes) noexcept;

enum class MapAccess { kRead, kReadWrite };

/// Maps the first `length_bytes` of the file.
Result<Mapping> map_shared(const FileDescriptor& file, std::size_t length_bytes, MapAccess access);

/// Maps the first `once_bytes` of the file and then, two times in a row, the `twice_bytes` after them. So
/// data that runs over the end of the first copy continues at its beginning.
/// REQUIRES: both are multiples of the page size.
Result<Mapping> map_mirrored(const FileDescriptor& file, std::size_t once_bytes, std::size_t twice_bytes);

}  // namespace ch3_offload
