// A ContractWorld of verbs providers in this process: over the fake device, or over whatever libibverbs
// finds.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "rdma/contract_world.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {

inline JobSecret verbs_test_secret(unsigned char fill = 0x5A) {
  JobSecret secret;
  secret.fill(static_cast<std::byte>(fill));
  return secret;
}

/// The looks for stalled links end no sleep: a lost wake-up is a time-out of the test.
inline VerbsConfig patient_config() {
  VerbsConfig config;
  config.peer_timeout_ms = 3'600'000;
  return config;
}

inline std::unique_ptr<VerbsProvider> make_verbs(const VerbsConfig& config) {
  Result<std::unique_ptr<VerbsProvider>> provider = VerbsProvider::create(config);
  if (!provider.ok()) {
    ADD_FAILURE() << provider.error().message;
    return nullptr;
  }
  return std::move(provider.value());
}

class VerbsWorld final : public ContractWorld {
 public:
  /// `adjust` may change the configuration of one process.
  VerbsWorld(std::size_t size, VerbsConfig config,
             const std::function<void(std::size_t, VerbsConfig&)>& adjust = {})
      : config_(std::move(config)) {
    config_.job_secret = verbs_test_secret();
    config_.log = [](void* world, LogScope scope, const char* line) {
      try {
        static_cast<VerbsWorld*>(world)->lines.push_back(line);
        static_cast<VerbsWorld*>(world)->scopes.push_back(scope);
      } catch (const std::bad_alloc&) {  // A test made it so.
      }
    };
    config_.log_context = this;
    for (std::size_t i = 0; i < size; ++i) {
      config_.self = PeerId{static_cast<std::uint32_t>(i)};
      VerbsConfig own = config_;
      if (adjust) adjust(i, own);
      providers_.push_back(make_verbs(own));
    }
  }
  /// A real process does not know the others' ends; here nobody would answer the first one's goodbye.
  ~VerbsWorld() override {
    for (const auto& provider : providers_)
      if (provider != nullptr) provider->abandon();
  }

  std::size_t size() const override { return providers_.size(); }
  VerbsProvider& at(PeerId peer) override { return *providers_[index_of(peer)]; }
  bool alive(PeerId peer) const override { return providers_[index_of(peer)] != nullptr; }
  void step() override {}
  void settle() override { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }
  void kill(PeerId peer) override {
    at(peer).abandon();
    providers_[index_of(peer)].reset();
    for (const auto& provider : providers_)
      if (provider != nullptr) provider->probe_soon();
  }
  /// The process ends as it should.
  void leave(PeerId peer) { providers_[index_of(peer)].reset(); }
  std::unique_ptr<Provider> make_impostor(PeerId claimed) override {
    VerbsConfig config = config_;
    config.self = claimed;
    config.job_secret = verbs_test_secret(0x5B);
    std::unique_ptr<VerbsProvider> impostor = make_verbs(config);
    impostor->abandon();
    return impostor;
  }

  std::vector<std::string> lines;  ///< What was logged.
  std::vector<LogScope> scopes;    ///< Of each line.

 private:
  VerbsConfig config_;
  std::vector<std::unique_ptr<VerbsProvider>> providers_;
};

}  // namespace ch3_offload
