#include "nic/traced_port.h"

#include <utility>

namespace ch3_offload {

TracedPort::TracedPort(std::unique_ptr<Port> port, Trace& trace) noexcept
    : port_(std::move(port)), trace_(trace), self_(trace.self()) {
  events_.others = 1;
}

Progressed TracedPort::given(std::uint64_t given_ns, TraceEvent event, PeerId peer, std::uint64_t detail,
                             Cookie cookie, Progressed progressed) noexcept {
  trace_.record_at(given_ns, event, peer, trace_.now() - given_ns, detail, cookie,
                   static_cast<std::uint8_t>(progressed));
  // A command that failed before it went into the ring left the stamp of an earlier one.
  const CommandStamp stamp = port_->last_command();
  if (stamp.published_ns >= given_ns)
    trace_.record_at(stamp.published_ns, TraceEvent::kCommandPublished, self_, 0, stamp.position, cookie);
  return progressed;
}

Progressed TracedPort::send(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                            std::uint32_t send_id, Cookie cookie, OperationId& operation,
                            Status& status) noexcept {
  const std::uint64_t now_ns = trace_.now();
  return given(now_ns, TraceEvent::kSendGiven, peer, payload.length_bytes, cookie,
               port_->send(peer, mode, key, payload, send_id, cookie, operation, status));
}

Progressed TracedPort::send_packet(PeerId peer, std::span<const std::byte> header,
                                   std::span<const Payload> data, Cookie cookie, Status& status) noexcept {
  const std::uint64_t now_ns = trace_.now();
  std::size_t length_bytes = header.size();
  for (const Payload& part : data) length_bytes += part.length_bytes;
  return given(now_ns, TraceEvent::kPacketGiven, peer, length_bytes, cookie,
               port_->send_packet(peer, header, data, cookie, status));
}

Progressed TracedPort::post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                                    Cookie cookie, OperationId& operation, Envelope& envelope) noexcept {
  const std::uint64_t now_ns = trace_.now();
  return given(now_ns, TraceEvent::kReceiveGiven, self_, abridged(key & ~ignore), cookie,
               port_->post_receive(key, ignore, payload, cookie, operation, envelope));
}

Progressed TracedPort::receive_matched(MessageId message, const Payload& payload, Cookie cookie,
                                       Envelope& envelope) noexcept {
  const std::uint64_t now_ns = trace_.now();
  return given(now_ns, TraceEvent::kMatchedReceiveGiven, self_, 0, cookie,
               port_->receive_matched(message, payload, cookie, envelope));
}

Progressed TracedPort::cancel_send(OperationId operation, PeerId peer, const MatchKey& key,
                                   std::uint32_t send_id, Cookie cookie) noexcept {
  const std::uint64_t now_ns = trace_.now();
  return given(now_ns, TraceEvent::kCancelGiven, peer, send_id, cookie,
               port_->cancel_send(operation, peer, key, send_id, cookie));
}

bool TracedPort::next_event(Event& event) noexcept {
  if (!port_->next_event(event)) return false;
  const auto status = static_cast<std::uint64_t>(event.status);
  switch (event.kind) {
    case Event::Kind::kSendDone: trace_.record(TraceEvent::kSendTaken, self_, 0, status, event.cookie); break;
    case Event::Kind::kReceiveDone:
      trace_.record(TraceEvent::kReceiveTaken, self_, 0, status, event.cookie);
      break;
    case Event::Kind::kCancelDone:
      trace_.record(TraceEvent::kCancelTaken, self_, 0, event.is_cancelled, event.cookie);
      break;
    case Event::Kind::kWarning:
    case Event::Kind::kScheduleDone:
      trace_.record(TraceEvent::kNewsTaken, self_, 0, static_cast<std::uint64_t>(event.kind));
      break;
    default: trace_.record(TraceEvent::kNewsTaken, event.peer, 0, static_cast<std::uint64_t>(event.kind));
  }
  return true;
}

}  // namespace ch3_offload
