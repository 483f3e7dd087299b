// A ring of records from one producer to one consumer, in memory that two processes share.
//
// Layout: The control words come first, in pages of their own. Then come `ring_bytes` of records, mapped
// twice in a row (shared_memory.h), so that a record is contiguous even if it runs over the end. A record
// begins at a multiple of 64 bytes and consists of an 8-byte header and the payload. A position counts bytes
// since the ring was made. It has 64 bits and never wraps. Its place in the ring is its value modulo
// ring_bytes.
//
// Publication: A header that is not zero publishes its record. Before the producer publishes a record, it
// zeroes the header after it. The consumer reads only the header of the next record, so it never sees a stale
// one. A small message touches one or two cache lines. There is no shared tail index.
//
// Space: The consumer returns space by storing consumer_position. The producer reads that word only if its
// own copy says that there is no room. RingConsumer::release() says when the producer is woken.
//
// The window: The ring's file is sparse: a page takes memory from its first use on. So the producer uses only
// the window, the first bytes of the ring. At the end of the window it publishes a skip, a record without
// payload, and continues at the beginning of the ring. The skip takes all positions in between, so positions
// and space are counted in the same way with and without it, and the consumer need not know the window. If
// records that the consumer has not taken are in the way, the window should grow.
// RingProducer::window_wanted() says so, and the owner of the producer decides: grow(). A window never
// shrinks. A window of the whole ring has no skips: there, records run over the end. Besides, the producer
// lets at most most_ahead_bytes be on their way at once, because a more urgent message waits for all of them.
//
// Trust: The other process may be hostile. Every word that it can write is loaded once and checked. It can
// garble its own stream, but not other memory of this process.
//
// Threads: Each end belongs to one thread. No function blocks, allocates or makes a system call.

#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/ch3_offload_lane.h"
#include "rdma/shm/shared_write.h"

