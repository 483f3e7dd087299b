// Memory of other processes of the node, mapped here: what they have of MPI_Alloc_mem (SharedArena).
//
// The kernel opens another process's file (/proc/PID/fd) for whoever may look into that process: the same
// user, within one PID namespace. A file is mapped only if it is the one that was named and can no longer
// shrink, so that no process can make another one fault. It is mapped once, as long as something uses it.
//
// Threads: one at a time. For set-up only: system calls, allocation.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "nic/memory_place.h"
#include "nic/shared_arena.h"
#include "rdma/shm/shared_memory.h"

namespace ch3_offload {

class NeighbourMemory {
 public:
  /// The address here of that many bytes. nullptr: they are nowhere, or cannot be mapped.
  std::byte* map(const MemoryPlace& place, std::size_t length_bytes) noexcept;
  /// Ends the use of an address that map() has returned.
  void unmap(const std::byte* address) noexcept;

 private:
  struct File {
    Mapping mapping;
    std::size_t users = 0;
  };
  /// By process and number of the file.
  std::map<std::pair<std::int32_t, std::uint64_t>, File> files_;
};

/// For an arena whose memory no processor maps, but the processes of the node do. A child of fork inherits
/// it, as it does other memory of the program; what it writes there, its parent sees.
class SharedWithNeighbours final : public SharesMemory {
 public:
  bool share(const std::byte* address, std::size_t length_bytes,
             const FileDescriptor& file) noexcept override;
  void unshare(const std::byte* address) noexcept override;

 private:
  std::size_t files_ = 0;  ///< That are shared.
};

}  // namespace ch3_offload
