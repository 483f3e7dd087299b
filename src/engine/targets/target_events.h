// What a table of target entries tells its client: the full events and counting events of Portals 4.3.

#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/targets/target_entry.h"

namespace ch3_offload {

/// An event queue of an interface. Stale ids are noticed.
enum class QueueId : std::uint64_t {};
inline constexpr QueueId kNoQueue{0};

enum class TargetEventKind : std::uint8_t {
  kPut,
  kPutOverflow,
  kGet,
  kGetOverflow,
  kAtomic,
  kAtomicOverflow,
  kFetchAtomic,          ///< Swaps, too.
  kFetchAtomicOverflow,  ///< Likewise.
  kLink,
  kAutoUnlink,
  kAutoFree,
  kSearch,
  kTableDisabled,
  // At the initiator.
  kSend,
  kAck,
  kReply,
};

/// Why an operation failed, as its initiator and its target hear it.
enum class TargetFailure : std::uint8_t {
  kNone = 0,
  kUndeliverable,        ///< The peer has failed.
  kDropped,              ///< No entry takes it.
  kTableDisabled,        ///< The table takes none now.
  kPermissionViolation,  ///< The entry is another user's.
  kOperationViolation,   ///< The entry does not allow that operation.
  kNoMatch,              ///< A search has found nothing.
  kLockBroken,           ///< A process died that held the lock.
  /// No failure: the operation is over. Its entry has kNoAcknowledgement, so the initiator is not told.
  kUntold,
  kEnd
};

struct TargetEvent {
  TargetEventKind kind{};
  TargetFailure failure = TargetFailure::kNone;
  TargetListKind list{};
  std::uint32_t table = 0;         ///< TableConfig::index.
  void* cookie = nullptr;          ///< Of the entry, or of the search.
  std::byte* start = nullptr;      ///< Where the data is. Overflow: in the memory of the overflow entry.
  std::uint64_t length_bytes = 0;  ///< Of the data.
  TargetHeader header;             ///< Of the operation. All zero if the event is not of one. At the
                                   ///< initiator: the lengths and the offset at the target.
};

/// Takes the events of a table. Its functions must not call the table.
class TargetListener {
 public:
  virtual void on_event(const TargetEvent& event) noexcept = 0;

  /// A successful operation counts `amount`, a failed one 1.
  virtual void on_count(CounterId counter, bool success, std::uint64_t amount) noexcept = 0;

  /// Keeps room for so many events in the event queue. Returns false if there is not as much. Called only
  /// for tables with flow control.
  virtual bool reserve(std::size_t events) noexcept = 0;
  /// Gives such room back. An event that room was kept for comes right after it.
  virtual void unreserve(std::size_t events) noexcept = 0;

 protected:
  ~TargetListener() = default;
};

}  // namespace ch3_offload
