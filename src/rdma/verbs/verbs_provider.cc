// Making the provider, its end, and connecting. See verbs_provider.h.

#include "rdma/verbs/verbs_provider.h"

#include <sodium/core.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "rdma/descriptor_limit.h"
#include "rdma/introduction/first_of_two.h"
#include "rdma/introduction/host_address.h"
#include "rdma/introduction/listening.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"
#include "rdma/verbs/devices/port_choice.h"

namespace ch3_offload {
namespace {

/// Below this a payload is cheaper copied through slots than registered on both sides.
constexpr std::size_t kWriteThresholdBytes = std::size_t{16} << 10;

/// Writes of at least this go over both lanes: of shorter ones the halves take hardly less time than the
/// whole.
constexpr std::size_t kStripedBytes = std::size_t{64} << 10;

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

/// kUnsupported, kDeviceFailed, kNoMemory.
Result<std::unique_ptr<Rail>> open_rail(const VerbsPort& port, const RailConfig& config, std::size_t index) {
  if (port.max_message_bytes < config.slot_bytes)
    return Error{Status::kUnsupported, 0,
                 "verbs: " + port.device + " sends " + std::to_string(port.max_message_bytes) +
                     " bytes at most; slots have " + std::to_string(config.slot_bytes)};
  Result<std::unique_ptr<Rail>> rail = Rail::open(port, config, static_cast<std::uint8_t>(index));
  if (!rail.ok()) return rail.error();
  if (rail.value()->config().send_queue_depth < Link::kSendQueueDepth)
    return Error{Status::kUnsupported, 0,
                 "verbs: " + port.device + " has queue pairs of " +
                     std::to_string(rail.value()->config().send_queue_depth) + " sends; " +
                     std::to_string(Link::kSendQueueDepth) + " are needed"};
  return rail;
}

/// Opens rails on those of `ports`, best first, that work, and does without the others. If none works, the
/// error is that of the first port.
Result<std::vector<std::unique_ptr<Rail>>> open_some(const std::vector<VerbsPort>& ports,
                                                     const VerbsConfig& config, const Log& log) {
  RailConfig share = config.rail;
  const auto count = static_cast<std::uint32_t>(ports.size());
  share.send_queue_depth = Link::kSendQueueDepth;
  share.most_queue_pairs = std::min(share.most_queue_pairs / count, 2 * config.peer_limit);
  share.most_receive_slots /= count;
  share.completion_vector = config.number_on_node;
  std::vector<std::unique_ptr<Rail>> rails;
  std::optional<Error> first_error;
  for (const VerbsPort& port : ports) {
    Result<std::unique_ptr<Rail>> rail = open_rail(port, share, rails.size());
    if (rail.ok()) {
      rails.push_back(std::move(rail.value()));
      continue;
    }
    if (ports.size() > 1)
      log(LogScope::kNode, "%s; going on without this port", rail.error().message.c_str());
    if (!first_error) first_error = rail.error();
  }
  if (rails.empty()) return *first_error;
  return rails;
}

/// The best port that can be opened and, where they are wanted, others like it.
Result<std::vector<std::unique_ptr<Rail>>> open_rails(const VerbsConfig& config, const Log& log) {
  Result<VerbsPorts> ports =
      survey_verbs_ports(config.device, config.partition_key, config.processors, config.interface);
  if (!ports.ok()) return ports.error();
  std::vector<VerbsPort>& usable = ports.value().usable;
  if (usable.empty()) return Error{Status::kUnsupported, 0, no_port_message(ports.value())};
  std::optional<Error> first_error;
  while (!usable.empty()) {
    const std::vector<VerbsPort> chosen = choose_rails(usable, config);
    Result<std::vector<std::unique_ptr<Rail>>> rails = open_some(chosen, config, log);
    if (rails.ok()) return rails;
    if (!first_error) first_error = rails.error();
    std::erase_if(usable, [&](const VerbsPort& port) {
      return std::ranges::any_of(chosen, [&](const VerbsPort& one) { return one.is_same(port); });
    });
    if (!usable.empty()) log(LogScope::kNode, "%s; trying the next best port", rails.error().message.c_str());
  }
  return *first_error;
}

/// At the address that the user named, or else at that of each rail, so that the loss of one does not cut us
/// off; or at the host's.
Result<std::vector<std::string>> choose_hosts(const VerbsConfig& config,
                                              const std::vector<std::unique_ptr<Rail>>& rails) {
  std::vector<std::string> hosts;
  for (const std::unique_ptr<Rail>& rail : rails) {
    std::string host = rail->port().network_address();
    if (!host.empty() && std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(std::move(host));
  }
  if (config.interface.empty() && !hosts.empty()) return hosts;
  Result<std::string> host = find_host_address(config.interface, config.loopback_serves);
  if (!host.ok()) return Error{host.error().status, 0, "verbs: " + host.error().message};
  return std::vector<std::string>{std::move(host.value())};
}

}  // namespace

Result<std::unique_ptr<VerbsProvider>> VerbsProvider::create(const VerbsConfig& config) {
  const Log log(config.log, config.log_context);
  Result<Set> set = open(config, log);
  if (!set.ok()) return set.error();
  auto provider = std::make_unique<VerbsProvider>(config, std::move(set.value()));
  if (provider->watch_all()) return provider;
  const int error_number = errno;
  provider->abandon();
  return system_error("verbs: making an epoll descriptor", error_number);
}

Result<std::unique_ptr<Provider>> make_verbs_provider(const VerbsConfig& config) {
  Result<std::unique_ptr<VerbsProvider>> provider = VerbsProvider::create(config);
  if (!provider.ok()) return provider.error();
  return std::unique_ptr<Provider>(std::move(provider.value()));
}

Result<VerbsProvider::Set> VerbsProvider::open(const VerbsConfig& config, const Log& log) {
  raise_descriptor_limit();
  if (::sodium_init() < 0)
    return Error{Status::kDeviceFailed, 0,
                 "verbs: libsodium does not start: the system gives it no random numbers"};
  Set set;
  Result<std::vector<std::unique_ptr<Rail>>> rails = open_rails(config, log);
  if (!rails.ok()) return rails.error();
  set.rails = std::move(rails.value());
  set.address.ethernet = set.rails[0]->port().ethernet;
  set.address.slot_bytes = static_cast<std::uint32_t>(config.rail.slot_bytes);
  std::vector<ibv_pd*> domains;
  for (const std::unique_ptr<Rail>& rail : set.rails) {
    domains.push_back(rail->domain());
    set.address.networks.push_back(rail->port().network);
  }
  Result<std::vector<std::string>> hosts = choose_hosts(config, set.rails);
  if (!hosts.ok()) return hosts.error();
  set.address.hosts = std::move(hosts.value());
  Result<std::vector<FileDescriptor>> listeners =
      listen_for_introductions({"verbs: ", config.first_port, config.last_port, index_of(config.self)}, log,
                               set.address.hosts, set.address.port);
  if (!listeners.ok()) return listeners.error();
  set.listeners = std::move(listeners.value());
  if (::getrandom(&set.address.instance, sizeof set.address.instance, 0) != sizeof set.address.instance)
    return system_error("verbs: getrandom", errno);
  set.slots = std::make_unique<SlotPool>(domains, config.rail.slot_bytes, config.rail.slots_per_slab,
                                         config.most_send_slots);
  if (std::optional<Error> error = set.slots->grow()) return std::move(*error);
  return set;
}

VerbsProvider::VerbsProvider(const VerbsConfig& config, Set&& set)
    : config_(config),
      log_(config.log, config.log_context),
      address_(std::move(set.address)),
      rails_(std::move(set.rails)),
      registrations_(rails_),
      links_({config.self, address_, static_cast<std::uint64_t>(config.peer_timeout_ms)}, rails_, log_, *this,
             transport_),
      transport_(rails_, registrations_, std::move(*set.slots), log_, links_),
      introducer_({.protocol = kLinks,
                   .secret = Transcript(config.job_secret),
                   .timeout_ms = config.peer_timeout_ms,
                   .guest_ms = config.peer_timeout_ms / 2,
                   .guests_wait = true,
                   .knock_ms = config.peer_timeout_ms / 2,
                   .name = "verbs: ",
                   .log = log_},
                  std::move(set.listeners), links_) {
  links_.introduce_by(introducer_);
  capabilities_.name = "verbs";
  capabilities_.max_slot_bytes = config_.rail.slot_bytes - sizeof(SlotHeader);
  capabilities_.write = true;
  capabilities_.write_threshold_bytes = kWriteThresholdBytes;
  capabilities_.registering_costs = true;
  capabilities_.on_demand =
      config_.on_demand && std::ranges::all_of(rails_, [](const auto& rail) { return rail->faults_pages(); });
  if (config_.on_demand && !capabilities_.on_demand)
    log_(LogScope::kNode, "verbs: %s cannot fault pages in (on-demand paging): memory that it uses is pinned",
         port().device.c_str());
  capabilities_.registrations = capabilities_.on_demand ? 0 : rails_.size();
  // Half of the device, for other jobs may be there, shared by this one's processes.
  for (const std::unique_ptr<Rail>& rail : rails_) {
    const std::size_t share = rail->most_regions() / 2 / config_.processes_on_node;
    capabilities_.most_regions = std::min(capabilities_.most_regions, std::max<std::size_t>(share, 1));
  }
}

VerbsProvider::~VerbsProvider() {
  if (abandoned_) return;
  while (!leave()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

/// Whether the peers' devices lack something that was sent. They take it without their processes' help; only
/// lost packets, and links that are not up, take time.
bool VerbsProvider::has_unsent(const VerbsEndpoint& peer) noexcept {
  if (peer.is_over()) return false;
  const bool second = peer.second != nullptr && !peer.second->link.all_retired();
  return second || !peer.main.link.all_retired() || peer.unfinished_write != kNone;
}

bool VerbsProvider::leave() noexcept {
  constexpr int kMostPolls = 16;
  if (leaving_ == Leaving::kNot) {
    links_.leave();
    leaving_ = Leaving::kSending;
    leaving_until_ns_ = monotonic_ns() + static_cast<std::uint64_t>(config_.peer_timeout_ms) * 1'000'000;
  }
  Deaf sink;
  for (int polls = 0; leaving_ != Leaving::kOver; ++polls) {
    bool is_pending = false;
    for (const auto& peer : peers_) {
      if (peer == nullptr || !has_unsent(*peer)) continue;
      is_pending = true;
      for_each_lane(*peer, [&](VerbsLane& lane) { transport_.flush_tail(lane); });
    }
    if (is_pending && monotonic_ns() < leaving_until_ns_) {
      last_housekeeping_ = 0;
      if (poll(sink, 64) == 0 || polls >= kMostPolls) return false;
    } else if (leaving_ == Leaving::kSending) {
      leaving_ = Leaving::kFarewell;
      for (const auto& peer : peers_)
        if (peer != nullptr) static_cast<void>(say_farewell(*peer));
    } else {
      leaving_ = Leaving::kOver;
    }
  }
  return true;
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
  if (lanes_ < room_) return;
  const std::size_t room = std::max<std::size_t>(2 * lanes_, 16);
  transport_.make_room(room);
  links_.make_room(room);
  introducer_.make_room(room);
  dying_.reserve(room);
  farewells_.reserve(room);
  room_ = room;
}

/// REQUIRES: peers_.is_current(peer). Throws std::bad_alloc.
VerbsEndpoint& VerbsProvider::find_or_make(PeerId peer) {
  if (VerbsEndpoint* const known = peers_.find(peer)) return *known;
  make_room_for_lane();
  VerbsEndpoint& made = peers_.make(peer);
  ++lanes_;
  return made;
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

/// Asks for the second lane, if it has no link.
bool VerbsProvider::second_lane_is_up(VerbsEndpoint& peer) noexcept {
  try {
    VerbsLane& second = second_lane(peer);
    if (second.link.state == LinkState::kNone) {
      second.wanted = true;
      links_.want_link(second);
    }
    return second.link.state == LinkState::kUp;
  } catch (const std::bad_alloc&) {
    return false;  // The main lane takes all of it.
  }
}

Status VerbsProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                            const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                            WorkId work) noexcept {
  VerbsEndpoint& peer = of(endpoint);
  if (const Status status = transport_.may_write(peer); status != Status::kOk) return status;
  const bool striped = length_bytes >= kStripedBytes && peer.pair_count > 1 && second_lane_is_up(peer);
  transport_.write(peer, source, length_bytes, region, destination, immediate, work, striped);
  return Status::kOk;
}

/// At the first contact; they stay as they are.
void VerbsProvider::set_address(VerbsEndpoint& peer, const VerbsAddress& address, const PeerNames& names) {
  if (peer.has_address) return;
  const bool we_are_first = comes_first(config_.self, address_.instance, peer.id, names, address.instance);
  const std::vector<RailPair> pairs =
      we_are_first ? pair_rails(address_, address) : pair_rails(address, address_);
  peer.address = address;
  peer.names = names;
  peer.has_address = true;
  for (const RailPair& pair : pairs) {
    peer.pairs[peer.pair_count++] = we_are_first ? VerbsEndpoint::Pair{pair.first, pair.second}
                                                 : VerbsEndpoint::Pair{pair.second, pair.first};
  }
}

VerbsLane* VerbsProvider::meet(PeerId id, std::uint32_t lane, const VerbsAddress& address,
                               const PeerNames& names) {
  if (slot_of(id) < config_.first_peer || slot_of(id) >= config_.peer_limit || !peers_.is_current(id) ||
      !address.same_fabric(address_))
    return nullptr;
  VerbsEndpoint& peer = find_or_make(id);
  if (peer.is_over()) return nullptr;
  if (peer.has_address && (peer.address.instance != address.instance || peer.names != names)) return nullptr;
  set_address(peer, address, names);
  if (lane >= peer.pair_count) return nullptr;
  return lane == 0 ? &peer.main : &second_lane(peer);
}

/// REQUIRES: peer.has_address.
bool VerbsProvider::has_working_rail(const VerbsEndpoint& peer) const noexcept {
  return std::any_of(peer.pairs.begin(), peer.pairs.begin() + peer.pair_count,
                     [&](const VerbsEndpoint::Pair& pair) { return !rails_[pair.mine]->lost; });
}

Result<Endpoint*> VerbsProvider::connect(PeerId id, std::string_view text,
                                         const std::optional<PeerNames>& names) {
  const std::string who = "verbs: peer " + std::to_string(index_of(id));
  const std::optional<VerbsAddress> address = VerbsAddress::parse(text);
  if (!address || slot_of(id) >= config_.peer_limit || id == config_.self)
    return Error{Status::kUnreachable, 0, who + " has no address that can be connected to"};
  if (!address->same_fabric(address_))
    return Error{Status::kUnreachable, 0,
                 who + " is on another fabric (another link layer or InfiniBand subnet)"};
  if (!peers_.is_current(id)) return Error{Status::kPeerFailed, 0, who + " is gone"};
  VerbsEndpoint& peer = find_or_make(id);
  if (peer.is_over()) return Error{Status::kPeerFailed, 0, who + " is gone"};
  if (peer.has_address && peer.address.instance != address->instance)
    return Error{Status::kUnreachable, 0, who + " has another address than it had"};
  if (peer.has_address && names && peer.names != *names)
    return Error{Status::kUnreachable, 0, who + " has other numbers for us than it had"};
  set_address(peer, *address, names.value_or(PeerNames{config_.self, id}));
  if (!has_working_rail(peer))
    return Error{Status::kUnreachable, 0, who + " is reached by a device that failed"};
  if (peer.connected) return &peer;
  peer.connected = true;
  // At once, not in the next poll(): the peer may be asleep.
  if (peer.main.link.state == LinkState::kNone && !peer.main.has_remote) introducer_.seek(peer.main);
  return &peer;
}

std::string VerbsProvider::address_of(PeerId id) const {
  const VerbsEndpoint* const peer = find(id);
  return peer != nullptr && peer->has_address ? peer->address.to_string() : std::string();
}

VerbsFigures VerbsProvider::figures() const noexcept {
  const MessageBuffers& buffers = transport_.buffers();
  VerbsFigures figures{.registered_slot_bytes = buffers.slots().registered_bytes(),
                       .registrations = registrations_.count(),
                       .send_slots_taken = buffers.slots_taken(),
                       .waiting_messages = buffers.waiting(),
                       .dials = introducer_.dials_made(),
                       .descriptors = introducer_.descriptors(),
                       .links = links_.figures(),
                       .traffic = transport_.figures()};
  for (const std::unique_ptr<Rail>& rail : rails_) {
    figures.registered_slot_bytes += rail->receive_slots().registered_bytes();
    figures.queue_pairs += rail->lanes().size();
  }
  return figures;
}

ProviderCounters VerbsProvider::counters() const noexcept {
  const VerbsFigures now = figures();
  return {.network_registered_bytes = now.registered_slot_bytes,
          .network_connections = now.queue_pairs,
          .network_connections_made = now.links.made,
          .network_connections_lost = now.links.lost,
          .network_connections_parked = now.links.parked,
          .network_sent_again = now.links.items_sent_again,
          .network_credit_messages = now.traffic.credit_messages};
}

}  // namespace ch3_offload
