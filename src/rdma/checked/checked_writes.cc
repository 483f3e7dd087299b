// CheckedProvider: writes, both sides.

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "rdma/checked/checked_provider.h"
#include "rdma/checked/checksum.h"

namespace ch3_offload {

// Memory

Status CheckedProvider::register_memory(void* address, std::size_t length_bytes, Access access,
                                        MemoryRegion& region) noexcept {
  const Status status = below_.register_memory(address, length_bytes, access, region);
  if (status != Status::kOk || access != Access::kWrite) return status;
  try {
    granted_.emplace(static_cast<std::uint64_t>(region.remote_key),
                     Granted{reinterpret_cast<std::uintptr_t>(region.address), region.length_bytes});
  } catch (const std::bad_alloc&) {
    below_.deregister_memory(region);
    return Status::kNoMemory;
  }
  return status;
}

void CheckedProvider::deregister_memory(MemoryRegion& region) noexcept {
  const auto [begin, end] = granted_.equal_range(static_cast<std::uint64_t>(region.remote_key));
  const auto its = std::find_if(begin, end, [&](const auto& entry) {
    return entry.second.address == reinterpret_cast<std::uintptr_t>(region.address) &&
           entry.second.length_bytes == region.length_bytes;
  });
  if (its != end) granted_.erase(its);
  below_.deregister_memory(region);
}

// The sender's side

std::uint32_t CheckedProvider::index_of_write(const Write& write) const noexcept {
  return static_cast<std::uint32_t>(&write - writes_.data());
}

void CheckedProvider::free_write(Write& write) noexcept {
  stalled_writes_ -= write.state == Write::State::kComplete || write.state == Write::State::kMustRepeat;
  write.state = Write::State::kFree;
  write.next_free = std::exchange(free_write_, index_of_write(write));
}

Status CheckedProvider::no_room_for_write() noexcept {
  lacked_write_ = true;
  return Status::kAgain;
}

Status CheckedProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                              const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                              WorkId work) noexcept {
  CheckedEndpoint& peer = of(endpoint);
  if (peer.is_down) return Status::kPeerFailed;
  if (free_write_ == kMostWrites) return no_room_for_write();
  Write& write = writes_[free_write_];
  const Status status = below_.write(*peer.below, source, length_bytes, region, destination, immediate,
                                     WorkId{index_of_write(write)});
  if (status == Status::kAgain) return no_room_for_write();
  if (status != Status::kOk) return status;
  free_write_ = write.next_free;
  // While the device copies.
  write = {Write::State::kPosted,           &peer, source, length_bytes, region, destination, immediate, work,
           checksum({source, length_bytes})};
  return Status::kOk;
}

/// The provider below has done a write.
void CheckedProvider::on_write_done(PeerId id, WorkId work, Status status, Sink& sink) noexcept {
  Write& write = writes_[static_cast<std::size_t>(work)];
  assert(write.state == Write::State::kPosted);
  if (status != Status::kOk) {
    const WorkId its = write.work;
    free_write(write);
    return sink.on_write_done(id, its, status);
  }
  write.state = Write::State::kComplete;
  ++stalled_writes_;
  attend_to(*write.peer);
}

/// Tells the peer of writes that are complete, and repeats those that were damaged.
void CheckedProvider::go_on_writing(CheckedEndpoint& peer, Sink& sink) noexcept {
  for (Write& write : writes_) {
    if (write.peer != &peer) continue;
    if (write.state == Write::State::kComplete) {
      const CheckedWritten written{
          write.destination.address, static_cast<std::uint64_t>(write.destination.remote_key),
          write.length_bytes,        static_cast<std::uint32_t>(write.immediate),
          index_of_write(write),     write.checksum};
      if (!send_numbered(peer, Kind::kWritten, written)) return;
      write.state = Write::State::kTold;
      --stalled_writes_;
    } else if (write.state == Write::State::kMustRepeat) {
      const Status status = below_.write(*peer.below, write.source, write.length_bytes, write.region,
                                         write.destination, write.immediate, WorkId{index_of_write(write)});
      if (status == Status::kAgain || status == Status::kPeerFailed) return;
      if (status == Status::kOk) {
        write.state = Write::State::kPosted;
        --stalled_writes_;
        ++sent_again_;
        continue;
      }
      const WorkId work = write.work;
      free_write(write);
      sink.on_write_done(peer.id, work, status);
    }
  }
}

