#include "trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "text_table.h"
#include "trace_facts.h"
#include "trace_way.h"

namespace ch3_offload {
namespace {

/// By nearest rank: a time that was measured. In us. `sorted_ns`: in order.
std::string percentile(const std::vector<std::int64_t>& sorted_ns, std::size_t percent) {
  if (sorted_ns.empty()) return "-";
  const std::size_t rank = (sorted_ns.size() * percent + 99) / 100;
  return fmt::format("{:.3f}", static_cast<double>(sorted_ns[rank - 1]) / 1000);
}

std::string count(std::uint64_t value) { return value == 0 ? "-" : fmt::format("{}", value); }

/// What a row of a table adds up.
class Tally {
 public:
  void add(const MessageFacts& facts) {
    ++messages_;
    bytes_ += facts.bytes.value_or(0);
    arrived_ += facts.arrived;
    unexpected_ += facts.unexpected;
    failed_ += facts.failed;
    incomplete_ += !facts.gap.empty();
    if (facts.latency_ns) latencies_ns_.push_back(*facts.latency_ns);
  }

  std::uint64_t bytes() const noexcept { return bytes_; }

  /// The cells under kTallyTitles. Sorts the latencies.
  std::vector<std::string> cells(std::string name) {
    std::sort(latencies_ns_.begin(), latencies_ns_.end());
    return {std::move(name),
            fmt::format("{}", messages_),
            human_bytes(bytes_),
            percentile(latencies_ns_, 50),
            percentile(latencies_ns_, 99),
            share(unexpected_, arrived_),
            count(failed_),
            count(incomplete_)};
  }

 private:
  static std::string share(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) return "-";
    return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
  }

  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t arrived_ = 0;
  std::uint64_t unexpected_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t incomplete_ = 0;
  std::vector<std::int64_t> latencies_ns_;
};

TextTable tally_table(std::string name) {
  return TextTable({std::move(name), ">messages", ">bytes", ">median us", ">p99 us", ">unexpected", ">failed",
                    ">incomplete"});
}

struct RankTally {
  std::uint64_t sleeps = 0;
  std::int64_t asleep_ns = 0;
  std::uint64_t packets = 0;
  std::uint64_t credits = 0;
  std::uint64_t failed_peers = 0;
};

RankTally tally_rank(const RankTrace& rank) {
  RankTally tally;
  const JobEvent* asleep = nullptr;
  for (const JobEvent& event : rank.client.events) {
    if (asleep != nullptr) {
      tally.asleep_ns += event.time_ns - asleep->time_ns;
      asleep = nullptr;
    }
    if (event.event != TraceEvent::kSleep) continue;
    ++tally.sleeps;
    asleep = &event;
  }
  if (asleep != nullptr) tally.asleep_ns += rank.client.end_ns - asleep->time_ns;
  for (const JobEvent& event : rank.engine.events) {
    switch (event.event) {
      case TraceEvent::kPacketSent: ++tally.packets; break;
      case TraceEvent::kCreditSent: ++tally.credits; break;
      case TraceEvent::kPeerFailed: ++tally.failed_peers; break;
      default: break;
    }
  }
  return tally;
}

std::string render_ranks(const TraceJob& job) {
  TextTable table({">rank", "host", ">events", ">overwritten", ">sleeps", ">asleep us", ">packets",
                   ">credit messages", ">failed peers"});
  for (const RankTrace& rank : job.ranks()) {
    const RankTally tally = tally_rank(rank);
    table.add({fmt::format("{}", rank.rank), rank.host,
               fmt::format("{}", rank.engine.kept_events + rank.client.kept_events),
               fmt::format("{}", rank.engine.lost_events + rank.client.lost_events),
               fmt::format("{}", tally.sleeps),
               fmt::format("{:.3f}", static_cast<double>(tally.asleep_ns) / 1000),
               fmt::format("{}", tally.packets), fmt::format("{}", tally.credits),
               fmt::format("{}", tally.failed_peers)});
  }
  return table.render();
}

/// What the clients gave and took, and how long that waited between the two sides.
std::string render_commands(const TraceJob& job) {
  TextTable table({">rank", ">commands", ">at once", ">failed", ">unfinished", ">wait median us", ">p99 us",
                   ">event's wait median us", ">p99 us"});
  const std::span<const Command> commands = job.commands();
  for (std::size_t begin = 0; begin < commands.size();) {
    const std::uint32_t rank = commands[begin].rank;
    std::uint64_t at_once = 0, failed = 0, unfinished = 0;
    std::vector<std::int64_t> waits_ns, event_waits_ns;
    std::size_t end = begin;
    for (; end < commands.size() && commands[end].rank == rank; ++end) {
      const Command& command = commands[end];
      at_once += command.outcome == Progressed::kDone;
      failed += command.outcome == Progressed::kFailed;
      unfinished += command.is_unfinished();
      if (const auto wait_ns = command.command_wait_ns()) waits_ns.push_back(*wait_ns);
      if (const auto wait_ns = command.event_wait_ns()) event_waits_ns.push_back(*wait_ns);
    }
    std::sort(waits_ns.begin(), waits_ns.end());
    std::sort(event_waits_ns.begin(), event_waits_ns.end());
    table.add({fmt::format("{}", rank), fmt::format("{}", end - begin), fmt::format("{}", at_once),
               count(failed), count(unfinished), percentile(waits_ns, 50), percentile(waits_ns, 99),
               percentile(event_waits_ns, 50), percentile(event_waits_ns, 99)});
    begin = end;
  }
  return table.render();
}

/// Where the time of messages goes that did not wait for their receive.
std::string render_ways(const TraceJob& job) {
  // By protocol, then in the order of the way: by the place of the first message's step.
  using Step = std::pair<TraceEvent, TraceEvent>;
  struct Times {
    std::vector<Step> order;
    std::map<Step, std::vector<std::int64_t>> took_ns;
  };
  std::map<std::string_view, Times> by_protocol;
  const auto note = [](Times& times, const JobEvent& from, const JobEvent& to) {
    const auto [at, is_new] = times.took_ns.try_emplace({from.event, to.event});
    if (is_new) times.order.push_back(at->first);
    at->second.push_back(to.time_ns - from.time_ns);
  };
  for (const Message& message : job.messages()) {
    const std::vector<JobEvent> way = way_of(message);
    if (way.empty() || way.front().event != TraceEvent::kSendGiven ||
        way.back().event != TraceEvent::kReceiveTaken)
      continue;
    Times& times = by_protocol[facts_of(message, job).protocol];
    for (std::size_t i = 1; i < way.size(); ++i) note(times, way[i - 1], way[i]);
    note(times, way.front(), way.back());
  }
  TextTable table(
      {"protocol", "step of expected messages", "from", "to", ">messages", ">median us", ">p99 us"});
  for (auto& [protocol, times] : by_protocol) {
    for (const Step& step : times.order) {
      std::vector<std::int64_t>& took_ns = times.took_ns[step];
      std::sort(took_ns.begin(), took_ns.end());
      const bool is_whole = step == Step{TraceEvent::kSendGiven, TraceEvent::kReceiveTaken};
      table.add({std::string(protocol),
                 std::string(is_whole ? "all of it" : step_between(step.first, step.second)),
                 trace_event_name(step.first), trace_event_name(step.second),
                 fmt::format("{}", took_ns.size()), percentile(took_ns, 50), percentile(took_ns, 99)});
    }
  }
  return by_protocol.empty() ? std::string() : "\n" + table.render();
}

}  // namespace

