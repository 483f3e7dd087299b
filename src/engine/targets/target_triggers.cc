#include "engine/targets/target_triggers.h"

#include <new>

namespace ch3_offload {

Status TargetTriggers::prepare(std::size_t counters) noexcept {
  try {
    waiting_.resize(counters);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  return Status::kOk;
}

Status TargetTriggers::add(std::size_t counter, std::uint64_t sum, std::uint64_t threshold,
                           const TriggeredAction& action) noexcept {
  Triggered* const one = pool_.live() < most_ ? pool_.take() : nullptr;
  if (one == nullptr) return Status::kNoMemory;
  one->threshold = threshold;
  one->action = action;
  if (threshold <= sum) {
    make_due(*one);
    return Status::kOk;
  }
  auto& waiting = waiting_[counter];
  Triggered* before = waiting.back();
  while (before != nullptr && before->threshold > threshold) before = waiting.previous(*before);
  waiting.insert_after(before, *one);
  return Status::kOk;
}

void TargetTriggers::fire(std::size_t counter, std::uint64_t sum) noexcept {
  auto& waiting = waiting_[counter];
  while (waiting.front() != nullptr && waiting.front()->threshold <= sum) make_due(*waiting.pop_front());
}

bool TargetTriggers::take(TriggeredAction& action) noexcept {
  Triggered* const one = due_.pop_front();
  if (one == nullptr) return false;
  --all_due_;
  action = std::move(one->action);
  pool_.give_back(*one);
  return true;
}

}  // namespace ch3_offload
