#include "ch3_offload/job_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "ch3_offload/settings.h"
#include "engine/card.h"
#include "engine/wire.h"
#include "rdma/checked/checked_frames.h"
#include "rdma/shm/bulk_copy.h"
#include "rdma/tcp/tcp_address.h"
#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {
namespace {

/// Networks between nodes, in the order in which a process prefers them: make_networks().
constexpr std::array<std::string_view, 2> kNetworks = {"verbs", "tcp"};

/// Nodes that have the same.
struct NodeClass {
  std::array<bool, kNetworks.size()> has{};
  std::optional<VerbsAddress> verbs;  ///< Of one node.
  std::vector<std::size_t> nodes;
  std::string host;  ///< The address of the first of them.

  /// Whether queue pairs can be connected. REQUIRES: both have verbs.
  bool meets(const NodeClass& other) const { return verbs->same_fabric(*other.verbs); }
  const char* fabric() const { return verbs->ethernet ? "RoCE" : "InfiniBand"; }
  bool is_like(const NodeClass& other) const { return has == other.has && (!verbs || meets(other)); }
};

NodeClass class_of(const ReportedNode& node) {
  NodeClass one;
  const std::optional<Card> card = parse_card(node.card);
  for (std::string_view addresses = card ? card->addresses : std::string_view{}; !addresses.empty();) {
    const std::string_view address = address_below(next_piece(addresses, ';'));
    if (const auto verbs = VerbsAddress::parse(address)) {
      one.has[0] = true;
      one.verbs = verbs;
      one.host = verbs->hosts.front();
    } else if (const auto tcp = TcpAddress::parse(address)) {
      one.has[1] = true;
      if (one.host.empty()) one.host = tcp->host;
    }
  }
  if (one.host.empty()) one.host = "no address";
  return one;
}

/// "0,2-5", or, if that would be long, "0,2-5,7 and 90 others".
std::string numbers(const std::vector<std::size_t>& nodes) {
  constexpr int kMostRuns = 8;
  std::string text;
  int runs = 0;
  for (std::size_t i = 0; i < nodes.size(); ++runs) {
    if (runs == kMostRuns) return text + " and " + std::to_string(nodes.size() - i) + " others";
    std::size_t last = i;
    while (last + 1 < nodes.size() && nodes[last + 1] == nodes[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(nodes[i]);
    if (last > i) text += "-" + std::to_string(nodes[last]);
    i = last + 1;
  }
  return text;
}

std::string named(const std::vector<std::size_t>& nodes) {
  return (nodes.size() > 1 ? "nodes " : "node ") + numbers(nodes);
}

/// With the address of the first one, by which an administrator knows it.
std::string described(const NodeClass& one) {
  return named(one.nodes) + " (" + one.host + (one.nodes.size() > 1 ? " and others)" : ")");
}

std::string how_messages_move(const ch3_offload_config_t& config, std::span<const Capabilities> own,
                              std::string_view name) {
  const std::string eager = std::to_string(config.eager_limit_bytes);
  const auto provider = std::ranges::find(own, name, &Capabilities::name);
  if (provider == own.end()) return "eager up to " + eager + " bytes";
  std::string text = "in one slot up to " +
                     std::to_string(provider->max_slot_bytes - sizeof(wire::EagerHeader)) +
                     " bytes, eager up to " + eager + " (MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT)";
  if (!provider->write || provider->write_threshold_bytes == SIZE_MAX)
    return text + ", longer ones through slots";
  if (provider->writes_by_copying)
    return text + ", longer ones from " + std::to_string(kLeastTimedBytes) +
           " on copied once by the kernel where that is faster";
  return text + ", longer ones written to their place from " +
         std::to_string(provider->write_threshold_bytes) + " on";
}

std::string driver_text(std::string_view driver) {
  if (driver == "process") return "by the processor of each node, ch3-offload-nicd";
  if (driver == "thread") return "by a thread of each process";
  return "inside the calls of MPI";
}

/// Why two classes, or the nodes of one, do not use the network with that number. Empty: they can.
std::string why_not(const ch3_offload_config_t& config, const NodeClass& one, const NodeClass& other,
                    std::size_t network) {
  const std::string name(kNetworks[network]);
  if (one.has[network] && other.has[network]) {
    if (network != 0 || one.meets(other)) return {};
    if (one.verbs->ethernet == other.verbs->ethernet) return "they are on different subnets of InfiniBand";
    return std::string("one side has ") + one.fabric() + ", the other " + other.fabric();
  }
  const FabricChoice fabric = fabric_choice(config.fabric);
  if (!(network == 0 ? fabric.verbs : fabric.tcp))
    return "MPIR_CVAR_CH3_OFFLOAD_FABRIC=" + std::string(config.fabric) + " leaves out " + name;
  std::vector<std::size_t> lacking;
  if (!one.has[network]) lacking = one.nodes;
  if (!other.has[network] && &other != &one)
    lacking.insert(lacking.end(), other.nodes.begin(), other.nodes.end());
  std::ranges::sort(lacking);
  return named(lacking) + (lacking.size() == 1 ? " has no " : " have no ") + name;
}

/// Between nodes of two classes, or within one.
std::string between(const ch3_offload_config_t& config, std::span<const Capabilities> own,
                    const NodeClass& one, const NodeClass& other) {
  std::string line =
      described(one) + (&one == &other ? " among themselves: " : " with " + described(other) + ": ");
  std::string why;
  for (std::size_t i = 0; i < kNetworks.size(); ++i) {
    const std::string lack = why_not(config, one, other, i);
    if (lack.empty()) {
      line += std::string(kNetworks[i]) + (i == 0 ? std::string(" (") + one.fabric() + ")" : "") + ", " +
              how_messages_move(config, own, kNetworks[i]);
      return why.empty() ? line : line + "; " + why;
    }
    why += (why.empty() ? "" : ", ") + lack;
  }
  return line + "nothing, so their first message will fail: " + why;
}

}  // namespace

std::vector<std::string> job_report(const ch3_offload_config_t& config, std::span<const Capabilities> own,
                                    std::string_view driver, std::span<const ReportedNode> nodes) {
  std::vector<NodeClass> classes;
  std::size_t ranks = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    ranks += nodes[node].ranks;
    NodeClass one = class_of(nodes[node]);
    auto same = std::ranges::find_if(classes, [&](const NodeClass& other) { return other.is_like(one); });
    if (same == classes.end()) same = classes.insert(classes.end(), std::move(one));
    same->nodes.push_back(node);
  }
  std::vector<std::string> lines{"report: " + std::to_string(ranks) +
                                 (ranks == 1 ? " rank on " : " ranks on ") + std::to_string(nodes.size()) +
                                 (nodes.size() == 1 ? " node" : " nodes") +
                                 "; messages are matched and moved " + driver_text(driver) +
                                 " (MPIR_CVAR_CH3_OFFLOAD_NIC=" + config.nic + ")"};
  if (std::string_view(config.checksum) != "off")
    lines.push_back(std::string("report: checksums of all messages ") +
                    (std::string_view(config.checksum) == "all" ? "between processes" : "between nodes") +
                    " (MPIR_CVAR_CH3_OFFLOAD_CHECKSUM=" + config.checksum + ")");
  const bool has_neighbours =
      std::ranges::any_of(nodes, [](const ReportedNode& node) { return node.ranks > 1; });
  if (has_neighbours && driver == "process")
    lines.push_back("report: within a node: the node's processor, eager up to " +
                    std::to_string(config.eager_limit_bytes) + " bytes");
  else if (has_neighbours && fabric_choice(config.fabric).shm)
    lines.push_back("report: within a node: shm, " + how_messages_move(config, own, "shm"));
  const bool networks_within = !fabric_choice(config.fabric).shm && driver != "process";
  for (std::size_t i = 0; i < classes.size(); ++i) {
    for (std::size_t j = i; j < classes.size(); ++j) {
      if (i == j && classes[i].nodes.size() == 1 && !networks_within) continue;
      lines.push_back("report: " + between(config, own, classes[i], classes[j]));
    }
  }
  return lines;
}

}  // namespace ch3_offload
