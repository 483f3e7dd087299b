// One index of the portal table of a Portals network interface: its entries, and the rules of Portals 4.3 by
// which operations find them.
//
// An operation arrives with its header: arrive() decides which entry takes it, and where in the entry's
// memory. Its data may come later: finish() ends it. Rules of order:
//
//   - The priority list is searched to its end before the overflow list. The oldest entry that matches and
//     can take the operation wins. An entry that does not permit it ends the search as a violation.
//   - append() and arrive() are atomic: an entry for the priority list first takes the matching headers that
//     wait, in the order of their arrival, and then links. One that is used up by that never links.
//   - The events of an operation come when it finishes, and the auto-unlink event after those of the operation
//     that has unlinked the entry. The auto-free event is the last one of an entry: it comes when no operation
//     is in flight and no header refers to it.
//   - A header whose data has not come may be taken. Its overflow event then comes when it finishes.
//   - A refused operation changes nothing but a status register, and the table if that has flow control.
//
// Threads: one. Allocation: append() and search(). An arrival may double the table of an index that a search
// has made (UnexpectedHeaders). Only append() fails for want of memory.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/targets/target_events.h"
#include "engine/targets/target_list.h"
#include "engine/targets/target_resources.h"
#include "engine/targets/unexpected_headers.h"
#include "rdma/status.h"

namespace ch3_offload {

struct TableConfig {
  std::uint32_t index = 0;        ///< Comes back in its events.
  bool has_events = true;         ///< False: there is no event queue. Counters count all the same.
  bool has_flow_control = false;  ///< It disables itself when it runs out of entries, headers or events.
};

/// What became of an operation that has arrived. Its owner keeps it until finish().
struct TargetPlacement {
  TargetFailure failure = TargetFailure::kNone;  ///< Else it is refused, and all else means nothing.
  TargetEntry* entry = nullptr;
  UnexpectedHeader* header = nullptr;  ///< Null: none is kept.
  std::uint64_t offset_bytes = 0;      ///< Where in the entry's memory the data begins.
  std::uint64_t length_bytes = 0;      ///< How much of the data has room there.
  TargetListKind list{};               ///< The entry's.
  bool unlinks = false;                ///< It has unlinked the entry.
  std::uint8_t reserved_events = 0;
  bool is_untold = false;  ///< The entry's kNoAcknowledgement.

  static TargetPlacement refused(TargetFailure failure) noexcept {
    TargetPlacement placement;
    placement.failure = failure;
    return placement;
  }
  bool is_refused() const noexcept { return failure != TargetFailure::kNone; }
  /// Where the data is, or the first byte of it. An entry may begin at null and cover the whole address
  /// space: then this is the offset.
  std::byte* start() const noexcept {
    if (entry->its.layout != nullptr) [[unlikely]]
      return start_in_pieces();
    const auto begin = reinterpret_cast<std::uintptr_t>(entry->its.start);
    return reinterpret_cast<std::byte*>(begin + std::min(offset_bytes, entry->its.length_bytes));
  }
  std::byte* start_in_pieces() const noexcept;
};

class TargetTable {
 public:
  enum class SearchMode : std::uint8_t { kOnly, kDelete };
  enum class Unlinked : std::uint8_t { kOk, kInUse, kUnknown };

  /// `resources` and `listener` must outlive the table.
  TargetTable(const TableConfig& config, TargetResources& resources, TargetListener& listener) noexcept
      : config_(config), resources_(resources), listener_(listener) {}
  TargetTable(const TargetTable&) = delete;
  TargetTable& operator=(const TargetTable&) = delete;

  /// Appends an entry. kUnsupported: its layout is none that an entry may have. kNoMemory: there are as many
  /// entries as there may be, or there is no memory. kAgain: the list has as many as it may have. Neither has
  /// an effect, except that headers which an entry of kUseOnce has found are its own before the list's length
  /// counts. `id`: kNoTarget if the entry has not linked. `reach`: of the entry's memory, until it is free.
  Status append(const TargetDescription& description, TargetListKind list, TargetId& id,
                const TargetReach& reach = {}) noexcept;

