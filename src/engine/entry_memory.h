// The memory of a target entry as an operation uses it: a part of it, which may have gaps or be another
// process's.

#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/payload_layout.h"
#include "engine/targets/target_table.h"

namespace ch3_offload {

/// A part of the memory of an entry that is not contiguous, as a payload whose first byte is the part's. It
/// must stay where it is as long as the payload is used.
struct EntryPart {
  TargetReach reach;             ///< The entry's.
  Payload memory;                ///< All of the entry's.
  std::size_t offset_bytes = 0;  ///< Where the part begins.

  static void pack(const void* part, std::size_t offset_bytes, std::byte* destination,
                   std::size_t length_bytes) noexcept;
  static void unpack(void* part, std::size_t offset_bytes, const std::byte* source,
                     std::size_t length_bytes) noexcept;
};

/// Of the entry's memory: what the operation uses. `part` is what it needs.
Payload payload_of(const TargetPlacement& placement, EntryPart& part) noexcept;

/// The same memory for an operation that needs it contiguous: itself, or a copy that store() writes back.
class EntryMemory {
 public:
  explicit EntryMemory(const TargetPlacement& placement) noexcept;
  EntryMemory(const EntryMemory&) = delete;
  EntryMemory& operator=(const EntryMemory&) = delete;

  /// False: there is no memory for the copy.
  bool is_there() const noexcept { return bytes_.size() == payload_.length_bytes; }
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  void store() const noexcept {
    if (copy_ != nullptr) scatter(payload_, 0, bytes_);
  }

 private:
  EntryPart part_;
  Payload payload_;
  std::span<std::byte> bytes_;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace ch3_offload
