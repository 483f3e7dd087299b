// The records that travel between two processes: a short message is written where the last one of the peer
// was read. travelling_chunks.h says why, and what a longer message does.
//
// Two processes that have rings to each other have two such records, in the file that has their chunks. At
// first both are of that file's maker. Who has one may write one message there instead of in the ring, and
// the record is the peer's then. So a message and its answer use the same lines, and so do two messages that
// cross each other. Who has both writes to the one that came last.
//
// The first word is a header as that of a record of the ring (ring.h), but for the kind, which says whose
// message it is, and for a number that counts that process's messages in such records. Who has read a message
// clears the header. So the receiver finds the next message by its number, in either record.
//
// Order: the header has the position of the next record of the sender's ring. The receiver takes the message
// when it has consumed the ring up to there, and before it takes the record that is there. It loads the
// ring's header first: if it sees that, it sees a travelling record that was published before.
//
// The sleep rule (doorbell.h) is that of records: the header is stored before the doorbell is looked at, and
// loaded after the announcement.
//
// Trust: a peer that writes another header garbles its own stream. A length that does not fit is no message.

#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/ch3_offload_lane.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/travelling_chunks.h"

namespace ch3_offload {

inline constexpr std::size_t kTravellingRecords = 2;
inline constexpr std::size_t kLongestTravelling =
    CH3_OFFLOAD_LANE_TRAVELLING_BYTES - CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES;

/// Where they are in the file of a ring: in the page of the control words, and in the one before. Not at its
/// begin: travelling_chunks.h, "Places".
inline constexpr std::array<std::size_t, kTravellingRecords> kTravellingOffsets = {
    kChunkAreaBytes + 1024, kChunkAreaBytes - kLeastPageBytes + 1024};
static_assert(kTravellingOffsets[0] >= kChunkAreaBytes + sizeof(RingControl) &&
              kTravellingOffsets[0] + CH3_OFFLOAD_LANE_TRAVELLING_BYTES <= kChunkAreaBytes + kLeastPageBytes);
static_assert(kTravellingOffsets[1] >= kChunks * kChunkStrideBytes &&
              kTravellingOffsets[1] + CH3_OFFLOAD_LANE_TRAVELLING_BYTES <= kChunkAreaBytes);

/// Whose message it is: of the file's maker or of the other process.
enum class TravellingKind : std::uint32_t { kOfMaker = 8, kOfOther = 9 };

/// The header of such a record.
struct TravellingHeader {
  static constexpr std::uint64_t pack(std::uint64_t position, TravellingKind kind, std::uint16_t number,
                                      std::size_t length_bytes) noexcept {
    return position / kLineBytes << 32 | std::uint64_t{tag(kind, number)} << 12 | length_bytes;
  }
  static constexpr std::size_t length(std::uint64_t header) noexcept { return header & 0xFFF; }
  /// Kind and number.
  static constexpr std::uint32_t tag(std::uint64_t header) noexcept {
    return static_cast<std::uint32_t>(header) >> 12;
  }
  static constexpr std::uint32_t tag(TravellingKind kind, std::uint16_t number) noexcept {
    return static_cast<std::uint32_t>(kind) << 16 | number;
  }
};

/// Null: there is none in that place.
using TravellingPlaces = std::array<std::byte*, kTravellingRecords>;

inline TravellingPlaces travelling_places_in(const Mapping& ring_file) noexcept {
  return {ring_file.address() + kTravellingOffsets[0], ring_file.address() + kTravellingOffsets[1]};
}

/// A record is this process's from now on, and the one that it writes to next.
inline void give_travelling(ch3_offload_lane_t& lane, std::byte* record) noexcept {
  lane.travelling_too = lane.travelling;
  lane.travelling = reinterpret_cast<unsigned char*>(record);
}

/// The records as the receiver of their messages sees them. Belongs to one thread.
class TravellingRecords {
 public:
  /// There are none.
  TravellingRecords() = default;
  /// `records`: mapped as long as this object has them. `theirs`: of the peer's messages.
  TravellingRecords(const TravellingPlaces& records, TravellingKind theirs) noexcept
      : records_(records), next_(TravellingHeader::tag(theirs, 0)) {}

  /// The message that is next at this position of the ring. Empty: there is none. `order`: acquire, or as
  /// "The sleep rule" has it after an announcement.
  std::span<const std::byte> message(std::uint64_t position, std::memory_order order) const noexcept {
    std::byte* record = records_[0];
    std::uint64_t header = header_of(record).load(order);
    if (TravellingHeader::tag(header) != next_) {
      record = records_[1];
      header = header_of(record).load(order);
      if (TravellingHeader::tag(header) != next_) return {};
    }
    const std::size_t length = TravellingHeader::length(header);
    if (!RecordHeader::is_at(header, position) || length > kLongestTravelling) return {};
    return {record + kRecordHeaderBytes, length};
  }
  /// The message was read. Returns its record, which is this process's now.
  /// REQUIRES: message() returned it, and take() was not called since.
  std::byte* take(std::span<const std::byte> message) noexcept {
    std::byte* const record = const_cast<std::byte*>(message.data()) - kRecordHeaderBytes;
    header_of(record).store(0, std::memory_order_relaxed);
    next_ = (next_ & ~0xFFFFu) | static_cast<std::uint16_t>(next_ + 1);
    return record;
  }

 private:
  static std::atomic_ref<std::uint64_t> header_of(std::byte* record) noexcept {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(record));
  }

  alignas(8) inline static std::byte none_[8] = {};  ///< In the place of a record: a header of no message.
  TravellingPlaces records_ = {none_, none_};
  std::uint32_t next_ = TravellingHeader::tag(TravellingKind::kOfMaker, 0);
};

}  // namespace ch3_offload
