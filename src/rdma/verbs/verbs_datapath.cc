// Moving data: reserve, commit, write, poll, arm. What completes is verbs_completions.cc's. See
// verbs_provider.h.
//
// On an established connection nothing here allocates, but for slabs of slots added now and then, or locks.

#include <arpa/inet.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "rdma/cycle_clock.h"
#include "rdma/verbs/send_id.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// A busy poller reads the clock at every so many polls, so that newcomers are not starved.
constexpr std::uint32_t kBusyPollsPerClock = 256;

/// Housekeeping, a system call most of the time, takes one part in so many of a poller's time: it comes less
/// often where system calls are slow.
constexpr std::uint64_t kHousekeepingShare = 32;
constexpr std::uint64_t kShortestInterval = CycleClock::kAbout20Microseconds;
constexpr std::uint64_t kLongestInterval = 16 * kShortestInterval;

/// Send slots that messages leave to notices.
constexpr std::uint32_t kCreditSlots = 16;

/// Writes of at least this go over both lanes: of shorter ones the halves take hardly less time than the
/// whole.
constexpr std::size_t kStripedBytes = std::size_t{64} << 10;
/// Parts begin at multiples of it.
constexpr std::uint64_t kStripeGrainBytes = 4096;

}  // namespace

Status VerbsProvider::reserve(Endpoint& endpoint, std::size_t length_bytes,
                              std::span<std::byte>& slot) noexcept {
  VerbsEndpoint& peer = of(endpoint);
  if (peer.dying || peer.down) [[unlikely]]
    return Status::kPeerFailed;
  assert(length_bytes >= 1 && length_bytes <= max_slot_bytes(endpoint));
  if (!peer.main.link.takes_item()) [[unlikely]]
    return no_room(peer);
  if (peer.main.link.state != LinkState::kUp) [[unlikely]]
    return reserve_waiting(peer, length_bytes, slot);
  if (peer.reserved_slot == SlotPool::kNone) {
    if (peer.reserved_message != WaitingMessages::kNone) [[unlikely]]
      give_back_reserved(peer);  // From before the link was up.
    peer.reserved_slot = take_send_slot(SlotUse::kMessage);
    if (peer.reserved_slot == SlotPool::kNone) [[unlikely]]
      return no_room(peer);
  }
  slot = {send_slots_->address(peer.reserved_slot) + sizeof(SlotHeader), length_bytes};
  return Status::kOk;
}

/// For a link that is not up (RULE ONLY LIVE LINKS HOLD SLOTS).
Status VerbsProvider::reserve_waiting(VerbsEndpoint& peer, std::size_t length_bytes,
                                      std::span<std::byte>& slot) noexcept {
  give_back_reserved(peer);
  peer.reserved_message = waiting_messages_.take(sizeof(SlotHeader) + length_bytes);
  if (peer.reserved_message == WaitingMessages::kNone) return no_room(peer);
  slot = {waiting_messages_.address(peer.reserved_message) + sizeof(SlotHeader), length_bytes};
  return Status::kOk;
}

void VerbsProvider::give_back_reserved(VerbsEndpoint& peer) noexcept {
  if (peer.reserved_slot != SlotPool::kNone)
    send_slots_->give_back(std::exchange(peer.reserved_slot, SlotPool::kNone));
  if (peer.reserved_message != WaitingMessages::kNone)
    waiting_messages_.give_back(std::exchange(peer.reserved_message, WaitingMessages::kNone));
}

std::uint32_t VerbsProvider::take_send_slot(SlotUse use) noexcept {
  SlotPool& pool = *send_slots_;
  if (use == SlotUse::kMessage && !may_take_send_slot()) [[unlikely]]
    return SlotPool::kNone;
  const std::uint32_t slot = pool.take();
  if (slot != SlotPool::kNone || pool.count() == pool.most()) [[likely]]
    return slot;
  try {
    if (pool.grow()) pool.stop_growing();  // Refused: what is there has to do.
  } catch (const std::exception&) {
    pool.stop_growing();
  }
  return use == SlotUse::kCredit || may_take_send_slot() ? pool.take() : SlotPool::kNone;
}

