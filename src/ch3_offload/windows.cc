#include "ch3_offload/windows.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "nic/kernel_reach.h"
#include "nic/waiter.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kMostWindows = 4096;
/// A failed operation with a source is told twice.
constexpr std::size_t kEventsOfOperation = 2;

Status status_of(TargetFailure failure) noexcept {
  switch (failure) {
    case TargetFailure::kNone: return Status::kOk;
    case TargetFailure::kUndeliverable:
    case TargetFailure::kLockBroken: return Status::kPeerFailed;
    default: return Status::kTruncated;
  }
}

TargetInterfaceConfig interface_config() noexcept {
  TargetInterfaceConfig config;
  config.limits = {.most_entries = kMostWindows, .most_list_entries = 1};
  config.most_tables = kMostWindows;
  config.has_locks = true;
  return config;
}

}  // namespace

Windows::Windows(TargetPort& port, std::size_t atomic_bytes, SharedArena* mapped, TargetBoardMemory board,
                 std::unique_ptr<TargetEventMemory> events) noexcept
    : port_(port),
      atomic_bytes_(atomic_bytes),
      mapped_(mapped),
      board_(std::move(board)),
      events_(std::move(events)),
      reader_(events_->ring) {}

Result<std::unique_ptr<Windows>> Windows::create(TargetPort& port, std::size_t atomic_bytes,
                                                 SharedArena* mapped) {
  const Error no_memory{Status::kNoMemory, 0, "no memory for the windows of this process"};
  TargetBoardMemory board = make_board(port.told_memory());
  std::unique_ptr<TargetEventMemory> events =
      TargetEventMemory::make(port.told_memory(), kMostUnderWay * kEventsOfOperation, /*tables=*/0);
  if (board == nullptr || events == nullptr) return no_memory;
  std::unique_ptr<Windows> windows(new (std::nothrow) Windows(port, atomic_bytes, mapped, std::move(board),
                                                              std::move(events)));
  if (windows == nullptr || port.open(kWindowInterface, interface_config(), *windows->board_) != Status::kOk)
    return no_memory;
  windows->queue_ = port.make_queue(kWindowInterface, windows->events_->ring);
  if (windows->queue_ == kNoQueue) return no_memory;
  return windows;
}

/// What peers were granted of this process's memory, they may write to until they have said that they have.
Windows::~Windows() {
  work_until(port_, [this] { return port_.close(kWindowInterface); });
}

Status Windows::expose(std::span<std::byte> memory, Id& id) noexcept {
  if (mapped_ != nullptr && !is_in_kernel_reach(memory.data(), memory.size())) return Status::kUnsupported;
  std::size_t free = 0;
  while (free < entries_.size() && entries_[free] != kNoTarget) ++free;
  if (free == kMostWindows) return Status::kNoMemory;
  try {
    if (free == entries_.size()) entries_.push_back(kNoTarget);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  id = static_cast<Id>(free);
  if (port_.make_table(kWindowInterface, id, kNoQueue, /*has_flow_control=*/false) != Status::kOk)
    return Status::kNoMemory;
  TargetDescription description;
  description.start = memory.data();
  description.length_bytes = memory.size();
  description.options = kAllowPut | kAllowGet | kNoTruncate;
  if (port_.append(kWindowInterface, id, TargetListKind::kPriority, description, entries_[id]) == Status::kOk)
    return Status::kOk;
  static_cast<void>(port_.free_table(kWindowInterface, id));
  return Status::kNoMemory;
}

Status Windows::withdraw(Id id) noexcept {
  if (id >= entries_.size()) return Status::kUnsupported;
  if (entries_[id] != kNoTarget &&
      port_.unlink(kWindowInterface, id, entries_[id]) == TargetTable::Unlinked::kInUse)
    return Status::kAgain;
  entries_[id] = kNoTarget;
  return port_.free_table(kWindowInterface, id);
}

bool Windows::should_stage(const void* address, std::size_t length_bytes, Access access) const noexcept {
  if (mapped_ == nullptr || length_bytes == 0) return false;
  // The bytes of such a source go into the command.
  if (access == Access::kSource && length_bytes <= kMostVolatileBytes) return false;
  if (mapped_->contains(static_cast<const std::byte*>(address), length_bytes)) return false;
  return length_bytes <= kMostStagedBytes || !is_in_kernel_reach(address, length_bytes);
}

Status Windows::begin(std::uint32_t rank, Id id, TargetRequest& request) noexcept {
  const bool is_told = request.operation != TargetOperation::kUnlock;
  if (is_told && under_way_ == kMostUnderWay) return Status::kAgain;
  request.interface = kWindowInterface;
  request.table = id;
  request.acknowledgement = is_told ? TargetAcknowledgement::kFull : TargetAcknowledgement::kNone;
  request.source.options = kNoSendEvent;
  request.source.queue = queue_;
  request.destination.queue = queue_;
  const Status status = port_.request(make_logical_id(rank), request);
  if (status == Status::kOk && is_told) ++under_way_;
  return status;
}

bool Windows::next(Done& done) noexcept {
  TargetEvent event;
  bool lost = false;  // Never: there is room for all.
  while (reader_.take(event, lost)) {
    if (event.kind == TargetEventKind::kSend) continue;  // It failed: its answer says so, too.
    --under_way_;
    done = {event.cookie, status_of(event.failure)};
    return true;
  }
  return false;
}

}  // namespace ch3_offload
