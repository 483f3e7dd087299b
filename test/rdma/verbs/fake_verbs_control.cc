// The network of the fake verbs device, and what tests say to it (fake_verbs.h).

#include <endian.h>

#include <cerrno>
#include <cstring>
#include <ostream>

#include "rdma/verbs/fake_verbs_network.h"

namespace ch3_offload::fake_verbs {

ibv_gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) noexcept {
  ibv_gid gid{};
  const std::uint8_t tail[] = {0xff, 0xff, a, b, c, d};
  std::memcpy(gid.raw + 10, tail, sizeof tail);
  return gid;
}

ibv_gid prefix_gid(std::uint64_t subnet_prefix, std::uint64_t interface_id) noexcept {
  ibv_gid gid{};
  gid.global.subnet_prefix = htobe64(subnet_prefix);
  gid.global.interface_id = htobe64(interface_id);
  return gid;
}

namespace {

constexpr std::uint64_t kDefaultPrefix = 0xFE80'0000'0000'0000u;

}  // namespace

PortConfig ethernet_port() {
  return {
      .gids = {{.value = prefix_gid(kDefaultPrefix, 0x0200'00FF'FE00'0001u), .type = IBV_GID_TYPE_ROCE_V1},
               {.value = ipv4_gid(127, 0, 0, 1), .type = IBV_GID_TYPE_ROCE_V2}}};
}

PortConfig infiniband_port(std::uint16_t lid) {
  return {.link_layer = IBV_LINK_LAYER_INFINIBAND,
          .lid = lid,
          .sm_lid = 1,
          .gids = {{.value = prefix_gid(kDefaultPrefix, 0x0200'0000'0000'0000u + lid),
                    .type = IBV_GID_TYPE_IB,
                    .interface_index = 0}}};
}

Config two_rails() {
  Config config;
  config.devices.push_back(config.devices[0]);
  config.devices[1].name = "fake1";
  for (Gid& gid : config.devices[1].ports[0].gids) {
    if (gid.type == IBV_GID_TYPE_ROCE_V2)
      gid.value = ipv4_gid(127, 0, 0, 2);
    else
      ++gid.value.raw[15];
  }
  return config;
}

Network& Network::get() {
  static Network network;
  static const bool ready = (network.reset({}), true);
  static_cast<void>(ready);
  return network;
}

Network::~Network() {
  std::unique_lock lock(mutex_);
  stop_pump(lock);
}

void Network::reset(Config config) {
  std::unique_lock lock(mutex_);
  stop_pump(lock);
  pending_.clear();
  queue_pairs_.clear();
  receive_queues_.clear();
  completion_queues_.clear();
  channels_.clear();
  regions_.clear();
  local_keys_.clear();
  remote_keys_.clear();
  domains_.clear();
  contexts_.clear();
  handles_.clear();
  devices_.clear();
  device_lists_ = 0;
  counters_ = {};
  violations_.clear();
  failures_.clear();
  drops_ = 0;
  config_ = std::move(config);
  for (std::size_t i = 0; i < config_.devices.size(); ++i) {
    auto device = std::make_unique<Device>();
    device->index = i;
    device->ports.resize(config_.devices[i].ports.size());
    devices_.push_back(std::move(device));
  }
  pending_.reserve(1024);
  message_.reserve(std::size_t{1} << 16);
}

Device* Network::find_device(std::string_view name) noexcept {
  for (const auto& device : devices_) {
    if (config_of(*device).name == name) return device.get();
  }
  return nullptr;
}

namespace {

thread_local int calls_begun = 0;

}  // namespace

bool is_in_call() noexcept { return calls_begun > 0; }

Call::~Call() { --calls_begun; }

Call::Call(std::string_view function) : lock_(Network::get().mutex_) {
  ++calls_begun;
  auto& failures = Network::get().failures_;
  if (failures.empty()) return;
  const auto found = failures.find(function);
  if (found == failures.end()) return;
  Network::Failure& failure = found->second;
  if (failure.skip > 0) {
    --failure.skip;
  } else if (failure.times > 0) {
    --failure.times;
    error_ = failure.error;
  }
}

std::nullptr_t failed(int error) noexcept {
  errno = error;
  return nullptr;
}

bool Leaks::none() const noexcept {
  return device_lists + contexts + domains + regions + channels + completion_queues + receive_queues +
             queue_pairs ==
         0;
}

std::ostream& operator<<(std::ostream& out, const Leaks& leaks) {
  return out << leaks.device_lists << " device lists, " << leaks.contexts << " contexts, " << leaks.domains
             << " domains, " << leaks.regions << " regions, " << leaks.channels << " channels, "
             << leaks.completion_queues << " completion queues, " << leaks.receive_queues << " SRQs, "
             << leaks.queue_pairs << " queue pairs";
}

void reset(Config config) { Network::get().reset(std::move(config)); }

void adjust(const std::function<void(Config&)>& change) {
  const Call call("adjust");
  change(Network::get().config_);
}

Counters counters() {
  const Call call("counters");
  return Network::get().counters_;
}

Leaks leaks() {
  const Call call("leaks");
  const Network& network = Network::get();
  return {.device_lists = network.device_lists_,
          .contexts = network.contexts_.size(),
          .domains = network.domains_.size(),
          .regions = network.regions_.size(),
          .channels = network.channels_.size(),
          .completion_queues = network.completion_queues_.size(),
          .receive_queues = network.receive_queues_.size(),
          .queue_pairs = network.queue_pairs_.size()};
}

std::vector<std::string> violations() {
  const Call call("violations");
  return Network::get().violations_;
}

std::vector<int> completion_vectors() {
  const Call call("completion_vectors");
  std::vector<int> vectors;
  Network::get().completion_queues_.for_each(
      [&](const CompletionQueue& queue) { vectors.push_back(queue.vector); });
  return vectors;
}

std::vector<QueuePairInfo> queue_pairs() {
  const Call call("queue_pairs");
  Network& network = Network::get();
  std::vector<QueuePairInfo> result;
  for (const auto& device : network.devices_) {
    for (const auto& [number, pair] : device->queue_pairs) {
      result.push_back({.device = network.config_of(*device).name,
                        .number = number,
                        .peer_number = pair->attributes.dest_qp_num,
                        .state = pair->now,
                        .outstanding = pair->sends.size(),
                        .context = pair->context});
    }
  }
  return result;
}

void set_link(std::string_view name, bool up, std::uint8_t port) {
  const Call call("set_link");
  Network& network = Network::get();
  Device* const device = network.find_device(name);
  if (device == nullptr) return network.violation("set_link(): no device " + std::string(name));
  device->ports.at(port - 1u).down = !up;
  network.add_port_event(*device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, port);
  network.progress();
}

void set_silent(std::string_view name, bool silent, std::uint8_t port) {
  const Call call("set_silent");
  Network& network = Network::get();
  Device* const device = network.find_device(name);
  if (device == nullptr) return network.violation("set_silent(): no device " + std::string(name));
  device->ports.at(port - 1u).silent = silent;
  network.progress();
}

void drop_next(unsigned transfers, Loss loss) {
  const Call call("drop_next");
  Network::get().drops_ = transfers;
  Network::get().drop_kind_ = loss;
}

void raise_event(std::string_view name, ibv_event_type event, std::uint8_t port) {
  const Call call("raise_event");
  Network& network = Network::get();
  Device* const device = network.find_device(name);
  if (device == nullptr) return network.violation("raise_event(): no device " + std::string(name));
  network.add_port_event(*device, event, port);
}

bool kill_queue_pair(std::string_view name, std::uint32_t number) {
  const Call call("kill_queue_pair");
  Network& network = Network::get();
  Device* const device = network.find_device(name);
  if (device == nullptr || !device->queue_pairs.contains(number)) return false;
  QueuePair& pair = *device->queue_pairs[number];
  network.add_event(*pair.owner, IBV_EVENT_QP_FATAL, &pair);
  network.enter_error(pair);
  return true;
}

void kill_device(std::string_view name) {
  const Call call("kill_device");
  Network& network = Network::get();
  Device* const device = network.find_device(name);
  if (device == nullptr) return network.violation("kill_device(): no device " + std::string(name));
  device->dead = true;
  network.add_port_event(*device, IBV_EVENT_DEVICE_FATAL, 0);
  for (const auto& [number, pair] : device->queue_pairs) network.enter_error(*pair);
}

void fail_call(std::string_view function, unsigned nth, int error, unsigned times) {
  const Call call("fail_call");
  Network::get().failures_.insert_or_assign(std::string(function),
                                            Network::Failure{nth == 0 ? 0 : nth - 1, times, error});
}

}  // namespace ch3_offload::fake_verbs
