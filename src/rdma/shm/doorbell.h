// The doorbell: a word by which a process tells its peers that it sleeps. All its peers can read the word. In
// another cache line of the same page, they read on which processor it waits (rdma/waiting_place.h).
//
// The sleep rule (cited by this name elsewhere).
//
//   sleeper                                       waker
//   1. announce: store that it sleeps             1. publish: store the work
//   2. look for work once more                    2. look whether the other process sleeps
//   3. sleep only if there is none                3. if it does, ring: send one byte on the socket
//
// Steps 1 and 2 of both sides are sequentially consistent accesses, so all four have one order. If the waker
// looked before the sleeper announced, the work was published before the sleeper looks, and the sleeper finds
// it. Otherwise the waker sees the announcement and rings. Either way no wake-up is lost (Dekker's argument).
// Where the waker publishes often, the sleeper can fence for both (nic/fencing.h).
//
// The byte keeps the sleeper's epoll descriptor readable until the sleeper reads it. After reading, the
// sleeper looks at all its rings.
//
// Three words follow the rule:
//
//   word                            sleeper       waker's work
//   DoorbellWord::state             the consumer  a published record
//   RingControl::producer_waiting   the producer  returned space; the end of a shared write
//   a bit of ActivityBits           the consumer  a published record
//
// The last one knows no sleep: activity.h says what takes its place.
//
// A wake-up uses up the announcement. So a thread that reads wake-ups during a sleep announces both words
// again and looks again. That thread is the sleeper in its last look, or another thread that calls the
// provider meanwhile. A thread that finds a ring full during a sleep announces that at once, because arm()
// has already looked at the rings that were full before.
//
// The state's lowest bit is 1 during a sleep, and the state has another value for each sleep. So a waker
// rings once for each sleep, however many records it publishes before the sleeper wakes up.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rdma/ch3_offload_lane.h"
#include "rdma/shm/shared_memory.h"
#include "rdma/waiting_place.h"

namespace ch3_offload {

inline constexpr std::size_t kDoorbellBytes = 4096;  ///< Correct for larger pages, too: it is mapped once.

/// The first word of a doorbell's page.
struct DoorbellWord {
  /// Bit 0: the owner sleeps or is about to sleep. Bit 1: it wants activity bits. The others count its
  /// sleeps.
  std::atomic<std::uint64_t> state;

  static constexpr std::uint64_t kSleeps = CH3_OFFLOAD_LANE_SLEEPS;
  static constexpr std::uint64_t kWantsBits = CH3_OFFLOAD_LANE_WANTS_BITS;
  static constexpr std::uint64_t kOneSleep = 4;
};

/// Of the owner's WaitingPlace in the page. Processors fetch cache lines in pairs.
inline constexpr std::size_t kWaitingPlaceOffset = 128;

/// A process's own doorbell.
class Doorbell {
 public:
  Doorbell() = default;
  Doorbell(Mapping page, FileDescriptor file) noexcept : page_(std::move(page)), file_(std::move(file)) {}

  /// The file that peers map, for reading only.
  const FileDescriptor& file() const noexcept { return file_; }

  /// Announces a sleep. Peers that rang before will ring again. The caller must look at all rings afterwards:
  /// "The sleep rule".
  void announce_sleep() noexcept {
    state_ = (state_ | DoorbellWord::kSleeps) + DoorbellWord::kOneSleep;
    word().state.store(state_, std::memory_order_seq_cst);
  }
  void announce_awake() noexcept {
    if ((state_ & DoorbellWord::kSleeps) == 0) return;
    state_ &= ~DoorbellWord::kSleeps;
    // Relaxed: a peer that sees it late only sends a useless byte.
    word().state.store(state_, std::memory_order_relaxed);
  }

  bool wants_bits() const noexcept { return (state_ & DoorbellWord::kWantsBits) != 0; }
  /// From now on, peers set activity bits. The caller must look at all rings afterwards: "The sleep rule".
  void ask_for_bits() noexcept {
    state_ |= DoorbellWord::kWantsBits;
    word().state.store(state_, std::memory_order_seq_cst);
  }

  WaitingPlace& waiting_place() const noexcept {
    return *reinterpret_cast<WaitingPlace*>(page_.address() + kWaitingPlaceOffset);
  }

 private:
  DoorbellWord& word() const noexcept { return *reinterpret_cast<DoorbellWord*>(page_.address()); }

  Mapping page_;
  FileDescriptor file_;
  std::uint64_t state_ = 0;  ///< This process's copy of the word, which it never reads back.
};

/// Another process's doorbell.
class PeerDoorbell {
 public:
  PeerDoorbell() = default;
  explicit PeerDoorbell(Mapping page) noexcept
      : word_(reinterpret_cast<const DoorbellWord*>(page.address())), page_(std::move(page)) {}

  bool known() const noexcept { return word_ != nullptr; }
  /// The word, for a lane. REQUIRES: known().
  const std::uint64_t* word() const noexcept { return reinterpret_cast<const std::uint64_t*>(&word_->state); }

  /// REQUIRES: known().
  const WaitingPlace* waiting_place() const noexcept {
    return reinterpret_cast<const WaitingPlace*>(page_.address() + kWaitingPlaceOffset);
  }

  /// What its owner wants of the caller, who has published a record: kSleeps, kWantsBits. While the doorbell
  /// is not known, kSleeps.
  std::uint64_t state() const noexcept {
    return word_ == nullptr ? DoorbellWord::kSleeps
                            : word_->state.load(std::memory_order_seq_cst);  // "The sleep rule".
  }

  /// Returns whether the caller, who found this state, must send a byte. Always true for kSleeps while the
  /// doorbell is not known. Returns true once for each sleep of a known doorbell.
  bool must_ring(std::uint64_t state) noexcept {
    if (word_ == nullptr) [[unlikely]]
      return true;
    if ((state & DoorbellWord::kSleeps) == 0 || state == rung_) return false;
    rung_ = state;
    return true;
  }

 private:
  const DoorbellWord* word_ = nullptr;  ///< nullptr: the peer has not sent it yet.
  std::uint64_t rung_ = 0;              ///< State in the last sleep for which must_ring() was true. 0: none.
  Mapping page_;
};

}  // namespace ch3_offload
