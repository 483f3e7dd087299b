// How a process says that it sleeps: a word that all its peers can read.
//
// The sleep rule (cited by name elsewhere). A sleeper first stores that it sleeps, then looks for work
// once more, and sleeps only if it found none. A waker first publishes work, then looks whether the
// other sleeps, and rings if so. All four accesses are sequentially consistent, so they have one order:
// if the waker's look came before the sleeper's announcement, then the publication came before the
// sleeper's look, which finds the work; otherwise the waker sees the announcement and rings. Either way
// no wake-up is lost (Dekker's argument). Ringing is one byte on a socket that the sleeper's epoll
// descriptor covers: it stays readable until the sleeper reads the byte, and the sleeper looks at all
// its rings after reading. Two words follow this rule: this one (consumer sleeps, producer publishes a
// record), and RingControl::producer_waiting (producer sleeps, consumer returns space).
//
// An announcement is used up by its wake-up. Whoever reads wake-ups during a sleep (the sleeper's last look,
// or another thread that calls the provider meanwhile) therefore announces again, both words, and looks
// again; and who finds a ring full during a sleep announces that at once, because arm() is over.
//
// The word counts: odd while asleep, another value for each sleep, so that a waker rings once for a
// sleep, however many records it publishes before the sleeper gets up.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rdma/shm/shared_memory.h"

namespace ch3_offload {

inline constexpr std::size_t kDoorbellBytes = 4096;  ///< Greater pages do no harm: it is mapped once.

/// The first word of a doorbell's page.
struct DoorbellWord {
  std::atomic<std::uint64_t> epoch;  ///< Odd: its owner sleeps or is about to.
};

/// A process's own doorbell.
class Doorbell {
 public:
  Doorbell() = default;
  Doorbell(Mapping page, FileDescriptor file) noexcept : page_(std::move(page)), file_(std::move(file)) {}

  /// For peers; they can map it for reading only.
  const FileDescriptor& file() const noexcept { return file_; }

  /// Announces a sleep: wakers that rang before ring again. Then look at all rings: "The sleep rule".
  void announce_sleep() noexcept {
    epoch_ = (epoch_ + 1) | 1;
    word().epoch.store(epoch_, std::memory_order_seq_cst);
  }
  void announce_awake() noexcept {
    if ((epoch_ & 1) == 0) return;
    ++epoch_;
    word().epoch.store(epoch_, std::memory_order_relaxed);  // Late is harmless: a needless byte.
  }

 private:
  DoorbellWord& word() const noexcept { return *reinterpret_cast<DoorbellWord*>(page_.address()); }

  Mapping page_;
  FileDescriptor file_;
  std::uint64_t epoch_ = 0;  ///< Our copy: the page is never read back.
};

/// Another process's doorbell.
class PeerDoorbell {
 public:
  PeerDoorbell() = default;
  explicit PeerDoorbell(Mapping page) noexcept
      : word_(reinterpret_cast<const DoorbellWord*>(page.address())), page_(std::move(page)) {}

  bool known() const noexcept { return word_ != nullptr; }

  /// After a record was published: whether a byte must be sent. Until the doorbell is known, always.
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
  std::uint64_t rung_ = 0;              ///< The sleep that we rang for last. 0: none.
  Mapping page_;
};

}  // namespace ch3_offload
