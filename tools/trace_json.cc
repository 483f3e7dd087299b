#include "trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "json_writer.h"
#include "trace_facts.h"
#include "trace_lanes.h"

namespace ch3_offload {
namespace {

// "Threads" of a rank, in the viewer's order from top to bottom. Not 0: that is the idle task to Perfetto, as
// is process 0 (see begin_event).
constexpr std::uint32_t kClientLane = 1;
constexpr std::uint32_t kEngineLane = 2;
constexpr std::uint32_t kFirstSendLane = 3;
constexpr std::uint32_t kFirstReceiveLane = 1'000'000;

/// One side of a message: a span on a lane.
struct Span {
  const Message* message;
  bool sending;
  std::uint32_t lane;

  std::span<const JobEvent> events() const { return sending ? message->sent : message->received; }
  std::int64_t begin_ns() const { return events().front().time_ns; }
  std::int64_t end_ns() const { return events().back().time_ns; }
};

struct RankSpans {
  std::vector<Span> spans;  ///< In order of begin.
  std::uint32_t send_lanes_end = kFirstSendLane;
  std::uint32_t receive_lanes_end = kFirstReceiveLane;
};

/// The lanes of both sides of a message.
struct MessageLanes {
  std::uint32_t send = 0;
  std::uint32_t receive = 0;
};

class TraceJsonWriter {
 public:
  TraceJsonWriter(const TraceJob& job, std::FILE* file) : job_(job), json_(file) {}

  int write() {
    json_.begin_object();
    json_.field("displayTimeUnit", "ns");
    json_.begin_array("traceEvents");
    place_spans();
    for (const RankTrace& rank : job_.ranks()) write_rank(rank);
    for (const Message& message : job_.messages()) write_arrows(message);
    json_.end();
    write_other_data();
    json_.end();
    return json_.finish();
  }

 private:
  void place_spans() {
    for (const Message& message : job_.messages()) {
      if (!message.sent.empty()) ranks_[message.name.source].spans.push_back({&message, true, 0});
      if (!message.received.empty()) ranks_[message.name.destination].spans.push_back({&message, false, 0});
    }
    lanes_.resize(job_.messages().size());
    for (auto& [rank, placed] : ranks_) {
      std::stable_sort(placed.spans.begin(), placed.spans.end(),
                       [](const Span& a, const Span& b) { return a.begin_ns() < b.begin_ns(); });
      Lanes sends(kFirstSendLane);
      Lanes receives(kFirstReceiveLane);
      for (Span& span : placed.spans) {
        span.lane = (span.sending ? sends : receives).take(span.begin_ns(), span.end_ns());
        MessageLanes& lanes = lanes_of(*span.message);
        (span.sending ? lanes.send : lanes.receive) = span.lane;
      }
      placed.send_lanes_end = sends.end();
      placed.receive_lanes_end = receives.end();
    }
  }

  MessageLanes& lanes_of(const Message& message) {
    return lanes_[static_cast<std::size_t>(&message - job_.messages().data())];
  }

  /// Opens an event; the caller adds what is special and closes it.
  void begin_event(std::string_view phase, std::string_view name, std::uint32_t rank, std::uint32_t lane) {
    json_.begin_object();
    json_.field("ph", phase);
    json_.field("name", name);
    json_.field("pid", std::uint64_t{rank} + 1);
    json_.field("tid", lane);
  }

  void begin_span(std::string_view name, std::string_view category, std::uint32_t rank, std::uint32_t lane,
                  std::int64_t begin_ns, std::int64_t end_ns) {
    begin_event("X", name, rank, lane);
    json_.field("cat", category);
    json_.field_us("ts", begin_ns);
    json_.field_us("dur", end_ns - begin_ns);
  }

  template <class Value>
  void write_metadata(std::string_view what, std::uint32_t rank, std::uint32_t lane, std::string_view key,
                      const Value& value) {
    begin_event("M", what, rank, lane);
    json_.begin_object("args");
    json_.field(key, value);
    json_.end();
    json_.end();
  }

  void write_rank(const RankTrace& rank) {
    write_metadata("process_name", rank.rank, kEngineLane, "name",
                   fmt::format("rank {} ({}, pid {})", rank.rank, rank.host, rank.process_id));
    write_metadata("process_sort_index", rank.rank, kEngineLane, "sort_index", rank.rank);
    if (rank.client.is_here) {
      name_lane(rank.rank, kClientLane, "client");
      write_client(rank);
    }
    name_lane(rank.rank, kEngineLane, "engine");
    for (const JobEvent& event : rank.engine.events) write_instant(rank.rank, kEngineLane, "engine", event);
    const auto found = ranks_.find(rank.rank);
    if (found == ranks_.end()) return;
    const RankSpans& placed = found->second;
    name_lanes(rank.rank, kFirstSendLane, placed.send_lanes_end, "sends");
    name_lanes(rank.rank, kFirstReceiveLane, placed.receive_lanes_end, "receives");
    for (const Span& span : placed.spans) write_message(rank.rank, span);
    write_levels(rank.rank, placed.spans);
  }

