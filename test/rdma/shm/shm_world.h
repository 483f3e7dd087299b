// A ContractWorld of shm providers in this process.

#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "rdma/contract_world.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload {

inline JobSecret test_secret(unsigned char fill = 0x5A) {
  JobSecret secret;
  secret.fill(static_cast<std::byte>(fill));
  return secret;
}

inline std::unique_ptr<ShmProvider> make_shm(const ShmConfig& config) {
  Result<std::unique_ptr<ShmProvider>> provider = ShmProvider::create(config);
  if (!provider.ok()) {
    ADD_FAILURE() << provider.error().message;
    return nullptr;
  }
  return std::move(provider.value());
}

class ShmWorld final : public ContractWorld {
 public:
  /// `own`: the number that all have for themselves. Nothing: each has its place in the world.
  ShmWorld(std::size_t size, ShmConfig config, std::optional<PeerId> own = {}) : config_(config) {
    config_.job_secret = test_secret();
    for (std::size_t i = 0; i < size; ++i) {
      config_.self = own.value_or(PeerId{static_cast<std::uint32_t>(i)});
      providers_.push_back(make_shm(config_));
    }
  }

  std::size_t size() const override { return providers_.size(); }
  Provider& at(PeerId peer) override { return *providers_[index_of(peer)]; }
  bool alive(PeerId peer) const override { return providers_[index_of(peer)] != nullptr; }
  void step() override {}
  void settle() override {}
  void kill(PeerId peer) override { providers_[index_of(peer)].reset(); }
  std::unique_ptr<Provider> make_impostor(PeerId claimed) override {
    ShmConfig config = config_;
    config.self = claimed;
    config.job_secret = test_secret(0x5B);
    return make_shm(config);
  }

 private:
  ShmConfig config_;
  std::vector<std::unique_ptr<ShmProvider>> providers_;
};

}  // namespace ch3_offload
