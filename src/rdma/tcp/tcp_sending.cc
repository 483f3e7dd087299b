// What leaves. See tcp_provider.h.

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <numeric>
#include <utility>

#include "rdma/cycle_clock.h"
#include "rdma/tcp/tcp_provider.h"

namespace ch3_offload {
namespace {

/// In one call; the rest leaves in the next polls.
constexpr std::size_t kMostAtOnceBytes = std::size_t{1} << 22;

}  // namespace

Status TcpProvider::reserve(Endpoint& endpoint, std::size_t length_bytes,
                            std::span<std::byte>& slot) noexcept {
  TcpEndpoint& peer = of(endpoint);
  assert(length_bytes >= 1 && length_bytes <= max_slot_bytes(endpoint));
  if (peer.is_over()) return Status::kPeerFailed;
  slot = peer.outbox->reserve(length_bytes);
  if (!slot.empty()) return Status::kOk;
  if (peer.has_part) {
    flush(peer);
    slot = peer.outbox->reserve(length_bytes);
    if (!slot.empty()) return Status::kOk;
  }
  note_lack(peer, peer.lacks_slot);
  return Status::kAgain;
}

void TcpProvider::commit(Endpoint& endpoint, std::size_t length_bytes) noexcept {
  TcpEndpoint& peer = of(endpoint);
  peer.outbox->commit(length_bytes);
  flush(peer);
}

void TcpProvider::commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept {
  if (armed_) return commit(endpoint, length_bytes);
  TcpEndpoint& peer = of(endpoint);
  peer.outbox->commit(length_bytes);
  if (!std::exchange(peer.has_part, true)) with_parts_.push_back(&peer);
}

void TcpProvider::flush_parts() noexcept {
  for (TcpEndpoint* const peer : with_parts_) {
    peer->has_part = false;
    if (!peer->outbox->empty()) flush(*peer);
  }
  with_parts_.clear();
}

Status TcpProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                          const MemoryRegion&, RemoteMemory destination, Immediate immediate,
                          WorkId work) noexcept {
  TcpEndpoint& peer = of(endpoint);
  if (peer.is_over()) return Status::kPeerFailed;
  if (peer.outbox->write_room() == 0) {
    note_lack(peer, peer.lacks_write);
    return Status::kAgain;
  }
  peer.outbox->add({source, length_bytes, destination, immediate, work});
  flush(peer);
  return Status::kOk;
}

/// Sends what there is, as far as the socket takes it.
void TcpProvider::flush(TcpEndpoint& peer) noexcept {
  if (peer.state != State::kUp || peer.send_error != 0) return;
  busy_at_ = CycleClock::now();
  next_look_ = 0;
  if (peer.is_blocked) return;
  std::size_t sent_bytes = 0;
  while (!peer.outbox->empty()) {
    const std::span<iovec> pieces = peer.outbox->next();
    const std::size_t wanted_bytes =
        std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                        [](std::size_t sum, const iovec& piece) { return sum + piece.iov_len; });
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t sent = ::sendmsg(peer.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
      // What had arrived is read first: then the connection's end is seen.
      peer.send_error = errno;
      ::shutdown(peer.socket.get(), SHUT_RDWR);
      peer.outbox->drop_messages();
      wake_soon();
      return;
    }
    const std::size_t left_bytes = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    peer.outbox->left(left_bytes);
    sent_bytes += left_bytes;
    if (peer.outbox->has_done_writes()) note_done(peer);
    if (left_bytes < wanted_bytes || (sent_bytes >= kMostAtOnceBytes && !peer.outbox->empty()))
      return watch_for_room(peer, true);
  }
}

void TcpProvider::watch_for_room(TcpEndpoint& peer, bool is_blocked) noexcept {
  if (peer.is_blocked == is_blocked) return;
  peer.is_blocked = is_blocked;
  is_blocked ? ++blocked_ : --blocked_;
  epoll_event event{};
  event.events = EPOLLIN | (is_blocked ? static_cast<std::uint32_t>(EPOLLOUT) : 0);
  event.data.ptr = &peer;
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.socket.get(), &event));
}

/// `what`: lacks_slot or lacks_write of the peer.
void TcpProvider::note_lack(TcpEndpoint& peer, bool& what) noexcept {
  if (!peer.lacks_slot && !peer.lacks_write) lacking_.push_back(&peer);
  what = true;
}

/// After arm(): room that was lacking is an event.
std::size_t TcpProvider::tell_room() noexcept {
  return std::erase_if(lacking_, [](TcpEndpoint* peer) {
    const bool has_room = (peer->lacks_slot && peer->outbox->has_room()) ||
                          (peer->lacks_write && peer->outbox->write_room() > 0);
    if (has_room) peer->lacks_slot = peer->lacks_write = false;
    return has_room;
  });
}

void TcpProvider::note_done(TcpEndpoint& peer) noexcept {
  if (std::exchange(peer.has_done, true)) return;
  done_.push_back(&peer);
  wake_soon();
}

/// Of those that have left until now. The sink may begin others.
void TcpProvider::tell_done() noexcept {
  const std::size_t count = done_.size();
  for (std::size_t i = 0; i < count; ++i) {
    done_[i]->has_done = false;
    tell_writes(*done_[i]);
  }
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
}

/// Those that have left; of a peer that is dying, the others, too.
void TcpProvider::tell_writes(TcpEndpoint& peer) noexcept {
  while (const TcpOutbox::Write* const write = peer.outbox->done_write(peer.is_over())) {
    const Status status = peer.outbox->has_done_writes() ? Status::kOk : Status::kPeerFailed;
    const WorkId work = write->work;
    peer.outbox->pop_write();
    ++found_;
    sink_->on_write_done(peer.id, work, status);
  }
}

}  // namespace ch3_offload