/// Whether a message may have a slot, or the pool may grow (RULE CREDIT GETS THROUGH).
bool VerbsProvider::may_take_send_slot() const noexcept {
  return send_slots_->may_take(std::min(kCreditSlots, send_slots_->count() / 4));
}

void VerbsProvider::commit(Endpoint& endpoint, std::size_t length_bytes) noexcept {
  VerbsEndpoint& peer = of(endpoint);
  assert(length_bytes >= 1);
  if (peer.reserved_message != WaitingMessages::kNone) [[unlikely]] {
    push_message(peer.main, Item::Kind::kWaitingMessage,
                 std::exchange(peer.reserved_message, WaitingMessages::kNone), SlotHeader::kMessage,
                 length_bytes);
  } else {
    assert(peer.reserved_slot != SlotPool::kNone);
    push_message(peer.main, Item::Kind::kMessage, std::exchange(peer.reserved_slot, SlotPool::kNone),
                 SlotHeader::kMessage, length_bytes);
  }
  ++figures_.messages_sent;
}

void VerbsProvider::push_message(VerbsLane& lane, Item::Kind item_kind, std::uint32_t index,
                                 std::uint8_t kind, std::size_t payload_bytes) noexcept {
  SlotHeader header;
  header.kind = kind;
  const Item item{item_kind, index, static_cast<std::uint32_t>(sizeof header + payload_bytes), 0};
  std::memcpy(message_at(item), &header, sizeof header);
  lane.link.push(item);
  lane.last_used = polls_;
  pump(lane);
}

/// Sends a message without payload. Returns false if there is no slot for it.
/// REQUIRES: the link is up and takes it.
bool VerbsProvider::push_notice(VerbsLane& lane, std::uint8_t kind) noexcept {
  const std::uint32_t slot = take_send_slot(SlotUse::kCredit);
  if (slot == SlotPool::kNone) return false;
  push_message(lane, Item::Kind::kMessage, slot, kind, 0);
  return true;
}

/// Where a message lies, with its header. REQUIRES: it is no part of a write.
std::byte* VerbsProvider::message_at(const Item& item) const noexcept {
  return item.kind == Item::Kind::kMessage ? send_slots_->address(item.index)
                                           : waiting_messages_.address(item.index);
}

void VerbsProvider::give_back_message(const Item& item) noexcept {
  if (item.kind == Item::Kind::kMessage)
    send_slots_->give_back(item.index);
  else
    waiting_messages_.give_back(item.index);
}

/// Returns false if no slot is free: pump_lacking() tries again.
bool VerbsProvider::move_to_slot(VerbsLane& lane, Item& item) noexcept {
  const std::uint32_t slot = take_send_slot(SlotUse::kMessage);
  if (slot == SlotPool::kNone) {
    if (!std::exchange(lane.lacks_slot, true)) lacking_.push_back(&lane);
    return false;
  }
  std::memcpy(send_slots_->address(slot), waiting_messages_.address(item.index), item.length_bytes);
  waiting_messages_.give_back(item.index);
  item.kind = Item::Kind::kMessage;
  item.index = slot;
  return true;
}

/// The messages of a link that is buried. Without memory, they keep their slots.
void VerbsProvider::move_from_slots(Link& link) noexcept {
  for (std::uint64_t number = link.retired(); number < link.next(); ++number) {
    Item& item = link.item(number);
    if (item.kind != Item::Kind::kMessage) continue;
    const std::uint32_t index = waiting_messages_.take(item.length_bytes);
    if (index == WaitingMessages::kNone) return;
    std::memcpy(waiting_messages_.address(index), send_slots_->address(item.index), item.length_bytes);
    send_slots_->give_back(item.index);
    item.kind = Item::Kind::kWaitingMessage;
    item.index = index;
  }
}

void VerbsProvider::pump_lacking() noexcept {
  while (!lacking_.empty() && may_take_send_slot()) {
    VerbsLane& lane = *lacking_.back();
    lacking_.pop_back();
    lane.lacks_slot = false;
    pump(lane);
  }
}

