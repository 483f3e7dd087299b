// Engine: the packet stream, what CH3 sends that is no message (one-sided communication, connection management).
//
// A packet is a run of bytes in the order of Peer::queue, through slots. A long contiguous part of its data is announced
// (kRts with kPacketPart): the receiver knows by then, from the bytes before it, where it belongs, and answers with a
// CTS as if it were a message's; or it wants nothing and gets the part through slots. Writes and slots are not ordered, so
// what comes behind in the queue, messages too, waits for the receiver's ACK.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// Copies bytes [offset, offset + out.size()) of a packet, header and data as one run.
void gather_packet(const PacketParts& packet, std::size_t offset, std::span<std::byte> out) noexcept {
  if (offset < packet.header.size()) {
    const std::size_t length = std::min(packet.header.size() - offset, out.size());
    std::memcpy(out.data(), packet.header.data() + offset, length);
    out = out.subspan(length);
    offset += length;
  }
  offset -= packet.header.size();
  for (const Payload& part : packet.data) {
    if (out.empty()) return;
    if (offset < part.length_bytes) {
      const std::size_t length = std::min(part.length_bytes - offset, out.size());
      gather(part, offset, out.first(length));
      out = out.subspan(length);
      offset += length;
    }
    offset -= part.length_bytes;
  }
}

/// A part of a packet that is worth a rendezvous.
struct LongPart {
  std::size_t begin = 0;  ///< In the packet. Its end: there is none.
  Payload payload;        ///< What is left of it.
};

/// The next one that has not left. Contiguous, at least `least_bytes` long, and not refused.
LongPart find_long_part(const PacketParts& packet, std::size_t least_bytes) noexcept {
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

Progressed Engine::send_packet(PeerId id, std::span<const std::byte> header,
                               std::span<const Payload> data, Cookie cookie,
                               Status& status) noexcept {
  State& state = *state_;
  Peer* const peer = state.known(id);
  status = state.may_send(peer, id);
  if (status != Status::kOk) return Progressed::kFailed;
  std::size_t total_bytes = header.size();
  for (const Payload& part : data) total_bytes += part.length_bytes;
  ++state.counters.packets_sent;
  state.trace(TraceEvent::kPacketSent, id, 0, total_bytes);
  if (total_bytes == 0 || state.packet_at_once(*peer, header, data, total_bytes)) {
    return Progressed::kDone;
  }
  SendOperation* const send = state.sends.take();
  if (send == nullptr) {
    status = Status::kNoMemory;
    return Progressed::kFailed;
  }
  try {
    send->packet = std::make_unique<PacketParts>(
        PacketParts{{header.begin(), header.end()}, {data.begin(), data.end()}, total_bytes});
  } catch (const std::bad_alloc&) {
    state.sends.give_back(*send);
    status = Status::kNoMemory;
    return Progressed::kFailed;
  }
  send->state = SendState::kStreaming;
  send->peer = peer;
  send->cookie = cookie;
  OperationId operation;  // A packet cannot be cancelled.
  return state.submit(*send, operation, status);
}

bool Engine::State::packet_at_once(Peer& peer, std::span<const std::byte> header,
                                   std::span<const Payload> data, std::size_t total_bytes) noexcept {
  const std::size_t slot_bytes = sizeof(wire::CommonHeader) + total_bytes;
  std::span<std::byte> slot;
  if (peer.state != PeerState::kConnected || !peer.queue.empty() || slot_bytes > peer.max_slot_bytes ||
      reserve(peer, slot_bytes, slot) != Status::kOk) {
    return false;
  }
  wire::put(slot, common(peer, wire::Kind::kPacket, 0));
  slot = slot.subspan(sizeof(wire::CommonHeader));
  if (!header.empty()) std::memcpy(slot.data(), header.data(), header.size());
  slot = slot.subspan(header.size());
  for (const Payload& part : data) {
    gather(part, 0, slot.first(part.length_bytes));
    slot = slot.subspan(part.length_bytes);
  }
  peer.provider->commit(*peer.endpoint, slot_bytes);
  return true;
}

Status Engine::State::stream_packet(SendOperation& operation) noexcept {
  Peer& peer = *operation.peer;
  PacketParts& packet = *operation.packet;
  const Capabilities& can = peer.provider->capabilities();
  std::size_t until = packet.total_bytes;
  if (can.write && !peer.write_refused) {
    const std::size_t beyond_eager = std::min(config.eager_limit_bytes, SIZE_MAX - 1) + 1;
    const std::size_t least_bytes = std::max(can.write_threshold_bytes, beyond_eager);
    const LongPart part = find_long_part(packet, least_bytes);
    if (part.payload.length_bytes > 0 && part.begin == packet.sent_bytes) return offer_part(operation, part.payload);
    until = part.begin;
  }
  const std::size_t length =
      std::min(peer.max_slot_bytes - sizeof(wire::CommonHeader), until - packet.sent_bytes);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::CommonHeader) + length, slot);
  if (status != Status::kOk) return status;
  wire::put(slot, common(peer, wire::Kind::kPacket, 0));
  gather_packet(packet, packet.sent_bytes, slot.subspan(sizeof(wire::CommonHeader), length));
  peer.provider->commit(*peer.endpoint, sizeof(wire::CommonHeader) + length);
  packet.sent_bytes += length;
  if (packet.sent_bytes < packet.total_bytes) return Status::kOk;
  dequeue(operation);
  finish_send(operation, Status::kOk);
  return Status::kOk;
}

