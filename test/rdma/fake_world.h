// The fake network as a world of the provider contract suite.

#pragma once

#include "rdma/contract_world.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {

class FakeWorld final : public ContractWorld {
 public:
  FakeWorld(const FakeConfig& config, std::size_t size) : network_(config) {
    for (std::uint32_t i = 0; i < size; ++i) providers_.push_back(network_.make_provider(PeerId{i}));
  }

  std::size_t size() const override { return providers_.size(); }
  Provider& at(PeerId peer) override { return *providers_[index_of(peer)]; }
  bool alive(PeerId peer) const override { return providers_[index_of(peer)] != nullptr; }
  void step() override { network_.advance(); }
  void settle() override {
    while (network_.advance()) {
    }
  }
  void kill(PeerId peer) override { providers_[index_of(peer)].reset(); }

  FakeNetwork& network() { return network_; }
  FakeProvider& fake(PeerId peer) { return *providers_[index_of(peer)]; }

 private:
  FakeNetwork network_;
  std::vector<std::unique_ptr<FakeProvider>> providers_;
};

}  // namespace ch3_offload
