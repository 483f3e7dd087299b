// Engine: taking operations back (cancel, purge) and the death of a peer.
//
// A cancel and a match race; whoever holds the message decides, so there is one winner: the matcher for
// receives, the sender's queue for sends that have not left, the receiver's matcher for those that have.

#include <algorithm>
#include <cassert>

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

bool streams_synchronous(const SendOperation& send) noexcept {
  return send.state == SendState::kStreamingSynchronous || send.state == SendState::kStreamingMatched;
}

bool awaits_match(const SendOperation& send) noexcept {
  return send.state == SendState::kAwaitingAck || send.state == SendState::kAwaitingCts ||
         send.state == SendState::kAwaitingCtsOrAck;
}

}  // namespace

bool Engine::cancel_receive(OperationId operation) noexcept {
  State& state = *state_;
  const std::uint64_t id = pool_id_of(static_cast<std::uint64_t>(operation), kReceiveOperation);
  ReceiveOperation* const receive = state.receives.find(id);
  if (receive == nullptr || receive->state != ReceiveState::kPosted) return false;
  state.matcher.remove(*receive);
  state.trace(TraceEvent::kReceiveCancelled, state.config.self, 0, 0, receive->cookie);
  state.receives.give_back(*receive);
  return true;
}

Progressed Engine::cancel_send(OperationId operation, PeerId id, const MatchKey& key, std::uint32_t send_id,
                               Cookie cookie) noexcept {
  State& state = *state_;
  Peer* const peer = state.known(id);
  if (peer == nullptr || peer->state == PeerState::kFailed) return Progressed::kFailed;
  state.trace(TraceEvent::kCancelRequested, id, 0, send_id, cookie);
  SendOperation* send = state.sends.find(pool_id_of(static_cast<std::uint64_t>(operation), kSendOperation));
  const bool is_over = send == nullptr || send->detached || send->state == SendState::kFinished;
  if (operation != kNoOperation && is_over) return Progressed::kFailed;  // Its event waits to be taken.
  if (id == state.config.self) {
    return state.cancel_to_self(send, key, send_id) ? Progressed::kDone : Progressed::kFailed;
  }
  if (send == nullptr && send_id != 0) {
    // Done for its caller, but the engine may still hold it (keep_copy). Ids are reused: the newest.
    const auto is_it = [&](const Outgoing& one) {
      if (one.kind != Operation::Kind::kSend) return false;
      const auto& held = static_cast<const SendOperation&>(one);
      return held.detached && held.send_id == send_id && held.key == key;
    };
    Outgoing* one = peer->outgoing.back();
    while (one != nullptr && !is_it(*one)) one = decltype(peer->outgoing)::previous(*one);
    send = static_cast<SendOperation*>(one);
  }
  if (send != nullptr && send->peer != peer) return Progressed::kFailed;
  if (send != nullptr && send->state == SendState::kQueued) {
    kSendMachine.must_step(send->state, SendEvent::kCancelled);
    state.release_send(*send);
    ++state.counters.cancelled_sends;
    return Progressed::kDone;
  }
  // A synchronous send whose parts still leave may wait for its match for good: ask when it has left.
  const bool leaving = send != nullptr && streams_synchronous(*send);
  const bool askable = send == nullptr ? send_id != 0 && peer->state == PeerState::kConnected
                                       : !send->cancelling && (leaving || awaits_match(*send));
  CancelRequest* const request = askable ? state.cancels.take() : nullptr;
  if (request == nullptr) return Progressed::kFailed;
  request->cookie = cookie;
  request->token = ++state.last_token;
  peer->cancels.push_back(*request);
  if (send != nullptr) {
    send->cancelling = true;
    request->operation = send->pool_id;
  }
  if (!leaving) state.ask_for_cancel(*peer, *request, key, send != nullptr ? send->number_on_wire : send_id);
  return Progressed::kPending;
}

/// `id` is the operation's number on the wire, or, if the send was done for its caller, the caller's name for
/// it.
void Engine::State::ask_for_cancel(Peer& peer, const CancelRequest& request, const MatchKey& key,
                                   std::uint32_t id) noexcept {
  wire::CancelHeader header;
  header.bits = key.bits;
  header.initiator = key.initiator;
  header.token = request.token;
  header.send_id = id;
  send_control(peer, wire::Kind::kCancel, request.operation != 0 ? wire::kByOperation : 0U, header);
}

/// All parts of a synchronous send have left that was cancelled meanwhile.
void Engine::State::ask_for_late_cancel(const SendOperation& operation) noexcept {
  Peer& peer = *operation.peer;
  CancelRequest* request = peer.cancels.front();
  while (request->operation != operation.pool_id) request = decltype(peer.cancels)::next(*request);
  ask_for_cancel(peer, *request, operation.key, operation.number_on_wire);
}

