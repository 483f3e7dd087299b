// The provider contract over the verbs provider and the fake device.

#include "rdma/provider_contract.h"
#include "rdma/renumbered_world.h"
#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/verbs_world.h"

namespace ch3_offload {
namespace {

std::unique_ptr<ContractWorld> make_world(std::size_t size) {
  fake_verbs::reset(fake_verbs::Config{});
  return std::make_unique<VerbsWorld>(size, patient_config());
}

/// Writes in many parts, little credit, few slots, no inline sends.
std::unique_ptr<ContractWorld> make_narrow_world(std::size_t size) {
  fake_verbs::Config fake;
  fake.devices[0].max_inline_bytes = 0;
  fake.devices[0].ports[0].max_message_bytes = 60'000;
  fake_verbs::reset(fake);
  VerbsConfig config = patient_config();
  config.rail.most_receive_slots = 128;
  config.most_send_slots = 64;
  config.rail.slot_bytes = 512;
  return std::make_unique<VerbsWorld>(size, config);
}

/// The processes have no common numbers.
std::unique_ptr<ContractWorld> make_renumbered_world(std::size_t size) {
  fake_verbs::reset(fake_verbs::Config{});
  const auto number = [](std::size_t, VerbsConfig& config) { config.self = Numbering::kOwn; };
  return std::make_unique<RenumberedWorld>(std::make_unique<VerbsWorld>(size, patient_config(), number));
}

/// Likewise, over two rails: they must find the same pairs, and the same homes.
std::unique_ptr<ContractWorld> make_renumbered_rails_world(std::size_t size) {
  fake_verbs::reset(fake_verbs::two_rails());
  const auto number = [](std::size_t, VerbsConfig& config) { config.self = Numbering::kOwn; };
  return std::make_unique<RenumberedWorld>(std::make_unique<VerbsWorld>(size, patient_config(), number));
}

/// Every other process has few and short slots.
std::unique_ptr<ContractWorld> make_uneven_world(std::size_t size) {
  fake_verbs::reset(fake_verbs::Config{});
  return std::make_unique<VerbsWorld>(size, patient_config(), [](std::size_t process, VerbsConfig& config) {
    if (process % 2 == 0) return;
    config.rail.slot_bytes = 1024;
    config.rail.slots_per_slab = 16;
    config.rail.most_receive_slots = 64;
    config.most_send_slots = 64;
  });
}

/// The device faults the callers' memory in.
std::unique_ptr<ContractWorld> make_on_demand_world(std::size_t size) {
  fake_verbs::Config fake;
  fake.devices[0].faults_pages = true;
  fake_verbs::reset(fake);
  VerbsConfig config = patient_config();
  config.on_demand = true;
  return std::make_unique<VerbsWorld>(size, config);
}

/// Fewer queue pairs than peers, so that links come and go all the time.
std::unique_ptr<ContractWorld> make_parking_world(std::size_t size) {
  fake_verbs::reset(fake_verbs::Config{});
  VerbsConfig config = patient_config();
  config.rail.most_queue_pairs = 4;
  return std::make_unique<VerbsWorld>(size, config);
}

/// Transfers and acknowledgements take time; numbers of queue pairs are used again at once.
std::unique_ptr<ContractWorld> make_slow_world(std::size_t size) {
  fake_verbs::Config fake;
  fake.transfer_delay = std::chrono::microseconds(20);
  fake.acknowledge_delay = std::chrono::microseconds(50);
  fake.pump_interval = std::chrono::microseconds(200);
  fake.purge_destroyed = true;
  fake.devices[0].lowest_number_first = true;
  fake_verbs::reset(fake);
  VerbsConfig config = patient_config();
  config.rail.most_queue_pairs = 8;
  return std::make_unique<VerbsWorld>(size, config);
}

/// Two devices: long writes go over both.
std::unique_ptr<ContractWorld> make_rails_world(std::size_t size) {
  fake_verbs::reset(fake_verbs::two_rails());
  VerbsConfig config = patient_config();
  config.rail.most_queue_pairs = 16;
  return std::make_unique<VerbsWorld>(size, config);
}

const std::vector<ContractParam> kConfigurations = {
    {"roomy", &make_world},
    {"narrow", &make_narrow_world},
    {"uneven", &make_uneven_world},
    {"on_demand", &make_on_demand_world},
    {"parking", &make_parking_world},
    {"slow", &make_slow_world},
    {"rails", &make_rails_world},
    {.name = "renumbered", .make = &make_renumbered_world, .has_secrets = false},
    {.name = "renumbered_rails", .make = &make_renumbered_rails_world, .has_secrets = false}};
INSTANTIATE_PROVIDER_CONTRACT(Verbs, kConfigurations);

}  // namespace
}  // namespace ch3_offload
