// Sealed anonymous files (memfd) and their mappings: the memory that two processes of a node share.
//
// A file that comes from a peer is mapped only if it can no longer shrink (F_SEAL_SHRINK) and is large
// enough: a peer that truncates it cannot make us fault. Mappings are not inherited by a child
// (MADV_DONTFORK), so that a fork cannot write into its parent's rings. Set-up only; may block and
// allocate.

#pragma once

#include <sys/types.h>

#include <cstddef>

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

 private:
  std::byte* address_ = nullptr;  ///< nullptr: none.
  std::size_t length_bytes_ = 0;
};

/// Makes a zeroed file of `length_bytes` that can neither shrink nor grow.
Result<FileDescriptor> make_shared_file(const char* name, std::size_t length_bytes);

/// Forbids writable mappings from now on, where the kernel can (Linux 5.1); existing ones stay.
void seal_against_new_writers(const FileDescriptor& file) noexcept;

/// Whether a file from a peer has exactly this length and can no longer shrink.
bool is_sealed_file(const FileDescriptor& file, std::size_t length_bytes) noexcept;

enum class MapAccess { kRead, kReadWrite };

/// Maps the whole file.
Result<Mapping> map_shared(const FileDescriptor& file, std::size_t length_bytes, MapAccess access);

/// Maps `once_bytes` of the file and, behind them, the following `twice_bytes` two times in a row: what
/// runs over the end of the first copy continues at its beginning. Both are multiples of the page size.
Result<Mapping> map_mirrored(const FileDescriptor& file, std::size_t once_bytes, std::size_t twice_bytes);

}  // namespace ch3_offload
