// What the completion queues tell: items that arrived, and items that the peers' devices have. See
// verbs_provider.h.
//
// Nothing here allocates or locks.

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma/verbs/send_id.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// Errors that another queue pair would meet, too: the peer took its memory back, or one of us is wrong.
bool is_final(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR: return true;
    default: return false;  // IBV_WC_LOC_QP_OP_ERR, too: rxe says so of a port that went down.
  }
}

}  // namespace

/// Takes at most about `budget` completions of each rail. True: there are no more.
bool VerbsProvider::poll_all_completions(std::size_t budget) noexcept {
  bool emptied = true;
  for (RailUse& use : rails_) {
    if (use.drained) [[unlikely]]
      continue;
    const bool is_empty = poll_completions(use, budget);
    use.drained = use.lost && is_empty;
    emptied = emptied && is_empty;
  }
  return emptied;
}

bool VerbsProvider::poll_completions(RailUse& use, std::size_t budget) noexcept {
  // What the last poll held back comes first.
  for (std::size_t taken = 0; handle_completions(use);) {
    if (taken >= budget) return false;
    const std::size_t wanted = std::min(use.completions.size(), budget - taken);
    const int count = ibv_poll_cq(use.rail->completions(), static_cast<int>(wanted), use.completions.data());
    if (count < 0) [[unlikely]] {
      on_device_lost(use, "its completion queue failed");
      return true;
    }
    use.next_completion = 0;
    use.completion_count = static_cast<std::size_t>(count);
    taken += use.completion_count;
    if (use.completion_count < wanted) return handle_completions(use);
  }
  return false;
}

/// False: a message is held, and a receive behind it has to wait.
bool VerbsProvider::handle_completions(RailUse& use) noexcept {
  for (; use.next_completion < use.completion_count; ++use.next_completion) {
    const ibv_wc& completion = use.completions[use.next_completion];
    if (SendId::is_send(completion.wr_id))
      on_send_completion(completion);
    else if (held_)
      return false;
    else
      on_receive(use, completion);
  }
  return true;
}

void VerbsProvider::on_receive(RailUse& use, const ibv_wc& completion) noexcept {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  const auto found = use.links.find(completion.qp_num);
  // Of a queue pair that was given up: the peer sends it again over the next one.
  if (found == use.links.end()) return use.rail->recycle(slot);
  VerbsLane& lane = *found->second;
  VerbsEndpoint& peer = *lane.peer;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    use.rail->recycle(slot);
    return lose_link(lane, ibv_wc_status_str(completion.status));
  }
  if (lane.link.state == LinkState::kBound) [[unlikely]]
    link_is_up(lane);  // The peer sends: its queue pair is ready.
  const bool is_refused = peer.dying && peer.reason == Status::kProtocol;
  if (!is_refused && !deliver(lane, completion, use.rail->receive_slots().address(slot)))
    start_dying(peer, Status::kProtocol);
  if (held_) {
    held_rail_ = use.rail.get();
    held_slot_ = slot;
  } else {
    use.rail->recycle(slot);
  }
  if (lane.credit_due || !lane.link.credit_is_due()) return;
  lane.credit_due = true;
  credit_due_.push_back(&lane);
}

/// Hands an item to the sink. False: it does not follow the protocol.
bool VerbsProvider::deliver(VerbsLane& lane, const ibv_wc& completion, const std::byte* slot) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  if (!lane.link.take() || lane.link.park_heard) return false;
  const bool must_be_last = lane.link.was_beyond_credit();
  lane.last_used = polls_;
  peer.failed = false;
  const std::size_t length = completion.byte_len;
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    if (must_be_last) return false;
    if (lane.index != 0 && lane.link.credit_is_due()) widen(lane);  // Nothing there can ask for it.
    ++delivered_;
    sink_->on_write_arrived(peer.id, Immediate{ntohl(completion.imm_data)}, length);
    return true;
  }
  if (completion.opcode != IBV_WC_RECV || length < sizeof(SlotHeader) || length > config_.rail.slot_bytes)
    return false;
  SlotHeader header;
  std::memcpy(&header, slot, sizeof header);
  const std::span<const std::byte> payload{slot + sizeof header, length - sizeof header};
  // Credit alone: a kPark that a broken link lost (forget_parking()).
  if (must_be_last && header.kind == SlotHeader::kMessage) return false;
  lane.link.raise_limit(header.limit);
  if (peer.unfinished_write != kNoWrite) push_parts(peer);
  if ((header.flags & SlotHeader::kWantsCredit) != 0) widen(lane);
  if (header.kind == SlotHeader::kCreditOnly) {
    lane.link.was_credit_only();
    return payload.empty();
  }
  if (header.kind == SlotHeader::kPark) {
    lane.link.was_credit_only();
    on_park(lane);
    return payload.empty();
  }
  if (header.kind == SlotHeader::kBye && payload.empty()) {
    start_dying(peer, Status::kPeerFailed);
    return true;
  }
  // Messages are the main lane's.
  if (header.kind != SlotHeader::kMessage || lane.index != 0 || payload.empty()) return false;
  ++delivered_;
  held_ = sink_->on_message(peer.id, payload) == Delivery::kHeld;
  return true;
}

/// The Sink has read the message that it held.
void VerbsProvider::release_held() noexcept {
  held_ = false;
  held_rail_->recycle(held_slot_);
}

void VerbsProvider::on_send_completion(const ibv_wc& completion) noexcept {
  const SendId id(completion.wr_id);
  VerbsEndpoint* const peer = find(id.peer());
  if (peer == nullptr || (id.lane() != 0 && peer->second == nullptr)) return;
  VerbsLane& lane = id.lane() == 0 ? peer->main : *peer->second;
  if (lane.link.queue_pair == nullptr || (lane.link.number & 0xFF) != id.link_bits()) return;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    if (lane.link.state == LinkState::kDraining) return;
    const char* const why = ibv_wc_status_str(completion.status);
    lose_link(lane, why);
    if (is_final(completion.status)) {
      log("verbs: peer %u refused what was sent (%s)", index_of(peer->id), why);
      start_dying(*peer, Status::kPeerFailed);
    }
    return;
  }
  lane.probe_done |= std::exchange(lane.probing, false);
  const std::uint64_t number = lane.link.number_from(id.item_bits());
  if (number < lane.link.posted()) retire(lane, number + 1);
}

/// The peer's device has all items below `up_to`.
void VerbsProvider::retire(VerbsLane& lane, std::uint64_t up_to) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  while (lane.link.retired() < up_to) {
    const Item item = lane.link.retire_one();
    if (item.kind != Item::Kind::kWritePart) {
      give_back_message(item);
      continue;
    }
    Write& write = writes_[item.index];
    if (++write.parts_retired < write.parts) continue;
    const WorkId work = write.work;
    free_writes_.push_back(item.index);
    ++delivered_;
    sink_->on_write_done(peer.id, work, Status::kOk);
  }
  peer.failed = false;
  if (lane.link.all_retired()) {
    if (!lane.link.parking) lane.flush = false;
    try_to_park(lane);
  }
  if (peer.unfinished_write != kNoWrite) push_parts(peer);
}

}  // namespace ch3_offload
