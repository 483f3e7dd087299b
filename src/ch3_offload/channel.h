// What one MPI process has: its providers, the port to its engine, its trace, and the way it waits. What the
// C interface (ch3_offload.h) is a thin skin of.
//
// Threads: as ch3_offload.h says.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ch3_offload/call_driven.h"
#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/foreign_processes.h"
#include "ch3_offload/job_report.h"
#include "ch3_offload/nic_choice.h"
#include "ch3_offload/windows.h"
#include "dme/memory_events.h"
#include "engine/trace.h"
#include "nic/neighbour_memory.h"
#include "nic/parting.h"
#include "nic/port.h"
#include "nic/process_driver.h"
#include "nic/rank_book.h"
#include "nic/thread_driver.h"
#include "nic/waiter.h"
#include "rdma/provider.h"

namespace ch3_offload {

class ShmProvider;

class Channel final : private MovesCallDriven {
 public:
  /// Makes the providers that `config` (checked before) asks for, and the engine over them.
  static Result<std::unique_ptr<Channel>> create(const ch3_offload_config_t& config);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Port& port() noexcept { return *port_; }
  /// As Port::introduce(). Connects to a process of this node ahead of its first message, where the provider is
  /// the caller's: ShmProvider::prepare().
  void introduce(PeerId peer, std::string_view card);
  /// Waits, for 3 ms at most, until those connections are complete on both sides.
  void meet_node() noexcept;
  /// After a command that another thread may have given during a sleep: ends the sleep if something is left
  /// that no descriptor tells of.
  void commanded() noexcept {
    if (armed_ && !port_->at_rest()) [[unlikely]]
      wake();
  }
  const Port& port() const noexcept { return *port_; }
  /// As Port::idle(), of windows, too.
  bool idle() const noexcept { return port_->idle() && (windows_ == nullptr || windows_->port().idle()); }
  const std::string& card() const noexcept { return card_; }
  /// As Port::most_schedule_steps(), or 0 by the settings.
  std::size_t most_schedule_steps() const noexcept {
    return takes_schedules_ ? port_->most_schedule_steps() : 0;
  }
  /// Of the settings.
  TrafficClass traffic_class() const noexcept { return traffic_class_; }

  /// Tells, as warnings, how messages move between these nodes: job_report().
  void report(const ch3_offload_config_t& config, std::span<const ReportedNode> nodes);

  /// Memory that other processes map: the processor of the node, or those of the job on this node. Null: none
  /// does.
  SharedArena* arena() noexcept {
    SharedArena* const arena = port_->arena();
    return arena == nullptr && own_arena_ ? &*own_arena_ : arena;
  }
  /// What other processes have of such memory.
  NeighbourMemory& neighbours() noexcept { return neighbours_; }

  /// Null: the driver does not work while the process computes, or there is no memory. Made at the first call.
  Windows* windows() noexcept;

  std::size_t progress() noexcept;
  /// As Port::next_event(), with the providers' warnings and what is told of windows. Each warning comes once;
  /// those that another process says (LogScope) do not come.
  bool next_event(Event& event) noexcept;
  /// Writes the traces of both sides. Returns 0 or errno.
  int write_trace() noexcept;

  /// Processes of other worlds. The first call makes what is needed for them; its error says what to do.
  Result<ForeignProcesses*> foreign();

  // Waiting; see ch3_offload.h.
  void wait_begin() noexcept { waiter_.begin(); }
  /// kPoll, kYield or kSleep: armed now.
  WaitPolicy::Step next_step() noexcept { return waiter_.next(*this); }
  /// False: progress() would find nothing but housekeeping to do.
  bool may_have_work() noexcept;
  bool is_crowded() const noexcept { return waiter_.is_crowded(); }
  void sleep(int timeout_ms) noexcept;
  void awake() noexcept;
  void wake() noexcept;
  const Parting& parting() const noexcept { return parting_; }

