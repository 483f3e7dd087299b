// Writes: a copy by the kernel into the peer's memory, or one half by each process. See bulk_copy.h and
// shared_write.h.
//
// No function here allocates or takes a lock. Each copy is a system call.

#include <cerrno>
#include <cstring>
#include <utility>

#include "rdma/shm/bulk_copy.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload {
namespace {

constexpr const char* kCannotRead = "it cannot read this process's memory";

/// Room for the records of a write: an offer, and what says that the write is in place.
constexpr std::size_t kWriteRoomBytes = record_bytes(sizeof(SharedWriteRecord)) + sizeof(WriteRecord);
static_assert(record_bytes(kWriteRoomBytes) ==
              record_bytes(sizeof(SharedWriteRecord)) + record_bytes(sizeof(WriteRecord)));

/// The front half of a shared write. It ends at the end of a page of the destination, so that no page is
/// pinned by both processes.
std::size_t front_half(std::uint64_t destination, std::size_t length_bytes) noexcept {
  return ((destination + length_bytes / 2) & ~std::uint64_t{kLeastPageBytes - 1}) - destination;
}
static_assert(kLeastSharedBytes >= 2 * kLeastPageBytes, "no half is empty");

}  // namespace

WriteTerms ShmProvider::write_terms(Endpoint& endpoint) noexcept {
  const bool is_chosen = capabilities_.writes_by_copying && capabilities_.write_threshold_bytes != SIZE_MAX;
  return {nullptr, capabilities_.write_threshold_bytes, is_chosen ? &of(endpoint).choice : nullptr};
}

/// Streams all further payload for this peer. Logs `why`, once for all peers; nullptr: does not log.
Status ShmProvider::refuse_write(ShmEndpoint& peer, const char* why, LogScope scope) noexcept {
  peer.write_refused = true;
  if (why != nullptr && !write_refusal_logged_) {
    write_refusal_logged_ = true;
    log_(scope, "shm: process_vm_writev to peer %u refused: %s; using streamed copies", index_of(peer.id),
         why);
  }
  return Status::kUnsupported;
}

Status ShmProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                          const MemoryRegion&, RemoteMemory destination, Immediate immediate,
                          WorkId work) noexcept {
  ShmEndpoint& peer = of(endpoint);
  if (peer.sending != Status::kOk) return peer.sending;
  if (!capabilities_.write || peer.write_refused) return Status::kUnsupported;
  if (writes_done_end_ - writes_done_begin_ == kMostWritesDone) return Status::kAgain;
  // The peer still copies its half of the last one. Two halves at a time are faster than a whole now.
  if (peer.shares_write && length_bytes >= kLeastSharedBytes) return Status::kAgain;
  if (!find_room(peer, kWriteRoomBytes)) {
    if (const Status status = no_room(peer, kWriteRoomBytes); status != Status::kOk) return status;
  }
  // The pid is known only after the connection was made, which waits for room in the listener's backlog.
  if (peer.out_file.valid() || peer.awaits_connection) return Status::kAgain;
  const bool shared = may_share(peer, length_bytes);
  const std::size_t front_bytes = shared ? front_half(destination.address, length_bytes) : length_bytes;
  if (shared) offer_back(peer, source, length_bytes, front_bytes, immediate);
  auto back = shared ? SharedWriteWord::Back::kTheirs : SharedWriteWord::Back::kWhole;
  RemoteCopy result = RemoteCopy::kGone;
  peer.out.begin_copy();
  // The pid of an ended process may be reused. Its socket was closed before that, so check the socket first.
  const Presence presence = presence_of(peer);
  if (presence == Presence::kThere)
    result = peer.pid <= 0 ? RemoteCopy::kRefused
                           : copy_to_process(peer.pid, destination.address, source, front_bytes);
  if (shared && result == RemoteCopy::kDone) back = peer.out.shared_write().front_done();
  if (shared && result != RemoteCopy::kDone) peer.out.shared_write().front_failed();
  if (back == SharedWriteWord::Back::kFailed) peer.share_refused = true;
  if (back == SharedWriteWord::Back::kMine || back == SharedWriteWord::Back::kFailed)
    result = copy_to_process(peer.pid, destination.address + front_bytes, source + front_bytes,
                             length_bytes - front_bytes);
  const int copy_error = errno;
  peer.out.end_copy();
  if (presence == Presence::kUnknown) return Status::kAgain;
  switch (result) {
    case RemoteCopy::kDone: break;
    case RemoteCopy::kGone: return Status::kPeerFailed;
    case RemoteCopy::kFault:
      // Memory that the kernel cannot access (a device's) is legitimate. A wrong address harms only its
      // owner.
      return refuse_write(peer, "the kernel cannot reach its memory", LogScope::kProcess);
    case RemoteCopy::kRefused:
      if (peer.pid <= 0) return refuse_write(peer, "it is in another pid namespace", LogScope::kNode);
      // ESRCH: the process is ending, or its first thread has ended. No setting is wrong, so do not log.
      return refuse_write(peer, copy_error == ESRCH ? nullptr : std::strerror(copy_error), LogScope::kNode);
  }
  if (back == SharedWriteWord::Back::kTheirs) {
    await_back(peer, work);
    return Status::kOk;
  }
  const WriteRecord record{static_cast<std::uint32_t>(immediate), 0, length_bytes};
  std::memcpy(peer.out.payload(), &record, sizeof record);
  publish(peer, RecordKind::kWrite, sizeof record);
  writes_done_[writes_done_end_++ % kMostWritesDone] = {peer.id, work};
  wake_sleeper(true);
  return Status::kOk;
}

