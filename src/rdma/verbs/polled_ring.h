// The two ends of a polled ring, and what tells who deserves one. See verbs_rings.cc for the protocol.
//
// Threads: as rdma/provider.h says.

#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rdma/verbs/ring_entry.h"
#include "rdma/verbs/verbs_handles.h"

namespace ch3_offload {

class Link;
struct VerbsEndpoint;

/// A ring of the peer's, into which we may write. It belongs to one queue pair.
class SendRing {
 public:
  bool is_open() const noexcept { return entry_bytes_ != 0; }
  /// False: nothing that a proper peer would offer.
  bool open(const RingBody& body) noexcept;
  void close() noexcept { entry_bytes_ = 0; }
  std::uint64_t key() const noexcept { return key_; }
  bool fits(std::size_t length_bytes) const noexcept {
    return ring_entry_bytes(length_bytes) <= entry_bytes_;
  }
  /// Makes an entry of the message, which `piece` names, too, and `request` the write of it.
  /// REQUIRES: fits(), and room for as much behind the message.
  void write(std::uint64_t number, std::byte* message, ibv_sge& piece, ibv_send_wr& request) const noexcept;

 private:
  std::uint64_t address_ = 0;
  std::uint64_t key_ = 0;
  std::uint32_t remote_key_ = 0;
  std::uint32_t entry_bytes_ = 0;  ///< 0: there is none.
};

/// Memory of ours into which one peer writes over one queue pair. Registered while it is open, for this opening alone: a
/// write that comes later finds no key.
class ReceiveRing {
 public:
  enum class State : std::uint8_t {
    kFree,      ///< No memory.
    kOpenDue,   ///< Polled; the peer is to be told of it.
    kOpen,      ///< Polled; the peer was told.
    kCloseDue,  ///< Polled; the peer is to be told to stop.
    kClosing,   ///< Polled; the peer was told to stop, its answer is due.
  };

  /// Memory for an opening. False: it was refused, or its registration; errno says why.
  bool make(ibv_pd* domain) noexcept;
  void free() noexcept;
  /// What the peer is told.
  RingBody body(std::uint32_t link_number) const noexcept;

  RingWords entry(std::uint64_t number) const noexcept {
    return {words_.get() + number % kRingEntries * kEntryWords, kEntryWords};
  }
  std::uint64_t key() const noexcept { return key_; }

  State state = State::kFree;
  VerbsEndpoint* peer = nullptr;       ///< Whose it is. nullptr: it has never been open.
  Link* link = nullptr;                ///< Of the peer's main lane.
  std::uint64_t messages = 0;          ///< Delivered from it.
  std::uint64_t last_poll = 0;         ///< VerbsProvider::polls_ when one was, or when it was opened.
  std::uint64_t closing_since_ns = 0;  ///< monotonic_ns() when it was to be closed.

 private:
  static constexpr std::size_t kEntryWords = kRingEntryBytes / sizeof(std::uint64_t);
  struct Unmap {
    void operator()(std::uint64_t* words) const noexcept { ::munmap(words, kRingBytes); }
  };
  /// Whole pages of our own, so that a fork or a free() nearby cannot take them away.
  std::unique_ptr<std::uint64_t[], Unmap> words_;
  Registration registration_;  // Gone before the memory.
  std::uint64_t key_ = 0;
};

/// How many small messages a peer sent through the completion queue of late.
class RingHeat {
 public:
  /// Messages that make a peer hot at first, and how often they may have to double.
  static constexpr std::uint32_t kHot = 32;
  static constexpr std::uint32_t kMostDoublings = 8;
  /// Polls without a message, after which the count begins anew: about 10 ms of polling in vain.
  static constexpr std::uint64_t kForgetPolls = std::uint64_t{1} << 16;

  /// A message came, in the poll of that number, `sleeps` sleeps after this process began. True: the peer is hot, and
  /// the count begins anew.
  bool add(std::uint64_t poll, std::uint64_t sleeps) noexcept {
    if (count_ == 0 || sleeps != sleeps_ || poll - last_poll_ > kForgetPolls) {
      count_ = 0;
      since_poll_ = poll;
      sleeps_ = sleeps;
    }
    last_poll_ = poll;
    if (++count_ < kHot << doublings_) return false;
    count_ = 0;
    return true;
  }
  /// The poll in which the count that add() was last true for began.
  std::uint64_t since_poll() const noexcept { return since_poll_; }
  /// A sleep closed the ring. Opening and closing costs two messages each way: who delivered too few in it has to prove more the
  /// next time.
  void was_closed_by_sleep(std::uint64_t messages) noexcept {
    if (messages >= kWorthwhile)
      doublings_ = 0;
    else if (doublings_ < kMostDoublings)
      ++doublings_;
  }

 private:
  static constexpr std::uint64_t kWorthwhile = 512;
  std::uint32_t count_ = 0;
  std::uint32_t doublings_ = 0;
  std::uint64_t sleeps_ = 0;
  std::uint64_t since_poll_ = 0;
  std::uint64_t last_poll_ = 0;
};

/// What a link has of it.
struct LinkRings {
  SendRing send;
  ReceiveRing* receive = nullptr;  ///< In VerbsProvider::rings_.
  bool answer_due =
      false;  ///< In VerbsProvider::ring_answers_: the peer is to be told that `send` is closed.
  RingHeat heat;
};

}  // namespace ch3_offload
