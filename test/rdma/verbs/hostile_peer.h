// A peer that knows the secret and says what a test makes it say: frames of introductions, and messages over
// a queue pair of its own.

#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rdma/introduction/frame_stream.h"
#include "rdma/introduction/transcript.h"
#include "rdma/job_secret.h"
#include "rdma/provider.h"
#include "rdma/verbs/devices/port_selection.h"
#include "rdma/verbs/devices/verbs_handles.h"
#include "rdma/verbs/transport/link.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/wire_up/link_frames.h"

namespace ch3_offload {

class HostilePeer {
 public:
  explicit HostilePeer(PeerId id, const JobSecret& secret) : id_(id), secret_(secret) {
    address.ethernet = true;
    address.hosts = {"127.0.0.1"};
    address.networks = {0};
    address.slot_bytes = 8192;
    address.instance = 0xBAD0'0000'0000'0000u + index_of(id);
    Result<FileDescriptor> listening = listen_for_streams(address.hosts[0], address.port);
    EXPECT_TRUE(listening.ok());
    if (listening.ok()) listener = std::move(listening.value());
  }

  /// Connects to a process's TCP port; says nothing yet.
  void dial(std::string_view target) {
    const std::optional<VerbsAddress> to = VerbsAddress::parse(target);
    ASSERT_TRUE(to);
    target_ = *to;
    const std::optional<SocketAddress> where = socket_address(to->hosts[0], to->port);
    take(FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Speaker::kDialler);
    ASSERT_EQ(::connect(socket.get(), where->get(), where->length), 0) << std::strerror(errno);
  }
  /// A connection on which nothing was said yet.
  void take(FileDescriptor connection, Speaker role) {
    socket = std::move(connection);
    role_ = role;
    transcript_ = Transcript(secret_);
    closed = false;
    incoming_bytes_ = 0;
  }
  /// A proper Hello to the process dialled, or to whom `to` names.
  Frame hello(PeerId receiver, std::optional<std::uint64_t> to = {}) const {
    Frame frame = make_frame(kLinks, FrameKind::kHello);
    frame.as<HelloBody>().sender = index_of(id_);
    frame.as<HelloBody>().receiver = index_of(receiver);
    frame.as<HelloBody>().own = frame.as<HelloBody>().sender;
    frame.as<HelloBody>().known_as = frame.as<HelloBody>().receiver;
    frame.as<HelloBody>().sender_instance = address.instance;
    frame.as<HelloBody>().receiver_instance = to.value_or(target_.instance);
    frame.as<HelloBody>().last_link = last_link;
    const std::string text = address.to_string();
    std::memcpy(frame.as<HelloBody>().address.data(), text.data(), text.size());
    return frame;
  }
  void send_bytes(const void* bytes, std::size_t length) const {
    // It may have been closed on us: then that is the answer.
    static_cast<void>(!::send(socket.get(), bytes, length, MSG_NOSIGNAL));
  }
  /// With its proof.
  void send(Frame frame) {
    transcript_.sign(role_, frame);
    send_bytes(&frame, sizeof frame);
  }

  /// What came, without waiting: a frame, or nothing yet; `closed` says that nothing will come.
  std::optional<Frame> receive() {
    while (incoming_bytes_ < sizeof(Frame)) {
      const ssize_t got = ::recv(socket.get(), incoming_.data() + incoming_bytes_,
                                 sizeof(Frame) - incoming_bytes_, MSG_DONTWAIT);
      if (got > 0) {
        incoming_bytes_ += static_cast<std::size_t>(got);
        continue;
      }
      if (got == 0 || errno != EAGAIN) closed = true;
      return {};
    }
    incoming_bytes_ = 0;
    Frame frame;
    EXPECT_EQ(check_frame(incoming_, kLinks, frame), FrameCheck::kValid);
    const Speaker other = role_ == Speaker::kDialler ? Speaker::kAcceptor : Speaker::kDialler;
    EXPECT_TRUE(frame.kind == FrameKind::kRefuse || transcript_.verify(other, frame) || says_anything);
    return frame;
  }

