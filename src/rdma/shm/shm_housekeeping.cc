// Accepting connections, the handshake, and detecting deaths. See shm_provider.h.
//
// Not on the message path: the functions may allocate and make system calls, but never block. A process is
// not trusted until its Hello was checked.

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "rdma/monotonic_clock.h"
#include "rdma/shm/shm_provider.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr int kMostAcceptedAtOnce = 4096;  ///< A process that connects without end must not block us.

/// The longest time that a copy may take. A peer that claims to copy for longer violates the protocol; its
/// end is then reported nevertheless.
constexpr std::uint64_t kLongestCopyNs = 10'000'000'000;

/// The names by which the sender of a Hello is answered.
PeerNames names_in(const Hello& hello) noexcept { return {PeerId{hello.known_as}, PeerId{hello.own}}; }

/// Returns the mapping that `map` makes, or an invalid one if that fails, also for want of memory for its
/// error.
template <class Map>
Mapping mapping_or_none(Map map) noexcept {
  try {
    Result<Mapping> memory = map();
    if (memory.ok()) return std::move(memory.value());
  } catch (const std::bad_alloc&) {
  }
  return {};
}

}  // namespace

bool ShmProvider::watch(const FileDescriptor& descriptor, WatchKind kind, std::uint32_t index) noexcept {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = std::uint64_t{static_cast<std::uint32_t>(kind)} << 32 | index;
  // EEXIST: a newcomer's socket, which is watched already, becomes a peer's.
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor.get(), &event) == 0 ||
         (errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor.get(), &event) == 0);
}

void ShmProvider::unwatch(const FileDescriptor& descriptor) noexcept {
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor.get(), nullptr));
}

/// Stops watching a socket and closes it. Closing is not enough: if a child holds the socket, too (of a fork
/// by a system call), it would stay in epoll's set.
void ShmProvider::close_watched(ForkClosedDescriptor& descriptor) noexcept {
  if (!descriptor.valid()) return;
  unwatch(descriptor);
  descriptor.reset();
}

/// During a sleep: wakes the sleeper for work that no socket reports. `now`: at once; otherwise after the
/// time until the next retry.
void ShmProvider::wake_sleeper(bool now) noexcept {
  if (!armed_) return;
  constexpr long kRetryNs = 10'000'000;
  itimerspec time{};
  time.it_value.tv_nsec = now ? 1 : kRetryNs;
  static_cast<void>(::timerfd_settime(alarm_.get(), 0, &time, nullptr));
}

/// Handles the events of all sockets, and retries. Returns true if it read a wake-up.
bool ShmProvider::keep_house() noexcept {
  if (!connecting_.empty()) retry_connecting();
  for (FileDescriptor& spare : spares_)
    if (!spare.valid()) spare = duplicate(epoll_);
  if (is_short_) retry_what_ran_short();
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool woken = false;
  // An event may be stale, because its index was reused in this batch. So a handler must expect to find
  // nothing.
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    const auto index = static_cast<std::uint32_t>(data);
    switch (static_cast<WatchKind>(data >> 32)) {
      case WatchKind::kListener: accept_all(); break;
      case WatchKind::kNewcomer: receive_hello(index); break;
      case WatchKind::kOutbound:
        if (ShmEndpoint* peer = find(PeerId{index})) woken |= receive_from_receiver(*peer);
        break;
      case WatchKind::kInbound:
        if (ShmEndpoint* peer = find(PeerId{index})) woken |= receive_from_sender(*peer);
        break;
      case WatchKind::kAlarm: {
        std::uint64_t expirations;
        static_cast<void>(!::read(alarm_.get(), &expirations, sizeof expirations));
        break;
      }
    }
  }
  // A dying peer may have connected and sent after the listener was read. Accept its connection now, so that
  // its messages are delivered before on_peer_down().
  if (dying_ != nullptr) take_newcomers();
  return std::exchange(may_have_rung_, false) || woken;
}

void ShmProvider::take_newcomers() noexcept {
  accept_all();
  for (std::uint32_t i = 0; i < newcomers_.size(); ++i) receive_hello(i);
}

