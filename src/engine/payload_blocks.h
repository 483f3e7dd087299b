// Memory for the payload of unexpected messages that does not fit their entry.
//
// Blocks of up to 64 KiB are kept for the next message when they are given back, within a limit: a
// steady flow of unexpected messages allocates nothing, and what a flood took goes back to the allocator.
// Without that, malloc gives the pages of each burst back to the system, and takes them anew. Lengths up to
// 1 KiB are rounded to what malloc hands out anyway on 64-bit systems (a multiple of 16 bytes with 8 of its
// own), others up to a sixteenth of their power of two.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <new>

namespace ch3_offload {

class PayloadBlocks {
 public:
  /// `most_kept_bytes`: for the next messages, of all lengths together.
  explicit PayloadBlocks(std::size_t most_kept_bytes) noexcept : most_kept_bytes_(most_kept_bytes) {}
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
    if (length_bytes > kLongestKeptBytes)
      return static_cast<std::byte*>(::operator new(length_bytes, std::nothrow));
    const Step step = step_of(length_bytes);
    Kept*& kept = kept_[step.index];
    if (kept == nullptr) return static_cast<std::byte*>(::operator new(step.bytes, std::nothrow));
    Kept* const block = kept;
    kept = block->next;
    kept_bytes_ -= step.bytes;
    return reinterpret_cast<std::byte*>(block);
  }

  /// `length_bytes` as in take().
  void give_back(std::byte* block, std::size_t length_bytes) noexcept {
    if (length_bytes > kLongestKeptBytes) return release(block);
    const Step step = step_of(length_bytes);
    if (kept_bytes_ + step.bytes > most_kept_bytes_ && !make_room(step)) [[unlikely]]
      return release(block);
    kept_[step.index] = new (block) Kept{kept_[step.index]};
    kept_bytes_ += step.bytes;
  }

  /// Frees a block without a PayloadBlocks.
  static void release(std::byte* block) noexcept { ::operator delete(block); }

 private:
  struct Kept {
    Kept* next;
  };
  static constexpr std::size_t kLongestKeptBytes = std::size_t{64} * 1024;
  static constexpr std::size_t kFineSteps = 64;     ///< Of 16 bytes.
  static constexpr std::size_t kStepsPerDouble = 16;  ///< From 1 KiB on.

  /// A length of blocks that are kept.
  struct Step {
    std::size_t index;
    std::size_t bytes;
  };
  static constexpr Step step_of(std::size_t length_bytes) noexcept {
    const std::size_t fine = (length_bytes + 7) / 16;
    if (fine < kFineSteps) return {fine, fine * 16 + 8};
    // The lengths from 2^(n-1) + 1 to 2^n are in kStepsPerDouble steps.
    const auto n = static_cast<unsigned>(std::bit_width(length_bytes - 1));
    const std::size_t width = (std::size_t{1} << (n - 1)) / kStepsPerDouble;
    const std::size_t steps = (length_bytes + width - 1) / width;  // 17 to 32 of them make the block.
    return {kFineSteps + (n - 10) * kStepsPerDouble + steps - kStepsPerDouble - 1, steps * width};
  }
  static constexpr std::size_t kSteps = kFineSteps + 7 * kStepsPerDouble;

  static constexpr std::size_t bytes_of(std::size_t index) noexcept {
    if (index < kFineSteps) return index * 16 + 8;
    const std::size_t doubles = (index - kFineSteps) / kStepsPerDouble;
    const std::size_t steps = (index - kFineSteps) % kStepsPerDouble + kStepsPerDouble + 1;
    return steps * (std::size_t{512} / kStepsPerDouble << doubles);
  }

  /// Releases kept blocks of other lengths, in turn: the program sends messages of this length now. Returns
  /// false if that is not enough.
  bool make_room(const Step& wanted) noexcept {
    for (std::size_t looks = 0; looks < kSteps; ++looks) {
      while (next_victim_ != wanted.index && kept_[next_victim_] != nullptr) {
        Kept* const block = kept_[next_victim_];
        kept_[next_victim_] = block->next;
        release(reinterpret_cast<std::byte*>(block));
        kept_bytes_ -= bytes_of(next_victim_);
        if (kept_bytes_ + wanted.bytes <= most_kept_bytes_) return true;
      }
      next_victim_ = next_victim_ + 1 < kSteps ? next_victim_ + 1 : 0;
    }
    return false;
  }

  const std::size_t most_kept_bytes_;
  std::size_t next_victim_ = 0;       ///< Step::index.
  std::array<Kept*, kSteps> kept_{};  ///< By Step::index.
  std::size_t kept_bytes_ = 0;
};

}  // namespace ch3_offload