  /// A queue pair, in INIT, with room for a few messages.
  void make_queue_pair(std::string_view device = "fake0") {
    Result<DeviceContext> opened = open_verbs_device(device);
    ASSERT_TRUE(opened.ok());
    queue_pair.reset();  // Children first.
    region.reset();
    completions.reset();
    domain.reset();
    context = std::move(opened.value());
    domain.reset(ibv_alloc_pd(context.get()));
    completions.reset(ibv_create_cq(context.get(), 1024, nullptr, nullptr, 0));
    memory.resize(1 << 20);
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    region.reset(ibv_reg_mr(domain.get(), memory.data(), memory.size(), kAccess));
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {
        .max_send_wr = 256, .max_recv_wr = 256, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    queue_pair.reset(ibv_create_qp(domain.get(), &attributes));
    ASSERT_NE(queue_pair, nullptr);
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = 1;
    state.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    ASSERT_EQ(ibv_modify_qp(queue_pair.get(), &state,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    for (std::size_t i = 0; i < 100; ++i) {
      ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory.data()), 8192, region->lkey};
      ibv_recv_wr request{.wr_id = i, .next = nullptr, .sg_list = &piece, .num_sge = 1};
      ibv_recv_wr* refused = nullptr;
      ASSERT_EQ(ibv_post_recv(queue_pair.get(), &request, &refused), 0);
    }
  }
  Frame offer(std::uint32_t link, std::uint64_t received = 0, std::uint64_t limit = 4) const {
    Frame frame = make_frame(kLinks, FrameKind::kOffer);
    frame.as<OfferBody>().link = link;
    frame.as<OfferBody>().queue_pair = queue_pair == nullptr ? 77 : queue_pair->qp_num;
    frame.as<OfferBody>().packet_sequence = 1000;
    frame.as<OfferBody>().mtu = IBV_MTU_1024;
    frame.as<OfferBody>().received = received;
    frame.as<OfferBody>().limit = limit;
    const std::array<std::uint8_t, 16> gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1};
    frame.as<OfferBody>().gid = gid;
    return frame;
  }
  void connect_queue_pair(const OfferBody& remote) {
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_RTR;
    state.path_mtu = IBV_MTU_1024;
    state.dest_qp_num = remote.queue_pair;
    state.rq_psn = remote.packet_sequence;
    state.max_dest_rd_atomic = 1;
    state.min_rnr_timer = 12;
    state.ah_attr.port_num = 1;
    state.ah_attr.is_global = 1;
    std::memcpy(state.ah_attr.grh.dgid.raw, remote.gid.data(), 16);
    state.ah_attr.grh.sgid_index = 1;
    state.ah_attr.grh.hop_limit = 64;
    ASSERT_EQ(ibv_modify_qp(queue_pair.get(), &state,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    state = {};
    state.qp_state = IBV_QPS_RTS;
    state.timeout = 14;
    state.retry_cnt = state.rnr_retry = 7;
    state.sq_psn = 1000;
    state.max_rd_atomic = 1;
    ASSERT_EQ(ibv_modify_qp(queue_pair.get(), &state,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }
  /// Sends a slot of `length` bytes that begins with `header`, as far as it goes.
  void send_slot(const SlotHeader& header, std::size_t length, ibv_wr_opcode opcode = IBV_WR_SEND) {
    std::byte* const slot = memory.data() + (1 << 19);
    std::memset(slot, 0x33, 9000);
    std::memcpy(slot, &header, sizeof header);
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(slot), static_cast<std::uint32_t>(length), region->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = length == 0 ? 0 : 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* refused = nullptr;
    ASSERT_EQ(ibv_post_send(queue_pair.get(), &request, &refused), 0);
  }

  VerbsAddress address;
  std::uint32_t last_link = 0;  ///< That it says it had.
  bool says_anything = false;   ///< What it says may not fit what it hears.
  FileDescriptor listener;
  FileDescriptor socket;
  bool closed = false;
  DeviceContext context;
  ProtectionDomain domain;
  CompletionQueue completions;
  std::vector<std::byte> memory;
  Registration region;
  QueuePair queue_pair;

 private:
  PeerId id_;
  JobSecret secret_;
  VerbsAddress target_;
  Speaker role_ = Speaker::kDialler;
  Transcript transcript_{secret_};
  std::array<std::byte, sizeof(Frame)> incoming_{};
  std::size_t incoming_bytes_ = 0;
};

}  // namespace ch3_offload
