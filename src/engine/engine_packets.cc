// Engine: the packet stream, what CH3 sends that is no message (one-sided communication, connection
// management).
//
// A packet is a run of bytes in the order of Backlog::queue, through slots. A long contiguous part of its
// data is announced (kRts with kPacketPart): the receiver knows by then, from the bytes before it, where it
// belongs, and answers with a CTS as if it were a message's; or it wants nothing and gets the part through
// slots. Writes and slots are not ordered, so what comes behind in the queue, messages of that class too,
// waits for the receiver's ACK.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

static_assert(kUncutPacketBytes <= kLeastSlotBytes - sizeof(wire::CommonHeader));

/// Copies bytes [offset, offset + out.size()) of a packet, header and data as one run. False: as
/// try_gather().
[[nodiscard]] bool try_gather_packet(const PacketOperation& packet, std::size_t offset,
                                     std::span<std::byte> out) noexcept {
  if (offset < packet.header.size()) {
    const std::size_t length = std::min(packet.header.size() - offset, out.size());
    std::memcpy(out.data(), packet.header.data() + offset, length);
    out = out.subspan(length);
    offset += length;
  }
  offset -= packet.header.size();
  for (const Payload& part : packet.data) {
    if (out.empty()) return true;
    if (offset < part.length_bytes) {
      const std::size_t length = std::min(part.length_bytes - offset, out.size());
      if (!try_gather(part, offset, out.first(length))) return false;
      out = out.subspan(length);
      offset += length;
    }
    offset -= part.length_bytes;
  }
  return true;
}

/// A part of a packet that is worth a rendezvous.
struct LongPart {
  std::size_t begin = 0;  ///< In the packet. Its end: there is none.
  Payload payload;        ///< What is left of it.
};

/// The next one that has not left. Contiguous, at least `least_bytes` long, and not refused.
LongPart find_long_part(const PacketOperation& packet, std::size_t least_bytes) noexcept {
  const std::size_t from = std::max(packet.sent_bytes, packet.refused_until);
  std::size_t begin = packet.header.size();
  for (const Payload& part : packet.data) {
    const std::size_t gone = from > begin ? std::min(from - begin, part.length_bytes) : 0;
    const std::size_t left = part.length_bytes - gone;
    if (part.layout == nullptr && left >= least_bytes) {
      return {begin + gone, {part.address + gone, left, nullptr}};
    }
    begin += part.length_bytes;
  }
  return {packet.total_bytes, {}};
}

}  // namespace

Progressed Engine::send_packet(PeerId id, std::span<const std::byte> header, std::span<const Payload> data,
                               Cookie cookie, Status& status) noexcept {
  State& state = *state_;
  Peer* const peer = state.known(id);
  status = state.may_send(id, peer);
  if (status != Status::kOk) return Progressed::kFailed;
  std::size_t total_bytes = header.size();
  for (const Payload& part : data) total_bytes += part.length_bytes;
  ++state.counters.packets_sent;
  state.trace(TraceEvent::kPacketSent, id, 0, total_bytes, cookie);
  if (total_bytes == 0 || state.packet_at_once(*peer, header, data, total_bytes)) {
    return Progressed::kDone;
  }
  PacketOperation* const packet = state.packets.take();
  status = Status::kNoMemory;
  if (packet == nullptr) return Progressed::kFailed;
  try {
    packet->header.assign(header.begin(), header.end());
    packet->data.assign(data.begin(), data.end());
  } catch (const std::bad_alloc&) {
    state.packets.give_back(*packet);
    return Progressed::kFailed;
  }
  packet->total_bytes = total_bytes;
  packet->peer = peer;
  packet->cookie = cookie;
  return state.submit(*packet, status);
}

