// The fake verbs device: devices, contexts, and what can be asked about them.

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma/verbs/fake_verbs_network.h"

#undef ibv_query_port

// The same with libibverbs.so, whose functions these replace.
#pragma GCC visibility push(default)

namespace ch3_offload::fake_verbs {

namespace {

void copy_name(char* to, std::size_t capacity, const std::string& name) {
  to[name.copy(to, capacity - 1)] = '\0';
}

DeviceHandle* hold(Network& network, Device& device) {
  if (device.handle == nullptr) {
    const DeviceConfig& config = network.config_of(device);
    auto handle = std::make_unique<DeviceHandle>();
    handle->node_type = IBV_NODE_CA;
    handle->transport_type = IBV_TRANSPORT_IB;
    handle->device = &device;
    copy_name(handle->name, sizeof handle->name, config.name);
    copy_name(handle->dev_name, sizeof handle->dev_name, "uverbs" + std::to_string(device.index));
    copy_name(handle->dev_path, sizeof handle->dev_path,
              "/sys/class/infiniband_verbs/uverbs" + std::to_string(device.index));
    copy_name(handle->ibdev_path, sizeof handle->ibdev_path,
              config.sysfs_path.empty() ? "/sys/class/infiniband/" + config.name : config.sysfs_path);
    device.handle = handle.get();
    network.handles_.push_back(std::move(handle));
  }
  ++device.handle->references;
  return device.handle;
}

void release(Network& network, DeviceHandle* handle) {
  if (--handle->references > 0) return;
  handle->device->handle = nullptr;
  std::erase_if(network.handles_, [&](const auto& held) { return held.get() == handle; });
}

std::uint64_t guid_of(const Device& device) { return htobe64(0x0002'C903'0000'0001u + device.index); }

/// Null: there is no such port.
const PortConfig* find_port(const Network& network, ibv_context* context, std::uint32_t port) {
  const DeviceConfig& config = network.config_of(*context_of(context)->device);
  return port >= 1 && port <= config.ports.size() ? &config.ports[port - 1] : nullptr;
}

bool empty(const Gid& gid) {
  return std::all_of(std::begin(gid.value.raw), std::end(gid.value.raw), [](auto byte) { return byte == 0; });
}

ibv_gid_entry entry_of(const Gid& gid, std::uint32_t port, std::size_t index) {
  return {.gid = gid.value,
          .gid_index = static_cast<std::uint32_t>(index),
          .port_num = port,
          .gid_type = static_cast<std::uint32_t>(gid.type),
          .ndev_ifindex = gid.interface_index};
}

int query_device(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* attributes,
                 std::size_t size) {
  if (size != sizeof *attributes) return EINVAL;
  *attributes = {};
  const int error = ibv_query_device(context, &attributes->orig_attr);
  if (error != 0 || !Network::get().config_of(*context_of(context)->device).faults_pages) return error;
  attributes->odp_caps.general_caps = IBV_ODP_SUPPORT;
  attributes->odp_caps.per_transport_caps.rc_odp_caps =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE;
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes, std::size_t size) {
  const Call call("ibv_query_port");
  if (call.error() != 0) return call.error();
  const Network& network = Network::get();
  const PortConfig* const config = find_port(network, context, port);
  if (config == nullptr) return EINVAL;
  const bool down = context_of(context)->device->ports[port - 1u].down;
  ibv_port_attr result{};
  result.state = down ? IBV_PORT_DOWN : config->state;
  result.max_mtu = IBV_MTU_4096;
  result.active_mtu = config->active_mtu;
  result.gid_tbl_len = static_cast<int>(config->gids.size());
  result.port_cap_flags = IBV_PORT_CM_SUP;
  result.max_msg_sz = config->max_message_bytes;
  result.pkey_tbl_len = static_cast<std::uint16_t>(config->partition_keys.size());
  result.flags = config->needs_global_route ? IBV_QPF_GRH_REQUIRED : 0;
  result.lid = config->lid;
  result.sm_lid = config->sm_lid;
  result.max_vl_num = 1;
  result.active_width = 2;                                      // 4X.
  result.active_speed = 32;                                     // EDR: 100 Gbit/s.
  result.phys_state = result.state == IBV_PORT_ACTIVE ? 5 : 3;  // LinkUp, or Disabled.
  result.link_layer = config->link_layer;
  std::memcpy(attributes, &result, std::min(size, sizeof result));
  return 0;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const Call call("ibv_get_device_list");
  Network& network = Network::get();
  if (count != nullptr) *count = 0;
  if (call.error() != 0) return failed(call.error());
  if (network.config_.list_error != 0) return failed(network.config_.list_error);
  auto** const list = new ibv_device*[network.devices_.size() + 1]();
  for (std::size_t i = 0; i < network.devices_.size(); ++i) list[i] = hold(network, *network.devices_[i]);
  if (count != nullptr) *count = static_cast<int>(network.devices_.size());
  ++network.device_lists_;
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  const Call call("ibv_free_device_list");
  Network& network = Network::get();
  for (ibv_device** device = list; *device != nullptr; ++device) {
    release(network, static_cast<DeviceHandle*>(*device));
  }
  --network.device_lists_;
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

__be64 ibv_get_device_guid(ibv_device* device) {
  const Call call("ibv_get_device_guid");
  return guid_of(*static_cast<DeviceHandle*>(device)->device);
}

int ibv_get_device_index(ibv_device* device) {
  const Call call("ibv_get_device_index");
  return static_cast<int>(static_cast<DeviceHandle*>(device)->device->index);
}

ibv_context* ibv_open_device(ibv_device* handle) {
  const Call call("ibv_open_device");
  Network& network = Network::get();
  Device& device = *static_cast<DeviceHandle*>(handle)->device;
  const DeviceConfig& config = network.config_of(device);
  if (call.error() != 0) return failed(call.error());
  if (config.open_error != 0) return failed(config.open_error);
  if (device.dead) return failed(EIO);
  const auto is_here = [&](const Context& one) { return one.device == &device; };
  if (network.contexts_.holds(config.max_contexts, is_here)) return failed(ENOMEM);
  Context* const made = network.contexts_.add(std::make_unique<Context>());
  made->device = &device;
  made->query_port = query_port;
  made->query_device_ex = query_device;
  made->sz = sizeof(verbs_context);
  ibv_context& context = made->context;
  context.device = hold(network, device);
  context.cmd_fd = -1;
  context.async_fd = made->descriptor.number();
  context.num_comp_vectors = config.completion_vectors;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.post_srq_recv = post_srq_recv;
  context.ops.post_recv = post_recv;
  context.ops.post_send = post_send;
  return &context;
}

int ibv_close_device(ibv_context* handle) {
  const Call call("ibv_close_device");
  Network& network = Network::get();
  Context* const context = context_of(handle);
  if (context->children > 0) {
    network.violation("ibv_close_device: the context has domains, channels or completion queues");
    errno = EBUSY;
    return -1;
  }
  release(network, static_cast<DeviceHandle*>(handle->device));
  network.contexts_.remove(context);
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const Call call("ibv_query_device");
  if (call.error() != 0) return call.error();
  const Device& device = *context_of(context)->device;
  const DeviceConfig& config = Network::get().config_of(device);
  *attributes = {};
  std::strcpy(attributes->fw_ver, "1.0");
  attributes->node_guid = guid_of(device);
  attributes->sys_image_guid = guid_of(device);
  attributes->max_mr_size = config.max_region_bytes;
  attributes->page_size_cap = 4096;
  attributes->max_qp = config.max_queue_pairs;
  attributes->max_qp_wr = config.max_work_requests;
  attributes->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN;
  attributes->max_sge = config.max_scatter;
  attributes->max_cq = config.max_completion_queues;
  attributes->max_cqe = config.max_completions;
  attributes->max_mr = config.max_regions;
  attributes->max_pd = config.max_domains;
  attributes->max_qp_rd_atom = 16;
  attributes->max_qp_init_rd_atom = 16;
  attributes->max_res_rd_atom = 16 * config.max_queue_pairs;
  attributes->max_srq = config.max_receive_queues;
  attributes->max_srq_wr = config.max_srq_work_requests;
  attributes->max_srq_sge = config.max_scatter;
  attributes->max_pkeys = 1;
  attributes->local_ca_ack_delay = 15;
  attributes->phys_port_cnt = static_cast<std::uint8_t>(config.ports.size());
  return 0;
}

// For programs older than ibv_port_attr::link_layer.
int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attributes),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  const Call call("ibv_query_gid");
  const PortConfig* const config = find_port(Network::get(), context, port);
  const bool there = config != nullptr && index >= 0 && static_cast<std::size_t>(index) < config->gids.size();
  if (call.error() != 0 || !there) {
    errno = call.error() != 0 ? call.error() : EINVAL;
    return -1;
  }
  *gid = config->gids[static_cast<std::size_t>(index)].value;
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t entry_bytes) {
  const Call call("ibv_query_gid_ex");
  if (call.error() != 0) return call.error();
  const PortConfig* const config = find_port(Network::get(), context, port);
  if (config == nullptr || index >= config->gids.size() || flags != 0) return EINVAL;
  if (empty(config->gids[index])) return ENODATA;
  const ibv_gid_entry result = entry_of(config->gids[index], port, index);
  std::memcpy(entry, &result, std::min(entry_bytes, sizeof result));
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t capacity,
                             std::uint32_t flags, std::size_t entry_bytes) {
  const Call call("ibv_query_gid_table");
  if (call.error() != 0) return -call.error();
  if (flags != 0 || entry_bytes != sizeof(ibv_gid_entry)) return -EINVAL;
  const DeviceConfig& config = Network::get().config_of(*context_of(context)->device);
  std::size_t count = 0;
  for (std::size_t port = 0; port < config.ports.size(); ++port) {
    for (std::size_t index = 0; index < config.ports[port].gids.size(); ++index) {
      if (empty(config.ports[port].gids[index])) continue;
      if (count == capacity) return -EINVAL;
      entries[count++] =
          entry_of(config.ports[port].gids[index], static_cast<std::uint32_t>(port + 1), index);
    }
  }
  return static_cast<ssize_t>(count);
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* key) {
  const Call call("ibv_query_pkey");
  const PortConfig* const config = find_port(Network::get(), context, port);
  if (call.error() != 0 || config == nullptr || index < 0 ||
      static_cast<std::size_t>(index) >= config->partition_keys.size()) {
    errno = call.error() != 0 ? call.error() : EINVAL;
    return -1;
  }
  *key = htobe16(config->partition_keys[static_cast<std::size_t>(index)]);
  return 0;
}

}  // extern "C"

}  // namespace ch3_offload::fake_verbs

#pragma GCC visibility pop
