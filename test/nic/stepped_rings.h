// A port through rings whose processor runs in the same thread, in turns that a seed chooses: what the thread
// driver and the process driver do, but so that it can be replayed.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "nic/host_driver.h"
#include "nic/ring_port.h"
#include "nic/ring_server.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {

class SteppedRings final : public RingPort {
 public:
  /// `client`: the memory of this process, as a processor in another one sees it; null: it is the same one.
  SteppedRings(const EngineConfig& config, std::span<Provider* const> providers, std::uint64_t seed,
               ClientMemory* client = nullptr)
      : SteppedRings(std::make_unique<PortMemory>(std::move(PortMemory::make().value())), config, providers,
                     seed, client) {}

  /// The processor has a turn, or not. It has one of two.
  std::size_t progress() noexcept override {
    rests_ = !rests_ && random_.chance(0.4);
    return (rests_ ? 0 : server.turn()) + RingPort::progress();
  }
  bool keeps_memory() const noexcept override { return host.keeps_memory(); }
  void memory_gone(const void* address, std::size_t length_bytes) noexcept override {
    host.memory_gone(address, length_bytes);
  }
  std::string card() const override { return host.card(); }
  const CounterPage& counters() const noexcept override { return host.counters(); }

 private:
  SteppedRings(std::unique_ptr<PortMemory> its_memory, const EngineConfig& config,
               std::span<Provider* const> providers, std::uint64_t seed, ClientMemory* client)
      : RingPort(*its_memory, config.trace, client != nullptr),
        memory(std::move(its_memory)),
        host(config, providers),
        server(host, *memory, config.trace, client),
        random_(seed) {}

  void wait_for_processor(std::uint32_t) noexcept override {
    static_cast<void>(server.turn());
    if (!server.is_refused()) return;
    std::fputs("the processor refuses its client, which waits for it\n", stderr);
    std::abort();
  }

 public:
  const std::unique_ptr<PortMemory> memory;
  HostDriver host;
  RingServer server;

 private:
  SeededRandom random_;
  bool rests_ = false;
};

}  // namespace ch3_offload
