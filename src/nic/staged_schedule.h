// A schedule whose private memory is staged: its steps name a block that a client shares with its
// processor, in place of the client's other memory.
//
// All contiguous memory that the steps name and that is not shared lies in the block, each byte once, so
// steps that name the same or overlapping memory still do. What a step reads before another one has written
// it is copied in at the beginning. What steps write is copied out at the end. What lies behind a message
// that is shorter than its receive is undefined then, unless another step writes it.
//
// Threads: one. Allocation: in plan().

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nic/schedule.h"

namespace ch3_offload {

class StagedSchedule {
 public:
  /// Whether all of that memory is shared.
  using IsShared = std::function<bool(const std::byte* address, std::size_t length_bytes)>;
  /// Makes a block. Null: there is no memory for it.
  using MakeBlock = std::function<std::byte*(std::size_t length_bytes)>;

  /// Finds what is to be staged, and a block for it. False: it cannot be (a step has a layout, or it is more
  /// than `most_bytes`), or there is no block. Throws std::bad_alloc.
  bool plan(std::span<const ScheduleStep> steps, const IsShared& is_shared, const MakeBlock& make,
            std::size_t most_bytes);
  /// After plan(): copies in. Returns as many steps, in the same order, that name the block.
  std::span<const ScheduleStep> copy_in() noexcept;
  /// Copies what was written to where the client wants it. The block is not needed then.
  void copy_out() noexcept;

 private:
  /// Private memory without a gap.
  struct Area {
    std::uintptr_t begin = 0, end = 0;
    std::byte* staged = nullptr;
    std::uintptr_t written_until = 0;  ///< From the beginning on, by steps so far.
  };
  struct Result {
    std::byte* place = nullptr;
    const std::byte* staged = nullptr;
    std::size_t length_bytes = 0;
  };

  Area* find(const std::byte* address) noexcept;
  bool is_cut(const ScheduleStep& step) const noexcept;
  void join_areas() noexcept;
  void join_results() noexcept;

  std::vector<ScheduleStep> steps_;
  std::vector<Area> areas_;  ///< By address, apart from each other.
  std::vector<Result> results_;
};

}  // namespace ch3_offload
