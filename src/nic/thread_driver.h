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
#include "nic/host_targets.h"
#include "nic/processor_set.h"
#include "nic/ring_port.h"
#include "nic/ring_server.h"
#include "nic/ring_targets.h"
#include "nic/target_server.h"
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

  /// Makes the port of a second client, which is the driver's, and which the thread serves from now on. From
  /// now to detach_targets(), the book is the thread's. REQUIRES: started, and there is none. kNoMemory: the
  /// message says of what.
  Result<TargetPort*> attach_targets(ProcessBook& book);
  /// Ends it. REQUIRES: its interfaces are closed. Has no effect without one.
  void detach_targets() noexcept;

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

  /// A second client: its ring, the two halves of its port, and what the thread calls for it.
  struct SecondClient {
    SecondClient(PortMemory its_memory, HostDriver& driver, ProcessBook& book)
        : memory(std::move(its_memory)), targets(driver, book), server(targets, memory), port(memory) {}
    PortMemory memory;
    HostTargets targets;
    TargetServer server;
    RingTargets port;
  };

  void wait_for_processor(std::uint32_t turns) noexcept override;
  void offer(TargetServer* targets) noexcept;
  std::size_t turn() noexcept;
  void run() noexcept;
  void sleep() noexcept;
  void wait_for_bell(bool is_blocked, const TargetServer* targets) noexcept;

  const std::unique_ptr<PortMemory> memory_;
  HostDriver port_;  ///< The thread's.
  RingServer server_;
  const bool keeps_memory_;
  const std::string card_;
  WaitPolicy wait_;
  std::atomic<bool> ends_{false};
  std::unique_ptr<SecondClient> second_;         ///< The client's. Null: there is none.
  std::atomic<TargetServer*> offered_{nullptr};  ///< Stored by the client: what the thread is to serve.
  std::atomic<TargetServer*> serving_{nullptr};  ///< Stored by the thread: what it serves.
  std::thread thread_;
};

}  // namespace ch3_offload
