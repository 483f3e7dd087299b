// What a check of nodes has found out.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check/check_lines.h"

namespace ch3_offload {

struct CheckedNode {
  std::string host{};     ///< As the user has named it.
  std::string why_not{};  ///< Why it could not be looked at, or no longer. Empty: it was.
  NodeReport report{};
  std::optional<std::int64_t> clock_offset_ns{};  ///< Its clock minus this node's.
  std::uint64_t clock_error_ns = 0;               ///< At most so wrong.

  bool answered() const noexcept { return why_not.empty(); }
};

/// Where a process listens, so that others can connect to it.
struct ListeningPlace {
  std::vector<std::string> hosts;  ///< IP addresses; not empty.
  std::uint16_t port = 0;          ///< TCP.
};
/// Nothing: its address is not of this version.
std::optional<ListeningPlace> listening_place(const NodeNetwork& network);

/// Dialled::why_not where the limit has passed.
inline constexpr std::string_view kNothingAnswers = "nothing answers";

/// How one node of a pair reaches the port at which the other listens.
struct Dialled {
  bool was_tried = false;
  std::string why_not{};  ///< Empty: it does.
};

struct CheckedPair {
  std::size_t first = 0, second = 0;  ///< Nodes.
  std::string network{};              ///< The provider. Empty: they have none in common.
  PairResult of_first{}, of_second{};
  Dialled first_dials{}, second_dials{};

  bool ok() const noexcept { return of_first.ok() && of_second.ok(); }
};

struct Checked {
  std::vector<CheckedNode> nodes;
  std::vector<CheckedPair> pairs;
  std::vector<std::string> said;  ///< By the library on the nodes, each line once.
};

/// The pairs to test of so many nodes: all of them, or, if there are more than kMostForAllPairs nodes and not
/// `all`, each node with those at distances 1, 2, 4, 8 ... from it.
inline constexpr std::size_t kMostForAllPairs = 64;
std::vector<std::pair<std::size_t, std::size_t>> pairs_to_test(std::size_t nodes, bool all);

/// Returns the network with that name, or null if the node has none.
const NodeNetwork* network_of(const NodeReport& report, std::string_view name);
/// Returns the IP addresses at which it listens. Empty: its address makes no sense.
std::vector<std::string> hosts_in(const NodeNetwork& network);
/// Returns the TCP port at which it listens, or 0 if its address makes no sense.
int port_in(const NodeNetwork& network);

/// Returns the rate of the slower end of the pair's link, or 0 if it is not known.
double link_bytes_per_s(const Checked& checked, const CheckedPair& pair);
/// Returns the rate of the slower direction.
double slower_bytes_per_s(const CheckedPair& pair);

/// "10 Gbit/s", or "-".
std::string rate_text(std::uint32_t rate_mbit);
std::string joined(const std::vector<std::string>& words, std::string_view between);

}  // namespace ch3_offload
