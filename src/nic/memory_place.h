// Where memory of a process is, so that other processes of its node can map it.

#pragma once

#include <cstdint>
#include <type_traits>

namespace ch3_offload {

/// A part of a sealed file that a process has open. Processes send it to each other as it is.
struct MemoryPlace {
  std::int32_t process = 0;       ///< Its process id. 0: nowhere.
  std::int32_t descriptor = 0;    ///< Of the file, there.
  std::uint64_t file_number = 0;  ///< The inode's: another file may have got the descriptor.
  std::uint64_t file_bytes = 0;
  std::uint64_t offset_bytes = 0;

  bool is_somewhere() const noexcept { return process != 0; }
};
static_assert(std::is_trivially_copyable_v<MemoryPlace> && sizeof(MemoryPlace) == 32);

}  // namespace ch3_offload
