// The provider contract over the TCP provider.

#include "rdma/checked/checksum.h"
#include "rdma/checked/checksummed_world.h"
#include "rdma/provider_contract.h"
#include "rdma/renumbered_world.h"
#include "rdma/tcp/tcp_world.h"

namespace ch3_offload {
namespace {

std::unique_ptr<ContractWorld> make_tcp_world(std::size_t size) { return std::make_unique<TcpWorld>(size); }

/// Short messages, of which a look takes many.
std::unique_ptr<ContractWorld> make_narrow_tcp_world(std::size_t size) {
  TcpConfig config = patient_tcp_config();
  config.slot_bytes = 300;
  return std::make_unique<TcpWorld>(size, config);
}

/// Every other process takes short messages only.
std::unique_ptr<ContractWorld> make_uneven_tcp_world(std::size_t size) {
  return std::make_unique<TcpWorld>(size, patient_tcp_config(), [](std::size_t process, TcpConfig& config) {
    if (process % 2 != 0) config.slot_bytes = 1000;
  });
}

/// The processes have no common numbers.
std::unique_ptr<ContractWorld> make_renumbered_tcp_world(std::size_t size) {
  const auto number = [](std::size_t, TcpConfig& config) { config.self = Numbering::kOwn; };
  return std::make_unique<RenumberedWorld>(std::make_unique<TcpWorld>(size, patient_tcp_config(), number));
}

std::vector<ContractParam> tcp_configurations() {
  std::vector<ContractParam> some = {
      {"roomy", &make_tcp_world},
      {"narrow", &make_narrow_tcp_world},
      {"uneven", &make_uneven_tcp_world},
      {.name = "renumbered", .make = &make_renumbered_tcp_world, .has_secrets = false}};
  if (have_checksums()) some.push_back({"checksums", &with_checksums<&make_tcp_world>});
  return some;
}
INSTANTIATE_PROVIDER_CONTRACT(Tcp, tcp_configurations());

}  // namespace
}  // namespace ch3_offload
