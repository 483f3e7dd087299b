#include "engine/payload_buffer.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace ch3_offload {

namespace {

std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept {
  return seed + index * 0x9E37'79B9'7F4A'7C15U;
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed, std::uint64_t position) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::uint64_t at = position + done;
    const std::uint64_t word = pattern_word(seed, at / 8);
    const std::size_t skip = at % 8;
    const std::size_t length = std::min<std::size_t>(8 - skip, bytes.size() - done);
    std::memcpy(bytes.data() + done, reinterpret_cast<const std::byte*>(&word) + skip, length);
    done += length;
  }
}

std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed,
                             std::uint64_t position) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::uint64_t at = position + done;
    const std::uint64_t word = pattern_word(seed, at / 8);
    const std::size_t skip = at % 8;
    const std::size_t length = std::min<std::size_t>(8 - skip, bytes.size() - done);
    const auto* const expected = reinterpret_cast<const std::byte*>(&word) + skip;
    if (std::memcmp(bytes.data() + done, expected, length) != 0) {
      return done + static_cast<std::size_t>(
                        std::ranges::mismatch(bytes.subspan(done, length), std::span(expected, length)).in1 -
                        (bytes.begin() + static_cast<std::ptrdiff_t>(done)));
    }
    done += length;
  }
  return bytes.size();
}

const PayloadLayout PayloadBuffer::kLayout{
    .kind = PayloadLayout::Kind::kPacked, .pack = &PayloadBuffer::pack, .unpack = &PayloadBuffer::unpack};

PayloadBuffer::PayloadBuffer(std::size_t length_bytes, std::size_t block_bytes, std::size_t gap_bytes,
                             std::pmr::memory_resource& memory, Kind kind)
    : length_bytes_(length_bytes),
      block_bytes_(block_bytes),
      stride_bytes_(block_bytes + gap_bytes),
      storage_(extent_bytes() + 2 * kGuardBytes, std::byte{kGuard}, &memory),
      layout_(kLayout) {
  if (kind == Kind::kPieces && block_bytes > 0) make_pieces();
}

void PayloadBuffer::make_pieces() noexcept {
  layout_ = {.kind = Kind::kPieces,
             .pieces = pieces_.data(),
             .element_bytes = kBlocks * block_bytes_,
             .extent_bytes = static_cast<std::ptrdiff_t>(kBlocks * stride_bytes_)};
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const auto begin = static_cast<std::ptrdiff_t>(block * stride_bytes_);
    const std::size_t head = block_bytes_ / 3;
    if (head > 0) pieces_[layout_.piece_count++] = {begin, head};
    pieces_[layout_.piece_count++] = {begin + static_cast<std::ptrdiff_t>(head), block_bytes_ - head};
  }
}

std::size_t PayloadBuffer::extent_bytes() const noexcept {
  if (block_bytes_ == 0) return length_bytes_;
  return (length_bytes_ + block_bytes_ - 1) / block_bytes_ * stride_bytes_;
}

Payload PayloadBuffer::payload() noexcept {
  if (block_bytes_ == 0) return {first(), length_bytes_, nullptr};
  if (layout_.kind == Kind::kPieces) return {first(), length_bytes_, &layout_};
  return {reinterpret_cast<std::byte*>(this), length_bytes_, &layout_};
}

void PayloadBuffer::pack(const void* context, std::size_t offset, std::byte* to, std::size_t length) noexcept {
  static_cast<const PayloadBuffer*>(context)->note_range(offset, length);
  static_cast<const PayloadBuffer*>(context)->copy_out(offset, to, length);
}

void PayloadBuffer::unpack(void* context, std::size_t offset, const std::byte* from,
                           std::size_t length) noexcept {
  static_cast<PayloadBuffer*>(context)->note_range(offset, length);
  static_cast<PayloadBuffer*>(context)->copy_in(offset, from, length);
}

void PayloadBuffer::note_range(std::size_t offset, std::size_t length) const noexcept {
  if (offset != 0 && offset != next_offset_) out_of_order_ = true;
  next_offset_ = offset + length;
}

void PayloadBuffer::copy_out(std::size_t offset, std::byte* to, std::size_t length) const noexcept {
  if (offset > length_bytes_ || length > length_bytes_ - offset) {
    out_of_range_ = true;
    return;
  }
  if (block_bytes_ == 0) {
    if (length > 0) std::memcpy(to, first() + offset, length);
    return;
  }
  while (length > 0) {
    const std::size_t part = std::min(length, block_bytes_ - offset % block_bytes_);
    std::memcpy(to, first() + offset / block_bytes_ * stride_bytes_ + offset % block_bytes_, part);
    to += part;
    offset += part;
    length -= part;
  }
}

