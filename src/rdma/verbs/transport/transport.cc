#include "rdma/verbs/transport/transport.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace ch3_offload {
namespace {

constexpr std::uint32_t kMostWrites = 256;

/// A part of a write; longer ones gain nothing, and shorter ones would cost receives.
constexpr std::uint64_t kLongestPartBytes = std::uint64_t{1} << 30;
/// Parts begin at multiples of it.
constexpr std::uint64_t kStripeGrainBytes = 4096;

}  // namespace

Transport::Transport(std::span<const std::unique_ptr<Rail>> rails, const Registrations& registrations,
                     SlotPool slots, Log log, Client& client)
    : rails_(rails),
      registrations_(registrations),
      log_(log),
      client_(client),
      buffers_(std::move(slots)),
      part_bytes_(kLongestPartBytes),
      writes_(kMostWrites) {
  free_writes_.reserve(kMostWrites);
  for (std::uint32_t i = kMostWrites; i > 0; --i) free_writes_.push_back(i - 1);
  for (const std::unique_ptr<Rail>& rail : rails)
    part_bytes_ = std::min<std::uint64_t>(part_bytes_, std::max(1u, rail->port().max_message_bytes));
}

void Transport::make_room(std::size_t lanes) {
  credit_due_.make_room(lanes);
  lacking_.make_room(lanes);
  blocked_.make_room(lanes);
}

Status Transport::reserve(VerbsEndpoint& peer, std::size_t length_bytes,
                          std::span<std::byte>& slot) noexcept {
  if (peer.is_over()) [[unlikely]]
    return Status::kPeerFailed;
  if (!peer.main.link.takes_item()) [[unlikely]]
    return no_room(peer);
  const bool is_up = peer.main.link.state == LinkState::kUp;
  Item& place = peer.reserved;
  if (place.index == kNone || !is_up || place.kind != Item::Kind::kMessage) [[likely]] {
    give_back_reserved(peer);
    if (is_up) [[likely]]
      place = {Item::Kind::kMessage, buffers_.take_slot(MessageBuffers::SlotUse::kMessage)};
    else
      place = {Item::Kind::kWaitingMessage, buffers_.take_memory(sizeof(SlotHeader) + length_bytes)};
    if (place.index == kNone) [[unlikely]]
      return no_room(peer);
  }
  slot = {buffers_.address(place) + sizeof(SlotHeader), length_bytes};
  return Status::kOk;
}

void Transport::give_back_reserved(VerbsEndpoint& peer) noexcept {
  if (peer.reserved.index == kNone) return;
  buffers_.give_back(peer.reserved);
  peer.reserved.index = kNone;
}

void Transport::commit(VerbsEndpoint& peer, std::size_t length_bytes) noexcept {
  assert(length_bytes >= 1 && peer.reserved.index != kNone);
  const Item place = peer.reserved;
  peer.reserved.index = kNone;
  push_message(peer.main, place, SlotHeader::kMessage, length_bytes);
  ++figures_.messages_sent;
}

void Transport::push_message(VerbsLane& lane, Item item, std::uint8_t kind,
                             std::size_t payload_bytes) noexcept {
  SlotHeader header;
  header.kind = kind;
  item.length_bytes = static_cast<std::uint32_t>(sizeof header + payload_bytes);
  std::memcpy(buffers_.address(item), &header, sizeof header);
  lane.link.push(item);
  lane.last_used = polls_;
  pump(lane);
}

bool Transport::push_notice(VerbsLane& lane, std::uint8_t kind) noexcept {
  const std::uint32_t slot = buffers_.take_slot(MessageBuffers::SlotUse::kCredit);
  if (slot == kNone) return false;
  push_message(lane, {Item::Kind::kMessage, slot}, kind, 0);
  return true;
}

Status Transport::may_write(VerbsEndpoint& peer) noexcept {
  if (peer.is_over()) return Status::kPeerFailed;
  const bool has_room =
      peer.unfinished_write == kNone && peer.main.link.takes_item() && !free_writes_.empty();
  return has_room ? Status::kOk : no_room(peer);
}

void Transport::write(VerbsEndpoint& peer, const std::byte* source, std::size_t length_bytes,
                      const MemoryRegion& region, RemoteMemory destination, Immediate immediate, WorkId work,
                      bool striped) noexcept {
  std::uint64_t part_bytes = part_bytes_;
  if (striped) {
    const std::uint64_t half = (length_bytes + 1) / 2 + kStripeGrainBytes - 1;
    part_bytes = std::min(part_bytes, half / kStripeGrainBytes * kStripeGrainBytes);
  }
  const std::uint64_t parts = std::max<std::uint64_t>(1, (length_bytes + part_bytes - 1) / part_bytes);
  peer.unfinished_write = free_writes_.back();
  free_writes_.pop_back();
  writes_[peer.unfinished_write] = {.work = work,
                                    .peer = &peer,
                                    .source = source,
                                    .length_bytes = length_bytes,
                                    .region = region.local_key,
                                    .destination = destination,
                                    .part_bytes = part_bytes,
                                    .immediate = immediate,
                                    .striped = striped,
                                    .parts = static_cast<std::uint32_t>(parts)};
  push_parts(peer);
}

