// The doorbell: a word by which a process tells its peers that it sleeps. All its peers can read the word.
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
//
// The byte keeps the sleeper's epoll descriptor readable until the sleeper reads it. After reading, the
// sleeper looks at all its rings.
//
// Two words follow the rule:
//
//   word                            sleeper       waker's work
//   DoorbellWord::epoch             the consumer  a published record
//   RingControl::producer_waiting   the producer  returned space
//
// A wake-up uses up the announcement. So a thread that reads wake-ups during a sleep announces both words
// again and looks again. That thread is the sleeper in its last look, or another thread that calls the
// provider meanwhile. A thread that finds a ring full during a sleep announces that at once, because arm()
// has already looked at the rings that were full before.
//
// The epoch is odd during a sleep, and has another value for each sleep. So a waker rings once for each
// sleep, however many records it publishes before the sleeper wakes up.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rdma/shm/shared_memory.h"

namespace ch3_offload {

inline constexpr std::size_t kDoorbellBytes = 4096;  ///< Correct for larger pages, too: it is mapped once.

/// The first word of a doorbell's page.
struct DoorbellWord {
  std::atomic<std::uint64_t> epoch;  ///< Odd: the owner sleeps or is about to sleep.
};

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
    epoch_ = (epoch_ + 1) | 1;
    word().epoch.store(epoch_, std::memory_order_seq_cst);
  }
  void announce_awake() noexcept {
    if ((epoch_ & 1) == 0) return;
    ++epoch_;
    // Relaxed: a peer that sees it late only sends a useless byte.
    word().epoch.store(epoch_, std::memory_order_relaxed);
  }

 private:
  DoorbellWord& word() const noexcept { return *reinterpret_cast<DoorbellWord*>(page_.address()); }

  Mapping page_;
  FileDescriptor file_;
  std::uint64_t epoch_ = 0;  ///< This process's copy of the word, which it never reads back.
};

/// Another process's doorbell.
class PeerDoorbell {
 public:
  PeerDoorbell() = default;
  explicit PeerDoorbell(Mapping page) noexcept
      : word_(reinterpret_cast<const DoorbellWord*>(page.address())), page_(std::move(page)) {}

  bool known() const noexcept { return word_ != nullptr; }
  /// Odd: its owner sleeps. REQUIRES: known().
  const std::uint64_t* epoch() const noexcept {
    return reinterpret_cast<const std::uint64_t*>(&word_->epoch);
  }

  /// Returns whether the caller, who has published a record, must send a byte. Always true while the doorbell
  /// is not known. Returns true once for each sleep of a known doorbell.
  bool must_ring() noexcept {
    if (word_ == nullptr) [[unlikely]]
      return true;
    const std::uint64_t epoch = word_->epoch.load(std::memory_order_seq_cst);  // "The sleep rule".
    if ((epoch & 1) == 0 || epoch == rung_) [[likely]]
      return false;
    rung_ = epoch;
    return true;
  }

 private:
  const DoorbellWord* word_ = nullptr;  ///< nullptr: the peer has not sent it yet.
  std::uint64_t rung_ = 0;              ///< Epoch of the last sleep for which must_ring() was true. 0: none.
  Mapping page_;
};

}  // namespace ch3_offload
