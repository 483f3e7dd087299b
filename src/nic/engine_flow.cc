// Engine: what waits for room in a provider, and byte credit.
//
// Byte credit bounds the memory for unexpected payload (EngineConfig::unexpected_budget_bytes). A process
// lends windows to its peers; an eager message spends its length of the sender's credit and the
// receiver gives it back when the payload has left its hands, with the next slot that goes that way. A
// peer that runs out says so in its RTS (kWantCredit) and its window doubles while the budget lasts;
// after that credit is recalled from peers that hold more than they were given at first. Payload taken
// without credit (optimistic) counts against the same budget, so that
//   lent_bytes + optimistic_bytes <= unexpected_budget_bytes        at all times.

#include "nic/engine_state.h"

namespace ch3_offload {

namespace {

/// A window grows by at least this much. Bytes.
constexpr std::size_t kLeastGrowthBytes = std::size_t{16} * 1024;

/// Peers looked at for a recall, so that running out costs the same at any job size.
constexpr std::uint32_t kRecallProbes = 8;

}  // namespace

Status Engine::State::reserve(Peer& peer, std::size_t length_bytes,
                              std::span<std::byte>& slot) noexcept {
  return peer.provider->reserve(peer.id, length_bytes, slot);
}

wire::CommonHeader Engine::State::common(Peer& peer, wire::Kind kind, unsigned flags) noexcept {
  const auto credit = static_cast<std::uint32_t>(std::min<std::size_t>(peer.owed_bytes, UINT32_MAX));
  peer.owed_bytes -= credit;
  peer.available_bytes += credit;
  return {kind, static_cast<std::uint8_t>(flags), 0, credit};
}

std::size_t Engine::State::flush(Peer& peer) noexcept {
  if (peer.flushing || peer.state != PeerState::kConnected) return 0;
  peer.flushing = true;
  std::size_t left = 0;
  bool room = true;
  while (room && !peer.control.empty()) {
    room = send_waiting_control(peer);
    left += room;
  }
  // Bulk and queue take turns, so that neither starves the other.
  while (room && peer.state == PeerState::kConnected) {
    SendOperation* const bulk = peer.bulk.front();
    if (bulk != nullptr) {
      room = bulk_step(*bulk) == Status::kOk;
      left += room;
    }
    SendOperation* const head = room ? peer.next() : nullptr;
    if (head != nullptr) {
      room = transmit(*head) == Status::kOk;
      left += room;
    }
    if (bulk == nullptr && head == nullptr) break;
  }
  peer.flushing = false;
  if (peer.state == PeerState::kConnected &&
      !(peer.control.empty() && peer.bulk.empty() && peer.next() == nullptr)) {
    activate(peer);
  }
  return left;
}

bool Engine::State::send_waiting_control(Peer& peer) noexcept {
  ControlMessage& waiting = *peer.control.front();
  std::span<std::byte> slot;
  if (reserve(peer, waiting.length_bytes, slot) != Status::kOk) return false;
  wire::CommonHeader header;
  std::memcpy(&header, waiting.bytes.data(), sizeof header);
  header = common(peer, header.kind, header.flags);
  std::memcpy(waiting.bytes.data(), &header, sizeof header);
  std::memcpy(slot.data(), waiting.bytes.data(), waiting.length_bytes);
  peer.provider->commit(peer.id, waiting.length_bytes);
  peer.control.remove(waiting);
  controls.give_back(waiting);
  return true;
}

void Engine::State::send_ack(Peer& peer, std::uint32_t operation, std::uint64_t number) noexcept {
  trace(TraceEvent::kAckSent, peer.id, number, 0);
  wire::AckHeader header;
  header.operation = operation;
  send_control(peer, wire::Kind::kAck, 0, header);
}

bool Engine::State::charge(Peer& peer, std::size_t bytes) noexcept {
  if (bytes > peer.available_bytes) return false;
  peer.available_bytes -= bytes;
  return true;
}

void Engine::State::repay(Peer& peer, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  if (peer.state == PeerState::kFailed) {
    peer.window_bytes -= bytes;
    lent_bytes -= bytes;
    return;
  }
  peer.owed_bytes += bytes;
  // A quarter of the window: early enough that a stream of eager messages does not stall, late enough
  // that most credit rides on messages that go that way anyhow.
  if (!peer.credit_hook.linked && peer.owed_bytes * 4 >= peer.window_bytes) credit_due.push_back(peer);
}

void Engine::State::send_due_credit() noexcept {
  while (!credit_due.empty()) {
    Peer& peer = *credit_due.pop_front();
    if (peer.state == PeerState::kFailed || peer.owed_bytes == 0) continue;
    if (!peer.control.empty()) continue;  // A queued control message will take the credit along.
    ++counters.credit_messages;
    trace(TraceEvent::kCreditSent, peer.id, 0, peer.owed_bytes);
    send_control(peer, wire::Kind::kCredit, 0, wire::CreditHeader{});
  }
}

bool Engine::State::room_for(std::size_t bytes) const noexcept {
  const std::size_t used = lent_bytes + optimistic_bytes;
  return used <= config.unexpected_budget_bytes && bytes <= config.unexpected_budget_bytes - used;
}

void Engine::State::grant_more(Peer& peer) noexcept {
  ++counters.credits_requested;
  const std::size_t budget = config.unexpected_budget_bytes;
  const std::size_t used = lent_bytes + optimistic_bytes;
  const std::size_t free_bytes = used < budget ? budget - used : 0;
  // No peer gets more than half: another one may ask next.
  const std::size_t ceiling = budget / 2 > peer.window_bytes ? budget / 2 - peer.window_bytes : 0;
  const std::size_t growth =
      std::min({std::max(peer.window_bytes, kLeastGrowthBytes), free_bytes, ceiling});
  trace(TraceEvent::kCreditRequested, peer.id, 0, growth);
  if (growth > 0) {
    peer.window_bytes += growth;
    lent_bytes += growth;
    peer.owed_bytes += growth;
    if (!peer.credit_hook.linked) credit_due.push_back(peer);
    return;
  }
  if (ceiling == 0) return;
  for (std::uint32_t i = 0; i < std::min<std::size_t>(kRecallProbes, peers.size()); ++i) {
    recall_cursor = (recall_cursor + 1) % static_cast<std::uint32_t>(peers.size());
    Peer* const other = peers[recall_cursor].get();
    if (other == nullptr || other == &peer || other->recalling ||
        other->state == PeerState::kFailed || other->available_bytes == 0 ||
        other->window_bytes <= first_window_bytes) {
      continue;
    }
    other->recalling = true;
    wire::RecallHeader header;
    header.bytes = std::max<std::size_t>(other->available_bytes / 2, 1);
    send_control(*other, wire::Kind::kRecall, 0, header);
    return;
  }
}

bool Engine::State::on_recall(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::RecallHeader header;
  if (!wire::get(message, header)) return false;
  header.bytes = std::min<std::uint64_t>(header.bytes, peer.credit_bytes);
  peer.credit_bytes -= header.bytes;
  send_control(peer, wire::Kind::kReturn, 0, header);
  return true;
}

bool Engine::State::on_return(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::RecallHeader header;
  if (!wire::get(message, header)) return false;
  if (!peer.recalling || header.bytes > peer.available_bytes) return false;
  peer.recalling = false;
  peer.available_bytes -= header.bytes;
  peer.window_bytes -= header.bytes;
  lent_bytes -= header.bytes;
  return true;
}

}  // namespace ch3_offload
