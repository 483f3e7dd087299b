// CheckedProvider: writes, both sides.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "rdma/checked/checked_provider.h"
#include "rdma/checked/checksum.h"

namespace ch3_offload {
namespace {

/// Whether all pages are there. Of memory that another client had, they may have gone.
bool is_mapped(std::uint64_t address, std::uint64_t length_bytes) noexcept {
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = address / page_bytes * page_bytes;
  // With MS_ASYNC, Linux does nothing but look whether they are (msync(2)).
  return ::msync(reinterpret_cast<void*>(begin), static_cast<std::size_t>(address - begin + length_bytes),
                 MS_ASYNC) == 0;
}

}  // namespace

// Memory

Status CheckedProvider::register_memory(void* address, std::size_t length_bytes, Access access,
                                        MemoryRegion& region) noexcept {
  const Status status = below_.register_memory(address, length_bytes, access, region);
  if (status != Status::kOk) return status;
  try {
    registered_.emplace(std::pair(static_cast<std::uint64_t>(region.remote_key),
                                  reinterpret_cast<std::uintptr_t>(region.address)),
                        region.length_bytes);
  } catch (const std::bad_alloc&) {
    below_.deregister_memory(region);
    return Status::kNoMemory;
  }
  return status;
}

void CheckedProvider::deregister_memory(MemoryRegion& region) noexcept {
  const auto [begin, end] = registered_.equal_range(std::pair(
      static_cast<std::uint64_t>(region.remote_key), reinterpret_cast<std::uintptr_t>(region.address)));
  const auto its =
      std::find_if(begin, end, [&](const auto& one) { return one.second == region.length_bytes; });
  if (its != end) registered_.erase(its);
  below_.deregister_memory(region);
}

/// Regions may overlap where they have one key. The nearest one that begins before is nearly always it.
bool CheckedProvider::is_registered(const CheckedWritten& written) const noexcept {
  constexpr int kMostLooks = 64;
  auto next = registered_.upper_bound(std::pair(written.remote_key, written.address));
  for (int looks = 0; looks < kMostLooks && next != registered_.begin(); ++looks) {
    --next;
    const auto& [key, address] = next->first;
    if (key != written.remote_key) return false;
    const std::uint64_t at = written.address - address;
    if (at <= next->second && written.length_bytes <= next->second - at) return true;
  }
  return false;
}

// The sender's side

std::uint32_t CheckedProvider::index_of_write(const Write& write) const noexcept {
  return static_cast<std::uint32_t>(&write - writes_.data());
}

/// It is over. Not in the peer's list of stalled ones.
void CheckedProvider::finish(Write& write, Status status, Sink& sink) noexcept {
  const PeerId peer = write.peer->id;
  const WorkId work = write.work;
  write.state = Write::State::kFree;
  write.next = std::exchange(free_write_, index_of_write(write));
  sink.on_write_done(peer, work, status);
}

/// It goes on in poll().
void CheckedProvider::stall(Write& write, Write::State state) noexcept {
  CheckedEndpoint& peer = *write.peer;
  const std::uint32_t index = index_of_write(write);
  write.state = state;
  write.next = kNoWrite;
  (peer.first_stalled == kNoWrite ? peer.first_stalled : writes_[peer.last_stalled].next) = index;
  peer.last_stalled = index;
  attend_to(peer);
}

Status CheckedProvider::no_room_for_write() noexcept {
  lacked_write_ = true;
  return Status::kAgain;
}

Status CheckedProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                              const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                              WorkId work) noexcept {
  CheckedEndpoint& peer = of(endpoint);
  if (peer.state == PeerState::kDown) return Status::kPeerFailed;
  if (free_write_ == kNoWrite) return no_room_for_write();
  Write& write = writes_[free_write_];
  const Status status = below_.write(*peer.below, source, length_bytes, region, destination, immediate,
                                     WorkId{index_of_write(write)});
  if (status == Status::kAgain) return no_room_for_write();
  if (status != Status::kOk) return status;
  free_write_ = write.next;
  // While the device copies.
  write = {Write::State::kPosted,           &peer, source, length_bytes, region, destination, immediate, work,
           checksum({source, length_bytes})};
  return Status::kOk;
}

/// The provider below has done a write.
void CheckedProvider::on_write_done(PeerId, WorkId work, Status status, Sink& sink) noexcept {
  Write& write = writes_[static_cast<std::size_t>(work)];
  assert(write.state == Write::State::kPosted);
  if (status != Status::kOk) return finish(write, status, sink);
  stall(write, Write::State::kComplete);
}