namespace ch3_offload {

/// A multiple of every page size in use, the largest of which is 64 KiB (arm64, ppc64le). One page is
/// touched.
inline constexpr std::size_t kRingControlBytes = std::size_t{64} << 10;
inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kRecordHeaderBytes = 8;
inline constexpr std::size_t kLeastRingBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMostRingBytes = std::size_t{16} << 20;
inline constexpr std::size_t kLeastPageBytes = 4096;
/// The window of a new ring.
inline constexpr std::size_t kFirstWindowBytes = std::size_t{16} << 10;
/// RingConsumer::release() looks at producer_waiting when the position crosses a multiple of this.
inline constexpr std::size_t kWakeBytes = std::size_t{2} << 10;

constexpr bool is_ring_size(std::uint64_t bytes) noexcept {
  return bytes >= kLeastRingBytes && bytes <= kMostRingBytes && std::has_single_bit(bytes);
}

/// Longest payload of a record.
constexpr std::size_t longest_payload(std::size_t ring_bytes) noexcept {
  return ring_bytes / 4 - kRecordHeaderBytes;
}

/// The bytes of the ring that a record with this payload takes.
constexpr std::size_t record_bytes(std::size_t payload_bytes) noexcept {
  return (kRecordHeaderBytes + payload_bytes + kLineBytes - 1) & ~(kLineBytes - 1);
}

/// The least window in which records with this payload flow. RingConsumer::release() says why.
constexpr std::size_t least_window_bytes(std::size_t payload_bytes) noexcept {
  return 2 * (record_bytes(payload_bytes) + kLineBytes) + kWakeBytes;
}
/// The longest payload that flows in a window of this size, which is at least kFirstWindowBytes.
constexpr std::size_t longest_payload_in_window(std::size_t window_bytes) noexcept {
  return (((window_bytes - kWakeBytes) / 2 - kLineBytes) & ~(kLineBytes - 1)) - kRecordHeaderBytes;
}
static_assert(least_window_bytes(longest_payload_in_window(kFirstWindowBytes)) <= kFirstWindowBytes);
static_assert(least_window_bytes(longest_payload(kLeastRingBytes)) <= kLeastRingBytes);

/// Orders all accesses before it, and what system calls did, before all accesses after it.
inline void full_barrier() noexcept {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"  // ThreadSanitizer ignores fences. No data race depends on this one.
#endif
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

enum class RecordKind : std::uint32_t {
  kMessage = 1,
  kWrite = 2,        ///< Payload: WriteRecord.
  kSkip = 3,         ///< No payload. The next record is at the beginning of the ring.
  kSharedWrite = 4,  ///< Payload: SharedWriteRecord.
  kChunk = 5,        ///< Payload: ChunkRecord (travelling_chunks.h).
};

/// Payload of a kWrite record: `length_bytes` of a write are in place.
struct WriteRecord {
  std::uint32_t immediate = 0;
  std::uint32_t reserved = 0;  ///< 0.
  std::uint64_t length_bytes = 0;
};
inline constexpr std::size_t kChunkRecordBytes = 8;
static_assert(sizeof(WriteRecord) == 16 && offsetof(WriteRecord, length_bytes) == 8);

/// The first words of the file. Both processes map them writable.
struct RingControl {
  alignas(kLineBytes) std::atomic<std::uint64_t> consumer_position;  ///< Written by the consumer.
  /// Not zero: the producer waits for room, or for the end of a shared write. Set by the producer, cleared by
  /// the consumer.
  alignas(kLineBytes) std::atomic<std::uint32_t> producer_waiting;
  /// Not zero: the producer is copying into the consumer's memory. Written by the producer.
  alignas(kLineBytes) std::atomic<std::uint32_t> producer_copying;
  /// SharedWriteWord.
  alignas(kLineBytes) std::atomic<std::uint32_t> shared_write;
};
static_assert(sizeof(RingControl) <= kRingControlBytes);
static_assert(kLeastRingBytes % kRingControlBytes == 0, "a ring is whole pages too");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

/// A record header: bits 0-27 hold the payload length, bits 28-31 the kind, bits 32-63 the lower 32 bits of
/// the record's position / 64. Never zero.
struct RecordHeader {
  static constexpr std::uint32_t kLengthMask = (1u << 28) - 1;

  static constexpr std::uint64_t pack(std::uint64_t position, RecordKind kind, std::size_t length) noexcept {
    return (position / kLineBytes) << 32 | static_cast<std::uint64_t>(kind) << 28 | length;
  }
  static constexpr std::uint32_t length(std::uint64_t header) noexcept {
    return static_cast<std::uint32_t>(header) & kLengthMask;
  }
  static constexpr std::uint32_t kind(std::uint64_t header) noexcept {
    return static_cast<std::uint32_t>(header) >> 28;
  }
  static constexpr bool is_at(std::uint64_t header, std::uint64_t position) noexcept {
    return header >> 32 == ((position / kLineBytes) & 0xFFFF'FFFFu);
  }
};
static_assert(kMostRingBytes / 4 <= RecordHeader::kLengthMask);
static_assert(kLineBytes == CH3_OFFLOAD_LANE_LINE_BYTES &&
              kRecordHeaderBytes == CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES &&
              static_cast<int>(RecordKind::kMessage) == CH3_OFFLOAD_LANE_RECORD_KIND);

/// What both ends have in common: the mapping.
class RingEnd {
 public:
  RingEnd() = default;
  /// `base`: the mapping made by map_mirrored(file, kRingControlBytes, ring_bytes).
  RingEnd(std::byte* base, std::size_t ring_bytes) noexcept
      : longest_payload_(longest_payload(ring_bytes)),
        records_(base + kRingControlBytes),
        ring_bytes_(ring_bytes) {}

  bool attached() const noexcept { return records_ != nullptr; }
  std::size_t ring_bytes() const noexcept { return ring_bytes_; }

 protected:
  RingControl& control() const noexcept {
    return *reinterpret_cast<RingControl*>(records_ - kRingControlBytes);
  }
  std::byte* at(std::uint64_t position) const noexcept { return records_ + (position & (ring_bytes_ - 1)); }
  std::atomic_ref<std::uint64_t> header_at(std::uint64_t position) const noexcept {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at(position)));
  }

  std::size_t longest_payload_ = 0;  ///< longest_payload(ring_bytes()), for each record is checked with it.

 private:
  std::byte* records_ = nullptr;  ///< nullptr: no ring.
  std::size_t ring_bytes_ = 0;
};

/// Its state is a lane, in which ch3_offload_lane_publish() publishes records, too.
class RingProducer : public RingEnd {
 public:
  RingProducer() = default;
  /// `window_bytes`: as many bytes from the beginning of the ring are used at first. `most_ahead_bytes`: as
  /// many are on their way, in a window that is longer; at least least_window_bytes() of the longest record.
  RingProducer(std::byte* base, std::size_t ring_bytes, std::size_t window_bytes,
               std::size_t most_ahead_bytes = SIZE_MAX) noexcept
      : RingEnd(base, ring_bytes),
        window_bytes_(std::min(window_bytes, ring_bytes)),
        most_ahead_bytes_(std::min(most_ahead_bytes, ring_bytes)) {
    lane_.records = reinterpret_cast<unsigned char*>(at(0));
    lane_.position_mask = ring_bytes - 1;
    note_consumer(0);
  }