Status VerbsProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                            const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                            WorkId work) noexcept {
  VerbsEndpoint& peer = of(endpoint);
  if (peer.dying || peer.down) return Status::kPeerFailed;
  if (peer.unfinished_write != kNoWrite || !peer.main.link.takes_item() || free_writes_.empty())
    return no_room(peer);
  const std::uint32_t index = free_writes_.back();
  free_writes_.pop_back();
  std::uint64_t part_bytes = part_bytes_;
  bool striped = false;
  if (length_bytes >= kStripedBytes && peer.pair_count > 1) {
    try {
      VerbsLane& second = second_lane(peer);
      if (second.link.state == LinkState::kNone) {
        second.wanted = true;
        want_link(second);
      }
      striped = second.link.state == LinkState::kUp;
    } catch (const std::bad_alloc&) {  // The main lane takes all of it.
    }
    const std::uint64_t half =
        ((length_bytes + 1) / 2 + kStripeGrainBytes - 1) / kStripeGrainBytes * kStripeGrainBytes;
    if (striped) part_bytes = std::min(part_bytes, half);
  }
  const std::uint64_t parts = std::max<std::uint64_t>(1, (length_bytes + part_bytes - 1) / part_bytes);
  writes_[index] = {.work = work,
                    .peer = &peer,
                    .source = source,
                    .length_bytes = length_bytes,
                    .region = region.local_key,
                    .destination = destination,
                    .part_bytes = part_bytes,
                    .immediate = immediate,
                    .striped = striped,
                    .parts = static_cast<std::uint32_t>(parts)};
  peer.unfinished_write = index;
  push_parts(peer);
  return Status::kOk;
}

/// Who takes the next part, by turns. The second lane only helps: where it cannot now, the main one takes
/// all. nullptr: nobody.
VerbsLane* VerbsProvider::lane_for_part(VerbsEndpoint& peer, const Write& write) noexcept {
  VerbsLane* const second = peer.second.get();
  const bool second_can = write.striped && second->link.state == LinkState::kUp && second->link.takes_item();
  const bool main_can = peer.main.link.takes_item();
  if (second_can && (write.parts_pushed % 2 == 1 || !main_can)) return second;
  return main_can ? &peer.main : nullptr;
}

/// Makes items of what is left of a write, as far as there is room.
void VerbsProvider::push_parts(VerbsEndpoint& peer) noexcept {
  while (peer.unfinished_write != kNoWrite) {
    Write& write = writes_[peer.unfinished_write];
    VerbsLane* const lane = lane_for_part(peer, write);
    if (lane == nullptr) break;
    const std::uint64_t offset = write.parts_pushed * write.part_bytes;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(write.part_bytes, write.length_bytes - offset));
    lane->link.push({Item::Kind::kWritePart, peer.unfinished_write, length, write.parts_pushed});
    lane->last_used = polls_;
    if (++write.parts_pushed == write.parts) peer.unfinished_write = kNoWrite;
  }
  if (peer.unfinished_write != kNoWrite && peer.main.link.lacks_credit()) peer.main.starved = true;
  for_each_lane(peer, [&](VerbsLane& lane) { pump(lane); });
}

/// Remembers that somebody waits for room, for arm() and poll().
Status VerbsProvider::no_room(VerbsEndpoint& peer) noexcept {
  VerbsLane& lane = peer.main;
  if (lane.link.lacks_credit()) {
    lane.starved = true;
    if (lane.link.state == LinkState::kNone) want_link(lane);  // Parked: the next offer brings credit.
  }
  if (!peer.blocked) {
    peer.blocked = true;
    blocked_.push_back(&peer);
  }
  return Status::kAgain;
}

bool VerbsProvider::has_room(const VerbsEndpoint& peer) const noexcept {
  return peer.main.link.takes_item() && peer.unfinished_write == kNoWrite &&
         (peer.main.link.state != LinkState::kUp || peer.reserved_slot != SlotPool::kNone ||
          may_take_send_slot()) &&
         !free_writes_.empty();
}

