// A process's registered memory, and its writes to that of others. The memory is mapped in this process: what
// a client has shared (nic/client_shares.h).

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "nic/exchange.h"
#include "rdma/ch3_offload_copy.h"

namespace ch3_offload {

Status ExchangePort::register_memory(void* address, std::size_t length_bytes, Access access,
                                     MemoryRegion& region) noexcept {
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{}, 0};
  if (access == Access::kRead || length_bytes == 0) return Status::kOk;
  if (free_region_ == 0) {
    try {
      regions_.emplace_back();
    } catch (const std::bad_alloc&) {
      return Status::kNoMemory;
    }
    free_region_ = static_cast<std::uint32_t>(regions_.size());
  }
  const std::uint32_t number = free_region_;
  Region& entry = regions_[number - 1];
  free_region_ = entry.next_free;
  entry.address = region.address;
  entry.length_bytes = length_bytes;
  region.remote_key = RemoteKey{std::uint64_t{entry.generation} << 32 | number};
  return Status::kOk;
}

void ExchangePort::deregister_memory(MemoryRegion& region) noexcept {
  const auto number = static_cast<std::uint32_t>(static_cast<std::uint64_t>(region.remote_key));
  if (number == 0) return;
  Region& entry = regions_[number - 1];
  entry.address = nullptr;
  entry.length_bytes = 0;
  ++entry.generation;
  entry.next_free = std::exchange(free_region_, number);
}

/// Where a peer's write lands. nullptr: nothing so long is registered there under that key.
std::byte* ExchangePort::writable(RemoteMemory memory, std::size_t length_bytes) const noexcept {
  const auto key = static_cast<std::uint64_t>(memory.remote_key);
  const auto number = static_cast<std::uint32_t>(key);
  if (number == 0 || number > regions_.size()) return nullptr;
  const Region& region = regions_[number - 1];
  const std::uint64_t offset = memory.address - reinterpret_cast<std::uint64_t>(region.address);
  if (region.generation != key >> 32 || offset > region.length_bytes ||
      length_bytes > region.length_bytes - offset)
    return nullptr;
  return region.address + offset;
}

/// The port that a write to that peer of the node goes to. Null: it has gone, or wants no more of this one.
ExchangePort* ExchangePort::writable_peer(const ExchangeEndpoint& peer) const noexcept {
  ExchangePort* const there = peer.ends ? nullptr : exchange_.port(peer.id);
  return there == nullptr || there->find(rank_)->ends ? nullptr : there;
}

Status ExchangePort::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                           const MemoryRegion&, RemoteMemory destination, Immediate immediate,
                           WorkId work) noexcept {
  ExchangeEndpoint& peer = of(endpoint);
  if (peer.ends) return Status::kPeerFailed;
  if (peer.node != nullptr) return Status::kUnsupported;
  if (write_count_ == writes_.size()) return Status::kAgain;
  writes_[(first_write_ + write_count_++) % writes_.size()] = {&peer,       source,    length_bytes, 0,
                                                               destination, immediate, work};
  return Status::kOk;
}

/// Puts the first write behind the others: they take turns.
void ExchangePort::rotate_writes() noexcept {
  writes_[(first_write_ + write_count_) % writes_.size()] = writes_[first_write_];
  first_write_ = (first_write_ + 1) % writes_.size();
}

/// Takes the first write out and tells its end.
void ExchangePort::finish_write(Sink& sink, Status status) noexcept {
  const Write done = writes_[first_write_];
  first_write_ = (first_write_ + 1) % writes_.size();
  --write_count_;
  sink.on_write_done(done.peer->id, done.work, status);
}

/// Moves as much as the process's class may in a turn, so that a long write delays no other process for
/// longer. Returns how many times something moved.
std::size_t ExchangePort::move_writes(Sink& sink) noexcept {
  std::size_t moved = 0;
  auto left_bytes = static_cast<std::size_t>(quantum_bytes_);
  while (write_count_ > 0 && left_bytes > 0 && !is_silent_) {
    Write& write = writes_[first_write_];
    ++moved;
    ExchangePort* const there = writable_peer(*write.peer);
    std::byte* const to = there == nullptr ? nullptr : there->writable(write.destination, write.length_bytes);
    if (to == nullptr) {
      finish_write(sink, Status::kPeerFailed);
      continue;
    }
    const std::size_t part = std::min(write.length_bytes - write.written_bytes, left_bytes);
    if (part > 0) ch3_offload_copy(to + write.written_bytes, write.source + write.written_bytes, part);
    write.written_bytes += part;
    left_bytes -= part;
    if (write.written_bytes < write.length_bytes) {
      rotate_writes();
      break;
    }
    ExchangeItem* const news = exchange_.make_item(0);
    if (news == nullptr) break;  // The next time.
    news->from = there->find(rank_);
    news->kind = ExchangeItem::Kind::kWritten;
    news->length_bytes = write.length_bytes;
    news->immediate = write.immediate;
    there->put(*news);
    finish_write(sink, Status::kOk);
  }
  return moved;
}

/// Ends all writes to a peer that is down.
void ExchangePort::end_writes(const ExchangeEndpoint& peer, Sink& sink) noexcept {
  for (std::size_t left = write_count_; left > 0; --left) {
    if (writes_[first_write_].peer == &peer) {
      finish_write(sink, Status::kPeerFailed);
    } else {
      rotate_writes();
    }
  }
}

}  // namespace ch3_offload