  /// Takes the page faults of the first records now. To be called before the first record is published. Other
  /// pages come as the records get there: a page that is new in a shared file takes microseconds, and all of
  /// a ring at once would delay the first message by hundreds.
  void touch() const noexcept {
    control().producer_waiting.store(0, std::memory_order_relaxed);
    header_at(0).store(0, std::memory_order_relaxed);
  }

  ch3_offload_lane_t& lane() noexcept { return lane_; }
  /// No further record: the lane is closed, and has_room() is false. Neither touches the ring any more, nor
  /// the peer's doorbell.
  void shut() noexcept {
    shut_ = true;
    lane_.end_limit = 0;
    lane_.records = nullptr;
    lane_.travelling = lane_.travelling_too = nullptr;
    lane_.doorbell = nullptr;
    lane_.activity = nullptr;
  }

  /// Returns whether a payload of this length fits, by what is known of the consumer.
  bool has_room_known(std::size_t payload_bytes) const noexcept {
    return lane_.position + record_bytes(payload_bytes) <= lane_.end_limit;
  }
  /// Returns whether a payload of this length fits now, and goes to the place where it does. Sets broken() if
  /// consumer_position is impossible.
  bool has_room(std::size_t payload_bytes) noexcept {
    return has_room_known(payload_bytes) ||
           (!shut_ && reload_consumer(std::memory_order_acquire) && go_to_room(payload_bytes));
  }

  /// The place for the payload of the next record. REQUIRES: has_room(its length).
  std::byte* payload() const noexcept { return at(lane_.position) + kRecordHeaderBytes; }

  /// Publishes the record. REQUIRES: has_room(payload_bytes) and the payload is written.
  void publish(RecordKind kind, std::size_t payload_bytes) noexcept {
    publish_up_to(lane_.position + record_bytes(payload_bytes), kind, payload_bytes);
  }
  /// The same, for a producer whose consumer fences for both before it sleeps (nic/fencing.h).
  void publish_without_fence(RecordKind kind, std::size_t payload_bytes) noexcept {
    publish_up_to(lane_.position + record_bytes(payload_bytes), kind, payload_bytes,
                  std::memory_order_release);
  }

  /// Asks for one wake-up when space is returned. After a wake-up with too little space, call it again.
  /// After each call, call has_room_for_sure() and do not sleep if it returns true.
  /// REQUIRES: the window is at least least_window_bytes() of the record that waits.
  void announce_waiting() noexcept {
    // Pairs with RingConsumer::release(): "The sleep rule".
    control().producer_waiting.store(1, std::memory_order_seq_cst);
  }
  /// Publishes nothing: has_room() must follow.
  bool has_room_for_sure(std::size_t payload_bytes) noexcept {
    return reload_consumer(std::memory_order_seq_cst) && find_room(payload_bytes) != Room::kNone;
  }

