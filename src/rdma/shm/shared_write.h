// A write that both processes copy: how they agree which of them copies what.
//
// A receiver that waits for a long payload has an idle core. So the writer offers the back half of the write
// to the receiver, in a record of the ring (SharedWriteRecord), and copies the front half. A receiver that
// polls takes the back half and reads it (process_vm_readv). If it has not taken the back half when the front
// is in place, the writer copies that, too. So the writer never waits for a process that does not poll. There
// is one offer at a time in a ring, and one word for it:
//
//   bit           set by    meaning
//   kTaken        receiver  the receiver copies the back half; only from 0
//   kKept         writer    the writer copies the back half; only from 0
//   kFrontDone    writer    the front half is in place; only after kTaken. Cleared if the write is given up:
//                           then the receiver delivers nothing
//   kBackDone     receiver  the back half is in place
//   kBackFailed   receiver  the kernel refused: the writer copies all, or the write is void
//
// Who finishes: if kBackDone is the last bit, the receiver delivers the write, and the writer sees the bit in
// a later poll(). Otherwise the writer publishes a record of the write, as for a write that it has copied
// alone.
//
// The sleep rule: a writer that waits for kBackDone or kBackFailed sets RingControl::producer_waiting, then
// looks at the word. The receiver sets the bit, then looks at producer_waiting.
//
// Trust: the word decides only who copies. The receiver asks its Sink where the write lands, and the writer
// reads nothing else from the receiver. What neither can help: the kernel makes a receiver wait while it
// faults in the writer's pages (a file on a server that is down), and a writer whose receiver is stopped in
// its copy waits for it, as for any receiver that does not poll.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ch3_offload {

/// Writes that are shorter are copied by the writer alone: an offer costs more than it saves.
inline constexpr std::size_t kLeastSharedBytes = std::size_t{16} << 10;

/// Payload of a record of kind kSharedWrite: an offer.
struct SharedWriteRecord {
  std::uint32_t immediate = 0;
  std::uint32_t reserved = 0;  ///< 0.
  std::uint64_t length_bytes = 0;
  std::uint64_t front_bytes = 0;   ///< The writer copies these. Less than length_bytes.
  std::uint64_t back_address = 0;  ///< Of the rest, in the writer's memory.
};
static_assert(sizeof(SharedWriteRecord) == 32 && offsetof(SharedWriteRecord, length_bytes) == 8 &&
              offsetof(SharedWriteRecord, back_address) == 24);

/// Both sides' view of the word. All accesses are sequentially consistent: they are rare, and the sleep rule
/// needs it of some.
class SharedWriteWord {
 public:
  explicit SharedWriteWord(std::atomic<std::uint32_t>& word) noexcept : word_(word) {}

  // The writer's.

  /// Before the offer is published. REQUIRES: the receiver has consumed the offer before.
  void offer() noexcept { word_.store(0); }
  /// The front half is in place. kMine: copy the back half as well. kWhole: the receiver has copied it.
  /// kTheirs: it still copies; see outcome().
  enum class Back : std::uint8_t { kMine, kTheirs, kWhole, kFailed };
  Back front_done() noexcept {
    std::uint32_t free = 0;
    if (word_.compare_exchange_strong(free, kKept)) return Back::kMine;
    return back(word_.fetch_or(kFrontDone));
  }
  /// The front half could not be copied: an offer that nobody has taken ends.
  void front_failed() noexcept {
    std::uint32_t free = 0;
    word_.compare_exchange_strong(free, kKept);
  }
  Back outcome() const noexcept { return back(word_.load()); }
  /// The write is given up: the receiver must not deliver it. Returns what had come of it.
  Back withdraw() noexcept { return back(word_.fetch_and(~kFrontDone)); }

  // The receiver's.

  /// Whether the receiver may copy the back half.
  bool take() noexcept {
    std::uint32_t free = 0;
    return word_.compare_exchange_strong(free, kTaken);
  }
  /// Returns whether the receiver must deliver the write.
  bool back_done() noexcept { return (word_.fetch_or(kBackDone) & kFrontDone) != 0; }
  void back_failed() noexcept { word_.fetch_or(kBackFailed); }

 private:
  static constexpr std::uint32_t kTaken = 1, kKept = 2, kFrontDone = 4, kBackDone = 8, kBackFailed = 16;

  static Back back(std::uint32_t bits) noexcept {
    if ((bits & kBackFailed) != 0) return Back::kFailed;
    return (bits & kBackDone) != 0 ? Back::kWhole : Back::kTheirs;
  }

  std::atomic<std::uint32_t>& word_;
};

}  // namespace ch3_offload
