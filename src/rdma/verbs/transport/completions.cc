// What the completion queues tell: items that arrived, and items that the peers' devices have. See
// transport.h.

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma/verbs/transport/transport.h"

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

bool Transport::take_completions(std::size_t budget) noexcept {
  bool emptied = true;
  for (const std::unique_ptr<Rail>& rail : rails_) {
    if (rail->is_drained()) [[unlikely]]
      continue;
    const bool is_empty = take_completions(*rail, budget);
    if (is_empty) rail->was_emptied();
    emptied = emptied && is_empty;
  }
  return emptied;
}

bool Transport::take_completions(Rail& rail, std::size_t budget) noexcept {
  // What the last poll held back comes first.
  for (std::size_t taken = 0; handle_completions(rail);) {
    if (taken >= budget) return false;
    const std::size_t wanted = std::min(Rail::kBatch, budget - taken);
    if (!rail.fetch(wanted)) [[unlikely]] {
      client_.on_rail_failed(rail, "its completion queue failed");
      return true;
    }
    taken += rail.completion_count;
    if (rail.completion_count < wanted) return handle_completions(rail);
  }
  return false;
}

/// Returns false if a message is held, and a receive behind it has to wait.
bool Transport::handle_completions(Rail& rail) noexcept {
  for (; rail.holds_completions(); ++rail.next_completion) {
    const ibv_wc& completion = rail.completion();
    if ((completion.wr_id & kSendBit) != 0)
      on_send_completion(rail, completion);
    else if (held_rail_ != nullptr)
      return false;
    else
      on_receive(rail, completion);
  }
  return true;
}

void Transport::on_receive(Rail& rail, const ibv_wc& completion) noexcept {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  VerbsLane* const lane = rail.lane_of(completion.qp_num);
  // Of a queue pair that was given up: the peer sends it again over the next one.
  if (lane == nullptr) return rail.recycle(slot);
  VerbsEndpoint& peer = *lane->peer;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    rail.recycle(slot);
    return client_.lose_link(*lane, ibv_wc_status_str(completion.status));
  }
  if (lane->link.state == LinkState::kBound) [[unlikely]]
    client_.on_first_item(*lane);  // The peer sends: its queue pair is ready.
  const bool is_refused = peer.dying && peer.reason == Status::kProtocol;
  if (!is_refused && !deliver(*lane, completion, rail.receive_slots().address(slot)))
    client_.on_peer_over(peer, Status::kProtocol);
  if (held_rail_ != nullptr)
    held_slot_ = slot;
  else
    rail.recycle(slot);
  if (lane->link.credit_is_due()) credit_due_.add(*lane);
}

/// Hands an item to the sink. Returns false if it does not follow the protocol.
bool Transport::deliver(VerbsLane& lane, const ibv_wc& completion, const std::byte* slot) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  if (!lane.link.take() || lane.link.park_heard) return false;
  const bool must_be_last = lane.link.was_beyond_credit();
  lane.last_used = polls_;
  peer.failed = false;
  const std::size_t length = completion.byte_len;
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    if (must_be_last) return false;
    if (lane.index != 0 && lane.link.credit_is_due())
      client_.on_credit_wanted(lane);  // Nothing there can ask for it.
    ++found_;
    sink_->on_write_arrived(peer.id, Immediate{ntohl(completion.imm_data)}, length);
    return true;
  }
  if (completion.opcode != IBV_WC_RECV || length < sizeof(SlotHeader) ||
      length > rails_[lane.rail]->receive_slots().slot_bytes())
    return false;
  SlotHeader header;
  std::memcpy(&header, slot, sizeof header);
  const std::span<const std::byte> payload{slot + sizeof header, length - sizeof header};
  // Credit alone: a kPark that a broken link lost (resume()).
  if (must_be_last && header.kind == SlotHeader::kMessage) return false;
  lane.link.raise_limit(header.limit);
  if (peer.unfinished_write != kNone) push_parts(peer);
  if ((header.flags & SlotHeader::kWantsCredit) != 0) client_.on_credit_wanted(lane);
  if (header.kind == SlotHeader::kCreditOnly || header.kind == SlotHeader::kPark) {
    lane.link.was_credit_only();
    if (header.kind == SlotHeader::kPark) client_.on_park(lane);
    return payload.empty();
  }
  if (header.kind == SlotHeader::kBye && payload.empty()) {
    client_.on_peer_over(peer, Status::kPeerFailed);
    return true;
  }
  // Messages are the main lane's.
  if (header.kind != SlotHeader::kMessage || lane.index != 0 || payload.empty()) return false;
  ++found_;
  if (sink_->on_message(peer.id, payload) == Delivery::kHeld) held_rail_ = rails_[lane.rail].get();
  return true;
}

void Transport::on_send_completion(Rail& rail, const ibv_wc& completion) noexcept {
  VerbsLane* const lane = rail.lane_of(completion.qp_num);
  if (lane == nullptr) return;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    if (lane->link.state == LinkState::kDraining) return;
    const char* const why = ibv_wc_status_str(completion.status);
    client_.lose_link(*lane, why);
    if (!is_final(completion.status)) return;
    log_("verbs: peer %u refused what was sent (%s)", index_of(lane->peer->id), why);
    return client_.on_peer_over(*lane->peer, Status::kPeerFailed);
  }
  lane->acknowledged += std::exchange(lane->probing, false);
  const std::uint64_t up_to = completion.wr_id & ~kSendBit;
  if (up_to <= lane->link.posted()) retire(*lane, up_to);
}

/// The peer's device has all items below `up_to`.
void Transport::retire(VerbsLane& lane, std::uint64_t up_to) noexcept {
  VerbsEndpoint& peer = *lane.peer;
  while (lane.link.retired() < up_to) {
    ++lane.acknowledged;
    const Item item = lane.link.retire_one();
    if (item.kind != Item::Kind::kWritePart) {
      buffers_.give_back(item);
      continue;
    }
    Write& write = writes_[item.index];
    if (++write.parts_retired < write.parts) continue;
    const WorkId work = write.work;
    free_writes_.push_back(item.index);
    ++found_;
    sink_->on_write_done(peer.id, work, Status::kOk);
  }
  peer.failed = false;
  if (lane.link.all_retired()) {
    if (!lane.link.parking) lane.flush = false;
    client_.on_all_retired(lane);
  }
  if (peer.unfinished_write != kNone) push_parts(peer);
}

}  // namespace ch3_offload