bool Engine::State::packet_at_once(Peer& peer, std::span<const std::byte> header,
                                   std::span<const Payload> data, std::size_t total_bytes) noexcept {
  const std::size_t slot_bytes = sizeof(wire::CommonHeader) + total_bytes;
  std::span<std::byte> slot;
  if (peer.state != PeerState::kConnected || peer.queued != 0 || slot_bytes > peer.max_slot_bytes ||
      reserve(peer, slot_bytes, slot) != Status::kOk) {
    return false;
  }
  const auto whole = slot;
  slot = slot.subspan(sizeof(wire::CommonHeader));
  if (!header.empty()) std::memcpy(slot.data(), header.data(), header.size());
  slot = slot.subspan(header.size());
  for (const Payload& part : data) {
    if (!try_gather(part, 0, slot.first(part.length_bytes))) return false;
    slot = slot.subspan(part.length_bytes);
  }
  wire::put(whole, common(peer, wire::Kind::kPacket, 0));
  peer.provider->commit(*peer.endpoint, slot_bytes);
  return true;
}

Status Engine::State::stream_packet(PacketOperation& packet) noexcept {
  Peer& peer = *packet.peer;
  const Capabilities& can = peer.provider->capabilities();
  std::size_t until = packet.total_bytes;
  if (can.write && !peer.write_refused) {
    const std::size_t beyond_eager = std::min(config.eager_limit_bytes, SIZE_MAX - 1) + 1;
    const std::size_t least_bytes = std::max(peer.write_terms.threshold_bytes, beyond_eager);
    const LongPart part = find_long_part(packet, least_bytes);
    if (part.payload.length_bytes > 0 && part.begin == packet.sent_bytes)
      return offer_part(packet, part.payload);
    until = part.begin;
  }
  const std::size_t length =
      part_bytes(peer.max_slot_bytes, sizeof(wire::CommonHeader), until - packet.sent_bytes);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::CommonHeader) + length, slot);
  if (status != Status::kOk) return status;
  if (!try_gather_packet(packet, packet.sent_bytes, slot.subspan(sizeof(wire::CommonHeader), length)))
    return Status::kAgain;
  wire::put(slot, common(peer, wire::Kind::kPacket, 0));
  peer.provider->commit(*peer.endpoint, sizeof(wire::CommonHeader) + length);
  spend(packet, sizeof(wire::CommonHeader) + length);
  packet.sent_bytes += length;
  if (packet.sent_bytes == packet.total_bytes) finish_packet(packet, Status::kOk);
  return Status::kOk;
}

Status Engine::State::offer_part(PacketOperation& packet, const Payload& part) noexcept {
  Peer& peer = *packet.peer;
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::RtsHeader), slot);
  if (status != Status::kOk) return status;
  wire::RtsHeader header;
  header.common = common(peer, wire::Kind::kRts, wire::kPacketPart);
  header.total_bytes = part.length_bytes;
  header.operation = number_outgoing(packet);
  wire::put(slot, header);
  trace(TraceEvent::kRtsSent, peer.id, 0, part.length_bytes);
  peer.provider->commit(*peer.endpoint, sizeof header);
  spend(packet, sizeof header);
  ++queues_waiting;
  packet.outbound.payload = part;
  packet.outbound.wanted_bytes = 0;
  kPacketMachine.must_step(packet.state, PacketEvent::kOffered);
  return Status::kOk;
}

/// REQUIRES: it streams again.
void Engine::State::resume_packet(PacketOperation& packet) noexcept {
  Peer& peer = *packet.peer;
  packet.sent_bytes += packet.outbound.wanted_bytes;
  let_go(peer, packet.outbound.memory);
  --queues_waiting;
  activate(peer);
  if (packet.sent_bytes == packet.total_bytes) finish_packet(packet, Status::kOk);
}

/// The ACK of a part: all of it is there. The write's own end may be heard of later.
bool Engine::State::on_part_placed(PacketOperation& packet) noexcept {
  const bool has_left =
      packet.state != PacketState::kPartMoving || packet.outbound.state == OutboundState::kWriting;
  if (!has_left || !follow(*packet.peer, kPacketMachine, packet.state, PacketEvent::kAck)) return false;
  if (packet.state == PacketState::kStreaming) resume_packet(packet);
  return true;
}

