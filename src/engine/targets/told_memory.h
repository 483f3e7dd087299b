// Memory in which a client is told of its target entries: boards and rings of events (target_board.h). The
// client makes it, and its processor writes it.
//
// This is memory of one process. A port whose processor is in another one makes memory that both map.

#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "engine/targets/target_board.h"

namespace ch3_offload {

class ToldMemory {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// Null: there is none. Its bytes are not defined.
  virtual std::byte* make_memory(std::size_t length_bytes) noexcept {
    return static_cast<std::byte*>(::operator new (length_bytes, std::align_val_t{kAlignment}, std::nothrow));
  }
  /// REQUIRES: the processor does not write it any more.
  virtual void free_memory(std::byte* memory) noexcept {
    ::operator delete (memory, std::align_val_t{kAlignment});
  }

 protected:
  ~ToldMemory() = default;
};

/// That of the heap.
class ToldHeap final : public ToldMemory {};
inline ToldMemory& told_heap() noexcept {
  static constinit ToldHeap heap;
  return heap;
}

struct FreeToldMemory {
  ToldMemory* maker = nullptr;
  void operator()(TargetBoard* board) const noexcept {
    maker->free_memory(reinterpret_cast<std::byte*>(board));
  }
};
using TargetBoardMemory = std::unique_ptr<TargetBoard, FreeToldMemory>;

/// Null: no memory. `maker` outlives it.
inline TargetBoardMemory make_board(ToldMemory& maker) noexcept {
  std::byte* const memory = maker.make_memory(sizeof(TargetBoard));
  return TargetBoardMemory(memory == nullptr ? nullptr : new (memory) TargetBoard, {&maker});
}

}  // namespace ch3_offload
