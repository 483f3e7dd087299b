// What a client asks of the target entries of another process: put, get, atomic, fetch-atomic and swap of
// Portals 4.3. Plain data, so that it can cross to another thread or process.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/engine.h"
#include "engine/targets/target_atomics.h"
#include "engine/targets/target_events.h"
#include "engine/targets/target_runs.h"

namespace ch3_offload {

// Options of a TargetOrigin, as bits.
inline constexpr std::uint32_t kNoSendEvent = 1U << 0;
inline constexpr std::uint32_t kNoOriginSuccessEvent = 1U << 1;  ///< Failures are told all the same.
inline constexpr std::uint32_t kCountSend = 1U << 2;
inline constexpr std::uint32_t kCountReply = 1U << 3;
inline constexpr std::uint32_t kCountAck = 1U << 4;
inline constexpr std::uint32_t kCountOriginBytes = 1U << 5;  ///< Successful bytes, not operations.
/// Of a source: its memory may change as soon as the request has been made: TargetRequest::volatile_bytes.
inline constexpr std::uint32_t kVolatile = 1U << 6;
/// A source with kVolatile has at most so many bytes: any two elements fit.
inline constexpr std::size_t kMostVolatileBytes = 2 * kMostElementBytes;

/// Memory of the initiator, and what is told of it: the part of a memory descriptor that an operation uses.
struct TargetOrigin {
  Payload memory;
  std::uint32_t options = 0;
  QueueId queue = kNoQueue;
  CounterId counter = kNoCounter;
};

/// What the initiator wants to hear of a put or an atomic.
enum class TargetAcknowledgement : std::uint8_t {
  kNone,
  kFull,       ///< An event, and a count.
  kCounting,   ///< A count: the operation has matched and its data is there.
  kCompleted,  ///< A count: the operation is over, whatever has become of it.
};

struct TargetRequest {
  TargetOperation operation{};
  TargetAcknowledgement acknowledgement = TargetAcknowledgement::kNone;
  AtomicOperation atomic_operation{};
  AtomicType atomic_type{};
  std::uint8_t interface = 0;  ///< Here and at the target.
  std::uint16_t table = 0;
  MatchBits bits{};
  std::uint64_t offset_bytes = 0;  ///< At the target.
  std::uint64_t header_data = 0;
  /// Of the target's memory, only of a window: its messages have them in place of `bits` and `header_data`.
  TargetRuns runs;
  TargetOrigin source;       ///< Not of a get.
  TargetOrigin destination;  ///< Of what returns data: as long as the source.
  /// Of a swap for which takes_operand(). In the type's representation.
  std::array<std::byte, kMostElementBytes> operand{};
  /// Of a source with kVolatile: its bytes. Its memory is not read.
  std::array<std::byte, kMostVolatileBytes> volatile_bytes{};
  void* cookie = nullptr;

  bool returns_data() const noexcept {
    return operation >= TargetOperation::kGet && operation <= TargetOperation::kSwap &&
           operation != TargetOperation::kAtomic;
  }
  /// Of the table's lock. Has no data. A lock is answered when the initiator has it, an unlock never.
  bool is_of_lock() const noexcept { return operation >= TargetOperation::kLockShared; }
  /// Where the source's bytes are. Valid as long as this object.
  Payload source_bytes() const noexcept {
    if ((source.options & kVolatile) == 0) return source.memory;
    return {const_cast<std::byte*>(volatile_bytes.data()), source.memory.length_bytes, nullptr};
  }
  bool is_get() const noexcept { return operation == TargetOperation::kGet; }
  const TargetOrigin& answered() const noexcept { return returns_data() ? destination : source; }
  std::size_t length_bytes() const noexcept { return answered().memory.length_bytes; }
};

}  // namespace ch3_offload
