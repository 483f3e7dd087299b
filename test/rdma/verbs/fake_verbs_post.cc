// The fake verbs device: ibv_post_send().

#include <cerrno>

#include "rdma/verbs/fake_verbs_network.h"

namespace ch3_offload::fake_verbs {

namespace {

/// errno, or 0. What a device would find out later (keys, lengths) is not looked at here.
int check(QueuePair& pair, const ibv_send_wr& request) {
  if (pair.now != IBV_QPS_RTS && pair.now != IBV_QPS_ERR) return EINVAL;
  switch (request.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: break;
    default: return EINVAL;
  }
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > pair.init.cap.max_send_sge) {
    return EINVAL;
  }
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    std::uint64_t length_bytes = 0;
    for (int i = 0; i < request.num_sge; ++i) length_bytes += request.sg_list[i].length;
    if (length_bytes > pair.init.cap.max_inline_data) return EINVAL;
  }
  if (pair.posted - pair.retired >= pair.init.cap.max_send_wr) return ENOMEM;
  return 0;
}

void append(QueuePair& pair, const ibv_send_wr& posted, Clock::time_point now) {
  SendRequest& request = pair.sends.push();
  request.id = posted.wr_id;
  request.sequence = ++pair.posted;
  request.opcode = posted.opcode;
  request.signaled = pair.init.sq_sig_all != 0 || (posted.send_flags & IBV_SEND_SIGNALED) != 0;
  request.solicited = (posted.send_flags & IBV_SEND_SOLICITED) != 0;
  request.in_line = (posted.send_flags & IBV_SEND_INLINE) != 0;
  request.immediate = posted.imm_data;
  request.remote_address = posted.wr.rdma.remote_addr;
  request.remote_key = posted.wr.rdma.rkey;
  request.parts.assign(posted.sg_list, posted.sg_list + posted.num_sge);
  request.bytes.clear();
  request.length_bytes = 0;
  for (const ibv_sge& part : request.parts) {
    request.length_bytes += part.length;
    if (!request.in_line) continue;
    const auto* const bytes =
        reinterpret_cast<const std::byte*>(part.addr);  // NOLINT(performance-no-int-to-ptr)
    request.bytes.insert(request.bytes.end(), bytes, bytes + part.length);
  }
  request.posted = now;
  request.lost_since.reset();
  request.not_ready_since.reset();
  request.digest.reset();
}

}  // namespace

int post_send(ibv_qp* handle, ibv_send_wr* list, ibv_send_wr** bad) {
  const Call call("ibv_post_send");
  Network& network = Network::get();
  auto& pair = *static_cast<QueuePair*>(handle);
  ++network.counters_.post_send_calls;
  int error = call.error();
  if (error == 0 && pair.owner->device->dead) error = EIO;
  const Clock::time_point now = Clock::now();
  ibv_send_wr* request = list;
  for (; error == 0 && request != nullptr; request = request->next) {
    error = check(pair, *request);
    if (error != 0) break;
    append(pair, *request, now);
  }
  if (error != 0) *bad = request;
  network.start(pair);
  return error;
}

}  // namespace ch3_offload::fake_verbs
