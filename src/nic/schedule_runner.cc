#include "nic/schedule_runner.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace ch3_offload {
namespace {

bool is_message(StepKind kind) noexcept {
  return kind == StepKind::kSend || kind == StepKind::kSynchronousSend || kind == StepKind::kReceive;
}

/// A step that did not begin, and will not: its length is the reason.
constexpr StepKind kFailed = StepKind::kEnd;

}  // namespace

ScheduleRunner::~ScheduleRunner() {
  while (ready_.pop_front() != nullptr) {
  }
  while (ended_.pop_front() != nullptr) {
  }
}

/// `is_of_other_process`: its layouts are checked when its memory is named.
bool ScheduleRunner::is_sound(const ScheduleStep& step, bool is_of_other_process) noexcept {
  if (step.kind >= StepKind::kEnd) return false;
  if (is_message(step.kind))
    return step.layout == nullptr || is_of_other_process || step.layout->kind == PayloadLayout::Kind::kPieces;
  if (step.layout != nullptr) return false;
  return step.kind != StepKind::kCombine ||
         (is_supported(step.operation, step.type) && !is_swap(step.operation) &&
          length_of(step.operation, step.type, step.length_bytes) == step.length_bytes);
}

Status ScheduleRunner::begin(OperationId name, const ScheduleMarks& marks,
                             std::span<const std::byte> steps) noexcept {
  const std::size_t count = steps.size() / sizeof(ScheduleStep);
  if (count == 0 || count > kMostScheduleSteps || steps.size() % sizeof(ScheduleStep) != 0 ||
      count > kMostStepsOfClient - steps_)
    return Status::kProtocol;
  try {
    std::vector<ScheduleStep> copies(count);  // The client can change its ring.
    std::memcpy(copies.data(), steps.data(), steps.size());
    const auto is_step = [this](const ScheduleStep& step) {
      return is_sound(step, client_ != nullptr) &&
             (client_ == nullptr || !is_message(step.kind) || client_->may_name(step.peer));
    };
    if (!std::ranges::all_of(copies, is_step)) return Status::kProtocol;
    Schedule& one = schedules_.emplace_back();
    one.place = std::prev(schedules_.end());
    one.name = name;
    one.marks = marks;
    one.steps = std::move(copies);
    steps_ += count;
    ready_.push_back(one);
    return Status::kOk;
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
}

// What happens to steps.

void ScheduleRunner::note(Schedule& schedule, Status status) noexcept {
  if (schedule.status == Status::kOk) schedule.status = status;
}

/// A receive has ended, in whichever way.
void ScheduleRunner::received(Schedule& schedule, const Envelope& envelope) noexcept {
  note(schedule, envelope.status);
  schedule.received_bytes = envelope.length_bytes;
  const auto has = [&](std::uint64_t mark) { return mark != 0 && (envelope.key.bits & mark) == mark; };
  if (has(schedule.marks.peer_failed))
    note(schedule, Status::kPeerFailed);
  else if (has(schedule.marks.failed))
    note(schedule, Status::kProtocol);  // A member has found some other error.
}

bool ScheduleRunner::take(const Event& event) noexcept {
  const auto cookie = reinterpret_cast<std::uintptr_t>(event.cookie);
  if (cookie >> 32 != kStepGeneration) [[likely]]
    return false;
  const auto number = static_cast<std::uint32_t>(cookie);
  Schedule& schedule = *running_[number - 1].schedule;
  if (event.kind == Event::Kind::kReceiveDone)
    received(schedule, {event.key, event.length_bytes, event.status});
  else
    note(schedule, event.status);
  over(number);
  return true;
}

/// A step that was under way is over.
void ScheduleRunner::over(std::uint32_t number) noexcept {
  Schedule& schedule = *running_[number - 1].schedule;
  give_back(number);
  // All that was under way: the barrier is passed, or there is nothing left.
  if (--schedule.under_way == 0 && !schedule.ready_hook.linked()) ready_.push_back(schedule);
}

bool ScheduleRunner::has_failed(PeerId peer) const noexcept {
  return std::ranges::find(failed_peers_, peer) != failed_peers_.end();
}

void ScheduleRunner::fail_peer(PeerId peer) noexcept {
  try {
    if (!has_failed(peer)) failed_peers_.push_back(peer);
  } catch (const std::bad_alloc&) {
    // Receives that begin later end when the client purges those from the peer.
  }
  for (std::uint32_t number = 1; number <= running_.size(); ++number) {
    const Running& one = running_[number - 1];
    if (one.schedule == nullptr) continue;
    const ScheduleStep& step = one.schedule->steps[one.step];
    if (step.kind != StepKind::kReceive || step.peer != index_of(peer) || !port_.cancel_receive(one.engines))
      continue;  // Others end by an event.
    note(*one.schedule, Status::kPeerFailed);
    over(number);
  }
}

void ScheduleRunner::forget_peer(PeerId peer) noexcept { std::erase(failed_peers_, peer); }

void ScheduleRunner::purge(PurgeScope scope, std::span<const MatchPattern> doomed,
                           std::span<const MatchPattern> spared, Status reason) noexcept {
  if (scope == PurgeScope::kReceivesFromAny) return;  // None is of a schedule.
  const auto is_in = [](std::span<const MatchPattern> patterns, const MatchKey& key) {
    return std::ranges::any_of(patterns,
                               [&](const MatchPattern& each) { return matches(key, each.key, each.ignore); });
  };
  for (Schedule& one : schedules_)
    for (std::size_t i = one.next; i < one.steps.size(); ++i) {
      ScheduleStep& step = one.steps[i];
      const bool is_looked_at =
          step.kind == StepKind::kReceive || (scope == PurgeScope::kAll && is_message(step.kind));
      if (!is_looked_at || !is_in(doomed, step.key) || is_in(spared, step.key)) continue;
      step.kind = kFailed;
      step.length_bytes = static_cast<std::size_t>(reason);
    }
}

// Steps.

std::size_t ScheduleRunner::advance() noexcept {
  std::size_t happened = 0;
  Budget budget;
  // Each that is ready now has one turn.
  for (const Schedule* const last = ready_.back(); last != nullptr && !budget.is_used();) {
    Schedule& one = *ready_.pop_front();
    const bool was_last = &one == last;
    happened += run(one, budget);
    if (was_last) break;
  }
  return happened;
}

/// Goes on until it has to wait, or the budget is used. Returns how much it has tried.
std::size_t ScheduleRunner::run(Schedule& schedule, Budget& budget) noexcept {
  std::size_t happened = 0;
  while (schedule.next < schedule.steps.size()) {
    ScheduleStep& step = schedule.steps[schedule.next];
    const Begun begun = budget.is_used() ? Begun::kGoesOn : begin_step(schedule, step);
    ++happened;
    budget.steps -= std::min<std::size_t>(budget.steps, 1);
    budget.bytes -= std::min({budget.bytes, step.length_bytes, kLocalBytes});
    if (begun == Begun::kGoesOn) {
      ready_.push_back(schedule);
      return happened;
    }
    ++schedule.next;
    if (step.is_barrier != 0 && schedule.under_way > 0) return happened;
  }
  if (schedule.under_way > 0) return happened;
  ended_.push_back(schedule);
  return happened + 1;
}

ScheduleRunner::Begun ScheduleRunner::begin_step(Schedule& schedule, ScheduleStep& step) noexcept {
  switch (step.kind) {
    case StepKind::kSend:
    case StepKind::kSynchronousSend:
    case StepKind::kReceive: return begin_message(schedule, step);
    case StepKind::kCombine:
    case StepKind::kCopy: return go_on(schedule, step);
    case StepKind::kCount: schedule.counted_bytes = step.length_bytes; break;
    case StepKind::kCountReceived: schedule.counted_bytes += schedule.received_bytes; break;
    case StepKind::kCheckCount:
      if (schedule.counted_bytes != step.length_bytes) note(schedule, Status::kTruncated);
      break;
    case kFailed: note(schedule, static_cast<Status>(step.length_bytes)); break;
  }
  return Begun::kBegun;
}

/// Memory that the client has named. False: there is no memory now, or the client is broken.
bool ScheduleRunner::name_memory(const Payload& named, ClientMemory::Part& part) noexcept {
  try {
    if (client_->take(named, part)) return true;
    client_->fail("it has given a collective operation with memory that it cannot have");
  } catch (const std::bad_alloc&) {  // It may be there later.
  }
  return false;
}

/// A step cannot begin for want of memory. It begins later, unless the client is broken.
ScheduleRunner::Begun ScheduleRunner::put_off(Schedule& schedule) const noexcept {
  if (client_ == nullptr || !client_->is_broken()) return Begun::kGoesOn;
  note(schedule, Status::kNoMemory);
  return Begun::kBegun;
}

ScheduleRunner::Begun ScheduleRunner::begin_message(Schedule& schedule, const ScheduleStep& step) noexcept {
  const bool is_receive = step.kind == StepKind::kReceive;
  Payload payload{is_receive ? step.to : const_cast<std::byte*>(step.from), step.length_bytes, step.layout};
  const std::uint32_t number = take_running();
  if (number == 0) return put_off(schedule);
  Running& running = running_[number - 1];
  running.schedule = &schedule;
  running.step = schedule.next;
  running.engines = kNoOperation;
  if (client_ != nullptr) {
    running.part.reset(new (std::nothrow) ClientMemory::Part);
    if (running.part == nullptr || !name_memory(payload, *running.part)) {
      give_back(number);
      return put_off(schedule);
    }
    payload = running.part->payload();
  }
  const auto cookie =
      reinterpret_cast<Cookie>(std::uintptr_t{kStepGeneration} << 32 | std::uintptr_t{number});
  const PeerId peer{step.peer};
  Progressed progressed = Progressed::kDone;
  if (is_receive) {
    Envelope envelope;
    progressed = port_.post_receive(step.key, kIgnoreNothing, payload, cookie, running.engines, envelope);
    if (progressed != Progressed::kPending && envelope.status == Status::kNoMemory) {
      give_back(number);
      return put_off(schedule);
    }
    if (progressed != Progressed::kPending) {
      received(schedule, envelope);
    } else if (has_failed(peer) && port_.cancel_receive(running.engines)) [[unlikely]] {
      note(schedule, Status::kPeerFailed);
      progressed = Progressed::kDone;
    }
  } else {
    MatchKey key = step.key;
    if (schedule.status != Status::kOk)
      key.bits |= schedule.status == Status::kPeerFailed ? schedule.marks.peer_failed : schedule.marks.failed;
    Status status = Status::kOk;
    const SendMode mode =
        step.kind == StepKind::kSynchronousSend ? SendMode::kSynchronous : SendMode::kStandard;
    progressed = port_.send(peer, mode, key, payload, 0, cookie, running.engines, status);
    if (progressed == Progressed::kFailed && status == Status::kNoMemory) {
      give_back(number);
      return put_off(schedule);
    }
    if (progressed == Progressed::kFailed) note(schedule, status);
  }
  if (progressed != Progressed::kPending) {
    give_back(number);
    return Begun::kBegun;
  }
  ++schedule.under_way;
  return Begun::kBegun;
}

/// Where memory of a local step is. Null: nowhere, and the client is broken, or there is no memory now.
std::byte* ScheduleRunner::locate(const std::byte* named, std::size_t length_bytes,
                                  ClientMemory::Part& part) noexcept {
  auto* const address = const_cast<std::byte*>(named);
  if (client_ == nullptr || length_bytes == 0) return address;
  if (!name_memory({address, length_bytes, nullptr}, part)) return nullptr;
  const Payload payload = part.payload();
  if (payload.layout == nullptr) return payload.address;
  client_->fail("it has given a collective operation that computes with memory which it does not share");
  return nullptr;
}

/// The next part of a local step.
ScheduleRunner::Begun ScheduleRunner::go_on(Schedule& schedule, const ScheduleStep& step) noexcept {
  const std::size_t offset = schedule.moved_bytes;
  const std::size_t length = std::min(kLocalBytes, step.length_bytes - offset);
  ClientMemory::Part parts[2];
  const std::byte* const from = locate(step.from, step.length_bytes, parts[0]);
  std::byte* const to = locate(step.to, step.length_bytes, parts[1]);
  if (length > 0 && (from == nullptr || to == nullptr)) return put_off(schedule);
  if (length > 0 && step.kind == StepKind::kCombine)
    apply(step.operation, step.type, {}, {from + offset, length}, {to + offset, length});
  else if (length > 0)
    std::memmove(to + offset, from + offset, length);
  schedule.moved_bytes += length;
  if (schedule.moved_bytes < step.length_bytes) return Begun::kGoesOn;
  schedule.moved_bytes = 0;
  return Begun::kBegun;
}

// Names.

/// 0: there is no memory.
std::uint32_t ScheduleRunner::take_running() noexcept {
  if (free_ == 0) {
    try {
      running_.emplace_back();
    } catch (const std::bad_alloc&) {
      return 0;
    }
    return static_cast<std::uint32_t>(running_.size());
  }
  return std::exchange(free_, running_[free_ - 1].next_free);
}

void ScheduleRunner::give_back(std::uint32_t number) noexcept {
  Running& over = running_[number - 1];
  over.schedule = nullptr;
  over.part.reset();
  over.next_free = std::exchange(free_, number);
}

bool ScheduleRunner::next_ended(Ended& ended) noexcept {
  Schedule* const one = ended_.pop_front();
  if (one == nullptr) return false;
  ended = {one->name, one->status};
  steps_ -= one->steps.size();
  schedules_.erase(one->place);
  return true;
}

}  // namespace ch3_offload
