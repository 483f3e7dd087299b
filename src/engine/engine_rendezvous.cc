// Engine: payloads that move after a CTS, a message's or a part of a packet, by a write of the provider or,
// where that is not possible, through slots (bouncing). Both sides.

#include <cassert>

#include "engine/engine_state.h"
#include "rdma/memcheck.h"

namespace ch3_offload {

namespace {

/// What a write counts in its round: see TrafficClass. Bytes.
constexpr std::size_t kMostWriteBytes = std::size_t{64} << 10;

/// The pool of an operation that writes, in its WorkId. By Operation::Kind.
constexpr std::uint64_t kWorkOf[] = {kSendOperation, kPacketOperation, 0, 0, kTargetOperation};
static_assert(static_cast<int>(Operation::Kind::kPacket) == 1 &&
              static_cast<int>(Operation::Kind::kTarget) == 4);

}  // namespace

// ---- the sender's side ----

[[gnu::always_inline]] inline void Engine::State::start_moving(Outgoing& outgoing, std::size_t wanted_bytes,
                                                               std::uint32_t transfer, RemoteMemory remote,
                                                               bool is_writable) noexcept {
  Peer& peer = *outgoing.peer;
  Outbound& outbound = outgoing.outbound;
  outbound.wanted_bytes = wanted_bytes;
  outbound.sent_bytes = 0;
  outbound.landing = transfer;
  outbound.remote = remote;
  const Capabilities& can = peer.provider->capabilities();
  const Payload& payload = outbound.payload;
  const bool write =
      is_writable && can.write && !peer.write_refused && may_be_written(peer, payload) &&
      (peer.write_terms.choice != nullptr || outbound.wanted_bytes >= peer.write_terms.threshold_bytes) &&
      !(can.writes_by_copying &&
        ch3_offload_copy_is_slow(remote.address, reinterpret_cast<std::uintptr_t>(payload.address))) &&
      hold_memory(peer, payload, outbound.wanted_bytes, Access::kRead, outbound.memory);
  kOutboundMachine.must_step(outbound.state, write ? OutboundEvent::kMayWrite : OutboundEvent::kMustBounce);
  if (!write) trace(TraceEvent::kBounceStarted, peer.id, outgoing.number, outbound.wanted_bytes);
  peer.backlog_of(outgoing).bulk.push_back(outgoing);
  // Not from here: a callback of the provider. progress() flushes right after polling.
  activate(peer);
}

bool Engine::State::on_cts(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::CtsHeader header;
  if (!wire::get(message, header)) return false;
  Outgoing* const outgoing = on_wire.oldest(header.operation);
  if (outgoing == nullptr || outgoing->peer != &peer) return false;
  trace(TraceEvent::kCtsArrived, peer.id, outgoing->number, header.wanted_bytes);
  const bool nothing_wanted = header.wanted_bytes == 0;
  Outbound& outbound = outgoing->outbound;
  if (outgoing->kind != Operation::Kind::kSend) [[unlikely]] {
    if (outgoing->kind == Operation::Kind::kTarget)
      return on_target_cts(peer, static_cast<TargetOutgoing&>(*outgoing), header);
    auto& packet = static_cast<PacketOperation&>(*outgoing);
    if (header.wanted_bytes > outbound.payload.length_bytes ||
        !follow(peer, kPacketMachine, packet.state,
                nothing_wanted ? PacketEvent::kRefused : PacketEvent::kCts)) {
      return false;
    }
    if (nothing_wanted) {
      packet.refused_until = packet.sent_bytes + outbound.payload.length_bytes;
      resume_packet(packet);
      return true;
    }
  } else {
    auto& send = static_cast<SendOperation&>(*outgoing);
    if (header.wanted_bytes > send.payload.length_bytes ||
        !follow(peer, kSendMachine, send.state, SendEvent::kCts)) {
      return false;
    }
    if (nothing_wanted) {
      finish_send(send, Status::kOk);
      return true;
    }
    outbound.payload = send.payload;
  }
  const bool is_writable = (header.common.flags & wire::kWritable) != 0;
  WriteChoice* const choice = peer.write_terms.choice;
  if ((header.common.flags & wire::kChosen) != 0 && choice != nullptr &&
      header.wanted_bytes >= choice->least_bytes() && index_of(peer.id) < index_of(config.self))
    choice->follow(header.wanted_bytes, is_writable);
  start_moving(*outgoing, header.wanted_bytes, header.transfer,
               {header.address, RemoteKey{header.remote_key}}, is_writable);
  return true;
}

void Engine::State::start_moving_target(TargetOutgoing& one, std::size_t wanted_bytes, std::uint32_t transfer,
                                        RemoteMemory remote, bool is_writable) noexcept {
  start_moving(one, wanted_bytes, transfer, remote, is_writable);
}

Status Engine::State::move(Outgoing& outgoing) noexcept {
  Peer& peer = *outgoing.peer;
  Outbound& outbound = outgoing.outbound;
  if (outbound.state == OutboundState::kWriteReady) {
    const std::uint64_t posted_ns = config.trace != nullptr ? config.trace->now() : 0;
    const WorkId work{kWorkOf[static_cast<std::size_t>(outgoing.kind)] | outgoing.pool_id};
    const Status status =
        peer.provider->write(*peer.endpoint, outbound.payload.address, outbound.wanted_bytes,
                             outbound.memory.region, outbound.remote, Immediate{outbound.landing}, work);
    if (status == Status::kUnsupported) {
      bounce_instead(outgoing);
      return Status::kOk;
    }
    if (status != Status::kOk) return status;
    if (config.trace != nullptr) {
      config.trace->record_at(posted_ns, TraceEvent::kWritePosted, peer.id, outgoing.number,
                              outbound.wanted_bytes);
    }
    kOutboundMachine.must_step(outbound.state, OutboundEvent::kPosted);
    spend(outgoing, std::min(outbound.wanted_bytes, kMostWriteBytes));
    peer.backlog_of(outgoing).bulk.remove(outgoing);
    ++writes_in_flight;
    return Status::kOk;
  }
  const std::size_t part =
      part_bytes(peer.max_slot_bytes, sizeof(wire::DataHeader), outbound.wanted_bytes - outbound.sent_bytes);
  std::span<std::byte> slot;
  const Status status = reserve(peer, sizeof(wire::DataHeader) + part, slot);
  if (status != Status::kOk) return status;
  if (!try_gather(outbound.payload, outbound.sent_bytes, slot.subspan(sizeof(wire::DataHeader), part)))
    return Status::kAgain;
  wire::DataHeader header;
  header.common = common(peer, wire::Kind::kData, 0);
  header.transfer = outbound.landing;
  header.offset_bytes = outbound.sent_bytes;
  wire::put(slot, header);
  peer.provider->commit(*peer.endpoint, sizeof header + part);
  spend(outgoing, sizeof header + part);
  outbound.sent_bytes += part;
  auto& bulk = peer.backlog_of(outgoing).bulk;
  bulk.remove(outgoing);
  if (outbound.sent_bytes < outbound.wanted_bytes) {
    bulk.push_back(outgoing);  // Transfers take turns.
  } else {
    ++counters.bulk_bounced;
    moved(outgoing, Status::kOk);
  }
  return Status::kOk;
}

void Engine::State::on_write_done(PeerId, WorkId work, Status status) noexcept {
  const auto id = static_cast<std::uint64_t>(work);
  Outgoing* outgoing = sends.find(pool_id_of(id, kSendOperation));
  if (outgoing == nullptr) outgoing = packets.find(pool_id_of(id, kPacketOperation));
  if (outgoing == nullptr) outgoing = target_operations.find(pool_id_of(id, kTargetOperation));
  if (outgoing == nullptr || outgoing->outbound.state != OutboundState::kWriting) return;
  --writes_in_flight;
  Peer& peer = *outgoing->peer;
  trace(TraceEvent::kWriteDone, peer.id, outgoing->number, static_cast<std::uint64_t>(status));
  if (status != Status::kUnsupported) {
    counters.bulk_written += status == Status::kOk;
    return moved(*outgoing, status);
  }
  peer.backlog_of(*outgoing).bulk.push_back(*outgoing);
  bounce_instead(*outgoing);
  activate(peer);
}

/// The provider cannot write to this peer, or not this payload where that depends on it (a registrar of the
/// peer's own). The payload, which is in Backlog::bulk, goes through slots.
void Engine::State::bounce_instead(Outgoing& outgoing) noexcept {
  outgoing.peer->write_refused = outgoing.peer->write_terms.registrar == nullptr;
  kOutboundMachine.must_step(outgoing.outbound.state, OutboundEvent::kUnwritable);
  trace(TraceEvent::kBounceStarted, outgoing.peer->id, outgoing.number, outgoing.outbound.wanted_bytes);
}

/// All of `wanted_bytes` has left, or failed.
void Engine::State::moved(Outgoing& outgoing, Status status) noexcept {
  kOutboundMachine.must_step(outgoing.outbound.state, OutboundEvent::kMoved);
  if (outgoing.kind == Operation::Kind::kSend || status != Status::kOk)
    return finish_outgoing(outgoing, status);
  if (outgoing.kind == Operation::Kind::kTarget)
    return target_moved(static_cast<TargetOutgoing&>(outgoing), status);
  auto& packet = static_cast<PacketOperation&>(outgoing);
  kPacketMachine.must_step(packet.state, PacketEvent::kMoved);
  if (packet.state == PacketState::kStreaming) resume_packet(packet);
}

// ---- the receiver's side ----

Landing& Engine::State::start_landing(Landing& landing, Peer& peer, const Payload& payload,
                                      std::size_t wanted_bytes, std::uint32_t remote_operation) noexcept {
  landing.state = LandingState::kAwaitingPeer;
  landing.is_timed = false;
  landing.peer = &peer;
  landing.receive = nullptr;
  landing.payload = payload;
  landing.wanted_bytes = wanted_bytes;
  landing.received_bytes = 0;
  landing.remote_operation = remote_operation;
  landing.number = 0;
  landing.memory.held = false;
  return landing;
}

/// Whether its payload, which can be written, should be.
bool Engine::State::wants_write(Landing& landing) noexcept {
  const WriteTerms& terms = landing.peer->write_terms;
  landing.is_timed = terms.choice != nullptr && landing.receive != nullptr &&
                     landing.wanted_bytes >= terms.choice->least_bytes();
  if (!landing.is_timed) return landing.wanted_bytes >= terms.threshold_bytes;
  const WriteChoice::Choice chosen = terms.choice->begin(landing.wanted_bytes);
  landing.timed_run = chosen.run;
  return chosen.is_written;
}

void Engine::State::grant(Landing& landing) noexcept {
  Peer& peer = *landing.peer;
  kLandingMachine.must_step(landing.state, LandingEvent::kCtsSent);
  wire::CtsHeader header;
  header.operation = landing.remote_operation;
  header.wanted_bytes = landing.wanted_bytes;
  number_landing(landing);
  header.transfer = landing.number;
  const Capabilities& can = peer.provider->capabilities();
  unsigned flags = 0;
  const bool may_write =
      landing.number != 0 && can.write && may_be_written(peer, landing.payload) && wants_write(landing);
  if (may_write && (landing.memory.held || hold_memory(peer, landing.payload, landing.wanted_bytes,
                                                       Access::kWrite, landing.memory))) {
    header.address = reinterpret_cast<std::uint64_t>(landing.payload.address);
    header.remote_key = static_cast<std::uint64_t>(landing.memory.region.remote_key);
    flags = wire::kWritable;
  }
  if (landing.is_timed) flags |= wire::kChosen;
  trace(TraceEvent::kCtsSent, peer.id, landing.receive != nullptr ? landing.receive->number : 0,
        landing.wanted_bytes);
  send_control(peer, wire::Kind::kCts, flags, header);
}

/// All of it is here.
[[gnu::always_inline]] inline void Engine::State::landed(Landing& landing) noexcept {
  ReceiveOperation* const receive = landing.receive;
  if (receive == nullptr) [[unlikely]]
    return landed_for_no_receive(landing);
  finish_receive(*receive, landing.wanted_bytes < receive->total_bytes ? Status::kTruncated : Status::kOk);
}

/// Of a part of a packet, or of an operation on a target entry.
[[gnu::noinline]] void Engine::State::landed_for_no_receive(Landing& landing) noexcept {
  const PlacedPart* const part = landing.peer->placing;
  if (part == nullptr || &part->landing != &landing)
    return target_landed(static_cast<TargetLanding&>(landing));
  finish_placing(*landing.peer, Status::kOk);
}

bool Engine::State::on_data(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::DataHeader header;
  if (!wire::get(message, header)) return false;
  const auto part = message.subspan(sizeof header);
  Landing* const landing = landings.oldest(header.transfer);
  if (landing == nullptr || landing->peer != &peer || header.offset_bytes != landing->received_bytes ||
      part.empty() || part.size() > landing->wanted_bytes - landing->received_bytes ||
      !follow(peer, kLandingMachine, landing->state, LandingEvent::kPartBounced)) {
    return false;
  }
  scatter(landing->payload, landing->received_bytes, part);
  landing->received_bytes += part.size();
  if (landing->received_bytes == landing->wanted_bytes) landed(*landing);
  return true;
}

void Engine::State::on_write_arrived(PeerId id, Immediate immediate, std::size_t length_bytes) noexcept {
  Peer* const peer = met(id);
  if (peer == nullptr || peer->doom != Status::kOk) return;
  Landing* const landing = landings.oldest(static_cast<std::uint32_t>(immediate));
  if (landing == nullptr || landing->peer != peer || !landing->memory.held || length_bytes == 0 ||
      length_bytes > landing->wanted_bytes - landing->received_bytes ||
      !follow(*peer, kLandingMachine, landing->state, LandingEvent::kPartWritten)) {
    return doom(*peer, Status::kProtocol);
  }
  landing->received_bytes += length_bytes;
  if (landing->received_bytes != landing->wanted_bytes) return;
  if (landing->payload.layout == nullptr)
    written_from_outside(landing->payload.address, landing->wanted_bytes);
  landed(*landing);
}

std::optional<PeerId> Engine::State::writer_of(Immediate immediate) const noexcept {
  const Landing* const landing = landings.oldest(static_cast<std::uint32_t>(immediate));
  if (landing == nullptr) return {};
  return landing->peer->id;
}

std::byte* Engine::State::on_write_shared(PeerId id, Immediate immediate, std::size_t length_bytes) noexcept {
  Peer* const peer = met(id);
  if (peer == nullptr || peer->doom != Status::kOk) return nullptr;
  const Landing* const landing = landings.oldest(static_cast<std::uint32_t>(immediate));
  const bool is_granted = landing != nullptr && landing->peer == peer && landing->memory.held &&
                          landing->state == LandingState::kGranted && landing->wanted_bytes == length_bytes;
  return is_granted ? landing->payload.address : nullptr;
}

bool Engine::State::is_landing(PeerId id, Immediate immediate, const std::byte* address,
                               std::size_t length_bytes) const noexcept {
  const Landing* const landing = landings.oldest(static_cast<std::uint32_t>(immediate));
  if (landing == nullptr || landing->peer->id != id || !landing->memory.held) return false;
  const std::byte* const begin = landing->payload.address;
  // As numbers: the address is the peer's word.
  const auto at = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(begin);
  return at <= landing->wanted_bytes && length_bytes <= landing->wanted_bytes - at;
}

void Engine::State::stop_timing(Landing& landing) noexcept {
  WriteChoice& choice = *landing.peer->write_terms.choice;
  landing.is_timed = false;
  if (landing.received_bytes == landing.wanted_bytes)
    choice.end(landing.timed_run, landing.wanted_bytes, landing.state == LandingState::kWritten);
  else
    choice.drop(landing.timed_run);
}

void Engine::State::end_landing(Landing& landing) noexcept {
  let_go(*landing.peer, landing.memory);
  if (landing.is_timed) [[unlikely]]
    stop_timing(landing);
  if (landing.number == 0) return;
  landings.remove(landing);
  --live_landings;
}

/// Leaves it 0 if half of all numbers are in use. The peer then fails: its data is that of no landing.
void Engine::State::number_landing(Landing& landing) noexcept {
  const LandingNumbers& numbers = config.landing_numbers;
  if (live_landings > numbers.mask / 2) return;
  do {
    last_landing = (last_landing + 1) & numbers.mask;
    landing.number = numbers.base | last_landing;
  } while (last_landing == 0 || landings.oldest(landing.number) != nullptr);
  landings.append(landing);
  ++live_landings;
}

}  // namespace ch3_offload
