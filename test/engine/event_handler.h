// The events of a port as calls of functions, for tests.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "nic/port.h"

namespace ch3_offload {

/// Hears what a port tells its client: a function for each Event::Kind.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void on_send_done(Cookie cookie, Status status) noexcept = 0;
  virtual void on_receive_done(Cookie cookie, const Envelope& envelope) noexcept = 0;
  virtual void on_cancel_done(Cookie cookie, bool cancelled) noexcept = 0;
  virtual void on_packet(PeerId peer, std::span<const std::byte> bytes) noexcept = 0;
  /// Returns where the bytes belong: the answer to the offer.
  virtual Payload on_packet_offer(PeerId peer, std::size_t length_bytes) noexcept = 0;
  virtual void on_packet_placed(PeerId peer, std::size_t length_bytes) noexcept = 0;
  virtual void on_peer_failed(PeerId peer, Status reason) noexcept = 0;
  /// Returns the peer's card.
  virtual std::string on_card_wanted(PeerId peer) = 0;
  virtual void on_lane_made(PeerId) noexcept {}
  virtual void on_schedule_done(Cookie, Status) noexcept {}
  virtual void on_warning(LogScope scope, std::string_view text) noexcept = 0;
};

/// Hands one event to its function.
inline void handle(Port& port, EventHandler& handler, const Event& event) {
  switch (event.kind) {
    case Event::Kind::kSendDone: return handler.on_send_done(event.cookie, event.status);
    case Event::Kind::kReceiveDone:
      return handler.on_receive_done(event.cookie, {event.key, event.length_bytes, event.status});
    case Event::Kind::kCancelDone: return handler.on_cancel_done(event.cookie, event.is_cancelled);
    case Event::Kind::kPacket: return handler.on_packet(event.peer, {event.bytes, event.length_bytes});
    case Event::Kind::kPacketOffer:
      return port.place_packet(event.peer, handler.on_packet_offer(event.peer, event.length_bytes));
    case Event::Kind::kPacketPlaced: return handler.on_packet_placed(event.peer, event.length_bytes);
    case Event::Kind::kPeerFailed: return handler.on_peer_failed(event.peer, event.status);
    case Event::Kind::kCardWanted: return port.introduce(event.peer, handler.on_card_wanted(event.peer));
    case Event::Kind::kLaneMade: return handler.on_lane_made(event.peer);
    case Event::Kind::kWarning:
      return handler.on_warning(event.scope,
                                {reinterpret_cast<const char*>(event.bytes), event.length_bytes});
    case Event::Kind::kScheduleDone: return handler.on_schedule_done(event.cookie, event.status);
    case Event::Kind::kWindowDone: break;  // No port tells it.
  }
}

/// Takes all events. Returns how many.
inline std::size_t take_events(Port& port, EventHandler& handler) {
  std::size_t taken = 0;
  for (Event event; port.next_event(event); ++taken) handle(port, handler, event);
  return taken;
}

/// What a client does again and again: takes what there is, lets the engine work, takes what came of it.
/// Returns how many things happened.
inline std::size_t progress(Port& port, EventHandler& handler) {
  const std::size_t taken = take_events(port, handler);
  const std::size_t happened = port.progress();
  return taken + happened + take_events(port, handler);
}

}  // namespace ch3_offload
