// On which processor a process waited last, and when: one word that its peers on the node can read. Whoever
// waits for a process that waits on the same processor moves away (nic/parting.h).
//
// Threads: one writes, any thread of any process reads.

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

namespace ch3_offload {

/// Zeros, a place of which nothing was said, are valid.
class WaitingPlace {
 public:
  /// A processor whose number does not fit is not told.
  void say(std::uint32_t processor, std::uint64_t now_ns) noexcept {
    if (processor >= kMostProcessors) return;
    // Relaxed: the word is all that is said. Nothing is read or written because of it.
    word_.store((now_ns / kUnitNs) << kProcessorBits | (processor + 1), std::memory_order_relaxed);
  }

  /// The processor that was said last, whenever that was.
  std::optional<std::uint32_t> processor() const noexcept { return processor_in(load()); }

  /// The processor that was said in the last `newest_ns` nanoseconds. Clocks of the node's processes agree.
  std::optional<std::uint32_t> processor_since(std::uint64_t now_ns, std::uint64_t newest_ns) const noexcept {
    const std::uint64_t word = load();
    // A word that is newer than `now_ns` was said since then, or by another clock: that one is too old, too.
    const std::uint64_t age =
        (now_ns / kUnitNs + 1 - (word >> kProcessorBits)) & (UINT64_MAX >> kProcessorBits);
    if (age > newest_ns / kUnitNs + 1) return {};
    return processor_in(word);
  }

 private:
  static constexpr std::uint32_t kProcessorBits = 16;
  static constexpr std::uint32_t kMostProcessors = (1u << kProcessorBits) - 1;
  static constexpr std::uint64_t kUnitNs = 1024;

  std::uint64_t load() const noexcept { return word_.load(std::memory_order_relaxed); }
  static std::optional<std::uint32_t> processor_in(std::uint64_t word) noexcept {
    const auto one_more = static_cast<std::uint32_t>(word & kMostProcessors);
    if (one_more == 0) return {};
    return one_more - 1;
  }

  std::atomic<std::uint64_t> word_{0};
};
static_assert(sizeof(WaitingPlace) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);

struct WaitingPlaces {
  WaitingPlace* own = nullptr;  ///< nullptr: nobody could read it.
  std::span<const WaitingPlace* const> peers;
};

}  // namespace ch3_offload
