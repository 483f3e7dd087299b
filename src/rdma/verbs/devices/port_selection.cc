#include "rdma/verbs/devices/port_selection.h"

#include <arpa/inet.h>
#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "rdma/introduction/host_address.h"
#include "rdma/verbs/devices/port_choice.h"
#include "rdma/verbs/port_wish.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {
namespace {

std::string to_text(int family, const std::uint8_t* address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, address, text, sizeof text);
  return text;
}

bool is_zero(const ibv_gid& gid) noexcept {
  return gid.global.subnet_prefix == 0 && gid.global.interface_id == 0;
}
bool is_ipv4(const ibv_gid& gid) noexcept {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}
bool is_link_local(const ibv_gid& gid) noexcept { return gid.raw[0] == 0xFE && (gid.raw[1] & 0xC0) == 0x80; }

/// How well a GID of a RoCE port serves; the greater the better, 0: not at all.
int gid_rank(const ibv_gid_entry& entry) noexcept {
  if (is_zero(entry.gid)) return 0;
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
    if (is_ipv4(entry.gid)) return 5;
    return is_link_local(entry.gid) ? 3 : 4;
  }
  return entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? 1 : 0;
}

const char* gid_reason(int rank) noexcept {
  switch (rank) {
    case 5: return "RoCE v2 with an IPv4 address";
    case 4: return "RoCE v2 with a global IPv6 address; there is none with IPv4";
    case 3: return "RoCE v2 with a link-local address; there is no other";
    default: return "RoCE v1, which does not cross routers; there is no RoCE v2";
  }
}

/// Gbit/s from the port's width and speed codes (IBTA 14.2.5.6). 0: not known.
std::uint32_t rate_of(const ibv_port_attr& port) noexcept {
  std::uint32_t lanes = 0;
  switch (port.active_width) {
    case 1: lanes = 1; break;
    case 2: lanes = 4; break;
    case 4: lanes = 8; break;
    case 8: lanes = 12; break;
    case 16: lanes = 2; break;
    default: return 0;
  }
  switch (port.active_speed) {  // Tenths of Gbit/s per lane.
    case 1: return lanes * 25 / 10;
    case 2: return lanes * 5;
    case 4:
    case 8: return lanes * 10;
    case 16: return lanes * 14;
    case 32: return lanes * 25;
    case 64: return lanes * 50;
    case 128: return lanes * 100;
    default: return 0;
  }
}

std::string why_not_active(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN: return "the port is down (no cable, no link, or the network interface is down)";
    case IBV_PORT_INIT:
    case IBV_PORT_ARMED: return "the port waits for a subnet manager (is opensm running?)";
    default: return std::string("the port is not active (") + ibv_port_state_str(state) + ")";
  }
}

/// The IP address in a GID of RoCE; empty: it has none that can be connected to.
std::string address_in(const ibv_gid& gid) {
  if (is_link_local(gid)) return {};
  return is_ipv4(gid) ? to_text(AF_INET, gid.raw + 12) : to_text(AF_INET6, gid.raw);
}

/// What the user's list of interfaces says of the addresses of this node.
class NamedInterfaces {
 public:
  explicit NamedInterfaces(std::string_view list) : list_(list) {
    if (!list.empty()) interfaces_ = interfaces_of_node();
  }
  static constexpr std::size_t kNotNamed = 1;
  /// The greater the better. kNotNamed: the list says nothing of that address; 0: it excludes it.
  std::size_t rank(const std::string& address) const {
    if (list_.empty() || address.empty()) return kNotNamed;
    const auto found = std::ranges::find(interfaces_, address, &HostInterface::address);
    const HostInterface one = found != interfaces_.end() ? *found : HostInterface{"", address};
    if (is_excluded(list_, one)) return 0;
    const std::optional<std::size_t> place = place_in_list(list_, one);
    return place ? SIZE_MAX - *place : kNotNamed;
  }

 private:
  std::string_view list_;
  std::vector<HostInterface> interfaces_;
};

