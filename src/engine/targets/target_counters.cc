#include "engine/targets/target_counters.h"

#include <new>

namespace ch3_offload {

namespace {

/// Release: whoever sees a count sees the data that was counted. A failure is stored before the successes
/// after it, so a reader of both reads `success` first.
void store(std::atomic<std::uint64_t>& word, std::uint64_t number) noexcept {
  word.store(number, std::memory_order_release);
}
/// The processor alone writes it.
std::uint64_t load(const std::atomic<std::uint64_t>& word) noexcept {
  return word.load(std::memory_order_relaxed);
}

}  // namespace

Status TargetCounters::prepare() noexcept {
  try {
    places_.resize(words_.size());
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  for (std::size_t i = words_.size(); i-- > 0;) {
    places_[i].next_free = free_;
    free_ = static_cast<std::uint32_t>(i + 1);
  }
  return Status::kOk;
}

CounterId TargetCounters::make() noexcept {
  if (free_ == 0) return kNoCounter;
  Place& place = places_[free_ - 1];
  const CounterId id{std::uint64_t{++place.generation} << 32 | free_};
  free_ = place.next_free;
  static_cast<void>(set(id, {}));
  return id;
}

bool TargetCounters::free(CounterId id) noexcept {
  if (!is_live(id)) return false;
  Place& place = places_[counter_index(id)];
  ++place.generation;
  place.next_free = free_;
  free_ = static_cast<std::uint32_t>(counter_index(id) + 1);
  return true;
}

bool TargetCounters::is_live(CounterId id) const noexcept {
  if (id == kNoCounter || counter_index(id) >= places_.size()) return false;
  const auto generation = static_cast<std::uint32_t>(static_cast<std::uint64_t>(id) >> 32);
  return generation % 2 == 1 && places_[counter_index(id)].generation == generation;
}

TargetCount TargetCounters::read(CounterId id) const noexcept {
  const TargetCounterWords& words = words_[counter_index(id)];
  return {load(words.success), load(words.failure)};
}

TargetCount TargetCounters::add(CounterId id, const TargetCount& amount) noexcept {
  const TargetCount before = read(id);
  return set(id, {before.success + amount.success, before.failure + amount.failure});
}

TargetCount TargetCounters::set(CounterId id, const TargetCount& count) noexcept {
  TargetCounterWords& words = words_[counter_index(id)];
  store(words.failure, count.failure);
  store(words.success, count.success);
  return count;
}

}  // namespace ch3_offload
