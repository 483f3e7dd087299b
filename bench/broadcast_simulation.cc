// A broadcast by a module in the processors, by triggered operations, and by MPI in the hosts, in a simulated
// network of 2 to 1,024 nodes: what figures 8 and 9 of NICVM's paper show, where nodes are not to be had.
//
//   make bench/broadcast_simulation && bench/broadcast_simulation [--costs paper|today] [--nodes 2,4,16]
//       [--bytes 32,1024,4096] [--compute US] [--set NAME=VALUE ...]
//
// The module is real: docs/examples/modules/broadcast.lua (or --module) runs for each message, and says what
// it sends and delivers. Its time, and all other times, are the costs below. Each node has a host, a way
// between host and processor, a processor and a port to the network, which do one thing after the other. The
// network itself is never busy.
//
//   hosts      MPI_Bcast's binomial tree: a host receives, then sends to its children, one after the other
//   triggered  the module's tree; each send is an operation that a counter of the processor triggers
//   module     the module's sends, then its delivery
//
// Printed: the time from the root's call until the last process has the data, in microseconds, and the
// factors. With --compute, every third process (2, 5, 8, ...) computes from the beginning for so long and
// does nothing else, as a program does outside of MPI. The time is then that of the last process that does
// not compute.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

#include "modules/module.h"
#include "modules/tree.h"

namespace ch3_offload {
namespace {

/// Microseconds.
struct Costs {
  double host_send = 0;      ///< Of the host's processor, for a send.
  double host_receive = 0;   ///< Likewise, for a receive.
  double crossing = 0;       ///< Between host and processor, either way: until the first byte is there.
  double crossing_byte = 0;  ///< Of the way between them, for each byte.
  double processor = 0;      ///< Of the processor, for a message that comes, and for one that goes.
  double activation = 0;     ///< Of the processor, for a module that a message activates.
  double trigger = 0;        ///< Of the processor, for an operation that is triggered.
  double wire = 0;           ///< Until the first byte is there.
  double wire_byte = 0;      ///< Of the port, for each byte.
};

struct NamedCost {
  const char* name;
  double Costs::*cost;
};
constexpr NamedCost kNames[] = {{"host_send", &Costs::host_send}, {"host_receive", &Costs::host_receive},
                                {"crossing", &Costs::crossing},   {"crossing_byte", &Costs::crossing_byte},
                                {"processor", &Costs::processor}, {"activation", &Costs::activation},
                                {"trigger", &Costs::trigger},     {"wire", &Costs::wire},
                                {"wire_byte", &Costs::wire_byte}};

/// About those of the paper's machines: Myrinet 2000 (2 Gbit/s), a processor of 133 MHz on the card, 64 bits
/// of PCI at 33 MHz. Its figure 6 has a module that does nothing at "several microseconds".
constexpr Costs kPaper{1.0, 1.0, 1.0, 1 / 200.0, 1.5, 4.0, 1.0, 0.5, 1 / 250.0};
/// About those of a card of today at 200 Gbit/s, with cores of its own.
constexpr Costs kToday{0.1, 0.1, 0.5, 1 / 25'000.0, 0.15, 0.5, 0.1, 0.6, 1 / 25'000.0};

enum class Way { kHosts, kTriggered, kModule };

/// Where a process's data are, and whither they go next.
class Simulation {
 public:
  Simulation(const Costs& costs, std::uint32_t nodes, std::size_t bytes, double compute_us,
             const std::string& module)
      : costs_(costs), nodes_(nodes), bytes_(static_cast<double>(bytes)), compute_us_(compute_us) {
    for (std::uint32_t rank = 0; rank < nodes; ++rank) {
      std::string error;
      modules_.push_back(Module::load("broadcast", module, {rank, nodes}, {}, error));
      if (modules_.back() == nullptr) throw std::runtime_error(error);
    }
  }

  double run(Way way) {
    way_ = way;
    parts_.assign(nodes_, {});
    done_us_.assign(nodes_, -1);
    for (std::uint32_t rank = 0; rank < nodes_; ++rank)
      if (computes(rank)) parts_[rank].host = compute_us_;
    done_us_[0] = 0;
    if (way == Way::kHosts) {
      send_from_host(0, 0);
    } else {  // The root gives it to its own processor.
      const double left = use(parts_[0].host, 0, costs_.host_send);
      const double there = use(parts_[0].down, left, costs_.crossing_byte * bytes_) + costs_.crossing;
      at(there, [this, there] { arrive(0, there); });
    }
    while (!events_.empty()) {
      const auto action = events_.top().action;
      events_.pop();
      action();
    }
    double last = 0;
    for (std::uint32_t rank = 0; rank < nodes_; ++rank) {
      if (done_us_[rank] < 0) throw std::runtime_error(fmt::format("process {} never gets the data", rank));
      if (!computes(rank)) last = std::max(last, done_us_[rank]);
    }
    return last;
  }

 private:
  /// Until when each part of a node is busy.
  struct Parts {
    double host = 0, down = 0, up = 0, processor = 0, port = 0;
  };
  struct Event {
    double us;
    std::uint64_t order;
    std::function<void()> action;
    bool operator>(const Event& other) const { return us != other.us ? us > other.us : order > other.order; }
  };

  bool computes(std::uint32_t rank) const { return compute_us_ > 0 && rank % 3 == 2; }
  /// The part is busy for `cost` as soon as it may. Returns until when.
  static double use(double& part, double from, double cost) { return part = std::max(part, from) + cost; }
  void at(double us, std::function<void()> action) { events_.push({us, order_++, std::move(action)}); }

