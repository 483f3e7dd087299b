#include "check/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "json_writer.h"
#include "text_table.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kMostPairsShown = 36;

std::string locked_text(std::uint64_t bytes) {
  if (bytes == UINT64_MAX) return "no limit";
  return bytes >= (1U << 20) ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

std::string clock_text(const CheckedNode& node) {
  if (!node.clock_offset_ns) return "-";
  const auto offset_ms = static_cast<double>(*node.clock_offset_ns) / 1e6;
  const auto error_ms = static_cast<double>(node.clock_error_ns) / 1e6;
  if (std::abs(offset_ms) <= error_ms) return "0";
  return std::abs(offset_ms) < 1000 ? fmt::format("{:+.1f} ms", offset_ms)
                                    : fmt::format("{:+.1f} s", offset_ms / 1000);
}

std::string render_nodes(const Checked& checked) {
  TextTable table(
      {"node", "host name", ">cores", "network", "at", "link", ">MTU", "locked memory", ">clock"});
  for (const CheckedNode& node : checked.nodes) {
    const NodeReport& report = node.report;
    if (!node.answered() || report.networks.empty()) {
      table.add({node.host, report.host_name, report.cores == 0 ? "-" : std::to_string(report.cores),
                 node.answered() ? "none" : "no answer", "", "", "", "", ""});
      continue;
    }
    for (const NodeNetwork& network : report.networks) {
      const bool is_first = &network == &report.networks.front();
      const std::string at =
          joined(hosts_in(network), "+") + (network.device.empty() ? "" : " " + network.device);
      table.add({is_first ? node.host : "", is_first ? report.host_name : "",
                 is_first ? std::to_string(report.cores) : "", network.name, at, rate_text(network.rate_mbit),
                 network.mtu_bytes == 0 ? "-" : std::to_string(network.mtu_bytes),
                 is_first ? locked_text(report.locked_bytes) : "", is_first ? clock_text(node) : ""});
    }
  }
  return table.render(2);
}

std::string render_pairs(const Checked& checked) {
  // If there are too many, those that fail and the slowest are shown.
  std::vector<const CheckedPair*> shown;
  for (const CheckedPair& pair : checked.pairs) shown.push_back(&pair);
  if (shown.size() > kMostPairsShown) {
    std::ranges::stable_sort(shown, [](const CheckedPair* one, const CheckedPair* other) {
      const auto key = [](const CheckedPair* pair) {
        return std::pair(pair->ok(), slower_bytes_per_s(*pair));
      };
      return key(one) < key(other);
    });
    shown.resize(kMostPairsShown);
  }
  TextTable table({"from", "to", "network", ">8 bytes, us", ">there, GB/s", ">back, GB/s", ">of the link"});
  for (const CheckedPair* const pair : shown) {
    const auto gigabytes = [&](const PairResult& result) {
      return pair->ok() ? fmt::format("{:.3f}", static_cast<double>(result.bytes_per_s) / 1e9) : "-";
    };
    const double link = link_bytes_per_s(checked, *pair);
    table.add(
        {checked.nodes[pair->first].host, checked.nodes[pair->second].host,
         pair->network.empty() ? "none" : pair->network,
         pair->ok() ? fmt::format("{:.1f}", static_cast<double>(pair->of_first.latency_ns) / 1000) : "FAILS",
         gigabytes(pair->of_first), gigabytes(pair->of_second),
         pair->ok() && link > 0 ? fmt::format("{:.0f} %", 100 * slower_bytes_per_s(*pair) / link) : "-"});
  }
  std::string text = table.render(2);
  if (shown.size() < checked.pairs.size())
    text += fmt::format("  The slowest {} of {} pairs.\n", shown.size(), checked.pairs.size());
  return text;
}

void write_result(JsonWriter& json, std::string_view key, const PairResult& result) {
  json.begin_object(key);
  json.field("well", result.ok());
  if (!result.ok()) json.field("why", result.why);
  json.field("latency_ns", result.latency_ns);
  json.field("bytes_per_s", result.bytes_per_s);
  json.end();
}

}  // namespace

std::string render(const Checked& checked, const std::vector<CheckFinding>& findings) {
  std::string text = "Nodes\n" + render_nodes(checked);
  if (!checked.pairs.empty()) text += "\nBetween them\n" + render_pairs(checked);
  if (!checked.said.empty()) text += "\nSaid by the library\n";
  for (const std::string& line : checked.said) text += "  " + line + "\n";
  text += "\nFound\n";
  for (const CheckFinding& finding : findings)
    text += fmt::format("  {}: {}\n", finding.is_wrong ? "WRONG" : "note", finding.text);
  if (std::ranges::none_of(findings, &CheckFinding::is_wrong))
    text += fmt::format("  Nothing is wrong: {} nodes, {} {}.\n", checked.nodes.size(), checked.pairs.size(),
                        checked.pairs.size() == 1 ? "pair" : "pairs");
  return text;
}

int write_json(const Checked& checked, const std::vector<CheckFinding>& findings, std::FILE* out) {
  JsonWriter json(out);
  json.begin_object();
  json.begin_array("nodes");
  for (const CheckedNode& node : checked.nodes) {
    json.begin_object();
    json.field("node", node.host);
    json.field("answered", node.answered());
    if (!node.answered()) json.field("why_not", node.why_not);
    json.field("version", node.report.version);
    json.field("wire_version", node.report.wire_version);
    json.field("host_name", node.report.host_name);
    json.field("cores", node.report.cores);
    if (node.report.locked_bytes == UINT64_MAX)
      json.field_null("locked_bytes");
    else
      json.field("locked_bytes", node.report.locked_bytes);
    if (node.clock_offset_ns)
      json.field("clock_offset_ns", *node.clock_offset_ns);
    else
      json.field_null("clock_offset_ns");
    json.begin_array("networks");
    for (const NodeNetwork& network : node.report.networks) {
      json.begin_object();
      json.field("name", network.name);
      json.field("device", network.device);
      json.field("address", network.address);
      json.field("rate_mbit", network.rate_mbit);
      json.field("mtu_bytes", network.mtu_bytes);
      json.end();
    }
    json.end();
    json.end();
  }
  json.end();
  json.begin_array("pairs");
  for (const CheckedPair& pair : checked.pairs) {
    json.begin_object();
    json.field("first", checked.nodes[pair.first].host);
    json.field("second", checked.nodes[pair.second].host);
    json.field("network", pair.network);
    write_result(json, "of_first", pair.of_first);
    write_result(json, "of_second", pair.of_second);
    json.end();
  }
  json.end();
  json.begin_array("findings");
  for (const CheckFinding& finding : findings) {
    json.begin_object();
    json.field("is_wrong", finding.is_wrong);
    json.field("text", finding.text);
    json.end();
  }
  json.end();
  json.end();
  return json.finish();
}

}  // namespace ch3_offload
