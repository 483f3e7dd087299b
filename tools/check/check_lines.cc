#include "check/check_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace ch3_offload {
namespace {

constexpr std::array<std::string_view, 4> kStageNames = {"first", "short", "long", "over"};

template <class Number>
void take_into(std::string_view text, Number& number) {
  if (const auto value = take_number(text)) number = static_cast<Number>(*value);
}

}  // namespace

std::string_view take_word(std::string_view& line) {
  const std::size_t end = line.find(' ');
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  return word;
}

std::optional<std::uint64_t> take_number(std::string_view& line) {
  const std::string_view word = take_word(line);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || word.empty()) return {};
  return value;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::vector<std::string> to_lines(const NodeReport& report) {
  std::vector<std::string> lines{fmt::format("fact version {} {}", report.wire_version, report.version),
                                 fmt::format("fact host {}", report.host_name),
                                 fmt::format("fact cores {}", report.cores),
                                 fmt::format("fact locked {}", report.locked_bytes)};
  if (!report.congestion_control.empty())
    lines.push_back(fmt::format("fact congestion {}", report.congestion_control));
  for (const NodeNetwork& network : report.networks)
    lines.push_back(fmt::format("fact network {} {} {} {} {}", network.name, network.rate_mbit,
                                network.mtu_bytes, network.address, network.device));
  for (const std::string& why : report.wrong) lines.push_back("fact wrong " + one_line(why));
  for (const std::string& note : report.notes) lines.push_back("fact note " + one_line(note));
  return lines;
}

bool take_line(std::string_view line, NodeReport& report) {
  if (take_word(line) != "fact") return false;
  const std::string_view name = take_word(line);
  if (name == "version") {
    take_into(take_word(line), report.wire_version);
    report.version = line;
  } else if (name == "host") {
    report.host_name = line;
  } else if (name == "cores") {
    take_into(line, report.cores);
  } else if (name == "locked") {
    take_into(line, report.locked_bytes);
  } else if (name == "congestion") {
    report.congestion_control = line;
  } else if (name == "network") {
    NodeNetwork network;
    network.name = take_word(line);
    take_into(take_word(line), network.rate_mbit);
    take_into(take_word(line), network.mtu_bytes);
    network.address = take_word(line);
    network.device = line;
    report.networks.push_back(std::move(network));
  } else if (name == "wrong") {
    report.wrong.emplace_back(line);
  } else if (name == "note") {
    report.notes.emplace_back(line);
  }
  return true;
}

std::string to_line(std::uint32_t peer, const PairResult& result) {
  return fmt::format("met {} {} {} {} {}", peer, kStageNames[static_cast<std::size_t>(result.stage)],
                     result.latency_ns, result.bytes_per_s, one_line(result.why));
}

std::optional<MetLine> met_line(std::string_view line) {
  if (take_word(line) != "met") return {};
  MetLine met;
  const auto peer = take_number(line);
  const auto stage = std::ranges::find(kStageNames, take_word(line));
  const auto latency_ns = take_number(line);
  const auto bytes_per_s = take_number(line);
  if (!peer || stage == kStageNames.end() || !latency_ns || !bytes_per_s) return {};
  met.peer = static_cast<std::uint32_t>(*peer);
  met.result = {static_cast<PairStage>(stage - kStageNames.begin()), std::string(line), *latency_ns,
                *bytes_per_s};
  return met;
}

std::optional<std::string> LineReader::next() {
  const std::size_t end = std::min(bytes_.find('\n'), kMostBytes);
  if (end >= bytes_.size()) return {};
  std::string line = bytes_.substr(0, end);
  bytes_.erase(0, bytes_[end] == '\n' ? end + 1 : end);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace ch3_offload