  std::size_t window_bytes() const noexcept { return window_bytes_; }
  /// Whether a payload of this length does not fit before the end of the window, so that a skip is needed.
  bool is_at_end(std::size_t payload_bytes) const noexcept {
    return lane_.position + record_bytes(payload_bytes) > window_end();
  }
  /// The size to which the window of a ring that streams should grow: see LapTimer.
  std::size_t whole_ring() const noexcept { return shut_ || broken_ ? window_bytes_ : ring_bytes(); }
  /// When has_room() returned false: the size to which the window should grow, window_bytes() if it should
  /// not. At the end of the window, growing gives room at once. Before it, the producer has caught up with
  /// the consumer, and growing gives room in the next lap: so it grows once in a lap.
  std::size_t window_wanted(std::size_t payload_bytes) const noexcept {
    if (window_bytes_ >= most_ahead_bytes_) return window_bytes_;
    if (!is_at_end(payload_bytes) && grown_in_lap_ == begin_of_lap()) return window_bytes_;
    return std::min(std::max(2 * window_bytes_, least_window_bytes(payload_bytes)), whole_ring());
  }
  /// REQUIRES: window_bytes() <= window_bytes <= ring_bytes().
  void grow(std::size_t window_bytes) noexcept {
    window_bytes_ = window_bytes;
    grown_in_lap_ = begin_of_lap();
    note_consumer(known_consumer_);
  }

  /// Call begin_copy(), check whether the consumer has hung up, copy into the consumer's memory, call
  /// end_copy().
  void begin_copy() noexcept {
    // Pairs with the barrier in RingConsumer::producer_copies(): either the producer sees that the consumer
    // has hung up and copies nothing, or the consumer sees this word and waits.
    control().producer_copying.store(1, std::memory_order_relaxed);
    full_barrier();
  }
  /// Release: the copy is complete when the consumer reads the 0.
  void end_copy() noexcept { control().producer_copying.store(0, std::memory_order_release); }

  SharedWriteWord shared_write() const noexcept { return SharedWriteWord(control().shared_write); }
  /// Whether the consumer has consumed everything before `position`.
  bool is_consumed(std::uint64_t position) noexcept {
    return known_consumer_ >= position ||
           (reload_consumer(std::memory_order_acquire) && known_consumer_ >= position);
  }
  std::uint64_t position() const noexcept { return lane_.position; }

  /// The consumer violates the protocol: consumer_position went back or beyond the last record.
  bool broken() const noexcept { return broken_; }

 private:
  enum class Room : std::uint8_t { kNone, kNext, kAfterSkip };

  /// Where a record of this length has room, as far as known_consumer_ says.
  Room find_room(std::size_t payload_bytes) const noexcept {
    const std::uint64_t length = record_bytes(payload_bytes);
    if (lane_.position + length <= lane_.end_limit) return Room::kNext;
    const std::uint64_t begin = begin_of_lap(), next_begin = begin + ring_bytes();
    if (shut_ || window_bytes_ == ring_bytes() || lane_.position + length <= window_end() ||
        lane_.position == begin)
      return Room::kNone;
    return next_begin + length <= record_limit() && length + kLineBytes <= window_bytes_ &&
                   lane_.position + length <= ahead_limit()
               ? Room::kAfterSkip
               : Room::kNone;
  }
  bool go_to_room(std::size_t payload_bytes) noexcept {
    const Room room = find_room(payload_bytes);
    if (room == Room::kAfterSkip) {
      publish_up_to(begin_of_lap() + ring_bytes(), RecordKind::kSkip, 0);
      note_consumer(known_consumer_);
    }
    return room != Room::kNone;
  }

  void publish_up_to(std::uint64_t next, RecordKind kind, std::size_t payload_bytes,
                     std::memory_order order = std::memory_order_seq_cst) noexcept {
    const std::uint64_t position = lane_.position;
    // Relaxed: the header's store below is at least a release, so it orders this store before itself.
    header_at(next).store(0, std::memory_order_relaxed);
    // Pairs with RingConsumer::header(), which then sees the payload and the zeroed header. Sequentially
    // consistent, because the caller looks at the consumer's doorbell next: "The sleep rule". Release, if the
    // sleeper fences for both.
    header_at(position).store(RecordHeader::pack(position, kind, payload_bytes), order);
    lane_.position = next;
  }