/// Who takes the next part, by turns. The second lane only helps: where it cannot now, the main one takes
/// all. nullptr: nobody.
VerbsLane* Transport::lane_for_part(VerbsEndpoint& peer, const Write& write) const noexcept {
  VerbsLane* const second = peer.second.get();
  const bool second_can = write.striped && second->link.state == LinkState::kUp && second->link.takes_item();
  const bool main_can = peer.main.link.takes_item();
  if (second_can && (write.parts_pushed % 2 == 1 || !main_can)) return second;
  return main_can ? &peer.main : nullptr;
}

void Transport::push_parts(VerbsEndpoint& peer) noexcept {
  while (peer.unfinished_write != kNone) {
    Write& write = writes_[peer.unfinished_write];
    VerbsLane* const lane = lane_for_part(peer, write);
    if (lane == nullptr) break;
    const std::uint64_t offset = write.parts_pushed * write.part_bytes;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(write.part_bytes, write.length_bytes - offset));
    lane->link.push({Item::Kind::kWritePart, peer.unfinished_write, length, write.parts_pushed});
    lane->last_used = polls_;
    if (++write.parts_pushed == write.parts) peer.unfinished_write = kNone;
  }
  if (peer.unfinished_write != kNone && peer.main.link.lacks_credit()) peer.main.starved = true;
  for_each_lane(peer, [&](VerbsLane& lane) { pump(lane); });
}

/// Remembers that somebody waits for room, for unblock().
Status Transport::no_room(VerbsEndpoint& peer) noexcept {
  VerbsLane& lane = peer.main;
  if (lane.link.lacks_credit()) {
    lane.starved = true;
    if (lane.link.state == LinkState::kNone)
      client_.want_link(lane);  // Parked: the next offer brings credit.
  }
  blocked_.add(peer);
  return Status::kAgain;
}

bool Transport::has_room(const VerbsEndpoint& peer) const noexcept {
  return peer.main.link.takes_item() && peer.unfinished_write == kNone &&
         (peer.main.link.state != LinkState::kUp || peer.reserved.index != kNone ||
          buffers_.may_take_slot()) &&
         !free_writes_.empty();
}

std::size_t Transport::unblock() noexcept {
  std::size_t unblocked = 0;
  blocked_.drain([&](VerbsEndpoint& peer) {
    if (peer.is_over()) return;
    if (has_room(peer))
      ++unblocked;
    else
      blocked_.add(peer);
  });
  return unblocked;
}

void Transport::start(VerbsLane& lane) noexcept {
  lane.probing = false;
  lane.flush = !lane.link.all_retired();  // The sooner it is known that this link works.
  push_parts(*lane.peer);
}

std::uint64_t Transport::resume(VerbsLane& lane, std::uint64_t received, std::uint64_t limit) noexcept {
  Link& link = lane.link;
  const bool had_failed = lane.peer->failed;
  retire(lane, received);
  lane.peer->failed = had_failed;  // That was no news from this link.
  const std::uint64_t again = link.posted() - link.retired();
  link.resume();
  link.raise_limit(limit);
  // A kPark that a link lost says nothing on the next one: it becomes a message of credit.
  for (std::uint64_t number = link.retired(); number < link.next(); ++number) {
    const Item& item = link.item(number);
    if (item.kind == Item::Kind::kWritePart) continue;
    std::byte* const kind = buffers_.address(item) + offsetof(SlotHeader, kind);
    if (*kind == std::byte{SlotHeader::kPark}) *kind = std::byte{SlotHeader::kCreditOnly};
  }
  return again;
}

void Transport::stop(VerbsLane& lane) noexcept {
  lane.flush = false;
  if (!lane.peer->dying) buffers_.move_from_slots(lane.link);
}

/// Gives the device what it may have.
void Transport::pump(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const bool for_a_write = lane.index == 0 && lane.peer->unfinished_write != kNone;
  if (link.state == LinkState::kNone && (!link.all_retired() || for_a_write)) client_.want_link(lane);
  while (link.may_post()) {
    Item& item = link.item(link.posted());
    if (item.kind == Item::Kind::kWaitingMessage && !buffers_.move_to_slot(item)) [[unlikely]]
      return lacking_.add(lane);
    if (const int error = post(lane); error != 0) return client_.lose_link(lane, std::strerror(error));
  }
}

