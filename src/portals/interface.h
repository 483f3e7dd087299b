// A network interface of the program: its limits, its objects, and the memory that its processor writes.
//
// It is made when a program first opens an interface of that kind, and stays: what is read without a lock is
// never freed. open() begins a use of it, close() and end() end that.
//
// Threads: one at a time, but for number(), board() and CountingEvents::read().

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/targets/target_board.h"
#include "nic/target_port.h"
#include "portals/counting_events.h"
#include "portals/entry_layouts.h"
#include "portals/event_queue.h"
#include "portals/handle_table.h"
#include "portals/memory_descriptor.h"
#include "portals/portals_process.h"

namespace ch3_offload::portals {

inline constexpr unsigned kInterfaces = 4;  ///< With and without matching, logical and physical.

/// Which of the interfaces has these options: the same number in all processes. Nothing: they contradict each
/// other.
std::optional<unsigned> interface_number(unsigned int options) noexcept;

class Interface {
 public:
  explicit Interface(unsigned number) noexcept
      : queues(HandleKind::kQueue, number),
        descriptors(HandleKind::kDescriptor, number),
        counters(number, board_),
        number_(number) {}
  Interface(const Interface&) = delete;
  Interface& operator=(const Interface&) = delete;

  unsigned number() const noexcept { return number_; }
  bool has_matching() const noexcept { return (number_ & 2U) == 0; }
  bool is_logical() const noexcept { return (number_ & 1U) == 0; }
  /// REQUIRES: it is open, or was.
  const TargetBoard& board() const noexcept { return *board_.load(std::memory_order_acquire); }

  bool is_open() const noexcept { return is_open_; }
  ptl_handle_ni_t handle() const noexcept {
    return make_handle(HandleKind::kInterface, number_, opening_ % kHandleGenerations, 0);
  }
  const ptl_ni_limits_t& limits() const noexcept { return limits_; }
  unsigned entry_opening() const noexcept { return cut_opening(opening_); }

  /// PTL_NO_SPACE. Throws std::bad_alloc, with no effect that a program sees.
  int open(PortalsProcess& process, const ptl_ni_limits_t* desired);
  /// All of its handles are stale now. end() must follow.
  void close() noexcept;
  /// After close(), when the port has closed it: frees what the port used.
  void end() noexcept;
  /// Between the two.
  bool is_closing() const noexcept { return is_closing_; }

  bool has_table(std::uint64_t index) const noexcept { return index < tables_.size() && tables_[index]; }
  std::size_t most_tables() const noexcept { return tables_.size(); }
  void set_table(std::uint32_t index, bool in_use) noexcept { tables_[index] = in_use; }
  std::optional<std::uint32_t> free_table() const noexcept;

  std::span<const ProcessId> ranks() const noexcept { return ranks_; }
  void set_ranks(std::vector<ProcessId> ranks) noexcept { ranks_ = std::move(ranks); }
  /// The physical id of a process. Nothing: the map does not have that rank.
  std::optional<ProcessId> find_process(const ptl_process_t& process) const noexcept;

  /// Of PtlStartBundle() without PtlEndBundle().
  unsigned bundles = 0;
  /// Of PtlNIInit() without PtlNIFini().
  unsigned uses = 0;

  HandleTable<EventQueue> queues;
  HandleTable<MemoryDescriptor> descriptors;
  CountingEvents counters;
  EntryLayouts layouts;

 private:
  TargetBoard& board_of(TargetPort& port);

  const unsigned number_;
  bool is_open_ = false;
  bool is_closing_ = false;
  std::uint64_t opening_ = 0;  ///< How often it was opened.
  ptl_ni_limits_t limits_{};
  std::vector<bool> tables_;                  ///< By index: in use.
  std::vector<ProcessId> ranks_;              ///< By rank. Empty: there is no map.
  std::atomic<TargetBoard*> board_{nullptr};  ///< The newest of boards_. Null: it was never open.
  /// Those of all processors so far. Threads read them without a lock, so none is freed.
  std::vector<TargetBoardMemory> boards_;
};

}  // namespace ch3_offload::portals
