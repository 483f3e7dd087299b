#include "trace_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "trace_clock.h"
#include "trace_join.h"

namespace ch3_offload {
namespace {

/// An event and the message that it belongs to, before sorting.
struct MessageEvent {
  MessageName name;
  EventSide side;
  std::uint32_t rank;  ///< Of the process that recorded it.
  JobEvent event;
};

Error refuse(std::string message) { return {Status::kProtocol, 0, std::move(message)}; }

std::optional<Error> check_one_job(const std::vector<TraceFile>& files) {
  std::map<std::pair<std::uint32_t, std::uint16_t>, const TraceFile*> by_side;
  const TraceFile& first = files.front();
  for (const TraceFile& file : files) {
    if (file.header.job_size != first.header.job_size) {
      return refuse(fmt::format("{} is of a job of {} processes, {} of one of {}", first.path,
                                first.header.job_size, file.path, file.header.job_size));
    }
    const auto [place, is_new] = by_side.try_emplace({file.header.self, file.header.side}, &file);
    if (!is_new) {
      return refuse(fmt::format("{} and {} are both of rank {}{}", place->second->path, file.path,
                                file.header.self, file.is_of_client() ? "'s client" : ""));
    }
    if (file.header.clock != first.header.clock)
      return refuse(fmt::format("{} ran on a simulated clock, or {} did; not both", first.path, file.path));
    const auto apart = static_cast<std::int64_t>(file.header.at_start.realtime_ns) -
                       static_cast<std::int64_t>(first.header.at_start.realtime_ns);
    if (std::abs(apart) > static_cast<std::int64_t>(kLongestTraceNs))
      return refuse(fmt::format("{} and {} were made years apart", first.path, file.path));
  }
  return std::nullopt;
}

std::int64_t took(const JobEvent& from, const JobEvent& to) noexcept { return to.time_ns - from.time_ns; }

struct Hop {
  TraceEvent from, to;
  bool forward;  ///< From the source to the destination.
};
/// Events on one side that cause one on the other. The envelope's hop is departure().
constexpr Hop kHops[] = {
    {TraceEvent::kCtsSent, TraceEvent::kCtsArrived, false},
    {TraceEvent::kAckSent, TraceEvent::kAckArrived, false},
};

void note_flight(ShortestFlights& flights, std::size_t from, std::size_t to, std::int64_t took_ns) {
  const auto [place, is_new] = flights.try_emplace({from, to}, took_ns);
  if (!is_new) place->second = std::min(place->second, took_ns);
}

/// Flights between different nodes. `node_of_rank` of ranks without a file is not asked for.
ShortestFlights find_flights(std::span<const Message> messages,
                             const std::map<std::uint32_t, std::size_t>& node_of_rank) {
  ShortestFlights flights;
  for (const Message& message : messages) {
    if (message.sent.empty() || message.received.empty()) continue;
    const std::size_t source = node_of_rank.at(message.name.source);
    const std::size_t destination = node_of_rank.at(message.name.destination);
    if (source == destination) continue;
    const JobEvent* const left = departure(message);
    const JobEvent* const arrived = find_event(message.received, TraceEvent::kMessageArrived);
    if (left != nullptr && arrived != nullptr)
      note_flight(flights, source, destination, took(*left, *arrived));
    for (const Hop& hop : kHops) {
      const JobEvent* const from = find_event(message.received, hop.from);
      const JobEvent* const to = find_event(message.sent, hop.to);
      if (from != nullptr && to != nullptr) note_flight(flights, destination, source, took(*from, *to));
    }
  }
  return flights;
}

bool arrives_before_it_left(const Message& message) {
  const JobEvent* const left = departure(message);
  const JobEvent* const arrived = find_event(message.received, TraceEvent::kMessageArrived);
  return left != nullptr && arrived != nullptr && arrived->time_ns < left->time_ns;
}

/// "1, 2, 5-9": ranks below job_size without that side in `ranks` (sorted), at most a line of them.
std::string list_missing(std::span<const RankTrace> ranks, SideTrace RankTrace::*side,
                         std::uint32_t job_size) {
  constexpr int kMostRanges = 10;
  std::string text;
  int ranges = 0;
  std::uint32_t next = 0;
  const auto add = [&](std::uint32_t end) {  // Ranks next .. end - 1 are missing.
    if (next >= end) return;
    if (++ranges <= kMostRanges) {
      text += ranges > 1 ? ", " : "";
      text += end - next == 1 ? fmt::format("{}", next) : fmt::format("{}-{}", next, end - 1);
    } else if (ranges == kMostRanges + 1) {
      text += ", ...";
    }
  };
  for (const RankTrace& rank : ranks) {
    if (!(rank.*side).is_here) continue;
    add(rank.rank);
    next = rank.rank + 1;
  }
  add(job_size);
  return text;
}

}  // namespace

std::string to_string(const MessageName& name) {
  return fmt::format("{}:{}:{}", name.source, name.destination, name.number);
}

EventSide side_of(TraceEvent event) noexcept {
  if (event <= TraceEvent::kCancelDecided) return EventSide::kSending;
  return event <= TraceEvent::kReceiveDone ? EventSide::kReceiving : EventSide::kNone;
}

const JobEvent* find_event(std::span<const JobEvent> side, TraceEvent event) noexcept {
  for (const JobEvent& candidate : side) {
    if (candidate.event == event) return &candidate;
  }
  return nullptr;
}

const JobEvent* departure(const Message& message) noexcept {
  for (const JobEvent& event : message.sent) {
    switch (event.event) {
      case TraceEvent::kSendShort:
      case TraceEvent::kSendEager:
      case TraceEvent::kRtsSent:
      case TraceEvent::kOptimisticSent: return &event;
      default: break;
    }
  }
  return nullptr;
}

/// Makes a TraceJob of checked files, step by step.
class TraceJobBuilder {
 public:
  explicit TraceJobBuilder(const std::vector<TraceFile>& files) : files_(files), clock_(files) {
    job_.job_size_ = files.front().header.job_size;
  }

