// The thread driver: the engine and its providers run in a thread of the client's process, so that messages
// match, move and finish while the client computes.
//
// The thread polls while there is traffic, and sleeps when there is none (WaitPolicy, as a waiting client).
// It takes no signal but those of faults, calls nothing of the client but the two functions of a
// PayloadLayout of kind kPacked, and holds no lock.
//
// Threads: as Port. fork: a child has no port.

#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "nic/host_driver.h"
#include "nic/processor_set.h"
#include "nic/ring_port.h"
#include "nic/ring_server.h"
#include "nic/wait_policy.h"

namespace ch3_offload {

class ThreadDriver final : public RingPort {
 public:
  /// `config` and `providers` as Engine's, `wait` how the thread waits. From start() on, the providers are
  /// the thread's. kNoMemory: the message says of what.
  static Result<std::unique_ptr<ThreadDriver>> create(const EngineConfig& config,
                                                      std::span<Provider* const> providers,
                                                      const WaitPolicy& wait);
  /// Begins. Until then the providers are the caller's. kNoMemory, kDeviceFailed: no thread.
  std::optional<Error> start();
  /// From now on the thread runs on `processors` only. REQUIRES: started. kDeviceFailed: it may not, and runs
  /// where it could before.
  std::optional<Error> bind(const ProcessorSet& processors);
  /// Ends the thread. From then on the providers are the caller's, and nothing else may be called.
  void stop() noexcept;
  ~ThreadDriver() override { stop(); }

  bool keeps_memory() const noexcept override { return keeps_memory_; }
  void memory_gone(const void* address, std::size_t length_bytes) noexcept override {
    port_.memory_gone(address, length_bytes);
  }
  std::string card() const override { return card_; }

  /// Whether the caller is the thread. What the providers log there, log_line() hands to the client.
  bool runs_here() const noexcept;
  void log_line(LogScope scope, std::string_view line) noexcept { server_.warn(scope, line); }

 private:
  /// For create() only.
  ThreadDriver(std::unique_ptr<PortMemory> memory, const EngineConfig& config,
               std::span<Provider* const> providers, const WaitPolicy& wait);

  void wait_for_processor(std::uint32_t turns) noexcept override;
  void run() noexcept;
  void sleep() noexcept;
  void wait_for_bell(bool is_blocked) noexcept;

  const std::unique_ptr<PortMemory> memory_;
  HostDriver port_;  ///< The thread's.
  RingServer server_;
  const bool keeps_memory_;
  const std::string card_;
  WaitPolicy wait_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace ch3_offload
