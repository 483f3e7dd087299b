// Engine: what the client is told. An event needs no memory of its own: the operation, the peer or the
// provider's slot holds it. Only the text of a warning is allocated.

#include "engine/engine_state.h"

namespace ch3_offload {

static_assert(sizeof(Event) == sizeof(ch3_offload_event_t) &&
              offsetof(Event, status) == offsetof(ch3_offload_event_t, status) &&
              offsetof(Event, is_cancelled) == offsetof(ch3_offload_event_t, is_cancelled) &&
              offsetof(Event, peer) == offsetof(ch3_offload_event_t, peer) &&
              offsetof(Event, cookie) == offsetof(ch3_offload_event_t, cookie) &&
              offsetof(Event, key) == offsetof(ch3_offload_event_t, match) &&
              offsetof(MatchKey, initiator) == offsetof(ch3_offload_match_t, initiator) &&
              offsetof(Event, length_bytes) == offsetof(ch3_offload_event_t, length_bytes) &&
              offsetof(Event, bytes) == offsetof(ch3_offload_event_t, bytes));
static_assert(static_cast<int>(Event::Kind::kSendDone) == CH3_OFFLOAD_SEND_DONE &&
              static_cast<int>(Event::Kind::kReceiveDone) == CH3_OFFLOAD_RECEIVE_DONE &&
              static_cast<int>(Event::Kind::kCancelDone) == CH3_OFFLOAD_CANCEL_DONE &&
              static_cast<int>(Event::Kind::kPacket) == CH3_OFFLOAD_PACKET &&
              static_cast<int>(Event::Kind::kPacketOffer) == CH3_OFFLOAD_PACKET_OFFER &&
              static_cast<int>(Event::Kind::kPacketPlaced) == CH3_OFFLOAD_PACKET_PLACED &&
              static_cast<int>(Event::Kind::kPeerFailed) == CH3_OFFLOAD_PEER_DOWN &&
              static_cast<int>(Event::Kind::kCardWanted) == CH3_OFFLOAD_CARD_WANTED &&
              static_cast<int>(Event::Kind::kLaneMade) == CH3_OFFLOAD_LANE_MADE &&
              static_cast<int>(Event::Kind::kWarning) == CH3_OFFLOAD_WARNING);

ch3_offload_events_t& Engine::events() noexcept { return state_->events; }

/// Completions go first: those of a peer's operations come before its kPeerFailed.
bool Engine::next_event(Event& event) noexcept {
  State& state = *state_;
  if (const ch3_offload_event_t* const oldest = ch3_offload_take_event(&state.events)) {
    event = *reinterpret_cast<const Event*>(oldest);
    return true;
  }
  if (!state.finished.empty()) {
    state.fill(event, state.finished.pop());
    return true;
  }
  if (!state.peer_news.empty()) {
    state.take_news(*state.peer_news.front(), event);
    return true;
  }
  if (ch3_offload_take_packet(&state.events, reinterpret_cast<ch3_offload_event_t*>(&event)) != 0)
    return true;
  if (state.warnings.empty()) {
    state.events.others = 0;
    return false;
  }
  const LogScope scope = state.warnings.front().scope;
  state.warning_told = std::move(state.warnings.front().text);
  state.warnings.pop_front();
  event = {.kind = Event::Kind::kWarning,
           .scope = scope,
           .length_bytes = state.warning_told.size(),
           .bytes = reinterpret_cast<const std::byte*>(state.warning_told.data())};
  return true;
}

bool Engine::next_book_event(Event& event) noexcept {
  Peer* const peer = state_->book_news.front();
  if (peer == nullptr) return false;
  state_->take_news(*peer, event);
  return true;
}

bool Engine::has_events() const noexcept { return state_->has_events(); }

PeerId Engine::self() const noexcept { return state_->config.self; }

void Engine::State::complete(Operation& operation) noexcept {
  if (operation.is_of_program) [[unlikely]] {
    program_ends.push(operation);
    return tell_programs();
  }
  if (Event* const event = free_slot()) [[likely]] {
    fill(*event, operation);
    ++events.written;
  } else {
    finished.push(operation);
    events.others = 1;
  }
}

/// Frees the operation.
void Engine::State::fill(Event& event, Operation& operation) noexcept {
  event.status = operation.status;
  event.is_cancelled = operation.is_cancelled;
  event.cookie = operation.cookie;
  switch (operation.kind) {
    case Operation::Kind::kReceive: {
      auto& receive = static_cast<ReceiveOperation&>(operation);
      event.kind = Event::Kind::kReceiveDone;
      event.key = receive.message_key;
      event.length_bytes = receive.total_bytes;
      receives.give_back(receive);
      break;
    }
    case Operation::Kind::kSend:
      event.kind = Event::Kind::kSendDone;
      sends.give_back(static_cast<SendOperation&>(operation));
      break;
    case Operation::Kind::kPacket:
      event.kind = Event::Kind::kSendDone;
      packets.give_back(static_cast<PacketOperation&>(operation));
      break;
    case Operation::Kind::kCancel:
      event.kind = Event::Kind::kCancelDone;
      cancels.give_back(static_cast<CancelRequest&>(operation));
      break;
    case Operation::Kind::kTarget: break;  // Its events go to queues of their own.
  }
}

/// REQUIRES: there is some.
void Engine::State::take_news(Peer& peer, Event& event) noexcept {
  event = {.peer = peer.id};
  if (std::exchange(peer.wants_card, false)) {
    event.kind = Event::Kind::kCardWanted;
  } else if (std::exchange(peer.has_new_lane, false)) {
    event.kind = Event::Kind::kLaneMade;
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
  if (!peer.wants_card && !peer.has_new_lane && !peer.has_offer && !peer.has_failed && peer.placed_bytes == 0)
    remove_news(peer);
}

void Engine::State::remove_news(Peer& peer) noexcept {
  (is_of_book(peer) ? book_news : peer_news).remove(peer);
}

void Engine::State::tell(Peer& peer) noexcept {
  if (!peer.news_hook.linked()) (is_of_book(peer) ? book_news : peer_news).push_back(peer);
  if (!is_of_book(peer)) events.others = 1;
}

void Engine::State::warn_of_breach(const Peer& peer, const char* machine, const char* state,
                                   const char* event) noexcept {
  try {
    warn(LogScope::kProcess, "process " + std::to_string(index_of(peer.id)) +
                                 " broke the protocol between engines: " + event + " for a " + machine +
                                 " that is " + state + ". Its connection is closed");
  } catch (const std::bad_alloc&) {
    // A line less.
  }
}

void Engine::State::warn(LogScope scope, std::string text) noexcept {
  try {
    warnings.push_back({scope, std::move(text)});
    events.others = 1;
  } catch (const std::bad_alloc&) {
    // A line less.
  }
}

}  // namespace ch3_offload
