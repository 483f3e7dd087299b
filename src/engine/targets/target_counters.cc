#include "engine/targets/target_counters.h"

#include <new>

namespace ch3_offload {

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

}  // namespace ch3_offload
