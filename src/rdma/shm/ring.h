// A ring of records from one producer to one consumer, in memory that two processes share.
//
// Layout: the control words, in pages of their own, then `ring_bytes` of records, mapped twice in a row
// (shared_memory.h), so that a record is contiguous even where it runs over the end. A record begins at a
// multiple of 64 bytes: an 8-byte header, then the payload. Positions count bytes since the ring was made
// and never wrap (64 bits); the place of a position is its value modulo ring_bytes.
//
// Publication is in band: a header that is not zero says that its record is whole. The producer
// zeroes the header behind a record before it publishes that record, so the consumer, which looks only
// at the header where it stands, never sees a stale one. A small message touches one or two cache
// lines, and there is no shared tail index.
//
// Space is returned by one word, consumer_position, that the producer reads only when its own copy
// says that there is no room. The rule "wake the producer" is at RingConsumer::release().
//
// The other process is not trusted: whatever is read here is loaded once and checked. It can garble its
// own stream, never our memory.
//
// Each end belongs to one thread. No call blocks, allocates or makes a system call.

#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ch3_offload {

/// Whole pages of any kernel, up to the greatest size in use (64 KiB: arm64, ppc64le); only one is touched.
inline constexpr std::size_t kRingControlBytes = std::size_t{64} << 10;
inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kRecordHeaderBytes = 8;
inline constexpr std::size_t kLeastRingBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMostRingBytes = std::size_t{16} << 20;

constexpr bool is_ring_size(std::uint64_t bytes) noexcept {
  return bytes >= kLeastRingBytes && bytes <= kMostRingBytes && std::has_single_bit(bytes);
}

/// Longest payload of a record: a quarter of the ring, so that the rule at RingConsumer::release()
/// holds.
constexpr std::size_t longest_payload(std::size_t ring_bytes) noexcept {
  return ring_bytes / 4 - kRecordHeaderBytes;
}

/// Ring bytes that a payload takes.
constexpr std::size_t record_bytes(std::size_t payload_bytes) noexcept {
  return (kRecordHeaderBytes + payload_bytes + kLineBytes - 1) & ~(kLineBytes - 1);
}

enum class RecordKind : std::uint32_t {
  kMessage = 1,
  kWrite = 2,  ///< Payload: WriteRecord.
};

/// Payload of a kWrite record: so much of a transfer is in place.
struct WriteRecord {
  std::uint32_t immediate = 0;
  std::uint32_t reserved = 0;  ///< 0.
  std::uint64_t length_bytes = 0;
};
static_assert(sizeof(WriteRecord) == 16 && offsetof(WriteRecord, length_bytes) == 8);

/// The first words of the file. Both sides map it writable; each field has one writer.
struct RingControl {
  alignas(kLineBytes) std::atomic<std::uint64_t> consumer_position;  ///< Written by the consumer.
  /// Not zero: the producer sleeps until there is room. Set by the producer, cleared by the consumer.
  alignas(kLineBytes) std::atomic<std::uint32_t> producer_waiting;
};
static_assert(sizeof(RingControl) <= kRingControlBytes);
static_assert(kLeastRingBytes % kRingControlBytes == 0, "a ring is whole pages too");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

/// A record header: bits 0-27 payload length, 28-31 kind, 32-63 the record's position / 64. Never zero.
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

/// What both ends know of a mapped ring.
class RingEnd {
 public:
  RingEnd() = default;
  /// `base`: the mapping made by map_mirrored(file, kRingControlBytes, ring_bytes).
  RingEnd(std::byte* base, std::size_t ring_bytes) noexcept
      : records_(base + kRingControlBytes), ring_bytes_(ring_bytes) {}

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

 private:
  std::byte* records_ = nullptr;  ///< nullptr: no ring.
  std::size_t ring_bytes_ = 0;
};

class RingProducer : public RingEnd {
 public:
  RingProducer() = default;
  using RingEnd::RingEnd;

  /// Whether a payload of this length fits now. Sets broken() if the consumer's word is absurd.
  bool has_room(std::size_t payload_bytes) noexcept {
    // One line more than the record: the header behind it, which publish() zeroes.
    const std::uint64_t end = head_ + record_bytes(payload_bytes) + kLineBytes;
    if (end - known_consumer_ <= ring_bytes()) [[likely]]
      return true;
    return reload_consumer(std::memory_order_acquire) && end - known_consumer_ <= ring_bytes();
  }

  /// Where the payload of the next record goes. REQUIRES: has_room(its length).
  std::byte* payload() const noexcept { return at(head_) + kRecordHeaderBytes; }

