// Engine: what waits for room in a provider, and byte credit.
//
// Byte credit bounds the memory for unexpected messages (EngineConfig::unexpected_budget_bytes). A
// message costs its payload and an envelope (wire::cost_of()). A process lends windows of credit to its
// peers. An eager message spends its cost of the sender's credit. The receiver gives it back when the
// message has left its hands, with the next slot that goes that way. A message without credit
// (optimistic) is kept if the budget has room for its cost; else only its envelope is. So
//   lent_bytes + optimistic_bytes <= unexpected_budget_bytes        at all times,
// and beyond the budget there are only envelopes whose senders have not finished: they cost the senders
// no less.
//
// Nobody is lent anything before its first message. A message without credit asks for it (kWantCredit),
// and the window doubles, but takes no more than half of what is free: others may ask, too. When the
// budget is almost lent, credit is taken back from peers that have not spent theirs: first from those that
// are silent.

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// A window grows by a sixteenth of the budget at least, within these limits. Bytes.
constexpr std::size_t kLeastGrowthBytes = 1024;
constexpr std::size_t kMostFirstGrowthBytes = std::size_t{64} * 1024;

/// Windows that are smaller are recalled whole, others by halves. Bytes.
constexpr std::size_t kLeastRecallBytes = std::size_t{64} * 1024;

/// A window that is too small for its messages grows until it holds so many of them, by at most such a part
/// of what is left of the budget: the rest is for peers that have not asked yet.
constexpr std::size_t kMessagesInWindow = 8;
constexpr std::size_t kGrowthShare = 16;

/// Peers looked at for a recall, so that running out costs the same at any job size.
constexpr std::size_t kRecallProbes = 8;

}  // namespace