/// Whether the peer's process is there and has not hung up, as the connections say. kUnknown: the peer may
/// have closed the one that this process made, and housekeeping will find out: RULE ONE CONNECTION. The
/// peer hangs up on the connection that stays first.
ShmProvider::Presence ShmProvider::presence_of(const ShmEndpoint& peer) noexcept {
  if (peer.dying) return Presence::kGone;
  if (peer.out_socket.valid() && !has_hung_up(peer.out_socket)) return Presence::kThere;
  if (peer.out_socket.valid() && !peer_keeps_its_connection(peer)) return Presence::kGone;
  if (!peer.in_socket.valid()) return Presence::kUnknown;
  return has_hung_up(peer.in_socket) ? Presence::kGone : Presence::kThere;
}

/// Whether the peer may be offered the back half of a write.
bool ShmProvider::may_share(ShmEndpoint& peer, std::size_t length_bytes) noexcept {
  return length_bytes >= kLeastSharedBytes && peer.pid > 0 && !peer.dying && !peer.share_refused &&
         peer.out.is_consumed(peer.offer_end);
}

void ShmProvider::offer_back(ShmEndpoint& peer, const std::byte* source, std::size_t length_bytes,
                             std::size_t front_bytes, Immediate immediate) noexcept {
  const SharedWriteRecord offer{static_cast<std::uint32_t>(immediate), 0, length_bytes, front_bytes,
                                reinterpret_cast<std::uint64_t>(source + front_bytes)};
  std::memcpy(peer.out.payload(), &offer, sizeof offer);
  peer.out.shared_write().offer();
  publish(peer, RecordKind::kSharedWrite, sizeof offer);
  peer.offer_end = peer.out.position();
}

/// The peer still copies the back half: poll() finishes the write.
void ShmProvider::await_back(ShmEndpoint& peer, WorkId work) noexcept {
  peer.shares_write = true;
  peer.shared_work = work;
  peer.next_sharing = std::exchange(sharing_, &peer);
  // During a sleep, arm() has already looked: "The sleep rule".
  if (armed_ && shared_write_ended(true)) wake_sleeper(true);
}

/// Whether a peer has ended its copy. `announce`: asks for a wake-up first, of all peers that have not.
bool ShmProvider::shared_write_ended(bool announce) noexcept {
  bool ended = false;
  for (ShmEndpoint* peer = sharing_; peer != nullptr; peer = peer->next_sharing) {
    if (announce) peer->out.announce_waiting();
    ended |= peer->out.shared_write().outcome() != SharedWriteWord::Back::kTheirs;
  }
  return ended;
}

/// Also ends the writes to dying peers.
std::size_t ShmProvider::deliver_shared_done(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  for (ShmEndpoint** link = &sharing_; *link != nullptr && delivered < budget;) {
    ShmEndpoint& peer = **link;
    const SharedWriteWord::Back back =
        peer.dying ? peer.out.shared_write().withdraw() : peer.out.shared_write().outcome();
    if (back == SharedWriteWord::Back::kTheirs && !peer.dying) {
      link = &peer.next_sharing;
      continue;
    }
    *link = peer.next_sharing;
    peer.shares_write = false;
    Status status = Status::kOk;
    if (back == SharedWriteWord::Back::kTheirs) status = Status::kPeerFailed;
    if (back == SharedWriteWord::Back::kFailed) status = refuse_write(peer, kCannotRead, LogScope::kProcess);
    sink.on_write_done(peer.id, peer.shared_work, status);
    ++delivered;
  }
  return delivered;
}

/// Copies the back half of a peer's write, unless the peer has kept it or this process cannot. Takes the
/// record of the offer.
void ShmProvider::take_back(ShmEndpoint& peer, RingConsumer& ring, const RingConsumer::Record& record,
                            const SharedWriteRecord& offer, Sink& sink) noexcept {
  const Immediate immediate{offer.immediate};
  std::byte* landing = nullptr;
  if (peer.pid > 0 && !peer.read_refused && !peer.dying)
    landing = sink.on_write_shared(peer.id, immediate, offer.length_bytes);
  SharedWriteWord word = ring.shared_write();
  if (landing == nullptr || !word.take()) return ring.advance(record);
  const RemoteCopy result = copy_from_process(peer.pid, offer.back_address, landing + offer.front_bytes,
                                              offer.length_bytes - offer.front_bytes);
  // The peer makes its next offer as soon as this one is over, if it has been consumed.
  ring.advance(record);
  if (ring.release()) wake_sender(peer);
  // The pid of an ended process may be reused. Its socket was closed before that: here before the look.
  if (result != RemoteCopy::kDone || has_hung_up(peer.watched_socket())) {
    peer.read_refused = true;
    return word.back_failed();
  }
  if (word.back_done()) sink.on_write_arrived(peer.id, immediate, offer.length_bytes);
}

std::size_t ShmProvider::deliver_write_done(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  for (; delivered < budget && writes_done_begin_ != writes_done_end_; ++delivered) {
    const WriteDone done = writes_done_[writes_done_begin_++ % kMostWritesDone];
    sink.on_write_done(done.peer, done.work, Status::kOk);
  }
  return delivered;
}

}  // namespace ch3_offload
