// Schedules: given to the processor, with their memory staged where it is in another process.

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "nic/kernel_reach.h"
#include "nic/ring_port.h"
#include "nic/staged_schedule.h"
#include "rdma/memcheck.h"

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

/// Replaces the steps by such as the processor reaches all memory of. Copies that come first are made here:
/// they would be made twice. False: it does not reach it, and nothing was done.
bool RingPort::stage_schedule(OperationId operation, std::span<const ScheduleStep>& steps) noexcept {
  const std::span<const ScheduleStep> first =
      steps.first(std::min(count_first_copies(steps), steps.size() - 1));
  const std::span<const ScheduleStep> others = steps.subspan(first.size());
  auto& schedule = find(operation)->schedule;
  bool is_staged = false;
  try {
    schedule = std::make_unique<StagedSchedule>();
    is_staged = schedule->plan(
        others,
        [this](const std::byte* address, std::size_t length_bytes) {
          return is_shared(address, length_bytes);
        },
        [&](std::size_t length_bytes) { return make_staged(operation, length_bytes, false); },
        kMostStagedBytes);
  } catch (const std::bad_alloc&) {  // As without a block.
  }
  if (!is_staged) schedule.reset();
  if (!is_staged && (staging_ == Staging::kAll || !reaches(others))) return false;
  for (const ScheduleStep& step : first)
    if (step.length_bytes > 0) std::memmove(step.to, step.from, step.length_bytes);
  steps = is_staged ? schedule->copy_in() : others;
  if (!is_staged && under_memcheck()) [[unlikely]]
    for (const ScheduleStep& step : steps)
      if (step.to != nullptr && step.layout == nullptr) written_from_outside(step.to, step.length_bytes);
  return true;
}

/// Whether the kernel copies the memory of those steps for the processor. In the midst of them the client
/// could not do it instead.
bool RingPort::reaches(std::span<const ScheduleStep> steps) noexcept {
  std::array<std::span<const std::byte>, 64> asked;
  std::size_t count = 0;
  bool are_reached = true;
  const auto ask = [&] {
    are_reached = are_reached && are_in_kernel_reach({asked.data(), std::exchange(count, 0)});
  };
  const auto add = [&](const std::byte* address, std::size_t length_bytes) {
    if (is_shared(address, length_bytes)) return;
    asked[count++] = {address, length_bytes};
    if (count == asked.size()) ask();
  };
  for (const ScheduleStep& step : steps) {
    if (step.layout == nullptr) {
      add(step.from, step.from == nullptr ? 0 : step.length_bytes);
      add(step.to, step.to == nullptr ? 0 : step.length_bytes);
    } else if (step.length_bytes > 0) {
      const auto address = reinterpret_cast<std::intptr_t>(step.from == nullptr ? step.to : step.from);
      for (const Piece& piece : {step.layout->pieces[0], step.layout->pieces[step.layout->piece_count - 1]})
        add(reinterpret_cast<const std::byte*>(address + piece.offset_bytes), piece.length_bytes);
    }
  }
  ask();
  return are_reached;
}

}  // namespace ch3_offload