/// Fills in the GID. False: none serves; `why` says so.
bool choose_gid(ibv_context* context, const ibv_port_attr& attributes, int wanted_index,
                const NamedInterfaces& named, VerbsPort& port, std::string& why) {
  int best = 0;
  std::size_t best_named = 0;
  for (int index = 0; index < attributes.gid_tbl_len; ++index) {
    if (wanted_index >= 0 && index != wanted_index) continue;
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, port.port, static_cast<std::uint32_t>(index), &entry, 0) != 0) continue;
    const int rank = port.ethernet ? gid_rank(entry) : (is_zero(entry.gid) ? 0 : 5);
    if (rank == 0) continue;
    const std::size_t named_rank =
        port.ethernet ? named.rank(address_in(entry.gid)) : NamedInterfaces::kNotNamed;
    if (std::pair(named_rank, rank) <= std::pair(best_named, best)) continue;
    best = rank;
    best_named = named_rank;
    port.gid_index = index;
    port.gid = entry.gid;
    port.gid_is_roce_v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    if (!port.ethernet) break;
  }
  if (best == 0) {
    why = wanted_index >= 0 ? "GID index " + std::to_string(wanted_index) + " is empty or of no use"
                            : "it has no GID (does its network interface have an address?)";
    return false;
  }
  if (wanted_index >= 0)
    port.reason = "asked for";
  else if (best_named > NamedInterfaces::kNotNamed)
    port.reason = "of an interface that INTERFACE names";
  else
    port.reason = port.ethernet ? gid_reason(best) : "the first one";
  return true;
}

/// An entry of a port's table of partitions.
struct Partition {
  std::uint16_t key;
  std::uint16_t index;
};

/// Finds the entry of the partition of `wanted`, with full membership if there is one. With 0, it finds the
/// first entry with full membership.
std::optional<Partition> find_partition(ibv_context* context, std::uint8_t port, std::uint16_t entries,
                                        std::uint16_t wanted) noexcept {
  const std::uint16_t partition = wanted & ~kFullMember;
  std::optional<Partition> found;
  for (std::uint16_t index = 0; index < entries; ++index) {
    __be16 entry = 0;
    if (ibv_query_pkey(context, port, index, &entry) != 0) continue;
    const std::uint16_t key = be16toh(entry);
    const bool is_full = (key & kFullMember) != 0;
    if ((key & ~kFullMember) == 0 || (partition != 0 && (key & ~kFullMember) != partition)) continue;
    if (is_full) return Partition{key, index};
    // A limited member reaches the full ones. Nobody wants that without having asked for it.
    if (partition != 0 && !found) found = Partition{key, index};
  }
  return found;
}

std::string key_text(std::uint16_t key) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%04x", key);
  return text.data();
}

/// Fills in the partition of a port of InfiniBand. False: there is none that serves; `why` says so.
bool choose_partition(ibv_context* context, std::uint16_t entries, std::uint16_t wanted, VerbsPort& port,
                      std::string& why) {
  const std::optional<Partition> found = find_partition(context, port.port, entries, wanted);
  if (!found) {
    why = wanted != 0 ? "it is not in partition " + key_text(wanted) +
                            " (the subnet manager's partitions say who is in which)"
                      : "it is a full member of no partition (the subnet manager's partitions say who is)";
    return false;
  }
  port.partition_key = found->key;
  port.partition_index = found->index;
  return true;
}

/// Why a device cannot be opened. libibverbs says ENOENT, too, where its file is there and this user may not
/// open it.
std::string open_error(ibv_device* device, int error_number) {
  const std::string file = std::string("/dev/infiniband/") + device->dev_name;
  if (error_number == ENOENT && ::access(file.c_str(), F_OK) == 0 && ::access(file.c_str(), R_OK | W_OK) != 0)
    error_number = errno;
  std::string text = "cannot be opened: " + std::generic_category().message(error_number);
  if (error_number == EACCES || error_number == EPERM)
    text += " (this user needs read and write permission on /dev/infiniband/uverbs*)";
  if (error_number == ENOENT) text += " (is there a " + file + "? A container may lack it)";
  return text;
}

std::string port_name(std::string_view device, int number) {
  return std::string(device) + ":" + std::to_string(number);
}

/// What a survey asks of every device.
struct Asked {
  std::uint16_t partition_key;
  const ProcessorSet& processors;
  NamedInterfaces interfaces;
};

