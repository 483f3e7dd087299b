#include "engine/simulation_config.h"

#include <algorithm>
#include <sstream>

#include "rdma/checked/checksum.h"

namespace ch3_offload {

namespace {

template <class T, std::size_t kSize>
T one_of(SeededRandom& random, const T (&choices)[kSize]) {
  return choices[random.below(kSize)];
}

}  // namespace

SimulationConfig SimulationConfig::from_seed(std::uint64_t seed, std::uint64_t operations) {
  SeededRandom random(mix64(seed) ^ 0xC0F1);
  SimulationConfig config;
  config.seed = seed;
  config.operations = operations;
  config.processes = one_of<std::uint32_t>(random, {2, 2, 2, 3, 3, 4, 5, 8});

  FakeConfig& network = config.network;
  network.seed = mix64(seed + 1);
  network.max_slot_bytes = one_of<std::size_t>(random, {256, 300, 512, 1024, 4096, 8192});
  network.slots_per_pair = one_of<std::uint32_t>(random, {1, 2, 4, 16, 64, 256});
  network.most_delay_ns = one_of<std::uint64_t>(random, {500, 2000, 20'000, 100'000});
  network.slow_probability = one_of(random, {0.0, 0.0, 0.01, 0.1});
  network.again_probability = one_of(random, {0.0, 0.0, 0.1, 0.5, 0.9});
  network.write = random.chance(0.8);
  network.write_threshold_bytes = one_of<std::size_t>(random, {0, 1, 1000, 20'000, SIZE_MAX});
  network.pair_without_write_probability = one_of(random, {0.0, 0.0, 0.3});
  network.late_unsupported_probability = one_of(random, {0.0, 0.0, 0.2});
  network.split_write_probability = one_of(random, {0.0, 0.2, 0.9});
  network.registration_refused_probability = one_of(random, {0.0, 0.0, 0.2, 0.9});
  network.pinned_budget_bytes = one_of<std::size_t>(random, {SIZE_MAX, SIZE_MAX, 100'000, 1'000'000});

  EngineConfig& engine = config.engine;
  engine.senders = config.processes;
  engine.eager_limit_bytes =
      one_of<std::size_t>(random, {0, 1, 64, 100, 1000, 4096, 16'384, 65'536});
  engine.unexpected_budget_bytes =
      one_of<std::size_t>(random, {4096, 16'384, 65'536, 262'144, 1'048'576});
  engine.send_buffer_bytes = one_of<std::size_t>(random, {0, 1000, 16'384, 65'536});

  config.numbered = random.chance(0.9);
  if (config.numbered) {
    config.number_shift = static_cast<unsigned>(random.between(4, 14));
    config.number_bits = static_cast<unsigned>(random.between(14, 18));
    engine.always_ignored =
        MatchKey{((std::uint64_t{1} << config.number_bits) - 1) << config.number_shift, 0};
  }
  config.contexts = static_cast<std::uint32_t>(random.between(1, 3));
  config.tags = static_cast<std::uint32_t>(random.between(1, 5));
  config.most_waiting = one_of<std::size_t>(random, {3, 20, 20, 60, 150});
  config.most_posted = one_of<std::size_t>(random, {3, 20, 20, 60, 150});
  config.longest_bytes = one_of<std::size_t>(random, {20'000, 100'000, 300'000});
  // A narrow, refusing queue moves little per step: do not spend the whole run on one message.
  if (network.again_probability >= 0.5 || network.slots_per_pair <= 2) {
    config.longest_bytes = std::min<std::size_t>(config.longest_bytes, 20'000);
  }
  config.long_probability = one_of(random, {0.0, 0.01, 0.03});
  config.strided_probability = one_of(random, {0.0, 0.2, 0.5});
  config.motion_probability = one_of(random, {0.3, 0.6, 0.8, 0.9});
  config.nested_probability = one_of(random, {0.0, 0.1, 0.2});
  config.purge_probability = one_of(random, {0.0, 0.0, 0.002});
  if (random.chance(0.3)) config.deaths = static_cast<std::uint32_t>(random.between(1, std::min(2U, config.processes - 1)));
  if (random.chance(0.15)) config.broken_connections = 1;
  // Drawn apart, so that seeds from before still mean the same programs.
  SeededRandom memory(mix64(seed) ^ 0xD3E);
  network.registering_costs = memory.chance(0.7);
  engine.pin_down.keep = memory.chance(0.9);
  engine.pin_down.most_bytes = one_of<std::size_t>(memory, {SIZE_MAX, 500'000, 100'000});
  engine.pin_down.most_regions = one_of<std::size_t>(memory, {SIZE_MAX, 5, 50});
  config.unmap_probability = one_of(memory, {0.0, 0.1, 0.5, 1.0});
  network.on_demand = memory.chance(0.2);
  network.odd_slot_bytes = one_of<std::size_t>(memory, {SIZE_MAX, SIZE_MAX, SIZE_MAX, 256});
  SeededRandom classes(mix64(seed) ^ 0xC1A55);
  config.classify_probability = one_of(classes, {0.0, 0.0, 0.01, 0.1});
  if (config.classify_probability > 0) engine.channel_bits = ~std::uint64_t{UINT32_MAX};
  engine.traffic_class = static_cast<TrafficClass>(classes.below(kTrafficClasses));
  config.nodes = static_cast<std::uint32_t>(SeededRandom(mix64(seed) ^ 0x0DE).between(1, config.processes));
  engine.self_copy_bytes = one_of<std::size_t>(classes, {SIZE_MAX, SIZE_MAX, 1, 1000, 65'536});
  network.writes_by_copying = classes.chance(0.3);
  network.chooses_writes = classes.chance(0.3);
  SeededRandom shares(mix64(seed) ^ 0x54A);
  config.shared_probability = one_of(shares, {0.0, 0.5, 0.5, 1.0});
  if (shares.chance(0.3)) config.copies = KernelCopies::kRefused;
  config.refused_copies = one_of(shares, {0.0, 0.0, 0.05, 0.5, 1.0});
  if (shares.chance(0.3)) config.staging = Staging::kSmallPieces;
  SeededRandom damages(mix64(seed) ^ 0xC3C);
  config.has_checksums = have_checksums() && damages.chance(0.25);
  if (config.has_checksums) {
    network.damaged_message_probability = one_of(damages, {0.0, 0.01, 0.1, 0.3});
    network.damaged_write_probability = one_of(damages, {0.0, 0.1, 0.3});
  }
  return config;
}

std::string SimulationConfig::describe() const {
  std::ostringstream text;
  text << "seed " << seed << ", " << operations << " operations, " << processes << " processes";
  if (driver == SimulatedDriver::kProcess) text << " on " << nodes << " nodes, shared " << shared_probability << ", copies "
                                                  << (copies == KernelCopies::kAllowed ? "allowed" : "refused")
                                                  << ", kernel refuses " << refused_copies;
  text << ", " << contexts
       << " contexts, " << tags << " tags, " << (numbered ? "numbered" : "not numbered") << ", deaths " << deaths
       << ", broken connections " << broken_connections << ", purge " << purge_probability << ", waiting "
       << most_waiting << ", posted " << most_posted << ", longest " << longest_bytes << ", motion "
       << motion_probability << "\n  engine: eager limit " << engine.eager_limit_bytes << ", unexpected budget "
       << engine.unexpected_budget_bytes << ", send buffer " << engine.send_buffer_bytes << ", self copy " << engine.self_copy_bytes << "\n  network: slot "
       << network.max_slot_bytes << " (" << network.odd_slot_bytes << " to odd processes) x " << network.slots_per_pair << ", delay " << network.most_delay_ns
       << " ns, slow " << network.slow_probability << ", again " << network.again_probability << ", write "
       << network.write << " from " << network.write_threshold_bytes << ", by copying "
       << network.writes_by_copying << ", chosen " << network.chooses_writes << ", pairs without "
       << network.pair_without_write_probability << ", late unsupported " << network.late_unsupported_probability
       << ", split writes " << network.split_write_probability << ", registration refused " << network.registration_refused_probability << ", pinned budget "
       << network.pinned_budget_bytes << "\n  memory: registering costs " << network.registering_costs << ", on demand " << network.on_demand << ", keep "
       << engine.pin_down.keep << ", most bytes " << engine.pin_down.most_bytes << ", most regions "
       << engine.pin_down.most_regions << ", unmap " << unmap_probability << "\n  classify " << classify_probability << ", checksums " << has_checksums
       << ", damaged messages " << network.damaged_message_probability << ", writes "
       << network.damaged_write_probability;
  return text.str();
}

}  // namespace ch3_offload
