// What an operation is matched by in a table of target entries: 64 match bits and the process that sent it.
//
// An operation with key m matches an entry with key e and ignore mask i if ((m ^ e) & ~i) == 0, as in
// Portals 4.3. A process identifier is a number that only the client understands: Portals puts the nid above
// the pid, or has the rank in the lower half. So an entry that accepts any initiator, any pid of a nid, or any
// nid with a pid is one of four masks, and the matcher needs no other case.

#pragma once

#include <cstdint>

#include "engine/keyed_queues.h"

namespace ch3_offload {

enum class MatchBits : std::uint64_t {};
enum class ProcessId : std::uint64_t {};

/// nid and pid, as physical interfaces name a process.
constexpr ProcessId make_physical_id(std::uint32_t nid, std::uint32_t pid) noexcept {
  return ProcessId{std::uint64_t{nid} << 32 | pid};
}
/// A rank, as logical interfaces name a process.
constexpr ProcessId make_logical_id(std::uint32_t rank) noexcept { return ProcessId{rank}; }

// Masks of an initiator, for TargetKey::initiator of an ignore mask.
inline constexpr ProcessId kExactProcess{0};
inline constexpr ProcessId kAnyProcess{UINT64_MAX};
inline constexpr ProcessId kAnyNid = make_physical_id(UINT32_MAX, 0);
inline constexpr ProcessId kAnyPid = make_physical_id(0, UINT32_MAX);

/// The key of an operation or of an entry, and a mask of either.
struct TargetKey {
  MatchBits bits{};
  ProcessId initiator{};

  friend constexpr bool operator==(const TargetKey&, const TargetKey&) noexcept = default;
};

constexpr std::uint64_t number_of(MatchBits bits) noexcept { return static_cast<std::uint64_t>(bits); }
constexpr std::uint64_t number_of(ProcessId id) noexcept { return static_cast<std::uint64_t>(id); }

constexpr TargetKey operator&(const TargetKey& a, const TargetKey& b) noexcept {
  return {MatchBits{number_of(a.bits) & number_of(b.bits)},
          ProcessId{number_of(a.initiator) & number_of(b.initiator)}};
}
constexpr TargetKey operator~(const TargetKey& a) noexcept {
  return {MatchBits{~number_of(a.bits)}, ProcessId{~number_of(a.initiator)}};
}

/// The ignore mask of a list entry: it has no bits and accepts any initiator.
inline constexpr TargetKey kIgnoreKey = {MatchBits{UINT64_MAX}, kAnyProcess};

/// The upper bits are the best ones (keyed_queues.h). Masks leave few varying bits in any place, so the parts
/// are folded first: a nid differs in its upper half only.
constexpr std::uint64_t hash_of(const TargetKey& key) noexcept {
  const std::uint64_t bits = number_of(key.bits) * kBitsFactor;
  const std::uint64_t id = number_of(key.initiator) * kInitiatorFactor;
  return ((bits ^ bits >> 32) + (id ^ id >> 29)) * kBitsFactor;
}

constexpr bool matches(const TargetKey& operation, const TargetKey& entry, const TargetKey& ignore) noexcept {
  return ((number_of(operation.bits) ^ number_of(entry.bits)) & ~number_of(ignore.bits)) == 0 &&
         ((number_of(operation.initiator) ^ number_of(entry.initiator)) & ~number_of(ignore.initiator)) == 0;
}

}  // namespace ch3_offload