  /// Makes an entry that is in no list until link(). As append(): kUnsupported, kNoMemory.
  Status prepare(const TargetDescription& description, TargetListKind list, TargetId& id,
                 const TargetReach& reach = {}) noexcept;
  /// Appends such an entry. If the list is full, the entry is gone, and its link event says that it was
  /// dropped.
  void link(TargetId id) noexcept;
  /// Frees such an entry.
  void drop(TargetId id) noexcept;

  /// Looks for headers as append() to the priority list does. kOnly: leaves them.
  void search(const TargetDescription& description, SearchMode mode) noexcept;

  /// Takes an entry out. kInUse: an operation is in flight, a header refers to it, or it is not linked yet.
  /// Nothing was done.
  Unlinked unlink(TargetId id) noexcept;

  /// Finds the entry of an operation. If it is not refused, finish() must follow.
  TargetPlacement arrive(const TargetHeader& header) noexcept;

  /// The data of an operation has been moved, or `failure` has ended it.
  void finish(const TargetPlacement& placement, const TargetHeader& header, TargetFailure failure) noexcept;

  /// From now on operations are refused. Those in flight go on: in_flight() tells.
  void disable() noexcept { is_enabled_ = false; }
  /// A disabled event that waits for operations in flight will not come.
  void enable() noexcept {
    is_enabled_ = true;
    owes_disabled_event_ = false;
  }

  bool is_enabled() const noexcept { return is_enabled_; }
  std::size_t in_flight() const noexcept { return in_flight_; }
  /// Whether nothing refers to this table: it may be freed.
  bool is_unused() const noexcept { return live_entries_ == 0 && in_flight_ == 0; }

  std::size_t size(TargetListKind list) const noexcept {
    return list == TargetListKind::kPriority ? priority_.size() : overflow_.size();
  }
  std::size_t waiting_headers() const noexcept { return headers_.size(); }
  /// Entries and headers that all searches so far have looked at.
  std::uint64_t looked_at() const noexcept {
    return priority_.looked_at() + overflow_.looked_at() + headers_.looked_at();
  }

 private:
  struct Drained {
    bool found = false;
    bool used_up = false;  ///< The entry must not link.
  };

  TargetEntry* find_prepared(TargetId id) noexcept;
  Status link(TargetEntry& entry) noexcept;
  bool is_full_for(const TargetDescription& description, TargetListKind list) noexcept;
  TargetPlacement refuse(TargetFailure failure) noexcept;
  bool has_room_for(const TargetDescription& description, const TargetList& list) const noexcept;
  TargetPlacement run_dry(bool tells) noexcept;
  bool reserve_events(TargetPlacement& placement) noexcept;
  TargetPlacement place(TargetEntry& entry, const TargetHeader& header) const noexcept;
  void commit(TargetPlacement& placement, const TargetHeader& header) noexcept;
  Drained drain(TargetEntry& entry, TargetEntry* taker) noexcept;
  void take(UnexpectedHeader& header, const HeaderTaker& taker) noexcept;
  void settle(UnexpectedHeader& header, TargetFailure failure) noexcept;
  void free_if_unused(TargetEntry& entry) noexcept;
  void tell_disabled_if_due() noexcept;

  bool wants(std::uint32_t options, std::uint32_t disabling) const noexcept {
    return config_.has_events && (options & disabling) == 0;
  }
  void tell(TargetEventKind kind, TargetListKind list, void* cookie,
            TargetFailure failure = TargetFailure::kNone) noexcept;
  void tell_auto_unlink(std::uint32_t options, TargetListKind list, void* cookie) noexcept;
  void count(CounterId counter, bool counts, TargetFailure failure, std::uint64_t amount) noexcept;

  TargetList& list_of(TargetListKind list) noexcept {
    return list == TargetListKind::kPriority ? priority_ : overflow_;
  }

  const TableConfig config_;
  TargetResources& resources_;
  TargetListener& listener_;
  TargetList priority_;
  TargetList overflow_;
  UnexpectedHeaders headers_;
  std::size_t live_entries_ = 0;
  std::size_t in_flight_ = 0;
  bool is_enabled_ = true;
  bool owes_disabled_event_ = false;
};

}  // namespace ch3_offload