  /// Publishes the record. REQUIRES: has_room(payload_bytes) and the payload is written.
  void publish(RecordKind kind, std::size_t payload_bytes) noexcept {
    const std::uint64_t next = head_ + record_bytes(payload_bytes);
    // Relaxed: ordered before the header's store below, which is at least a release.
    header_at(next).store(0, std::memory_order_relaxed);
    // Pairs with RingConsumer::header() (payload and zeroed header are visible with it). Sequentially
    // consistent because the caller then looks at the consumer's doorbell: see "The sleep rule".
    header_at(head_).store(RecordHeader::pack(head_, kind, payload_bytes), std::memory_order_seq_cst);
    head_ = next;
  }

  /// Asks to be woken when space comes back, once: it must be called again after each wake-up that brought
  /// too little. Afterwards has_room_for_sure() must be called, and nobody sleeps if it says true.
  void announce_waiting() noexcept {
    // Pairs with RingConsumer::release(): "The sleep rule".
    control().producer_waiting.store(1, std::memory_order_seq_cst);
  }
  bool has_room_for_sure(std::size_t payload_bytes) noexcept {
    const std::uint64_t end = head_ + record_bytes(payload_bytes) + kLineBytes;
    return reload_consumer(std::memory_order_seq_cst) && end - known_consumer_ <= ring_bytes();
  }

  /// The consumer returned space that it was never given: it does not follow the protocol.
  bool broken() const noexcept { return broken_; }

 private:
  /// False: the consumer's word is absurd. Acquire: pairs with the store in release(), so that the
  /// consumer's reads of a payload are over before it is overwritten.
  bool reload_consumer(std::memory_order order) noexcept {
    const std::uint64_t position = control().consumer_position.load(order);
    if (position < known_consumer_ || position > head_) [[unlikely]] {
      broken_ = true;
      return false;
    }
    known_consumer_ = position;
    return true;
  }

  std::uint64_t head_ = 0;            ///< Position of the next record.
  std::uint64_t known_consumer_ = 0;  ///< Latest consumer_position read; at most head_.
  bool broken_ = false;
};

class RingConsumer : public RingEnd {
 public:
  RingConsumer() = default;
  using RingEnd::RingEnd;

  /// A record that was checked: its payload lies inside the ring's mapping.
  struct Record {
    RecordKind kind;
    std::span<const std::byte> payload;
  };

  /// The header of the next record; zero: there is none yet.
  /// Acquire: pairs with RingProducer::publish().
  std::uint64_t header(std::memory_order order = std::memory_order_acquire) const noexcept {
    return header_at(position_).load(order);
  }

  /// Checks a header that header() returned. False: the producer does not follow the protocol.
  bool parse(std::uint64_t header, Record& record) const noexcept {
    const std::size_t length = RecordHeader::length(header);
    const std::uint32_t kind = RecordHeader::kind(header);
    const bool is_message = kind == static_cast<std::uint32_t>(RecordKind::kMessage);
    const bool is_write = kind == static_cast<std::uint32_t>(RecordKind::kWrite);
    if (!RecordHeader::is_at(header, position_) || length == 0 || length > longest_payload(ring_bytes()) ||
        !(is_message || (is_write && length == sizeof(WriteRecord)))) [[unlikely]]
      return false;
    record = {static_cast<RecordKind>(kind), {at(position_) + kRecordHeaderBytes, length}};
    return true;
  }

  /// Steps over a record that parse() accepted; its payload must not be touched any more.
  void advance(const Record& record) noexcept { position_ += record_bytes(record.payload.size()); }

  std::uint64_t unreleased_bytes() const noexcept { return position_ - released_; }

  /// Gives the space of all records passed by advance() back to the producer. True: the producer
  /// sleeps and must be woken.
  ///
  /// Wake the producer: whether it waits is looked at (and the store before it made sequentially
  /// consistent) only when a quarter of the ring was crossed. That is enough: a producer waits for at
  /// most a quarter and a line, so when it saw no room, more than half of the ring lay before the
  /// consumer_position that it saw; the consumer crosses a quarter on its way there, after the
  /// announcement in the order of "The sleep rule".
  ///
  /// That first crossing may be one line after the announcement: the wake-up answers the request, and what
  /// came back may be less than the producer wants. It must then announce and look again, whoever
  /// read the wake-up; the argument holds anew, from the consumer_position that this look saw.
  bool release() noexcept {
    const std::uint64_t quarter = ring_bytes() / 4;
    const bool crossed = (position_ ^ released_) >= quarter;
    released_ = position_;
    if (!crossed) [[likely]] {
      control().consumer_position.store(position_, std::memory_order_release);
      return false;
    }
    control().consumer_position.store(position_, std::memory_order_seq_cst);
    return control().producer_waiting.load(std::memory_order_seq_cst) != 0 &&
           control().producer_waiting.exchange(0, std::memory_order_seq_cst) != 0;
  }

 private:
  std::uint64_t position_ = 0;  ///< Of the next record.
  std::uint64_t released_ = 0;  ///< What the producer was told; at most position_.
};

}  // namespace ch3_offload
