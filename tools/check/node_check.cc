#include "check/node_check.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <system_error>

#include "check/node_process.h"
#include "rdma/hex.h"
#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
constexpr std::uint64_t kStartNs = 30'000 * kMillisecondNs;  ///< For a node to say what it is.
constexpr std::uint64_t kClockNs = 2'000 * kMillisecondNs;
constexpr std::size_t kMostStarting = 32;  ///< Nodes at a time.
constexpr int kClockTrips = 5;             ///< The shortest of them counts.
constexpr std::size_t kMostDialled = 32;   ///< Pairs that fail and are looked into.
/// A test has several parts, each with its limit; an agent that takes longer hangs.
constexpr int kLimitsOfTest = 8;
constexpr std::uint64_t kTestMoreNs = 10'000 * kMillisecondNs;

/// Of the variables that agents get. MPICH reads each setting under three names.
constexpr std::array<std::string_view, 4> kSettingPrefixes = {"MPICH_CH3_", "MPIR_PARAM_CH3_",
                                                              "MPIR_CVAR_CH3_", "CH3_OFFLOAD_SETTINGS_FILE"};

std::int64_t real_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// The best one that both have, as a job takes it. Empty: none.
std::string common_network(const NodeReport& first, const NodeReport& second) {
  for (const NodeNetwork& network : first.networks) {
    const NodeNetwork* const others = network_of(second, network.name);
    if (others == nullptr) continue;
    const auto one = VerbsAddress::parse(network.address), other = VerbsAddress::parse(others->address);
    if (one && other && !one->same_fabric(*other)) continue;
    return network.name;
  }
  return {};
}

class NodeCheck {
 public:
  explicit NodeCheck(const CheckOptions& options) : options_(options), agents_(options.hosts.size()) {
    for (const std::string& host : options.hosts) checked_.nodes.push_back({.host = host});
    for (auto& agent : agents_) agent = std::make_unique<Agent>();
  }

  Checked run() {
    start_all();
    compare_clocks();
    test_pairs();
    dial_failed();
    for (auto& agent : agents_) agent->process.hang_up();
    for (auto& agent : agents_) agent->process.end();
    show("");
    return std::move(checked_);
  }

 private:
  struct Agent {
    NodeProcess process;
    bool is_starting = false;
    std::uint64_t since_ns = 0;  ///< It was started, or its test was.
    CheckedPair* testing = nullptr;
    std::optional<std::int64_t> clock_ns;
    Dialled* dialling = nullptr;
  };

  void start_all();
  void start(std::size_t node);
  void compare_clocks();
  void test_pairs();
  void begin(CheckedPair& pair);
  void dial_failed();
  void take_line(std::size_t node, std::string_view line);
  void give_up(std::size_t node, const std::string& reason);
  void pump(int timeout_ms);
  void pump_until(std::uint64_t limit_ns, const std::function<bool()>& is_over);
  void show(const std::string& line) const;

  bool usable(std::size_t node) const noexcept {
    return agents_[node]->process.runs() && !agents_[node]->is_starting;
  }

  const CheckOptions& options_;
  std::vector<std::unique_ptr<Agent>> agents_;
  Checked checked_;
  std::set<std::string> said_;
  std::array<std::uint64_t, 2> secret_{};
};

void NodeCheck::show(const std::string& line) const {
  if (options_.shows_progress) fmt::print(stderr, "\r\033[K{}", line);
}

void NodeCheck::start(std::size_t node) {
  Agent& agent = *agents_[node];
  std::vector<std::string> command = options_.launcher;
  command.insert(command.end(), {options_.hosts[node], options_.program, "--check-agent"});
  if (const int error = agent.process.start(command); error != 0) {
    checked_.nodes[node].why_not =
        fmt::format("{} cannot be started: {}", command[0], std::generic_category().message(error));
    return;
  }
  agent.is_starting = true;
  agent.since_ns = monotonic_ns();
  agent.process.send(fmt::format("self {} {}", node, options_.hosts.size()));
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    const bool is_setting = std::ranges::any_of(
        kSettingPrefixes, [&](std::string_view prefix) { return text.starts_with(prefix); });
    if (is_setting && equals != std::string_view::npos)
      agent.process.send(one_line(fmt::format("set {} {}", text.substr(0, equals), text.substr(equals + 1))));
  }
  std::string secret = "secret ";
  append_hex(secret, secret_[0]);
  secret += ' ';
  append_hex(secret, secret_[1]);
  agent.process.send(secret);
  agent.process.send(fmt::format("limit {}", options_.limit_ms));
  agent.process.send("probe");
}

