// The memory of a target entry as an operation uses it: a part of it, which may have gaps or be another
// process's.

#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "engine/payload_layout.h"
#include "engine/targets/target_runs.h"
#include "engine/targets/target_table.h"

namespace ch3_offload {

/// A part of the memory of an entry that is not contiguous, as a payload whose first byte is the part's. It
/// must stay where it is as long as the payload is used.
struct EntryPart {
  TargetReach reach;             ///< The entry's.
  Payload memory;                ///< All of the entry's.
  std::size_t offset_bytes = 0;  ///< Where the part begins.

  /// Of data in runs.
  struct Runs {
    TargetRuns its;
    Piece piece;           ///< One of them, if the entry's memory is contiguous.
    PayloadLayout layout;  ///< Likewise.
  };
  /// Made by payload_of_runs(): most parts have none, and setting it would cost each of them.
  alignas(Runs) std::array<std::byte, sizeof(Runs)> runs_memory;
  const Runs& runs() const noexcept { return *std::launder(reinterpret_cast<const Runs*>(&runs_memory)); }

  static void pack(const void* part, std::size_t offset_bytes, std::byte* destination,
                   std::size_t length_bytes) noexcept {
    const auto& its = *static_cast<const EntryPart*>(part);
    gather(its.memory, its.offset_bytes + offset_bytes, {destination, length_bytes});
  }
  static void unpack(void* part, std::size_t offset_bytes, const std::byte* source,
                     std::size_t length_bytes) noexcept {
    const auto& its = *static_cast<const EntryPart*>(part);
    scatter(its.memory, its.offset_bytes + offset_bytes, {source, length_bytes});
  }
};

/// payload_of() of data in runs, of which the first begins where the placement does. REQUIRES: there is some.
Payload payload_of_runs(const TargetPlacement& placement, TargetRuns runs, EntryPart& part) noexcept;

/// What a placed operation uses of its entry's memory. If that has gaps or is another process's, the payload
/// refers to `part`. Inline, because each operation calls it.
inline Payload payload_of(const TargetPlacement& placement, TargetRuns runs, EntryPart& part) noexcept {
  if (placement.length_bytes == 0) return {};
  if (runs.are_many()) [[unlikely]]
    return payload_of_runs(placement, runs, part);
  const TargetDescription& its = placement.entry->its;
  const TargetReach& reach = placement.entry->reach;
  if (reach != nullptr) {
    part.reach = reach;
    part.memory = *reach;
    part.offset_bytes = placement.offset_bytes;
    if (reach->layout == nullptr)
      return {reach->address + placement.offset_bytes, placement.length_bytes, nullptr};
  } else {
    if (its.layout == nullptr) return {placement.start(), placement.length_bytes, nullptr};
    part.reach = nullptr;
    part.memory = {its.start, its.length_bytes, its.layout};
    part.offset_bytes = placement.offset_bytes;
  }
  static constexpr PayloadLayout kLayout{
      .kind = PayloadLayout::Kind::kPacked, .pack = &EntryPart::pack, .unpack = &EntryPart::unpack};
  return {reinterpret_cast<std::byte*>(&part), placement.length_bytes, &kLayout};
}

/// The same memory for an operation that needs it contiguous: itself, or a copy that store() writes back.
class EntryMemory {
 public:
  EntryMemory(const TargetPlacement& placement, TargetRuns runs) noexcept
      : payload_(payload_of(placement, runs, part_)), bytes_(payload_.address, payload_.length_bytes) {
    if (payload_.layout == nullptr) return;
    copy_.reset(new (std::nothrow) std::byte[payload_.length_bytes]);
    bytes_ = {copy_.get(), copy_ == nullptr ? 0 : payload_.length_bytes};
    gather(payload_, 0, bytes_);
  }
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
