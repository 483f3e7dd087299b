// Memory of a target entry in runs of equal length and distance, as a payload.

#include "engine/entry_memory.h"

#include <new>
#include <type_traits>

namespace ch3_offload {
namespace {

/// Memory of the entry that is not contiguous itself.
struct RunsOfPart {
  static void pack(const void* part, std::size_t offset_bytes, std::byte* destination,
                   std::size_t length_bytes) noexcept {
    const auto& its = *static_cast<const EntryPart*>(part);
    if (const FetchedLayout* const fetched = fetched_of(its))
      return fetched->pack_runs(its.memory.address, its.offset_bytes, its.runs().its, offset_bytes,
                                destination, length_bytes);
    its.runs().its.for_each(offset_bytes, length_bytes, [&](std::size_t from, std::size_t length) {
      gather(its.memory, its.offset_bytes + from, {destination, length});
      destination += length;
    });
  }
  static void unpack(void* part, std::size_t offset_bytes, const std::byte* source,
                     std::size_t length_bytes) noexcept {
    const auto& its = *static_cast<const EntryPart*>(part);
    if (const FetchedLayout* const fetched = fetched_of(its))
      return fetched->unpack_runs(its.memory.address, its.offset_bytes, its.runs().its, offset_bytes, source,
                                  length_bytes);
    its.runs().its.for_each(offset_bytes, length_bytes, [&](std::size_t to, std::size_t length) {
      scatter(its.memory, its.offset_bytes + to, {source, length});
      source += length;
    });
  }
  static const FetchedLayout* fetched_of(const EntryPart& part) noexcept {
    return part.memory.layout->kind == PayloadLayout::Kind::kFetched
               ? static_cast<const FetchedLayout*>(part.memory.layout)
               : nullptr;
  }
};

}  // namespace

Payload payload_of_runs(const TargetPlacement& placement, TargetRuns runs, EntryPart& part) noexcept {
  static_assert(std::is_trivially_destructible_v<EntryPart::Runs>);
  const TargetDescription& its = placement.entry->its;
  const TargetReach& reach = placement.entry->reach;
  part.reach = reach;
  part.memory = reach != nullptr ? *reach : Payload{its.start, its.length_bytes, its.layout};
  part.offset_bytes = placement.offset_bytes;
  auto& made = *new (&part.runs_memory) EntryPart::Runs{runs, {0, runs.block_bytes}, {}};
  if (part.memory.layout != nullptr) {
    static constexpr PayloadLayout kLayout{
        .kind = PayloadLayout::Kind::kPacked, .pack = &RunsOfPart::pack, .unpack = &RunsOfPart::unpack};
    return {reinterpret_cast<std::byte*>(&part), placement.length_bytes, &kLayout};
  }
  made.layout = {.kind = PayloadLayout::Kind::kPieces,
                 .piece_count = 1,
                 .pieces = &made.piece,
                 .element_bytes = runs.block_bytes,
                 .extent_bytes = static_cast<std::ptrdiff_t>(runs.stride_bytes)};
  std::byte* const start = reach != nullptr ? reach->address + placement.offset_bytes : placement.start();
  return {start, placement.length_bytes, &made.layout};
}

}  // namespace ch3_offload
