// Memory for the payload of unexpected messages that does not fit their entry.
//
// Blocks of up to 1 KiB are kept for the next message when they are given back, 64 KiB of them at most: a
// steady flow of small unexpected messages allocates nothing, and what a flood took goes back to the
// allocator. Lengths are rounded to what malloc hands out anyway on 64-bit systems (a multiple of 16
// bytes with 8 of its own).

#pragma once

#include <array>
#include <cstddef>
#include <new>

namespace ch3_offload {

class PayloadBlocks {
 public:
  PayloadBlocks() = default;
  PayloadBlocks(const PayloadBlocks&) = delete;
  PayloadBlocks& operator=(const PayloadBlocks&) = delete;
  ~PayloadBlocks() {
    for (Kept* block : kept_) {
      while (block != nullptr) {
        Kept* const next = block->next;
        release(reinterpret_cast<std::byte*>(block));
        block = next;
      }
    }
  }

  /// A block of at least that length, for give_back() or release(). Null: no memory.
  std::byte* take(std::size_t length_bytes) noexcept {
    const std::size_t step = step_of(length_bytes);
    if (step >= kSteps) return static_cast<std::byte*>(::operator new(length_bytes, std::nothrow));
    if (Kept* const block = kept_[step]; block != nullptr) {
      kept_[step] = block->next;
      kept_bytes_ -= bytes_of(step);
      return reinterpret_cast<std::byte*>(block);
    }
    return static_cast<std::byte*>(::operator new(bytes_of(step), std::nothrow));
  }

  /// `length_bytes` as in take().
  void give_back(std::byte* block, std::size_t length_bytes) noexcept {
    const std::size_t step = step_of(length_bytes);
    if (step >= kSteps || kept_bytes_ + bytes_of(step) > kMostKeptBytes) return release(block);
    kept_[step] = new (block) Kept{kept_[step]};
    kept_bytes_ += bytes_of(step);
  }

  /// Frees a block without a PayloadBlocks.
  static void release(std::byte* block) noexcept { ::operator delete(block); }

 private:
  struct Kept {
    Kept* next;
  };
  static constexpr std::size_t kSteps = 64;
  static constexpr std::size_t kMostKeptBytes = std::size_t{64} * 1024;

  static constexpr std::size_t step_of(std::size_t length_bytes) noexcept { return (length_bytes + 7) / 16; }
  static constexpr std::size_t bytes_of(std::size_t step) noexcept { return step * 16 + 8; }

  std::array<Kept*, kSteps> kept_{};  ///< By step: bytes_of() each.
  std::size_t kept_bytes_ = 0;
};

}  // namespace ch3_offload
