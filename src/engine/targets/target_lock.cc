#include "engine/targets/target_lock.h"

#include <new>

namespace ch3_offload {

bool TargetLock::ask(const Waiter& waiter) {
  if (!has_.emplace(waiter.peer, false).second) return false;
  try {
    waiting_.push_back(waiter);
  } catch (const std::bad_alloc&) {
    has_.erase(waiter.peer);
    throw;
  }
  return true;
}

bool TargetLock::give_back(std::uint32_t peer) noexcept {
  const auto found = has_.find(peer);
  if (found == has_.end() || !found->second) return false;
  has_.erase(found);
  --holders_;
  return true;
}

void TargetLock::forget(std::uint32_t peer) noexcept {
  if (give_back(peer))
    is_broken_ = true;
  else if (has_.erase(peer) != 0)
    std::erase_if(waiting_, [&](const Waiter& one) { return one.peer == peer; });
}

bool TargetLock::take_granted(Waiter& waiter) noexcept {
  if (is_broken_ || waiting_.empty()) return false;
  const Waiter& next = waiting_.front();
  if (holders_ > 0 && (held_ == Mode::kExclusive || next.mode == Mode::kExclusive)) return false;
  ++holders_;
  held_ = next.mode;
  has_[next.peer] = true;
  waiter = next;
  waiting_.pop_front();
  return true;
}

bool TargetLock::take_refused(Waiter& waiter) noexcept {
  if (!is_broken_ || waiting_.empty()) return false;
  waiter = waiting_.front();
  waiting_.pop_front();
  has_.erase(waiter.peer);
  return true;
}

}  // namespace ch3_offload
