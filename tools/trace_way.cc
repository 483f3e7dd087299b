#include "trace_way.h"

namespace ch3_offload {

std::vector<JobEvent> way_of(const Message& message) {
  std::vector<JobEvent> way;
  if (find_event(message.received, TraceEvent::kUnexpected) != nullptr) return way;
  const auto add = [&way](const auto& event) {
    if (event) way.push_back(*event);
  };
  if (message.send != nullptr) {
    const Command& send = *message.send;
    way.push_back({send.given_ns, send.detail, send.peer, send.given});
    add(send.published);
    add(send.handed_on);
  }
  add(departure(message));
  add(find_event(message.received, TraceEvent::kMessageArrived));
  add(find_event(message.received, TraceEvent::kReceiveDone));
  if (message.receive != nullptr) {
    add(message.receive->told);
    add(message.receive->taken);
  }
  return way;
}

std::string_view step_between(TraceEvent from, TraceEvent to) noexcept {
  switch (to) {
    case TraceEvent::kCommandPublished: return "sender's call";
    case TraceEvent::kCommandTaken: return "command ring";
    case TraceEvent::kMessageArrived: return "wire";
    case TraceEvent::kReceiveDone: return "receiving NIC";
    case TraceEvent::kEventPublished: return "receiving NIC, event";
    case TraceEvent::kReceiveTaken:
      return from == TraceEvent::kEventPublished ? "event ring" : "until the receiver looks";
    default:
      return from == TraceEvent::kCommandTaken ? "sending NIC" : "sender's call and NIC";  // Departures.
  }
}

}  // namespace ch3_offload
