// The frames that were given to a peer and that it may not have yet: a ring of bytes. A frame is written
// where it is kept, sent from there, and sent again from there, byte for byte.
//
//   oldest            next to be sent        end
//     │  sent, not acknowledged  │  not sent    │  free …
//
// Frames are numbered from kFirstFrame on, modulo 2^32. Threads: one. Allocation: the constructor.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "rdma/checked/checked_frames.h"

namespace ch3_offload {

class SentFrames {
 public:
  struct Frame {
    std::span<const std::byte> bytes;
    bool is_part = false;  ///< Provider::commit_part().
  };

  /// What a ring of frames of up to `longest_bytes` takes. Bytes.
  static constexpr std::size_t bytes_for(std::size_t longest_bytes) noexcept;

  /// Throws std::bad_alloc.
  explicit SentFrames(std::size_t longest_bytes);

  /// Grants memory for the next frame. Empty: there is no room. The next reserve() takes it back.
  /// REQUIRES: 1 <= length_bytes <= longest_bytes.
  std::span<std::byte> reserve(std::size_t length_bytes) noexcept;
  /// The first `length_bytes` of what was reserved last.
  std::span<std::byte> reserved(std::size_t length_bytes) const noexcept {
    return {place(reserved_at_) + sizeof(Record), length_bytes};
  }
  /// The first `length_bytes` of what was reserved are the frame with number next_number().
  void commit(std::size_t length_bytes, bool is_part) noexcept;
  std::uint32_t next_number() const noexcept { return end_.number; }

  /// The next frame to be sent, with number unsent_number(). Nothing: all were.
  std::optional<Frame> unsent() noexcept;
  std::uint32_t unsent_number() const noexcept { return unsent_.number; }
  /// It was. REQUIRES: unsent() has returned it.
  void sent() noexcept;
  bool is_all_sent() const noexcept { return unsent_.number == end_.number; }
  bool is_all_received() const noexcept { return oldest_.number == end_.number; }

  /// The peer awaits the frame with this number: frees those before it. Of an older number it has no effect.
  /// Returns false if frames before it were never sent.
  bool received(std::uint32_t number) noexcept;
  /// All that was sent and is kept will be sent again. Returns how many frames that are.
  std::uint32_t repeat() noexcept {
    const std::uint32_t count = unsent_.number - oldest_.number;
    unsent_ = oldest_;
    return count;
  }

 private:
  struct Record {
    std::uint32_t length_bytes;  ///< kSkip: the next record is at the beginning of the ring.
    std::uint32_t is_part;
  };
  struct Cursor {
    std::uint64_t at = 0;  ///< Only grows; the place in the ring is modulo its size.
    std::uint32_t number = kFirstFrame;
  };
  static constexpr std::uint32_t kSkip = UINT32_MAX;

  static constexpr std::size_t record_bytes(std::size_t length_bytes) noexcept {
    return sizeof(Record) + (length_bytes + sizeof(Record) - 1) / sizeof(Record) * sizeof(Record);
  }
  std::byte* place(std::uint64_t at) const noexcept { return memory_.get() + at % bytes_; }
  Record record(std::uint64_t at) const noexcept;
  void put(std::uint64_t at, Record record) noexcept;
  Record record_of(Cursor& cursor) const noexcept;
  void step(Cursor& cursor) const noexcept;

  const std::size_t bytes_;
  const std::unique_ptr<std::byte[]> memory_;
  Cursor oldest_, unsent_, end_;
  std::uint64_t reserved_at_ = 0;
  std::uint32_t most_sent_ = kFirstFrame;  ///< Frames with lower numbers were sent, once at least.
};

constexpr std::size_t SentFrames::bytes_for(std::size_t longest_bytes) noexcept {
  constexpr std::size_t kLeast = std::size_t{32} << 10;
  constexpr std::size_t kUsual = std::size_t{256} << 10;
  constexpr std::size_t kFrames = 8;
  const std::size_t usual = record_bytes(longest_bytes) * kFrames;
  const std::size_t bytes = usual < kLeast ? kLeast : usual < kUsual ? usual : kUsual;
  // A frame that does not fit the end of the ring begins anew, so that two of the longest need twice as much.
  const std::size_t needed = 2 * record_bytes(longest_bytes);
  return (bytes < needed ? needed : bytes) / sizeof(Record) * sizeof(Record);
}

}  // namespace ch3_offload