void NodeCheck::start_all() {
  if (::getrandom(secret_.data(), sizeof secret_, 0) != sizeof secret_)
    throw std::system_error(errno, std::generic_category(), "getrandom");
  std::size_t next = 0;
  const auto starting = [&] {
    return static_cast<std::size_t>(
        std::ranges::count_if(agents_, [](const auto& one) { return one->is_starting; }));
  };
  while (next < agents_.size() || starting() > 0) {
    while (next < agents_.size() && starting() < kMostStarting) start(next++);
    show(fmt::format("{} of {} nodes have answered", next - starting(), agents_.size()));
    pump(100);
    for (std::size_t node = 0; node < next; ++node)
      if (agents_[node]->is_starting && elapsed_ns(monotonic_ns(), agents_[node]->since_ns) > kStartNs)
        give_up(node, fmt::format("no answer for {} s", kStartNs / 1'000'000'000));
  }
}

/// As NTP does: half a round trip is the way, and at most so wrong is the result.
void NodeCheck::compare_clocks() {
  for (std::size_t node = 0; node < agents_.size(); ++node) {
    Agent& agent = *agents_[node];
    CheckedNode& checked = checked_.nodes[node];
    for (int i = 0; i < kClockTrips && usable(node); ++i) {
      agent.clock_ns.reset();
      const std::int64_t sent_ns = real_ns();
      const std::uint64_t began_ns = monotonic_ns();
      agent.process.send("clock");
      pump_until(kClockNs, [&] { return agent.clock_ns.has_value() || !agent.process.runs(); });
      const std::uint64_t took_ns = elapsed_ns(monotonic_ns(), began_ns);
      if (!agent.clock_ns) break;  // Its answer would be taken for that of the next trip.
      if (checked.clock_offset_ns && took_ns / 2 >= checked.clock_error_ns) continue;
      checked.clock_error_ns = took_ns / 2;
      checked.clock_offset_ns = *agent.clock_ns - sent_ns - static_cast<std::int64_t>(took_ns / 2);
    }
  }
}

void NodeCheck::test_pairs() {
  for (const auto& [first, second] : pairs_to_test(agents_.size(), options_.all_pairs))
    if (checked_.nodes[first].answered() && checked_.nodes[second].answered())
      checked_.pairs.push_back({.first = first, .second = second});
  std::vector<CheckedPair*> waiting;
  for (CheckedPair& pair : checked_.pairs) waiting.push_back(&pair);
  const std::uint64_t limit_ns =
      static_cast<std::uint64_t>(options_.limit_ms) * kMillisecondNs * kLimitsOfTest + kTestMoreNs;
  const auto is_testing = [&](std::size_t node) { return agents_[node]->testing != nullptr; };
  const auto tested = [&] {
    return std::ranges::any_of(agents_, [](const auto& one) { return one->testing != nullptr; });
  };
  while (!waiting.empty() || tested()) {
    // Each node has one test at a time.
    std::erase_if(waiting, [&](CheckedPair* pair) {
      if (is_testing(pair->first) || is_testing(pair->second)) return false;
      begin(*pair);
      return true;
    });
    show(fmt::format("{} of {} pairs", checked_.pairs.size() - waiting.size(), checked_.pairs.size()));
    pump(100);
    for (std::size_t node = 0; node < agents_.size(); ++node)
      if (agents_[node]->testing != nullptr && elapsed_ns(monotonic_ns(), agents_[node]->since_ns) > limit_ns)
        give_up(node, "its test did not end");
  }
}

/// Lets the two begin, or notes why they cannot.
void NodeCheck::begin(CheckedPair& pair) {
  const auto node_of = [&](std::size_t node) -> const NodeReport& { return checked_.nodes[node].report; };
  pair.network = common_network(node_of(pair.first), node_of(pair.second));
  for (const std::size_t node : {pair.first, pair.second}) {
    if (usable(node)) continue;
    pair.of_first.why = pair.of_second.why = fmt::format("the agent on {} is over", options_.hosts[node]);
    return;
  }
  if (pair.network.empty()) {
    pair.of_first.why = pair.of_second.why = "they have no network in common";
    return;
  }
  for (const bool is_first : {true, false}) {
    const std::size_t self = is_first ? pair.first : pair.second, other = is_first ? pair.second : pair.first;
    agents_[self]->testing = &pair;
    agents_[self]->since_ns = monotonic_ns();
    agents_[self]->process.send(fmt::format("meet {} {} {} {}", other, is_first ? "begins" : "answers",
                                            pair.network, network_of(node_of(other), pair.network)->address));
  }
}

/// Whether the other's port can be reached at all, each way.
void NodeCheck::dial_failed() {
  std::size_t dialled = 0;
  for (CheckedPair& pair : checked_.pairs) {
    if (pair.ok() || pair.network.empty() || pair.of_first.stage != PairStage::kFirst) continue;
    if (++dialled > kMostDialled) return;
    show(fmt::format("looking into {} and {}", options_.hosts[pair.first], options_.hosts[pair.second]));
    for (const bool is_first : {true, false}) {
      const std::size_t self = is_first ? pair.first : pair.second,
                        other = is_first ? pair.second : pair.first;
      const auto place = listening_place(*network_of(checked_.nodes[other].report, pair.network));
      if (!usable(self) || !place) continue;
      Dialled& result = is_first ? pair.first_dials : pair.second_dials;
      agents_[self]->dialling = &result;
      agents_[self]->process.send(fmt::format("dial {} {} {}", other, place->hosts.front(), place->port));
      pump_until(static_cast<std::uint64_t>(options_.limit_ms) * kMillisecondNs + kClockNs,
                 [&] { return result.was_tried || !agents_[self]->process.runs(); });
      agents_[self]->dialling = nullptr;
    }
  }
}

void NodeCheck::take_line(std::size_t node, std::string_view line) {
  Agent& agent = *agents_[node];
  CheckedNode& checked = checked_.nodes[node];
  std::string_view words = line;
  const std::string_view kind = take_word(words);
  if (agent.is_starting && kind == "fact") {
    static_cast<void>(ch3_offload::take_line(line, checked.report));
  } else if (kind == "probed") {
    agent.is_starting = false;
  } else if (kind == "clock") {
    if (const auto clock_ns = take_number(words)) agent.clock_ns = static_cast<std::int64_t>(*clock_ns);
  } else if (kind == "met" && agent.testing != nullptr) {
    CheckedPair& pair = *agent.testing;
    const std::size_t other = pair.first == node ? pair.second : pair.first;
    const auto met = met_line(line);
    if (!met || met->peer != other) return;
    (pair.first == node ? pair.of_first : pair.of_second) = met->result;
    agent.testing = nullptr;
  } else if (kind == "dialled" && agent.dialling != nullptr) {
    static_cast<void>(take_word(words));
    *agent.dialling = {true, std::string(words)};
  } else if (kind == "log") {
    if (said_.emplace(words).second) checked_.said.push_back(fmt::format("{}: {}", checked.host, words));
  }
}

void NodeCheck::give_up(std::size_t node, const std::string& reason) {
  agents_[node]->process.end(reason);
  Agent& agent = *agents_[node];
  agent.is_starting = false;
  checked_.nodes[node].why_not = agent.process.why_over();
  if (agent.testing == nullptr) return;
  CheckedPair& pair = *agent.testing;
  (pair.first == node ? pair.of_first : pair.of_second).why = "its agent is over";
  agent.testing = nullptr;
}

void NodeCheck::pump(int timeout_ms) {
  std::vector<pollfd> wanted;
  std::vector<std::size_t> nodes;
  for (std::size_t node = 0; node < agents_.size(); ++node) {
    if (!agents_[node]->process.runs()) continue;
    wanted.push_back({agents_[node]->process.descriptor(), POLLIN, 0});
    nodes.push_back(node);
  }
  if (::poll(wanted.data(), wanted.size(), timeout_ms) <= 0) return;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].revents == 0) continue;
    NodeProcess& process = agents_[nodes[i]]->process;
    process.read();
    while (const auto line = process.next_line()) take_line(nodes[i], *line);
    if (!process.runs()) give_up(nodes[i], {});
  }
}

