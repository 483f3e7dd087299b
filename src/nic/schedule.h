// A schedule: steps of a collective operation that a client gives to its processor as one command.
//
// The processor carries them out by itself, also while the client computes. Its engine sends and receives;
// it combines and copies memory of the client itself. The steps begin in their order, and one need not be
// over before the next one begins, but for barriers. So a schedule is what MPICH makes for each nonblocking
// collective operation (its mpidu_sched.h), without the callbacks.
//
// A step that fails does not end its schedule: others may wait for what this process still sends. But what is
// sent from then on says so in its key (ScheduleMarks), and the schedule ends with the first failure.
//
// Plain data, which crosses to another thread or process.

#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/engine.h"
#include "engine/targets/target_atomics.h"

namespace ch3_offload {

enum class StepKind : std::uint8_t {
  kSend,             ///< peer, key, from, length_bytes, layout.
  kSynchronousSend,  ///< Likewise.
  kReceive,          ///< peer, key, to, length_bytes, layout. The key has no wildcard.
  kCombine,          ///< operation, type, from, to, length_bytes: `to` becomes the result of both.
  kCopy,             ///< from, to, length_bytes. They may overlap if `to` is lower.
  kCount,            ///< length_bytes: what has been received is counted from there on.
  kCountReceived,    ///< The length of the message that was received last is added.
  kCheckCount,       ///< length_bytes: fails if the count is another one.
  kEnd
};

struct ScheduleStep {
  StepKind kind{};
  std::uint8_t is_barrier = 0;  ///< Not 0: the next one waits until this one and all before it are over.
  AtomicOperation operation{};  ///< One that is_supported() on the type, and no swap.
  AtomicType type{};
  std::uint32_t peer = 0;  ///< A PeerId. Of a receive: who sends, so that his death ends it.
  MatchKey key{};          ///< The message's.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t length_bytes = 0;           ///< Of kCombine: whole elements.
  const PayloadLayout* layout = nullptr;  ///< Of a send or receive. Null: contiguous. Else of kind kPieces.
};
static_assert(sizeof(ScheduleStep) == 56);

/// What the keys of messages say of a schedule that has failed, in bits that take no part in matching: all
/// bits of `peer_failed`, which include those of `failed`, if a peer has died; else those of `failed`. 0:
/// nothing.
struct ScheduleMarks {
  std::uint64_t failed = 0;
  std::uint64_t peer_failed = 0;
};

/// Of one schedule.
inline constexpr std::size_t kMostScheduleSteps = 1024;
/// Of all schedules of a client that are not over.
inline constexpr std::size_t kMostStepsOfClient = 64 * kMostScheduleSteps;

}  // namespace ch3_offload
