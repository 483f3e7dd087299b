// The memory that this process's MPI windows expose, and its operations on those of others: the client of
// the engine's target entries that MPI is.
//
// A window is a table of interface kWindowInterface with one entry, which stays. Its operations are told in one
// event queue.
//
// Threads: one at a time. Blocking: as TargetPort's questions; the destructor waits for what peers still write.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/target_request.h"
#include "engine/targets/target_event_ring.h"
#include "nic/shared_arena.h"
#include "nic/target_port.h"

namespace ch3_offload {

class Windows {
 public:
  using Id = std::uint16_t;
  struct Done {
    void* cookie = nullptr;
    Status status{};
  };
  /// Operations that may be under way at once.
  static constexpr std::size_t kMostUnderWay = 1024;

  /// What an operation does with memory of this process.
  enum class Access : std::uint8_t {
    kSource,  ///< It reads the memory.
    kResult,  ///< It writes there.
  };
  /// What is no longer than this is staged if the processor has not mapped it: this process copies it faster
  /// than the kernel does for the processor.
  static constexpr std::size_t kMostStagedBytes = std::size_t{16} << 10;

  /// `port` outlives the object. `atomic_bytes`: the longest operation that is carried out at once. `mapped`,
  /// which outlives the object, too: the processor reaches its memory as its own, and other memory with the
  /// help of the kernel; null: it reaches all memory as its own. kNoMemory.
  static Result<std::unique_ptr<Windows>> create(TargetPort& port, std::size_t atomic_bytes,
                                                 SharedArena* mapped = nullptr);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  TargetPort& port() const noexcept { return port_; }
  std::size_t atomic_bytes() const noexcept { return atomic_bytes_; }

  /// kNoMemory: also if there are as many windows as there may be. kUnsupported: the processor cannot reach
  /// the memory.
  Status expose(std::span<std::byte> memory, Id& id) noexcept;
  /// kAgain: an operation is in flight, or somebody has the lock.
  Status withdraw(Id id) noexcept;

  /// Whether an operation should name a copy in mapped memory instead of that memory. Either the copy is
  /// faster, or the processor cannot reach that memory, and naming it would end this process.
  bool should_stage(const void* address, std::size_t length_bytes, Access access) const noexcept;
  /// Begins an operation on window `id` of a process; operation, atomic, memory, offset and cookie of `request`
  /// are set. kAgain: as many are under way as may be. Else as TargetPort::request().
  Status begin(std::uint32_t rank, Id id, TargetRequest& request) noexcept;
  /// Takes the next operation that is over. Returns false if there is none.
  bool next(Done& done) noexcept;
  bool has_news() const noexcept { return !reader_.empty(); }

 private:
  Windows(TargetPort& port, std::size_t atomic_bytes, SharedArena* mapped, TargetBoardMemory board,
          std::unique_ptr<TargetEventMemory> events) noexcept;

  TargetPort& port_;
  const std::size_t atomic_bytes_;
  SharedArena* const mapped_;
  const TargetBoardMemory board_;
  const std::unique_ptr<TargetEventMemory> events_;
  TargetEventReader reader_;
  QueueId queue_ = kNoQueue;
  std::vector<TargetId> entries_;  ///< By window. kNoTarget: there is none.
  std::size_t under_way_ = 0;
};

}  // namespace ch3_offload
