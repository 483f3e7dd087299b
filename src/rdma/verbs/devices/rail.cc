#include "rdma/verbs/devices/rail.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

/// What we ask for; the device may grant more or less.
constexpr std::uint32_t kWantedInlineBytes = 256;

// IBTA 9.7.5.2.8 and 9.7.5.1.3: 4.096 us x 2^14 = 67 ms without an acknowledgement, six retries, so about
// half a second until a dead link is known; the provider connects again then (links.h). To software RoCE
// seven are endless.
constexpr std::uint8_t kAckTimeout = 14;
constexpr std::uint8_t kRetries = 6;
// Credits see to it that a receive is there; should it be late all the same, the sender waits
// (link_timer.h).
constexpr std::uint8_t kRetryForever = 7;
constexpr std::uint8_t kRnrTimer = 12;  ///< 0.64 ms (IBTA table 45).

/// A device that does not say when a stopped queue pair has used its last receive
/// (IBV_EVENT_QP_LAST_WQE_REACHED, IBTA 11.6.4.2) is given this time: what it still had for the completion
/// queue is there after that. One that has said so before is given more: it may be slow, or lose an event.
constexpr std::uint64_t kStopNs = 50'000'000;
constexpr std::uint64_t kLongestStopNs = 20 * kStopNs;

/// One for a link of our own, one to answer the others' (RULE HALF ARE ANSWERED).
constexpr std::uint32_t kLeastQueuePairs = 2;

/// The device's share of what was asked for: half, again and again, while `make` fails for want of something.
template <class Make>
auto halve_until_made(std::uint32_t& amount, std::uint32_t least, Make make) {
  auto made = make(amount);
  while (made == nullptr && (errno == ENOMEM || errno == EINVAL) && amount > 0 && amount / 2 >= least) {
    amount /= 2;
    made = make(amount);
  }
  return made;
}

Error device_error(const VerbsPort& port, const char* what, int error_number) {
  const Status status = error_number == ENOMEM ? Status::kNoMemory : Status::kDeviceFailed;
  std::string text =
      "verbs: " + port.device + ": " + what + " failed: " + std::generic_category().message(error_number);
  if (error_number == ENOMEM)
    text += " (too many processes on the device, or RLIMIT_MEMLOCK, ulimit -l, is too small)";
  return {status, error_number, std::move(text)};
}