  void name_lanes(std::uint32_t rank, std::uint32_t first, std::uint32_t end, std::string_view what) {
    for (std::uint32_t lane = first; lane < end; ++lane)
      name_lane(rank, lane, lane == first ? std::string(what) : fmt::format("{} {}", what, lane - first + 1));
  }

  void name_lane(std::uint32_t rank, std::uint32_t lane, std::string_view name) {
    write_metadata("thread_name", rank, lane, "name", name);
    write_metadata("thread_sort_index", rank, lane, "sort_index", lane);
  }

  /// The client's calls and sleeps as spans, what it took as instants.
  void write_client(const RankTrace& rank) {
    const JobEvent* asleep = nullptr;
    const auto write_sleep = [&](std::int64_t end_ns) {
      begin_span("asleep", "sleep", rank.rank, kClientLane, asleep->time_ns, end_ns);
      json_.end();
      asleep = nullptr;
    };
    for (const JobEvent& event : rank.client.events) {
      if (event.event == TraceEvent::kSleep) {
        asleep = &event;
      } else if (event.event != TraceEvent::kWake) {
        write_instant(rank.rank, kClientLane, "client", event);
      } else if (asleep != nullptr) {
        write_sleep(event.time_ns);
      }
    }
    if (asleep != nullptr) write_sleep(rank.client.end_ns);
    const auto commands = job_.commands();
    auto command = std::lower_bound(commands.begin(), commands.end(), rank.rank,
                                    [](const Command& a, std::uint32_t b) { return a.rank < b; });
    for (; command != commands.end() && command->rank == rank.rank; ++command) write_command(*command);
  }

  void write_command(const Command& command) {
    const JobEvent given{command.given_ns, command.detail, command.peer, command.given};
    begin_span(trace_event_name(command.given), "command", command.rank, kClientLane, command.given_ns,
               command.returned_ns);
    json_.begin_object("args");
    json_.field("peer", command.peer);
    json_.field("detail", describe_detail(given));
    json_.field("outcome", outcome_name(command.outcome));
    if (command.message) json_.field("message", to_string(*command.message));
    if (const auto wait_ns = command.command_wait_ns()) json_.field_us("command_wait_us", *wait_ns);
    if (command.published && command.handed_on)
      json_.field_us("in_command_ring_us", command.handed_on->time_ns - command.published->time_ns);
    if (command.told && command.taken)
      json_.field_us("in_event_ring_us", command.taken->time_ns - command.told->time_ns);
    if (const auto wait_ns = command.event_wait_ns()) json_.field_us("event_wait_us", *wait_ns);
    if (command.is_cancelled) json_.field("cancelled", true);
    if (command.is_unfinished()) json_.field("unfinished", true);
    json_.end();
    json_.end();
    if (command.taken) write_instant(command.rank, kClientLane, "client", *command.taken);
  }

  void write_instant(std::uint32_t rank, std::uint32_t lane, std::string_view category,
                     const JobEvent& event) {
    begin_event("i", trace_event_name(event.event), rank, lane);
    json_.field("cat", category);
    json_.field("s", event.event == TraceEvent::kPeerFailed ? "p" : "t");  // The whole rank, or its lane.
    json_.field_us("ts", event.time_ns);
    json_.begin_object("args");
    json_.field("peer", event.peer);
    json_.field("detail", describe_detail(event));
    json_.end();
    json_.end();
  }

  void write_message(std::uint32_t rank, const Span& span) {
    const MessageName& message = span.message->name;
    const std::string name = span.sending ? fmt::format("to {} #{}", message.destination, message.number)
                                          : fmt::format("from {} #{}", message.source, message.number);
    begin_span(name, span.sending ? "send" : "receive", rank, span.lane, span.begin_ns(), span.end_ns());
    write_facts(*span.message);
    json_.end();
    const auto events = span.events();
    for (std::size_t i = 0; i + 1 < events.size(); ++i) {
      begin_span(phase_after(events[i].event), "phase", rank, span.lane, events[i].time_ns,
                 events[i + 1].time_ns);
      json_.begin_object("args");
      json_.field("after", trace_event_name(events[i].event));
      json_.field("detail", describe_detail(events[i]));
      json_.end();
      json_.end();
    }
  }

  void write_facts(const Message& message) {
    const MessageFacts facts = facts_of(message, job_);
    json_.begin_object("args");
    json_.field("message", to_string(message.name));
    json_.field("protocol", facts.protocol);
    if (facts.bytes) json_.field("bytes", *facts.bytes);
    if (facts.match_bits) json_.field("match_bits", fmt::format("{:#018x}", *facts.match_bits));
    if (facts.latency_ns) json_.field_us("latency_us", *facts.latency_ns);
    if (facts.arrived) json_.field("unexpected", facts.unexpected);
    if (facts.failed) json_.field("failed", true);
    if (!facts.gap.empty()) json_.field("incomplete", facts.gap);
    json_.end();
  }

