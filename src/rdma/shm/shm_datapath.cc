// Moving data: reserve, commit, write, poll, arm. See shm_provider.h.
//
// On an established connection nothing here allocates or locks, and nothing makes a system call but
// waking a sleeper, the periodic housekeeping of an idle poll, and write().

#include <sys/poll.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#include "rdma/cycle_clock.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload {
namespace {

/// Rings that one poll looks at besides the last one hit: bounds the cost of a poll at any number of
/// local peers.
constexpr std::size_t kRingsPerPoll = 8;

/// A busy poller reads the clock at every so many polls, so that newcomers are not starved.
constexpr std::uint32_t kBusyPollsPerClock = 256;

/// Space is returned at the end of a batch, and inside one when this share of the ring came together.
constexpr std::size_t kReleasesPerRing = 16;

/// Whether the process at the other end has closed the socket. One system call.
bool hung_up(const FileDescriptor& socket) noexcept {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;  // Not when a signal came in between.
}

}  // namespace

Status ShmProvider::register_memory(void* address, std::size_t length_bytes, Access,
                                    MemoryRegion& region) noexcept {
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{}, 0};
  return Status::kOk;  // The kernel checks every access of process_vm_writev itself.
}

void ShmProvider::deregister_memory(MemoryRegion& region) noexcept { region = {}; }

Status ShmProvider::reserve(PeerId id, std::size_t length_bytes, std::span<std::byte>& slot) noexcept {
  Peer* peer = find(id);
  if (peer == nullptr) [[unlikely]]
    return Status::kUnreachable;
  if (peer->sending != Status::kOk) [[unlikely]]
    return peer->sending;
  assert(length_bytes >= 1 && length_bytes <= capabilities_.max_slot_bytes);
  if (!peer->out.has_room(length_bytes)) [[unlikely]] {
    if (const Status status = no_room(*peer, length_bytes); status != Status::kOk) return status;
  }
  slot = {peer->out.payload(), length_bytes};
  return Status::kOk;
}

void ShmProvider::commit(PeerId id, std::size_t length_bytes) noexcept {
  Peer* peer = find(id);
  assert(peer != nullptr && length_bytes >= 1);
  publish(*peer, RecordKind::kMessage, length_bytes);
}

/// The only place that rings a doorbell for a record: "The sleep rule".
void ShmProvider::publish(Peer& peer, RecordKind kind, std::size_t payload_bytes) noexcept {
  peer.out.publish(kind, payload_bytes);
  if (peer.doorbell.must_ring()) [[unlikely]]
    send_wake_byte(peer.out_socket);
}

/// Remembers what waits for room, for arm(). kOk: there is room after all; kAgain otherwise.
Status ShmProvider::no_room(Peer& peer, std::size_t payload_bytes) noexcept {
  // During a sleep nobody looks at blocked_ before a wake-up comes: ask for it now ("The sleep rule").
  if (armed_ && !peer.out.broken()) {
    peer.out.announce_waiting();
    if (peer.out.has_room_for_sure(payload_bytes)) return Status::kOk;
  }
  if (peer.out.broken()) start_dying(peer, Status::kProtocol);
  peer.wanted_bytes = payload_bytes;
  if (!peer.in_blocked) {
    peer.in_blocked = true;
    peer.next_blocked = blocked_;
    blocked_ = &peer;
  }
  return Status::kAgain;
}

/// From now on this peer's payload is streamed. Logs `why` once; nullptr: nobody need know.
Status ShmProvider::refuse_write(Peer& peer, const char* why) noexcept {
  peer.write_refused = true;
  if (why != nullptr && !write_refusal_logged_) {
    write_refusal_logged_ = true;
    log("shm: process_vm_writev to peer %u refused: %s; using streamed copies", index_of(peer.id), why);
  }
  return Status::kUnsupported;
}

