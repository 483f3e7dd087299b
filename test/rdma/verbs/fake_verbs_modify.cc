// The fake verbs device: ibv_modify_qp(), strict as the kernel: the transitions of an RC queue pair, what each
// requires and allows (ib_modify_qp_is_ok), and the values.

#include <cerrno>

#include "rdma/verbs/fake_verbs_network.h"

#pragma GCC visibility push(default)

namespace ch3_offload::fake_verbs {

namespace {

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};

bool allowed(ibv_qp_state from, ibv_qp_state to, int mask) noexcept {
  mask &= ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask == 0;  // From any state.
  for (const Transition& one : kTransitions) {
    if (one.from != from || one.to != to) continue;
    return (mask & one.required) == one.required && (mask & ~(one.required | one.optional)) == 0;
  }
  return false;
}

const PortConfig* find_port(const DeviceConfig& config, std::uint8_t port) noexcept {
  return port >= 1 && port <= config.ports.size() ? &config.ports[port - 1u] : nullptr;
}

bool valid_path(const ibv_ah_attr& path, std::uint8_t pair_port, const PortConfig& port) noexcept {
  if (path.port_num != pair_port) return false;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET && path.is_global == 0) return false;
  if (port.needs_global_route && path.is_global == 0) return false;
  if (path.is_global == 0) return path.dlid != 0;
  if (path.grh.sgid_index >= port.gids.size()) return false;
  return port.gids[path.grh.sgid_index].value.global.interface_id != 0;
}

bool valid_values(const DeviceConfig& config, const QueuePair& pair, const ibv_qp_attr& values,
                  int mask) noexcept {
  constexpr unsigned kAccess =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const std::uint8_t port_number = (mask & IBV_QP_PORT) != 0 ? values.port_num : pair.attributes.port_num;
  const PortConfig* const port = find_port(config, port_number);
  if (port == nullptr) return false;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && (values.pkey_index >= port->partition_keys.size() ||
                                          port->partition_keys[values.pkey_index] == 0))
    return false;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && (values.qp_access_flags & ~kAccess) != 0) return false;
  if ((mask & IBV_QP_AV) != 0 && !valid_path(values.ah_attr, port_number, *port)) return false;
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      (values.path_mtu < IBV_MTU_256 || values.path_mtu > port->active_mtu)) {
    return false;
  }
  if ((mask & IBV_QP_DEST_QPN) != 0 && values.dest_qp_num > 0xFF'FFFF) return false;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && values.max_dest_rd_atomic > 16) return false;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && values.max_rd_atomic > 16) return false;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && values.min_rnr_timer > 31) return false;
  if ((mask & IBV_QP_TIMEOUT) != 0 && values.timeout > 31) return false;
  if ((mask & IBV_QP_RETRY_CNT) != 0 && values.retry_cnt > 7) return false;
  return (mask & IBV_QP_RNR_RETRY) == 0 || values.rnr_retry <= 7;
}

void take_values(QueuePair& pair, const ibv_qp_attr& values, int mask) noexcept {
  ibv_qp_attr& now = pair.attributes;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) now.pkey_index = values.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) now.port_num = values.port_num;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) now.qp_access_flags = values.qp_access_flags;
  if ((mask & IBV_QP_AV) != 0) now.ah_attr = values.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) now.path_mtu = values.path_mtu;
  if ((mask & IBV_QP_DEST_QPN) != 0) now.dest_qp_num = values.dest_qp_num;
  if ((mask & IBV_QP_RQ_PSN) != 0) pair.expected_psn = values.rq_psn & 0xFF'FFFF;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) now.max_dest_rd_atomic = values.max_dest_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) now.min_rnr_timer = values.min_rnr_timer;
  if ((mask & IBV_QP_TIMEOUT) != 0) now.timeout = values.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) now.retry_cnt = values.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) now.rnr_retry = values.rnr_retry;
  if ((mask & IBV_QP_SQ_PSN) != 0) pair.next_send_psn = values.sq_psn & 0xFF'FFFF;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) now.max_rd_atomic = values.max_rd_atomic;
}

/// Whether some port has the path's address.
bool resolves(const Network& network, const ibv_ah_attr& path) {
  for (const DeviceConfig& device : network.config_.devices) {
    for (const PortConfig& port : device.ports) {
      if (leads_to(path, port)) return true;
    }
  }
  return false;
}

void enter_reset(Network& network, QueuePair& pair) {
  network.clear_sends(pair);
  network.forget_completions(pair, network.config_.purge_destroyed);
  pair.own.ring.clear();
  pair.attributes = {};
  pair.posted = pair.retired = 0;
  pair.established = false;
  pair.now = IBV_QPS_RESET;
}

}  // namespace

extern "C" int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* values, int mask) {
  const Call call("ibv_modify_qp");
  if (call.error() != 0) return call.error();
  Network& network = Network::get();
  auto& pair = *static_cast<QueuePair*>(handle);
  const Device& device = *pair.owner->device;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? values->qp_state : pair.now;
  if ((mask & IBV_QP_CUR_STATE) != 0 && values->cur_qp_state != pair.now) return EINVAL;
  if (!allowed(pair.now, to, mask)) return EINVAL;
  if (to == IBV_QPS_ERR) {
    network.enter_error(pair);
  } else if (to == IBV_QPS_RESET) {
    enter_reset(network, pair);
  } else {
    if (device.dead) return EIO;
    if (!valid_values(network.config_of(device), pair, *values, mask)) return EINVAL;
    if ((mask & IBV_QP_AV) != 0 && network.config_.unresolved_error != 0 &&
        !resolves(network, values->ah_attr)) {
      return network.config_.unresolved_error;
    }
    take_values(pair, *values, mask);
    pair.now = to;
  }
  pair.state = to;
  network.progress();  // Its peer may have waited for this.
  return 0;
}

}  // namespace ch3_offload::fake_verbs

#pragma GCC visibility pop
