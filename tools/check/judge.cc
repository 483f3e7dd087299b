#include "check/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "engine/wire.h"

namespace ch3_offload {
namespace {

constexpr std::int64_t kWrongClockNs = 1'000'000'000;
/// A way with less than this part of its link's rate, or more than so many times the usual latency, is slow.
constexpr double kLeastOfLink = 0.5;
constexpr double kMuchSlower = 4;
constexpr std::size_t kLeastPairsToCompare = 3;

/// "node1, node2 and 7 others"
std::string names(const std::vector<std::string>& hosts, std::size_t of) {
  if (hosts.size() == of && of > 1) return "all nodes";
  constexpr std::size_t kMostNamed = 8;
  if (hosts.size() == 1) return hosts[0];
  std::vector<std::string> named(
      hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(std::min(hosts.size(), kMostNamed)));
  const std::size_t others = hosts.size() - named.size();
  if (others > 0)
    return fmt::format("{} and {} {}", joined(named, ", "), others, others == 1 ? "other" : "others");
  const std::string last = named.back();
  named.pop_back();
  return joined(named, ", ") + " and " + last;
}

/// By network; of those that have enough pairs.
std::map<std::string, std::uint64_t> median_latencies_ns(const Checked& checked) {
  std::map<std::string, std::vector<std::uint64_t>> latencies;
  for (const CheckedPair& pair : checked.pairs)
    if (pair.ok()) latencies[pair.network].push_back(pair.of_first.latency_ns);
  std::map<std::string, std::uint64_t> medians;
  for (auto& [network, values] : latencies) {
    if (values.size() < kLeastPairsToCompare) continue;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    medians[network] = *middle;
  }
  return medians;
}

class Judge {
 public:
  explicit Judge(const Checked& checked) : checked_(checked) {}

  std::vector<CheckFinding> run() {
    judge_nodes();
    judge_addresses();
    judge_links();
    judge_pairs();
    judge_speed();
    std::stable_partition(findings_.begin(), findings_.end(),
                          [](const CheckFinding& one) { return one.is_wrong; });
    return std::move(findings_);
  }

 private:
  void wrong(std::string text) { findings_.push_back({true, std::move(text)}); }
  void note(std::string text) { findings_.push_back({false, std::move(text)}); }
  const std::string& host(std::size_t node) const { return checked_.nodes[node].host; }

  void judge_nodes();
  void judge_addresses();
  void judge_links();
  void judge_pairs();
  void judge_speed();
  std::string why_failed(const CheckedPair& pair) const;

