// Set-up and connect(). See shm_provider.h.

#include "rdma/shm/shm_provider.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>

#include "rdma/cycle_clock.h"
#include "rdma/descriptor_limit.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// A chunk, or a record of the ring.
constexpr std::size_t kLongestSlotBytes = kChunkBytes - kRecordHeaderBytes;

bool draw_random(std::span<std::byte> bytes) noexcept {
  return ::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

Result<std::unique_ptr<ShmProvider>> ShmProvider::create(const ShmConfig& config) {
  if (!is_ring_size(config.ring_bytes))
    return Error{Status::kDeviceFailed, 0,
                 "shm: the ring size must be a power of two from 65536 to 16777216, not " +
                     std::to_string(config.ring_bytes)};
  std::unique_ptr<ShmProvider> provider(new ShmProvider(config));  // The constructor is private.
  if (std::optional<Error> error = provider->set_up()) return std::move(*error);
  return provider;
}

std::optional<Error> ShmProvider::set_up() {
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (page_bytes <= 0 || kRingControlBytes % static_cast<std::size_t>(page_bytes) != 0)
    return Error{Status::kDeviceFailed, 0,
                 "shm: this kernel has pages of " + std::to_string(page_bytes) + " bytes; " +
                     std::to_string(kRingControlBytes) + " are supported at most"};
  raise_descriptor_limit();
  address_.node_id = read_node_id();
  if (!draw_random(std::as_writable_bytes(std::span(address_.socket_id))))
    return system_error("shm: getrandom", errno);

  Result<FileDescriptor> listener = listen_at(address_);
  if (!listener.ok()) return listener.error();
  listener_ = ForkClosedDescriptor(std::move(listener.value()));
  epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid() || !watch(listener_, WatchKind::kListener, 0))
    return system_error("shm: making an epoll descriptor", errno);
  alarm_ = FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!alarm_.valid() || !watch(alarm_, WatchKind::kAlarm, 0))
    return system_error("shm: making a timer", errno);
  for (FileDescriptor& spare : spares_) {
    spare = duplicate(epoll_);
    if (!spare.valid()) return system_error("shm: taking a spare descriptor", errno);
  }

  Result<FileDescriptor> file = make_reserved_file("ch3-offload-doorbell", kDoorbellBytes);
  if (!file.ok()) return file.error();
  Result<Mapping> page = map_shared(file.value(), kDoorbellBytes, MapAccess::kReadWrite);
  if (!page.ok()) return page.error();
  seal_against_new_writers(file.value());
  doorbell_ = Doorbell(std::move(page.value()), std::move(file.value()));
  file = make_reserved_file("ch3-offload-activity", kActivityBytes);
  if (!file.ok()) return file.error();
  page = map_shared(file.value(), kActivityBytes, MapAccess::kReadWrite);
  if (!page.ok()) return page.error();
  activity_ = ActivityBits(std::move(page.value()), std::move(file.value()));

  count_descriptors();
  const std::size_t longest_slot = std::min(kLongestSlotBytes, longest_payload(config_.ring_bytes));
  memory_ = RingMemory(config_.memory_bytes, config_.processes_on_node, config_.ring_bytes,
                       static_cast<std::size_t>(page_bytes), longest_slot);
  capabilities_.name = "shm";
  capabilities_.max_slot_bytes = std::min(longest_slot, memory_.longest_payload());
  capabilities_.write = config_.bulk != BulkMethod::kStream;
  if (capabilities_.write) let_peers_write();
  switch (config_.bulk) {
    case BulkMethod::kStream: capabilities_.write_threshold_bytes = SIZE_MAX; break;
    case BulkMethod::kCma: capabilities_.write_threshold_bytes = 4096; break;
    case BulkMethod::kAutomatic:
      capabilities_.write_threshold_bytes = has_process_copies() ? kLeastWrittenBytes : SIZE_MAX;
      capabilities_.writes_by_copying = true;
      break;
  }
  return {};
}

