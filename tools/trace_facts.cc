#include "trace_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/match_key.h"
#include "rdma/status.h"

namespace ch3_offload {
namespace {

bool has(std::span<const JobEvent> side, TraceEvent event) noexcept {
  return find_event(side, event) != nullptr;
}

/// The sender knows best; a receiver alone can tell by its answers.
std::string_view protocol_of(const Message& message) noexcept {
  const auto sent = message.sent;
  if (has(sent, TraceEvent::kOptimisticSent) || has(message.received, TraceEvent::kPayloadDropped))
    return "optimistic";
  if (has(sent, TraceEvent::kBounceStarted)) return "rendezvous bounce";
  if (has(sent, TraceEvent::kWritePosted) || has(sent, TraceEvent::kWriteDone)) return "rendezvous write";
  if (has(sent, TraceEvent::kRtsSent) || has(message.received, TraceEvent::kCtsSent)) return "rendezvous";
  if (has(sent, TraceEvent::kSendEager)) return "eager";
  if (has(sent, TraceEvent::kSendShort)) return "short";
  return "unknown";
}

bool carries_length(TraceEvent event) noexcept {
  switch (event) {
    case TraceEvent::kSendPosted:
    case TraceEvent::kSendQueued:
    case TraceEvent::kSendBuffered:
    case TraceEvent::kSendShort:
    case TraceEvent::kSendEager:
    case TraceEvent::kRtsSent:
    case TraceEvent::kOptimisticSent:
    case TraceEvent::kMessageArrived:
    case TraceEvent::kUnexpected: return true;
    default: return false;
  }
}

std::optional<std::uint64_t> length_of(const Message& message) noexcept {
  for (const auto side : {message.sent, message.received}) {
    for (const JobEvent& event : side) {
      if (carries_length(event.event)) return event.detail;
    }
  }
  return std::nullopt;
}

bool is_bad(const JobEvent* done) noexcept {
  if (done == nullptr) return false;
  const auto status = static_cast<Status>(std::min<std::uint64_t>(done->detail, UINT8_MAX));
  return status != Status::kOk && status != Status::kTruncated;
}

/// Why a side of a message is not in the files; `otherwise`: its rank's trace has lost nothing.
std::string gap_of_rank(std::uint32_t rank, const TraceJob& job, std::string_view otherwise) {
  const RankTrace* const trace = job.find_rank(rank);
  if (trace == nullptr || !trace->engine.is_here) return fmt::format("no trace of rank {}", rank);
  if (trace->engine.lost_events > 0) return fmt::format("overwritten on rank {}", rank);
  return fmt::format("{} rank {}", otherwise, rank);
}

/// A send that left as one slot is done by that, without an event of its own.
bool send_is_done(const Message& message) noexcept {
  return has(message.sent, TraceEvent::kSendDone) || has(message.sent, TraceEvent::kSendShort);
}

std::string gap_of(const Message& message, const TraceJob& job) {
  const bool sent_whole = !message.sent.empty() && message.sent.front().event == TraceEvent::kSendPosted;
  if (!sent_whole) return gap_of_rank(message.name.source, job, "not recorded on");
  if (message.received.empty()) {
    if (is_bad(find_event(message.sent, TraceEvent::kSendDone))) return "send failed";
    if (departure(message) == nullptr) return "not sent";
    return gap_of_rank(message.name.destination, job, "not arrived at");
  }
  if (message.received.front().event != TraceEvent::kMessageArrived)
    return gap_of_rank(message.name.destination, job, "not recorded on");
  if (!has(message.received, TraceEvent::kMatched)) return "not matched";
  if (!has(message.received, TraceEvent::kReceiveDone)) return "receive unfinished";
  return send_is_done(message) ? "" : "send unfinished";
}

std::string_view news_name(std::uint64_t kind) noexcept {
  switch (static_cast<Event::Kind>(std::min<std::uint64_t>(kind, UINT8_MAX))) {
    case Event::Kind::kPacket: return "bytes of a packet";
    case Event::Kind::kPacketOffer: return "offer of a packet";
    case Event::Kind::kPacketPlaced: return "bytes of a packet in their place";
    case Event::Kind::kPeerFailed: return "peer failed";
    case Event::Kind::kCardWanted: return "card wanted";
    case Event::Kind::kLaneMade: return "lane made";
    case Event::Kind::kWarning: return "warning";
    case Event::Kind::kScheduleDone: return "collective done";
    default: return "unknown";
  }
}

std::string status_text(std::uint64_t detail) {
  return detail <= UINT8_MAX ? status_name(static_cast<Status>(detail)) : "Unknown";
}

}  // namespace

MessageFacts facts_of(const Message& message, const TraceJob& job) {
  MessageFacts facts;
  facts.protocol = protocol_of(message);
  facts.bytes = length_of(message);
  const JobEvent* const posted = find_event(message.sent, TraceEvent::kSendPosted);
  const JobEvent* const done = find_event(message.received, TraceEvent::kReceiveDone);
  if (posted != nullptr && done != nullptr) facts.latency_ns = done->time_ns - posted->time_ns;
  if (const JobEvent* const matched = find_event(message.received, TraceEvent::kMatched))
    facts.match_bits = matched->detail;
  facts.arrived = has(message.received, TraceEvent::kMessageArrived);
  facts.unexpected = has(message.received, TraceEvent::kUnexpected);
  facts.failed = is_bad(done) || is_bad(find_event(message.sent, TraceEvent::kSendDone));
  facts.gap = gap_of(message, job);
  return facts;
}

std::int64_t begin_of(const Message& message) noexcept {
  std::int64_t begin = INT64_MAX;
  for (const auto side : {message.sent, message.received}) {
    if (!side.empty()) begin = std::min(begin, side.front().time_ns);
  }
  return begin;
}

std::int64_t end_of(const Message& message) noexcept {
  std::int64_t end = INT64_MIN;
  for (const auto side : {message.sent, message.received}) {
    if (!side.empty()) end = std::max(end, side.back().time_ns);
  }
  return end;
}

std::string describe_detail(const JobEvent& event) {
  switch (event.event) {
    case TraceEvent::kSendPosted:
    case TraceEvent::kSendQueued:
    case TraceEvent::kSendBuffered:
    case TraceEvent::kSendShort:
    case TraceEvent::kSendEager:
    case TraceEvent::kRtsSent:
    case TraceEvent::kOptimisticSent:
    case TraceEvent::kCtsArrived:
    case TraceEvent::kWritePosted:
    case TraceEvent::kBounceStarted:
    case TraceEvent::kMessageArrived:
    case TraceEvent::kUnexpected:
    case TraceEvent::kPayloadDropped:
    case TraceEvent::kCtsSent:
    case TraceEvent::kCreditRequested:
    case TraceEvent::kCreditSent:
    case TraceEvent::kPacketSent:
    case TraceEvent::kPacketArrived:
    case TraceEvent::kMemoryRegistered:
    case TraceEvent::kMemoryRefused:
    case TraceEvent::kSendGiven:
    case TraceEvent::kPacketGiven: return fmt::format("{} bytes", event.detail);
    case TraceEvent::kMemoryEvicted:
    case TraceEvent::kMemoryGone: return fmt::format("{} regions", event.detail);
    case TraceEvent::kPeerConnected: return fmt::format("slots of {} bytes", event.detail);
    case TraceEvent::kWriteDone:
    case TraceEvent::kSendDone:
    case TraceEvent::kReceiveDone:
    case TraceEvent::kPeerFailed:
    case TraceEvent::kSendTaken:
    case TraceEvent::kReceiveTaken: return status_text(event.detail);
    case TraceEvent::kMatched:
    case TraceEvent::kReceivePosted:
    case TraceEvent::kReceiveGiven: {
      const std::uint64_t key = event.detail;
      return fmt::format("context {} source {} tag {}", context_of(key), initiator_of(key), tag_of(key));
    }
    case TraceEvent::kCancelRequested:
    case TraceEvent::kCancelGiven: return fmt::format("send id {}", event.detail);
    case TraceEvent::kCancelDecided:
    case TraceEvent::kCancelTaken: return event.detail != 0 ? "cancelled" : "too late";
    case TraceEvent::kProbe: return event.detail != 0 ? "found" : "nothing";
    case TraceEvent::kNewsTaken: return std::string(news_name(event.detail));
    case TraceEvent::kCommandPublished:
    case TraceEvent::kCommandTaken: return fmt::format("at {} of the ring", event.detail);
    case TraceEvent::kEventPublished:
    case TraceEvent::kAckArrived:
    case TraceEvent::kAckSent:
    case TraceEvent::kReceiveCancelled:
    case TraceEvent::kMatchedReceiveGiven:
    case TraceEvent::kSleep:
    case TraceEvent::kWake:
    case TraceEvent::kCount: break;
  }
  return {};
}

std::string_view phase_after(TraceEvent event) noexcept {
  switch (event) {
    case TraceEvent::kSendPosted: return "starts";
    case TraceEvent::kSendQueued: return "waits for room or an older send";
    case TraceEvent::kSendBuffered: return "buffered here, waits for the match";
    case TraceEvent::kSendShort: return "has left";
    case TraceEvent::kSendEager: return "sends its parts";
    case TraceEvent::kRtsSent: return "waits for clear-to-send";
    case TraceEvent::kOptimisticSent: return "waits for the acceptance";
    case TraceEvent::kCtsArrived: return "prepares the payload";
    case TraceEvent::kWritePosted: return "writes the payload";
    case TraceEvent::kBounceStarted: return "sends the payload through slots";
    case TraceEvent::kMessageArrived: return "looks for a receive";
    case TraceEvent::kUnexpected: return "waits for a receive";
    case TraceEvent::kMatched: return "is received";
    case TraceEvent::kPayloadDropped: return "waits for a receive, payload dropped";
    case TraceEvent::kCtsSent: return "waits for the payload";
    default: return "finishes";
  }
}

std::string_view outcome_name(Progressed outcome) noexcept {
  switch (outcome) {
    case Progressed::kDone: return "done at once";
    case Progressed::kPending: return "pending";
    case Progressed::kFailed: return "failed";
  }
  return "unknown";
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace ch3_offload