 private:
  /// Such peers are there after foreign() only.
  bool is_foreign(PeerId peer) const noexcept { return index_of(peer) >= config_.job_size; }
  std::size_t progress_with_care() noexcept;
  bool next_of_windows(Event& event) noexcept;
  Result<std::unique_ptr<Windows>> make_windows();
  void detach_targets() noexcept;

  // What Waiter calls.
  friend class Waiter;
  WaitPolicy::Step arm() noexcept;
  void disarm() noexcept;
  void look() noexcept;
  bool arm_ports() noexcept;
  bool tell_other_of_sleep() noexcept;
  void end_sleep_of_other() noexcept;

  /// Whether progress() has to look at more than the port.
  void note_care() noexcept;
  void call_driven_came() noexcept override;
  Channel(const ch3_offload_config_t& config, const NicChoice& nic);
  std::optional<Error> make_providers(const ch3_offload_config_t& config);
  std::optional<Error> make_shm(const ch3_offload_config_t& config);
  /// Keeps a line for the user, if this process says those of that scope.
  void warn(LogScope scope, std::string_view text) noexcept;
  static void log_line(void* channel, LogScope scope, const char* line);
  std::optional<Error> make_port(const ch3_offload_config_t& config, const EngineConfig& engine,
                                 const NicChoice& nic);
  std::optional<Error> bind_thread(const NicChoice& nic);
  void watch_memory();
  void warn_of_environment(const ch3_offload_config_t& config);
  /// Warns if the trace was not written. Returns `error`.
  int trace_written(int error, const std::string& path) noexcept;
  void trace(TraceEvent event) noexcept;

  const ch3_offload_config_t config_;
  const PeerId self_;
  const bool is_first_of_node_;  ///< Of the job's processes there.
  const TrafficClass traffic_class_;
  const bool takes_schedules_;
  std::string trace_prefix_;  ///< Up to the rank. Empty: no trace.
  std::string card_;
  Waiter waiter_;  ///< Its set, from next_step() to awake(), is all that sleep() uses.
  Parting parting_;
  int wake_descriptor_ = -1;  ///< eventfd: readable ends a sleep.
  bool armed_ = false;
  /// The port, if progress() has to look at nothing else. Any thread may store null.
  std::atomic<Port*> plain_port_{nullptr};
  bool is_last_look_ = false;  ///< The next progress() is the sleeper's own, between arming and sleeping.
  std::deque<std::string> warnings_;  ///< To be told; the first was, if warning_told_.
  bool warning_told_ = false;
  std::set<std::string, std::less<>> warnings_said_;
  // Declared before what uses them: destroyed after.
  std::unique_ptr<Trace> engine_trace_;  ///< Null: no trace.
  std::unique_ptr<Trace> client_trace_;  ///< Likewise. Also of how this process waits.
  std::vector<std::unique_ptr<Provider>> providers_;
  ShmProvider* node_provider_ = nullptr;         ///< In providers_. Null: there is none.
  SharedWithNeighbours shared_with_neighbours_;  ///< Before own_arena_.
  std::optional<SharedArena> own_arena_;         ///< Nothing: it would serve nobody.
  NeighbourMemory neighbours_;
  Provider* looks_over_ = nullptr;  ///< By which peers of the node are seen on this processor. Null: none.
  std::unique_ptr<ForeignProcesses> foreign_;  ///< Its providers are the port's. Null: there was no need.
  std::unique_ptr<Port> port_;
  ThreadDriver* thread_driver_ = nullptr;    ///< What port_ is or has, if it is one.
  ProcessDriver* process_driver_ = nullptr;  ///< Likewise.
  RankBook ranks_;                           ///< The thread's, as long as there are windows.
  std::unique_ptr<Windows> windows_;         ///< Null: none has been wanted, or none can be.
  bool has_tried_windows_ = false;
  CallDriven* sleeping_for_ = nullptr;           ///< Who knows of the sleep. Null: there is none.
  std::unique_ptr<MemoryEvents> memory_events_;  ///< Null: the engine keeps no memory registered.
};

}  // namespace ch3_offload