/// How many of those who found no room have it now; they are forgotten. Only on the way to sleep, and in it:
/// else who found no room would sleep after a poll that brought it.
std::size_t VerbsProvider::unblock() noexcept {
  std::size_t unblocked = 0;
  std::erase_if(blocked_, [&](VerbsEndpoint* peer) {
    const bool gone = peer->dying || peer->down;
    if (!gone && !has_room(*peer)) return false;
    peer->blocked = false;
    unblocked += !gone;
    return true;
  });
  return unblocked;
}

/// Gives the device what it may have.
void VerbsProvider::pump(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const bool for_a_write = lane.index == 0 && lane.peer->unfinished_write != kNoWrite;
  if (link.state == LinkState::kNone && (!link.all_retired() || for_a_write)) want_link(lane);
  while (link.may_post()) {
    Item& item = link.item(link.posted());
    if (item.kind == Item::Kind::kWaitingMessage && !move_to_slot(lane, item)) [[unlikely]]
      return;
    if (const int error = post(lane); error != 0) return lose_link(lane, std::strerror(error));
  }
}

/// The only place, but for post_empty_write(), that rings the device's doorbell for a send. Returns 0 or an
/// errno.
int VerbsProvider::post(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const Rail& rail = *rails_[lane.rail].rail;
  const std::uint64_t number = link.posted();
  const Item& item = link.item(number);
  bool signaled = link.signal_is_due() || (lane.flush && number + 1 == link.next());
  ibv_sge piece{};
  ibv_send_wr request{};
  request.wr_id = SendId(lane.peer->id, lane.index, link.number, number).raw();
  request.sg_list = &piece;
  request.num_sge = item.length_bytes > 0 ? 1 : 0;
  piece.length = item.length_bytes;
  if (item.kind == Item::Kind::kMessage) {
    const SlotPool& pool = *send_slots_;
    std::byte* const slot = pool.address(item.index);
    SlotHeader header;
    std::memcpy(&header, slot, sizeof header);
    header.limit = static_cast<std::uint32_t>(link.grant());
    header.flags = lane.starved ? SlotHeader::kWantsCredit : 0;
    lane.starved = false;
    std::memcpy(slot, &header, sizeof header);
    request.opcode = IBV_WR_SEND;
    piece.addr = reinterpret_cast<std::uintptr_t>(slot);
    piece.lkey = pool.local_key(item.index, lane.rail);
    if (piece.length <= rail.inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
    signaled |= pool.free_count() * 2 < pool.count();  // Slots come back with completions only.
  } else {
    const Write& write = writes_[item.index];
    const std::uint64_t offset = item.part * write.part_bytes;
    const std::uint8_t their_rail =
        lane.peer->pairs[0].mine == lane.rail ? lane.peer->pairs[0].theirs : lane.peer->pairs[1].theirs;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(static_cast<std::uint32_t>(write.immediate));
    request.wr.rdma.remote_addr = write.destination.address + offset;
    request.wr.rdma.rkey = static_cast<std::uint32_t>(
        static_cast<std::uint64_t>(write.destination.remote_key) >> (32 * their_rail));
    piece.addr = reinterpret_cast<std::uintptr_t>(write.source) + offset;
    piece.lkey = registrations_[write.region][lane.rail]->lkey;
    signaled |= write.striped || item.part + 1 == write.parts;  // The last one of each lane.
    ++figures_.writes_posted;
  }
  if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(link.queue_pair.get(), &request, &refused);
  if (error == 0) link.was_posted(signaled);
  return error;
}

/// Tells the peer what it may send, in a message of its own, if it may be sent now.
bool VerbsProvider::send_credit(VerbsLane& lane) noexcept {
  if (lane.link.state != LinkState::kUp || !lane.link.takes_credit_message()) return false;
  if (!push_notice(lane, SlotHeader::kCreditOnly)) return false;
  ++figures_.credit_messages;
  return true;
}

/// Sees to it that all that was posted will be retired: the last completion may not have been asked for. Then
/// it is asked for with a write of nothing, which takes neither slot nor credit: both may be lacking, and may
/// come back only by this.
void VerbsProvider::flush_tail(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  lane.flush = true;
  pump(lane);
  if (link.state != LinkState::kUp || link.posted() != link.next() || link.tail_is_signaled()) return;
  if (post_empty_write(lane)) link.tail_was_signaled();
}

/// Its completion retires all that was posted before it. Returns false if the link is lost.
bool VerbsProvider::post_empty_write(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  ibv_send_wr request{};  // Without bytes, address and key are not looked at (IBTA C9-88).
  request.wr_id = SendId(lane.peer->id, lane.index, link.number, link.posted() - 1).raw();
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(link.queue_pair.get(), &request, &refused);
  if (error != 0) lose_link(lane, std::strerror(error));
  return error == 0;
}

/// Finds out whether the peer lives, by a write of nothing: without an error its device is there.
/// REQUIRES: the link is up, and all is retired.
void VerbsProvider::probe(VerbsLane& lane) noexcept {
  ++figures_.probes;
  lane.probing = post_empty_write(lane);
}

void VerbsProvider::send_due_credit() noexcept {
  std::erase_if(credit_due_, [&](VerbsLane* lane) {
    const VerbsEndpoint& peer = *lane->peer;
    const bool over = peer.dying || peer.down || !lane->link.credit_is_due() || send_credit(*lane);
    if (over) lane->credit_due = false;
    return over;
  });
}

std::size_t VerbsProvider::poll(Sink& sink, std::size_t budget) noexcept {
  sink_ = &sink;
  delivered_ = 0;
  ++polls_;
  if (held_) [[unlikely]]
    release_held();
  bool emptied = poll_all_completions(budget);
  if (armed_) [[unlikely]] {
    // An event that is read here must not hide what comes after it.
    if (keep_house()) {
      request_notification();
      emptied = poll_all_completions(budget) && emptied;
    }
  } else if (delivered_ == 0 || ++busy_polls_ >= kBusyPollsPerClock) {
    busy_polls_ = 0;
    const std::uint64_t now = CycleClock::now();
    if (now - last_housekeeping_ >= housekeeping_interval_) [[unlikely]] {
      last_housekeeping_ = now;
      static_cast<void>(keep_house());
      housekeeping_interval_ =
          std::clamp((CycleClock::now() - now) * kHousekeepingShare, kShortestInterval, kLongestInterval);
    }
  }
  emptied = emptied && !held_;
  if (emptied) emptied_poll_ = polls_;
  if (!draining_.empty() && emptied) [[unlikely]]
    finish_draining();
  if (!dying_.empty() && emptied) [[unlikely]]
    deliver_deaths();
  for (RailUse& use : rails_) {
    use.rail->repost();
    if (use.rail->broken() && !use.lost) [[unlikely]]
      on_device_lost(use, "it takes no more receives");
  }
  if (!credit_due_.empty()) send_due_credit();
  if (!lacking_.empty()) [[unlikely]]
    pump_lacking();
  if (armed_) [[unlikely]] {
    delivered_ += unblock();
    // What the budget left in the completion queue, or held back, raises no event.
    if (!emptied && delivered_ == 0) delivered_ = 1;
    set_alarm();
  }
  sink_ = nullptr;
  return delivered_;
}

bool VerbsProvider::request_notification() noexcept {
  return std::ranges::all_of(rails_, [](const RailUse& use) {
    return use.lost || ibv_req_notify_cq(use.rail->completions(), 0) == 0;
  });
}

bool VerbsProvider::arm() noexcept {
  armed_ = true;
  if (std::ranges::any_of(rails_, &RailUse::holds_completions)) return false;
  if (!request_notification() || !dying_.empty()) return false;
  set_alarm();
  return unblock() == 0;
}

void VerbsProvider::disarm() noexcept {
  if (!armed_) return;
  armed_ = false;
  last_housekeeping_ = 0;  // What woke us may be waiting in a socket.
}

}  // namespace ch3_offload