/// Says it now if the connections to all processes of the node will not find descriptors. Where there are
/// plenty, connections are made ahead.
void ShmProvider::count_descriptors() noexcept {
  constexpr rlim_t kEach = 1;       // Of a peer: RULE ONE CONNECTION.
  constexpr rlim_t kForMoment = 1;  // A connection that does not stay. Its files have spares_.
  rlimit limit{};
  const FileDescriptor lowest = duplicate(epoll_);  // Its number: about how many are open.
  if (!lowest.valid() || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto open = static_cast<rlim_t>(lowest.get());
  const rlim_t needed = open + kEach * (config_.processes_on_node - 1) + kForMoment;
  may_prepare_ = config_.processes_on_node <= kMostPrepared && limit.rlim_cur >= 4 * needed;
  if (needed <= limit.rlim_cur) return;
  log_(LogScope::kNode,
       "shm: a process may open %llu files here, which is too few for messages between all %zu processes of "
       "the node: each has some %llu open and needs %llu for each other one, about %llu in all (ulimit -n)",
       static_cast<unsigned long long>(limit.rlim_cur), config_.processes_on_node,
       static_cast<unsigned long long>(open), static_cast<unsigned long long>(kEach),
       static_cast<unsigned long long>(needed));
}

ShmProvider::~ShmProvider() = default;

bool ShmProvider::reaches(std::string_view address) const noexcept {
  const std::optional<ShmAddress> parsed = ShmAddress::parse(address);
  return parsed && parsed->node_id == address_.node_id;
}

/// REQUIRES: peers_.is_current(peer). Throws std::bad_alloc.
ShmEndpoint& ShmProvider::find_or_make(PeerId peer) {
  ShmEndpoint* const known = peers_.find(peer);
  return known != nullptr ? *known : peers_.make(peer);
}

Result<Endpoint*> ShmProvider::connect(PeerId id, std::string_view address,
                                       const std::optional<PeerNames>& names) {
  const std::optional<ShmAddress> parsed = ShmAddress::parse(address);
  if (!parsed || parsed->node_id != address_.node_id || slot_of(id) >= config_.peer_limit)
    return Error{
        Status::kUnreachable, 0,
        "shm: peer " + std::to_string(index_of(id)) + " is not a process of this node and network namespace"};
  if (const ShmEndpoint* const known = find(id);
      !peers_.is_current(id) || (known != nullptr && (known->dying || known->down)))
    return Error{Status::kPeerFailed, 0, "shm: peer " + std::to_string(index_of(id)) + " is gone"};
  ShmEndpoint& peer = find_or_make(id);
  if (peer.has_address && peer.address.socket_id != parsed->socket_id)
    return Error{Status::kUnreachable, 0,
                 "shm: peer " + std::to_string(index_of(id)) + " has another address than it had"};
  if (peer.has_address && names && peer.names != *names)
    return Error{Status::kUnreachable, 0,
                 "shm: peer " + std::to_string(index_of(id)) + " has other numbers for us than it had"};
  const PeerNames common{config_.self, id};
  peer.is_met = true;
  if (peer.out.attached()) peer.sending = Status::kOk;  // Of connect() or prepare().
  if (peer.sending == Status::kOk) return &peer;
  try {
    if (std::optional<Error> error =
            connect_anew(peer, *parsed, peer.has_address ? peer.names : names.value_or(common))) {
      forget_sending(peer);
      return in_time(peer, std::move(*error));
    }
  } catch (const std::bad_alloc&) {
    forget_sending(peer);
    throw;
  }
  peer.sending = Status::kOk;
  peer.short_since_ns = 0;
  return &peer;
}

void ShmProvider::prepare(PeerId id, std::string_view address) noexcept {
  const std::optional<ShmAddress> parsed = ShmAddress::parse(address);
  if (!may_prepare_ || !parsed || !reaches(address) || slot_of(id) >= config_.peer_limit ||
      !peers_.is_current(id) || id == config_.self)
    return;
  ShmEndpoint* peer = nullptr;
  try {
    peer = &find_or_make(id);
    if (peer->dying || peer->down || peer->out.attached()) return;
    if (peer->has_address && peer->address.socket_id != parsed->socket_id) return;
    if (!connect_anew(*peer, *parsed, peer->has_address ? peer->names : PeerNames{config_.self, id})) {
      // The faults of the first lap, and of the chunks: otherwise the first thousands of messages take them.
      const std::size_t begin = peer->chunks.any() ? 0 : kRingOffset;
      static_cast<void>(peer->out_memory.populate(begin, kRingOffset + memory_.first_window_bytes() - begin));
      return;
    }
  } catch (const std::bad_alloc&) {
  }
  if (peer != nullptr) forget_sending(*peer);
}

bool ShmProvider::meet_prepared() noexcept {
  keep_house();
  return std::ranges::all_of(peers_, [](const auto& peer) {
    return peer == nullptr || peer->dying || peer->down || !peer->out.attached() ||
           (peer->doorbell.known() && peer->in_memory.valid());
  });
}

/// A shortage may pass, and the peer must not wait for ever if it does not.
Error ShmProvider::in_time(ShmEndpoint& peer, Error error) {
  if (error.status != Status::kNoMemory) return error;
  const std::uint64_t now_ns = monotonic_ns();
  if (peer.short_since_ns == 0) peer.short_since_ns = now_ns;
  if (elapsed_ns(now_ns, peer.short_since_ns) < config_.shortage_limit_ms * 1'000'000) {
    log_shortage("connecting to a local process", error.error_number);
    wake_sleeper(false);
    error.status = Status::kAgain;
  } else {
    error.status = Status::kUnreachable;
    error.message = "for " + std::to_string(config_.shortage_limit_ms / 1000) + " s: " + error.message;
  }
  return error;
}

std::string ShmProvider::address_of(PeerId id) const {
  const ShmEndpoint* const peer = find(id);
  return peer != nullptr && peer->has_address ? peer->address.to_string() : std::string();
}

std::optional<Error> ShmProvider::connect_anew(ShmEndpoint& peer, const ShmAddress& address,
                                               const PeerNames& names) {
  // Make room now: try_connect_later() and take_welcome() must not allocate.
  if (connecting_.size() == connecting_.capacity()) connecting_.reserve(2 * connecting_.size() + 8);
  if (peers_places_.capacity() < peers_.size()) peers_places_.reserve(2 * peers_.size());
  peer.address = address;
  peer.names = names;
  peer.has_address = true;
  if (std::optional<Error> error = make_ring(peer)) return error;
  return try_connect(peer);
}

std::optional<Error> ShmProvider::make_ring(ShmEndpoint& peer) {
  const std::size_t file_bytes = ring_file_bytes(config_.ring_bytes);
  Result<FileDescriptor> socket = make_socket();
  if (!socket.ok()) return socket.error();
  Result<FileDescriptor> file = make_shared_file("ch3-offload-ring", file_bytes);
  if (!file.ok() && file.error().error_number == EMFILE) {
    spares_[0].reset();  // The file is closed once it was sent. Housekeeping takes another spare then.
    file = make_shared_file("ch3-offload-ring", file_bytes);
  }
  if (!file.ok()) return file.error();
  const std::size_t first_byte = memory_.has_chunks() ? 0 : kChunkAreaBytes;
  const std::size_t needed_bytes = kRingOffset + memory_.guaranteed_bytes() - first_byte;
  if (std::optional<Error> error = reserve_pages(file.value(), first_byte, needed_bytes)) return error;
  Result<Mapping> memory = map_ring_file(file.value(), config_.ring_bytes);
  if (!memory.ok()) return memory.error();
  peer.out_file = std::move(file.value());
  peer.out_memory = std::move(memory.value());
  peer.out_socket = ForkClosedDescriptor(std::move(socket.value()));
  peer.out = RingProducer(ring_in(peer.out_memory), config_.ring_bytes, memory_.first_window_bytes(),
                          RingMemory::most_ahead_bytes(config_.ring_bytes));
  peer.out.touch();
  if (!peer_keeps_its_connection(peer)) {
    peer.chunks = TravellingChunks(peer.out_memory.address(), memory_.has_chunks());
    peer.travelling = travelling_places_in(peer.out_memory);
    await_travelling(peer);
  }
  ch3_offload_lane_t& lane = peer.out.lane();
  lane.travelling_kind = static_cast<std::uint64_t>(
      peer_keeps_its_connection(peer) ? TravellingKind::kOfOther : TravellingKind::kOfMaker);
  for (std::byte*& record : peer.travelling)
    if (record != nullptr) give_travelling(lane, std::exchange(record, nullptr));
  return {};
}

/// From now on looks for messages in the records that travel. Has no effect before both the ring of the peer
/// and the file that has the records are mapped.
void ShmProvider::await_travelling(ShmEndpoint& peer) noexcept {
  const Mapping& memory = common_memory(peer);
  if (!peer.in_memory.valid() || !memory.valid()) return;
  inbound_[peer.inbound].travelling =
      TravellingRecords(travelling_places_in(memory), peer_keeps_its_connection(peer)
                                                          ? TravellingKind::kOfMaker
                                                          : TravellingKind::kOfOther);
}

/// Lets housekeeping try again. Does not allocate: connect_anew() made room, or the peer is in connecting_.
void ShmProvider::try_connect_later(ShmEndpoint& peer) noexcept {
  peer.connecting = true;
  if (std::ranges::find(connecting_, &peer) == connecting_.end()) connecting_.push_back(&peer);
  wake_sleeper(false);
}

/// Connects and sends the Hello. If the backlog is full or the kernel lacks a resource, housekeeping tries
/// again. Records can be published meanwhile.
std::optional<Error> ShmProvider::try_connect(ShmEndpoint& peer) {
  if (!peer.out_socket.valid()) {
    Result<FileDescriptor> socket = make_socket();
    if (!socket.ok()) {
      log_shortage("making a local connection", socket.error().error_number);
      try_connect_later(peer);
      return {};
    }
    peer.out_socket = ForkClosedDescriptor(std::move(socket.value()));
  }
  Result<ConnectProgress> progress = connect_to(peer.out_socket, peer.address);
  if (!progress.ok() && progress.error().status != Status::kNoMemory) return progress.error();
  if (!progress.ok()) log_shortage("connecting to a local process", progress.error().error_number);
  if (!progress.ok() || progress.value() == ConnectProgress::kBacklogFull) {
    try_connect_later(peer);
    return {};
  }
  const PeerCredentials credentials = peer_credentials(peer.out_socket);
  if (credentials.uid != ::geteuid())  // Check this before the secret is sent.
    return Error{Status::kUnreachable, 0,
                 "shm: peer " + std::to_string(index_of(peer.id)) + " belongs to another user"};
  peer.pid = credentials.pid;
  Hello hello;
  hello.sender = index_of(peer.names.known_as);
  hello.receiver = index_of(peer.names.own);
  hello.own = index_of(config_.self);
  hello.known_as = index_of(peer.id);
  hello.is_ahead = peer.is_met ? 0 : 1;
  hello.ring_bytes = config_.ring_bytes;
  hello.secret = config_.job_secret;
  hello.socket_id = address_.socket_id;
  const int file = peer.out_file.get();
  // The Hello comes last: after it nothing may fail, because the receiver takes a closed connection for a
  // death.
  if (!watch(peer.out_socket, WatchKind::kOutbound, index_of(peer.id)) ||
      !send_with_files(peer.out_socket, std::as_bytes(std::span(&hello, 1)), std::span(&file, 1))) {
    if (errno != ETOOMANYREFS && errno != ENOBUFS && errno != ENOMEM && errno != ENOSPC)
      return system_error("shm: sending a ring to a local process", errno);
    log_shortage("sending a ring to a local process", errno);
    close_watched(peer.out_socket);  // Start again with a new one: a wake-up must not precede the Hello.
    try_connect_later(peer);
    return {};
  }
  peer.out_file.reset();
  close_their_connection(peer);
  return {};
}

/// Undoes make_ring() and try_connect().
void ShmProvider::forget_sending(ShmEndpoint& peer) noexcept {
  std::erase(connecting_, &peer);
  if (!peer_keeps_its_connection(peer)) {
    peer.chunks = {};
    if (peer.in_memory.valid()) inbound_[peer.inbound].travelling = {};
    peer.travelling = {};  // make_ring() makes others.
  } else if (peer.out.attached()) {
    const ch3_offload_lane_t& lane = peer.out.lane();
    peer.travelling = {reinterpret_cast<std::byte*>(lane.travelling_too),
                       reinterpret_cast<std::byte*>(lane.travelling)};
  }
  peer.out = RingProducer();
  peer.out_memory.reset();
  peer.out_file.reset();
  close_watched(peer.out_socket);
  peer.has_address = peer.in_memory.valid();
}

}  // namespace ch3_offload
