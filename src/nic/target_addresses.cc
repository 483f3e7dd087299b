#include "nic/target_addresses.h"

#include <memory>
#include <new>
#include <utility>

#include "engine/payload_layout.h"

namespace ch3_offload {
namespace {

template <class T>
T* pointer(std::uint64_t address) noexcept {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

/// Shared memory of the client as an object. Null: it is not shared, or no object can be there.
template <class T>
T* object_at(const ClientShares::Found& found) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(found.address);
  return address % alignof(T) == 0 ? reinterpret_cast<T*>(found.address) : nullptr;
}

bool is_bounded(const TargetInterfaceConfig& config) noexcept {
  constexpr std::size_t kMost = TargetAddresses::kMost;
  const TargetLimits& limits = config.limits;
  return limits.most_entries <= kMost && limits.most_headers <= kMost && limits.most_list_entries <= kMost &&
         limits.most_triggered <= kMost && config.most_tables <= UINT16_MAX + 1U;
}

/// An entry's memory.
struct EntryReach {
  ClientMemory::Part part;
  Payload payload;
};
/// A request's.
struct RequestHold {
  ClientMemory::Part source;
  ClientMemory::Part destination;
};

}  // namespace

TargetBoard* TargetAddresses::find_board(std::uint64_t address, const TargetInterfaceConfig& config,
                                         ClientShares::Found& found) const noexcept {
  if (client_ == nullptr) return pointer<TargetBoard>(address);
  found = client_->shares().find(address, sizeof(TargetBoard));
  return is_bounded(config) ? object_at<TargetBoard>(found) : nullptr;
}

bool TargetAddresses::find_ring(unsigned number, TargetEventRing& ring, FoundRing& found) const noexcept {
  if (client_ == nullptr) return true;
  constexpr std::uint64_t kMostSlots = UINT64_MAX / sizeof(TargetEventRing::Slot);
  if (told_[number].rings.size() >= kMostQueues || ring.capacity > kMostSlots) return false;
  const ClientShares& shares = client_->shares();
  found = {shares.find(reinterpret_cast<std::uint64_t>(ring.words), sizeof(TargetEventWords)),
           shares.find(reinterpret_cast<std::uint64_t>(ring.slots),
                       ring.capacity * sizeof(TargetEventRing::Slot))};
  ring.words = object_at<TargetEventWords>(found.words);
  ring.slots = object_at<TargetEventRing::Slot>(found.slots);
  return true;
}

bool TargetAddresses::keep(unsigned number, QueueId queue, FoundRing ring) noexcept {
  if (client_ == nullptr) return true;
  try {
    told_[number].rings.emplace(queue, std::move(ring));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Status TargetAddresses::find_ranks(std::uint64_t address, std::uint64_t length,
                                   std::vector<ProcessId>& copies, std::span<const ProcessId>& ranks) const {
  if (client_ == nullptr) {
    ranks = {pointer<const ProcessId>(address), length};
    return Status::kOk;
  }
  if (length > kMost) return Status::kNoMemory;
  copies.resize(length);
  const auto bytes = std::as_writable_bytes(std::span(copies));
  ClientMemory::Part part;
  if (!client_->take({pointer<std::byte>(address), bytes.size(), nullptr}, part)) return Status::kUnsupported;
  gather(part.payload(), 0, bytes);
  ranks = copies;
  return Status::kOk;
}

TargetAddresses::Taken TargetAddresses::take(TargetDescription& description, TargetReach& reach) noexcept {
  if (client_ == nullptr) return Taken::kTaken;
  try {
    const auto made = std::make_shared<EntryReach>();
    if (!client_->take_entry({description.start, description.length_bytes, description.layout}, made->part))
      return Taken::kRubbish;
    description.layout = made->part.layout();
    made->payload = made->part.payload();
    reach = TargetReach(made, &made->payload);
    return Taken::kTaken;
  } catch (const std::bad_alloc&) {
    return Taken::kNoMemory;
  }
}

TargetAddresses::Taken TargetAddresses::take(TargetRequest& request, TargetHold& hold) noexcept {
  if (client_ == nullptr) return Taken::kTaken;
  const bool reads = !request.is_get() && (request.source.options & kVolatile) == 0;
  Payload& source = request.source.memory;
  Payload& destination = request.destination.memory;
  if (!reads) source = {nullptr, request.is_get() ? 0 : source.length_bytes, nullptr};
  if (!request.returns_data()) destination = {};
  if (!reads && !request.returns_data()) return Taken::kTaken;
  try {
    const auto made = std::make_shared<RequestHold>();
    if ((reads && !client_->take(source, made->source)) ||
        (request.returns_data() && !client_->take(destination, made->destination)))
      return Taken::kRubbish;
    if (reads) source = made->source.payload();
    if (request.returns_data()) destination = made->destination.payload();
    hold = made;
    return Taken::kTaken;
  } catch (const std::bad_alloc&) {
    return Taken::kNoMemory;
  }
}

}  // namespace ch3_offload
