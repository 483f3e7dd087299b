// One clock for all ranks.
//
// Ranks of one node share CLOCK_MONOTONIC; that is exact. Between nodes the two pairs of clock readings in
// each header lead from there to CLOCK_REALTIME, which NTP keeps within a millisecond or so: too coarse for
// messages that take microseconds. So the messages themselves correct it, as NTP does with its packets: of
// all flights from node A to B the shortest bounds B's clock from one side, of all from B to A from the
// other, and the middle of the two is at most half the shortest round trip off.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "trace_file.h"

namespace ch3_offload {

/// Leads from the clock of each file to CLOCK_REALTIME, before corrections.
class RealtimeClock {
 public:
  explicit RealtimeClock(std::span<const TraceFile> files);

  /// When `time_ns` of file number `file` was, in ns since 1970.
  std::int64_t realtime_ns(std::size_t file, std::uint64_t time_ns) const noexcept;

  /// The node that wrote a file, numbered in order of appearance.
  std::size_t node_of(std::size_t file) const noexcept { return nodes_[file]; }
  std::size_t node_count() const noexcept { return lines_.size(); }

 private:
  /// A node's way from its clock to real time: through `from`, and that much faster.
  struct Line {
    TraceClockPair from;
    double drift;  ///< Seconds gained a second; 0 when nodes need not be compared.
  };

  std::vector<std::size_t> nodes_;  ///< Per file.
  std::vector<Line> lines_;         ///< Per node.
};

/// The shortest flight seen between two nodes, by their uncorrected clocks (so it may be negative). Key:
/// from node, to node. Value: ns.
using ShortestFlights = std::map<std::pair<std::size_t, std::size_t>, std::int64_t>;

/// The number of ns to add to each node's times. Node 0 keeps its own. Nodes that are connected in both
/// directions are centred; one that was only sent to, or only sent, is moved no further than it takes
/// to keep flights from being negative; one that nobody talked to keeps its own.
std::vector<std::int64_t> align_nodes(std::size_t node_count, const ShortestFlights& flights);

}  // namespace ch3_offload
