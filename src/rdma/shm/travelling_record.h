// The record that travels between two processes: a short message is written where the last one of the peer
// was read. travelling_chunks.h says why, and what a longer message does.
//
// Two processes that have rings to each other have one such record, in the first page of the file that has
// their chunks. At first it is of that file's maker. Who has it may write one message there instead of in the
// ring, and it is the peer's then. So a message and its answer cross in the same lines. The first word is a
// header as that of a record of the ring (ring.h), but for the kind, which alternates: so the receiver knows
// a new message from the one before, and from its own.
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

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/ch3_offload_lane.h"
#include "rdma/shm/ring.h"

namespace ch3_offload {

/// From the beginning of the control words.
inline constexpr std::size_t kTravellingRecordOffset = 1024;
inline constexpr std::size_t kLongestTravelling =
    CH3_OFFLOAD_LANE_TRAVELLING_BYTES - CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES;
static_assert(kTravellingRecordOffset >= sizeof(RingControl) &&
              kTravellingRecordOffset + CH3_OFFLOAD_LANE_TRAVELLING_BYTES <= kLeastPageBytes);

/// The first kind of each side: the lowest bit alternates.
enum class TravellingKind : std::uint32_t { kOfMaker = 8, kOfOther = 10 };

/// The record as its next receiver sees it. Belongs to one thread.
class TravellingRecord {
 public:
  /// There is none.
  TravellingRecord() = default;
  /// `record`: mapped as long as this object has it. `theirs`: of the peer's messages.
  TravellingRecord(std::byte* record, TravellingKind theirs) noexcept
      : record_(record), expected_(static_cast<std::uint32_t>(theirs)) {}

  /// Whether message() would find one, but for its position and length: the short way to no.
  bool may_have_come(std::memory_order order = std::memory_order_acquire) const noexcept {
    return RecordHeader::kind(load(order)) == expected_;
  }
  /// The message that is next at this position of the ring. Empty: there is none. `order`: acquire, or as
  /// "The sleep rule" has it after an announcement.
  std::span<const std::byte> message(std::uint64_t position, std::memory_order order) const noexcept {
    const std::uint64_t header = load(order);
    if (RecordHeader::kind(header) != expected_ || !RecordHeader::is_at(header, position) ||
        RecordHeader::length(header) > kLongestTravelling)
      return {};
    return {record_ + kRecordHeaderBytes, RecordHeader::length(header)};
  }
  /// The message was read. Returns the record, which is this process's now. REQUIRES: message() found one.
  std::byte* take() noexcept {
    assert(record_ != none_);
    expected_ ^= 1;
    return record_;
  }

 private:
  std::uint64_t load(std::memory_order order) const noexcept {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(record_)).load(order);
  }

  alignas(8) inline static std::byte none_[8] = {};  ///< In the place of a record: a header of no kind.
  std::byte* record_ = none_;
  std::uint32_t expected_ = static_cast<std::uint32_t>(TravellingKind::kOfMaker);
};

}  // namespace ch3_offload