  TraceJob build() {
    std::vector<std::size_t> order(files_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto place_of = [this](std::size_t index) {
      return std::pair(files_[index].header.self, files_[index].header.side);
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return place_of(a) < place_of(b); });
    for (const std::size_t index : order) add(index);
    assemble();
    align();
    for (const RankTrace& rank : job_.ranks_) join_commands(rank, steps_[rank.rank], job_.commands_);
    connect();
    note_missing();
    note_lost();
    note_clocks();
    return std::move(job_);
  }

 private:
  /// Takes one file's events, on its node's own real-time clock for now.
  void add(std::size_t index) {
    const TraceFile& file = files_[index];
    if (job_.ranks_.empty() || job_.ranks_.back().rank != file.header.self)
      job_.ranks_.push_back({file.header.self, file.header.process_id, file.header.host, {}, {}});
    RankTrace& rank = job_.ranks_.back();
    const bool by_client = file.is_of_client();
    SideTrace& trace = by_client ? rank.client : rank.engine;
    trace.is_here = true;
    trace.kept_events = file.records.size();
    trace.lost_events = file.header.first_index;
    const std::uint64_t start =
        file.records.empty() ? file.header.at_start.clock_ns : file.records.front().time_ns;
    trace.start_ns = clock_.realtime_ns(index, start);
    trace.end_ns = clock_.realtime_ns(index, file.header.at_write.clock_ns);
    node_of_rank_.try_emplace(rank.rank, clock_.node_of(index));
    for (const TraceRecord& record : file.records) {
      const auto event = static_cast<TraceEvent>(record.event);
      const JobEvent entry{clock_.realtime_ns(index, record.time_ns), record.detail, record.peer, event};
      const EventSide side = by_client || record.number == 0 ? EventSide::kNone : side_of(event);
      if (takes_part_in_command(event, record.cookie))
        steps_[rank.rank].push_back(
            {entry, record.cookie, record.number, static_cast<Progressed>(record.outcome), by_client});
      if (side == EventSide::kNone) {
        if (!by_client || !is_step_of_client(event)) trace.events.push_back(entry);
      } else if (side == EventSide::kSending) {
        loose_.push_back({{rank.rank, record.peer, record.number}, side, rank.rank, entry});
      } else {
        loose_.push_back({{record.peer, rank.rank, record.number}, side, rank.rank, entry});
      }
    }
  }