void survey_device(ibv_device* device, const PortWish& wish, const Asked& asked, VerbsPorts& ports) {
  const char* const name = ibv_get_device_name(device);
  if (device->transport_type == IBV_TRANSPORT_IWARP) {
    ports.rejected.push_back({name, "iWARP has no RDMA write with immediate"});
    return;
  }
  errno = 0;
  const DeviceContext context(ibv_open_device(device));
  if (context == nullptr) {
    ports.rejected.push_back({name, open_error(device, errno)});
    return;
  }
  ibv_device_attr limits{};
  if (ibv_query_device(context.get(), &limits) != 0) {
    ports.rejected.push_back({name, "does not tell its limits"});
    return;
  }
  if (wish.port > limits.phys_port_cnt)
    ports.rejected.push_back(
        {port_name(name, wish.port), "the device has " + std::to_string(limits.phys_port_cnt) + " port(s)"});
  for (int number = 1; number <= limits.phys_port_cnt; ++number) {
    if (wish.port != 0 && wish.port != number) continue;
    ibv_port_attr attributes{};
    if (ibv_query_port(context.get(), static_cast<std::uint8_t>(number), &attributes) != 0) {
      ports.rejected.push_back({port_name(name, number), "does not tell its state"});
      continue;
    }
    if (attributes.state != IBV_PORT_ACTIVE) {
      ports.rejected.push_back({port_name(name, number), why_not_active(attributes.state)});
      continue;
    }
    VerbsPort port;
    port.device = name;
    port.port = static_cast<std::uint8_t>(number);
    port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.lid = attributes.lid;
    port.mtu = attributes.active_mtu;
    port.rate_gbit = rate_of(attributes);
    port.max_message_bytes = attributes.max_msg_sz;
    port.needs_global_route = !port.ethernet && (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
    port.near = is_near(*device, asked.processors);
    std::string why;
    if (!choose_gid(context.get(), attributes, wish.gid_index, asked.interfaces, port, why) ||
        (!port.ethernet &&
         !choose_partition(context.get(), attributes.pkey_tbl_len, asked.partition_key, port, why))) {
      ports.rejected.push_back({port_name(name, number), why});
      continue;
    }
    port.network =
        port.ethernet ? network_of_host(port.network_address()) : be64toh(port.gid.global.subnet_prefix);
    port.manager_lid = attributes.sm_lid;
    ports.usable.push_back(std::move(port));
  }
}

/// The fastest first; among equals InfiniBand, then by name.
bool is_better(const VerbsPort& a, const VerbsPort& b) noexcept {
  if (a.rate_gbit != b.rate_gbit) return a.rate_gbit > b.rate_gbit;
  if (a.ethernet != b.ethernet) return !a.ethernet;
  return a.device != b.device ? a.device < b.device : a.port < b.port;
}

VerbsPortDescription describe(const VerbsPort& port) {
  VerbsPortDescription one;
  one.name = port.name();
  one.link = port.link();
  one.gid_index = port.gid_index;
  one.gid = to_text(AF_INET6, port.gid.raw);
  one.gid_reason = port.reason;
  one.partition_key = port.partition_key;
  one.address = port.network_address();
  one.rate_gbit = port.rate_gbit;
  one.mtu_bytes = 128u << port.mtu;  // IBV_MTU_256 is 1.
  one.max_message_bytes = port.max_message_bytes;
  return one;
}

struct DeviceList {
  DeviceList() { devices = ibv_get_device_list(&count); }
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  ibv_device* find(std::string_view name) const noexcept {
    for (int i = 0; i < count; ++i)
      if (name == ibv_get_device_name(devices[i])) return devices[i];
    return nullptr;
  }
  std::string names() const {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += (i == 0 ? "" : ", ") + std::string(ibv_get_device_name(devices[i]));
    return text.empty() ? "there is none" : "there is " + text;
  }

  int count = 0;
  ibv_device** devices = nullptr;
};

}  // namespace

std::string VerbsPort::to_string() const {
  std::string text = name() + ":" + std::to_string(gid_index);
  text += std::string(" (") + link();
  if (const std::string address = network_address(); !address.empty()) text += ", " + address;
  if (rate_gbit != 0) text += ", " + std::to_string(rate_gbit) + " Gbit/s";
  return text + ")";
}

std::string VerbsPort::network_address() const { return ethernet ? address_in(gid) : std::string(); }

