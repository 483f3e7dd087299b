// One MPI process: its providers, its engine, its trace, and the way it waits. What the C interface
// (ch3_offload.h) is a thin skin of.
//
// Threads: as ch3_offload.h says.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/wait_policy.h"
#include "dme/memory_events.h"
#include "engine/engine.h"
#include "engine/trace.h"
#include "rdma/provider.h"

namespace ch3_offload {

class Channel final : public Host {
 public:
  /// Makes the providers that `config` (checked before) asks for, and the engine over them.
  static Result<std::unique_ptr<Channel>> create(const ch3_offload_config_t& config,
                                                 const ch3_offload_callbacks_t& callbacks, void* user);
  ~Channel() override;

  Engine& engine() noexcept { return *engine_; }
  /// After a command that another thread may have given during a sleep: ends the sleep if something is left
  /// that no descriptor tells of.
  void commanded() noexcept {
    if (armed_ && !engine_->at_rest()) [[unlikely]] wake();
  }
  const Engine& engine() const noexcept { return *engine_; }
  const std::string& card() const noexcept { return card_; }
  /// Of all providers together; a new sum at each call, at the same place.
  const ProviderCounters& provider_counters() const noexcept;

  std::size_t progress() noexcept;
  int write_trace() noexcept;

  // Waiting; see ch3_offload.h.
  void wait_begin() noexcept { wait_.begin(); }
  /// kSleep: armed now.
  WaitPolicy::Step next_step() noexcept;
  /// False: progress() would find nothing but housekeeping to do.
  bool may_have_work() noexcept;
  bool is_crowded() const noexcept { return wait_.is_crowded(); }
  void sleep(int timeout_ms) noexcept;
  void awake() noexcept;
  void wake() noexcept;

  // Host
  void on_send_done(Cookie cookie, Status status) noexcept override;
  void on_receive_done(Cookie cookie, const Envelope& envelope) noexcept override;
  void on_cancel_done(Cookie cookie, bool cancelled) noexcept override;
  void on_packet(PeerId peer, std::span<const std::byte> bytes) noexcept override;
  Payload on_packet_offer(PeerId peer, std::size_t length_bytes) noexcept override;
  void on_packet_placed(PeerId peer, std::size_t length_bytes) noexcept override;
  void on_peer_failed(PeerId peer, Status reason) noexcept override;
  std::string resolve(PeerId peer) override;
  void on_warning(const std::string& text) noexcept override;

 private:
  Channel(const ch3_offload_config_t& config, const ch3_offload_callbacks_t& callbacks, void* user);
  std::optional<Error> make_providers(const ch3_offload_config_t& config);
  std::optional<Error> make_shm(const ch3_offload_config_t& config);
  std::optional<Error> make_verbs(const ch3_offload_config_t& config);
  static void log_line(void* process, const char* line);
  void watch_memory();
  void trace(TraceEvent event) noexcept;

  const PeerId self_;
  const ch3_offload_callbacks_t callbacks_;
  void* const user_;
  std::string trace_path_;  ///< Empty: no trace.
  std::string card_;
  WaitPolicy wait_;
  int wake_descriptor_ = -1;  ///< eventfd: readable ends a sleep.
  bool armed_ = false;
  bool is_last_look_ = false;  ///< The next progress() is the sleeper's own, between arming and sleeping.
  std::set<std::string> warnings_;  ///< Said already.
  // Declared before what uses them: destroyed after.
  std::unique_ptr<Trace> trace_;
  std::vector<std::unique_ptr<Provider>> providers_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<MemoryEvents> memory_events_;  ///< Null: the engine keeps no memory registered.
  mutable ProviderCounters provider_counters_;
};

/// The C value of a status.
int to_c(Status status) noexcept;
ch3_offload_envelope_t to_c(const Envelope& envelope) noexcept;

}  // namespace ch3_offload