  /// Reads consumer_position. Returns false and sets broken() if it is impossible. `order` is at least
  /// acquire: it pairs with the store in release(), so that the consumer has read a payload before it is
  /// overwritten.
  bool reload_consumer(std::memory_order order) noexcept {
    const std::uint64_t position = control().consumer_position.load(order);
    if (position < known_consumer_ || position > lane_.position) [[unlikely]] {
      broken_ = true;
      return false;
    }
    note_consumer(position);
    return true;
  }
  void note_consumer(std::uint64_t position) noexcept {
    known_consumer_ = position;
    if (!shut_) lane_.end_limit = std::min({record_limit(), window_end(), ahead_limit()});
  }

  std::uint64_t begin_of_lap() const noexcept { return lane_.position & ~std::uint64_t{ring_bytes() - 1}; }
  /// A record may end there at most. One line less than there is, because publish() zeroes the header after
  /// the record.
  std::uint64_t record_limit() const noexcept { return known_consumer_ + ring_bytes() - kLineBytes; }
  /// A record may end there at most, so that not too much is on its way. What was skipped does not count.
  std::uint64_t ahead_limit() const noexcept {
    const std::uint64_t skipped = known_consumer_ < begin_of_lap() ? ring_bytes() - window_bytes_ : 0;
    return known_consumer_ + most_ahead_bytes_ + skipped;
  }
  std::uint64_t window_end() const noexcept {
    return window_bytes_ == ring_bytes() ? UINT64_MAX : begin_of_lap() + window_bytes_ - kLineBytes;
  }

  ch3_offload_lane_t lane_{};
  std::size_t window_bytes_ = 0;
  std::size_t most_ahead_bytes_ = 0;
  std::uint64_t grown_in_lap_ = UINT64_MAX;  ///< begin_of_lap() when the window grew. UINT64_MAX: never.
  std::uint64_t known_consumer_ = 0;         ///< Latest consumer_position read; at most lane_.position.
  bool broken_ = false;
  bool shut_ = false;
};

class RingConsumer : public RingEnd {
 public:
  RingConsumer() = default;
  using RingEnd::RingEnd;

  /// A checked record. Its payload lies inside the ring's mapping.
  struct Record {
    RecordKind kind;
    std::span<const std::byte> payload;
  };

  /// Returns the header of the next record. 0: it is not published yet, or there is no ring.
  /// Acquire: pairs with RingProducer::publish(). Sequentially consistent after an announcement of "The sleep
  /// rule".
  std::uint64_t header(std::memory_order order = std::memory_order_acquire) const noexcept {
    return attached() ? attached_header(order) : 0;
  }
  /// The same. REQUIRES: attached().
  std::uint64_t attached_header(std::memory_order order) const noexcept {
    return header_at(position_).load(order);
  }

  /// Takes the page faults of the first records now. To be called before the first record is consumed.
  void touch() const noexcept {
    control().consumer_position.store(0, std::memory_order_relaxed);
    static_cast<void>(header_at(0).load(std::memory_order_relaxed));
  }

  /// Whether a header that header() returned is a skip, and is allowed here. At the beginning of the ring
  /// none is: so a skip is not followed by a skip.
  bool is_skip(std::uint64_t header) const noexcept {
    return RecordHeader::kind(header) == static_cast<std::uint32_t>(RecordKind::kSkip) &&
           RecordHeader::length(header) == 0 && RecordHeader::is_at(header, position_) &&
           (position_ & (ring_bytes() - 1)) != 0;
  }
  /// Steps over a skip.
  void skip() noexcept { position_ = (position_ | (ring_bytes() - 1)) + 1; }

