// A target entry: memory that other processes may address, and what an operation that arrives for it says.
//
// Match entries and list entries of Portals 4.3 are both of these. A list entry ignores the whole key and has
// neither kManageLocal nor kNoTruncate. Plain data: target_table.h has the rules.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/intrusive_list.h"
#include "engine/keyed_queues.h"
#include "engine/targets/target_key.h"

namespace ch3_offload {

struct Payload;
struct PayloadLayout;

/// Where the engine reaches memory of a client in another process, which names it by addresses of its own.
/// Valid as long as somebody has it. Null: the memory is where the client says.
using TargetReach = std::shared_ptr<const Payload>;

/// An entry's memory may be in so many pieces.
inline constexpr std::uint32_t kMostEntryPieces = 4096;

enum class UserId : std::uint32_t {};
inline constexpr UserId kAnyUser{UINT32_MAX};

/// A counting event of an interface. Stale ids are noticed. The table only carries it.
enum class CounterId : std::uint64_t {};
inline constexpr CounterId kNoCounter{0};

/// Names an entry from append() until it is free. Stale ones are noticed.
enum class TargetId : std::uint64_t {};
inline constexpr TargetId kNoTarget{0};

enum class TargetOperation : std::uint8_t {
  kPut,
  kGet,
  kAtomic,
  kFetchAtomic,
  kSwap,
  // Of the table's lock (target_lock.h).
  kLockShared,
  kLockExclusive,
  kUnlock,
};
enum class TargetListKind : std::uint8_t { kPriority, kOverflow };

// Options of an entry, as bits.
inline constexpr std::uint32_t kAllowPut = 1U << 0;     ///< Puts and atomics.
inline constexpr std::uint32_t kAllowGet = 1U << 1;     ///< Gets. With kAllowPut also what fetches.
inline constexpr std::uint32_t kUseOnce = 1U << 2;      ///< Unlinked by the first operation.
inline constexpr std::uint32_t kManageLocal = 1U << 3;  ///< Operations follow each other in the memory.
inline constexpr std::uint32_t kNoTruncate = 1U << 4;   ///< What does not fit does not match.
inline constexpr std::uint32_t kNoUnexpectedHeader = 1U << 5;  ///< Overflow: no header is kept.
/// Priority, with kManageLocal: headers that wait advance the offset by their requested lengths.
inline constexpr std::uint32_t kAdvanceByUnexpected = 1U << 6;
// Events that the entry does not want.
inline constexpr std::uint32_t kNoLinkEvent = 1U << 7;
inline constexpr std::uint32_t kNoCommEvent = 1U << 8;         ///< Put, get, atomic, fetch-atomic, search.
inline constexpr std::uint32_t kNoFlowControlEvent = 1U << 9;  ///< Table disabled.
inline constexpr std::uint32_t kNoSuccessEvent = 1U << 10;     ///< Those of kNoCommEvent, if successful.
inline constexpr std::uint32_t kNoOverflowEvent = 1U << 11;
inline constexpr std::uint32_t kNoUnlinkEvent = 1U << 12;  ///< Auto-unlink and auto-free.
// What its counter counts.
inline constexpr std::uint32_t kCountComm = 1U << 13;
inline constexpr std::uint32_t kCountOverflow = 1U << 14;
inline constexpr std::uint32_t kCountBytes = 1U << 15;  ///< Bytes of successful operations, not operations.
/// Puts and atomics that it takes are not acknowledged, whatever their initiators want.
inline constexpr std::uint32_t kNoAcknowledgement = 1U << 16;

/// What the client says of an entry. Does not change.
struct TargetDescription {
  TargetKey key{};
  TargetKey ignore = kIgnoreKey;
  std::byte* start = nullptr;  ///< Carried: the table reads no memory.
  std::uint64_t length_bytes = 0;
  /// Of kind kPieces (engine.h), with one element, which `start` is the address of, and at most
  /// kMostEntryPieces. The client's, and stays as it is until the entry is free. Null: the memory is
  /// contiguous. What is written to an entry in pieces, or read from it, goes through slots.
  const PayloadLayout* layout = nullptr;
  std::uint64_t min_free_bytes = 0;  ///< With kManageLocal: less room unlinks it. 0: nothing does.
  std::uint32_t options = 0;
  UserId user = kAnyUser;
  CounterId counter = kNoCounter;
  void* cookie = nullptr;  ///< Comes back in each event of the entry.

  bool has(std::uint32_t option) const noexcept { return (options & option) != 0; }
};

/// What an arriving operation says.
struct TargetHeader {
  TargetKey key{};
  std::uint64_t length_bytes = 0;  ///< As requested.
  std::uint64_t offset_bytes = 0;  ///< As requested. An entry with kManageLocal does not use it.
  std::uint64_t header_data = 0;
  UserId user{};
  TargetOperation operation{};
  std::uint8_t atomic_operation = 0;  ///< Carried, as the next one.
  std::uint8_t atomic_type = 0;
};

/// An entry of a table.
struct TargetEntry {
  std::uint64_t pool_id = 0;
  TargetDescription its;
  TargetReach reach;        ///< Of its memory.
  std::uint32_t table = 0;  ///< TableConfig::index.
  TargetListKind list{};
  bool is_linked = false;
  bool is_prepared = false;  ///< It is in no list yet (TargetTable::prepare()).
  bool was_auto_unlinked = false;
  bool has_reserved_event = false;  ///< For its auto-free event (TargetListener::reserve()).
  std::uint64_t stamp = 0;          ///< Order of append within its list.
  std::uint64_t local_offset_bytes = 0;
  std::uint64_t in_flight = 0;           ///< Placements that have not finished.
  std::uint64_t headers = 0;             ///< Unexpected headers that are in its memory, or that it has taken.
  std::uint32_t mask_index = 0;          ///< Of its table in its list (TargetList).
  KeyedHook<TargetEntry> keyed_hook{};   ///< In the table of its mask.
  BareHook<TargetEntry> unkeyed_hook{};  ///< In the list of those whose mask has no table.

  /// Where an operation with that offset begins.
  std::uint64_t offset_for(std::uint64_t requested_bytes) const noexcept {
    return its.has(kManageLocal) ? local_offset_bytes : requested_bytes;
  }
  /// What of the memory is behind that offset.
  std::uint64_t room_behind(std::uint64_t offset_bytes) const noexcept {
    return offset_bytes < its.length_bytes ? its.length_bytes - offset_bytes : 0;
  }
  /// Whether it can take an operation with its key: false if that does not fit and must not be cut.
  bool can_take(const TargetHeader& header) const noexcept {
    if (!its.has(kNoTruncate)) return true;
    const std::uint64_t offset_bytes = offset_for(header.offset_bytes);
    return offset_bytes <= its.length_bytes && header.length_bytes <= its.length_bytes - offset_bytes;
  }
  /// Whether too little room is left for it to stay linked.
  bool is_used_up() const noexcept {
    return its.has(kManageLocal) && room_behind(local_offset_bytes) < its.min_free_bytes;
  }
};

}  // namespace ch3_offload