Status Engine::State::reserve(Peer& peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept {
  return peer.provider->reserve(*peer.endpoint, length_bytes, slot);
}

wire::CommonHeader Engine::State::common(Peer& peer, wire::Kind kind, unsigned flags) noexcept {
  const auto credit = static_cast<std::uint32_t>(std::min<std::size_t>(peer.books->owed_bytes, UINT32_MAX));
  peer.books->owed_bytes -= credit;
  peer.books->available_bytes += credit;
  return {kind, static_cast<std::uint8_t>(flags), 0, credit};
}

std::size_t Engine::State::flush(Peer& peer) noexcept {
  if (peer.state != PeerState::kConnected) return 0;
  std::size_t left = 0;
  bool room = true;
  while (room && !peer.control.empty()) {
    room = send_waiting_control(peer);
    left += room;
  }
  while (room && peer.state == PeerState::kConnected) {
    Backlog* const backlog = peer.next_backlog();
    if (backlog == nullptr) break;
    room = send_of(peer, *backlog);
    left += room;
  }
  if (peer.state == PeerState::kConnected && (!room || !peer.control.empty())) activate(peer);
  return left;
}

/// A slot or a write of it. Bulk and queue take turns, so that neither starves the other. False: there is no
/// room. A write may have to wait where a slot finds room. REQUIRES: it has work.
bool Engine::State::send_of(Peer& peer, Backlog& backlog) noexcept {
  Outgoing* const bulk = backlog.bulk.front();
  Outgoing* const head = peer.head_of(backlog);
  const bool is_bulk = bulk != nullptr && (head == nullptr || !backlog.bulk_was_last);
  if (is_bulk && move(*bulk) == Status::kOk) {
    backlog.bulk_was_last = true;
    return true;
  }
  if (head == nullptr || transmit(*head) != Status::kOk) return false;
  backlog.bulk_was_last = false;
  return true;
}

bool Engine::State::send_waiting_control(Peer& peer) noexcept {
  ControlMessage& waiting = *peer.control.front();
  std::span<std::byte> slot;
  if (reserve(peer, waiting.length_bytes, slot) != Status::kOk) return false;
  wire::CommonHeader header;
  std::memcpy(&header, waiting.bytes.data(), sizeof header);
  const std::uint16_t client = header.client;
  header = common(peer, header.kind, header.flags);
  header.client = client;
  std::memcpy(waiting.bytes.data(), &header, sizeof header);
  std::memcpy(slot.data(), waiting.bytes.data(), waiting.length_bytes);
  peer.provider->commit(*peer.endpoint, waiting.length_bytes);
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

void Engine::State::let_credit_go(Peer& peer, std::size_t cost) noexcept {
  credit_due.push_back(peer);
  // Where one message takes a quarter of the window, the credit for each would be a message of its own, also
  // if the program answers at once. So the window is too small for such messages.
  if (cost * 4 < peer.window_bytes || peer.recalling) return;
  const std::size_t growth = cost * kMessagesInWindow - peer.window_bytes;
  if (growth > free_budget() / kGrowthShare) return;
  grow_window(peer, growth);
  peer.books->owed_bytes += growth;
}

void Engine::State::send_due_credit() noexcept {
  while (!credit_due.empty()) {
    Peer& peer = *credit_due.pop_front();
    if (peer.state == PeerState::kFailed || peer.books->owed_bytes == 0) continue;
    if (!peer.control.empty()) continue;  // A queued control message will take the credit along.
    ++counters.credit_messages;
    trace(TraceEvent::kCreditSent, peer.id, 0, peer.books->owed_bytes);
    send_control(peer, wire::Kind::kCredit, 0, wire::CreditHeader{});
  }
}

std::size_t Engine::State::free_budget() const noexcept {
  const std::size_t budget = config.unexpected_budget_bytes;
  return budget - std::min<std::size_t>(counters.lent_bytes + optimistic_bytes, budget);
}

void Engine::State::grow_window(Peer& peer, std::size_t bytes) noexcept {
  peer.window_bytes += bytes;
  counters.lent_bytes += bytes;
  if (bytes > 0 && !peer.borrower_hook.linked()) borrowers.push_back(peer);
}

void Engine::State::shrink_window(Peer& peer, std::size_t bytes) noexcept {
  peer.window_bytes -= bytes;
  counters.lent_bytes -= bytes;
  if (peer.window_bytes == 0 && peer.borrower_hook.linked()) borrowers.remove(peer);
}

void Engine::State::grant_more(Peer& peer, std::uint64_t payload_bytes) noexcept {
  ++counters.credits_requested;
  // A peer that sends many messages at once asks with each of them, before it hears of what the first has
  // brought. But if all that it asks for in the meantime is more than its window, then the window is too
  // small for it, however fast its messages are received.
  peer.asked_bytes += wire::cost_of(std::min(payload_bytes, config.unexpected_budget_bytes));
  const std::size_t unspent = peer.books->available_bytes + peer.books->owed_bytes;
  if (peer.asked_bytes <= peer.window_bytes && unspent > peer.window_bytes / 2 &&
      unspent >= wire::kEnvelopeBytes && payload_bytes <= unspent - wire::kEnvelopeBytes) {
    if (peer.books->owed_bytes > 0 && !peer.credit_hook.linked()) credit_due.push_back(peer);
    return;
  }
  const std::size_t least_growth =
      std::clamp(config.unexpected_budget_bytes / 16, kLeastGrowthBytes, kMostFirstGrowthBytes);
  if (free_budget() < least_growth) reclaim_for(peer);
  const std::size_t wanted = std::max(peer.window_bytes, least_growth);
  const std::size_t growth = std::min(wanted, (free_budget() + 1) / 2);
  peer.asked_bytes = 0;
  trace(TraceEvent::kCreditRequested, peer.id, 0, growth);
  if (growth < wire::kEnvelopeBytes) return;  // Nothing could be sent with that.
  grow_window(peer, growth);
  peer.books->owed_bytes += growth;
  if (!peer.credit_hook.linked()) credit_due.push_back(peer);
}

/// Prefers those that have sent nothing since the last look at them: who sends would ask again at once.
void Engine::State::reclaim_for(const Peer& asking) noexcept {
  Peer* busy = nullptr;
  for (std::size_t n = std::min(kRecallProbes, borrowers.size()); n > 0; --n) {
    Peer& other = *borrowers.pop_front();
    borrowers.push_back(other);
    if (&other == &asking || other.doom != Status::kOk) continue;
    if (other.books->owed_bytes == 0 && (other.recalling || other.books->available_bytes == 0)) continue;
    if (other.received_at_look == other.messages_received) return reclaim_from(other);
    other.received_at_look = other.messages_received;
    if (busy == nullptr) busy = &other;
  }
  if (busy != nullptr) reclaim_from(*busy);
}

void Engine::State::reclaim_from(Peer& peer) noexcept {
  // What is owed has not been given back yet: it is simply kept. What the peer can spend it must return.
  const std::size_t owed = peer.books->owed_bytes;
  peer.books->owed_bytes = 0;
  shrink_window(peer, owed);
  if (peer.recalling || peer.books->available_bytes == 0) return;
  peer.recalling = true;
  wire::RecallHeader header;
  const std::size_t unspent = peer.books->available_bytes;
  header.bytes = unspent > kLeastRecallBytes ? unspent / 2 : unspent;
  send_control(peer, wire::Kind::kRecall, 0, header);
}

bool Engine::State::on_recall(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::RecallHeader header;
  if (!wire::get(message, header)) return false;
  header.bytes = std::min<std::uint64_t>(header.bytes, peer.books->credit_bytes);
  peer.books->credit_bytes -= header.bytes;
  send_control(peer, wire::Kind::kReturn, 0, header);
  return true;
}

bool Engine::State::on_return(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::RecallHeader header;
  if (!wire::get(message, header)) return false;
  if (!peer.recalling || header.bytes > peer.books->available_bytes) return false;
  peer.recalling = false;
  peer.books->available_bytes -= header.bytes;
  shrink_window(peer, header.bytes);
  return true;
}

}  // namespace ch3_offload
