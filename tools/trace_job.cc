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
  std::map<std::uint32_t, const TraceFile*> by_rank;
  const TraceFile& first = files.front();
  for (const TraceFile& file : files) {
    if (file.header.job_size != first.header.job_size) {
      return refuse(fmt::format("{} is of a job of {} processes, {} of one of {}", first.path,
                                first.header.job_size, file.path, file.header.job_size));
    }
    const auto [place, is_new] = by_rank.try_emplace(file.header.self, &file);
    if (!is_new)
      return refuse(
          fmt::format("{} and {} are both of rank {}", place->second->path, file.path, file.header.self));
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

/// "1, 2, 5-9": ranks below job_size that are not in `present` (sorted), at most a line of them.
std::string list_missing(std::span<const RankTrace> present, std::uint32_t job_size) {
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
  for (const RankTrace& rank : present) {
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
    std::sort(order.begin(), order.end(),
              [this](std::size_t a, std::size_t b) { return files_[a].header.self < files_[b].header.self; });
    for (const std::size_t index : order) add(index);
    assemble();
    align();
    note_missing();
    note_lost();
    note_clocks();
    return std::move(job_);
  }

 private:
  /// Takes one file's events, on its node's own real-time clock for now.
  void add(std::size_t index) {
    const TraceFile& file = files_[index];
    RankTrace& rank = job_.ranks_.emplace_back();
    rank.rank = file.header.self;
    rank.process_id = file.header.process_id;
    rank.host = file.header.host;
    rank.kept_events = file.records.size();
    rank.lost_events = file.header.first_index;
    const std::uint64_t start =
        file.records.empty() ? file.header.at_start.clock_ns : file.records.front().time_ns;
    rank.start_ns = clock_.realtime_ns(index, start);
    rank.end_ns = clock_.realtime_ns(index, file.header.at_write.clock_ns);
    node_of_rank_[rank.rank] = clock_.node_of(index);
    for (const TraceRecord& record : file.records) {
      const auto event = static_cast<TraceEvent>(record.event);
      const JobEvent entry{clock_.realtime_ns(index, record.time_ns), record.detail, record.peer, event};
      const EventSide side = record.number == 0 ? EventSide::kNone : side_of(event);
      if (side == EventSide::kNone) {
        rank.events.push_back(entry);
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
    for (const RankTrace& rank : job_.ranks_) zero = std::min(zero, rank.start_ns + shift_of(rank.rank));
    for (RankTrace& rank : job_.ranks_) {
      const std::int64_t move_ns = shift_of(rank.rank) - zero;
      rank.start_ns += move_ns;
      rank.end_ns += move_ns;
      for (JobEvent& event : rank.events) event.time_ns += move_ns;
    }
    for (std::size_t i = 0; i < loose_.size(); ++i)
      job_.events_[i].time_ns += shift_of(loose_[i].rank) - zero;
    const bool simulated = files_.front().header.clock == static_cast<std::uint32_t>(TraceClock::kSimulated);
    job_.realtime_of_zero_ns_ = simulated ? 0 : zero;
  }

  std::int64_t shift_of(std::uint32_t rank) const { return shifts_[node_of_rank_.at(rank)]; }

  void note_missing() {
    const std::size_t missing = job_.job_size_ - job_.ranks_.size();
    if (missing == 0) return;
    job_.notes_.push_back(fmt::format("no trace of {} of {} ranks ({}): their side of messages is missing",
                                      missing, job_.job_size_, list_missing(job_.ranks_, job_.job_size_)));
  }

  void note_lost() {
    constexpr int kMostLines = 8;
    int lossy = 0;
    for (const RankTrace& rank : job_.ranks_) {
      if (rank.lost_events == 0 || ++lossy > kMostLines) continue;
      job_.notes_.push_back(fmt::format(
          "rank {}: its oldest {} events were overwritten; what it did before {:.3f} us is not known "
          "(MPIR_CVAR_CH3_OFFLOAD_TRACE_EVENTS keeps more)",
          rank.rank, rank.lost_events, static_cast<double>(rank.start_ns) / 1000));
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
