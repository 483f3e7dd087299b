// One process's end of a connection over the verbs API: device, queue pair, queues and buffers. For the tests
// of the fake verbs device.

#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ch3_offload::fake_verbs {

struct ConnectionOptions {
  int device = 0;
  bool shared = true;  ///< Receives through an SRQ.
  int completions = 256;
  std::uint32_t sends = 16;
  std::uint32_t receives = 16;
  std::uint32_t inline_bytes = 64;
  std::uint8_t rnr_retry = 7;
  std::uint8_t timeout = 14;
};

class ConnectionEnd {
 public:
  static constexpr std::size_t kSlotBytes = 64;
  static constexpr std::size_t kBufferBytes = 1 << 16;

  // Integers, since clang warns of the macro ibv_reg_mr() when its argument is an enumerator.
  static constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
  static constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

  struct Work {
    std::uint64_t id = 0;
    std::size_t length = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint32_t immediate = 0;  ///< Network order.
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
  };

  explicit ConnectionEnd(const ConnectionOptions& options = {}) : options_(options) {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    EXPECT_GT(count, options.device);
    context = ibv_open_device(devices[options.device]);
    ibv_free_device_list(devices);
    EXPECT_NE(context, nullptr);
    domain = ibv_alloc_pd(context);
    buffer.resize(kBufferBytes);
    slots.resize(kSlotBytes * 256);
    region = ibv_reg_mr(domain, buffer.data(), buffer.size(), kRemote);
    slot_region = ibv_reg_mr(domain, slots.data(), slots.size(), kLocal);
    channel = ibv_create_comp_channel(context);
    queue = ibv_create_cq(context, options.completions, this, channel, 0);
    if (options.shared) {
      ibv_srq_init_attr init{};
      init.attr.max_wr = options.receives;
      init.attr.max_sge = 1;
      shared = ibv_create_srq(domain, &init);
    }
    make_pair();
  }

  ConnectionEnd(const ConnectionEnd&) = delete;
  ConnectionEnd& operator=(const ConnectionEnd&) = delete;

  ~ConnectionEnd() {
    EXPECT_EQ(pair != nullptr ? ibv_destroy_qp(pair) : 0, 0);
    EXPECT_EQ(shared != nullptr ? ibv_destroy_srq(shared) : 0, 0);
    EXPECT_EQ(ibv_destroy_cq(queue), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dereg_mr(slot_region), 0);
    EXPECT_EQ(ibv_dereg_mr(region), 0);
    EXPECT_EQ(ibv_dealloc_pd(domain), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }

  void make_pair() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = queue;
    init.srq = shared;
    init.cap = {.max_send_wr = options_.sends,
                .max_recv_wr = shared != nullptr ? 0 : options_.receives,
                .max_send_sge = 1,
                .max_recv_sge = shared != nullptr ? 0u : 1u,
                .max_inline_data = options_.inline_bytes};
    init.qp_type = IBV_QPT_RC;
    pair = ibv_create_qp(domain, &init);
    ASSERT_NE(pair, nullptr);
  }

  void connect(const ConnectionEnd& peer) {
    initialize();
    EXPECT_EQ(ready_to_receive(peer), 0);
    EXPECT_EQ(ready_to_send(), 0);
  }

  void initialize() {
    ibv_qp_attr values{};
    values.qp_state = IBV_QPS_INIT;
    values.port_num = 1;
    values.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    EXPECT_EQ(ibv_modify_qp(pair, &values, mask), 0);
  }

