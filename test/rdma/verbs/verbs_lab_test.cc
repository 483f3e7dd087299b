// The provider contract over the verbs provider and this machine's own RDMA device: test/lab runs it in a guest.

#include "rdma/provider_contract.h"
#include "rdma/verbs/verbs_world.h"

namespace ch3_offload {
namespace {

std::unique_ptr<ContractWorld> make_world(std::size_t size) {
  return std::make_unique<VerbsWorld>(size, VerbsConfig{});
}

std::unique_ptr<ContractWorld> make_parking_world(std::size_t size) {
  VerbsConfig config;
  config.rail.most_queue_pairs = 4;
  return std::make_unique<VerbsWorld>(size, config);
}

const std::vector<ContractParam> kConfigurations = {{"roomy", &make_world}, {"parking", &make_parking_world}};
INSTANTIATE_PROVIDER_CONTRACT(VerbsDevice, kConfigurations);

}  // namespace
}  // namespace ch3_offload
