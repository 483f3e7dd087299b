// Moving data: reserve, commit, write, poll, arm. See verbs_provider.h.
//
// On an established connection nothing here allocates, but for slabs of slots added now and then, or locks.

#include <arpa/inet.h>

#include <array>
#include <cassert>
#include <cstring>

#include "rdma/cycle_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// Completions taken from the device at once.
constexpr std::size_t kCompletionBatch = 16;

/// A busy poller reads the clock at every so many polls, so that newcomers are not starved.
constexpr std::uint32_t kBusyPollsPerClock = 256;

/// Polls in a row that leave the completion queue alone while rings deliver.
constexpr std::uint32_t kMostPollsWithoutCompletions = 8;

// Work request ids. Receives: the slot. Sends: what retire() needs; a completion of an earlier queue pair is known by
// the link's number.
constexpr std::uint64_t kIsSend = std::uint64_t{1} << 63;

constexpr std::uint64_t send_id(PeerId peer, std::uint32_t link, std::uint64_t item) noexcept {
  return kIsSend | std::uint64_t{index_of(peer)} << 32 | (link & 0xFFu) << 24 | (item & 0xFF'FFFFu);
}

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

Status VerbsProvider::reserve(PeerId id, std::size_t length_bytes, std::span<std::byte>& slot) noexcept {
  Peer* const peer = find(id);
  if (peer == nullptr || !peer->connected) [[unlikely]]
    return Status::kUnreachable;
  if (peer->dying || peer->down) [[unlikely]]
    return Status::kPeerFailed;
  assert(length_bytes >= 1 && length_bytes <= capabilities_.max_slot_bytes);
  if (!peer->link.takes_item()) [[unlikely]]
    return no_room(*peer);
  if (peer->reserved_slot == SlotPool::kNone) {
    peer->reserved_slot = take_send_slot();
    if (peer->reserved_slot == SlotPool::kNone) [[unlikely]]
      return no_room(*peer);
  }
  slot = {rail_->send_slots().address(peer->reserved_slot) + sizeof(SlotHeader), length_bytes};
  return Status::kOk;
}

std::uint32_t VerbsProvider::take_send_slot() noexcept {
  SlotPool& pool = rail_->send_slots();
  const std::uint32_t slot = pool.take();
  if (slot != SlotPool::kNone || pool.count() == pool.most()) [[likely]]
    return slot;
  try {
    static_cast<void>(pool.grow());  // Refused: what is there has to do.
  } catch (const std::exception&) {
  }
  return pool.take();
}

void VerbsProvider::commit(PeerId id, std::size_t length_bytes) noexcept {
  Peer* const peer = find(id);
  assert(peer != nullptr && peer->reserved_slot != SlotPool::kNone && length_bytes >= 1);
  const std::uint32_t slot = peer->reserved_slot;
  peer->reserved_slot = SlotPool::kNone;
  push_message(*peer, slot, SlotHeader::kMessage, length_bytes);
  ++figures_.messages_sent;
}

void VerbsProvider::push_message(Peer& peer, std::uint32_t slot, std::uint8_t kind,
                                 std::size_t payload_bytes) noexcept {
  SlotHeader header;
  header.kind = kind;
  std::memcpy(rail_->send_slots().address(slot), &header, sizeof header);
  peer.link.push({Item::Kind::kMessage, slot, static_cast<std::uint32_t>(sizeof header + payload_bytes), 0});
  peer.last_used = polls_;
  pump(peer);
}

Status VerbsProvider::write(PeerId id, const std::byte* source, std::size_t length_bytes,
                            const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                            WorkId work) noexcept {
  Peer* const peer = find(id);
  if (peer == nullptr || !peer->connected) return Status::kUnreachable;
  if (peer->dying || peer->down) return Status::kPeerFailed;
  if (peer->unfinished_write != kNoWrite || !peer->link.takes_item() || free_writes_.empty())
    return no_room(*peer);
  const std::uint32_t index = free_writes_.back();
  free_writes_.pop_back();
  const std::uint64_t parts = std::max<std::uint64_t>(1, (length_bytes + part_bytes_ - 1) / part_bytes_);
  writes_[index] = {.work = work,
                    .peer = peer,
                    .source = source,
                    .length_bytes = length_bytes,
                    .local_key = registrations_[region.local_key]->lkey,
                    .remote_key = static_cast<std::uint32_t>(destination.remote_key),
                    .remote_address = destination.address,
                    .immediate = immediate,
                    .parts = static_cast<std::uint32_t>(parts)};
  peer->unfinished_write = index;
  peer->last_used = polls_;
  push_parts(*peer);
  return Status::kOk;
}

/// Makes items of what is left of a write, as far as there is room.
void VerbsProvider::push_parts(Peer& peer) noexcept {
  while (peer.unfinished_write != kNoWrite && peer.link.takes_item()) {
    Write& write = writes_[peer.unfinished_write];
    const std::uint64_t offset = write.parts_pushed * part_bytes_;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(part_bytes_, write.length_bytes - offset));
    peer.link.push({Item::Kind::kWritePart, peer.unfinished_write, length, write.parts_pushed});
    if (++write.parts_pushed == write.parts) peer.unfinished_write = kNoWrite;
  }
  if (peer.unfinished_write != kNoWrite && peer.link.lacks_credit()) peer.starved = true;
  pump(peer);
}

