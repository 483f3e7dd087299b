#include "check/checked.h"

#include <fmt/format.h>

#include <algorithm>

#include "rdma/tcp/tcp_address.h"
#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {

std::vector<std::pair<std::size_t, std::size_t>> pairs_to_test(std::size_t nodes, bool all) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  if (all || nodes <= kMostForAllPairs) {
    // By distance, so that those at the front have no node in common.
    for (std::size_t distance = 1; distance < nodes; ++distance)
      for (std::size_t node = 0; node + distance < nodes; ++node) pairs.emplace_back(node, node + distance);
    return pairs;
  }
  for (std::size_t distance = 1; distance <= nodes / 2; distance *= 2) {
    for (std::size_t node = 0; node < nodes; ++node) {
      const std::size_t other = (node + distance) % nodes;
      if (distance * 2 == nodes && other < node) continue;  // Each is at that distance from the other.
      pairs.emplace_back(std::min(node, other), std::max(node, other));
    }
  }
  return pairs;
}

std::optional<ListeningPlace> listening_place(const NodeNetwork& network) {
  if (const auto tcp = TcpAddress::parse(network.address)) return ListeningPlace{{tcp->host}, tcp->port};
  if (const auto verbs = VerbsAddress::parse(network.address))
    return ListeningPlace{verbs->hosts, verbs->port};
  return {};
}

const NodeNetwork* network_of(const NodeReport& report, std::string_view name) {
  const auto found = std::ranges::find(report.networks, name, &NodeNetwork::name);
  return found == report.networks.end() ? nullptr : &*found;
}

std::vector<std::string> hosts_in(const NodeNetwork& network) {
  const auto place = listening_place(network);
  return place ? place->hosts : std::vector<std::string>();
}

int port_in(const NodeNetwork& network) {
  const auto place = listening_place(network);
  return place ? place->port : 0;
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : std::string(between)) + word;
  return text;
}

std::string rate_text(std::uint32_t rate_mbit) {
  if (rate_mbit == 0) return "-";
  return rate_mbit >= 1000 ? fmt::format("{:g} Gbit/s", rate_mbit / 1000.0)
                           : fmt::format("{} Mbit/s", rate_mbit);
}

double link_bytes_per_s(const Checked& checked, const CheckedPair& pair) {
  std::uint32_t least_mbit = 0;
  for (const std::size_t node : {pair.first, pair.second}) {
    const NodeNetwork* const network = network_of(checked.nodes[node].report, pair.network);
    if (network == nullptr || network->rate_mbit == 0) return 0;
    least_mbit = least_mbit == 0 ? network->rate_mbit : std::min(least_mbit, network->rate_mbit);
  }
  return least_mbit * 1e6 / 8;
}

double slower_bytes_per_s(const CheckedPair& pair) {
  return static_cast<double>(std::min(pair.of_first.bytes_per_s, pair.of_second.bytes_per_s));
}

}  // namespace ch3_offload
