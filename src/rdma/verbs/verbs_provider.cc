// Making the provider, its end, connect, and registering memory. See verbs_provider.h.

#include "rdma/verbs/verbs_provider.h"

#include <endian.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <thread>

#include "rdma/cycle_clock.h"
#include "rdma/descriptor_limit.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// Below this a payload is cheaper copied through slots than registered on both sides.
constexpr std::size_t kWriteThresholdBytes = std::size_t{16} << 10;

/// A part of a write; longer ones gain nothing, and shorter ones would cost receives.
constexpr std::uint64_t kLongestPartBytes = std::uint64_t{1} << 30;

constexpr std::uint64_t kLingerNs = 2'000'000'000;

/// For the time after the caller's last poll().
class Deaf final : public Sink {
  void on_message(PeerId, std::span<const std::byte>) noexcept override {}
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
  void on_write_done(PeerId, WorkId, Status) noexcept override {}
  void on_peer_down(PeerId, Status) noexcept override {}
};

std::string no_port_message(const VerbsPorts& ports) {
  std::string text = "verbs: this node has no usable RDMA port";
  const char* separator = ": ";
  for (const RejectedPort& port : ports.rejected) {
    text += separator + port.name + ": " + port.why;
    separator = "; ";
  }
  if (ports.rejected.empty()) text += " (no RDMA device; is the kernel's driver loaded?)";
  return text;
}

}  // namespace

Result<std::unique_ptr<VerbsProvider>> VerbsProvider::create(const VerbsConfig& config) {
  std::unique_ptr<VerbsProvider> provider(new VerbsProvider(config));  // The constructor is private.
  if (std::optional<Error> error = provider->set_up()) {
    provider->abandon();
    return std::move(*error);
  }
  return provider;
}

Result<std::unique_ptr<Provider>> make_verbs_provider(const VerbsConfig& config) {
  Result<std::unique_ptr<VerbsProvider>> provider = VerbsProvider::create(config);
  if (!provider.ok()) return provider.error();
  return std::unique_ptr<Provider>(std::move(provider.value()));
}

std::optional<Error> VerbsProvider::set_up() {
  if (!config_.interface.empty()) {
    address_.host = find_host_address(config_.interface);
    if (address_.host.empty())
      return Error{Status::kUnsupported, 0,
                   "verbs: '" + config_.interface +
                       "' is no network interface that is up, and no address, of this node"};
  }
  Result<VerbsPorts> ports = survey_verbs_ports(config_.device);
  if (!ports.ok()) return ports.error();
  if (ports.value().usable.empty()) return Error{Status::kUnsupported, 0, no_port_message(ports.value())};
  const VerbsPort& port = ports.value().usable.front();
  if (port.max_message_bytes < config_.rail.slot_bytes)
    return Error{Status::kUnsupported, 0,
                 "verbs: " + port.device + " sends " + std::to_string(port.max_message_bytes) +
                     " bytes at most; slots have " + std::to_string(config_.rail.slot_bytes)};
  raise_descriptor_limit();

  config_.rail.send_queue_depth = Link::kSendQueueDepth;
  config_.rail.most_queue_pairs = std::min(config_.rail.most_queue_pairs, 2 * config_.peer_limit);
  Result<std::unique_ptr<Rail>> rail = Rail::open(port, config_.rail);
  if (!rail.ok()) return rail.error();
  rail_ = std::move(rail.value());
  if (rail_->config().send_queue_depth < Link::kSendQueueDepth)
    return Error{Status::kUnsupported, 0,
                 "verbs: " + port.device + " has queue pairs of " +
                     std::to_string(rail_->config().send_queue_depth) + " sends; " +
                     std::to_string(Link::kSendQueueDepth) + " are needed"};

  address_.ethernet = port.ethernet;
  address_.subnet_prefix = port.ethernet ? 0 : be64toh(port.gid.global.subnet_prefix);
  if (address_.host.empty()) address_.host = port.network_address();
  if (address_.host.empty()) address_.host = find_host_address({});
  if (address_.host.empty())
    return Error{Status::kUnsupported, 0,
                 "verbs: this node has no IP address at which others could set up connections"};
  Result<FileDescriptor> listener = listen_for_channels(address_.host, address_.port);
  if (!listener.ok()) return listener.error();
  listener_ = std::move(listener.value());
  if (::getrandom(&address_.instance, sizeof address_.instance, 0) != sizeof address_.instance)
    return system_error("verbs: getrandom", errno);
  address_text_ = address_.to_string();

  epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  alarm_ = FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll_.valid() || !alarm_.valid() || !watch(listener_.get(), WatchKind::kListener, 0, EPOLLIN) ||
      !watch(alarm_.get(), WatchKind::kAlarm, 0, EPOLLIN) ||
      !watch(rail_->events()->fd, WatchKind::kCompletions, 0, EPOLLIN) ||
      !watch(rail_->context()->async_fd, WatchKind::kDevice, 0, EPOLLIN))
    return system_error("verbs: making an epoll descriptor", errno);

  rings_ = std::vector<ReceiveRing>(rail_->config().most_rings);
  open_rings_.reserve(rings_.size());
  most_rings_ = rings_.size();
  ring_trust_cycles_ = config_.rail.ring_trust_us * (CycleClock::kAbout20Microseconds / 20);
  writes_.resize(kMostWrites);
  free_writes_.reserve(kMostWrites);
  for (std::uint32_t i = kMostWrites; i > 0; --i) free_writes_.push_back(i - 1);
  part_bytes_ = std::min<std::uint64_t>(kLongestPartBytes, std::max(1u, port.max_message_bytes));

  capabilities_.name = "verbs";
  capabilities_.max_slot_bytes = rail_->config().slot_bytes - sizeof(SlotHeader);
  capabilities_.write = true;
  capabilities_.write_threshold_bytes = kWriteThresholdBytes;
  return {};
}