void PayloadBuffer::copy_in(std::size_t offset, const std::byte* from, std::size_t length) noexcept {
  if (offset > length_bytes_ || length > length_bytes_ - offset) {
    out_of_range_ = true;
    return;
  }
  if (block_bytes_ == 0) {
    if (length > 0) std::memcpy(first() + offset, from, length);
    return;
  }
  while (length > 0) {
    const std::size_t part = std::min(length, block_bytes_ - offset % block_bytes_);
    std::memcpy(first() + offset / block_bytes_ * stride_bytes_ + offset % block_bytes_, from, part);
    from += part;
    offset += part;
    length -= part;
  }
}

void PayloadBuffer::fill(std::uint64_t seed) noexcept {
  if (block_bytes_ == 0) return fill_pattern({first(), length_bytes_}, seed);
  for (std::size_t offset = 0; offset < length_bytes_; offset += block_bytes_) {
    const std::size_t part = std::min(block_bytes_, length_bytes_ - offset);
    fill_pattern({first() + offset / block_bytes_ * stride_bytes_, part}, seed, offset);
  }
}

void PayloadBuffer::scribble() noexcept { std::memset(first(), kScribble, extent_bytes()); }

std::string PayloadBuffer::check_scribbled() const {
  const std::span<const std::byte> extent{first(), extent_bytes()};
  const auto written = std::ranges::find_if(extent, [](std::byte byte) { return byte != std::byte{kScribble}; });
  if (written == extent.end()) return {};
  return "byte " + std::to_string(written - extent.begin()) + " was written after the buffer was given back";
}

std::uint64_t PayloadBuffer::head() const noexcept {
  std::uint64_t seed = 0;
  if (length_bytes_ >= sizeof seed) copy_out(0, reinterpret_cast<std::byte*>(&seed), sizeof seed);
  return seed;
}

/// Whether storage bytes [begin, end) are untouched.
std::string PayloadBuffer::check_range(std::size_t begin, std::size_t end) const {
  for (std::size_t i = begin; i < end; ++i) {
    if (storage_[i] == std::byte{kGuard}) continue;
    return "byte " + std::to_string(static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(kGuardBytes)) +
           " of the buffer (payload " + std::to_string(length_bytes_) + " bytes) was written and should not";
  }
  return {};
}

std::string PayloadBuffer::check_guards() const {
  if (out_of_range_) return "pack or unpack was called outside the payload";
  if (out_of_order_) return "pack or unpack was called neither for the next bytes nor for the first";
  const std::size_t extent = extent_bytes();
  std::string wrong = check_range(0, kGuardBytes);
  if (wrong.empty()) wrong = check_range(kGuardBytes + extent, kGuardBytes + extent + kGuardBytes);
  if (block_bytes_ == 0) return wrong;
  for (std::size_t start = 0; start < extent && wrong.empty(); start += stride_bytes_) {
    wrong = check_range(kGuardBytes + start + block_bytes_, kGuardBytes + start + stride_bytes_);
  }
  return wrong;
}

std::string PayloadBuffer::check(std::uint64_t seed, std::size_t received_bytes) const {
  std::string wrong = check_guards();
  if (!wrong.empty()) return wrong;
  received_bytes = std::min(received_bytes, length_bytes_);
  std::size_t good = 0;
  if (block_bytes_ == 0) {
    good = first_difference({first(), received_bytes}, seed);
  } else {
    std::vector<std::byte> packed(received_bytes);
    copy_out(0, packed.data(), received_bytes);
    good = first_difference(packed, seed);
  }
  if (good < received_bytes) {
    return "byte " + std::to_string(good) + " of " + std::to_string(received_bytes) + " received is wrong";
  }
  if (block_bytes_ == 0) return check_range(kGuardBytes + received_bytes, kGuardBytes + length_bytes_);
  std::byte tail{};
  for (std::size_t offset = received_bytes; offset < length_bytes_; ++offset) {
    copy_out(offset, &tail, 1);
    if (tail != std::byte{kGuard}) return "byte " + std::to_string(offset) + " beyond the message was written";
  }
  return {};
}

}  // namespace ch3_offload