void NodeCheck::pump_until(std::uint64_t limit_ns, const std::function<bool()>& is_over) {
  for (const std::uint64_t began_ns = monotonic_ns();
       !is_over() && elapsed_ns(monotonic_ns(), began_ns) < limit_ns;)
    pump(100);
}

bool is_file(const std::string& name) {
  struct stat status {};
  return ::stat(name.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

/// Adds the host of an entry of a list or a file. Empty: all is well.
std::string add_host(std::string entry, std::vector<std::string>& hosts) {
  entry.erase(std::min(entry.find('#'), entry.size()));
  entry.erase(0, std::min(entry.find_first_not_of(" \t"), entry.size()));
  entry.erase(std::min(entry.find_first_of(": \t\r"), entry.size()));
  if (entry.empty()) return {};
  // A launcher would take it for an option.
  if (entry.starts_with('-')) return fmt::format("\"{}\" is no host name", entry);
  if (std::ranges::find(hosts, entry) == hosts.end()) hosts.push_back(std::move(entry));
  return {};
}

}  // namespace

Result<std::vector<std::string>> hosts_of(const std::string& text) {
  std::vector<std::string> hosts;
  std::string wrong;
  const bool has_file = is_file(text);
  const auto add = [&](const std::string& entry) {
    if (std::string why = add_host(entry, hosts); wrong.empty()) wrong = std::move(why);
  };
  if (has_file) {
    std::ifstream file(text);
    if (!file)
      return Error{Status::kUnsupported, errno, text + ": " + std::generic_category().message(errno)};
    for (std::string line; std::getline(file, line);) add(line);
  } else {
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t comma = std::min(text.find(',', at), text.size());
      add(text.substr(at, comma - at));
      at = comma + 1;
    }
  }
  if (!wrong.empty()) return Error{Status::kUnsupported, 0, wrong};
  if (hosts.size() < 2)
    return Error{
        Status::kUnsupported, 0,
        fmt::format("\"{}\" {}names {}, and a check takes two or more: node1,node2,node3, or a file "
                    "with a host on each line",
                    text, has_file ? "" : "is no file, and ", hosts.empty() ? "no host" : "one host")};
  return hosts;
}

Checked run_check(const CheckOptions& options) { return NodeCheck(options).run(); }

}  // namespace ch3_offload