  /// Brings the events of each message together.
  void assemble() {
    std::stable_sort(loose_.begin(), loose_.end(), [](const MessageEvent& a, const MessageEvent& b) {
      return std::tie(a.name, a.side) < std::tie(b.name, b.side);
    });
    job_.events_.reserve(loose_.size());  // Spans point into it.
    for (std::size_t begin = 0; begin < loose_.size();) {
      Message message{loose_[begin].name, {}, {}};
      std::size_t sent = 0;
      std::size_t end = begin;
      for (; end < loose_.size() && loose_[end].name == message.name; ++end) {
        sent += loose_[end].side == EventSide::kSending;
        job_.events_.push_back(loose_[end].event);
      }
      const std::span events(job_.events_.data() + begin, end - begin);
      message.sent = events.first(sent);
      message.received = events.subspan(sent);
      job_.messages_.push_back(message);
      begin = end;
    }
  }

  /// Corrects the nodes' clocks against each other and puts time 0 at the earliest event.
  void align() {
    shifts_ = align_nodes(clock_.node_count(), find_flights(job_.messages_, node_of_rank_));
    std::int64_t zero = INT64_MAX;
    for (const RankTrace& rank : job_.ranks_) {
      for (const SideTrace* const side : {&rank.engine, &rank.client})
        if (side->is_here) zero = std::min(zero, side->start_ns + shift_of(rank.rank));
    }
    for (RankTrace& rank : job_.ranks_) {
      const std::int64_t move_ns = shift_of(rank.rank) - zero;
      for (SideTrace* const side : {&rank.engine, &rank.client}) {
        side->start_ns += move_ns;
        side->end_ns += move_ns;
        for (JobEvent& event : side->events) event.time_ns += move_ns;
      }
      for (CommandStep& step : steps_[rank.rank]) step.event.time_ns += move_ns;
    }
    for (std::size_t i = 0; i < loose_.size(); ++i)
      job_.events_[i].time_ns += shift_of(loose_[i].rank) - zero;
    const bool simulated = files_.front().header.clock == static_cast<std::uint32_t>(TraceClock::kSimulated);
    job_.realtime_of_zero_ns_ = simulated ? 0 : zero;
  }

  /// Tells the messages of their commands.
  void connect() {
    for (const Command& command : job_.commands_) {
      if (!command.message) continue;
      const auto at = std::lower_bound(job_.messages_.begin(), job_.messages_.end(), *command.message,
                                       [](const Message& a, const MessageName& b) { return a.name < b; });
      if (at == job_.messages_.end() || at->name != *command.message) continue;
      (command.given == TraceEvent::kSendGiven ? at->send : at->receive) = &command;
    }
  }

  std::int64_t shift_of(std::uint32_t rank) const { return shifts_[node_of_rank_.at(rank)]; }

  void note_missing() {
    const auto here = [this](SideTrace RankTrace::*side) {
      return static_cast<std::size_t>(
          std::count_if(job_.ranks_.begin(), job_.ranks_.end(),
                        [&](const RankTrace& rank) { return (rank.*side).is_here; }));
    };
    const std::size_t engines = here(&RankTrace::engine);
    const std::size_t clients = here(&RankTrace::client);
    if (engines < job_.job_size_) {
      job_.notes_.push_back(fmt::format("no trace of {} of {} ranks ({}): their side of messages is missing",
                                        job_.job_size_ - engines, job_.job_size_,
                                        list_missing(job_.ranks_, &RankTrace::engine, job_.job_size_)));
    }
    if (clients > 0 && clients < job_.job_size_) {
      job_.notes_.push_back(
          fmt::format("no trace of the client of {} of {} ranks ({}): their commands are missing",
                      job_.job_size_ - clients, job_.job_size_,
                      list_missing(job_.ranks_, &RankTrace::client, job_.job_size_)));
    }
  }