/// The last thing done with it.
void Engine::State::finish_packet(PacketOperation& packet, Status status) noexcept {
  trace(TraceEvent::kSendDone, packet.peer->id, packet.number, static_cast<std::uint64_t>(status),
        packet.cookie);
  if (packet.state != PacketState::kStreaming) --queues_waiting;
  kPacketMachine.must_step(packet.state, status == Status::kOk ? PacketEvent::kDone : PacketEvent::kFailed);
  unlink_outgoing(packet);
  if (over_for_caller(packet, status)) return packets.give_back(packet);
  packet.status = status;
  complete(packet);
}

Delivery Engine::State::on_packet(Peer& peer, const wire::CommonHeader& header,
                                  std::span<const std::byte> bytes) noexcept {
  peer.books->credit_bytes += header.credit_bytes;
  if (peer.placing != nullptr || peer.offer.length_bytes > 0) [[unlikely]] {
    doom(peer, Status::kProtocol);
    return Delivery::kTaken;
  }
  counters.packet_bytes_received += bytes.size();
  trace(TraceEvent::kPacketArrived, peer.id, 0, bytes.size());
  if (bytes.empty()) [[unlikely]]
    return Delivery::kTaken;
  events.packet = bytes.data();  // Polling stops here: the bytes are in the provider's slot.
  events.packet_bytes = bytes.size();
  events.packet_peer = index_of(peer.id);
  return Delivery::kHeld;
}

bool Engine::State::on_part_offered(Peer& peer, const wire::RtsHeader& header) noexcept {
  if (header.total_bytes == 0 || peer.placing != nullptr || peer.offer.length_bytes > 0) return false;
  peer.offer = {header.total_bytes, header.operation};
  if (peer.state == PeerState::kConnected) {
    peer.has_offer = true;
    tell(peer);
  } else {
    want_connection(peer);
  }
  return true;
}

/// A part that can be written goes where it belongs; through slots the stream is as good.
void Engine::place_packet(PeerId id, const Payload& place) noexcept {
  State& state = *state_;
  Peer* const peer = state.known(id);
  if (peer == nullptr || peer->state != PeerState::kConnected || peer->offer.length_bytes == 0) return;
  const PartOffer offer = std::exchange(peer->offer, {});
  const Capabilities& can = peer->provider->capabilities();
  const std::size_t wanted_bytes = std::min(offer.length_bytes, place.length_bytes);
  PlacedPart* part = nullptr;
  if (can.write && wanted_bytes > state.config.eager_limit_bytes &&
      wanted_bytes >= peer->write_terms.threshold_bytes) {
    part = state.placed_parts.take();
  }
  if (part != nullptr) {
    Landing& landing = state.start_landing(part->landing, *peer, place, wanted_bytes, offer.operation);
    if (state.hold_memory(*peer, place, wanted_bytes, Access::kWrite, landing.memory)) {
      peer->placing = part;
      return state.grant(landing);
    }
    state.placed_parts.give_back(*part);
  }
  wire::CtsHeader nothing;  // Wants no bytes: they come through slots.
  nothing.operation = offer.operation;
  state.trace(TraceEvent::kCtsSent, peer->id, 0, 0);
  state.send_control(*peer, wire::Kind::kCts, 0, nothing);
}

/// The part is there, or its peer has failed.
void Engine::State::finish_placing(Peer& peer, Status status) noexcept {
  PlacedPart& part = *std::exchange(peer.placing, nullptr);
  const std::size_t length_bytes = part.landing.wanted_bytes;
  const std::uint32_t operation = part.landing.remote_operation;
  end_landing(part.landing);
  placed_parts.give_back(part);
  if (status != Status::kOk) return;  // kPeerFailed tells the client.
  send_ack(peer, operation, 0);
  trace(TraceEvent::kPacketArrived, peer.id, 0, length_bytes);
  counters.packet_bytes_received += length_bytes;
  counters.packet_bytes_placed += length_bytes;
  peer.placed_bytes = length_bytes;
  tell(peer);
}

}  // namespace ch3_offload
