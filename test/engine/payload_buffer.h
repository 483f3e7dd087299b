// Buffers for the tests of the engine: payloads whose every byte is known, contiguous or strided, with
// guards around and between that show any byte written where none belongs.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace ch3_offload {

/// The bytes of a run that starts at `position` of the endless pattern of `seed`. The first eight bytes
/// of a pattern are its seed, so that a message can be told by its head.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed, std::uint64_t position = 0) noexcept;
/// The index of the first byte that is not the pattern's, or bytes.size().
std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed,
                             std::uint64_t position = 0) noexcept;

/// Memory for a payload. As a layout, byte k lies at (k / block) * stride + k % block.
class PayloadBuffer {
 public:
  using Kind = PayloadLayout::Kind;

  static constexpr unsigned char kGuard = 0xA5;  ///< What a fresh buffer and its guards hold.
  static constexpr unsigned char kScribble = 0x5C;
  static constexpr std::size_t kGuardBytes = 32;

  /// block_bytes 0: contiguous. `memory` outlives the buffer.
  explicit PayloadBuffer(std::size_t length_bytes, std::size_t block_bytes = 0, std::size_t gap_bytes = 0,
                         std::pmr::memory_resource& memory = *std::pmr::get_default_resource(),
                         Kind kind = Kind::kPacked);
  PayloadBuffer(const PayloadBuffer&) = delete;
  PayloadBuffer& operator=(const PayloadBuffer&) = delete;

  Payload payload() noexcept;
  std::size_t length_bytes() const noexcept { return length_bytes_; }

  void fill(std::uint64_t seed) noexcept;
  /// Sets the whole payload. REQUIRES: as many bytes.
  void set(std::span<const std::byte> bytes) noexcept { copy_in(0, bytes.data(), bytes.size()); }
  /// Overwrites the payload, as a program does that owns its buffer again.
  void scribble() noexcept;
  /// Whether nothing was written since scribble().
  std::string check_scribbled() const;
  /// The pattern's seed that the payload begins with; 0 if it is shorter than a seed.
  std::uint64_t head() const noexcept;

  /// Whether the first `received_bytes` are the pattern of `seed` and nothing else was written. Empty:
  /// all is well; else what is wrong.
  std::string check(std::uint64_t seed, std::size_t received_bytes) const;
  /// Whether nothing at all was written.
  std::string check_untouched() const { return check(0, 0); }
  /// Whether nothing was written outside the payload's own bytes.
  std::string check_guards() const;

 private:
  static void pack(const void* context, std::size_t offset, std::byte* to, std::size_t length) noexcept;
  static void unpack(void* context, std::size_t offset, const std::byte* from, std::size_t length) noexcept;
  static const PayloadLayout kLayout;
  /// As pieces, an element is this many blocks, each in two pieces.
  static constexpr std::size_t kBlocks = 3;
  void make_pieces() noexcept;

  std::byte* first() const noexcept { return storage_.data() + kGuardBytes; }
  std::size_t extent_bytes() const noexcept;
  void note_range(std::size_t offset, std::size_t length) const noexcept;
  void copy_out(std::size_t offset, std::byte* to, std::size_t length) const noexcept;
  void copy_in(std::size_t offset, const std::byte* from, std::size_t length) noexcept;
  std::string check_range(std::size_t begin, std::size_t end) const;

  std::size_t length_bytes_;
  std::size_t block_bytes_;  ///< 0: contiguous.
  std::size_t stride_bytes_;
  mutable bool out_of_range_ = false;  ///< A layout call left [0, length_bytes_).
  mutable bool out_of_order_ = false;  ///< It began neither at 0 nor where the last one ended.
  mutable std::size_t next_offset_ = 0;
  mutable std::pmr::vector<std::byte> storage_;
  std::array<Piece, 2 * kBlocks> pieces_{};
  PayloadLayout layout_;
};

}  // namespace ch3_offload