VerbsProvider::~VerbsProvider() {
  if (abandoned_ || rail_ == nullptr) return;
  linger();
  for (const auto& peer : peers_)
    if (peer != nullptr && peer->channel_state == ChannelState::kOpen)
      peer->channel.send(make_frame(FrameKind::kBye));
}

/// The peers' devices take what was sent without their processes' help; only a lost packet takes time.
void VerbsProvider::linger() noexcept {
  Deaf sink;
  const std::uint64_t deadline_ns = monotonic_ns() + kLingerNs;
  const auto is_pending = [](const std::unique_ptr<Peer>& peer) {
    return peer != nullptr && !peer->dying && !peer->down &&
           (!peer->link.all_retired() || peer->unfinished_write != kNoWrite);
  };
  while (std::any_of(peers_.begin(), peers_.end(), is_pending) && monotonic_ns() < deadline_ns) {
    for (const auto& peer : peers_)
      if (is_pending(peer)) flush_tail(*peer);
    last_housekeeping_ = 0;
    if (poll(sink, 64) == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void VerbsProvider::log(const char* format, ...) const noexcept {
  if (config_.log == nullptr) return;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  static_cast<void>(std::vsnprintf(line, sizeof line, format, arguments));
  va_end(arguments);
  config_.log(config_.log_context, line);
}

bool VerbsProvider::reaches(std::string_view text) const noexcept {
  const std::optional<VerbsAddress> address = VerbsAddress::parse(text);
  return address && address->same_fabric(address_);
}

VerbsProvider::Peer& VerbsProvider::find_or_make(PeerId peer) {
  const std::size_t index = index_of(peer);
  if (index >= peers_.size()) peers_.resize(index + 1);
  if (peers_[index] == nullptr) {
    peers_[index] = std::make_unique<Peer>();
    peers_[index]->id = peer;
  }
  return *peers_[index];
}

Result<std::monostate> VerbsProvider::connect(PeerId id, std::string_view text) {
  const std::string who = "verbs: peer " + std::to_string(index_of(id));
  const std::optional<VerbsAddress> address = VerbsAddress::parse(text);
  if (!address || index_of(id) >= config_.peer_limit || id == config_.self)
    return Error{Status::kUnreachable, 0, who + " has no address that can be connected to"};
  if (!address->same_fabric(address_))
    return Error{Status::kUnreachable, 0,
                 who + " is on another fabric (another link layer or InfiniBand subnet)"};
  if (device_lost_) return Error{Status::kUnreachable, 0, "verbs: the device failed"};
  Peer& peer = find_or_make(id);
  if (peer.dying || peer.down) return Error{Status::kPeerFailed, 0, who + " is gone"};
  if (peer.has_address && peer.address.instance != address->instance)
    return Error{Status::kUnreachable, 0, who + " has another address than it had"};
  if (!peer.has_address) {
    peer.address = *address;
    peer.has_address = true;
  }
  if (peer.connected) return std::monostate{};
  peer.connected = true;
  // At once, not in the next poll(): the peer may be asleep.
  if (peer.channel_state == ChannelState::kNone) dial(peer);
  want_link(peer);
  return std::monostate{};
}

Status VerbsProvider::register_memory(void* address, std::size_t length_bytes, Access access,
                                      MemoryRegion& region) noexcept {
  const int rights = access == Access::kWrite ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
  Registration registration(ibv_reg_mr(rail_->domain(), address, length_bytes, rights));
  if (registration == nullptr) return Status::kNoMemory;
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{registration->rkey}, 0};
  try {
    if (free_registrations_.empty()) {
      registrations_.emplace_back();
      // deregister_memory() must not allocate.
      free_registrations_.reserve(registrations_.capacity());
      free_registrations_.push_back(static_cast<std::uint32_t>(registrations_.size() - 1));
    }
  } catch (const std::exception&) {
    return Status::kNoMemory;
  }
  region.local_key = free_registrations_.back();
  free_registrations_.pop_back();
  registrations_[region.local_key] = std::move(registration);
  ++figures_.registrations;
  return Status::kOk;
}

void VerbsProvider::deregister_memory(MemoryRegion& region) noexcept {
  registrations_[region.local_key].reset();
  free_registrations_.push_back(static_cast<std::uint32_t>(region.local_key));
  region = {};
  --figures_.registrations;
}

ProviderCounters VerbsProvider::counters() const noexcept {
  const VerbsFigures now = figures();
  return {.network_registered_bytes = now.registered_slot_bytes,
          .network_connections = now.queue_pairs,
          .network_connections_made = now.links_made,
          .network_connections_lost = now.links_lost,
          .network_connections_parked = now.links_parked,
          .network_sent_again = now.items_sent_again,
          .network_credit_messages = now.credit_messages,
          .network_rings = now.rings,
          .network_ring_messages_sent = now.ring_messages_sent,
          .network_ring_messages_received = now.ring_messages_received};
}

VerbsFigures VerbsProvider::figures() const noexcept {
  VerbsFigures figures = figures_;
  figures.registered_slot_bytes = rail_->send_slots().registered_bytes() +
                                  rail_->receive_slots().registered_bytes() + open_rings_.size() * kRingBytes;
  figures.rings = static_cast<std::uint32_t>(open_rings_.size());
  figures.send_slots_taken = rail_->send_slots().count() - rail_->send_slots().free_count();
  figures.queue_pairs = live_links_;
  return figures;
}

}  // namespace ch3_offload
