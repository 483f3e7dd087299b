#include "nic/staged_schedule.h"

#include <algorithm>
#include <cstring>

#include "rdma/memcheck.h"

namespace ch3_offload {
namespace {

/// Between areas, so that none shares a line with another one. Bytes.
constexpr std::size_t kLine = 64;

std::uintptr_t number(const std::byte* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

constexpr std::size_t in_lines(std::size_t bytes) noexcept { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

/// Null: the memory is not staged.
StagedSchedule::Area* StagedSchedule::find(const std::byte* address) noexcept {
  if (address == nullptr) return nullptr;
  const auto behind =
      std::ranges::upper_bound(areas_, number(address), {}, [](const Area& area) { return area.begin; });
  if (behind == areas_.begin()) return nullptr;
  Area& area = *std::prev(behind);
  return number(address) < area.end ? &area : nullptr;
}

bool StagedSchedule::plan(std::span<const ScheduleStep> steps, const IsShared& is_shared,
                          const MakeBlock& make, std::size_t most_bytes) {
  steps_.assign(steps.begin(), steps.end());
  areas_.clear();
  results_.clear();
  results_.reserve(steps.size());
  for (const ScheduleStep& step : steps_) {
    if (step.length_bytes == 0) continue;
    if (step.layout != nullptr) return false;
    for (const std::byte* const address : {step.from, static_cast<const std::byte*>(step.to)})
      if (address != nullptr && !is_shared(address, step.length_bytes))
        areas_.push_back({number(address), number(address) + step.length_bytes});
  }
  if (areas_.empty()) return true;
  join_areas();
  if (std::ranges::any_of(steps_, [this](const ScheduleStep& step) { return is_cut(step); })) return false;
  std::size_t total_bytes = 0;
  for (const Area& area : areas_) {
    if (area.end - area.begin > most_bytes - total_bytes) return false;
    total_bytes += in_lines(area.end - area.begin);
    if (total_bytes > most_bytes) return false;
  }
  std::byte* place = make(total_bytes);
  if (place == nullptr) return false;
  for (Area& area : areas_) {
    area.staged = place;
    area.written_until = area.begin;
    place += in_lines(area.end - area.begin);
  }
  return true;
}

/// Whether shared memory that the step names reaches into an area: partly shared memory has been named.
bool StagedSchedule::is_cut(const ScheduleStep& step) const noexcept {
  return std::ranges::any_of(areas_, [&](const Area& area) {
    const auto cuts = [&](const std::byte* address) {
      const std::uintptr_t begin = number(address), end = begin + step.length_bytes;
      return address != nullptr && begin < area.end && end > area.begin &&
             (begin < area.begin || end > area.end);
    };
    return cuts(step.from) || cuts(step.to);
  });
}

/// Those that overlap or touch become one.
void StagedSchedule::join_areas() noexcept {
  std::ranges::sort(areas_, {}, [](const Area& area) { return area.begin; });
  std::size_t count = 0;
  for (const Area& area : areas_) {
    if (count > 0 && area.begin <= areas_[count - 1].end)
      areas_[count - 1].end = std::max(areas_[count - 1].end, area.end);
    else
      areas_[count++] = area;
  }
  areas_.resize(count);
}

std::span<const ScheduleStep> StagedSchedule::copy_in() noexcept {
  for (ScheduleStep& step : steps_) {
    if (step.length_bytes == 0) continue;
    const auto staged_at = [](const Area& area, const std::byte* address) {
      return area.staged + (number(address) - area.begin);
    };
    const auto bring = [&](const Area& area, const std::byte* address) {
      const std::uintptr_t end = number(address) + step.length_bytes;
      const std::size_t skipped =
          number(address) < area.written_until ? area.written_until - number(address) : 0;
      if (end > area.written_until)
        std::memcpy(staged_at(area, address) + skipped, address + skipped, step.length_bytes - skipped);
    };
    if (Area* const area = find(step.from)) {
      bring(*area, step.from);
      step.from = staged_at(*area, step.from);
    }
    if (Area* const area = find(step.to)) {
      if (step.kind == StepKind::kCombine) bring(*area, step.to);
      results_.push_back({step.to, staged_at(*area, step.to), step.length_bytes});
      if (number(step.to) <= area->written_until)
        area->written_until = std::max(area->written_until, number(step.to) + step.length_bytes);
      step.to = staged_at(*area, step.to);
    }
  }
  join_results();
  return steps_;
}

/// Those that overlap or touch become one: they are in one area, and so they do where they are staged.
void StagedSchedule::join_results() noexcept {
  std::ranges::sort(results_, {}, [](const Result& one) { return number(one.place); });
  std::size_t count = 0;
  for (const Result& one : results_) {
    Result* const last = count == 0 ? nullptr : &results_[count - 1];
    if (last != nullptr && number(one.place) <= number(last->place) + last->length_bytes) {
      const std::size_t end = number(one.place) + one.length_bytes - number(last->place);
      last->length_bytes = std::max(last->length_bytes, end);
    } else {
      results_[count++] = one;
    }
  }
  results_.resize(count);
}

void StagedSchedule::copy_out() noexcept {
  for (const Result& one : results_) {
    std::memcpy(one.place, one.staged, one.length_bytes);
    written_from_outside(one.place, one.length_bytes);
  }
  results_.clear();
}

}  // namespace ch3_offload