bool Engine::State::on_cancel(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::CancelHeader header;
  if (!wire::get(message, header)) return false;
  const bool by_operation = (header.common.flags & wire::kByOperation) != 0;
  const MatchKey key{header.bits, header.initiator};
  auto* found = static_cast<IncomingMessage*>(matcher.newest_with_key(key));
  while (found != nullptr && !(found->peer == &peer && found->key == key && header.send_id != 0 &&
                               (by_operation ? found->operation : found->send_id) == header.send_id)) {
    found = static_cast<IncomingMessage*>(Matcher::older_with_same_key(*found));
  }
  // A message whose parts still arrive will be whole soon: too late to stop it.
  const bool cancelled = found != nullptr && found->state != MessageState::kStreaming;
  if (cancelled) {
    matcher.remove(*found);
    forget_message(*found);
  }
  wire::CancelReplyHeader reply;
  reply.token = header.token;
  send_control(peer, wire::Kind::kCancelReply, cancelled ? wire::kCancelled : 0U, reply);
  return true;
}

bool Engine::State::on_cancel_reply(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::CancelReplyHeader header;
  if (!wire::get(message, header)) return false;
  CancelRequest* request = peer.cancels.front();  // Replies come in the order of the requests.
  while (request != nullptr && request->token != header.token) {
    request = decltype(peer.cancels)::next(*request);
  }
  if (request == nullptr) return false;
  const bool cancelled = (header.common.flags & wire::kCancelled) != 0;
  SendOperation* send = sends.find(request->operation);
  if (send != nullptr && (send->peer != &peer || !send->cancelling)) send = nullptr;
  if (send != nullptr && streams_synchronous(*send)) return false;  // Nobody has asked yet.
  // What has matched is not cancelled: its owner was told, or will be, that it is done.
  if (cancelled && request->operation != 0 &&
      (send == nullptr || !follow(peer, kSendMachine, send->state, SendEvent::kCancelled))) {
    return false;
  }
  peer.cancels.remove(*request);
  request->is_cancelled = cancelled;
  trace(TraceEvent::kCancelDecided, peer.id, 0, cancelled, request->cookie);
  complete(*request);
  if (send != nullptr) {
    send->cancelling = false;
    if (cancelled) {
      release_send(*send);
    } else if (send->state == SendState::kAccepted) {
      finish_send(*send, Status::kOk);
    }
  }
  if (cancelled) ++counters.cancelled_sends;
  return true;
}

void Engine::purge(PurgeScope scope, std::span<const MatchPattern> doomed,
                   std::span<const MatchPattern> spared, Status reason) noexcept {
  State& state = *state_;
  const auto is_in = [](const MatchKey& key, std::span<const MatchPattern> patterns) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const MatchPattern& each) { return matches(key, each.key, each.ignore); });
  };
  const auto is_doomed = [&](const MatchKey& key) { return is_in(key, doomed) && !is_in(key, spared); };
  const auto is_posted_and_doomed = [&](const PostedEntry& entry) {
    const bool from_any = (entry.ignore & kIgnoreInitiator) == kIgnoreInitiator;
    return (scope == PurgeScope::kAll || from_any == (scope == PurgeScope::kReceivesFromAny)) &&
           is_doomed(entry.key);
  };
  state.matcher.take_posted_if(is_posted_and_doomed, [&](PostedEntry& entry) {
    auto& receive = static_cast<ReceiveOperation&>(entry);
    receive.message_key = receive.key;
    receive.total_bytes = 0;
    kReceiveMachine.must_step(receive.state, ReceiveEvent::kPurged);
    receive.status = reason;
    receive.is_cancelled = true;
    state.trace(TraceEvent::kReceiveCancelled, state.config.self, 0, 0, receive.cookie);
    state.complete(receive);
  });
  if (scope != PurgeScope::kAll) return;
  const auto is_kept_and_doomed = [&](const UnexpectedEntry& entry) { return is_doomed(entry.key); };
  state.matcher.take_unexpected_if(is_kept_and_doomed, [&](UnexpectedEntry& entry) {
    state.purge_message(static_cast<IncomingMessage&>(entry), reason);
  });
}

