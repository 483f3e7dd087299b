// A memory descriptor: memory of the initiator, and what is told of the operations on it.
//
// Threads: one at a time.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/target_request.h"
#include "portals/portals4.h"

namespace ch3_offload::portals {

class MemoryDescriptor {
 public:
  struct Reports {
    QueueId queue = kNoQueue;
    CounterId counter = kNoCounter;
  };

  /// REQUIRES: the options are known, and an iovec has a length (length_of_iovec()). Throws std::bad_alloc.
  MemoryDescriptor(const ptl_md_t& md, const Reports& reports);
  MemoryDescriptor(const MemoryDescriptor&) = delete;
  MemoryDescriptor& operator=(const MemoryDescriptor&) = delete;

  bool has(unsigned int option) const noexcept { return (options_ & option) != 0; }
  bool has_queue() const noexcept { return reports_.queue != kNoQueue; }
  bool has_counter() const noexcept { return reports_.counter != kNoCounter; }

  bool contains(std::uint64_t offset_bytes, std::uint64_t length_bytes) const noexcept {
    return offset_bytes <= length_bytes_ && length_bytes <= length_bytes_ - offset_bytes;
  }

  /// That part of the memory, for an operation. What it refers to lives as long as the descriptor. REQUIRES:
  /// contains(). Throws std::bad_alloc: of an iovec only.
  TargetOrigin origin(std::uint64_t offset_bytes, std::uint64_t length_bytes);

 private:
  /// The pieces of an iovec behind an offset.
  struct Tail {
    std::vector<Piece> pieces;
    PayloadLayout layout{};
  };

  Payload payload(std::uint64_t offset_bytes, std::uint64_t length_bytes);
  const PayloadLayout& layout_behind(std::uint64_t offset_bytes);

  const unsigned int options_;
  const std::uint32_t origin_options_;  ///< The same, as the engine says them.
  const Reports reports_;
  std::byte* const start_;  ///< With PTL_IOVEC: null.
  std::uint64_t length_bytes_;
  std::vector<Piece> pieces_;  ///< Of an iovec, without those that are empty.
  /// By offset: a range that begins within an iovec and is in more than one of its pieces needs a list of its
  /// own, which must live until the operation is over. Programs use few offsets again and again.
  std::map<std::uint64_t, Tail> tails_;
};

}  // namespace ch3_offload::portals
