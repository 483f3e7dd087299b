// A ContractWorld of TCP providers in this process, over loopback.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rdma/contract_world.h"
#include "rdma/tcp/tcp_provider.h"

namespace ch3_offload {

inline JobSecret tcp_test_secret(unsigned char fill = 0x5A) {
  JobSecret secret;
  secret.fill(static_cast<std::byte>(fill));
  return secret;
}

/// The looks for silent peers end no sleep: a lost wake-up is a time-out of the test.
inline TcpConfig patient_tcp_config() {
  TcpConfig config;
  config.peer_timeout_ms = 3'600'000;
  config.interface = "127.0.0.1";
  config.loopback_serves = true;
  config.job_secret = tcp_test_secret();
  config.socket_bytes = 131072;  // Soon full.
  return config;
}

inline std::unique_ptr<TcpProvider> make_tcp(const TcpConfig& config) {
  Result<std::unique_ptr<TcpProvider>> provider = TcpProvider::create(config);
  if (!provider.ok()) {
    ADD_FAILURE() << provider.error().message;
    return nullptr;
  }
  return std::move(provider.value());
}

class TcpWorld final : public ContractWorld {
 public:
  /// `adjust` may change the configuration of one process.
  explicit TcpWorld(std::size_t size, TcpConfig config = patient_tcp_config(),
                    const std::function<void(std::size_t, TcpConfig&)>& adjust = {})
      : config_(std::move(config)) {
    config_.log = [](void* world, LogScope, const char* line) {
      try {
        static_cast<TcpWorld*>(world)->lines.push_back(line);
      } catch (const std::bad_alloc&) {  // A test made it so.
      }
    };
    config_.log_context = this;
    for (std::size_t i = 0; i < size; ++i) {
      config_.self = PeerId{static_cast<std::uint32_t>(i)};
      TcpConfig own = config_;
      if (adjust) adjust(i, own);
      providers_.push_back(make_tcp(own));
    }
  }
  /// A real process does not know the others' ends; here nobody would take what the first one still has.
  ~TcpWorld() override {
    for (const auto& provider : providers_)
      if (provider != nullptr) provider->abandon();
  }

  std::size_t size() const override { return providers_.size(); }
  TcpProvider& at(PeerId peer) override { return *providers_[index_of(peer)]; }
  bool alive(PeerId peer) const override { return providers_[index_of(peer)] != nullptr; }
  void step() override {}
  void settle() override { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }
  void kill(PeerId peer) override {
    at(peer).abandon();
    leave(peer);
  }
  /// The process ends as it should.
  void leave(PeerId peer) { providers_[index_of(peer)].reset(); }
  std::unique_ptr<Provider> make_impostor(PeerId claimed) override {
    TcpConfig config = config_;
    config.self = claimed;
    config.job_secret = tcp_test_secret(0x5B);
    std::unique_ptr<TcpProvider> impostor = make_tcp(config);
    impostor->abandon();
    return impostor;
  }

  std::vector<std::string> lines;  ///< What was logged.

 private:
  TcpConfig config_;
  std::vector<std::unique_ptr<TcpProvider>> providers_;
};

}  // namespace ch3_offload
