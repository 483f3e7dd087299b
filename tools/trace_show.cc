#include "trace_show.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <iterator>
#include <system_error>
#include <utility>

#include "text_table.h"
#include "trace_facts.h"

namespace ch3_offload {
namespace {

struct Branches {
  std::string_view fork, last, pass, gap;
};
constexpr Branches kUnicodeBranches{"├── ", "└── ", "│   ", "    "};
constexpr Branches kAsciiBranches{"|-- ", "`-- ", "|   ", "    "};

/// An event of a message, or of the command of one of its sides.
struct Row {
  JobEvent event;
  std::string detail;
};

/// The events of one side of a message, with those of its client, in order of time.
std::vector<Row> rows_of(std::span<const JobEvent> events, const Command* command) {
  std::vector<Row> rows;
  if (command != nullptr) {
    const JobEvent given{command->given_ns, command->detail, command->peer, command->given};
    const std::string what = describe_detail(given);
    rows.push_back(
        {given, fmt::format("{}{}{}", what, what.empty() ? "" : ", ", outcome_name(command->outcome))});
  }
  const auto add = [&rows](const std::optional<JobEvent>& event) {
    if (event) rows.push_back({*event, describe_detail(*event)});
  };
  if (command != nullptr) {
    add(command->published);
    add(command->handed_on);
  }
  for (const JobEvent& event : events) rows.push_back({event, describe_detail(event)});
  if (command != nullptr) {
    add(command->told);
    add(command->taken);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.event.time_ns < b.event.time_ns; });
  return rows;
}

/// What on the other side of the message or of the port led to an event, if both are there: "0.890 after
/// RtsSent". `command`: of the event's side of the message; may be null.
std::string cause_of(const JobEvent& event, const Message& message, const Command* command) {
  const JobEvent* cause = nullptr;
  JobEvent given{};
  switch (event.event) {
    case TraceEvent::kSendPosted:
      if (command == nullptr) break;
      given = {command->given_ns, 0, 0, command->given};
      cause = &given;
      break;
    case TraceEvent::kCommandTaken:
      if (command != nullptr && command->published) cause = &*command->published;
      break;
    case TraceEvent::kSendTaken:
    case TraceEvent::kReceiveTaken:
      if (command == nullptr) break;
      if (command->told)
        cause = &*command->told;
      else if (command->done)
        cause = &*command->done;
      break;
    case TraceEvent::kMessageArrived: cause = departure(message); break;
    case TraceEvent::kCtsArrived: cause = find_event(message.received, TraceEvent::kCtsSent); break;
    case TraceEvent::kAckArrived: cause = find_event(message.received, TraceEvent::kAckSent); break;
    case TraceEvent::kReceiveDone:
      cause = find_event(message.sent, TraceEvent::kWritePosted);
      if (cause == nullptr) cause = find_event(message.sent, TraceEvent::kBounceStarted);
      break;
    default: break;
  }
  if (cause == nullptr) return {};
  return fmt::format("{:.3f} after {}", static_cast<double>(event.time_ns - cause->time_ns) / 1000,
                     trace_event_name(cause->event));
}

/// "2026-11-21 03:17:26.123456 UTC".
std::string wall_clock(std::int64_t realtime_ns) {
  const std::time_t seconds = realtime_ns / 1'000'000'000;
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "an unknown time";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:06} UTC", parts, realtime_ns % 1'000'000'000 / 1000);
}

class TreeText {
 public:
  TreeText(const Message& message, const TraceJob& job, LineArt art)
      : message_(message),
        job_(job),
        branches_(art == LineArt::kUnicode ? kUnicodeBranches : kAsciiBranches),
        begin_ns_(begin_of(message)) {}

  std::string render() {
    write_head();
    write_side(message_.sent, message_.send, message_.name.source, "sends", false);
    write_side(message_.received, message_.receive, message_.name.destination, "receives", true);
    return std::move(text_);
  }

