// Lanes for spans that overlap.
//
// The viewers of trace-event JSON nest spans that overlap on one lane, so messages that are under way at the
// same time need lanes of their own.

#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

namespace ch3_offload {

class Lanes {
 public:
  explicit Lanes(std::uint32_t first) : next_(first) {}

  /// The lowest lane on which nothing overlaps [begin, end]. Spans come in order of their begin.
  std::uint32_t take(std::int64_t begin_ns, std::int64_t end_ns) {
    for (; !busy_.empty() && busy_.top().first < begin_ns; busy_.pop()) free_.insert(busy_.top().second);
    std::uint32_t lane = next_;
    if (free_.empty()) {
      ++next_;
    } else {
      lane = *free_.begin();
      free_.erase(free_.begin());
    }
    busy_.emplace(end_ns, lane);
    return lane;
  }

  /// One more than the highest lane used.
  std::uint32_t end() const noexcept { return next_; }

 private:
  using Busy = std::pair<std::int64_t, std::uint32_t>;  ///< Until when, which lane.

  std::uint32_t next_;
  std::set<std::uint32_t> free_;
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy_;
};

}  // namespace ch3_offload
