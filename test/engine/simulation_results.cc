// What comes back from the engines, the deaths, and what both mean to the oracle.

#include <algorithm>

#include "engine/simulation.h"

namespace ch3_offload {

void Simulation::Process::on_send_done(Cookie cookie, Status status) noexcept {
  if (world.live_.count(cookie) != 0 && static_cast<Record*>(cookie)->kind == Record::Kind::kPacket) {
    auto* const packet = world.live<PacketRecord>(cookie, Record::Kind::kPacket, "on_send_done()");
    if (packet == nullptr) return;
    if (status != Status::kOk && !world.oracle_.is_lost(id, packet->to)) world.fail("a packet failed");
    for (auto& part : packet->parts) part->scribble();
    packet->done = true;
    world.touch(*packet);
  } else if (auto* const send = world.live<SendRecord>(cookie, Record::Kind::kSend, "on_send_done()")) {
    world.send_over(*send, status);
  }
  world.nested_command(*this);
}

void Simulation::Process::on_receive_done(Cookie cookie, const Envelope& envelope) noexcept {
  if (auto* const receive = world.live<ReceiveRecord>(cookie, Record::Kind::kReceive, "on_receive_done()")) {
    if (receive->owner != id) world.fail("a receive was done at another process");
    if (envelope.status == Status::kRevoked) world.receive_returned(*receive); else world.receive_over(*receive, envelope);
  }
  world.nested_command(*this);
}

void Simulation::Process::on_cancel_done(Cookie cookie, bool cancelled) noexcept {
  if (auto* const cancel = world.live<CancelRecord>(cookie, Record::Kind::kCancel, "on_cancel_done()")) {
    cancel->done = true;
    world.touch(*cancel);
    world.cancel_over(cancel->send, cancelled);
  }
  world.nested_command(*this);
}

Payload Simulation::Process::on_packet_offer(PeerId peer, std::size_t length_bytes) noexcept {
  const std::uint32_t from = index_of(peer);
  if (told_failed[from]) world.fail("packet bytes were offered by a peer that had failed");
  places.erase(from);  // The engine left that one alone, or it writes to memory that is gone.
  if (world.random_.chance(0.25)) return {};
  const std::size_t capacity = world.random_.chance(0.5) ? length_bytes : world.random_.below(2 * length_bytes) + 1;
  return (places[from] = std::make_unique<PayloadBuffer>(capacity, 0, 0, world.memory_of(*this)))->payload();
}

std::string Simulation::Process::on_card_wanted(PeerId peer) {
  const bool may_cross = world.config_.has_rings();
  if (!may_cross && !provider->address_of(peer).empty())
    world.fail("a card is wanted of a peer whose address is known");
  return world.cards_[index_of(peer)];
}

void Simulation::Process::on_packet_placed(PeerId peer, std::size_t length_bytes) noexcept {
  const std::uint32_t from = index_of(peer);
  const auto place = places.find(from);
  if (place == places.end()) return world.fail("a part of a packet is where nobody offered a place");
  const std::unique_ptr<PayloadBuffer> buffer = std::move(place->second);
  places.erase(place);
  const Payload payload = buffer->payload();
  if (length_bytes > payload.length_bytes) return world.fail("more of a packet was placed than there was room");
  if (const std::string guards = buffer->check_guards(); !guards.empty()) world.fail("around a place: " + guards);
  on_packet(peer, {payload.address, length_bytes});
}

void Simulation::Process::on_packet(PeerId peer, std::span<const std::byte> bytes) noexcept {
  const std::uint32_t from = index_of(peer);
  if (told_failed[from]) world.fail("packet bytes came from a peer that had failed");
  const std::uint64_t seed = mix64(std::uint64_t{from} << 32 | id);
  if (first_difference(bytes, seed, packet_bytes_in[from]) != bytes.size()) {
    world.fail("packet bytes from " + std::to_string(from) + " to " + std::to_string(id) + " are wrong at " +
               std::to_string(packet_bytes_in[from]));
  }
  packet_bytes_in[from] += bytes.size();
  world.nested_command(*this);
}

void Simulation::Process::on_peer_failed(PeerId peer, Status reason) noexcept {
  const std::uint32_t other = index_of(peer);
  world.log("peer failed", id, other, static_cast<std::uint64_t>(reason));
  if (told_failed[other]) world.fail("on_peer_failed() came twice");
  if (!world.oracle_.is_lost(id, other)) world.fail("a peer that is well failed: " + std::string(status_name(reason)));
  told_failed[other] = true;
  places.erase(other);
  // Behind rings, a command may have crossed the news.
  for (const auto& record : world.records_) {
    if (world.config_.has_rings() || record->owner != id || record->done) continue;
    const bool packet = record->kind == Record::Kind::kPacket && static_cast<PacketRecord&>(*record).to == other;
    const bool send = record->kind == Record::Kind::kSend && static_cast<SendRecord&>(*record).to == other;
    if (packet || send) world.fail("a peer failed and a send to it is still pending");
  }
  world.nested_command(*this);
}

/// The message that an envelope speaks of; null (and a failure) if there can be none.
SendRecord* Simulation::identify(const Process& process, const Envelope& envelope, const PayloadBuffer* buffer) {
  SentMessage* found = nullptr;
  const std::uint64_t seed = config_.numbered || buffer == nullptr ? 0 : buffer->head();
  found = oracle_.find(process.id, envelope.key, envelope.length_bytes, seed);
  if (found == nullptr) {
    fail("process " + std::to_string(process.id) + " got a message that does not exist or is gone: key " +
         std::to_string(abridged(envelope.key)) + " length " + std::to_string(envelope.length_bytes));
  }
  return static_cast<SendRecord*>(found);
}

void Simulation::send_over(SendRecord& send, Status status) {
  log("send done", send.owner, send.to, send.seed, static_cast<std::uint64_t>(status));
  if (status == Status::kRevoked && send.from == send.to && send.maybe_purged) return cancel_over(send, true);
  if (status != Status::kOk && !(status == Status::kPeerFailed && oracle_.is_lost(send.from, send.to))) {
    fail(std::string("a send ended with ") + status_name(status));
  }
  oracle_.send_done(send);
  if (send.buffer != nullptr) {
    if (const std::string wrong = send.buffer->check_guards(); !wrong.empty()) fail("send buffer: " + wrong);
    // As a program does: the buffer is its own again.
    send.buffer->scribble();
    send.buffer.reset();
  }
  send.done = true;
  touch(send);
}

void Simulation::receive_over(ReceiveRecord& receive, const Envelope& envelope) {
  Process& process = *processes_[receive.owner];
  receive.done = true;
  touch(receive);
  if (receive.operation != kNoOperation) process.stale_receive = receive.operation;
  SendRecord* message = receive.taken;
  if (envelope.status == Status::kPeerFailed) {
    log("receive failed", receive.owner, UINT32_MAX, 0, abridged(envelope.key));
    SentMessage* const lost =
        message != nullptr ? message : oracle_.find(process.id, envelope.key, envelope.length_bytes);
    if (lost != nullptr && !oracle_.is_lost(lost->from, lost->to)) fail("a receive failed though its sender lives");
    if (const std::string wrong = receive.buffer->check_guards(); !wrong.empty()) fail("receive buffer: " + wrong);
    receive.buffer->scribble();  // The program's again.
    if (receive.taken != nullptr) {
      oracle_.taken_received(*receive.taken);
    } else if (lost != nullptr && config_.numbered) {
      oracle_.received(receive, *lost);
    } else {
      oracle_.receive_lost(receive);
    }
    if (lost != nullptr) touch(static_cast<SendRecord&>(*lost));
    return;
  }
  if (message == nullptr) message = identify(process, envelope, receive.buffer.get());
  if (message == nullptr) return;
  log("receive done", receive.owner, message->from, message->seed, static_cast<std::uint64_t>(envelope.status));
  // MPI 4.0, 3.8.1: unless the send is cancelled before the receive. Behind rings, that or a death may come
  // between.
  const SendRecord* const expects = receive.expected;
  const bool may_be_gone = config_.has_rings() && expects != nullptr &&
                           (expects->cancelling || expects->state == SentMessage::State::kCancelled ||
                            oracle_.is_lost(expects->from, receive.owner));
  if (receive.expected != nullptr && receive.expected != message && !may_be_gone) {
    fail("a receive right after a probe got another message than the probe found");
  }
  if (receive.taken == nullptr) {
    oracle_.received(receive, *message);
  } else {
    if (envelope.key != message->key) fail("a receive of a probed message has other key than the message");
    oracle_.taken_received(*message);
  }
  const std::size_t capacity = receive.buffer->length_bytes();
  const Status expected = capacity < message->length_bytes ? Status::kTruncated : Status::kOk;
  if (envelope.length_bytes != message->length_bytes) fail("an envelope has a wrong length");
  if (envelope.status != expected) {
    fail(std::string("a receive ended with ") + status_name(envelope.status) + ", should be " + status_name(expected));
  }
  const std::string wrong = receive.buffer->check(message->seed, message->length_bytes);
  if (!wrong.empty()) fail("message #" + std::to_string(message->seed) + ": " + wrong);
  receive.buffer.reset();
  touch(*message);
}

/// A receive that came back unmatched.
void Simulation::receive_returned(ReceiveRecord& receive) {
  log("receive cancelled", receive.owner, UINT32_MAX, 0, abridged(receive.key));
  if (receive.operation != kNoOperation) processes_[receive.owner]->stale_receive = receive.operation;
  if (receive.taken != nullptr) fail("the receive of a probed message was cancelled");
  oracle_.receive_cancelled(receive);
  if (const std::string wrong = receive.buffer->check_untouched(); !wrong.empty()) fail("cancelled receive: " + wrong);
  receive.buffer.reset();
  receive.done = true;
  touch(receive);
}

void Simulation::cancel_over(SendRecord& send, bool cancelled) {
  log("cancel decided", send.owner, send.to, send.seed, cancelled);
  send.cancelling = false;
  oracle_.cancel_decided(send, cancelled);
  if (cancelled) {
    send.done = true;
    send.buffer.reset();
  }
  touch(send);
}

void Simulation::kill(Process& process) {
  if (std::count_if(processes_.begin(), processes_.end(), [](const auto& each) { return each->alive; }) < 2) return;
  log("dies", process.id, process.id);
  for (auto& other : processes_) {
    for (SentMessage* message : oracle_.waiting(other->id, process.id)) touch(*static_cast<SendRecord*>(message));
  }
  if (process.provider != nullptr) network_.kill(PeerId{process.id});
  process.alive = false;
  process.shared.arena = nullptr;
  process.engine.reset();
  process.exchange.reset();
  process.checked.reset();
  process.provider.reset();
  process.taken.clear();
  process.places.clear();
  oracle_.died(process.id);
  for (const auto& record : records_) {
    if (record->owner != process.id) continue;
    if (record->kind == Record::Kind::kSend) {
      static_cast<SendRecord&>(*record).buffer.reset();
      static_cast<SendRecord&>(*record).cancelling = false;
    } else if (record->kind == Record::Kind::kReceive) {
      auto& receive = static_cast<ReceiveRecord&>(*record);
      if (!receive.done && receive.taken != nullptr) oracle_.taken_received(*receive.taken);
      receive.buffer.reset();
    }
    record->done = true;
    touch(*record);
  }
  reap();
  if (random_.chance(0.3)) announce_death(process.id);
}

/// Its network processor dies, and all whom it serves.
void Simulation::kill_node(Node& node) {
  const auto is_there = [&](const Process& process) { return &node_of(process.id) == &node; };
  if (std::none_of(processes_.begin(), processes_.end(),
                   [&](const auto& each) { return each->alive && !is_there(*each); }))
    return;
  network_.kill(PeerId{static_cast<std::uint32_t>(&node - nodes_.data())});
  for (auto& process : processes_)
    if (process->alive && is_there(*process)) kill(*process);
  node.exchange.reset();
  node.checked.reset();
  node.network.reset();
}

/// The process manager tells some of the others, before or after their fabric does.
void Simulation::announce_death(std::uint32_t dead) {
  for (auto& process : processes_) {
    if (process->alive && random_.chance(0.7)) process->engine->fail_peer(PeerId{dead});
  }
}

void Simulation::break_connection(std::uint32_t one, std::uint32_t other) {
  if (one == other) return;
  log("connection breaks", one, other);
  oracle_.lost(one, other);
  if (nodes_.empty()) return network_.break_connection(PeerId{one}, PeerId{other});
  Node &here = node_of(one), &there = node_of(other);
  if (&here == &there || random_.chance(0.5)) {
    static_cast<void>(processes_[one]->exchange->end(PeerId{other}));
    return;
  }
  for (const auto& a : processes_)
    for (const auto& b : processes_)
      if (&node_of(a->id) == &here && &node_of(b->id) == &there) oracle_.lost(a->id, b->id);
  const auto number = [&](const Node& node) {
    return PeerId{static_cast<std::uint32_t>(&node - nodes_.data())};
  };
  network_.break_connection(number(here), number(there));
}

}  // namespace ch3_offload