bool make_nonblocking(int descriptor) noexcept {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace

Result<std::unique_ptr<Rail>> Rail::open(const VerbsPort& port, const RailConfig& config,
                                         std::uint8_t index) {
  std::unique_ptr<Rail> rail(new Rail(port, index));  // The constructor is private.
  const Result<std::monostate> result = rail->set_up(config);
  if (!result.ok()) return result.error();
  return rail;
}

Result<std::monostate> Rail::set_up(const RailConfig& config) {
  config_ = config;
  Result<DeviceContext> context = open_verbs_device(port_.device);
  if (!context.ok()) return context.error();
  context_ = std::move(context.value());
  if (!make_nonblocking(context_->async_fd))
    return device_error(port_, "preparing its event descriptor", errno);
  ibv_device_attr_ex device{};
  if (const int error = ibv_query_device_ex(context_.get(), nullptr, &device); error != 0)
    return device_error(port_, "asking for its limits", error);
  const ibv_device_attr& limits = device.orig_attr;
  if (limits.max_srq <= 0)
    return Error{Status::kUnsupported, 0, "verbs: " + port_.device + " has no shared receive queues"};

  most_regions_ = static_cast<std::size_t>(std::max(limits.max_mr, 0));
  faults_pages_ = (device.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
                  (device.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE) != 0;

  // A child that forks must not take registered pages away; kernels with copy-on-fork need no help.
  if (ibv_is_fork_initialized() == IBV_FORK_DISABLED) static_cast<void>(ibv_fork_init());

  domain_.reset(ibv_alloc_pd(context_.get()));
  if (domain_ == nullptr) return device_error(port_, "making a protection domain", errno);
  events_.reset(ibv_create_comp_channel(context_.get()));
  if (events_ == nullptr || !make_nonblocking(events_->fd))
    return device_error(port_, "making a completion channel", errno);

  // A child that kept them would keep the queue pairs alive after this process.
  for (const int descriptor : {context_->cmd_fd, context_->async_fd, events_->fd})
    if (descriptor >= 0) closing_.emplace_back(descriptor, ForkClosing::Kind::kDevice);

  const std::uint32_t slab = config_.slots_per_slab;
  config_.most_receive_slots =
      std::min(config_.most_receive_slots, static_cast<std::uint32_t>(limits.max_srq_wr));
  config_.most_receive_slots = std::max(slab, config_.most_receive_slots / slab * slab);
  receives_.reset(halve_until_made(config_.most_receive_slots, slab, [&](std::uint32_t slots) {
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = slots;
    attributes.attr.max_sge = 1;
    return ibv_create_srq(domain_.get(), &attributes);
  }));
  if (receives_ == nullptr) return device_error(port_, "making a shared receive queue", errno);
  config_.most_receive_slots -= config_.most_receive_slots % slab;  // The pool has whole slabs.

  // Half of the slots are for the first credit of every peer.
  config_.most_queue_pairs = std::min(config_.most_queue_pairs, config_.most_receive_slots / 8);
  // Every receive and every send can be in it at once, those of queue pairs that are about to be destroyed
  // too.
  config_.most_queue_pairs =
      std::clamp(config_.most_queue_pairs, kLeastQueuePairs,
                 std::max(kLeastQueuePairs, static_cast<std::uint32_t>(limits.max_qp)));
  config_.send_queue_depth = std::min(config_.send_queue_depth, static_cast<std::uint32_t>(limits.max_qp_wr));
  queue_.reset(
      halve_until_made(config_.most_queue_pairs, kLeastQueuePairs, [&](std::uint32_t queue_pairs) -> ibv_cq* {
        const std::uint64_t entries =
            config_.most_receive_slots + std::uint64_t{2} * queue_pairs * config_.send_queue_depth;
        if (entries > static_cast<std::uint32_t>(limits.max_cqe)) {
          errno = ENOMEM;
          return nullptr;
        }
        const int vectors = std::max(context_->num_comp_vectors, 1);
        return ibv_create_cq(context_.get(), static_cast<int>(entries), nullptr, events_.get(),
                             static_cast<int>(config_.completion_vector % static_cast<std::size_t>(vectors)));
      }));
  if (queue_ == nullptr) return device_error(port_, "making a completion queue", errno);

  ibv_pd* const domain = domain_.get();
  receive_slots_ =
      std::make_unique<SlotPool>(std::span(&domain, 1), config_.slot_bytes, slab, config_.most_receive_slots);
  if (std::optional<Error> error = receive_slots_->grow()) return std::move(*error);
  while (receive_slots_->free_count() > 0) {
    const std::uint32_t slot = receive_slots_->take();
    if (!post(&slot, 1)) return device_error(port_, "posting a receive", errno);
  }
  arm_low_water();
  Result<QueuePair> probe = create_queue_pair();  // Learns inline_bytes(), and that it works.
  if (!probe.ok()) return probe.error();
  return std::monostate{};
}

Result<QueuePair> Rail::make_queue_pair(VerbsLane& lane) {
  // stop() must not allocate. Every queue pair that lives may be there at once.
  const std::size_t most = stopped_.size() + lanes_.size() + 1;
  if (stopped_.capacity() < most) stopped_.reserve(2 * most);
  Result<QueuePair> made = create_queue_pair();
  if (made.ok()) lanes_[made.value()->qp_num] = &lane;
  return made;
}

Result<QueuePair> Rail::create_queue_pair() {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = queue_.get();
  attributes.recv_cq = queue_.get();
  attributes.srq = receives_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = config_.send_queue_depth;
  attributes.cap.max_send_sge = 1;
  QueuePair queue_pair;
  if (!inline_known_) {
    inline_bytes_ = kWantedInlineBytes;
    queue_pair.reset(halve_until_made(inline_bytes_, 0, [&](std::uint32_t bytes) {
      attributes.cap.max_inline_data = bytes;
      return ibv_create_qp(domain_.get(), &attributes);
    }));
    if (queue_pair != nullptr) inline_bytes_ = attributes.cap.max_inline_data;
    inline_known_ = queue_pair != nullptr;
  } else {  // All of them can do the same.
    attributes.cap.max_inline_data = inline_bytes_;
    queue_pair.reset(ibv_create_qp(domain_.get(), &attributes));
  }
  if (queue_pair == nullptr) return device_error(port_, "making a queue pair", errno);

  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.pkey_index = port_.partition_index;
  state.port_num = port_.port;
  state.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error = ibv_modify_qp(queue_pair.get(), &state,
                                  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return device_error(port_, "preparing a queue pair", error);
  return queue_pair;
}

bool Rail::connect(ibv_qp* queue_pair, std::uint32_t packet_sequence,
                   const RemoteQueuePair& remote) noexcept {
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_RTR;
  state.path_mtu = std::min(port_.mtu, remote.mtu);
  state.dest_qp_num = remote.number;
  state.rq_psn = remote.packet_sequence;
  state.max_dest_rd_atomic = 1;
  state.min_rnr_timer = kRnrTimer;
  state.ah_attr.port_num = port_.port;
  state.ah_attr.dlid = remote.lid;
  state.ah_attr.sl = config_.service_level;
  if (port_.ethernet || port_.needs_global_route) {
    state.ah_attr.is_global = 1;
    state.ah_attr.grh.traffic_class = config_.traffic_class;
    state.ah_attr.grh.dgid = remote.gid;
    state.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port_.gid_index);
    state.ah_attr.grh.hop_limit = 64;
  }
  int error = ibv_modify_qp(queue_pair, &state,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) {
    state = {};
    state.qp_state = IBV_QPS_RTS;
    state.timeout = kAckTimeout;
    state.retry_cnt = kRetries;
    state.rnr_retry = kRetryForever;
    state.sq_psn = packet_sequence;
    state.max_rd_atomic = 1;
    error = ibv_modify_qp(queue_pair, &state,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  errno = error;
  return error == 0;
}

void Rail::stop(QueuePair queue_pair, VerbsLane& lane, End end) noexcept {
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_ERR;
  static_cast<void>(ibv_modify_qp(queue_pair.get(), &state, IBV_QP_STATE));
  if (end == End::kFinished) lanes_.erase(queue_pair->qp_num);
  stopped_.push_back({std::move(queue_pair), end == End::kFinished ? nullptr : &lane, monotonic_ns(),
                      end == End::kUnused, emptied_});
}

bool Rail::is_over(Stopped& stopped, std::uint64_t now_ns) const noexcept {
  const std::uint64_t most_ns = tells_last_receive_ ? kLongestStopNs : kStopNs;
  if (!stopped.is_empty && (lost || elapsed_ns(now_ns, stopped.since_ns) >= most_ns)) {
    stopped.is_empty = true;
    stopped.since_emptied = emptied_;
  }
  return drained_ || (stopped.is_empty && emptied_ > stopped.since_emptied);
}

bool Rail::fetch(std::size_t most) noexcept {
  next_completion = completion_count = 0;
  const int count = ibv_poll_cq(queue_.get(), static_cast<int>(most), completions_.data());
  if (count < 0) [[unlikely]]
    return false;
  completion_count = static_cast<std::size_t>(count);
  return true;
}

bool Rail::request_notification() noexcept { return lost || ibv_req_notify_cq(queue_.get(), 0) == 0; }

bool Rail::take_completion_events() noexcept {
  unsigned taken = 0;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(events_.get(), &queue, &context) == 0) ++taken;
  if (taken > 0) ibv_ack_cq_events(queue_.get(), taken);
  return taken > 0;
}

void Rail::take_events(Client& client) noexcept {
  ibv_async_event event;
  while (ibv_get_async_event(context_.get(), &event) == 0) {
    const char* const name = ibv_event_type_str(event.event_type);
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        if (VerbsLane* const lane = lane_of(event.element.qp->qp_num))
          client.on_queue_pair_failed(*lane, name);
        break;
      case IBV_EVENT_QP_LAST_WQE_REACHED: on_last_receive(event.element.qp, client); break;
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        // At its bound it is not armed again: it would tell at once, and again.
        if (grow_receive_slots()) arm_low_water();
        break;
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_PORT_ACTIVE:
        if (event.element.port_num == port_.port)
          client.on_port(*this, event.event_type == IBV_EVENT_PORT_ACTIVE);
        break;
      // Queue pairs that are connected stay as they are: if they break, new ones have the new address.
      case IBV_EVENT_LID_CHANGE:
      case IBV_EVENT_GID_CHANGE:
      case IBV_EVENT_PKEY_CHANGE:
      case IBV_EVENT_SM_CHANGE:
      case IBV_EVENT_CLIENT_REREGISTER:
        if (event.element.port_num == port_.port && refresh_port(context_.get(), port_))
          client.on_address_changed(*this, name);
        break;
      case IBV_EVENT_DEVICE_FATAL: client.on_device_failed(*this, name, LogScope::kNode); break;
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR: client.on_device_failed(*this, name, LogScope::kProcess); break;
      default: break;
    }
    ibv_ack_async_event(&event);
  }
}

/// Nothing more comes through a queue pair that is stopped, by us or by the device.
void Rail::on_last_receive(const ibv_qp* queue_pair, Client& client) noexcept {
  tells_last_receive_ = true;
  const auto find = [&] {
    return std::ranges::find(stopped_, queue_pair, [](const Stopped& one) { return one.queue_pair.get(); });
  };
  auto found = find();
  if (found == stopped_.end()) {
    VerbsLane* const lane = lane_of(queue_pair->qp_num);
    if (lane == nullptr) return;
    client.on_queue_pair_failed(*lane, ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED));
    if (found = find(); found == stopped_.end()) return;
  }
  found->is_empty = true;
  found->since_emptied = emptied_;  // What came before may still be in the completion queue.
}

void Rail::repost_recycled() noexcept {
  if (!post(recycled_.data(), recycled_count_)) broken_ = true;
  recycled_count_ = 0;
}

bool Rail::post(const std::uint32_t* slots, std::size_t count) noexcept {
  std::array<ibv_recv_wr, kRepostBatch> requests;
  std::array<ibv_sge, kRepostBatch> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    pieces[i] = {reinterpret_cast<std::uintptr_t>(receive_slots_->address(slots[i])),
                 static_cast<std::uint32_t>(receive_slots_->slot_bytes()),
                 receive_slots_->local_key(slots[i], 0)};
    requests[i] = {slots[i], i + 1 < count ? &requests[i + 1] : nullptr, &pieces[i], 1};
  }
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_srq_recv(receives_.get(), requests.data(), &refused);
  errno = error;
  return error == 0;
}

