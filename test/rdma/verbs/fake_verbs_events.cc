// The fake verbs device: descriptors, asynchronous events, completion channels.

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "rdma/verbs/fake_verbs_network.h"

#pragma GCC visibility push(default)

namespace ch3_offload::fake_verbs {

// Blocking reads by the fake never happen: take() follows an add(), under the lock.
EventDescriptor::EventDescriptor() : number_(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) {}
EventDescriptor::~EventDescriptor() { ::close(number_); }

void EventDescriptor::add() noexcept {
  if (::eventfd_write(number_, 1) != 0) std::abort();  // Another than ours sits behind that number.
}

void EventDescriptor::take() noexcept {
  eventfd_t value = 0;
  if (::eventfd_read(number_, &value) != 0) std::abort();
}

bool EventDescriptor::await(std::unique_lock<std::mutex>& lock) const {
  if ((::fcntl(number_, F_GETFL) & O_NONBLOCK) != 0) {
    errno = EAGAIN;
    return false;
  }
  pollfd entry = {.fd = number_, .events = POLLIN, .revents = 0};
  lock.unlock();
  const int ready = ::poll(&entry, 1, -1);
  lock.lock();
  return ready == 1;
}

namespace {

/// To which object an event belongs; null: to none, to a port or the device.
const void* element_of(const ibv_async_event& event) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: return event.element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return event.element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return event.element.srq;
    default: return nullptr;
  }
}

}  // namespace

void Network::add_event(Context& context, ibv_event_type type, void* element) {
  ibv_async_event event{};
  event.event_type = type;
  switch (type) {
    case IBV_EVENT_CQ_ERR: event.element.cq = static_cast<CompletionQueue*>(element); break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: event.element.srq = static_cast<ReceiveQueue*>(element); break;
    default: event.element.qp = static_cast<QueuePair*>(element); break;
  }
  context.events.push_back(event);
  context.descriptor.add();
}

void Network::add_port_event(Device& device, ibv_event_type type, std::uint8_t port) {
  contexts_.for_each([&](Context& context) {
    if (context.device != &device) return;
    ibv_async_event event{};
    event.event_type = type;
    event.element.port_num = port;
    context.events.push_back(event);
    context.descriptor.add();
  });
}

void Network::forget_events(Context& context, const void* element) {
  std::erase_if(context.events, [&](const ibv_async_event& event) {
    if (element_of(event) != element) return false;
    context.descriptor.take();
    return true;
  });
}

extern "C" {

int ibv_get_async_event(ibv_context* handle, ibv_async_event* event) {
  Call call("ibv_get_async_event");
  if (call.error() != 0) {
    errno = call.error();
    return -1;
  }
  Context& context = *context_of(handle);
  while (context.events.empty()) {
    if (!context.descriptor.await(call.lock())) return -1;
  }
  *event = context.events.front();
  context.events.pop_front();
  context.descriptor.take();
  if (element_of(*event) == nullptr) return 0;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: ++static_cast<CompletionQueue*>(event->element.cq)->async_taken; break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: ++static_cast<ReceiveQueue*>(event->element.srq)->async_taken; break;
    default: ++static_cast<QueuePair*>(event->element.qp)->async_taken; break;
  }
  return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
  const Call call("ibv_ack_async_event");
  if (element_of(*event) == nullptr) return;
  std::uint32_t acknowledged, taken;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      acknowledged = ++event->element.cq->async_events_completed;
      taken = static_cast<CompletionQueue*>(event->element.cq)->async_taken;
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      acknowledged = ++event->element.srq->events_completed;
      taken = static_cast<ReceiveQueue*>(event->element.srq)->async_taken;
      break;
    default:
      acknowledged = ++event->element.qp->events_completed;
      taken = static_cast<QueuePair*>(event->element.qp)->async_taken;
      break;
  }
  if (acknowledged > taken) Network::get().violation("ibv_ack_async_event: more than were taken");
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const Call call("ibv_create_comp_channel");
  if (call.error() != 0) return failed(call.error());
  if (context_of(context)->device->dead) return failed(EIO);
  Channel* const channel = Network::get().channels_.add(std::make_unique<Channel>());
  channel->context = context;
  channel->fd = channel->descriptor.number();
  channel->events.reserve(64);
  ++context_of(context)->children;
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* handle) {
  const Call call("ibv_destroy_comp_channel");
  Network& network = Network::get();
  if (call.error() != 0) return call.error();
  if (handle->refcnt > 0) {
    network.violation("ibv_destroy_comp_channel: a completion queue uses it");
    return EBUSY;
  }
  --context_of(handle->context)->children;
  network.channels_.remove(static_cast<Channel*>(handle));
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* handle, ibv_cq** queue, void** cq_context) {
  Call call("ibv_get_cq_event");
  if (call.error() != 0) {
    errno = call.error();
    return -1;
  }
  Network::get().progress();
  auto& channel = *static_cast<Channel*>(handle);
  while (channel.events.empty()) {
    if (!channel.descriptor.await(call.lock())) return -1;
  }
  CompletionQueue* const found = channel.events.front();
  channel.events.erase(channel.events.begin());
  channel.descriptor.take();
  ++found->events_taken;
  *queue = found;
  *cq_context = found->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq* handle, unsigned count) {
  const Call call("ibv_ack_cq_events");
  handle->comp_events_completed += count;
  if (handle->comp_events_completed > static_cast<CompletionQueue*>(handle)->events_taken) {
    Network::get().violation("ibv_ack_cq_events: more than were taken");
  }
}

}  // extern "C"

}  // namespace ch3_offload::fake_verbs

#pragma GCC visibility pop
