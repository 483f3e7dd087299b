// The rules of a portal-table index as a judge: lists that are walked from end to end.
//
// Every function does what the one of TargetTable does, and returns or tells what that must. It shares no
// cleverness with the table: one vector for each list and one for headers.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/targets/recording_listener.h"
#include "engine/targets/target_table.h"

namespace ch3_offload {

class TargetOracle {
 public:
  struct Entry {
    TargetDescription its;
    TargetListKind list{};
    std::uint64_t offset = 0;
    int uses = 0;  ///< Operations in flight, headers in its memory, and headers that it has taken.
    bool linked = false;
    bool auto_unlinked = false;
    bool free_event_reserved = false;
  };
  using EntryPtr = std::shared_ptr<Entry>;

  struct Header {
    TargetHeader header;
    EntryPtr entry;
    std::uint64_t offset = 0, length = 0;
    bool in_flight = true;
    bool taken = false;
    bool searched = false;  ///< By a search: `taker` is in no list.
    bool unlink_follows = false;
    EntryPtr taker;
  };
  using HeaderPtr = std::shared_ptr<Header>;

  struct Operation {
    TargetFailure failure = TargetFailure::kNone;
    EntryPtr entry;
    HeaderPtr header;
    std::uint64_t offset = 0, length = 0;
    bool unlinks = false;
    std::size_t reserved = 0;
  };

  TargetOracle(const TableConfig& config, const TargetLimits& limits) : config_(config), limits_(limits) {}

  RecordingListener told;
  TargetRegisterWords registers;
  bool enabled = true;

  /// `linked`: null if it has not linked.
  Status append(const TargetDescription& its, TargetListKind list, EntryPtr& linked);
  void search(const TargetDescription& its, TargetTable::SearchMode mode);
  TargetTable::Unlinked unlink(const EntryPtr& entry);
  Operation arrive(const TargetHeader& header);
  void finish(const Operation& operation, const TargetHeader& header, TargetFailure failure);
  void enable() { enabled = true, disabled_event_due_ = false; }

  std::size_t waiting() const { return waiting_.size(); }
  std::size_t in_flight() const { return in_flight_; }
  std::size_t entries() const { return entries_; }

 private:
  std::vector<EntryPtr>& list_of(TargetListKind list) {
    return list == TargetListKind::kPriority ? priority_ : overflow_;
  }
  static bool fits(const Entry& entry, const TargetHeader& header);
  bool drain(const EntryPtr& entry, bool searches, bool& found);
  void tell(TargetEventKind kind, TargetFailure failure, TargetListKind list, const TargetDescription& its,
            std::uint32_t disabling, const TargetHeader* header = nullptr, const Entry* memory = nullptr,
            std::uint64_t offset = 0, std::uint64_t length = 0);
  void count(const TargetDescription& its, std::uint32_t option, bool success, std::uint64_t length);
  void settle(const HeaderPtr& header, TargetFailure failure);
  void release(const EntryPtr& entry);
  Operation run_dry(bool tells);
  void tell_disabled();

  const TableConfig config_;
  const TargetLimits limits_;
  std::vector<EntryPtr> priority_, overflow_;
  std::vector<HeaderPtr> waiting_;
  std::size_t entries_ = 0, headers_ = 0, in_flight_ = 0;
  bool disabled_event_due_ = false;
};

}  // namespace ch3_offload