void ShmProvider::accept_all() noexcept {
  for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
    std::uint32_t index = 0;
    while (index < newcomers_.size() && newcomers_[index].valid()) ++index;
    try {
      if (index == newcomers_.size()) newcomers_.emplace_back();
    } catch (const std::bad_alloc&) {
      return run_short(listener_, ENOMEM);
    }
    int error_number = 0;
    Newcomer newcomer(accept_from(listener_, error_number));
    if (!newcomer.valid()) {
      if (error_number == 0) return;
      return run_short(listener_, error_number);  // The connection waits in the backlog.
    }
    accept_wait_ns_ = 0;
    if (peer_credentials(newcomer).uid != ::geteuid()) {
      refuse("it belongs to another user");
      continue;
    }
    newcomers_[index] = std::move(newcomer);
    receive_hello(index);  // It has usually arrived already.
    if (newcomers_[index].valid() && !is_short_ && !watch(newcomers_[index], WatchKind::kNewcomer, index)) {
      refuse("it cannot be watched");
      newcomers_[index].reset();
    }
  }
}

void ShmProvider::receive_hello(std::uint32_t index) noexcept {
  if (index >= newcomers_.size() || !newcomers_[index].valid()) return;
  if (!make_room_for(newcomers_[index])) return run_short(newcomers_[index], ENOMEM);
  std::array<std::byte, sizeof(Hello)> bytes;
  FileDescriptor ring_file;
  switch (receive_with_files(newcomers_[index], bytes, std::span(&ring_file, 1))) {
    case Receipt::kNothing: return;
    case Receipt::kClosed: return close_watched(newcomers_[index]);
    case Receipt::kWithoutFiles:
    case Receipt::kInvalid: refuse("its first message is malformed"); return close_watched(newcomers_[index]);
    case Receipt::kNoDescriptor: return run_short(newcomers_[index], EMFILE);
    case Receipt::kMessage: break;
  }
  Newcomer socket = std::move(newcomers_[index]);
  Hello hello;
  std::string_view why = check(bytes, hello);
  if (why.empty() && !is_ring_size(hello.ring_bytes)) why = "its ring has an impossible size";
  if (why.empty() && !is_sealed_file(ring_file, ring_file_bytes(hello.ring_bytes)))
    why = "its ring is not a sealed file of the size it says";
  if (why.empty()) {
    const ShmEndpoint* peer = find(PeerId{hello.sender});
    // A dying peer is attached, too, because it connected before it died.
    if (peer != nullptr && peer->down) why = "that process is gone, or was given up";
    if (peer != nullptr && peer->in_memory.valid()) why = "it is connected already";
    if (peer != nullptr && !is_sender_of(*peer, hello))
      why = "it is not the process that this one has connected to";
    if (!peers_.is_current(PeerId{hello.sender})) why = "that process is gone";
    if (free_place() == kMostActivityBits) why = "there are too many";
  }
  // The Hello may have come after make_room_for() looked.
  if (why.empty() && !make_room_for(PeerId{hello.sender})) why = "there is no memory for it";
  if (!why.empty()) {
    close_watched(socket);
    return refuse(why);
  }
  attach(std::move(socket), hello, std::move(ring_file));
}

/// Why the Hello is refused, as far as that can be told from it alone. "": it is not.
std::string_view ShmProvider::check(std::span<const std::byte> bytes, Hello& hello) const noexcept {
  const std::string_view why =
      check_hello(bytes, config_.job_secret, config_.self, config_.peer_limit, hello);
  const bool is_other = why.empty() && slot_of(PeerId{hello.sender}) < config_.first_peer;
  return is_other ? "its number is another provider's" : why;
}

/// Allocates what attach() needs for the sender of the Hello that waits at `newcomer`. The Hello stays there.
/// Returns false if there is no memory.
bool ShmProvider::make_room_for(const Newcomer& newcomer) noexcept {
  std::array<std::byte, sizeof(Hello)> bytes;
  Hello hello;
  if (!peek(newcomer, bytes) || !check(bytes, hello).empty() || !peers_.is_current(PeerId{hello.sender}))
    return true;
  return make_room_for(PeerId{hello.sender});
}

/// In inbound_: for one more ring.
std::size_t ShmProvider::free_place() const noexcept {
  const auto is_free = [](const Inbound& each) { return each.peer == nullptr; };
  return static_cast<std::size_t>(std::ranges::find_if(inbound_, is_free) - inbound_.begin());
}