bool Rail::make_room_for_credit(std::uint32_t more, std::uint32_t kept_free) noexcept {
  // Some are between a completion and repost(), or meant for what nobody has credit for.
  const std::uint32_t needed = credit_ + more + config_.slots_per_slab / 2;
  if (needed + kept_free > receive_slots_->most()) return false;
  while (needed > receive_slots_->count())
    if (!grow_receive_slots()) return false;
  return true;
}

/// Adds a slab of receive slots and posts them. Returns false at the bound, or if it is refused.
bool Rail::grow_receive_slots() noexcept {
  try {
    if (receive_slots_->grow()) return false;
  } catch (const std::exception&) {
    return false;  // Out of memory: the pool stays as it is.
  }
  while (receive_slots_->free_count() > 0) {
    const std::uint32_t slot = receive_slots_->take();
    if (!post(&slot, 1)) {
      broken_ = true;
      return false;
    }
  }
  return true;
}

/// Asks for IBV_EVENT_SRQ_LIMIT_REACHED when a quarter of the slots is left.
void Rail::arm_low_water() noexcept {
  ibv_srq_attr attributes{};
  attributes.srq_limit = receive_slots_->count() / 4;
  static_cast<void>(ibv_modify_srq(receives_.get(), &attributes, IBV_SRQ_LIMIT));  // A hint only.
}

}  // namespace ch3_offload