  void send_from_host(std::uint32_t rank, double from) {
    Parts& its = parts_[rank];
    double ready = from;
    for (const std::uint32_t child : children_in({TreeShape::kKnomial, 2, 0, nodes_}, rank)) {
      ready = use(its.host, ready, costs_.host_send);
      const double down = use(its.down, ready, costs_.crossing_byte * bytes_) + costs_.crossing;
      at(down, [this, rank, child, down] { send(rank, child, down); });
    }
  }
  /// From the processor.
  void send(std::uint32_t rank, std::uint32_t to, double from) {
    const double ready = use(parts_[rank].processor, from, costs_.processor);
    const double there = use(parts_[rank].port, ready, costs_.wire_byte * bytes_) + costs_.wire;
    at(there, [this, to, there] { arrive(to, there); });
  }
  /// At the processor.
  void arrive(std::uint32_t rank, double from) {
    double ready = use(parts_[rank].processor, from, costs_.processor);
    if (way_ == Way::kHosts) return deliver(rank, ready);
    ModuleOutput output;
    std::string error;
    std::shared_ptr<ModuleMessage> message = ModuleMessage::make(0, account_);
    if (message == nullptr || !modules_[rank]->activate(std::move(message), output, error))
      throw std::runtime_error("the module: " + error);
    if (way_ == Way::kModule) ready = use(parts_[rank].processor, ready, costs_.activation);
    for (const ModuleOutput::Sent& one : output.sends) {
      if (way_ == Way::kTriggered) ready = use(parts_[rank].processor, ready, costs_.trigger);
      send(rank, one.rank, ready);
    }
    if (!output.deliveries.empty()) deliver(rank, std::max(ready, parts_[rank].processor));
  }
  void deliver(std::uint32_t rank, double from) {
    const double up = use(parts_[rank].up, from, costs_.crossing_byte * bytes_) + costs_.crossing;
    at(up, [this, rank, up] {
      done_us_[rank] = use(parts_[rank].host, up, costs_.host_receive);
      if (way_ == Way::kHosts) send_from_host(rank, done_us_[rank]);
    });
  }

  const Costs costs_;
  const std::uint32_t nodes_;
  const double bytes_;
  const double compute_us_;
  Way way_ = Way::kHosts;
  std::vector<std::unique_ptr<Module>> modules_;
  const BlockAccount account_ = std::make_shared<std::size_t>(0);
  std::vector<Parts> parts_;
  std::vector<double> done_us_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
};

Costs with(Costs costs, const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    const std::size_t equals = change.find('=');
    const auto* const named = std::ranges::find_if(
        kNames, [&](const NamedCost& one) { return one.name == std::string_view(change).substr(0, equals); });
    std::size_t used = 0;
    double value = -1;
    try {
      if (equals != std::string::npos) value = std::stod(change.substr(equals + 1), &used);
    } catch (const std::exception&) {  // Said below.
    }
    if (named == std::end(kNames) || value < 0 || used != change.size() - equals - 1) {
      std::string names;
      for (const NamedCost& one : kNames) names += fmt::format(" {}", one.name);
      throw std::runtime_error(fmt::format("--set {}: it takes NAME=MICROSECONDS, of{}", change, names));
    }
    costs.*named->cost = value;
  }
  return costs;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": it cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

void print(const Costs& costs, const std::vector<std::uint32_t>& nodes, const std::vector<std::size_t>& bytes,
           double compute_us, const std::string& module) {
  for (const NamedCost& one : kNames) fmt::print("# {} {:g} us\n", one.name, costs.*one.cost);
  fmt::print("{:>7} {:>7} {:>12} {:>14} {:>11} {:>10} {:>10}\n", "nodes", "bytes", "hosts[us]",
             "triggered[us]", "module[us]", "triggered", "module");
  for (const std::size_t length : bytes) {
    for (const std::uint32_t count : nodes) {
      Simulation simulation(costs, count, length, compute_us, module);
      const double hosts = simulation.run(Way::kHosts);
      const double triggered = simulation.run(Way::kTriggered);
      const double by_module = simulation.run(Way::kModule);
      fmt::print("{:>7} {:>7} {:>12.1f} {:>14.1f} {:>11.1f} {:>10.2f} {:>10.2f}\n", count, length, hosts,
                 triggered, by_module, hosts / triggered, hosts / by_module);
    }
  }
}

}  // namespace
}  // namespace ch3_offload

int main(int argc, char** argv) {
  using namespace ch3_offload;
  CLI::App app{"A broadcast by a module, by triggered operations and by hosts, in a simulated network."};
  std::string which = "paper";
  std::string path = "docs/examples/modules/broadcast.lua";
  std::vector<std::uint32_t> nodes{2, 4, 8, 16, 64, 256, 1024};
  std::vector<std::size_t> bytes{32, 1024, 4096};
  std::vector<std::string> changes;
  double compute_us = 0;
  app.add_option("--costs", which, "paper or today")->check(CLI::IsMember({"paper", "today"}));
  app.add_option("--set", changes, "NAME=MICROSECONDS: another cost");
  app.add_option("--nodes", nodes, "how many")->delimiter(',')->check(CLI::Range(2U, 4096U));
  app.add_option("--bytes", bytes, "lengths")->delimiter(',')->check(CLI::Range(0U, 1U << 20));
  app.add_option("--compute", compute_us, "every third process computes so long, us")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--module", path, "the module, which delivers what it gets and passes it on");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    print(with(which == "paper" ? kPaper : kToday, changes), nodes, bytes, compute_us, text_of(path));
  } catch (const std::exception& error) {
    fmt::print(stderr, "broadcast_simulation: {}\n", error.what());
    return 1;
  }
  return 0;
}
