// The fake verbs device: completion queues.

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma/verbs/fake_verbs_network.h"

#pragma GCC visibility push(default)

namespace ch3_offload::fake_verbs {

namespace {

/// What a field holds that the standard leaves undefined.
constexpr int kRubbish = 0xA5;

ibv_wc made_of_rubbish() noexcept {
  ibv_wc work;
  std::memset(&work, kRubbish, sizeof work);
  return work;
}

ibv_wc_opcode opcode_of(const SendRequest& request) noexcept {
  const bool write = request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  return write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
}

}  // namespace

void Network::complete(CompletionQueue& queue, const Completion& completion, bool solicited) {
  if (queue.ring.full()) {
    ++counters_.overflows;
    if (!queue.overflowed) add_event(*context_of(queue.context), IBV_EVENT_CQ_ERR, &queue);
    queue.overflowed = true;
    return;
  }
  queue.ring.push() = completion;
  const bool wanted = queue.armed == CompletionQueue::Armed::kNext ||
                      (queue.armed == CompletionQueue::Armed::kSolicited &&
                       (solicited || completion.work.status != IBV_WC_SUCCESS));
  if (!wanted) return;
  queue.armed = CompletionQueue::Armed::kNo;
  if (queue.channel == nullptr) return;
  auto& channel = *static_cast<Channel*>(queue.channel);
  channel.events.push_back(&queue);
  channel.descriptor.add();
}

void Network::complete_send(QueuePair& pair, const SendRequest& request, ibv_wc_status status) {
  if (status == IBV_WC_WR_FLUSH_ERR) {
    ++counters_.flushed;
  } else if (status != IBV_WC_SUCCESS) {
    ++counters_.send_errors;
  } else if (!request.signaled) {
    return;
  }
  Completion completion = {
      .work = made_of_rubbish(), .queue_pair = &pair, .sequence = request.sequence, .send = true};
  completion.work.wr_id = request.id;
  completion.work.status = status;
  completion.work.qp_num = pair.qp_num;
  completion.work.vendor_err = static_cast<std::uint32_t>(status);
  if (status == IBV_WC_SUCCESS) {
    completion.work.opcode = opcode_of(request);
    completion.work.wc_flags = 0;
  }
  complete(*pair.sends_complete, completion, false);
}

void Network::complete_receive(QueuePair& pair, std::uint64_t id, ibv_wc_status status) {
  if (status == IBV_WC_WR_FLUSH_ERR) ++counters_.flushed;
  Completion completion = {.work = made_of_rubbish(), .queue_pair = &pair, .sequence = 0, .send = false};
  completion.work.wr_id = id;
  completion.work.status = status;
  completion.work.qp_num = pair.qp_num;
  completion.work.vendor_err = static_cast<std::uint32_t>(status);
  complete(*pair.receives_complete, completion, false);
}

void Network::complete_arrival(QueuePair& pair, std::uint64_t id, const Config::Transfer& transfer,
                               std::size_t length_bytes, bool solicited) {
  const bool write = transfer.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  Completion completion = {.work = made_of_rubbish(), .queue_pair = &pair, .sequence = 0, .send = false};
  completion.work.wr_id = id;
  completion.work.status = IBV_WC_SUCCESS;
  completion.work.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  completion.work.byte_len = static_cast<std::uint32_t>(length_bytes);
  completion.work.qp_num = pair.qp_num;
  completion.work.wc_flags = 0;
  if (write || transfer.opcode == IBV_WR_SEND_WITH_IMM) {
    completion.work.wc_flags = IBV_WC_WITH_IMM;
    completion.work.imm_data = transfer.immediate;
  }
  complete(*pair.receives_complete, completion, solicited);
}

void Network::forget_completions(QueuePair& pair, bool purge) {
  for (CompletionQueue* queue : {pair.sends_complete, pair.receives_complete}) {
    const std::size_t count = queue->ring.size();
    for (std::size_t i = 0; i < count; ++i) {
      Completion completion = queue->ring.front();
      queue->ring.pop();
      if (completion.queue_pair == &pair) {
        if (purge) continue;
        completion.queue_pair = nullptr;
      }
      queue->ring.push() = completion;
    }
  }
}

int poll_cq(ibv_cq* handle, int capacity, ibv_wc* completions) {
  const Call call("ibv_poll_cq");
  if (call.error() != 0) return -1;
  Network::get().progress();
  auto& queue = *static_cast<CompletionQueue*>(handle);
  int count = 0;
  for (; count < capacity && !queue.ring.empty(); ++count) {
    const Completion& completion = queue.ring.front();
    // Not an assignment: its enum fields may hold rubbish.
    std::memcpy(&completions[count], &completion.work, sizeof(ibv_wc));
    if (completion.send && completion.queue_pair != nullptr) {
      completion.queue_pair->retired = std::max(completion.queue_pair->retired, completion.sequence);
    }
    queue.ring.pop();
  }
  return count;
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
  const Call call("ibv_req_notify_cq");
  if (call.error() != 0) return call.error();
  Network& network = Network::get();
  ++network.counters_.notification_requests;
  auto& queue = *static_cast<CompletionQueue*>(handle);
  if (solicited_only == 0) {
    queue.armed = CompletionQueue::Armed::kNext;
  } else if (queue.armed == CompletionQueue::Armed::kNo) {
    queue.armed = CompletionQueue::Armed::kSolicited;
  }
  network.progress();
  return 0;
}

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* handle, int capacity, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
  const Call call("ibv_create_cq");
  if (call.error() != 0) return failed(call.error());
  Network& network = Network::get();
  Context& context = *context_of(handle);
  const DeviceConfig& config = network.config_of(*context.device);
  if (context.device->dead) return failed(EIO);
  if (capacity < 1 || capacity > config.max_completions) return failed(EINVAL);
  if (vector < 0 || vector >= config.completion_vectors) return failed(EINVAL);
  if (channel != nullptr && channel->context != handle) return failed(EINVAL);
  const auto is_here = [&](const CompletionQueue& queue) {
    return context_of(queue.context)->device == context.device;
  };
  if (network.completion_queues_.holds(config.max_completion_queues, is_here)) return failed(ENOMEM);
  CompletionQueue* const queue = network.completion_queues_.add(std::make_unique<CompletionQueue>());
  queue->context = handle;
  queue->channel = channel;
  queue->cq_context = cq_context;
  queue->handle = ++network.next_handle_;
  queue->vector = vector;
  queue->cqe = capacity;
  queue->ring = Ring<Completion>(static_cast<std::size_t>(capacity));
  if (channel != nullptr) ++channel->refcnt;
  ++context.children;
  return queue;
}

int ibv_destroy_cq(ibv_cq* handle) {
  const Call call("ibv_destroy_cq");
  Network& network = Network::get();
  auto* const queue = static_cast<CompletionQueue*>(handle);
  if (call.error() != 0) return call.error();
  if (queue->queue_pairs > 0) {
    network.violation("ibv_destroy_cq: a queue pair uses it");
    return EBUSY;
  }
  if (queue->events_taken != queue->comp_events_completed ||
      queue->async_taken != queue->async_events_completed) {
    network.violation("ibv_destroy_cq: events were not acknowledged");
    return EBUSY;
  }
  Context& context = *context_of(queue->context);
  network.forget_events(context, queue);
  if (queue->channel != nullptr) {
    auto& channel = *static_cast<Channel*>(queue->channel);
    const std::size_t events = std::erase(channel.events, queue);
    for (std::size_t i = 0; i < events; ++i) channel.descriptor.take();
    --channel.refcnt;
  }
  --context.children;
  network.completion_queues_.remove(queue);
  return 0;
}

}  // extern "C"

}  // namespace ch3_offload::fake_verbs

#pragma GCC visibility pop
