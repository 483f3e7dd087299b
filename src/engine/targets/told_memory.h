// Memory in which a client is told of its target entries: boards and rings of events (target_board.h). The
// client makes it, and its processor writes it.
//
// This is memory of one process. A port whose processor is in another one makes memory that both map. Whoever
// has such memory keeps what made it, so it may outlive the port.

#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "engine/targets/target_board.h"

namespace ch3_offload {

class ToldMemory {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// Null: there is none. Its bytes are not defined.
  virtual std::byte* allocate(std::size_t length_bytes) noexcept {
    return static_cast<std::byte*>(::operator new (length_bytes, std::align_val_t{kAlignment}, std::nothrow));
  }
  /// REQUIRES: the processor does not write it any more.
  virtual void give_back(std::byte* memory) noexcept {
    ::operator delete (memory, std::align_val_t{kAlignment});
  }

 protected:
  ~ToldMemory() = default;
};

/// That of the heap.
class ToldHeap final : public ToldMemory {};
inline std::shared_ptr<ToldMemory> told_heap() noexcept {
  static constinit ToldHeap heap;
  return {std::shared_ptr<void>(), &heap};  // Nobody owns it.
}

struct GiveBackBoard {
  std::shared_ptr<ToldMemory> maker;
  void operator()(TargetBoard* board) const noexcept {
    maker->give_back(reinterpret_cast<std::byte*>(board));
  }
};
using TargetBoardMemory = std::unique_ptr<TargetBoard, GiveBackBoard>;

/// Null: no memory.
inline TargetBoardMemory make_board(std::shared_ptr<ToldMemory> maker) noexcept {
  std::byte* const memory = maker->allocate(sizeof(TargetBoard));
  return TargetBoardMemory(memory == nullptr ? nullptr : new (memory) TargetBoard, {std::move(maker)});
}

}  // namespace ch3_offload