bool ShmProvider::make_room_for(PeerId sender) noexcept {
  try {
    find_or_make(sender);
    if (inbound_.size() == inbound_.capacity()) inbound_.reserve(2 * inbound_.size() + 8);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

/// Returns false if the peer has another address, or other names, than its Hello says.
bool ShmProvider::is_sender_of(const ShmEndpoint& peer, const Hello& hello) noexcept {
  return !peer.has_address || (peer.address.socket_id == hello.socket_id && peer.names == names_in(hello));
}

/// Adds the ring of a checked newcomer to inbound_, and answers. Its index is that of its activity bit.
void ShmProvider::attach(Newcomer socket, const Hello& hello, FileDescriptor ring_file) noexcept {
  ShmEndpoint& peer = *find(PeerId{hello.sender});
  Mapping memory = mapping_or_none([&] { return map_ring_file(ring_file, hello.ring_bytes); });
  if (!memory.valid() || !watch(socket, WatchKind::kInbound, hello.sender)) {
    close_watched(socket);
    refuse(!memory.valid() ? "there is no memory to map its ring" : "it cannot be watched");
    return start_dying(peer, Status::kNoMemory);  // The engine may wait for this peer.
  }
  peer.address = {address_.node_id, hello.socket_id};
  peer.names = names_in(hello);
  peer.has_address = true;
  peer.is_met |= hello.is_ahead == 0;
  peer.in_memory = std::move(memory);
  if (peer_keeps_its_connection(peer)) peer.chunks = TravellingChunks(peer.in_memory.address(), false);
  peer.in_socket = std::move(socket);
  peer.awaits_connection = false;
  peer.inbound = static_cast<std::uint32_t>(free_place());
  if (peer.inbound == inbound_.size()) inbound_.push_back({});
  inbound_[peer.inbound] = {RingConsumer(ring_in(peer.in_memory), hello.ring_bytes), &peer, {}};
  inbound_[peer.inbound].ring.touch();
  await_travelling(peer);
  look_later_at(peer.inbound);
  if (!doorbell_.wants_bits() && inbound_.size() > kMostRingsWithoutBits) {
    doorbell_.ask_for_bits();
    for (std::uint32_t i = 0; i < inbound_.size(); ++i) look_later_at(i);  // "The sleep rule".
  }
  send_welcome(peer);
}

/// Answers a Hello. If the kernel lacks a resource, housekeeping tries again.
void ShmProvider::send_welcome(ShmEndpoint& peer) noexcept {
  Welcome welcome;
  welcome.activity_bit = peer.inbound;
  const bool was_due = peer.welcome_due;
  peer.welcome_due = false;
  if (!peer.in_socket.valid()) return;
  const std::array files = {doorbell_.file().get(), activity_.file().get()};
  if (send_with_files(peer.in_socket, std::as_bytes(std::span(&welcome, 1)), files)) {
    if (was_due) wake_sender(peer);
    if (peer.sending == Status::kOk && peer_keeps_its_connection(peer)) wake_receiver(peer);
    return close_their_connection(peer);
  }
  // The sender may have died after its Hello. Its records in the ring are still delivered.
  if (errno == EPIPE || errno == ECONNRESET) return;
  peer.welcome_due = true;
  run_short("answering a local connection", errno);
}

/// Reads from the socket of the ring that we send through: first the Welcome, then wake-ups, then the end.
/// Returns true if it read a wake-up.
bool ShmProvider::receive_from_receiver(ShmEndpoint& peer) noexcept {
  if (!peer.out_socket.valid()) return false;
  if (!peer.doorbell.known()) {
    std::array<std::byte, sizeof(Welcome)> bytes;
    std::array<FileDescriptor, 2> files;
    switch (receive_with_files(peer.out_socket, bytes, files)) {
      case Receipt::kNothing: return false;
      case Receipt::kClosed: start_dying(peer, Status::kPeerFailed); return false;
      case Receipt::kWithoutFiles:
      case Receipt::kInvalid: start_dying(peer, Status::kProtocol); return false;
      case Receipt::kNoDescriptor:
        unwatch(peer.out_socket);
        peer.is_unwatched = true;
        run_short("finishing a local connection", EMFILE);
        return false;
      case Receipt::kMessage: break;
    }
    take_welcome(peer, bytes, files);
    return false;
  }
  const WakeBytes result = drain_wake_bytes(peer.out_socket);
  if (result != WakeBytes::kNone && peer.in_memory.valid()) look_later_at(peer.inbound);
  if (result == WakeBytes::kClosed) lose_own_connection(peer);
  return result != WakeBytes::kNone;
}

/// Closes the connection that the peer has made, if the one that this process has made stays: RULE ONE
/// CONNECTION. To be called when a Hello or a Welcome was sent.
void ShmProvider::close_their_connection(ShmEndpoint& peer) noexcept {
  const bool is_connected = peer.out_socket.valid() && !peer.out_file.valid();
  if (!is_connected || !peer.in_socket.valid() || peer.welcome_due || peer.dying ||
      peer_keeps_its_connection(peer))
    return;
  close_watched(peer.in_socket);
  look_later_at(peer.inbound);
  may_have_rung_ = true;
  wake_sleeper(true);
}

/// The connection that this process has made has ended: the peer has, or it keeps its own (RULE ONE
/// CONNECTION).
void ShmProvider::lose_own_connection(ShmEndpoint& peer) noexcept {
  if (!peer_keeps_its_connection(peer)) return start_dying(peer, Status::kPeerFailed);
  close_watched(peer.out_socket);
  if (peer.in_socket.valid() || peer.dying) return;
  take_newcomers();
  if (peer.in_socket.valid() || peer.dying) return;
  if (!cannot_accept_) return start_dying(peer, Status::kPeerFailed);
  peer.awaits_connection = true;
}

/// Learns where the peer says that it sleeps, and which bit tells it of our ring.
void ShmProvider::take_welcome(ShmEndpoint& peer, std::span<const std::byte> bytes,
                               std::span<const FileDescriptor, 2> files) noexcept {
  Welcome welcome;
  if (!check_welcome(bytes, welcome) || !is_sealed_file(files[0], kDoorbellBytes) ||
      !is_sealed_file(files[1], kActivityBytes))
    return start_dying(peer, Status::kProtocol);
  Mapping doorbell = mapping_or_none([&] { return map_shared(files[0], kDoorbellBytes, MapAccess::kRead); });
  Mapping bits = mapping_or_none([&] { return map_shared(files[1], kActivityBytes, MapAccess::kReadWrite); });
  // Without them, we cannot know when it sleeps, nor tell it of records.
  if (!doorbell.valid() || !bits.valid()) return start_dying(peer, Status::kPeerFailed);
  peer.activity = PeerActivityBit(std::move(bits), welcome.activity_bit);
  peer.doorbell = PeerDoorbell(std::move(doorbell));
  peers_places_.push_back(peer.doorbell.waiting_place());
  ch3_offload_lane_t& lane = peer.out.lane();
  lane.doorbell = peer.doorbell.word();
  lane.activity = peer.activity.word();
  lane.activity_bit = peer.activity.mask();
  peer.activity.mark();                      // For the records that were published before.
  static_cast<void>(peer.doorbell.state());  // Takes the page's fault, which the next message would take.
}

bool ShmProvider::receive_from_sender(ShmEndpoint& peer) noexcept {
  if (!peer.in_socket.valid()) return false;
  const WakeBytes result = drain_wake_bytes(peer.in_socket);
  if (result == WakeBytes::kSome) look_later_at(peer.inbound);
  if (result == WakeBytes::kClosed) start_dying(peer, Status::kPeerFailed);
  return result == WakeBytes::kSome;
}

void ShmProvider::retry_connecting() noexcept {
  for (ShmEndpoint* const peer :
       connecting_) {  // try_connect() sets `connecting` again if it must be retried.
    peer->connecting = false;
    if (peer->dying || peer->down) continue;
    try {
      if (const std::optional<Error> error = try_connect(*peer)) {
        log_("%s", error->message.c_str());
        start_dying(*peer, Status::kPeerFailed);
      }
    } catch (const std::bad_alloc&) {  // No memory for the error's message: the next attempt reports it.
      peer->connecting = true;
    }
  }
  std::erase_if(connecting_, [](const ShmEndpoint* peer) { return !peer->connecting; });
}

/// Notes that no descriptor (or memory) is free for the connection or the Hello that waits at `descriptor`.
/// It stays there, and housekeeping tries again. Until then `descriptor` is not watched, because it would
/// keep a sleeper awake.
void ShmProvider::run_short(const FileDescriptor& descriptor, int error_number) noexcept {
  cannot_accept_ = true;
  unwatch(descriptor);
  run_short("accepting a local connection", error_number);
}

void ShmProvider::run_short(const char* what, int error_number) noexcept {
  is_short_ = true;
  wake_sleeper(false);
  log_shortage(what, error_number);
}

void ShmProvider::log_shortage(const char* what, int error_number) noexcept {
  if (shortage_logged_) return;
  shortage_logged_ = true;
  try {
    log_("%s", system_error(std::string("shm: ") + what, error_number).message.c_str());
  } catch (const std::bad_alloc&) {
    log_("shm: %s failed: there is no memory", what);
  }
}

/// Retries what run_short() noted, and watches all sockets again if no resource is missing.
void ShmProvider::retry_what_ran_short() noexcept {
  constexpr std::uint64_t kRetryNs = 1'000'000;
  constexpr std::uint64_t kLongestTickNs = 100'000'000;  // Longer intervals mean that we were not polled.
  const std::uint64_t now_ns = monotonic_ns();
  const std::uint64_t tick_ns = elapsed_ns(now_ns, last_retry_ns_);
  if (tick_ns < kRetryNs) return;
  last_retry_ns_ = now_ns;
  is_short_ = cannot_accept_ = false;
  spares_[0].reset();  // One descriptor suffices for the file of a Hello, which is mapped and closed.
  for (const auto& peer : peers_)
    if (peer != nullptr && peer->welcome_due) send_welcome(*peer);
  take_newcomers();
  for (const auto& peer : peers_)
    if (peer != nullptr && peer->awaits_connection && !cannot_accept_)
      start_dying(*peer, Status::kPeerFailed);
  spares_[1].reset();  // Two suffice for the files of a Welcome.
  for (const auto& peer : peers_) {
    if (peer == nullptr || !peer->is_unwatched || !peer->out_socket.valid()) continue;
    if (!peer->doorbell.known()) static_cast<void>(receive_from_receiver(*peer));
    if (peer->doorbell.known() && peer->out_socket.valid())
      peer->is_unwatched = !watch(peer->out_socket, WatchKind::kOutbound, index_of(peer->id));
    is_short_ |= peer->is_unwatched;
  }
  accept_wait_ns_ = cannot_accept_ ? accept_wait_ns_ + std::min(tick_ns, kLongestTickNs) : 0;
  if (accept_wait_ns_ >= config_.shortage_limit_ms * 1'000'000) refuse_backlog();
  for (FileDescriptor& spare : spares_) spare = duplicate(epoll_);
  if (is_short_) return;
  is_short_ = !watch(listener_, WatchKind::kListener, 0);
  for (std::uint32_t i = 0; i < newcomers_.size(); ++i)
    if (newcomers_[i].valid()) is_short_ |= !watch(newcomers_[i], WatchKind::kNewcomer, i);
}

/// Refuses all waiting connections, because no connection could be accepted for shortage_limit_ms: both sides
/// would wait for each other for ever. on_peer_down() reports it on both sides.
void ShmProvider::refuse_backlog() noexcept {
  log_(
      "shm: for %llu s there was no descriptor or memory for a local connection: those that wait are refused",
      static_cast<unsigned long long>(config_.shortage_limit_ms / 1000));
  for (Newcomer& newcomer : newcomers_)
    if (newcomer.valid() && fail_sender_of_hello(newcomer)) close_watched(newcomer);
  for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
    const FileDescriptor socket = accept_with_last_descriptor(listener_);
    if (!socket.valid()) return;
    if (peer_credentials(socket).uid == ::geteuid()) static_cast<void>(fail_sender_of_hello(socket));
  }
}

/// Returns false if no Hello waits at `socket`.
bool ShmProvider::fail_sender_of_hello(const FileDescriptor& socket) noexcept {
  std::array<std::byte, sizeof(Hello)> bytes;
  Hello hello;
  if (!peek(socket, bytes)) return false;
  if (!check(bytes, hello).empty() || !peers_.is_current(PeerId{hello.sender})) return true;
  try {
    ShmEndpoint& peer = find_or_make(PeerId{hello.sender});
    if (!peer.in_memory.valid()) start_dying(peer, Status::kUnreachable);
  } catch (const std::bad_alloc&) {  // The peer sees its connection closed; this process does not fail it.
    log_("shm: there is no memory to note that peer %u was refused", hello.sender);
  }
  return true;
}

void ShmProvider::refuse(std::string_view why) noexcept {
  if (refused_++ == 0)
    log_("shm: refused a local connection: %.*s (further ones are refused silently)",
         static_cast<int>(why.size()), why.data());
}

/// Begins the end of a peer. Its sockets have no more events. Records in its ring are delivered before
/// on_peer_down(). If it has a ring here, one socket stays to the end: may_still_copy().
void ShmProvider::start_dying(ShmEndpoint& peer, Status reason) noexcept {
  if (peer.dying || peer.down) return;
  peer.dying = true;
  peer.reason = reason;
  if (reason == Status::kProtocol && peer.in_memory.valid())
    inbound_[peer.inbound].travelling = {};  // Nothing of the peer is read any more.
  peer.dying_since_ns = monotonic_ns();
  if (peer.doorbell.known()) std::erase(peers_places_, peer.doorbell.waiting_place());
  peer.awaits_connection = peer.is_unwatched = false;
  if (peer.in_socket.valid() || !peer.in_memory.valid()) close_watched(peer.out_socket);
  if (peer.watched_socket().valid()) {
    unwatch(peer.watched_socket());
    hang_up(peer.watched_socket());
  }
  *dying_end_ = &peer;
  dying_end_ = &peer.next_dying;
  wake_sleeper(true);
}

bool ShmProvider::end(PeerId id) noexcept {
  if (slot_of(id) >= config_.peer_limit) return false;
  take_newcomers();
  if (!peers_.is_current(id)) return false;
  ShmEndpoint* peer = find(id);
  if (peer == nullptr) {
    try {
      find_or_make(id).down = true;  // If it connects later, it is refused.
    } catch (const std::bad_alloc&) {
      log_("shm: there is no memory to note that peer %u was given up", index_of(id));
    }
    return false;
  }
  if (peer->down) return false;
  peer->is_met = true;
  start_dying(*peer, Status::kPeerFailed);
  return true;
}

bool ShmProvider::forget(PeerId id) noexcept {
  ShmEndpoint* const peer = find(id);
  if (peer != nullptr) {
    if (!peer->down) return false;
    std::erase(connecting_, peer);
    for (ShmEndpoint** link = &blocked_; *link != nullptr;)
      if (*link == peer)
        *link = peer->next_blocked;
      else
        link = &(*link)->next_blocked;
  }
  return peers_.forget(id);
}

/// The peer is down: its memory, mappings and descriptors go.
void ShmProvider::release(ShmEndpoint& peer) noexcept {
  if (peer.out.attached()) memory_.give_back(peer.out.window_bytes());
  peer.out.shut();
  peer.chunks = {};
  peer.out_memory.reset();
  peer.out_file.reset();
  peer.doorbell = PeerDoorbell();
  peer.activity = PeerActivityBit();
}

/// Returns whether a write of the peer may still change this process's memory. The peer checks whether we
/// have hung up before it copies. So only a copy that had begun before is possible, while the peer's process
/// lives.
bool ShmProvider::may_still_copy(const ShmEndpoint& peer, const Inbound& inbound) noexcept {
  hang_up(peer.watched_socket());  // The peer may have been attached while it was dying.
  return inbound.ring.producer_copies() && drain_wake_bytes(peer.watched_socket()) != WakeBytes::kClosed &&
         elapsed_ns(monotonic_ns(), peer.dying_since_ns) < kLongestCopyNs;
}

std::size_t ShmProvider::deliver_deaths(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  ShmEndpoint** link = &dying_;
  while (*link != nullptr && delivered < budget) {
    ShmEndpoint& peer = **link;  // A call of the sink may append another dying peer.
    if (peer.in_memory.valid()) {
      Inbound& inbound = inbound_[peer.inbound];
      delivered += consume(inbound, sink, budget - delivered);
      if (held_ != nullptr || delivered >= budget) break;
      if (may_still_copy(peer, inbound)) {  // The next poll checks again.
        link = &peer.next_dying;
        continue;
      }
      peer.is_met |= inbound.ring.position() != 0;
      inbound = {};
      peer.chunks = {};  // In either file. Until its end is told, sends go through the ring.
      peer.out.lane().travelling = peer.out.lane().travelling_too = nullptr;
      peer.in_memory.reset();
    }
    // Completions of writes to the peer come before on_peer_down().
    delivered += deliver_write_done(sink, budget - delivered);
    delivered += deliver_shared_done(sink, budget - delivered);
    if (delivered >= budget) break;
    close_watched(peer.in_socket);
    close_watched(peer.out_socket);
    *link = std::exchange(peer.next_dying, nullptr);
    if (*link == nullptr) dying_end_ = link;
    peer.dying = false;
    peer.down = true;
    peer.sending = Status::kPeerFailed;
    release(peer);
    if (peer.reason == Status::kProtocol)
      log_("shm: peer %u does not follow the protocol; its connection is closed", index_of(peer.id));
    if (!peer.is_met && peer.reason == Status::kPeerFailed) continue;
    sink.on_peer_down(peer.id, peer.reason);
    ++delivered;
  }
  return delivered;
}

}  // namespace ch3_offload