  /// Checks a header that header() returned, and that is no skip. Returns false if the producer violates the
  /// protocol.
  bool parse(std::uint64_t header, Record& record) const noexcept {
    const std::size_t length = RecordHeader::length(header);
    const std::uint32_t kind = RecordHeader::kind(header);
    const bool is_message = kind == static_cast<std::uint32_t>(RecordKind::kMessage);
    const bool is_write = kind == static_cast<std::uint32_t>(RecordKind::kWrite);
    const bool is_offer = kind == static_cast<std::uint32_t>(RecordKind::kSharedWrite);
    const bool is_chunk = kind == static_cast<std::uint32_t>(RecordKind::kChunk);
    if (!RecordHeader::is_at(header, position_) || length == 0 || length > longest_payload_ ||
        !(is_message || (is_write && length == sizeof(WriteRecord)) ||
          (is_offer && length == sizeof(SharedWriteRecord)) ||
          (is_chunk && length == kChunkRecordBytes))) [[unlikely]]
      return false;
    record = {static_cast<RecordKind>(kind), {at(position_) + kRecordHeaderBytes, length}};
    return true;
  }

  /// Begins to fetch the header behind a record that parse() accepted. The producer's core has just written
  /// it, so a load would wait; this way it arrives while the record is handled.
  void fetch_next(const Record& record) const noexcept {
    __builtin_prefetch(at(position_ + record_bytes(record.payload.size())));
  }

  /// Steps over a record that parse() accepted. Its payload must not be accessed any more.
  void advance(const Record& record) noexcept { position_ += record_bytes(record.payload.size()); }

  std::uint64_t unreleased_bytes() const noexcept { return position_ - released_; }
  /// RingProducer::position() when all was consumed.
  std::uint64_t position() const noexcept { return position_; }

  SharedWriteWord shared_write() const noexcept { return SharedWriteWord(control().shared_write); }

  /// Returns whether the producer may be copying into this process's memory.
  /// REQUIRES: the consumer has hung up, so that no further copy begins.
  bool producer_copies() const noexcept {
    full_barrier();  // Pairs with the barrier in begin_copy().
    return control().producer_copying.load(std::memory_order_acquire) != 0;
  }

  /// Returns the space of all records before the current position to the producer. Returns true if the
  /// producer waits and must be woken.
  ///
  /// When the producer is woken: release() reads producer_waiting, and makes its store sequentially
  /// consistent, only if the position crossed a multiple of kWakeBytes. That suffices if, whenever the
  /// producer finds no room, kWakeBytes or more lie between the consumer_position that it read and its own
  /// position. While the consumer consumes them, it crosses a multiple, after the announcement in the order
  /// of "The sleep rule". For a record of r bytes, of at most a quarter of the ring, there are three reasons
  /// to find no room:
  ///
  ///   the ring is full           more than ring_bytes - r - 64 lie between, skipped bytes included
  ///   too much is on its way     more than most_ahead_bytes - r lie between
  ///   at the end of the window,  the producer is less than r + 64 before the end, and the consumer less than
  ///   and the consumer is at     r + 64 behind the beginning. So window_bytes - 2 (r + 64) lie between: at
  ///   the beginning              least kWakeBytes, as window_bytes >= least_window_bytes()
  ///
  /// The first crossing may come soon after the announcement. Then the wake-up uses up the announcement, but
  /// the returned space may be too little. The thread that reads the wake-up must announce and look again.
  /// The argument then holds again, from the consumer_position that this look read.
  bool release() noexcept {
    const bool crossed = (position_ ^ released_) >= kWakeBytes;
    if (crossed) [[unlikely]]
      return release_and_look();
    released_ = position_;
    control().consumer_position.store(position_, std::memory_order_release);
    return false;
  }
  /// The same, and always looks whether the producer waits: a shared write may be what it waits for.
  bool release_and_look() noexcept {
    released_ = position_;
    control().consumer_position.store(position_, std::memory_order_seq_cst);
    return control().producer_waiting.load(std::memory_order_seq_cst) != 0 &&
           control().producer_waiting.exchange(0, std::memory_order_seq_cst) != 0;
  }

 private:
  std::uint64_t position_ = 0;  ///< Position of the next record.
  std::uint64_t released_ = 0;  ///< The last consumer_position stored; at most position_.
};

}  // namespace ch3_offload