  const Checked& checked_;
  std::vector<CheckFinding> findings_;
};

void Judge::judge_nodes() {
  std::map<std::string, std::vector<std::string>> wrongs, notes;  // What several nodes say is said once.
  for (const CheckedNode& node : checked_.nodes) {
    if (!node.answered()) {
      const auto says = [&](const char* words) { return node.why_not.find(words) != std::string::npos; };
      const bool is_missing = says("status 127") || says("o such file");
      const bool is_older = says("--check-agent");
      wrong(fmt::format("{} does not answer: {}{}", node.host, node.why_not,
                        is_older
                            ? ". Its ch3-offload-info is of an older version: install the same on all nodes"
                        : is_missing ? ". Install under the same path on all nodes"
                                     : ""));
      continue;
    }
    if (node.report.version != PACKAGE_VERSION || node.report.wire_version != wire::kWireVersion)
      wrong(fmt::format(
          "{} has ch3-offload {} (wire version {}), and this node {} ({}): install the same on all "
          "nodes",
          node.host, node.report.version, node.report.wire_version, PACKAGE_VERSION, wire::kWireVersion));
    for (const std::string& text : node.report.wrong) wrongs[text].push_back(node.host);
    for (const std::string& text : node.report.notes) notes[text].push_back(node.host);
    if (node.report.congestion_control == "bbr" && network_of(node.report, "tcp") != nullptr)
      notes
          ["the congestion control bbr slows long messages over TCP (sysctl "
           "net.ipv4.tcp_congestion_control)"]
              .push_back(node.host);
    if (node.clock_offset_ns &&
        std::abs(*node.clock_offset_ns) > kWrongClockNs + static_cast<std::int64_t>(node.clock_error_ns))
      note(fmt::format(
          "the clock of {} is {:.1f} s {} this node's: Slurm's munge and Kerberos refuse what is minutes old",
          node.host, static_cast<double>(std::abs(*node.clock_offset_ns)) / 1e9,
          *node.clock_offset_ns > 0 ? "ahead of" : "behind"));
  }
  for (const auto& [text, hosts] : wrongs) wrong(names(hosts, checked_.nodes.size()) + ": " + text);
  for (const auto& [text, hosts] : notes) note(names(hosts, checked_.nodes.size()) + ": " + text);
}

/// Two nodes with one address: a bridge for containers has the same everywhere.
void Judge::judge_addresses() {
  std::map<std::string, std::vector<std::string>> owners;
  for (const CheckedNode& node : checked_.nodes) {
    std::vector<std::string> own;
    for (const NodeNetwork& network : node.report.networks)
      for (std::string& address : hosts_in(network)) own.push_back(std::move(address));
    std::ranges::sort(own);
    own.erase(std::unique(own.begin(), own.end()), own.end());
    for (const std::string& address : own) owners[address].push_back(node.host);
  }
  for (const auto& [address, hosts] : owners)
    if (hosts.size() > 1)
      wrong(
          fmt::format("{} have the same address, {}, so they are one node under several names, or it is not "
                      "an address between nodes: choose another interface with "
                      "MPIR_CVAR_CH3_OFFLOAD_INTERFACE",
                      names(hosts, 0), address));
}

/// MTU and rate of the nodes' links, where they differ.
void Judge::judge_links() {
  for (const std::string network_name : {"verbs", "tcp"}) {
    std::map<std::uint32_t, std::vector<std::string>> by_mtu, by_rate;
    for (const CheckedNode& node : checked_.nodes) {
      const NodeNetwork* const network = network_of(node.report, network_name);
      if (network == nullptr) continue;
      const std::string where = fmt::format("{} ({})", node.host, network->device);
      if (network->mtu_bytes != 0) by_mtu[network->mtu_bytes].push_back(where);
      if (network->rate_mbit != 0) by_rate[network->rate_mbit].push_back(where);
    }
    const auto listed = [](const auto& groups, auto text_of) {
      std::string text;
      for (const auto& [value, hosts] : groups)
        text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", text_of(value), names(hosts, 0));
      return text;
    };
    // Over verbs, two ports take the lesser one.
    if (by_mtu.size() > 1 && network_name == "tcp")
      note(fmt::format(
          "{}: the MTUs differ: {}. If long messages are slow or fail, set the same on all nodes, and on the "
          "switches",
          network_name, listed(by_mtu, [](std::uint32_t mtu) { return fmt::format("{}", mtu); })));
    if (by_rate.size() > 1)
      note(fmt::format("{}: the links differ: {}", network_name, listed(by_rate, rate_text)));
  }
}

std::string Judge::why_failed(const CheckedPair& pair) const {
  // Who has begun knows how far the two have come. Who has given up first knows why.
  const PairResult& failed = pair.of_first.ok() ? pair.of_second : pair.of_first;
  const bool other_knows = failed.why == kConnectionBroke && !pair.of_second.why.empty();
  const std::string& why = other_knows ? pair.of_second.why : failed.why;
  std::string text;
  switch (failed.stage) {
    case PairStage::kFirst: text = why; break;
    case PairStage::kShort: text = "the first message arrives, and then: " + why; break;
    case PairStage::kLong:
      text = fmt::format(
          "short messages arrive, and long ones do not: {} (an MTU on the way that is too small, or a "
          "firewall "
          "that drops what tells of it?)",
          why);
      break;
    case PairStage::kOver: break;
  }
  const auto add_dial = [&](const Dialled& dialled, std::size_t from, std::size_t to) {
    if (!dialled.was_tried) return;
    const NodeNetwork& network = *network_of(checked_.nodes[to].report, pair.network);
    const std::string where =
        fmt::format("{} at {}, TCP port {}", host(to), joined(hosts_in(network), " or "), port_in(network));
    text += dialled.why_not.empty()
                ? fmt::format("; {} can connect to {}", host(from), where)
                : fmt::format("; {} cannot connect to {}: {}", host(from), where, dialled.why_not);
  };
  add_dial(pair.first_dials, pair.first, pair.second);
  add_dial(pair.second_dials, pair.second, pair.first);
  if (pair.first_dials.why_not == kNothingAnswers || pair.second_dials.why_not == kNothingAnswers)
    text +=
        ". A firewall drops it (MPIR_CVAR_CH3_PORT_RANGE: the ports to open), or the address is wrong "
        "(MPIR_CVAR_CH3_OFFLOAD_INTERFACE)";
  return text;
}

void Judge::judge_pairs() {
  std::vector<std::size_t> tested(checked_.nodes.size()), failed(checked_.nodes.size());
  for (const CheckedPair& pair : checked_.pairs) {
    for (const std::size_t node : {pair.first, pair.second}) {
      ++tested[node];
      if (!pair.ok()) ++failed[node];
    }
  }
  // A node that nobody reaches is named once, with one of its pairs.
  std::vector<bool> is_said(checked_.nodes.size(), false);
  for (const CheckedPair& pair : checked_.pairs) {
    if (pair.ok()) continue;
    const std::string what = pair.network.empty() ? "" : " over " + pair.network;
    const auto is_cut_off = [&](std::size_t node) {
      return tested[node] > 1 && failed[node] == tested[node];
    };
    if (is_cut_off(pair.first) || is_cut_off(pair.second)) {
      const std::size_t node = is_cut_off(pair.first) ? pair.first : pair.second;
      if (!is_said[node])
        wrong(fmt::format(
            "{} exchanges messages with none of the {} nodes that it was tested with; with {}{}: {}",
            host(node), tested[node], host(node == pair.first ? pair.second : pair.first), what,
            why_failed(pair)));
      is_said[node] = true;
    } else {
      wrong(fmt::format("{} and {} exchange no messages{}: {}", host(pair.first), host(pair.second), what,
                        why_failed(pair)));
    }
  }
}

/// Ways that are slow for their link, and messages that take longer than between most nodes. The worst is named.
void Judge::judge_speed() {
  const CheckedPair *slowest = nullptr, *longest = nullptr;
  std::size_t slow = 0, with_link = 0, late = 0, well = 0;
  double least_part = kLeastOfLink;
  double most_times = kMuchSlower;
  const std::map<std::string, std::uint64_t> usual_ns = median_latencies_ns(checked_);
  for (const CheckedPair& pair : checked_.pairs) {
    if (!pair.ok()) continue;
    ++well;
    const double link = link_bytes_per_s(checked_, pair);
    const double part = link > 0 ? slower_bytes_per_s(pair) / link : 1;
    if (link > 0) ++with_link;
    if (part < kLeastOfLink) ++slow;
    if (part < least_part) {
      least_part = part;
      slowest = &pair;
    }
    const auto usual = usual_ns.find(pair.network);
    const double times = usual == usual_ns.end() ? 1
                                                 : static_cast<double>(pair.of_first.latency_ns) /
                                                       static_cast<double>(usual->second);
    if (times > kMuchSlower) ++late;
    if (times > most_times) {
      most_times = times;
      longest = &pair;
    }
  }
  if (slowest != nullptr)
    note(fmt::format(
        "{} of {} pairs move less than half of what their link does; the slowest, {} and {}: {:.3f} "
        "GB/s over {}, {:.0f} %",
        slow, with_link, host(slowest->first), host(slowest->second), slower_bytes_per_s(*slowest) / 1e9,
        slowest->network, 100 * least_part));
  if (longest != nullptr)
    note(fmt::format(
        "between {} of {} pairs a short message takes more than {} times as long as between most; "
        "{} and {}: {:.1f} us",
        late, well, kMuchSlower, host(longest->first), host(longest->second),
        static_cast<double>(longest->of_first.latency_ns) / 1000));
}

}  // namespace

std::vector<CheckFinding> judge(const Checked& checked) { return Judge(checked).run(); }

}  // namespace ch3_offload
