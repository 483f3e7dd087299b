// Activity bits: by which a process finds the rings that have records, however many rings it polls.
//
// A process that polls few rings looks at each of them. One that polls many asks for bits (Doorbell::
// ask_for_bits()). Then a peer that has published a record sets its bit in this process's page, unless the
// bit is set already. The process clears bits that are set, and then looks at their rings.
//
// No record is missed, by "The sleep rule" (doorbell.h): To clear a bit is to announce that the next record
// needs a bit. The consumer clears the bit, then looks at the ring. The producer publishes the record, then
// looks at the bit. So either the consumer finds the record, or the producer finds the bit cleared and sets
// it. These accesses are sequentially consistent, too. To ask for bits is such an announcement, for all
// rings.
//
// The bit of a ring that is polled anyway is left set (take()). So a ping-pong writes to no bit.
//
// Trust: All peers map the page writable, so a peer can clear another's bit. That delays a record but does
// not lose it: each poll looks at one ring that no bit tells of, and before a sleep all rings are looked at.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rdma/shm/shared_memory.h"

namespace ch3_offload {

inline constexpr std::size_t kActivityBytes = 4096;  ///< Correct for larger pages, too: it is mapped once.
inline constexpr std::uint32_t kMostActivityBits = kActivityBytes * 8;
inline constexpr std::size_t kBitsPerWord = 64;

/// A process's own bits. One for each ring that it polls.
class ActivityBits {
 public:
  ActivityBits() = default;
  ActivityBits(Mapping page, FileDescriptor file) noexcept : page_(std::move(page)), file_(std::move(file)) {}

  /// The file that peers map.
  const FileDescriptor& file() const noexcept { return file_; }

  /// Clears the bits of a word that are set, except `keep`, and returns those that it has cleared. The caller
  /// must look at their rings afterwards.
  std::uint64_t take(std::size_t word, std::uint64_t keep) noexcept {
    std::atomic<std::uint64_t>& bits = words()[word];
    const std::uint64_t set = bits.load(std::memory_order_relaxed) & ~keep;  // A bit seen late is taken late.
    if (set == 0) return 0;
    bits.fetch_and(~set, std::memory_order_seq_cst);  // Pairs with mark(): "The sleep rule".
    return set;
  }
  /// Whether take() would return a bit.
  bool any(std::size_t word, std::uint64_t keep) const noexcept {
    return (words()[word].load(std::memory_order_relaxed) & ~keep) != 0;
  }

 private:
  std::atomic<std::uint64_t>* words() const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(page_.address());
  }

  Mapping page_;
  FileDescriptor file_;
};

/// This process's bit in another process's page.
class PeerActivityBit {
 public:
  PeerActivityBit() = default;
  /// REQUIRES: bit < kMostActivityBits.
  PeerActivityBit(Mapping page, std::uint32_t bit) noexcept
      : word_(reinterpret_cast<std::uint64_t*>(page.address()) + bit / kBitsPerWord),
        mask_(std::uint64_t{1} << bit % kBitsPerWord),
        page_(std::move(page)) {}

  /// For a lane, which sets the bit, too.
  std::uint64_t* word() const noexcept { return word_; }
  std::uint64_t mask() const noexcept { return mask_; }

  /// To be called after a record was published. Has no effect before the bit is known.
  void mark() const noexcept {
    if (word_ == nullptr) return;
    const std::atomic_ref<std::uint64_t> word(*word_);
    // Pair with ActivityBits::take(): "The sleep rule".
    if ((word.load(std::memory_order_seq_cst) & mask_) == 0) word.fetch_or(mask_, std::memory_order_seq_cst);
  }

 private:
  std::uint64_t* word_ = nullptr;  ///< nullptr: not known yet.
  std::uint64_t mask_ = 0;
  Mapping page_;
};

}  // namespace ch3_offload
