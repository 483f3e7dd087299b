// How much of its rings a process may use: ring.h, "The window".
//
// All processes of a node have equal shares of the memory for rings. A process divides its share among the
// rings that it makes. Each ring gets the guaranteed window, in which every message of the provider flows.
// What is left goes to the rings that want more, first come, first served. So the shares are never exceeded,
// except that a ring always has kFirstWindowBytes.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "rdma/cycle_clock.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/travelling_chunks.h"

namespace ch3_offload {

/// Notices that a ring streams, although its consumer keeps up: the producer comes to the end of the window
/// again and again. The consumer has the lines of the window in its cache, and the producer has to fetch each
/// one back from there. Once the window is longer than what that cache holds they come from a cache that both
/// share, four times as fast (bench/lines, `stream`). A window of half that size is no better, so a ring
/// grows to its full size at once.
class LapTimer {
 public:
  /// To be called at each end of the window. Returns true once in kLaps laps, if four of them took, on the
  /// average, less than a millisecond, or than one for each 64 KiB of the window: if 256 KiB and more pass
  /// in a millisecond.
  bool is_fast(std::uint64_t now, std::size_t window_bytes) noexcept {
    if (++laps_ < kLaps) return false;
    laps_ = 0;
    return now - std::exchange(since_, now) <
           kLaps / 4 * kMillisecond * std::max<std::size_t>(1, window_bytes / kStep);
  }

 private:
  /// The page faults of a window as long again cost both processes about what ten laps do.
  static constexpr std::uint32_t kLaps = 32;
  static constexpr std::size_t kStep = std::size_t{64} << 10;
  static constexpr std::uint64_t kMillisecond = 50 * CycleClock::kAbout20Microseconds;
  std::uint32_t laps_ = 0;
  std::uint64_t since_ = 0;  ///< CycleClock time of the last decision.
};

class RingMemory {
 public:
  RingMemory() = default;
  /// `memory_bytes`: of all `processes` on the node together. `longest_payload`: of the messages to be sent,
  /// if there is memory.
  RingMemory(std::size_t memory_bytes, std::size_t processes, std::size_t ring_bytes, std::size_t page_bytes,
             std::size_t longest_payload) noexcept {
    const std::size_t rings = processes > 1 ? processes - 1 : 1;
    std::size_t share_bytes = memory_bytes / std::max<std::size_t>(processes, 1);
    has_chunks_ = rings * kChunkAreaBytes <= share_bytes / kPlenty;
    if (has_chunks_) share_bytes -= rings * kChunkAreaBytes;
    const std::size_t burst_bytes = std::min(ring_bytes, kFirstPlentyBytes);
    const auto is_small_part = [&](std::size_t bytes) { return rings * bytes <= share_bytes / kPlenty; };
    first_bytes_ = kFirstWindowBytes;
    if (is_small_part(burst_bytes)) first_bytes_ = burst_bytes;
    if (is_small_part(ring_bytes) && rings * ring_bytes <= kWholeRingsBytes) first_bytes_ = ring_bytes;
    const std::size_t each_bytes = share_bytes / rings;
    const std::size_t affordable_bytes = each_bytes > page_bytes ? each_bytes - page_bytes : 0;
    guaranteed_bytes_ = std::min(least_window_bytes(longest_payload), affordable_bytes);
    guaranteed_bytes_ = std::clamp(guaranteed_bytes_, first_bytes_, ring_bytes);
    const std::size_t promised_bytes = rings * (page_bytes + guaranteed_bytes_);
    left_bytes_ = share_bytes > promised_bytes ? share_bytes - promised_bytes : 0;
  }

  /// The window of a new ring. The whole ring, where a process has few; else kFirstPlentyBytes. Either only
  /// if those of all rings are a small part of the share; otherwise kFirstWindowBytes.
  std::size_t first_window_bytes() const noexcept { return first_bytes_; }

  /// How much of a ring may be on its way at once: a message that is more urgent waits for it.
  static constexpr std::size_t most_ahead_bytes(std::size_t ring_bytes) noexcept {
    return std::max(kFirstPlentyBytes, ring_bytes / 8);
  }

  /// Whether the files of all rings may use their chunks: where these are a small part of the share.
  bool has_chunks() const noexcept { return has_chunks_; }

  /// The longest payload that flows in the guaranteed window.
  std::size_t longest_payload() const noexcept { return longest_payload_in_window(guaranteed_bytes_); }
  std::size_t guaranteed_bytes() const noexcept { return guaranteed_bytes_; }

  /// A ring with a window of `window_bytes` wants one of `wanted_bytes`. Returns what it gets, which is at
  /// least what it has.
  std::size_t grant(std::size_t window_bytes, std::size_t wanted_bytes) noexcept {
    const std::size_t free_bytes = std::max(window_bytes, guaranteed_bytes_);
    if (wanted_bytes <= free_bytes) return std::max(window_bytes, wanted_bytes);
    const std::size_t cost_bytes = wanted_bytes - free_bytes;
    if (cost_bytes > left_bytes_) return free_bytes;
    left_bytes_ -= cost_bytes;
    return wanted_bytes;
  }

  /// It has not got that after all.
  void ungrant(std::size_t window_bytes, std::size_t granted_bytes) noexcept {
    left_bytes_ += granted_bytes - std::min(granted_bytes, std::max(window_bytes, guaranteed_bytes_));
  }

  /// A ring with such a window is gone.
  void give_back(std::size_t window_bytes) noexcept {
    if (window_bytes > guaranteed_bytes_) left_bytes_ += window_bytes - guaranteed_bytes_;
  }

 private:
  static constexpr std::size_t kPlenty = 8;
  /// Room for a burst. A ring that streams grows beyond.
  static constexpr std::size_t kFirstPlentyBytes = std::size_t{256} << 10;
  /// If all rings of a process take no more, they need not grow: four rings of the default size.
  static constexpr std::size_t kWholeRingsBytes = std::size_t{8} << 20;

  std::size_t first_bytes_ = kFirstWindowBytes;
  std::size_t guaranteed_bytes_ = kFirstWindowBytes;
  bool has_chunks_ = false;
  std::size_t left_bytes_ = 0;  ///< Of the share, what no ring has and none was promised.
};

}  // namespace ch3_offload
