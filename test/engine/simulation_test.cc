// The deterministic simulation: random programs on N engines, judged by the oracle.
//
//   simulation_tests [--seeds A..B] [--operations N] [--progress]      or the environment:
//   CH3_OFFLOAD_SIM_SEEDS=A..B CH3_OFFLOAD_SIM_OPERATIONS=N
//   CH3_OFFLOAD_SIM_TRACE=FOLDER    keeps the engines' traces of a failing seed there
//
// A failure prints the seed, its configuration, the last events and the command that replays it. The short
// run is part of `make check`; the long one is `make soak`.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/simulation.h"
#include "rdma/checked/checksum.h"

namespace ch3_offload {
namespace {

struct Options {
  std::uint64_t first_seed = 1;
  std::uint64_t last_seed = 200;
  std::uint64_t operations = 5000;
  bool progress = false;
} options;

bool read_seeds(const char* text) {
  char* end = nullptr;
  options.first_seed = options.last_seed = std::strtoull(text, &end, 10);
  if (std::strncmp(end, "..", 2) == 0) options.last_seed = std::strtoull(end + 2, &end, 10);
  return *end == '\0' && options.first_seed <= options.last_seed;
}

void print(const char* name, std::uint64_t value) { std::printf("  %s %llu\n", name, static_cast<unsigned long long>(value)); }

void run_programs(SimulatedDriver driver) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::uint64_t commands = 0;
  Counters sum;
  std::uint64_t copied = 0;
  std::uint64_t damaged = 0;
  for (std::uint64_t seed = options.first_seed; seed <= options.last_seed; ++seed) {
    SimulationConfig config = SimulationConfig::from_seed(seed, options.operations);
    config.driver = driver;
    // Of a frame between nodes.
    if (driver == SimulatedDriver::kProcess) config.network.max_slot_bytes += sizeof(ExchangeFrame);
    Simulation simulation(config);
    const double began = seconds();
    ASSERT_TRUE(simulation.run()) << simulation.report();
    commands += simulation.commands_given();
    add(sum, simulation.totals());
    copied += simulation.copied_by_receivers();
    damaged += simulation.found_damaged();
    if (options.progress) {
      std::printf("seed %llu: %.2f s; so far %llu operations, %.0f a second\n", static_cast<unsigned long long>(seed),
                  seconds() - began, static_cast<unsigned long long>(commands), static_cast<double>(commands) / seconds());
      std::fflush(stdout);
    }
  }
  std::printf("%llu operations in %.1f s: %.0f a second; the paths they took:\n",
              static_cast<unsigned long long>(commands), seconds(), static_cast<double>(commands) / seconds());
  print("sent short", sum.sent_short);
  print("sent eager in several slots", sum.sent_eager);
  print("sent by rendezvous", sum.sent_rendezvous);
  print("sent optimistically", sum.sent_optimistic);
  print("buffered at the sender", sum.sent_buffered);
  print("written", sum.bulk_written);
  print("bounced", sum.bulk_bounced);
  print("copied by their receivers", copied);
  if (driver == SimulatedDriver::kProcess && options.last_seed - options.first_seed >= 20) EXPECT_GT(copied, 0u);
  print("damaged, and sent again", damaged);
  if (have_checksums() && options.last_seed - options.first_seed >= 20) EXPECT_GT(damaged, 0u);
  print("memory found registered", sum.pin_hits);
  print("memory registered", sum.pin_misses);
  print("registrations evicted", sum.pin_evictions);
  print("registrations whose memory went", sum.pin_invalidations);
  print("registrations refused", sum.pin_refused);
  print("received expected", sum.received_expected);
  print("received unexpected", sum.received_unexpected);
  print("payloads dropped", sum.dropped_payloads);
  print("credit requests", sum.credits_requested);
  print("packet bytes received", sum.packet_bytes_received);
  print("packet bytes placed", sum.packet_bytes_placed);
  print("cancelled sends", sum.cancelled_sends);
  print("failed peers", sum.failed_peers);
  print("connections", sum.connected_peers);
  print("cards asked for", sum.cards_wanted);
}

TEST(Simulation, RandomProgramsObeyTheRulesOfMpi) { run_programs(SimulatedDriver::kHost); }
TEST(Simulation, RandomProgramsBehindRingsObeyThem) { run_programs(SimulatedDriver::kRings); }
TEST(Simulation, RandomProgramsInAProcessOfTheNodeObeyThem) { run_programs(SimulatedDriver::kProcess); }

/// Everybody may speak with everybody, so that what costs by the job's size (MPI_COMM_WORLD) shows here.
/// Peers are connected on first use only, and the budget holds for each process however many lean on it.
TEST(Simulation, AThousandEnginesShareOneProcess) {
  SimulationConfig config;
  config.seed = options.first_seed;
  config.operations = 30'000;
  config.processes = 1024;
  config.network.seed = config.seed;
  config.network.max_slot_bytes = 1024;
  config.network.slots_per_pair = 4;
  config.network.most_delay_ns = 20'000;
  config.engine.senders = config.processes;
  config.engine.eager_limit_bytes = 4096;
  config.engine.unexpected_budget_bytes = 1 << 20;
  config.engine.send_buffer_bytes = 16'384;
  config.engine.always_ignored = MatchKey{std::uint64_t{0xFFFF} << config.number_shift, 0};
  config.most_waiting = config.most_posted = 4;
  config.longest_bytes = 20'000;
  config.deaths = 2;
  config.broken_connections = 1;
  Simulation simulation(config);
  ASSERT_TRUE(simulation.run()) << simulation.report();
  const Counters sum = simulation.totals();
  EXPECT_GT(sum.received_expected + sum.received_unexpected, config.operations / 5);
  EXPECT_LT(sum.connected_peers, 2 * config.operations);
}

}  // namespace
}  // namespace ch3_offload

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  using ch3_offload::options;
  const char* seeds = std::getenv("CH3_OFFLOAD_SIM_SEEDS");
  const char* operations = std::getenv("CH3_OFFLOAD_SIM_OPERATIONS");
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--seeds") == 0 && i + 1 < argc) seeds = argv[++i];
    else if (std::strcmp(argv[i], "--operations") == 0 && i + 1 < argc) operations = argv[++i];
    else if (std::strcmp(argv[i], "--progress") == 0) options.progress = true;
    else {
      std::fprintf(stderr, "usage: %s [--seeds A..B] [--operations N] [--progress]\n", argv[0]);
      return 2;
    }
  }
  if (operations != nullptr) options.operations = std::strtoull(operations, nullptr, 10);
  if (seeds != nullptr && !ch3_offload::read_seeds(seeds)) {
    std::fprintf(stderr, "--seeds takes A..B, not '%s'\n", seeds);
    return 2;
  }
  return RUN_ALL_TESTS();
}
