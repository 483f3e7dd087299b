// What the tables of one Portals network interface share: pools of bounded size, and the status registers.

#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/pool.h"
#include "engine/targets/target_board.h"
#include "engine/targets/target_entry.h"
#include "engine/targets/unexpected_headers.h"
#include "rdma/status.h"

namespace ch3_offload {

struct TargetLimits {
  std::size_t most_entries = 0;       ///< In all tables; entries that are unlinked and still in use count.
  std::size_t most_headers = 0;       ///< Unexpected ones, in all tables.
  std::size_t most_list_entries = 0;  ///< In one list of a table.
  std::size_t most_triggered = 4096;  ///< Triggered operations that wait or are due.
};

class TargetResources {
 public:
  /// `words` outlive the resources.
  TargetResources(const TargetLimits& limits, TargetRegisterWords& words) noexcept
      : registers(words), limits_(limits) {}
  TargetResources(const TargetResources&) = delete;
  TargetResources& operator=(const TargetResources&) = delete;

  /// Allocates all headers, so that no arrival allocates. To be called once, before any other function.
  /// kNoMemory.
  Status prepare() noexcept {
    return headers_.reserve(limits_.most_headers) ? Status::kOk : Status::kNoMemory;
  }

  /// Null: there are as many as there may be, or there is no memory.
  TargetEntry* take_entry() noexcept {
    return entries_.live() < limits_.most_entries ? entries_.take() : nullptr;
  }
  void give_back(TargetEntry& entry) noexcept { entries_.give_back(entry); }
  TargetEntry* find(TargetId id) noexcept { return entries_.find(static_cast<std::uint64_t>(id)); }

  bool has_header() const noexcept { return headers_.live() < limits_.most_headers; }
  /// REQUIRES: has_header().
  UnexpectedHeader& take_header() noexcept { return *headers_.take(); }
  void give_back(UnexpectedHeader& header) noexcept { headers_.give_back(header); }

  const TargetLimits& limits() const noexcept { return limits_; }
  std::size_t entries() const noexcept { return entries_.live(); }
  std::size_t headers() const noexcept { return headers_.live(); }

  TargetRegisterWords& registers;

 private:
  const TargetLimits limits_;
  Pool<TargetEntry> entries_;
  Pool<UnexpectedHeader> headers_;
};

}  // namespace ch3_offload