  /// Counter tracks: levels, as far as the kept events tell.
  void write_levels(std::uint32_t rank, const std::vector<Span>& spans) {
    std::vector<std::pair<std::int64_t, int>> sends;  // When; one more or one less.
    std::vector<std::pair<std::int64_t, std::int64_t>> bytes;
    std::vector<std::pair<std::int64_t, int>> messages;
    for (const Span& span : spans) {
      if (span.sending) {
        sends.emplace_back(span.begin_ns(), 1);
        sends.emplace_back(span.end_ns(), -1);
      } else if (const JobEvent* kept = find_event(span.events(), TraceEvent::kUnexpected)) {
        const auto length = static_cast<std::int64_t>(
            std::min<std::uint64_t>(kept->detail, std::numeric_limits<std::uint32_t>::max()));
        messages.emplace_back(kept->time_ns, 1);
        bytes.emplace_back(kept->time_ns, length);
        if (const JobEvent* matched = find_event(span.events(), TraceEvent::kMatched)) {
          messages.emplace_back(matched->time_ns, -1);
          bytes.emplace_back(matched->time_ns, -length);
        }
      }
    }
    write_level("unfinished sends", "sends", rank, sends);
    write_level("unexpected messages", "messages", rank, messages);
    write_level("unexpected bytes", "bytes", rank, bytes);
  }

  template <class Steps>
  void write_level(std::string_view name, std::string_view unit, std::uint32_t rank, Steps& steps) {
    std::stable_sort(steps.begin(), steps.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::int64_t level = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      level += steps[i].second;
      if (i + 1 < steps.size() && steps[i + 1].first == steps[i].first) continue;  // One value per instant.
      begin_event("C", name, rank, kEngineLane);
      json_.field_us("ts", steps[i].first);
      json_.begin_object("args");
      json_.field(unit, level);
      json_.end();
      json_.end();
    }
  }

  void write_arrows(const Message& message) {
    const auto sent = [&](TraceEvent event) { return find_event(message.sent, event); };
    const auto received = [&](TraceEvent event) { return find_event(message.received, event); };
    write_command_arrow(message);
    write_arrow(message, "message", true, departure(message), received(TraceEvent::kMessageArrived));
    write_arrow(message, "clear-to-send", false, received(TraceEvent::kCtsSent),
                sent(TraceEvent::kCtsArrived));
    write_arrow(message, "acknowledgement", false, received(TraceEvent::kAckSent),
                sent(TraceEvent::kAckArrived));
    write_arrow(message, "payload", true, sent(TraceEvent::kWritePosted), received(TraceEvent::kReceiveDone));
    write_arrow(message, "payload", true, sent(TraceEvent::kBounceStarted),
                received(TraceEvent::kReceiveDone));
  }

  void write_arrow(const Message& message, std::string_view name, bool forward, const JobEvent* from,
                   const JobEvent* to) {
    if (from == nullptr || to == nullptr) return;
    write_arrow_end(message, name, "s", forward, from->time_ns);
    write_arrow_end(message, name, "f", !forward, to->time_ns);
  }

  /// From the call of a send to what the engine made of it.
  void write_command_arrow(const Message& message) {
    if (message.send == nullptr || message.sent.empty() || !message.send->begun) return;
    const std::uint32_t rank = message.name.source;
    const auto write_end = [&](std::string_view phase, std::uint32_t lane, std::int64_t time_ns) {
      begin_event(phase, "command", rank, lane);
      json_.field("cat", "command");
      json_.field("id", fmt::format("{} command", to_string(message.name)));
      if (phase == "f") json_.field("bp", "e");
      json_.field_us("ts", time_ns);
      json_.end();
    };
    write_end("s", kClientLane, message.send->given_ns);
    write_end("f", lanes_of(message).send, message.send->begun->time_ns);
  }

  void write_arrow_end(const Message& message, std::string_view name, std::string_view phase, bool at_source,
                       std::int64_t time_ns) {
    const MessageLanes& lanes = lanes_of(message);
    begin_event(phase, name, at_source ? message.name.source : message.name.destination,
                at_source ? lanes.send : lanes.receive);
    json_.field("cat", name);
    json_.field("id", fmt::format("{} {}", to_string(message.name), name));
    if (phase == "f") json_.field("bp", "e");  // Ends at the span around it, not at the next one.
    json_.field_us("ts", time_ns);
    json_.end();
  }

  void write_other_data() {
    json_.begin_object("otherData");
    json_.field("job_size", job_.job_size());
    // As a string: a double does not hold it.
    if (job_.realtime_of_zero_ns() != 0)
      json_.field("realtime_of_zero_ns", fmt::format("{}", job_.realtime_of_zero_ns()));
    json_.begin_array("notes");
    for (const std::string& note : job_.notes()) json_.element(note);
    json_.end();
    json_.end();
  }

  const TraceJob& job_;
  JsonWriter json_;
  std::map<std::uint32_t, RankSpans> ranks_;
  std::vector<MessageLanes> lanes_;  ///< Per message.
};

}  // namespace

int write_json(const TraceJob& job, std::FILE* file) { return TraceJsonWriter(job, file).write(); }

}  // namespace ch3_offload
