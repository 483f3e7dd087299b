// The fake verbs device: making and destroying queue pairs, and their error state.

#include <algorithm>
#include <cerrno>

#include "rdma/verbs/fake_verbs_network.h"

#pragma GCC visibility push(default)

namespace ch3_offload::fake_verbs {

namespace {

/// errno, or 0.
int check_creation(Network& network, const Context& context, const ibv_qp_init_attr& init) {
  const DeviceConfig& config = network.config_of(*context.device);
  const auto limit = static_cast<std::uint32_t>(config.max_work_requests);
  const auto scatter = static_cast<std::uint32_t>(config.max_scatter);
  const ibv_qp_cap& cap = init.cap;
  if (context.device->dead) return EIO;
  if (init.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return EINVAL;
  if (init.send_cq->context != &context.context || init.recv_cq->context != &context.context) return EINVAL;
  if (init.srq != nullptr && init.srq->context != &context.context) return EINVAL;
  if (cap.max_send_wr > limit || cap.max_send_sge > scatter ||
      cap.max_inline_data > config.max_inline_bytes) {
    return EINVAL;
  }
  if (init.srq == nullptr && (cap.max_recv_wr > limit || cap.max_recv_sge > scatter)) return EINVAL;
  const auto pairs = static_cast<std::uint32_t>(context.device->queue_pairs.size());
  if (pairs >= static_cast<std::uint32_t>(config.max_queue_pairs) || pairs >= config.queue_pair_numbers) {
    return ENOMEM;
  }
  return 0;
}

/// REQUIRES: one is free.
std::uint32_t take_number(Device& device, const DeviceConfig& config) {
  if (config.lowest_number_first) device.next_number = 0;
  for (;;) {
    const std::uint32_t number = config.first_queue_pair_number + device.next_number;
    device.next_number = (device.next_number + 1) % config.queue_pair_numbers;
    if (!device.queue_pairs.contains(number)) return number;
  }
}

void make_rings(QueuePair& pair, const ibv_qp_cap& cap) {
  pair.sends = Ring<SendRequest>(cap.max_send_wr);
  for (SendRequest& request : pair.sends.storage()) {
    request.parts.reserve(cap.max_send_sge);
    request.bytes.reserve(cap.max_inline_data);
  }
  if (pair.shared != nullptr) return;
  pair.own = {
      .ring = Ring<ReceiveRequest>(cap.max_recv_wr), .max_scatter = cap.max_recv_sge, .domain = pair.pd};
  for (ReceiveRequest& receive : pair.own.ring.storage()) receive.parts.reserve(cap.max_recv_sge);
}

}  // namespace

void Network::clear_sends(QueuePair& pair) {
  pair.sends.clear();
  pair.delivered = 0;
  pair.data_lost = false;
  pair.acknowledgements_lost = false;
  unlist(pair);
}

void Network::unlist(QueuePair& pair) {
  if (pair.pending) std::erase(pending_, &pair);
  pair.pending = false;
}

// Also what was posted since.
void Network::enter_error(QueuePair& pair) {
  const bool before = pair.now == IBV_QPS_ERR;
  pair.now = IBV_QPS_ERR;
  for (std::size_t i = 0; i < pair.sends.size(); ++i) complete_send(pair, pair.sends[i], IBV_WC_WR_FLUSH_ERR);
  clear_sends(pair);
  if (pair.shared == nullptr) {
    for (; !pair.own.ring.empty(); pair.own.ring.pop()) {
      complete_receive(pair, pair.own.ring.front().id, IBV_WC_WR_FLUSH_ERR);
    }
  } else if (!before && config_.last_wqe_event) {
    add_event(*pair.owner, IBV_EVENT_QP_LAST_WQE_REACHED, &pair);
  }
}

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* init) {
  const Call call("ibv_create_qp");
  if (call.error() != 0) return failed(call.error());
  Network& network = Network::get();
  Context& context = *context_of(domain->context);
  const int error = check_creation(network, context, *init);
  if (error != 0) return failed(error);
  QueuePair* const pair = network.queue_pairs_.add(std::make_unique<QueuePair>());
  pair->context = domain->context;
  pair->qp_context = init->qp_context;
  pair->pd = domain;
  pair->send_cq = init->send_cq;
  pair->recv_cq = init->recv_cq;
  pair->srq = init->srq;
  pair->handle = ++network.next_handle_;
  pair->qp_num = take_number(*context.device, network.config_of(*context.device));
  pair->state = IBV_QPS_RESET;
  pair->qp_type = IBV_QPT_RC;
  pair->owner = &context;
  pair->sends_complete = static_cast<CompletionQueue*>(init->send_cq);
  pair->receives_complete = static_cast<CompletionQueue*>(init->recv_cq);
  pair->shared = static_cast<ReceiveQueue*>(init->srq);
  if (init->srq != nullptr) init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
  pair->init = *init;
  make_rings(*pair, init->cap);
  ++pair->sends_complete->queue_pairs;
  ++pair->receives_complete->queue_pairs;
  if (pair->shared != nullptr) ++pair->shared->queue_pairs;
  static_cast<Domain*>(domain)->children += 1;
  context.device->queue_pairs.emplace(pair->qp_num, pair);
  ++network.counters_.queue_pairs;
  return pair;
}

int ibv_destroy_qp(ibv_qp* handle) {
  const Call call("ibv_destroy_qp");
  Network& network = Network::get();
  auto* const pair = static_cast<QueuePair*>(handle);
  if (call.error() != 0) return call.error();
  if (pair->async_taken != pair->events_completed) {
    network.violation("ibv_destroy_qp: events were not acknowledged");
    return EBUSY;
  }
  network.clear_sends(*pair);
  network.forget_completions(*pair, network.config_.purge_destroyed);
  network.forget_events(*pair->owner, pair);
  --pair->sends_complete->queue_pairs;
  --pair->receives_complete->queue_pairs;
  if (pair->shared != nullptr) --pair->shared->queue_pairs;
  static_cast<Domain*>(pair->pd)->children -= 1;
  pair->owner->device->queue_pairs.erase(pair->qp_num);
  network.queue_pairs_.remove(pair);
  return 0;
}

int ibv_query_qp(ibv_qp* handle, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
  const Call call("ibv_query_qp");
  if (call.error() != 0) return call.error();
  Network::get().progress();
  auto& pair = *static_cast<QueuePair*>(handle);
  *attributes = pair.attributes;
  attributes->qp_state = attributes->cur_qp_state = pair.now;
  attributes->sq_psn = pair.next_send_psn;
  attributes->rq_psn = pair.expected_psn;
  attributes->cap = pair.init.cap;
  *init = pair.init;
  pair.state = pair.now;
  return 0;
}

}  // extern "C"

}  // namespace ch3_offload::fake_verbs

#pragma GCC visibility pop