bool CheckedProvider::tell_of(CheckedEndpoint& peer, const Write& write) noexcept {
  const CheckedWritten written{
      write.destination.address,   static_cast<std::uint64_t>(write.destination.remote_key),
      write.length_bytes,          static_cast<std::uint32_t>(write.immediate),
      index_of_write(write),       write.checksum,
      write.changes > kMostChanges};
  return send_numbered(peer, Kind::kWritten, written);
}

Status CheckedProvider::post_again(CheckedEndpoint& peer, Write& write) noexcept {
  const Status status = below_.write(*peer.below, write.source, write.length_bytes, write.region,
                                     write.destination, write.immediate, WorkId{index_of_write(write)});
  if (status != Status::kOk) return status;
  ++sent_again_;
  const std::uint32_t now = checksum({write.source, write.length_bytes});
  write.changes += std::exchange(write.checksum, now) != now;
  return status;
}

/// Tells the peer of writes that are complete, and repeats those that were wrong, in their order.
void CheckedProvider::go_on_writing(CheckedEndpoint& peer, Sink& sink) noexcept {
  while (peer.first_stalled != kNoWrite) {
    Write& write = writes_[peer.first_stalled];
    Status status = Status::kOk;
    Write::State next = Write::State::kTold;
    if (write.state == Write::State::kComplete) {
      if (!tell_of(peer, write)) return;
    } else {
      status = post_again(peer, write);
      if (status == Status::kAgain || status == Status::kPeerFailed) return;
      next = Write::State::kPosted;
    }
    peer.first_stalled = write.next;
    write.state = next;
    if (status != Status::kOk) finish(write, status, sink);
  }
}

void CheckedProvider::on_answer(CheckedEndpoint& peer, Kind kind, const CheckedAnswer& answer,
                                Sink& sink) noexcept {
  if (answer.write >= kMostWrites || writes_[answer.write].state != Write::State::kTold ||
      writes_[answer.write].peer != &peer)
    return fail(peer, "it has answered a write that it was not told of");
  Write& write = writes_[answer.write];
  if (kind == Kind::kRight) return finish(write, Status::kOk, sink);
  if (++write.wrong > kMostWrong) return fail(peer, "all that is written to it is damaged");
  stall(write, Write::State::kMustRepeat);
}

// The receiver's side

void CheckedProvider::on_write_arrived(CheckedEndpoint& peer, Immediate immediate, std::size_t length_bytes,
                                       Sink& sink) noexcept {
  if (peer.state != PeerState::kUp) return;
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

/// Writes of which all has come and of which the peer has told. Of several with one immediate, one may be
/// looked at when only as much of another one has come; what is wrong then comes again.
void CheckedProvider::look_at_writes(CheckedEndpoint& peer, Immediate immediate, Sink& sink) noexcept {
  const auto arrived = std::ranges::find(peer.arrived, immediate, &CheckedEndpoint::Arrived::immediate);
  if (arrived == peer.arrived.end()) return;
  for (CheckedEndpoint::Told& told : peer.writes) {
    if (told.answer || Immediate{told.what.immediate} != immediate) continue;
    if (arrived->length_bytes < told.what.length_bytes) continue;
    arrived->length_bytes -= told.what.length_bytes;
    const bool is_last = arrived->length_bytes == 0;
    if (is_last) {
      *arrived = peer.arrived.back();
      peer.arrived.pop_back();
    }
    const bool right = is_right(peer, told.what, sink);
    told.answer = right ? Kind::kRight : Kind::kWrong;
    ++peer.unanswered;
    attend_to(peer);
    if (right)
      sink.on_write_arrived(peer.id, immediate, static_cast<std::size_t>(told.what.length_bytes));
    else
      on_damage(peer, "a write");
    if (is_last) return;
  }
}

/// What was written is what the sender has. Memory that nobody has granted for it is not looked at: the sink
/// judges who writes there.
bool CheckedProvider::is_right(const CheckedEndpoint& peer, const CheckedWritten& written,
                               const Sink& sink) const noexcept {
  if (written.is_changing != 0 || !is_registered(written)) return true;
  const std::span memory(reinterpret_cast<const std::byte*>(written.address),
                         static_cast<std::size_t>(written.length_bytes));
  if (!sink.is_landing(peer.id, Immediate{written.immediate}, memory.data(), memory.size())) return true;
  return !is_mapped(written.address, written.length_bytes) || checksum(memory) == written.checksum;
}

void CheckedProvider::answer_writes(CheckedEndpoint& peer) noexcept {
  std::erase_if(peer.writes, [&](const CheckedEndpoint::Told& told) {
    if (!told.answer || !send_numbered(peer, *told.answer, CheckedAnswer{told.what.write})) return false;
    --peer.unanswered;
    return true;
  });
}

}  // namespace ch3_offload
