// The provider contract on the shm provider, in its configurations.

#include "rdma/provider_contract.h"
#include "rdma/shm/shm_world.h"

namespace ch3_offload {
namespace {

std::unique_ptr<ContractWorld> make_world(std::size_t size, std::size_t ring_bytes, BulkMethod bulk) {
  ShmConfig config;
  config.ring_bytes = ring_bytes;
  config.bulk = bulk;
  return std::make_unique<ShmWorld>(size, config);
}
std::unique_ptr<ContractWorld> streaming(std::size_t size) {
  return make_world(size, ShmConfig{}.ring_bytes, BulkMethod::kStream);
}
std::unique_ptr<ContractWorld> writing(std::size_t size) {
  return make_world(size, ShmConfig{}.ring_bytes, BulkMethod::kCma);
}
std::unique_ptr<ContractWorld> smallest_ring(std::size_t size) {
  return make_world(size, kLeastRingBytes, BulkMethod::kCma);
}

INSTANTIATE_TEST_SUITE_P(Shm, ProviderContract,
                         testing::Values(ContractParam{"Streaming", &streaming},
                                         ContractParam{"Writing", &writing},
                                         ContractParam{"SmallestRing", &smallest_ring}),
                         contract_name);

}  // namespace
}  // namespace ch3_offload
