// What is in a handle of portals4.h: the kind of the object, its interface, where it is, and which of the
// objects that have been there it is.
//
// | bits | of an entry | of anything else |
// |---|---|---|
// | 3 | kind | kind |
// | 2 | interface | interface |
// | 3, 8, 32, 16 | opening of the interface, portal table, generation, index of the TargetId | |
// | 43, 16 | | generation, index |
//
// An entry needs no memory of the library's: its handle has all that the port asks for. PTL_INVALID_HANDLE,
// PTL_EQ_NONE and PTL_CT_NONE are of no kind.
//
// Threads: any. Plain values.

#pragma once

#include <cstdint>

#include "engine/targets/target_entry.h"
#include "portals/portals4.h"

namespace ch3_offload::portals {

enum class HandleKind : std::uint8_t {
  kInterface = 1,
  kQueue,
  kCounter,
  kDescriptor,
  kListEntry,
  kMatchEntry
};

inline constexpr unsigned kHandleIndexBits = 16;
inline constexpr std::size_t kMostHandles = (std::size_t{1} << kHandleIndexBits) - 1;  ///< Of one kind.
inline constexpr std::uint64_t kHandleGenerations = std::uint64_t{1} << 43;

constexpr HandleKind kind_of(ptl_handle_any_t handle) noexcept {
  return static_cast<HandleKind>(handle >> 61);
}
constexpr bool is_entry(HandleKind kind) noexcept {
  return kind == HandleKind::kListEntry || kind == HandleKind::kMatchEntry;
}
constexpr unsigned interface_of(ptl_handle_any_t handle) noexcept { return handle >> 59 & 3U; }
constexpr std::uint32_t index_of(ptl_handle_any_t handle) noexcept { return handle & kMostHandles; }

/// `generation`: below kHandleGenerations.
constexpr ptl_handle_any_t make_handle(HandleKind kind, unsigned interface, std::uint64_t generation,
                                       std::uint32_t index) noexcept {
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << 61 | std::uint64_t{interface} << 59 |
         generation << kHandleIndexBits | index;
}

/// An entry, as its handle names it.
struct EntryName {
  unsigned opening = 0;  ///< The interface's number of openings, cut to 3 bits.
  std::uint32_t table = 0;
  TargetId id = kNoTarget;
};

constexpr unsigned cut_opening(std::uint64_t opening) noexcept { return opening & 7U; }

/// A TargetId has its index in its low half and its generation in the other one (pool.h). REQUIRES: the index
/// fits kHandleIndexBits: the interface has no more entries.
constexpr ptl_handle_any_t make_entry_handle(HandleKind kind, unsigned interface,
                                             const EntryName& name) noexcept {
  const auto id = static_cast<std::uint64_t>(name.id);
  const std::uint64_t generation =
      std::uint64_t{name.opening} << 40 | std::uint64_t{name.table} << 32 | id >> 32;
  return make_handle(kind, interface, generation, id & kMostHandles);
}
constexpr EntryName entry_of(ptl_handle_any_t handle) noexcept {
  const std::uint64_t generation = handle >> kHandleIndexBits & (kHandleGenerations - 1);
  return {static_cast<unsigned>(generation >> 40 & 7U), static_cast<std::uint32_t>(generation >> 32 & 0xFFU),
          TargetId{generation << 32 | index_of(handle)}};
}

}  // namespace ch3_offload::portals