/// REQUIRES: it is not in the matcher.
void Engine::State::purge_message(IncomingMessage& message, Status reason) noexcept {
  Peer& peer = *message.peer;
  switch (message.state) {
    case MessageState::kToSelf: finish_send(*message.send_to_self, reason); break;
    case MessageState::kRts:
      if (peer.state != PeerState::kFailed) {
        wire::CtsHeader nothing;  // Wants no bytes: the sender is done.
        nothing.operation = message.operation;
        send_control(peer, wire::Kind::kCts, 0, nothing);
      }
      break;
    case MessageState::kStreaming:
      drop_payload(message);
      kMessageMachine.must_step(message.state, MessageEvent::kPurged);
      if (message.synchronous) send_ack(peer, message.operation, message.number);
      return;  // Peer::incoming still points here; it is forgotten when it is whole.
    case MessageState::kWhole:
      if (message.synchronous) send_ack(peer, message.operation, message.number);
      break;
    case MessageState::kDiscarded:
    case MessageState::kBroken: break;
  }
  forget_message(message);
}

/// REQUIRES: it has failed. Nobody hears of them: only of a peer that is forgotten.
void Engine::State::purge_messages_of(const Peer& peer) noexcept {
  const auto is_its = [&](const UnexpectedEntry& entry) {
    return static_cast<const IncomingMessage&>(entry).peer == &peer;
  };
  matcher.take_unexpected_if(is_its, [&](UnexpectedEntry& entry) {
    purge_message(static_cast<IncomingMessage&>(entry), Status::kPeerFailed);
  });
}

/// progress() calls end(): another provider may have a connection with that peer, too.
void Engine::State::on_peer_down(PeerId id, Status reason) noexcept {
  if (Peer* const peer = met(id); peer != nullptr) doom(*peer, reason);
}

/// A client that polls may wait for anything from any peer: for a packet, or for any sender's message. Only
/// a peer that has said goodbye sends nothing more.
bool Engine::State::awaits(PeerId id) const noexcept {
  const Peer* const peer = find(id);
  return peer == nullptr || !peer->closed;
}

/// Ends the connections with a peer. As long as there is one, the peer can write to memory of its receives,
/// and the provider reads the sources of writes. Then on_peer_down() comes, and progress() calls this again.
void Engine::State::end(Peer& peer) noexcept {
  bool comes = false;
  const auto [first, count] = providers_of(peer.id);
  for (Provider* const provider : std::span(providers).subspan(first, count)) comes |= provider->end(peer.id);
  if (!comes) fail(peer, peer.doom == Status::kOk ? Status::kPeerFailed : peer.doom);
}

/// REQUIRES: no provider has a connection with the peer.
void Engine::State::fail(Peer& peer, Status reason) noexcept {
  if (peer.state == PeerState::kFailed) return;
  assert(events.packet == nullptr || events.packet_peer != index_of(peer.id));
  if (peer.state == PeerState::kConnected) --counters.connected_peers;
  if (peer.state == PeerState::kWanted || peer.state == PeerState::kAsked) --introductions_due;
  peer.wants_card = peer.has_new_lane = peer.has_offer = false;
  peer.offer = {};
  peer.state = PeerState::kFailed;
  gate(peer);
  peer.doom = reason;
  trace(TraceEvent::kPeerFailed, peer.id, 0, static_cast<std::uint64_t>(reason));
  if (peer.active_hook.linked()) active.remove(peer);
  if (peer.credit_hook.linked()) credit_due.remove(peer);
  while (ControlMessage* const waiting = peer.control.pop_front()) controls.give_back(*waiting);

  // What the peer can no longer spend is lent to others; what it spent comes back when the messages
  // that are held here are consumed (repay).
  shrink_window(peer, peer.books->available_bytes + peer.books->owed_bytes);
  peer.books->available_bytes = peer.books->owed_bytes = 0;
  if (IncomingMessage* const incoming = std::exchange(peer.incoming, nullptr)) {
    const bool for_nobody = peer.incoming_receive != nullptr || incoming->state == MessageState::kDiscarded;
    kMessageMachine.must_step(incoming->state, MessageEvent::kSenderDied);
    if (for_nobody) forget_message(*incoming);
  }
  while (Outgoing* const outgoing = peer.outgoing.front()) {
    // on_write_done() comes before on_peer_down().
    assert(outgoing->outbound.state != OutboundState::kWriting);
    finish_outgoing(*outgoing, reason);
  }
  if (peer.placing != nullptr) finish_placing(peer, reason);
  while (ReceiveOperation* const receive = peer.receives.front()) finish_receive(*receive, reason);
  while (TargetArrival* const arrival = peer.arrivals.front())
    end_arrival(*arrival, TargetFailure::kUndeliverable);
  forget_locks(peer);
  while (CancelRequest* const request = peer.cancels.pop_front()) complete(*request);
  if (peer.closed) {
    if (peer.news_hook.linked() && peer.placed_bytes == 0) remove_news(peer);
    return;
  }
  ++counters.failed_peers;
  peer.has_failed = true;
  tell(peer);
}

}  // namespace ch3_offload