/// The only place, but for post_empty_write(), that rings the device's doorbell for a send. Returns 0 or an
/// errno.
int Transport::post(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  const Rail& rail = *rails_[lane.rail];
  const Item& item = link.item(link.posted());
  const std::uint64_t posted = link.posted() + 1;
  bool signaled = link.signal_is_due() || (lane.flush && posted == link.next());
  ibv_sge piece{};
  ibv_send_wr request{};
  request.wr_id = kSendBit | posted;
  request.sg_list = &piece;
  request.num_sge = item.length_bytes > 0 ? 1 : 0;
  piece.length = item.length_bytes;
  if (item.kind == Item::Kind::kMessage) {
    std::byte* const slot = buffers_.address(item);
    SlotHeader header;
    std::memcpy(&header, slot, sizeof header);
    header.limit = static_cast<std::uint32_t>(link.grant());
    header.flags = lane.starved ? SlotHeader::kWantsCredit : 0;
    lane.starved = false;
    std::memcpy(slot, &header, sizeof header);
    request.opcode = IBV_WR_SEND;
    piece.addr = reinterpret_cast<std::uintptr_t>(slot);
    piece.lkey = buffers_.slots().local_key(item.index, lane.rail);
    if (piece.length <= rail.inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
    signaled |= buffers_.is_short();  // Slots come back with completions only.
  } else {
    const Write& write = writes_[item.index];
    const std::uint64_t offset = item.part * write.part_bytes;
    const std::uint8_t their_rail =
        lane.peer->pairs[0].mine == lane.rail ? lane.peer->pairs[0].theirs : lane.peer->pairs[1].theirs;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(static_cast<std::uint32_t>(write.immediate));
    request.wr.rdma.remote_addr = write.destination.address + offset;
    request.wr.rdma.rkey = Registrations::remote_key(write.destination.remote_key, their_rail);
    piece.addr = reinterpret_cast<std::uintptr_t>(write.source) + offset;
    piece.lkey = registrations_.local_key(write.region, lane.rail);
    signaled |= write.striped || item.part + 1 == write.parts;  // The last one of each lane.
    ++figures_.writes_posted;
  }
  if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(link.queue_pair.get(), &request, &refused);
  if (error == 0) link.was_posted(signaled);
  return error;
}

/// The last completion may not have been asked for. Then it is asked for with a write of nothing, which takes
/// neither slot nor credit: both may be lacking, and may come back only by this.
void Transport::flush_tail(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  lane.flush = true;
  pump(lane);
  if (link.state != LinkState::kUp || link.posted() != link.next() || link.tail_is_signaled()) return;
  if (post_empty_write(lane)) link.tail_was_signaled();
}

/// Its completion retires all that was posted before it. Returns false if the link is lost.
bool Transport::post_empty_write(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  ibv_send_wr request{};  // Without bytes, address and key are not looked at (IBTA C9-88).
  request.wr_id = kSendBit | link.posted();
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(link.queue_pair.get(), &request, &refused);
  if (error != 0) client_.lose_link(lane, std::strerror(error));
  return error == 0;
}

void Transport::probe(VerbsLane& lane) noexcept {
  ++figures_.probes;
  lane.probing = post_empty_write(lane);
}

/// Tells peers what they may send, in messages of their own.
void Transport::send_due_credit() noexcept {
  credit_due_.drain([&](VerbsLane& lane) {
    const Link& link = lane.link;
    // Another link begins with an offer, which tells credit.
    if (lane.peer->is_over() || link.state != LinkState::kUp || !link.credit_is_due()) return;
    if (link.takes_credit_message() && push_notice(lane, SlotHeader::kCreditOnly))
      ++figures_.credit_messages;
    else
      credit_due_.add(lane);
  });
}

void Transport::begin_poll(Sink& sink) noexcept {
  sink_ = &sink;
  found_ = 0;
  ++polls_;
  if (held_rail_ != nullptr) [[unlikely]]
    std::exchange(held_rail_, nullptr)->recycle(held_slot_);  // The Sink has read it.
}

std::size_t Transport::end_poll() noexcept {
  for (const std::unique_ptr<Rail>& rail : rails_) {
    rail->repost();
    if (rail->broken() && !rail->lost) [[unlikely]]
      client_.on_rail_failed(*rail, "it takes no more receives");
  }
  if (!credit_due_.empty()) send_due_credit();
  if (!lacking_.empty() && buffers_.may_take_slot()) [[unlikely]]
    lacking_.drain([&](VerbsLane& lane) { pump(lane); });
  sink_ = nullptr;
  return found_;
}

void Transport::end_peer(VerbsEndpoint& peer) noexcept {
  for_each_lane(peer, [&](VerbsLane& lane) {
    lane.link.abandon();
    while (!lane.link.all_retired()) {
      const Item item = lane.link.retire_one();
      if (item.kind != Item::Kind::kWritePart) buffers_.give_back(item);
    }
  });
  for (std::uint32_t index = 0; index < kMostWrites; ++index) {
    Write& write = writes_[index];
    if (write.peer != &peer || write.parts == write.parts_retired) continue;
    write.parts_retired = write.parts;
    free_writes_.push_back(index);
    ++found_;
    sink_->on_write_done(peer.id, write.work, Status::kPeerFailed);
  }
  give_back_reserved(peer);
  peer.unfinished_write = kNone;
  ++found_;
  sink_->on_peer_down(peer.id, peer.reason);
}

}  // namespace ch3_offload
