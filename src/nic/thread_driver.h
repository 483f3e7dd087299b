// The thread driver: the engine and its providers run in a thread of the client's process (nic_thread.h), so
// that messages match, move and finish while the client computes.
//
// The thread calls nothing of the client but the two functions of a PayloadLayout of kind kPacked.
//
// Threads: as Port. fork: a child has no port.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "nic/host_driver.h"
#include "nic/host_targets.h"
#include "nic/nic_thread.h"
#include "nic/ring_port.h"
#include "nic/ring_server.h"
#include "nic/ring_targets.h"
#include "nic/target_server.h"

namespace ch3_offload {

class ThreadDriver final : public RingPort {
 public:
  /// `config` and `providers` as Engine's. From start() on, the providers are the thread's. `wait`: how the
  /// client waits for the thread's answers. kNoMemory: the message says of what.
  static Result<std::unique_ptr<ThreadDriver>> create(const EngineConfig& config,
                                                      std::span<Provider* const> providers,
                                                      std::shared_ptr<NicThread> thread,
                                                      const WaitPolicy& wait);
  /// Begins. Until then the providers are the caller's. kNoMemory: as NicThread::add().
  std::optional<Error> start();
  /// Ends, also the port of a second client. From then on the providers are the caller's, and nothing else
  /// may be called.
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
    work_.port.memory_gone(address, length_bytes);
  }
  std::string card() const override { return card_; }
  /// The thread stands still meanwhile, as far as this driver goes.
  bool add_providers(std::span<Provider* const> providers) noexcept override;
  bool forget_peer(PeerId peer) noexcept override;

  NicThread& thread() noexcept { return *thread_; }
  /// What the providers log in the thread, log_line() hands to the client. REQUIRES: called in the thread.
  void log_line(LogScope scope, std::string_view line) noexcept { work_.server.warn(scope, line); }

 private:
  /// For create() only.
  ThreadDriver(std::unique_ptr<PortMemory> memory, const EngineConfig& config,
               std::span<Provider* const> providers, std::shared_ptr<NicThread> thread,
               const WaitPolicy& wait);

  /// The engine, and the server of the first client.
  struct EngineWork final : NicWork {
    EngineWork(PortMemory& its_memory, const EngineConfig& config, std::span<Provider* const> providers)
        : memory(its_memory), port(config, providers), server(port, memory, config.trace) {}
    std::size_t turn() noexcept override;
    bool arm() noexcept override;
    void disarm() noexcept override;
    void add_to(SleepSet& set) const noexcept override;
    void tell_counters() noexcept override { server.tell_counters(); }

    PortMemory& memory;
    HostDriver port;
    RingServer server;
    bool is_blocked = false;  ///< When it was armed: events wait for room, and the engine must not work.
  };
  /// A second client: its ring, the two halves of its port, and what the thread calls for it.
  struct SecondClient final : NicWork {
    SecondClient(PortMemory its_memory, HostDriver& driver, ProcessBook& book, const WaitPolicy& wait)
        : memory(std::move(its_memory)), targets(driver, book), server(targets, memory), port(memory, wait) {}
    std::size_t turn() noexcept override;
    bool arm() noexcept override { return server.arm(); }
    void disarm() noexcept override { server.disarm(); }
    void add_to(SleepSet& set) const noexcept override { server.add_to(set); }

    PortMemory memory;
    HostTargets targets;
    TargetServer server;
    RingTargets port;
  };

  const std::shared_ptr<NicThread> thread_;
  const std::unique_ptr<PortMemory> memory_;
  const WaitPolicy wait_;  ///< For a second client.
  EngineWork work_;  ///< The thread's.
  const bool keeps_memory_;
  const std::string card_;
  std::unique_ptr<SecondClient> second_;  ///< Null: there is none.
};

}  // namespace ch3_offload