/// Remembers that somebody waits for room, for arm() and poll().
Status VerbsProvider::no_room(Peer& peer) noexcept {
  if (peer.link.lacks_credit()) {
    peer.starved = true;
    if (peer.link.state == LinkState::kNone) want_link(peer);  // Parked: the next Connect brings credit.
  }
  if (!peer.blocked) {
    peer.blocked = true;
    blocked_.push_back(&peer);
  }
  return Status::kAgain;
}

bool VerbsProvider::has_room(const Peer& peer) const noexcept {
  return peer.link.takes_item() && peer.unfinished_write == kNoWrite &&
         (peer.reserved_slot != SlotPool::kNone || rail_->send_slots().may_take()) && !free_writes_.empty();
}

/// How many of those who found no room have it now; they are forgotten. Only on the way to sleep, and in it: else who
/// found no room would sleep after a poll that brought it.
std::size_t VerbsProvider::unblock() noexcept {
  std::size_t unblocked = 0;
  std::erase_if(blocked_, [&](Peer* peer) {
    const bool gone = peer->dying || peer->down;
    if (!gone && !has_room(*peer)) return false;
    peer->blocked = false;
    unblocked += !gone;
    return true;
  });
  return unblocked;
}

/// Gives the device what it may have.
void VerbsProvider::pump(Peer& peer) noexcept {
  Link& link = peer.link;
  if (link.state == LinkState::kNone && (!link.all_retired() || peer.unfinished_write != kNoWrite))
    want_link(peer);
  while (link.may_post()) {
    if (const int error = post(peer); error != 0) return lose_link(peer, std::strerror(error));
  }
}

/// The only place, but for flush_tail(), that rings the device's doorbell for a send. Returns 0 or an errno.
int VerbsProvider::post(Peer& peer) noexcept {
  Link& link = peer.link;
  const std::uint64_t number = link.posted();
  const Item& item = link.item(number);
  bool signaled = link.signal_is_due() || (peer.flush && number + 1 == link.next());
  ibv_sge piece{};
  ibv_send_wr request{};
  request.wr_id = send_id(peer.id, link.number, number);
  request.sg_list = &piece;
  request.num_sge = item.length_bytes > 0 ? 1 : 0;
  piece.length = item.length_bytes;
  if (item.kind == Item::Kind::kMessage) {
    SlotPool& pool = rail_->send_slots();
    std::byte* const slot = pool.address(item.index);
    SlotHeader header;
    std::memcpy(&header, slot, sizeof header);
    header.limit = static_cast<std::uint32_t>(link.grant());
    header.flags = peer.starved ? SlotHeader::kWantsCredit : 0;
    peer.starved = false;
    std::memcpy(slot, &header, sizeof header);
    request.opcode = IBV_WR_SEND;
    piece.addr = reinterpret_cast<std::uintptr_t>(slot);
    piece.lkey = pool.local_key(item.index);
    if (goes_by_ring(link, header, item.length_bytes)) {
      link.rings.send.write(number, piece, request);
      ++figures_.ring_messages_sent;
    }
    if (piece.length <= rail_->inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
    signaled |= pool.free_count() * 2 < pool.count();  // Slots come back with completions only.
  } else {
    const Write& write = writes_[item.index];
    const std::uint64_t offset = item.part * part_bytes_;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(static_cast<std::uint32_t>(write.immediate));
    request.wr.rdma.remote_addr = write.remote_address + offset;
    request.wr.rdma.rkey = write.remote_key;
    piece.addr = reinterpret_cast<std::uintptr_t>(write.source) + offset;
    piece.lkey = write.local_key;
    signaled |= item.part + 1 == write.parts;
    ++figures_.writes_posted;
  }
  if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(link.queue_pair.get(), &request, &refused);
  if (error == 0) link.was_posted(signaled);
  return error;
}

/// Tells the peer what it may send, in a message of its own, if it may be sent now.
bool VerbsProvider::send_credit(Peer& peer) noexcept {
  if (peer.link.state != LinkState::kUp || !peer.link.takes_credit_message()) return false;
  const std::uint32_t slot = take_send_slot();
  if (slot == SlotPool::kNone) return false;
  ++figures_.credit_messages;
  push_message(peer, slot, SlotHeader::kCreditOnly, 0);
  return true;
}

/// Sees to it that all that was posted will be retired: the last completion may not have been asked for. Then it is
/// asked for with a write of nothing, which takes neither slot nor credit: both may be lacking, and may come back only
/// by this.
void VerbsProvider::flush_tail(Peer& peer) noexcept {
  Link& link = peer.link;
  peer.flush = true;
  pump(peer);
  if (link.state != LinkState::kUp || link.posted() != link.next() || link.tail_is_signaled()) return;
  ibv_send_wr request{};  // Without bytes, address and key are not looked at (IBTA C9-88).
  request.wr_id = send_id(peer.id, link.number, link.posted() - 1);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(link.queue_pair.get(), &request, &refused); error != 0)
    return lose_link(peer, std::strerror(error));
  link.tail_was_signaled();
}