Status Engine::State::offer_part(SendOperation& operation, const Payload& part) noexcept {
  Peer& peer = *operation.peer;
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::RtsHeader), slot);
  if (status != Status::kOk) return status;
  wire::RtsHeader header;
  header.common = common(peer, wire::Kind::kRts, wire::kPacketPart);
  header.total_bytes = part.length_bytes;
  header.operation = number_send(operation);
  wire::put(slot, header);
  trace(TraceEvent::kRtsSent, peer.id, 0, part.length_bytes);
  peer.provider->commit(*peer.endpoint, sizeof header);
  ++queues_waiting;
  operation.payload = part;
  operation.sent_bytes = operation.wanted_bytes = 0;
  operation.acknowledged = false;
  operation.announced = true;
  operation.state = SendState::kAwaitingMatch;
  return Status::kOk;
}

void Engine::State::resume_packet(SendOperation& operation) noexcept {
  Peer& peer = *operation.peer;
  PacketParts& packet = *operation.packet;
  packet.sent_bytes += operation.wanted_bytes;
  if (operation.wanted_bytes == 0) packet.refused_until = packet.sent_bytes + operation.payload.length_bytes;
  operation.announced = false;
  let_go(peer, operation.memory);
  --queues_waiting;
  operation.state = SendState::kStreaming;
  activate(peer);
  if (packet.sent_bytes == packet.total_bytes) finish_send(operation, Status::kOk);
}

/// The ACK of a part: all of it is there. The write's own end may be heard of later.
bool Engine::State::on_part_placed(SendOperation& operation) noexcept {
  const bool has_left = operation.state == SendState::kAwaitingMatch && !operation.announced;
  if (!has_left && operation.state != SendState::kWriting) return false;
  trace(TraceEvent::kAckArrived, operation.peer->id, 0, 0);
  operation.acknowledged = true;
  if (has_left) resume_packet(operation);
  return true;
}

bool Engine::State::on_packet(Peer& peer, std::span<const std::byte> message, Delivery& delivery) noexcept {
  const auto bytes = message.subspan(sizeof(wire::CommonHeader));
  if (peer.placing != nullptr || peer.offer.length_bytes > 0) return false;
  counters.packet_bytes_received += bytes.size();
  trace(TraceEvent::kPacketArrived, peer.id, 0, bytes.size());
  if (bytes.empty()) return true;
  packet_bytes = bytes;
  packet_peer = &peer;
  events.others = 1;
  delivery = Delivery::kHeld;
  return true;
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
  ReceiveOperation* receive = nullptr;
  if (can.write && wanted_bytes > state.config.eager_limit_bytes && wanted_bytes >= can.write_threshold_bytes) {
    receive = state.receives.take();
  }
  wire::CtsHeader answer;
  answer.operation = offer.operation;
  unsigned flags = 0;
  if (receive != nullptr &&
      state.hold_memory(*peer, place.address, wanted_bytes, Access::kWrite, receive->memory)) {
    receive->state = ReceiveState::kAwaitingData;
    receive->payload = place;
    receive->peer = peer;
    receive->total_bytes = receive->wanted_bytes = wanted_bytes;
    receive->packet_part = true;
    receive->remote_operation = offer.operation;
    peer->receives.push_back(*receive);
    peer->placing = receive;
    answer.transfer = state.number_transfer(*receive);
    answer.wanted_bytes = wanted_bytes;
    answer.address = reinterpret_cast<std::uint64_t>(place.address);
    answer.remote_key = static_cast<std::uint64_t>(receive->memory.region.remote_key);
    flags = wire::kWritable;
  } else if (receive != nullptr) {
    state.receives.give_back(*receive);
  }
  state.trace(TraceEvent::kCtsSent, peer->id, 0, answer.wanted_bytes);
  state.send_control(*peer, wire::Kind::kCts, flags, answer);
}

void Engine::State::finish_placing(ReceiveOperation& receive, Status status) noexcept {
  Peer& peer = *receive.peer;
  const std::size_t length_bytes = receive.wanted_bytes;
  const std::uint32_t operation = receive.remote_operation;
  peer.placing = nullptr;
  unlink_receive(receive);
  receives.give_back(receive);
  if (status != Status::kOk) return;  // kPeerFailed tells the client.
  send_ack(peer, operation, 0);
  trace(TraceEvent::kPacketArrived, peer.id, 0, length_bytes);
  counters.packet_bytes_received += length_bytes;
  counters.packet_bytes_placed += length_bytes;
  peer.placed_bytes = length_bytes;
  tell(peer);
}

}  // namespace ch3_offload
