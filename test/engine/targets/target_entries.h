// Entries, operations and a table for the tests of the target table.

#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/targets/recording_listener.h"
#include "engine/targets/target_table.h"

namespace ch3_offload {

inline constexpr ProcessId kAlice = make_logical_id(1);
inline constexpr ProcessId kBob = make_logical_id(2);
inline constexpr auto kPriorityList = TargetListKind::kPriority;
inline constexpr auto kOverflowList = TargetListKind::kOverflow;

/// An entry of 100 bytes for puts with these bits, from any initiator. `cookie` names it in events.
inline TargetDescription entry_for(std::uint64_t bits, std::uintptr_t cookie, std::uint32_t options = 0) {
  static std::array<std::byte, 100> memory;
  TargetDescription entry;
  entry.key.bits = MatchBits{bits};
  entry.ignore = {MatchBits{0}, kAnyProcess};
  entry.start = memory.data();
  entry.length_bytes = memory.size();
  entry.options = kAllowPut | kNoLinkEvent | options;
  entry.cookie = reinterpret_cast<void*>(cookie);
  return entry;
}

inline TargetHeader put_of(std::uint64_t bits, std::uint64_t length_bytes = 8, std::uint64_t offset_bytes = 0,
                           ProcessId initiator = kAlice) {
  TargetHeader header;
  header.key = {MatchBits{bits}, initiator};
  header.length_bytes = length_bytes;
  header.offset_bytes = offset_bytes;
  return header;
}

/// A table with what it needs.
class TableWorld {
 public:
  explicit TableWorld(const TableConfig& config = {}, const TargetLimits& limits = {1000, 1000, 1000})
      : resources(limits, registers), table(config, resources, listener) {
    prepared = resources.prepare();
  }

  Status prepared = Status::kOk;
  TargetRegisterWords registers;
  TargetResources resources;
  RecordingListener listener;
  TargetTable table;

  TargetId append(const TargetDescription& entry, TargetListKind list = kPriorityList) {
    TargetId id{};
    last_status = table.append(entry, list, id);
    return id;
  }

  /// Arrives with all its data.
  TargetPlacement run(const TargetHeader& header) {
    const TargetPlacement placement = table.arrive(header);
    if (!placement.is_refused()) table.finish(placement, header, TargetFailure::kNone);
    return placement;
  }

  std::string events() { return listener.taken(); }

  Status last_status = Status::kOk;
};

}  // namespace ch3_offload
