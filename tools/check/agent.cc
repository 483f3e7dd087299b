#include "check/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/environment.h"
#include "ch3_offload/making.h"
#include "check/check_lines.h"
#include "check/checked.h"
#include "check/link_facts.h"
#include "engine/wire.h"
#include "info_report.h"
#include "node_probe.h"
#include "rdma/file_descriptor.h"
#include "rdma/hex.h"
#include "rdma/introduction/socket_address.h"
#include "rdma/tcp/tcp_address.h"

namespace ch3_offload {
namespace {

/// Between commands, what is left of tests gets a turn so often.
constexpr int kTurnMs = 10;

void say(const std::string& line) {
  const std::string whole = std::string(kAgentPrefix) + line + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stdout);
  std::fflush(stdout);
}

class Agent {
 public:
  /// False: it makes no sense.
  bool handle(std::string_view line);
  void turn() {
    for (const auto& tester : testers_) tester->turn();
  }

 private:
  void probe();
  void add_network(const Provider& provider, const NodeFacts& facts, NodeReport& report);
  bool meet(std::string_view words);
  bool dial(std::string_view words);

  std::uint32_t self_ = 0;
  std::uint32_t count_ = 1;
  int limit_ms_ = 5000;
  JobSecret secret_{};
  std::vector<std::unique_ptr<Provider>> networks_;
  std::vector<std::unique_ptr<PairTester>> testers_;  ///< One for each.
};

bool Agent::handle(std::string_view line) {
  const std::string_view word = take_word(line);
  if (word == "self") {
    const auto self = take_number(line), count = take_number(line);
    if (!self || !count || *count > kPeerSlots || *self >= *count) return false;
    self_ = static_cast<std::uint32_t>(*self);
    count_ = static_cast<std::uint32_t>(*count);
  } else if (word == "set") {
    const std::string name(take_word(line));
    ::setenv(name.c_str(), std::string(line).c_str(), 1);
  } else if (word == "secret") {
    std::array<std::uint64_t, 2> halves{};
    if (!parse_hex(take_word(line), halves[0]) || !parse_hex(line, halves[1])) return false;
    static_assert(sizeof halves == sizeof secret_);
    std::memcpy(secret_.data(), halves.data(), sizeof halves);
  } else if (word == "limit") {
    const auto limit_ms = take_number(line);
    if (!limit_ms || *limit_ms == 0 || *limit_ms > 3'600'000) return false;
    limit_ms_ = static_cast<int>(*limit_ms);
  } else if (word == "probe") {
    probe();
  } else if (word == "clock") {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    say(fmt::format("clock {}", std::uint64_t(now.tv_sec) * 1'000'000'000 + std::uint64_t(now.tv_nsec)));
  } else if (word == "meet") {
    return meet(line);
  } else if (word == "dial") {
    return dial(line);
  } else {
    return false;
  }
  return true;
}

void Agent::add_network(const Provider& provider, const NodeFacts& facts, NodeReport& report) {
  NodeNetwork network{.name = std::string(provider.capabilities().name), .address = provider.local_address()};
  if (network.name == "verbs") {
    for (const VerbsPortDescription& port : facts.verbs_ports) {
      if (port.why_used.empty()) continue;
      network.rate_mbit += port.rate_gbit * 1000;
      network.mtu_bytes = port.mtu_bytes;
    }
    network.device = facts.used_port();
  } else if (const auto address = TcpAddress::parse(network.address)) {
    const LinkFacts link = link_of(address->host);
    network.rate_mbit = link.rate_mbit;
    network.mtu_bytes = link.mtu_bytes;
    network.device = link.name;
  }
  report.networks.push_back(std::move(network));
}

void Agent::probe() {
  Environment environment = read_environment();
  NodeReport report{.version = PACKAGE_VERSION, .wire_version = wire::kWireVersion};
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) report.host_name = name.data();
  for (const SettingState& state : environment.settings)
    if (state.complaint) report.wrong.push_back(*state.complaint);
  report.notes = environment.warnings;
  if (environment.valid()) {
    ch3_offload_config_t& config = environment.config;
    const NodeFacts facts = probe_node(config);
    report.cores = facts.cores;
    if (!facts.may_lock_all) report.locked_bytes = facts.locked_bytes;
    report.congestion_control = facts.congestion_control;
    report.wrong = init_errors(environment, facts);
    report.notes.insert(report.notes.end(), facts.meaningless.begin(), facts.meaningless.end());
    for (const Finding& finding : findings(facts))
      if (finding.name == "locked memory" && !finding.usable)
        report.notes.push_back("locked memory: " + finding.detail);
    // Pairs are tried as the networks are. The addresses are those without checksums, too.
    config.checksum = "off";
    config.rank = self_;
    config.job_size = count_;
    config.local_size = 1;
    std::memcpy(config.secret, secret_.data(), sizeof config.secret);
    if (fabric_choice(config.fabric).has_network()) {
      // What holds for the whole job is in the notes.
      const auto log = [](void*, LogScope scope, const char* line) {
        if (scope != LogScope::kJob) say(one_line(std::string("log ") + line));
      };
      auto made = make_networks(config, PeerId{self_}, log, nullptr);
      if (made.ok())
        networks_ = std::move(made.value());
      else
        report.wrong.push_back("no network for messages between nodes: " + made.error().message);
      if (made.ok() && facts.verbs_error && fabric_choice(config.fabric).verbs)
        report.notes.push_back("messages of this node go over TCP: " + facts.verbs_error->message);
    } else {
      report.wrong.push_back(
          fmt::format("MPIR_CVAR_CH3_OFFLOAD_FABRIC is {}: there is no network for "
                      "messages between nodes",
                      config.fabric));
    }
    for (const auto& network : networks_) {
      testers_.push_back(std::make_unique<PairTester>(*network, PeerId{self_}, limit_ms_));
      add_network(*network, facts, report);
    }
  }
  for (const std::string& line : to_lines(report)) say(line);
  say("probed");
}

bool Agent::meet(std::string_view words) {
  const auto peer = take_number(words);
  const std::string_view role = take_word(words);
  const std::string_view network = take_word(words);
  const auto tester = std::ranges::find_if(testers_, [&](const std::unique_ptr<PairTester>& one) {
    return one->provider().capabilities().name == network;
  });
  if (!peer || *peer >= count_ || *peer == self_ || tester == testers_.end()) return false;
  say(to_line(static_cast<std::uint32_t>(*peer),
              (*tester)->test(PeerId{static_cast<std::uint32_t>(*peer)}, words, role == "begins")));
  return true;
}

/// Why nothing can connect to that TCP port. Empty: it can. Waits for at most the limit.
std::string why_no_connection(const SocketAddress& address, int limit_ms) {
  const FileDescriptor socket(
      ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return std::strerror(errno);
  if (::connect(socket.get(), address.get(), address.length) == 0) return {};
  if (errno != EINPROGRESS) return std::strerror(errno);
  pollfd wanted{socket.get(), POLLOUT, 0};
  if (::poll(&wanted, 1, limit_ms) == 0) return std::string(kNothingAnswers);
  int error = 0;
  socklen_t length = sizeof error;
  static_cast<void>(::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length));
  return error == 0 ? std::string() : std::strerror(error);
}

bool Agent::dial(std::string_view words) {
  const auto peer = take_number(words);
  const std::string host(take_word(words));
  const auto port = take_number(words);
  if (!peer || !port || *port > 65535) return false;
  const auto address = socket_address(host, static_cast<std::uint16_t>(*port));
  if (!address) return false;
  say(fmt::format("dialled {} {}", *peer, one_line(why_no_connection(*address, std::min(limit_ms_, 2000)))));
  return true;
}

}  // namespace

int run_agent() {
  Agent agent;
  LineReader lines;
  std::array<char, 4096> buffer;
  for (;;) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, kTurnMs) > 0) {
      const ssize_t came = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      if (came == 0 || (came < 0 && errno != EINTR)) return 0;
      if (came > 0) lines.add({buffer.data(), static_cast<std::size_t>(came)});
    }
    while (const auto line = lines.next()) {
      if (!agent.handle(*line)) say(one_line("log makes no sense: " + *line));
    }
    agent.turn();
  }
}

}  // namespace ch3_offload