/// Takes at most about `budget` completions. True: there are no more.
bool VerbsProvider::poll_completions(std::size_t budget) noexcept {
  std::array<ibv_wc, kCompletionBatch> completions;
  for (std::size_t taken = 0; taken < budget;) {
    const std::size_t wanted = std::min(kCompletionBatch, budget - taken);
    const int count = ibv_poll_cq(rail_->completions(), static_cast<int>(wanted), completions.data());
    if (count < 0) [[unlikely]] {
      on_device_lost("its completion queue failed");
      return true;
    }
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      if ((completion.wr_id & kIsSend) != 0)
        on_send_completion(completion);
      else
        on_receive(completion);
    }
    taken += static_cast<std::size_t>(count);
    if (static_cast<std::size_t>(count) < wanted) return true;
  }
  return false;
}

void VerbsProvider::on_receive(const ibv_wc& completion) noexcept {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  const auto found = by_queue_pair_.find(completion.qp_num);
  // Of a queue pair that was given up: the peer sends it again over the next one.
  if (found == by_queue_pair_.end()) return rail_->recycle(slot);
  Peer& peer = *found->second;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    rail_->recycle(slot);
    return lose_link(peer, ibv_wc_status_str(completion.status));
  }
  if (peer.link.rings.receive != nullptr) drain_ring(peer, kRingEntries);  // RULE DRAIN FIRST.
  const bool refused = peer.dying && peer.reason == Status::kProtocol;
  if (!refused && !deliver(peer, completion, rail_->receive_slots().address(slot)))
    start_dying(peer, Status::kProtocol);
  rail_->recycle(slot);
  note_credit_due(peer);
}

void VerbsProvider::note_credit_due(Peer& peer) noexcept {
  if (peer.credit_due || !peer.link.credit_is_due()) return;
  peer.credit_due = true;
  credit_due_.push_back(&peer);
}

/// An item arrived. False: the peer had no credit for it.
bool VerbsProvider::take_item(Peer& peer) noexcept {
  if (!peer.link.take()) return false;
  peer.last_used = polls_;
  peer.lost_since_ns = 0;
  return true;
}

void VerbsProvider::take_header(Peer& peer, const SlotHeader& header) noexcept {
  peer.link.raise_limit(header.limit);
  if (peer.unfinished_write != kNoWrite) push_parts(peer);
  if ((header.flags & SlotHeader::kWantsCredit) != 0) widen(peer.link);
}

/// Hands an item to the sink. False: it does not follow the protocol.
bool VerbsProvider::deliver(Peer& peer, const ibv_wc& completion, const std::byte* slot) noexcept {
  if (!take_item(peer)) return false;
  const std::size_t length = completion.byte_len;
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    ++delivered_;
    sink_->on_write_arrived(peer.id, Immediate{ntohl(completion.imm_data)}, length);
    return true;
  }
  if (completion.opcode != IBV_WC_RECV || length < sizeof(SlotHeader) || length > rail_->config().slot_bytes)
    return false;
  SlotHeader header;
  std::memcpy(&header, slot, sizeof header);
  const std::span<const std::byte> payload{slot + sizeof header, length - sizeof header};
  take_header(peer, header);
  if (header.kind == SlotHeader::kCreditOnly) {
    peer.link.was_credit_only();
    return payload.empty();
  }
  if (header.kind != SlotHeader::kMessage) return on_ring_notice(peer, header.kind, payload);
  if (payload.empty()) return false;
  if (ring_entry_bytes(length) <= kRingEntryBytes) note_heat(peer);
  ++delivered_;
  sink_->on_message(peer.id, payload);
  return true;
}