Status ShmProvider::write(PeerId id, const std::byte* source, std::size_t length_bytes, const MemoryRegion&,
                          RemoteMemory destination, Immediate immediate, WorkId work) noexcept {
  Peer* peer = find(id);
  if (peer == nullptr) return Status::kUnreachable;
  if (peer->sending != Status::kOk) return peer->sending;
  if (!capabilities_.write || peer->write_refused) return Status::kUnsupported;
  if (writes_done_end_ - writes_done_begin_ == kMostWritesDone) return Status::kAgain;
  if (!peer->out.has_room(sizeof(WriteRecord))) {
    if (const Status status = no_room(*peer, sizeof(WriteRecord)); status != Status::kOk) return status;
  }
  // Connected later, when the listener has room: only then the pid is known.
  if (peer->out_file.valid()) return Status::kAgain;
  // The pid of a process that ended may be another's soon; its socket was closed before that. While the
  // peer is dying, ours is.
  if (peer->dying || hung_up(peer->out_socket)) return Status::kPeerFailed;
  const RemoteCopy result = peer->pid <= 0
                                ? RemoteCopy::kRefused
                                : copy_to_process(peer->pid, destination.address, source, length_bytes);
  switch (result) {
    case RemoteCopy::kDone: break;
    case RemoteCopy::kGone: return Status::kPeerFailed;
    case RemoteCopy::kFault:
      // Memory that the kernel cannot pin (a device's) is legitimate; a false address harms its owner only.
      return refuse_write(*peer, "the kernel cannot reach its memory");
    case RemoteCopy::kRefused:
      if (peer->pid <= 0) return refuse_write(*peer, "it is in another pid namespace");
      // ESRCH: it is about to end, or its first thread did; no setting forbids it.
      return refuse_write(*peer, errno == ESRCH ? nullptr : std::strerror(errno));
  }
  const WriteRecord record{static_cast<std::uint32_t>(immediate), 0, length_bytes};
  std::memcpy(peer->out.payload(), &record, sizeof record);
  publish(*peer, RecordKind::kWrite, sizeof record);
  writes_done_[writes_done_end_++ % kMostWritesDone] = {id, work};
  wake_sleeper(true);
  return Status::kOk;
}

std::size_t ShmProvider::poll(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  if (writes_done_begin_ != writes_done_end_) delivered += deliver_write_done(sink, budget);
  if (!dying_.empty()) [[unlikely]]
    delivered += deliver_deaths(sink, budget - std::min(budget, delivered));
  delivered += poll_rings(sink, budget - std::min(budget, delivered));

  if (armed_) [[unlikely]] {
    // "The sleep rule": a wake-up that is read here must not hide a record in a ring not looked at, nor
    // room that somebody waits for: it answered all announcements, perhaps with less than was wanted.
    if (keep_house()) {
      doorbell_.announce_sleep();
      if (blocked_peer_has_room()) ++delivered;
    }
    if (delivered < budget) delivered += poll_all_rings(sink, budget - delivered);
    if (!dying_.empty() && delivered < budget) delivered += deliver_deaths(sink, budget - delivered);
    return delivered;
  }
  if (delivered == 0 || ++busy_polls_ >= kBusyPollsPerClock) {
    busy_polls_ = 0;
    const std::uint64_t now = CycleClock::now();
    if (now - last_housekeeping_ >= CycleClock::kAbout20Microseconds) [[unlikely]] {
      last_housekeeping_ = now;
      static_cast<void>(keep_house());
    }
  }
  return delivered;
}

/// The ring that was hit last, then some of the others in turn.
std::size_t ShmProvider::poll_rings(Sink& sink, std::size_t budget) noexcept {
  const std::size_t count = inbound_.size();
  if (count == 0 || budget == 0) return 0;
  std::size_t delivered = 0;
  if (last_hit_ >= count) last_hit_ = 0;
  if (inbound_[last_hit_].ring.header() != 0) {
    delivered = consume(inbound_[last_hit_], sink, budget);
    if (delivered >= budget) {  // It may have more for ever: others come first next time.
      last_hit_ = last_hit_ + 1 < count ? last_hit_ + 1 : 0;
      return delivered;
    }
  }
  const std::size_t looks = std::min(kRingsPerPoll, count - 1);
  for (std::size_t i = 0; i < looks && delivered < budget; ++i) {
    next_polled_ = next_polled_ + 1 < count ? next_polled_ + 1 : 0;
    if (inbound_[next_polled_].ring.header() == 0) continue;
    last_hit_ = next_polled_;
    delivered += consume(inbound_[next_polled_], sink, budget - delivered);
  }
  return delivered;
}

