// A ContractWorld with checksums: each provider of another world is wrapped.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rdma/checked/checked_provider.h"
#include "rdma/contract_world.h"

namespace ch3_offload {

/// REQUIRES: have_checksums().
class ChecksummedWorld final : public ContractWorld {
 public:
  explicit ChecksummedWorld(std::unique_ptr<ContractWorld> inner) : inner_(std::move(inner)) {
    for (std::uint32_t i = 0; i < inner_->size(); ++i)
      providers_.push_back(std::make_unique<CheckedProvider>(inner_->at(PeerId{i}), Log(nullptr, nullptr)));
  }

  std::size_t size() const override { return inner_->size(); }
  Provider& at(PeerId peer) override { return *providers_[index_of(peer)]; }
  bool alive(PeerId peer) const override { return inner_->alive(peer); }
  void step() override { inner_->step(); }
  void settle() override { inner_->settle(); }
  void kill(PeerId peer) override {
    providers_[index_of(peer)].reset();
    inner_->kill(peer);
  }
  std::unique_ptr<Provider> make_impostor(PeerId claimed) override {
    std::unique_ptr<Provider> impostor = inner_->make_impostor(claimed);
    return impostor == nullptr ? nullptr : with_checksums(std::move(impostor), Log(nullptr, nullptr));
  }

 private:
  std::unique_ptr<ContractWorld> inner_;
  std::vector<std::unique_ptr<CheckedProvider>> providers_;
};

/// For INSTANTIATE_PROVIDER_CONTRACT: none where this library has no checksums.
template <std::unique_ptr<ContractWorld> (*make)(std::size_t)>
std::unique_ptr<ContractWorld> with_checksums(std::size_t size) {
  return std::make_unique<ChecksummedWorld>(make(size));
}

}  // namespace ch3_offload
