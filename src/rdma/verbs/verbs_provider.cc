// Making the provider, its end, connect, and registering memory. See verbs_provider.h.

#include "rdma/verbs/verbs_provider.h"

#include <endian.h>
#include <sodium/core.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "rdma/descriptor_limit.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"
#include "rdma/verbs/host_address.h"

namespace ch3_offload {
namespace {

/// Below this a payload is cheaper copied through slots than registered on both sides.
constexpr std::size_t kWriteThresholdBytes = std::size_t{16} << 10;

/// A part of a write; longer ones gain nothing, and shorter ones would cost receives.
constexpr std::uint64_t kLongestPartBytes = std::uint64_t{1} << 30;

/// For the time after the caller's last poll().
class Deaf final : public Sink {
  Delivery on_message(PeerId, std::span<const std::byte>) noexcept override { return Delivery::kTaken; }
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

Error no_free_port(const VerbsConfig& config, const std::vector<std::string>& hosts, std::uint32_t tries) {
  std::string text = "verbs: no TCP port";
  if (config.first_port != 0)
    text += " from " + std::to_string(config.first_port) + " to " + std::to_string(config.last_port);
  text += " is free at " + hosts[0];
  for (std::size_t i = 1; i < hosts.size(); ++i) text += " and " + hosts[i];
  text += " (" + std::to_string(tries) + " tried)";
  if (config.first_port != 0) text += ": the range needs at least one port for each process on the node";
  return {Status::kDeviceFailed, EADDRINUSE, text};
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
  address_.slot_bytes = static_cast<std::uint32_t>(config_.rail.slot_bytes);
  if (!config_.interface.empty()) {
    Result<std::string> host = find_host_address(config_.interface, config_.loopback_serves);
    if (!host.ok()) return host.error();
    address_.hosts = {std::move(host.value())};
  }
  raise_descriptor_limit();
  if (const Result<std::monostate> opened = open_rails(); !opened.ok()) return opened.error();
  if (const Result<std::monostate> listening = listen(); !listening.ok()) return listening.error();

  std::vector<ibv_pd*> domains;
  for (const RailUse& use : rails_) domains.push_back(use.rail->domain());
  send_slots_ = std::make_unique<SlotPool>(domains, config_.rail.slot_bytes, config_.rail.slots_per_slab,
                                           config_.most_send_slots);
  if (std::optional<Error> error = send_slots_->grow()) return error;

  epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  alarm_ = FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  bool watched = epoll_.valid() && alarm_.valid() && wire_up_->descriptor() >= 0 &&
                 watch(alarm_.get(), WatchKind::kAlarm, 0) &&
                 watch(wire_up_->descriptor(), WatchKind::kWireUp, 0);
  for (std::uint32_t i = 0; i < rails_.size(); ++i)
    watched = watched && watch(rails_[i].rail->events()->fd, WatchKind::kCompletions, i) &&
              watch(rails_[i].rail->context()->async_fd, WatchKind::kDevice, i);
  if (!watched) return system_error("verbs: making an epoll descriptor", errno);

  writes_.resize(kMostWrites);
  free_writes_.reserve(kMostWrites);
  for (std::uint32_t i = kMostWrites; i > 0; --i) free_writes_.push_back(i - 1);
  part_bytes_ = kLongestPartBytes;
  for (const RailUse& use : rails_)
    part_bytes_ = std::min<std::uint64_t>(part_bytes_, std::max(1u, use.rail->port().max_message_bytes));

  capabilities_.name = "verbs";
  capabilities_.max_slot_bytes = config_.rail.slot_bytes - sizeof(SlotHeader);
  capabilities_.write = true;
  capabilities_.write_threshold_bytes = kWriteThresholdBytes;
  capabilities_.registering_costs = true;
  capabilities_.on_demand = config_.on_demand && std::ranges::all_of(rails_, [](const RailUse& use) {
                              return use.rail->faults_pages();
                            });
  if (config_.on_demand && !capabilities_.on_demand)
    log(LogScope::kNode, "verbs: %s cannot fault pages in (on-demand paging): memory that it uses is pinned",
        rails_[0].rail->port().device.c_str());
  capabilities_.registrations = capabilities_.on_demand ? 0 : rails_.size();
  // Half of the device, for other jobs may be there, shared by this one's processes.
  for (const RailUse& use : rails_) {
    const std::size_t share = use.rail->most_regions() / 2 / config_.processes_on_node;
    capabilities_.most_regions = std::min(capabilities_.most_regions, std::max<std::size_t>(share, 1));
  }
  return {};
}

/// The best port and, where they are wanted, others like it. One that cannot be opened beside the first is
/// done without.
Result<std::monostate> VerbsProvider::open_rails() {
  Result<VerbsPorts> ports = survey_verbs_ports(config_.device);
  if (!ports.ok()) return ports.error();
  const std::vector<VerbsPort>& usable = ports.value().usable;
  if (usable.empty()) return Error{Status::kUnsupported, 0, no_port_message(ports.value())};
  const std::vector<VerbsPort> chosen = choose_rails(
      usable, config_.device, std::min<std::size_t>(config_.most_rails, VerbsAddress::kMostRails));
  RailConfig share = config_.rail;
  const auto count = static_cast<std::uint32_t>(chosen.size());
  share.send_queue_depth = Link::kSendQueueDepth;
  share.most_queue_pairs = std::min(share.most_queue_pairs / count, 2 * config_.peer_limit);
  share.most_receive_slots /= count;
  for (const VerbsPort& port : chosen) {
    Result<RailUse> opened = open_rail(port, share);
    if (opened.ok()) {
      rails_.push_back(std::move(opened.value()));
    } else if (rails_.empty()) {
      return opened.error();
    } else {
      log(LogScope::kNode, "%s; going on without this port", opened.error().message.c_str());
    }
  }
  address_.ethernet = usable[0].ethernet;
  for (const RailUse& use : rails_) {
    const VerbsPort& port = use.rail->port();
    address_.networks.push_back(port.ethernet ? network_of_host(port.network_address())
                                              : be64toh(port.gid.global.subnet_prefix));
  }
  return std::monostate{};
}

Result<VerbsProvider::RailUse> VerbsProvider::open_rail(const VerbsPort& port, const RailConfig& config) {
  if (port.max_message_bytes < config.slot_bytes)
    return Error{Status::kUnsupported, 0,
                 "verbs: " + port.device + " sends " + std::to_string(port.max_message_bytes) +
                     " bytes at most; slots have " + std::to_string(config.slot_bytes)};
  Result<std::unique_ptr<Rail>> rail = Rail::open(port, config);
  if (!rail.ok()) return rail.error();
  if (rail.value()->config().send_queue_depth < Link::kSendQueueDepth)
    return Error{Status::kUnsupported, 0,
                 "verbs: " + port.device + " has queue pairs of " +
                     std::to_string(rail.value()->config().send_queue_depth) + " sends; " +
                     std::to_string(Link::kSendQueueDepth) + " are needed"};
  RailUse use;
  use.rail = std::move(rail.value());
  return use;
}

/// At the address that the user named, or else at that of each rail, so that the loss of one does not cut us
/// off; or at the host's.
Result<std::monostate> VerbsProvider::listen() {
  if (address_.hosts.empty()) {
    for (RailUse& use : rails_) {
      const std::string host = use.rail->port().network_address();
      if (!host.empty() && std::ranges::find(address_.hosts, host) == address_.hosts.end())
        address_.hosts.push_back(host);
    }
  }
  if (address_.hosts.empty()) {
    Result<std::string> host = find_host_address({});
    if (!host.ok()) return host.error();
    address_.hosts = {std::move(host.value())};
  }
  const bool in_range = config_.first_port != 0;
  // The port that the kernel finds free at the first address may be taken at the second.
  const std::uint32_t tries = in_range ? config_.last_port - config_.first_port + 1u : 64u;
  std::vector<FileDescriptor> listeners;
  bool listens = false;
  for (std::uint32_t i = 0; i < tries && !listens; ++i) {
    const std::uint64_t place = (std::uint64_t{index_of(config_.self)} + i) % tries;
    const auto port = static_cast<std::uint16_t>(in_range ? config_.first_port + place : 0);
    Result<bool> listening = listen_at(port, listeners);
    if (!listening.ok()) return listening.error();
    listens = listening.value();
  }
  if (!listens) return no_free_port(config_, address_.hosts, tries);
  if (::getrandom(&address_.instance, sizeof address_.instance, 0) != sizeof address_.instance)
    return system_error("verbs: getrandom", errno);
  address_text_ = address_.to_string();
  if (::sodium_init() < 0)
    return Error{Status::kDeviceFailed, 0,
                 "verbs: libsodium does not start: the system gives it no random numbers"};
  const auto log_line = [this](const char* line) { log("%s", line); };
  wire_up_ = std::make_unique<WireUp>(
      WireUp::Config{config_.self, config_.job_secret, config_.peer_timeout_ms, log_line}, address_,
      std::move(listeners), static_cast<WireUp::Client&>(*this));
  return std::monostate{};
}

/// Listens at `port` of all addresses; 0: the kernel chooses. An address after the first that does not work
/// is given up. Returns false if the port is in use at one of them.
Result<bool> VerbsProvider::listen_at(std::uint16_t port, std::vector<FileDescriptor>& listeners) {
  listeners.clear();
  address_.port = port;
  for (const std::string& host : address_.hosts) {
    Result<FileDescriptor> listener = listen_for_streams(host, address_.port);
    if (!listener.ok()) {
      if (listener.error().error_number == EADDRINUSE) return false;
      if (listeners.empty()) return listener.error();
      log(LogScope::kNode, "%s; going on without this address", listener.error().message.c_str());
      address_.hosts.resize(listeners.size());
      return true;
    }
    listeners.push_back(std::move(listener.value()));
  }
  return true;
}

VerbsProvider::~VerbsProvider() {
  if (abandoned_ || rails_.empty()) return;
  leaving_ = true;
  const std::uint64_t deadline_ns =
      monotonic_ns() + static_cast<std::uint64_t>(config_.peer_timeout_ms) * 1'000'000;
  linger(deadline_ns);
  for (const auto& peer : peers_)
    if (peer != nullptr) static_cast<void>(say_farewell(*peer));
  linger(deadline_ns);
}

/// Waits until the peers' devices have what was sent. They take it without their processes' help; only lost
/// packets, and links that are not up, take time.
void VerbsProvider::linger(std::uint64_t deadline_ns) noexcept {
  Deaf sink;
  const auto is_pending = [](const std::unique_ptr<VerbsEndpoint>& peer) {
    if (peer == nullptr || peer->dying || peer->down) return false;
    const bool second = peer->second != nullptr && !peer->second->link.all_retired();
    return second || !peer->main.link.all_retired() || peer->unfinished_write != kNoWrite;
  };
  while (std::any_of(peers_.begin(), peers_.end(), is_pending) && monotonic_ns() < deadline_ns) {
    for (const auto& peer : peers_)
      if (is_pending(peer)) for_each_lane(*peer, [&](VerbsLane& lane) { flush_tail(lane); });
    last_housekeeping_ = 0;
    if (poll(sink, 64) == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void VerbsProvider::log(const char* format, ...) const noexcept {
  va_list arguments;
  va_start(arguments, format);
  log_line(LogScope::kProcess, format, arguments);
  va_end(arguments);
}

void VerbsProvider::log(LogScope scope, const char* format, ...) const noexcept {
  va_list arguments;
  va_start(arguments, format);
  log_line(scope, format, arguments);
  va_end(arguments);
}

void VerbsProvider::log_line(LogScope scope, const char* format, va_list arguments) const noexcept {
  if (config_.log == nullptr) return;
  char line[1024];
  static_cast<void>(std::vsnprintf(line, sizeof line, format, arguments));
  config_.log(config_.log_context, scope, line);
}

std::size_t VerbsProvider::max_slot_bytes(Endpoint& endpoint) const noexcept {
  return std::min(capabilities_.max_slot_bytes, of(endpoint).address.slot_bytes - sizeof(SlotHeader));
}

bool VerbsProvider::reaches(std::string_view text) const noexcept {
  const std::optional<VerbsAddress> address = VerbsAddress::parse(text);
  return address && address->same_fabric(address_);
}

/// One more lane is to be made. No list that it or its peer may join later must need memory then.
void VerbsProvider::make_room_for_lane() {
  const auto make_room = [count = lanes_ + 1](auto& list) {
    if (list.capacity() < count) list.reserve(std::max<std::size_t>(2 * count, 16));
  };
  for (auto* const list : {&credit_due_, &draining_, &waiting_, &being_made_, &parking_, &lacking_})
    make_room(*list);
  for (auto* const list : {&blocked_, &dying_, &farewells_}) make_room(*list);
  if (wire_up_room_ <= lanes_) {
    wire_up_->make_room(2 * (lanes_ + 1));
    wire_up_room_ = 2 * (lanes_ + 1);
  }
}

VerbsEndpoint& VerbsProvider::find_or_make(PeerId peer) {
  const std::size_t index = index_of(peer);
  if (index >= peers_.size()) peers_.resize(index + 1);
  if (peers_[index] == nullptr) {
    make_room_for_lane();
    peers_[index] = std::make_unique<VerbsEndpoint>(peer);
    ++lanes_;
  }
  return *peers_[index];
}

/// REQUIRES: peer.pair_count > 1.
VerbsLane& VerbsProvider::second_lane(VerbsEndpoint& peer) {
  if (peer.second == nullptr) {
    make_room_for_lane();
    peer.second = std::make_unique<VerbsLane>(peer, 1);
    ++lanes_;
  }
  return *peer.second;
}

/// At the first contact; it stays as it is.
void VerbsProvider::set_address(VerbsEndpoint& peer, VerbsAddress address) {
  if (peer.has_address) return;
  const bool we_are_first = config_.self < peer.id;
  const std::vector<RailPair> pairs =
      we_are_first ? pair_rails(address_, address) : pair_rails(address, address_);
  peer.address = std::move(address);
  peer.has_address = true;
  for (const RailPair& pair : pairs) {
    peer.pairs[peer.pair_count++] = we_are_first ? VerbsEndpoint::Pair{pair.first, pair.second}
                                                 : VerbsEndpoint::Pair{pair.second, pair.first};
  }
}

std::size_t VerbsProvider::working_rails() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(rails_, false, &RailUse::lost));
}

/// REQUIRES: peer.has_address.
bool VerbsProvider::has_working_rail(const VerbsEndpoint& peer) const noexcept {
  return std::any_of(peer.pairs.begin(), peer.pairs.begin() + peer.pair_count,
                     [&](const VerbsEndpoint::Pair& pair) { return !rails_[pair.mine].lost; });
}

Result<Endpoint*> VerbsProvider::connect(PeerId id, std::string_view text) {
  const std::string who = "verbs: peer " + std::to_string(index_of(id));
  const std::optional<VerbsAddress> address = VerbsAddress::parse(text);
  if (!address || index_of(id) >= config_.peer_limit || id == config_.self)
    return Error{Status::kUnreachable, 0, who + " has no address that can be connected to"};
  if (!address->same_fabric(address_))
    return Error{Status::kUnreachable, 0,
                 who + " is on another fabric (another link layer or InfiniBand subnet)"};
  if (working_rails() == 0) return Error{Status::kUnreachable, 0, "verbs: the device failed"};
  VerbsEndpoint& peer = find_or_make(id);
  if (peer.dying || peer.down) return Error{Status::kPeerFailed, 0, who + " is gone"};
  if (peer.has_address && peer.address.instance != address->instance)
    return Error{Status::kUnreachable, 0, who + " has another address than it had"};
  set_address(peer, *address);
  if (!has_working_rail(peer))
    return Error{Status::kUnreachable, 0, who + " is reached by the device that failed"};
  if (peer.connected) return &peer;
  peer.connected = true;
  // At once, not in the next poll(): the peer may be asleep.
  if (peer.main.link.state == LinkState::kNone && !peer.main.has_remote)
    wire_up_->seek(peer.main.contact, peer.address);
  return &peer;
}

std::string VerbsProvider::address_of(PeerId id) const {
  const VerbsEndpoint* const peer = find(id);
  return peer != nullptr && peer->has_address ? peer->address.to_string() : std::string();
}

namespace {

/// Other memory could make room; else it is this memory that cannot be registered.
bool is_shortage(int error_number) noexcept {
  return error_number == ENOMEM || error_number == EAGAIN || error_number == ENOSPC;
}

}  // namespace

Status VerbsProvider::register_memory(void* address, std::size_t length_bytes, Access access,
                                      MemoryRegion& region) noexcept {
  const int rights = (access == Access::kWrite ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0) |
                     (capabilities_.on_demand ? IBV_ACCESS_ON_DEMAND : 0);
  std::array<Registration, VerbsAddress::kMostRails> registrations;
  std::uint64_t keys = 0;  // Of one rail each half.
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    if (rails_[i].lost) continue;
    registrations[i].reset(ibv_reg_mr(rails_[i].rail->domain(), address, length_bytes, rights));
    if (registrations[i] == nullptr) return is_shortage(errno) ? Status::kNoMemory : Status::kUnsupported;
    keys |= std::uint64_t{registrations[i]->rkey} << (32 * i);
  }
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{keys}, 0};
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
  registrations_[region.local_key] = std::move(registrations);
  ++figures_.registrations;
  return Status::kOk;
}

void VerbsProvider::deregister_memory(MemoryRegion& region) noexcept {
  registrations_[region.local_key] = {};
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
          .network_credit_messages = now.credit_messages};
}

VerbsFigures VerbsProvider::figures() const noexcept {
  VerbsFigures figures = figures_;
  figures.registered_slot_bytes = send_slots_->registered_bytes();
  figures.waiting_messages = waiting_messages_.count();
  figures.dials = wire_up_->dials_made();
  figures.descriptors = wire_up_->descriptors();
  figures.send_slots_taken = send_slots_->count() - send_slots_->free_count();
  for (const RailUse& use : rails_) {
    figures.registered_slot_bytes += use.rail->receive_slots().registered_bytes();
    figures.queue_pairs += static_cast<std::uint32_t>(use.links.size());
  }
  return figures;
}

}  // namespace ch3_offload
