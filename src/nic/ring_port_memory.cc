// The client's memory and a processor in another process: what it shares, and payloads that are staged
// because only the client can reach them.

#include <cstring>
#include <new>

#include "engine/payload_layout.h"
#include "nic/ring_port.h"

namespace ch3_offload {

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
    case Staging::kAll:
      return payload.length_bytes > 0 &&
             (payload.layout != nullptr || !arena_.contains(payload.address, payload.length_bytes));
  }
  return false;
}

/// Replaces those payloads that only this process can read by memory that both can. False: there is none.
bool RingPort::stage_sends(OperationId operation, std::span<Payload> payloads) noexcept {
  std::size_t length_bytes = 0;
  for (const Payload& one : payloads)
    if (must_stage(one)) length_bytes += one.length_bytes;
  std::byte* place = length_bytes == 0 ? nullptr : make_staged(operation, length_bytes);
  if (place == nullptr && length_bytes != 0) return false;
  for (Payload& one : payloads) {
    if (!must_stage(one)) continue;
    gather(one, 0, {place, one.length_bytes});
    one = {place, one.length_bytes, nullptr};
    place += one.length_bytes;
    PortMemory::count(counters_.client.staged);
  }
  return true;
}

/// Likewise what only this process can write.
bool RingPort::stage_receive(OperationId operation, Payload& payload) noexcept {
  find(operation)->receives = payload;
  if (!must_stage(payload)) return true;
  std::byte* place = payload.length_bytes == 0 ? nullptr : make_staged(operation, payload.length_bytes);
  if (place == nullptr && payload.length_bytes != 0) return false;
  payload = {place, payload.length_bytes, nullptr};
  PortMemory::count(counters_.client.staged);
  return true;
}

/// nullptr: there is no memory.
std::byte* RingPort::make_staged(OperationId operation, std::size_t length_bytes) noexcept {
  SharedBlock& staged = find(operation)->staged;
  staged = SharedBlock(arena_.allocate(length_bytes), ReturnBlock{&arena_});
  // Without shared memory, the kernel can copy it.
  if (staged == nullptr && staging_ == Staging::kPacked)
    staged = SharedBlock(new (std::nothrow) std::byte[length_bytes]);
  return staged.get();
}

}  // namespace ch3_offload