std::string render_summary(const TraceJob& job, std::size_t most_pairs) {
  Tally all;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Tally> by_pair;
  std::map<std::string_view, Tally> by_protocol;
  for (const Message& message : job.messages()) {
    const MessageFacts facts = facts_of(message, job);
    all.add(facts);
    by_pair[{message.name.source, message.name.destination}].add(facts);
    by_protocol[facts.protocol].add(facts);
  }

  using PairTally = std::pair<std::pair<std::uint32_t, std::uint32_t>, Tally*>;
  std::vector<PairTally> pairs;
  for (auto& [pair, tally] : by_pair) pairs.emplace_back(pair, &tally);
  const std::size_t shown = most_pairs == 0 ? pairs.size() : std::min(most_pairs, pairs.size());
  if (shown < pairs.size()) {
    std::stable_sort(pairs.begin(), pairs.end(), [](const PairTally& a, const PairTally& b) {
      return a.second->bytes() > b.second->bytes();
    });
  }

  TextTable pair_table = tally_table("pair");
  for (std::size_t i = 0; i < shown; ++i)
    pair_table.add(
        pairs[i].second->cells(fmt::format("{} -> {}", pairs[i].first.first, pairs[i].first.second)));
  pair_table.add(all.cells("all"));
  std::string text = pair_table.render();
  if (shown < pairs.size())
    text +=
        fmt::format("({} pairs with fewer bytes are not shown; --pairs 0 shows all)\n", pairs.size() - shown);

  TextTable protocol_table = tally_table("protocol");
  for (auto& [protocol, tally] : by_protocol) protocol_table.add(tally.cells(std::string(protocol)));
  text += "\n" + protocol_table.render() + "\n" + render_ranks(job);
  return job.commands().empty() ? text : text + render_ways(job) + "\n" + render_commands(job);
}

}  // namespace ch3_offload