std::size_t ShmProvider::poll_all_rings(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  for (std::size_t i = 0; i < inbound_.size() && delivered < budget; ++i)
    if (inbound_[i].ring.header(std::memory_order_seq_cst) != 0)
      delivered += consume(inbound_[i], sink, budget - delivered);
  return delivered;
}

/// There is room again. Before the Welcome it must not be said; send_welcome() does it then.
void ShmProvider::wake_sender(const Peer& peer) noexcept {
  if (!peer.welcome_due) send_wake_byte(peer.in_socket);
}

/// Delivers what one ring holds, at most `budget` records.
std::size_t ShmProvider::consume(Inbound& inbound, Sink& sink, std::size_t budget) noexcept {
  RingConsumer& ring = inbound.ring;
  Peer& peer = *inbound.peer;
  const std::size_t release_bytes = ring.ring_bytes() / kReleasesPerRing;
  std::size_t delivered = 0;
  for (; delivered < budget; ++delivered) {
    const std::uint64_t header = ring.header();  // Loaded once: the peer may change it.
    if (header == 0) break;
    RingConsumer::Record record;
    if (peer.reason == Status::kProtocol || !ring.parse(header, record)) [[unlikely]] {
      start_dying(peer, Status::kProtocol);
      break;
    }
    if (record.kind == RecordKind::kMessage) {
      sink.on_message(peer.id, record.payload);
    } else {
      WriteRecord write;
      std::memcpy(&write, record.payload.data(), sizeof write);
      sink.on_write_arrived(peer.id, Immediate{write.immediate}, write.length_bytes);
    }
    ring.advance(record);
    if (ring.unreleased_bytes() >= release_bytes && ring.release()) wake_sender(peer);
  }
  if (ring.unreleased_bytes() != 0 && ring.release()) wake_sender(peer);
  return delivered;
}

std::size_t ShmProvider::deliver_write_done(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  for (; delivered < budget && writes_done_begin_ != writes_done_end_; ++delivered) {
    const WriteDone done = writes_done_[writes_done_begin_++ % kMostWritesDone];
    sink.on_write_done(done.peer, done.work, Status::kOk);
  }
  return delivered;
}

bool ShmProvider::arm() noexcept {
  armed_ = true;
  doorbell_.announce_sleep();  // "The sleep rule": announce, then look everywhere.
  if (writes_done_begin_ != writes_done_end_ || !dying_.empty() || !connecting_.empty()) return false;
  for (const Inbound& inbound : inbound_)
    if (inbound.ring.header(std::memory_order_seq_cst) != 0) return false;
  if (is_short_) wake_sleeper(false);
  return !blocked_peer_has_room();
}

/// Asks every full ring's consumer for a wake-up; true when one has room after all. Visits all of them
/// even then: the caller may be another thread than the sleeper, which goes on sleeping.
bool ShmProvider::blocked_peer_has_room() noexcept {
  bool found = false;
  for (Peer** link = &blocked_; *link != nullptr;) {
    Peer& peer = **link;
    bool waits = !peer.down && !peer.dying;
    if (waits) {
      peer.out.announce_waiting();
      if (peer.out.has_room_for_sure(peer.wanted_bytes)) waits = false;
    }
    if (waits) {
      link = &peer.next_blocked;
      continue;
    }
    *link = peer.next_blocked;
    peer.in_blocked = false;
    found |= !peer.down && !peer.dying;
  }
  return found;
}

void ShmProvider::disarm() noexcept {
  if (!armed_) return;
  armed_ = false;
  doorbell_.announce_awake();
  last_housekeeping_ = 0;  // What woke us may be waiting in a socket.
}

}  // namespace ch3_offload