  void note_lost() {
    constexpr int kMostLines = 8;
    int lossy = 0;
    for (const RankTrace& rank : job_.ranks_) {
      const std::uint64_t lost = rank.engine.lost_events + rank.client.lost_events;
      if (lost == 0 || ++lossy > kMostLines) continue;
      std::int64_t start_ns = INT64_MIN;
      for (const SideTrace* const side : {&rank.engine, &rank.client})
        if (side->lost_events > 0) start_ns = std::max(start_ns, side->start_ns);
      job_.notes_.push_back(fmt::format(
          "rank {}: its oldest {} events were overwritten; what it did before {:.3f} us is not known "
          "(MPIR_CVAR_CH3_OFFLOAD_TRACE_EVENTS keeps more)",
          rank.rank, lost, static_cast<double>(start_ns) / 1000));
    }
    if (lossy > kMostLines)
      job_.notes_.push_back(
          fmt::format("{} other ranks lost their oldest events as well", lossy - kMostLines));
  }

  void note_clocks() {
    std::set<std::size_t> noted;
    for (const RankTrace& rank : job_.ranks_) {
      const std::int64_t shift_ns = shift_of(rank.rank);
      if (shift_ns == 0 || !noted.insert(node_of_rank_.at(rank.rank)).second) continue;
      job_.notes_.push_back(
          fmt::format("the clock of node {} was moved by {:+.3f} us to agree with the messages", rank.host,
                      static_cast<double>(shift_ns) / 1000));
    }
    std::size_t between_nodes = 0;
    std::size_t within_nodes = 0;
    for (const Message& message : job_.messages_) {
      if (!arrives_before_it_left(message)) continue;
      const bool one_clock =
          node_of_rank_.at(message.name.source) == node_of_rank_.at(message.name.destination);
      ++(one_clock ? within_nodes : between_nodes);
    }
    note_early(between_nodes, "between nodes", "the nodes' clocks disagree");
    note_early(within_nodes, "within a node", "its processors' clocks disagree");
  }

  void note_early(std::size_t messages, std::string_view where, std::string_view why) {
    if (messages == 0) return;
    job_.notes_.push_back(fmt::format("{} message{} {} {} to arrive before leaving: {}", messages,
                                      messages == 1 ? "" : "s", where, messages == 1 ? "seems" : "seem",
                                      why));
  }

  const std::vector<TraceFile>& files_;
  const RealtimeClock clock_;
  std::map<std::uint32_t, std::size_t> node_of_rank_;
  std::vector<MessageEvent> loose_;
  std::map<std::uint32_t, std::vector<CommandStep>> steps_;  ///< Per rank.
  std::vector<std::int64_t> shifts_;  ///< Per node.
  TraceJob job_;
};

Result<TraceJob> TraceJob::merge(const std::vector<TraceFile>& files) {
  if (files.empty()) return refuse("no trace files");
  if (auto error = check_one_job(files)) return std::move(*error);
  return TraceJobBuilder(files).build();
}

const RankTrace* TraceJob::find_rank(std::uint32_t rank) const noexcept {
  const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank,
                                   [](const RankTrace& a, std::uint32_t b) { return a.rank < b; });
  return at != ranks_.end() && at->rank == rank ? &*at : nullptr;
}

const Message* TraceJob::find(const MessageName& name) const noexcept {
  const auto at = std::lower_bound(messages_.begin(), messages_.end(), name,
                                   [](const Message& a, const MessageName& b) { return a.name < b; });
  return at != messages_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace ch3_offload