void VerbsProvider::on_send_completion(const ibv_wc& completion) noexcept {
  Peer* const peer = find(PeerId{static_cast<std::uint32_t>(completion.wr_id >> 32 & 0x7FFF'FFFF)});
  const auto link_bits = static_cast<std::uint32_t>(completion.wr_id >> 24 & 0xFF);
  if (peer == nullptr || peer->link.queue_pair == nullptr || (peer->link.number & 0xFF) != link_bits) return;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    if (peer->link.state == LinkState::kDraining) return;
    const char* const why = ibv_wc_status_str(completion.status);
    lose_link(*peer, why);
    if (is_final(completion.status)) {
      log("verbs: peer %u refused what was sent (%s)", index_of(peer->id), why);
      start_dying(*peer, Status::kPeerFailed);
    }
    return;
  }
  const std::uint64_t number =
      peer->link.number_from(static_cast<std::uint32_t>(completion.wr_id & 0xFF'FFFF));
  if (number < peer->link.posted()) retire(*peer, number + 1);
}

/// The peer's device has all items below `up_to`.
void VerbsProvider::retire(Peer& peer, std::uint64_t up_to) noexcept {
  while (peer.link.retired() < up_to) {
    const Item item = peer.link.retire_one();
    if (item.kind == Item::Kind::kMessage) {
      rail_->send_slots().give_back(item.index);
      continue;
    }
    Write& write = writes_[item.index];
    if (++write.parts_retired < write.parts) continue;
    const WorkId work = write.work;
    free_writes_.push_back(item.index);
    ++delivered_;
    sink_->on_write_done(peer.id, work, Status::kOk);
  }
  peer.lost_since_ns = 0;
  if (peer.unfinished_write != kNoWrite) push_parts(peer);
}

void VerbsProvider::send_due_credit() noexcept {
  std::erase_if(credit_due_, [&](Peer* peer) {
    const bool over = peer->dying || peer->down || !peer->link.credit_is_due() || send_credit(*peer);
    if (over) peer->credit_due = false;
    return over;
  });
}

std::size_t VerbsProvider::poll(Sink& sink, std::size_t budget) noexcept {
  sink_ = &sink;
  delivered_ = 0;
  ++polls_;
  if (!open_rings_.empty()) poll_rings(budget);
  bool emptied = false;
  // What rings delivered need not wait for the completion queue; that is looked at all the same now and then.
  if (delivered_ == 0 || armed_ || ++polls_without_completions_ >= kMostPollsWithoutCompletions) {
    polls_without_completions_ = 0;
    emptied = poll_completions(budget);
  }
  if (armed_) [[unlikely]] {
    // An event that is read here must not hide what comes after it.
    if (keep_house()) {
      request_notification();
      emptied = poll_completions(budget) && emptied;
    }
  } else if (delivered_ == 0 || ++busy_polls_ >= kBusyPollsPerClock) {
    busy_polls_ = 0;
    const std::uint64_t now = CycleClock::now();
    if (now - last_housekeeping_ >= CycleClock::kAbout20Microseconds) [[unlikely]] {
      last_housekeeping_ = now;
      static_cast<void>(keep_house());
    }
  }
  if (emptied) emptied_poll_ = polls_;
  if (emptied && looks_matter_) last_look_ = CycleClock::now();
  if (emptied && (!draining_.empty() || !dying_.empty())) [[unlikely]]
    drain_stopped_rings();
  if (!draining_.empty() && emptied) [[unlikely]]
    finish_draining();
  if (!dying_.empty() && emptied) [[unlikely]]
    deliver_deaths();
  rail_->repost();
  if (rail_->broken() && !device_lost_) [[unlikely]]
    on_device_lost("it takes no more receives");
  if (!credit_due_.empty()) send_due_credit();
  if (ring_work_) [[unlikely]]
    tend_rings();
  if (armed_) [[unlikely]] {
    delivered_ += unblock();
    if (delivered_ == 0) close_rings_for_sleep();
    set_alarm();
  }
  sink_ = nullptr;
  return delivered_;
}

bool VerbsProvider::request_notification() noexcept {
  return ibv_req_notify_cq(rail_->completions(), 0) == 0;
}

bool VerbsProvider::arm() noexcept {
  armed_ = true;
  if (!request_notification() || !dying_.empty() || !draining_.empty()) return false;
  set_alarm();
  return unblock() == 0;
}

void VerbsProvider::disarm() noexcept {
  if (!armed_) return;
  armed_ = false;
  last_housekeeping_ = 0;  // What woke us may be waiting in a socket.
}

}  // namespace ch3_offload
