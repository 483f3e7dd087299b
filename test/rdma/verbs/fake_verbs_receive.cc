// The fake verbs device: shared receive queues, and posting receives.

#include <cerrno>

#include "rdma/verbs/fake_verbs_network.h"

#pragma GCC visibility push(default)

namespace ch3_offload::fake_verbs {

int Network::post_receives(Receives& receives, ibv_recv_wr* list, ibv_recv_wr** bad) {
  ++counters_.post_receive_calls;
  for (ibv_recv_wr* request = list; request != nullptr; request = request->next) {
    const bool valid =
        request->num_sge >= 0 && static_cast<std::uint32_t>(request->num_sge) <= receives.max_scatter;
    if (!valid || receives.ring.full()) {
      *bad = request;
      return valid ? ENOMEM : EINVAL;
    }
    ReceiveRequest& receive = receives.ring.push();
    receive.id = request->wr_id;
    receive.parts.assign(request->sg_list, request->sg_list + request->num_sge);
    ++counters_.receives_posted;
  }
  return 0;
}

void Network::check_limit(ReceiveQueue& queue) {
  if (queue.receives.ring.size() >= queue.limit) return;
  queue.limit = 0;
  add_event(*context_of(queue.context), IBV_EVENT_SRQ_LIMIT_REACHED, &queue);
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const Call call("ibv_post_srq_recv");
  Network& network = Network::get();
  const bool dead = context_of(handle->context)->device->dead;
  if (call.error() != 0 || dead) {
    *bad = list;
    return call.error() != 0 ? call.error() : EIO;
  }
  const int error = network.post_receives(static_cast<ReceiveQueue*>(handle)->receives, list, bad);
  network.progress();
  return error;
}

int post_recv(ibv_qp* handle, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const Call call("ibv_post_recv");
  Network& network = Network::get();
  auto& pair = *static_cast<QueuePair*>(handle);
  int error = call.error();
  if (error == 0 && pair.owner->device->dead) error = EIO;
  if (error == 0 && (pair.shared != nullptr || pair.now == IBV_QPS_RESET)) error = EINVAL;
  if (error != 0) {
    *bad = list;
    return error;
  }
  error = network.post_receives(pair.own, list, bad);
  if (pair.now == IBV_QPS_ERR) network.enter_error(pair);
  network.progress();
  return error;
}

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* init) {
  const Call call("ibv_create_srq");
  if (call.error() != 0) return failed(call.error());
  Network& network = Network::get();
  Context& context = *context_of(domain->context);
  const DeviceConfig& config = network.config_of(*context.device);
  if (context.device->dead) return failed(EIO);
  if (init->attr.max_wr == 0 ||
      init->attr.max_wr > static_cast<std::uint32_t>(config.max_srq_work_requests) ||
      init->attr.max_sge > static_cast<std::uint32_t>(config.max_scatter)) {
    return failed(EINVAL);
  }
  const auto is_here = [&](const ReceiveQueue& queue) {
    return context_of(queue.context)->device == context.device;
  };
  if (network.receive_queues_.holds(config.max_receive_queues, is_here)) return failed(ENOMEM);
  ReceiveQueue* const queue = network.receive_queues_.add(std::make_unique<ReceiveQueue>());
  queue->context = domain->context;
  queue->srq_context = init->srq_context;
  queue->pd = domain;
  queue->handle = ++network.next_handle_;
  queue->receives = {
      .ring = Ring<ReceiveRequest>(init->attr.max_wr), .max_scatter = init->attr.max_sge, .domain = domain};
  for (ReceiveRequest& receive : queue->receives.ring.storage()) receive.parts.reserve(init->attr.max_sge);
  static_cast<Domain*>(domain)->children += 1;
  return queue;
}

int ibv_modify_srq(ibv_srq* handle, ibv_srq_attr* attributes, int mask) {
  const Call call("ibv_modify_srq");
  if (call.error() != 0) return call.error();
  Network& network = Network::get();
  auto& queue = *static_cast<ReceiveQueue*>(handle);
  if ((mask & ~(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // As a device without IBV_DEVICE_SRQ_RESIZE.
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  if (attributes->srq_limit > queue.receives.ring.storage().size()) return EINVAL;
  queue.limit = attributes->srq_limit;
  if (network.config_.limit_event_when_armed) network.check_limit(queue);
  return 0;
}

int ibv_query_srq(ibv_srq* handle, ibv_srq_attr* attributes) {
  const Call call("ibv_query_srq");
  if (call.error() != 0) return call.error();
  auto& queue = *static_cast<ReceiveQueue*>(handle);
  *attributes = {.max_wr = static_cast<std::uint32_t>(queue.receives.ring.storage().size()),
                 .max_sge = queue.receives.max_scatter,
                 .srq_limit = queue.limit};
  return 0;
}

int ibv_destroy_srq(ibv_srq* handle) {
  const Call call("ibv_destroy_srq");
  Network& network = Network::get();
  auto* const queue = static_cast<ReceiveQueue*>(handle);
  if (call.error() != 0) return call.error();
  if (queue->queue_pairs > 0) {
    network.violation("ibv_destroy_srq: a queue pair uses it");
    return EBUSY;
  }
  if (queue->async_taken != queue->events_completed) {
    network.violation("ibv_destroy_srq: events were not acknowledged");
    return EBUSY;
  }
  network.forget_events(*context_of(queue->context), queue);
  static_cast<Domain*>(queue->pd)->children -= 1;
  network.receive_queues_.remove(queue);
  return 0;
}

}  // extern "C"

}  // namespace ch3_offload::fake_verbs

#pragma GCC visibility pop
