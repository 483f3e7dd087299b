// Schedules: given to the processor, with their memory staged where it is in another process.

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "nic/ring_port.h"
#include "nic/staged_schedule.h"

namespace ch3_offload {
namespace {

/// The first steps that copy, and so need nobody else.
std::size_t count_first_copies(std::span<const ScheduleStep> steps) noexcept {
  const auto other =
      std::ranges::find_if(steps, [](const ScheduleStep& step) { return step.kind != StepKind::kCopy; });
  return static_cast<std::size_t>(other - steps.begin());
}

}  // namespace

bool RingPort::schedule(std::span<const ScheduleStep> steps, const ScheduleMarks& marks,
                        Cookie cookie) noexcept {
  if (steps.empty() || steps.size() > most_schedule_steps() || steps.size() > kMostStepsOfClient - steps_)
    return false;
  const OperationId operation = name(cookie);
  if (operation == kNoOperation) return false;
  if (staging_ != Staging::kNone && !stage_schedule(operation, steps)) {
    forget(operation);
    return false;
  }
  find(operation)->steps = steps.size();
  steps_ += steps.size();
  CommandRecord command;
  command.kind = CommandKind::kSchedule;
  command.operation = operation;
  command.bits = marks.failed;
  command.address = marks.peer_failed;
  PortMemory::count(counters_.client.schedules);
  give(command, std::as_bytes(steps));
  return true;
}

/// Replaces the steps by such as name shared memory alone. Copies that come first are made here: they would
/// be made twice. False: there is no room, or a step has a layout, and nothing was done.
bool RingPort::stage_schedule(OperationId operation, std::span<const ScheduleStep>& steps) noexcept {
  const auto first = steps.first(std::min(count_first_copies(steps), steps.size() - 1));
  const auto others = steps.subspan(first.size());
  try {
    auto schedule = std::make_unique<StagedSchedule>();
    const auto is_shared = [this](const std::byte* address, std::size_t length_bytes) {
      return arena_.contains(address, length_bytes);
    };
    const auto make = [&](std::size_t length_bytes) { return make_staged(operation, length_bytes, false); };
    if (!schedule->plan(others, is_shared, make, kMostStagedBytes)) return false;
    for (const ScheduleStep& step : first)
      if (step.length_bytes > 0) std::memmove(step.to, step.from, step.length_bytes);
    steps = schedule->copy_in();
    find(operation)->schedule = std::move(schedule);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace ch3_offload
