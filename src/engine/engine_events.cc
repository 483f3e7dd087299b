// Engine: what the client is told. An event needs no memory of its own: the operation, the peer or the provider's
// slot holds it. Only the text of a warning is allocated.

#include "engine/engine_state.h"

namespace ch3_offload {

/// Completions go first: those of a peer's operations come before its kPeerFailed.
bool Engine::next_event(Event& event) noexcept {
  State& state = *state_;
  if (!state.finished.empty()) {
    state.take_finished(event);
    return true;
  }
  if (!state.peer_news.empty()) {
    state.take_news(event);
    return true;
  }
  if (!state.packet_bytes.empty()) {
    const auto bytes = std::exchange(state.packet_bytes, {});
    if (state.packet_peer->state != PeerState::kFailed) {
      event = {.kind = Event::Kind::kPacket,
               .peer = state.packet_peer->id,
               .length_bytes = bytes.size(),
               .bytes = bytes.data()};
      return true;
    }
  }
  if (state.warnings.empty()) return false;
  state.warning_told = std::move(state.warnings.front());
  state.warnings.pop_front();
  event = {.kind = Event::Kind::kWarning,
           .length_bytes = state.warning_told.size(),
           .bytes = reinterpret_cast<const std::byte*>(state.warning_told.data())};
  return true;
}

void Engine::State::take_finished(Event& event) noexcept {
  Operation& operation = finished.pop();
  event.status = operation.status;
  event.is_cancelled = operation.is_cancelled;
  event.cookie = operation.cookie;
  switch (operation.kind) {
    case Operation::Kind::kReceive: {
      auto& receive = static_cast<ReceiveOperation&>(operation);
      event.kind = Event::Kind::kReceiveDone;
      event.bits = receive.message_bits;
      event.length_bytes = receive.total_bytes;
      receives.give_back(receive);
      break;
    }
    case Operation::Kind::kSend:
      event.kind = Event::Kind::kSendDone;
      sends.give_back(static_cast<SendOperation&>(operation));
      break;
    case Operation::Kind::kCancel:
      event.kind = Event::Kind::kCancelDone;
      cancels.give_back(static_cast<CancelRequest&>(operation));
      break;
  }
}

void Engine::State::take_news(Event& event) noexcept {
  Peer& peer = *peer_news.front();
  event = {.peer = peer.id};
  if (std::exchange(peer.wants_card, false)) {
    event.kind = Event::Kind::kCardWanted;
  } else if (peer.placed_bytes > 0) {
    event.kind = Event::Kind::kPacketPlaced;
    event.length_bytes = std::exchange(peer.placed_bytes, 0);
  } else if (std::exchange(peer.has_offer, false)) {
    event.kind = Event::Kind::kPacketOffer;
    event.length_bytes = peer.offer.length_bytes;
  } else {
    event.kind = Event::Kind::kPeerFailed;
    event.status = peer.doom;
    peer.has_failed = false;
  }
  if (!peer.wants_card && !peer.has_offer && !peer.has_failed && peer.placed_bytes == 0)
    peer_news.remove(peer);
}

void Engine::State::tell(Peer& peer) noexcept {
  if (!peer.news_hook.linked) peer_news.push_back(peer);
}

void Engine::State::warn(std::string text) noexcept {
  try {
    warnings.push_back(std::move(text));
  } catch (const std::bad_alloc&) {
    // A line less.
  }
}

}  // namespace ch3_offload
