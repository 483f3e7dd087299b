#include "trace_clock.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>

namespace ch3_offload {
namespace {

/// A clock off by more than this was set, not drifting (crystals are good to 100 ppm, NTP slews by 500).
constexpr double kMostDrift = 1e-3;

/// No clock is corrected by more (2 years); keeps hostile files from overflowing sums.
constexpr std::int64_t kMostShiftNs = std::int64_t{1} << 56;

/// How fast real time ran against the node's own clock, minus 1.
double drift_of(const TraceFileHeader& header) {
  const auto own = static_cast<std::int64_t>(header.at_write.clock_ns - header.at_start.clock_ns);
  const auto real = static_cast<std::int64_t>(header.at_write.realtime_ns) -
                    static_cast<std::int64_t>(header.at_start.realtime_ns);
  if (own <= 0) return 0;
  const double drift = static_cast<double>(real - own) / static_cast<double>(own);
  return std::abs(drift) <= kMostDrift ? drift : 0;
}

/// Which clock a file's records were read from. One simulation has one clock, whatever the nodes.
std::pair<std::uint32_t, std::uint64_t> clock_key(const TraceFileHeader& header) {
  const bool simulated = header.clock == static_cast<std::uint32_t>(TraceClock::kSimulated);
  return {header.clock, simulated ? 0 : header.node_id};
}

/// What must be added to `to` so that flights between `from` and `to`, of which `from` is at its place
/// already, look right. Nothing: there were none.
std::optional<std::int64_t> shift_against(std::size_t from, std::size_t to, const ShortestFlights& flights) {
  const auto there = flights.find({from, to});
  const auto back = flights.find({to, from});
  if (there != flights.end() && back != flights.end()) return (back->second - there->second) / 2;
  if (there != flights.end()) return std::max<std::int64_t>(0, -there->second);
  if (back != flights.end()) return std::min<std::int64_t>(0, back->second);
  return std::nullopt;
}

}  // namespace

RealtimeClock::RealtimeClock(std::span<const TraceFile> files) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::size_t> node_of_clock;
  std::vector<std::uint64_t> longest_ns;  // The longest trace of a node gives the best line.
  for (const TraceFile& file : files) {
    const TraceFileHeader& header = file.header;
    const auto [place, is_new] = node_of_clock.try_emplace(clock_key(header), lines_.size());
    if (is_new) {
      lines_.push_back({header.at_start, 0});
      longest_ns.push_back(0);
    }
    nodes_.push_back(place->second);
    const std::uint64_t length_ns = header.at_write.clock_ns - header.at_start.clock_ns;
    if (length_ns <= longest_ns[place->second]) continue;
    longest_ns[place->second] = length_ns;
    lines_[place->second] = {header.at_start, drift_of(header)};
  }
  if (lines_.size() == 1) lines_[0].drift = 0;  // Durations stay exact.
}

std::int64_t RealtimeClock::realtime_ns(std::size_t file, std::uint64_t time_ns) const noexcept {
  const Line& line = lines_[nodes_[file]];
  const auto since = static_cast<std::int64_t>(time_ns) - static_cast<std::int64_t>(line.from.clock_ns);
  return static_cast<std::int64_t>(line.from.realtime_ns) + since +
         static_cast<std::int64_t>(static_cast<double>(since) * line.drift);
}

std::vector<std::int64_t> align_nodes(std::size_t node_count, const ShortestFlights& flights) {
  // Prim's algorithm: nodes join the tree of node 0 by the tightest round trip first, one-way ones last.
  struct Edge {
    bool one_way;
    std::int64_t round_trip_ns;
    std::size_t from, to;
    bool operator>(const Edge& other) const {
      return std::tie(one_way, round_trip_ns) > std::tie(other.one_way, other.round_trip_ns);
    }
  };
  std::vector<std::vector<std::size_t>> neighbours(node_count);
  for (const auto& [nodes, shortest] : flights) {
    neighbours[nodes.first].push_back(nodes.second);
    neighbours[nodes.second].push_back(nodes.first);
  }
  std::vector<std::int64_t> shifts(node_count, 0);
  std::vector<bool> placed(node_count, false);
  for (std::size_t root = 0; root < node_count; ++root) {  // Usually only node 0 finds itself unplaced.
    std::priority_queue<Edge, std::vector<Edge>, std::greater<>> edges;
    const auto place = [&](std::size_t node, std::int64_t shift) {
      placed[node] = true;
      shifts[node] = shift;
      for (const std::size_t next : neighbours[node]) {
        if (placed[next]) continue;
        const auto there = flights.find({node, next});
        const auto back = flights.find({next, node});
        const bool one_way = there == flights.end() || back == flights.end();
        edges.push({one_way, one_way ? 0 : there->second + back->second, node, next});
      }
    };
    if (placed[root]) continue;
    place(root, 0);
    while (!edges.empty()) {
      const Edge edge = edges.top();
      edges.pop();
      if (placed[edge.to]) continue;
      const std::int64_t shift = shifts[edge.from] + *shift_against(edge.from, edge.to, flights);
      place(edge.to, std::clamp(shift, -kMostShiftNs, kMostShiftNs));
    }
  }
  return shifts;
}

}  // namespace ch3_offload