void CheckedProvider::on_answer(CheckedEndpoint& peer, Kind kind, const CheckedAnswer& answer,
                                Sink& sink) noexcept {
  if (answer.write >= kMostWrites || writes_[answer.write].state != Write::State::kTold ||
      writes_[answer.write].peer != &peer)
    return fail(peer, "it has answered a write that it was not told of");
  Write& write = writes_[answer.write];
  if (kind == Kind::kWrong) {
    write.state = Write::State::kMustRepeat;
    ++stalled_writes_;
    return attend_to(peer);
  }
  const WorkId work = write.work;
  free_write(write);
  sink.on_write_done(peer.id, work, Status::kOk);
}

// The receiver's side

void CheckedProvider::on_write_arrived(CheckedEndpoint& peer, Immediate immediate, std::size_t length_bytes,
                                       Sink& sink) noexcept {
  if (peer.fails) return;
  const auto known = std::ranges::find(peer.arrived, immediate, &CheckedEndpoint::Arrived::immediate);
  if (known != peer.arrived.end()) {
    known->length_bytes += length_bytes;
  } else {
    try {
      if (peer.arrived.size() == kMostOfAPeer) return fail(peer, "it writes what it does not speak of");
      peer.arrived.push_back({immediate, length_bytes});
    } catch (const std::bad_alloc&) {
      return fail(peer, "there is no memory for its writes");
    }
  }
  look_at_writes(peer, immediate, sink);
}

void CheckedProvider::on_written(CheckedEndpoint& peer, const CheckedWritten& written, Sink& sink) noexcept {
  try {
    if (peer.writes.size() == kMostOfAPeer) return fail(peer, "it speaks of writes that do not come");
    peer.writes.push_back({written, {}});
  } catch (const std::bad_alloc&) {
    return fail(peer, "there is no memory for its writes");
  }
  look_at_writes(peer, Immediate{written.immediate}, sink);
}

/// Writes of which all has come and of which the peer has told. Several with one immediate may be under way:
/// then one may be looked at too early, is wrong, and comes again.
void CheckedProvider::look_at_writes(CheckedEndpoint& peer, Immediate immediate, Sink& sink) noexcept {
  for (CheckedEndpoint::Told& told : peer.writes) {
    if (told.answer || Immediate{told.what.immediate} != immediate) continue;
    const auto arrived = std::ranges::find(peer.arrived, immediate, &CheckedEndpoint::Arrived::immediate);
    if (arrived == peer.arrived.end() || arrived->length_bytes < told.what.length_bytes) continue;
    arrived->length_bytes -= told.what.length_bytes;
    if (arrived->length_bytes == 0) {
      *arrived = peer.arrived.back();
      peer.arrived.pop_back();
    }
    const bool right = is_right(told.what);
    told.answer = right ? Kind::kRight : Kind::kWrong;
    attend_to(peer);
    if (right) {
      peer.wrong_writes = 0;
      sink.on_write_arrived(peer.id, immediate, static_cast<std::size_t>(told.what.length_bytes));
    } else {
      on_damage(peer, "a write");
      if (++peer.wrong_writes > kMostWrong) fail(peer, "all that it writes is damaged");
    }
  }
}

/// What was written is what the sender has. Memory that is not granted any more is not looked at: the sink
/// judges who writes there.
bool CheckedProvider::is_right(const CheckedWritten& written) const noexcept {
  const auto [begin, end] = granted_.equal_range(written.remote_key);
  const bool is_granted = std::any_of(begin, end, [&](const auto& entry) {
    const Granted& its = entry.second;
    return written.address >= its.address && written.address - its.address <= its.length_bytes &&
           written.length_bytes <= its.length_bytes - (written.address - its.address);
  });
  if (!is_granted) return true;
  return checksum({reinterpret_cast<const std::byte*>(written.address),
                   static_cast<std::size_t>(written.length_bytes)}) == written.checksum;
}

void CheckedProvider::answer_writes(CheckedEndpoint& peer) noexcept {
  std::erase_if(peer.writes, [&](const CheckedEndpoint::Told& told) {
    return told.answer && send_numbered(peer, *told.answer, CheckedAnswer{told.what.write});
  });
}

}  // namespace ch3_offload
