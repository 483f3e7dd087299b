// The client's memory and a processor in another process: what it shares, payloads that are staged because
// only the client can reach them, and copies that the client makes because it needs but one.

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/payload_layout.h"
#include "nic/offered_copies.h"
#include "nic/ring_port.h"
#include "rdma/shm/bulk_copy.h"

namespace ch3_offload {
namespace {

/// What a process sends to itself, and might not be received before the next call, is at most so long. Bytes.
constexpr std::size_t kStagedToSelf = std::size_t{64} << 10;

/// To copy a piece costs the kernel about as much as this process needs to copy so many bytes twice.
constexpr std::size_t kLeastPieceBytes = 1024;

/// Whether nobody else can read or write it, even with the help of the kernel or this process's processor.
bool is_only_ours(const Payload& payload) noexcept {
  return payload.length_bytes > 0 && payload.layout != nullptr &&
         payload.layout->kind != PayloadLayout::Kind::kPieces;
}

}  // namespace

// Sharing.

bool RingPort::share(const std::byte* address, std::size_t length_bytes,
                     const FileDescriptor& file) noexcept {
  CommandRecord question;
  question.kind = CommandKind::kShare;
  question.address = reinterpret_cast<std::uintptr_t>(address);
  question.length_bytes = length_bytes;
  return send_share({.address = question.address, .length_bytes = length_bytes}, file) && ask(question) != 0;
}

void RingPort::unshare(const std::byte* address) noexcept {
  CommandRecord command;
  command.kind = CommandKind::kUnshare;
  command.address = reinterpret_cast<std::uintptr_t>(address);
  give(command);
}

// Staging.

bool RingPort::must_stage(const Payload& payload) noexcept {
  switch (staging_) {
    case Staging::kNone: return false;
    case Staging::kPacked:
      return payload.layout != nullptr && payload.layout->kind == PayloadLayout::Kind::kPacked;
    case Staging::kSmallPieces:
      return payload.layout != nullptr &&
             (payload.layout->kind != PayloadLayout::Kind::kPieces ||
              (payload.layout->element_bytes < payload.layout->piece_count * kLeastPieceBytes &&
               payload.length_bytes <= kMostStagedBytes));
    case Staging::kAll:
      return payload.length_bytes > 0 &&
             (payload.layout != nullptr || !arena_.contains(payload.address, payload.length_bytes));
  }
  return false;
}

/// Replaces those payloads that only this process can read by memory that both can, as far as there is room.
/// False: there is no memory at all.
bool RingPort::stage_sends(OperationId operation, std::span<Payload> payloads, bool is_to_self) noexcept {
  if (staging_ == Staging::kNone) return true;
  const auto is_staged = [&](const Payload& one) {
    return must_stage(one) || (is_to_self && one.length_bytes <= kStagedToSelf &&
                               (one.layout != nullptr || !arena_.contains(one.address, one.length_bytes)));
  };
  std::size_t length_bytes = 0;
  for (const Payload& one : payloads)
    if (is_staged(one)) length_bytes += one.length_bytes;
  std::byte* place = length_bytes == 0
                         ? nullptr
                         : make_staged(operation, length_bytes, std::ranges::any_of(payloads, is_only_ours));
  if (place != nullptr) {
    for (Payload& one : payloads) {
      if (!is_staged(one)) continue;
      gather(one, 0, {place, one.length_bytes});
      one = {place, one.length_bytes, nullptr};
      place += one.length_bytes;
      PortMemory::count(counters_.client.staged);
    }
  }
  try {
    find(operation)->sends.assign(payloads.begin(), payloads.end());
  } catch (const std::bad_alloc&) {
    return false;
  }
  return std::ranges::none_of(payloads, is_only_ours);
}

/// Likewise what only this process can write.
bool RingPort::stage_receive(OperationId operation, Payload& payload) noexcept {
  find(operation)->receives = payload;
  if (!must_stage(payload)) return true;
  std::byte* const place = payload.length_bytes == 0
                               ? nullptr
                               : make_staged(operation, payload.length_bytes, is_only_ours(payload));
  if (place == nullptr && payload.length_bytes != 0) return !is_only_ours(payload);
  payload = {place, payload.length_bytes, nullptr};
  PortMemory::count(counters_.client.staged);
  return true;
}

/// nullptr: there is no memory that is shared; or, if it `must_be_ours`, none at all.
std::byte* RingPort::make_staged(OperationId operation, std::size_t length_bytes,
                                 bool must_be_ours) noexcept {
  SharedBlock& staged = find(operation)->staged;
  staged = SharedBlock(arena_.allocate(length_bytes), ReturnBlock{&arena_});
  if (staged == nullptr && must_be_ours) staged = SharedBlock(new (std::nothrow) std::byte[length_bytes]);
  return staged.get();
}

// Copies that the kernel refuses.

/// If the processor says so: the kernel refuses copies of all of this process's memory.
void RingPort::stage_from_now(const EventRecord& record) noexcept {
  if (record.bits != 0 && staging_ != Staging::kNone) staging_ = Staging::kAll;
}

/// Part of a message, where the kernel did not write it.
void RingPort::take_bytes(const EventRecord& record, std::span<const std::byte> bytes) noexcept {
  stage_from_now(record);
  const Operation* const operation = find(record.operation);
  if (operation == nullptr) return;
  const std::size_t most_bytes = operation->receives.length_bytes;
  if (record.length_bytes > most_bytes || bytes.size() > most_bytes - record.length_bytes) return;
  if (operation->staged != nullptr)
    std::memcpy(operation->staged.get() + record.length_bytes, bytes.data(), bytes.size());
  else
    scatter(operation->receives, record.length_bytes, bytes);
}

/// Gives the processor the bytes that it asks for.
void RingPort::give_bytes(const EventRecord& wanted) noexcept {
  stage_from_now(wanted);
  Operation* const operation = find(wanted.operation);
  if (operation == nullptr || wanted.initiator >= operation->sends.size()) return;
  const Payload& payload = operation->sends[wanted.initiator];
  if (wanted.length_bytes >= payload.length_bytes) return;
  CommandRecord command;
  command.kind = CommandKind::kGiveBytes;
  command.operation = wanted.operation;
  command.count = static_cast<std::uint16_t>(wanted.initiator);
  command.bits = wanted.length_bytes;
  command.length_bytes = std::min<std::size_t>(payload.length_bytes - wanted.length_bytes, kGivenBytes);
  std::byte* given = nullptr;
  try {
    operation->given.resize(operation->sends.size());
    SharedBlock& block = operation->given[wanted.initiator];
    block.reset();  // It has been read. Those of other payloads may be read again.
    block = SharedBlock(arena_.allocate(command.length_bytes), ReturnBlock{&arena_});
    given = block.get();
  } catch (const std::bad_alloc&) {  // As without a block.
  }
  PortMemory::count(counters_.client.staged);
  if (given != nullptr) {
    command.address = reinterpret_cast<std::uintptr_t>(given);
    gather(payload, wanted.length_bytes, {given, command.length_bytes});
    return give(command);
  }
  // No memory that both reach: the command takes them along, fewer at a time.
  command.length_bytes = std::min(command.length_bytes, std::uint64_t{kPacketPartBytes});
  const std::size_t record_bytes = sizeof command + command.length_bytes;
  std::byte* const place = begin_command(record_bytes);
  std::memcpy(place, &command, sizeof command);
  gather(payload, wanted.length_bytes, {place + sizeof command, command.length_bytes});
  end_command(record_bytes);
}

// Copies that the processor offers.

bool RingPort::copy_from(pid_t process, std::uint64_t address, std::byte* to,
                         std::size_t length_bytes) noexcept {
  return copy_from_process(process, address, to, length_bytes) == RemoteCopy::kDone;
}

/// Takes what is offered, if it still is, and copies it.
void RingPort::make_copy(const EventRecord& offer) noexcept {
  std::uint64_t number = offer.peer;
  if (!words_.offered.compare_exchange_strong(number, number | OfferedCopies::kTaken,
                                              std::memory_order_acq_rel))
    return;
  const Operation* const operation = find(offer.operation);
  const bool fits = operation != nullptr && operation->staged == nullptr &&
                    operation->receives.layout == nullptr &&
                    offer.length_bytes <= operation->receives.length_bytes;
  const bool is_copied = fits && copy_from(static_cast<pid_t>(offer.initiator), offer.bits,
                                           operation->receives.address, offer.length_bytes);
  if (is_copied) PortMemory::count(counters_.client.copied);
  CommandRecord command;
  command.kind = CommandKind::kCopied;
  command.operation = offer.operation;
  command.bits = offer.peer;
  command.length_bytes = is_copied ? offer.length_bytes : 0;
  give(command);
}

}  // namespace ch3_offload
