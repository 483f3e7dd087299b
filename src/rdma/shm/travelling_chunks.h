// Chunks of memory that travel between two processes: who has read a chunk writes to it next.
//
// Why: a core that has read a line which another core wrote has that line in its cache, and often owns it. If
// it writes its answer there, the line crosses once. In a buffer of its own, which the other core has read
// last, it must first fetch each line back. bench/lines shows both (`one-buffer` beside `buffer-each`): for
// 64 KiB a factor of 4 where the cores share a cache, and of more than 10 where they do not.
//
// Ownership: two processes that have rings to each other have kChunks chunks in common, in the file of the
// ring of the one whose connection stays (shm_connection.h, RULE ONE CONNECTION). At first all are its. A
// record of kind kChunk names the chunk that has the message, and passes it to the receiver, whose it is from
// then on. So no word of a chunk is shared, nothing is returned, and nobody waits for one: a message that
// finds none goes through the ring. Where messages flow one way, that is soon the case, and no loss, since a
// chunk that comes from elsewhere gains nothing.
//
// Trust: a peer can pass only chunks that it has; another is a violation of the protocol. It can garble what
// it has passed, as it can garble the ring.
//
// Places: a chunk begins in the middle of a page. The sender's and the receiver's copies are slow where the
// destination is a few bytes ahead of the source modulo a page (ch3_offload_copy.h). Most buffers of programs
// are far from the middle of a page: malloc() puts a long one 16 bytes behind the begin of one.
//
// The file of a ring: the chunks, then the ring as ring.h has it. Pages take memory from their first use on.

#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/shm/ring.h"
#include "rdma/shm/shared_memory.h"

namespace ch3_offload {

/// 16 KiB of a payload, and its header: a long message becomes a pipeline, in which the sender copies one
/// part in while the receiver copies the one before out.
inline constexpr std::size_t kChunkBytes = (std::size_t{16} << 10) + 128;
inline constexpr std::uint32_t kChunks = 31;
/// From one to the next, and where the first one begins: "Places".
inline constexpr std::size_t kChunkStrideBytes = std::size_t{20} << 10;
inline constexpr std::size_t kFirstChunkOffset = kLeastPageBytes / 2;
inline constexpr std::size_t kChunkAreaBytes = std::size_t{640} << 10;
static_assert(kFirstChunkOffset + kChunkBytes <= kChunkStrideBytes &&
              kChunkStrideBytes % kLeastPageBytes == 0);
static_assert(kChunks * kChunkStrideBytes <= kChunkAreaBytes && kChunkAreaBytes % kRingControlBytes == 0);
/// Shorter ones travel in a record, or go through the ring: a chunk's lines arrive only after the record's,
/// which outweighs the gain.
inline constexpr std::size_t kLeastChunkMessage = std::size_t{3} << 10;

/// Payload of a kChunk record.
struct ChunkRecord {
  std::uint32_t chunk = 0;
  std::uint32_t length_bytes = 0;
};
static_assert(kLeastChunkMessage == CH3_OFFLOAD_LANE_MOST_BYTES);
static_assert(sizeof(ChunkRecord) == kChunkRecordBytes);

/// The file of a ring, and its mapping.
constexpr std::size_t ring_file_bytes(std::size_t ring_bytes) noexcept {
  return kChunkAreaBytes + kRingControlBytes + ring_bytes;
}
inline Result<Mapping> map_ring_file(const FileDescriptor& file, std::size_t ring_bytes) {
  return map_mirrored(file, kChunkAreaBytes + kRingControlBytes, ring_bytes);
}
/// Where the records begin in that mapping.
inline constexpr std::size_t kRingOffset = kChunkAreaBytes + kRingControlBytes;
/// For RingProducer and RingConsumer.
inline std::byte* ring_in(const Mapping& mapping) noexcept { return mapping.address() + kChunkAreaBytes; }

/// The chunks that a process has in common with one peer. Belongs to one thread.
class TravellingChunks {
 public:
  /// None.
  TravellingChunks() = default;
  /// `area`: of kChunkAreaBytes, mapped as long as this object has it. `own`: whether all are this process's.
  TravellingChunks(std::byte* area, bool own) noexcept : area_(area) {
    if (!own) return;
    for (std::uint32_t chunk = kChunks; chunk > 0; --chunk) give(chunk - 1);
  }

  /// Whether this process has one.
  bool any() const noexcept { return count_ != 0; }
  /// The chunk that pass() passes next: the one that this process has read last. REQUIRES: any().
  std::byte* next() const noexcept { return at(mine_[count_ - 1]); }
  /// The chunk, with a message of so many bytes, is the peer's as soon as the record is published.
  /// REQUIRES: any() and length_bytes <= kChunkBytes.
  ChunkRecord pass(std::size_t length_bytes) noexcept {
    const std::uint32_t chunk = mine_[--count_];
    is_mine_ &= ~bit(chunk);
    return {chunk, static_cast<std::uint32_t>(length_bytes)};
  }

  /// The message of a peer's record. Empty: the peer violates the protocol. When it has been read, call
  /// give().
  std::span<const std::byte> message(const ChunkRecord& record) const noexcept {
    if (area_ == nullptr || record.chunk >= kChunks || (is_mine_ & bit(record.chunk)) != 0 ||
        record.length_bytes > kChunkBytes)
      return {};
    return {at(record.chunk), record.length_bytes};
  }
  /// The chunk is this process's. REQUIRES: message() was not empty, and nothing was called since.
  void give(std::uint32_t chunk) noexcept {
    assert(area_ != nullptr && chunk < kChunks && (is_mine_ & bit(chunk)) == 0);
    is_mine_ |= bit(chunk);
    mine_[count_++] = static_cast<std::uint8_t>(chunk);
  }

 private:
  static constexpr std::uint32_t bit(std::uint32_t chunk) noexcept { return 1u << chunk; }
  std::byte* at(std::uint32_t chunk) const noexcept {
    return area_ + kFirstChunkOffset + chunk * kChunkStrideBytes;
  }

  std::byte* area_ = nullptr;
  std::uint32_t count_ = 0;  ///< Of mine_.
  std::uint32_t is_mine_ = 0;
  std::array<std::uint8_t, kChunks> mine_{};  ///< The last one is the warmest.
};

}  // namespace ch3_offload