 private:
  template <class... Arguments>
  void write(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  void write_head() {
    const MessageFacts facts = facts_of(message_, job_);
    write("message {}  {}", to_string(message_.name), facts.protocol);
    if (facts.bytes) write(", {}", human_bytes(*facts.bytes));
    if (facts.arrived) write(", {}", facts.unexpected ? "unexpected" : "expected");
    if (facts.latency_ns)
      write(", {:.3f} us from SendPosted to ReceiveDone", static_cast<double>(*facts.latency_ns) / 1000);
    if (facts.failed) write(", failed");
    if (!facts.gap.empty()) write(", incomplete: {}", facts.gap);
    write("\n{}us since {:.3f} us of the trace", branches_.pass, static_cast<double>(begin_ns_) / 1000);
    if (job_.realtime_of_zero_ns() != 0) write(" ({})", wall_clock(job_.realtime_of_zero_ns() + begin_ns_));
    write(", and since the event above\n");
  }

  void write_side(std::span<const JobEvent> events, const Command* command, std::uint32_t rank,
                  std::string_view does, bool last) {
    const RankTrace* const trace = job_.find_rank(rank);
    write("{}rank {}", last ? branches_.last : branches_.fork, rank);
    if (trace != nullptr && !trace->host.empty()) write(" on {}", trace->host);
    write(" {}", does);
    const bool is_here = trace != nullptr && trace->engine.is_here;
    if (!is_here) write(": no trace of it");
    if (is_here && events.empty())
      write("{}", trace->engine.lost_events > 0 ? ": its events were overwritten" : ": nothing recorded");
    write("\n");
    const std::string_view stem = last ? branches_.gap : branches_.pass;
    const std::vector<Row> rows = rows_of(events, command);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const JobEvent& event = rows[i].event;
      const std::int64_t step_ns = i == 0 ? 0 : event.time_ns - rows[i - 1].event.time_ns;
      std::string line =
          fmt::format("{}{}{:12.3f} {:>11}  {:<16} {:<33} {}", stem,
                      i + 1 == rows.size() ? branches_.last : branches_.fork,
                      static_cast<double>(event.time_ns - begin_ns_) / 1000,
                      i == 0 ? "" : fmt::format("{:+.3f}", static_cast<double>(step_ns) / 1000),
                      trace_event_name(event.event), rows[i].detail, cause_of(event, message_, command));
      line.erase(line.find_last_not_of(' ') + 1);
      write("{}\n", line);
    }
  }

  const Message& message_;
  const TraceJob& job_;
  const Branches branches_;
  const std::int64_t begin_ns_;
  std::string text_;
};

}  // namespace

std::optional<MessageName> parse_message_name(std::string_view text) {
  MessageName name{};
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](auto& value, bool last) {
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || (last ? next != end : next == end || *next != ':')) return false;
    at = last ? next : next + 1;
    return true;
  };
  if (!number(name.source, false) || !number(name.destination, false) || !number(name.number, true))
    return std::nullopt;
  return name;
}

std::string render_tree(const Message& message, const TraceJob& job, LineArt art) {
  return TreeText(message, job, art).render();
}

std::string render_list(const TraceJob& job) {
  std::vector<const Message*> messages;
  for (const Message& message : job.messages()) messages.push_back(&message);
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message* a, const Message* b) { return begin_of(*a) < begin_of(*b); });
  TextTable table({"message", ">from us", ">latency us", ">bytes", "protocol", "arrived", "remarks"});
  for (const Message* message : messages) {
    const MessageFacts facts = facts_of(*message, job);
    std::string remarks = facts.failed ? "failed" : "";
    if (!facts.gap.empty()) remarks += (remarks.empty() ? "" : ", ") + facts.gap;
    table.add({to_string(message->name),
               fmt::format("{:.3f}", static_cast<double>(begin_of(*message)) / 1000),
               facts.latency_ns ? fmt::format("{:.3f}", static_cast<double>(*facts.latency_ns) / 1000) : "-",
               facts.bytes ? fmt::format("{}", *facts.bytes) : "-", std::string(facts.protocol),
               !facts.arrived     ? "-"
               : facts.unexpected ? "unexpected"
                                  : "expected",
               remarks});
  }
  return table.render();
}

std::vector<const Message*> slowest(const TraceJob& job, std::size_t count) {
  std::vector<std::pair<std::int64_t, const Message*>> timed;
  for (const Message& message : job.messages()) {
    if (const auto latency_ns = facts_of(message, job).latency_ns) timed.emplace_back(*latency_ns, &message);
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<const Message*> messages;
  for (std::size_t i = 0; i < std::min(count, timed.size()); ++i) messages.push_back(timed[i].second);
  return messages;
}

}  // namespace ch3_offload