  /// errno, or 0.
  int ready_to_receive(const ConnectionEnd& peer) {
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(peer.context, 1, &port), 0);
    ibv_qp_attr values{};
    values.qp_state = IBV_QPS_RTR;
    values.path_mtu = port.active_mtu;
    values.dest_qp_num = peer.pair->qp_num;
    values.rq_psn = peer.psn;
    values.max_dest_rd_atomic = 1;
    values.min_rnr_timer = 12;
    values.ah_attr.port_num = 1;
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
      values.ah_attr.is_global = 1;
      values.ah_attr.grh.sgid_index = 1;
      values.ah_attr.grh.hop_limit = 64;
      EXPECT_EQ(ibv_query_gid(peer.context, 1, 1, &values.ah_attr.grh.dgid), 0);
    } else {
      values.ah_attr.dlid = port.lid;
    }
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return ibv_modify_qp(pair, &values, mask);
  }

  /// errno, or 0.
  int ready_to_send() {
    ibv_qp_attr values{};
    values.qp_state = IBV_QPS_RTS;
    values.timeout = options_.timeout;
    values.retry_cnt = 7;
    values.rnr_retry = options_.rnr_retry;
    values.sq_psn = psn;
    values.max_rd_atomic = 1;
    const int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                     IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(pair, &values, mask);
  }

  /// errno, or 0.
  int enter(ibv_qp_state state) {
    ibv_qp_attr values{};
    values.qp_state = state;
    return ibv_modify_qp(pair, &values, IBV_QP_STATE);
  }

  ibv_qp_state state() {
    ibv_qp_attr values{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(pair, &values, IBV_QP_STATE, &init), 0);
    return values.qp_state;
  }

  /// Into slot `id`.
  int post_receive(std::uint64_t id, std::uint32_t length = kSlotBytes) {
    ibv_sge part = {.addr = reinterpret_cast<std::uintptr_t>(slots.data() + id * kSlotBytes),
                    .length = length,
                    .lkey = slot_region->lkey};
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = &part;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return shared != nullptr ? ibv_post_srq_recv(shared, &request, &bad)
                             : ibv_post_recv(pair, &request, &bad);
  }

  /// Of the buffer's first bytes.
  int post(const Work& work) {
    ibv_sge part = {.addr = reinterpret_cast<std::uintptr_t>(buffer.data()),
                    .length = static_cast<std::uint32_t>(work.length),
                    .lkey = (work.flags & IBV_SEND_INLINE) != 0 ? 0 : region->lkey};
    ibv_send_wr request{};
    request.wr_id = work.id;
    request.sg_list = &part;
    request.num_sge = work.length == 0 ? 0 : 1;
    request.opcode = work.opcode;
    request.send_flags = work.flags;
    request.imm_data = work.immediate;
    request.wr.rdma.remote_addr = work.remote_address;
    request.wr.rdma.rkey = work.remote_key;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(pair, &request, &bad);
    EXPECT_EQ(bad, error != 0 ? &request : nullptr);
    return error;
  }

  /// A write of the buffer's first bytes into the peer's buffer.
  Work write_to(const ConnectionEnd& peer, std::uint64_t id, std::size_t length,
                std::size_t offset = 0) const {
    return {.id = id,
            .length = length,
            .opcode = IBV_WR_RDMA_WRITE,
            .remote_address = reinterpret_cast<std::uintptr_t>(peer.buffer.data()) + offset,
            .remote_key = peer.region->rkey};
  }

  std::vector<ibv_wc> poll(int most = 64) {
    std::vector<ibv_wc> result(static_cast<std::size_t>(most));
    const int count = ibv_poll_cq(queue, most, result.data());
    EXPECT_GE(count, 0);
    result.resize(static_cast<std::size_t>(std::max(count, 0)));
    return result;
  }

  /// Waits for one, a second at most.
  ibv_wc poll_one() {
    ibv_wc result{};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (ibv_poll_cq(queue, 1, &result) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "no completion";
        break;
      }
    }
    return result;
  }

  void fill(std::string_view text) { text.copy(buffer.data(), buffer.size()); }
  std::string text(std::size_t length, std::size_t offset = 0) const {
    return {buffer.data() + offset, length};
  }
  std::string received(std::uint64_t id, std::size_t length) const {
    return {slots.data() + id * kSlotBytes, length};
  }

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_mr* region = nullptr;
  ibv_mr* slot_region = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* queue = nullptr;
  ibv_srq* shared = nullptr;
  ibv_qp* pair = nullptr;
  std::uint32_t psn = 0xFF'FFF0;  ///< Of the next connection's sends; wraps soon.
  std::vector<char> buffer;       ///< What is sent, and what peers may write.
  std::vector<char> slots;        ///< What receives are posted with.

 private:
  const ConnectionOptions options_;
};

}  // namespace ch3_offload::fake_verbs