Result<VerbsPorts> survey_verbs_ports(std::string_view wanted, std::uint16_t partition_key,
                                      const ProcessorSet& processors, std::string_view interface) {
  const DeviceList list;
  const Asked asked{partition_key, processors, NamedInterfaces(interface)};
  VerbsPorts ports;
  if (wanted.empty()) {
    for (int i = 0; i < list.count; ++i) survey_device(list.devices[i], PortWish{}, asked, ports);
    std::stable_sort(ports.usable.begin(), ports.usable.end(), is_better);
    return ports;
  }
  const std::optional<std::vector<PortWish>> wishes = parse_port_wishes(wanted);
  if (!wishes)
    return Error{Status::kUnsupported, 0,
                 "verbs: '" + std::string(wanted) + "' is not DEVICE[:PORT[:GID_INDEX]], as in mlx5_0:1"};
  for (const PortWish& wish : *wishes) {
    ibv_device* const device = list.find(wish.device);
    if (device == nullptr)
      return Error{Status::kUnsupported, 0,
                   "verbs: no RDMA device is called '" + wish.device + "': " + list.names()};
    survey_device(device, wish, asked, ports);
  }
  return ports;
}

std::vector<VerbsPortDescription> describe_verbs_ports(const VerbsConfig& config) {
  std::vector<VerbsPortDescription> all;
  const auto is_there = [&](const std::string& name) {
    return std::ranges::any_of(all, [&](const VerbsPortDescription& one) { return one.name == name; });
  };
  const auto add = [&](const VerbsPorts& ports, bool are_wanted) {
    std::vector<std::string> rails;
    if (are_wanted && !ports.usable.empty())
      for (const VerbsPort& rail : choose_rails(ports.usable, config)) rails.push_back(rail.name());
    for (const VerbsPort& port : ports.usable) {
      VerbsPortDescription one = describe(port);
      one.wanted = are_wanted;
      const auto rail = std::ranges::find(rails, one.name);
      if (rail != rails.end())
        one.why_used = rail == rails.begin() ? why_first_rail(ports.usable, config)
                                             : "it shares the load of " + rails[0];
      if (!is_there(one.name)) all.push_back(std::move(one));
    }
    for (const RejectedPort& port : ports.rejected)
      if (!is_there(port.name)) all.push_back({.name = port.name, .wanted = are_wanted, .why_not = port.why});
  };
  const auto survey = [&](std::string_view wanted) {
    return survey_verbs_ports(wanted, config.partition_key, config.processors, config.interface);
  };
  if (Result<VerbsPorts> ports = survey(config.device); ports.ok()) add(ports.value(), true);
  if (config.device.empty()) return all;
  if (Result<VerbsPorts> ports = survey({}); ports.ok()) add(ports.value(), false);
  return all;
}

std::optional<std::string> why_no_such_port(std::string_view wanted, std::uint16_t partition_key) {
  const Result<VerbsPorts> ports = survey_verbs_ports(wanted, partition_key);
  if (!ports.ok()) return ports.error().message;
  if (!ports.value().usable.empty() || ports.value().rejected.empty()) return {};
  return "verbs: " + ports.value().rejected[0].name + ": " + ports.value().rejected[0].why;
}

bool refresh_port(ibv_context* context, VerbsPort& port) noexcept {
  const VerbsPort before = port;
  ibv_port_attr attributes{};
  if (ibv_query_port(context, port.port, &attributes) != 0) return false;
  if (attributes.lid != 0) port.lid = attributes.lid;
  ibv_gid gid{};
  if (ibv_query_gid(context, port.port, port.gid_index, &gid) == 0 && !is_zero(gid)) port.gid = gid;
  if (!port.ethernet) {
    port.needs_global_route = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
    if (const auto found = find_partition(context, port.port, attributes.pkey_tbl_len, port.partition_key)) {
      port.partition_key = found->key;
      port.partition_index = found->index;
    }
  }
  return port.lid != before.lid || std::memcmp(port.gid.raw, before.gid.raw, sizeof port.gid.raw) != 0 ||
         port.partition_index != before.partition_index || port.partition_key != before.partition_key ||
         port.needs_global_route != before.needs_global_route;
}

Result<DeviceContext> open_verbs_device(std::string_view name) {
  const DeviceList list;
  ibv_device* const device = list.find(name);
  if (device == nullptr)
    return Error{Status::kUnsupported, 0, "verbs: no RDMA device is called '" + std::string(name) + "'"};
  errno = 0;
  DeviceContext context(ibv_open_device(device));
  if (context == nullptr) {
    const int error_number = errno;
    return Error{Status::kDeviceFailed, error_number,
                 "verbs: " + std::string(name) + ": " + open_error(device, error_number)};
  }
  return context;
}

}  // namespace ch3_offload
