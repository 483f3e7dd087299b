// A Portals process on the fabric: its providers, its engine with the driver that runs it, and its book of
// processes (lone_process.h). With the process driver, the node's network processor has all of these.
//
// The settings are MPI's, MPIR_CVAR_CH3_OFFLOAD_*, as far as they concern it; docs/portals.md says which. The
// default of MPIR_CVAR_CH3_OFFLOAD_NIC is thread here: events must come while no thread is in a call.
//
// Without a key file (nic/user_key.h), only processes of the same user and node meet.
//
// Threads: as PortalsProcess.

#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ch3_offload/environment.h"
#include "ch3_offload/nic_choice.h"
#include "dme/memory_events.h"
#include "nic/host_driver.h"
#include "nic/host_targets.h"
#include "nic/introductions.h"
#include "nic/parting.h"
#include "nic/process_driver.h"
#include "nic/thread_driver.h"
#include "portals/portals_process.h"
#include "rdma/provider.h"

namespace ch3_offload::portals {

class FabricProcess final : public PortalsProcess {
 public:
  /// As make_portals_process().
  static Result<std::unique_ptr<FabricProcess>> create(std::optional<std::uint32_t> pid);
  ~FabricProcess() override;

  TargetPort& port() noexcept override { return *port_; }
  ProcessId self() const noexcept override { return book_ != nullptr ? book_->self() : process_->process(); }
  UserId user() const noexcept override;
  const ProcessLimits& limits() const noexcept override { return limits_; }
  bool works_alone() const noexcept override { return host_ == nullptr; }
  WaitPolicy wait_policy() const noexcept override;
  void look() noexcept override;
  void say_news() noexcept override;
  void waits_for_long() noexcept override;

 private:
  FabricProcess() = default;
  std::optional<Error> read_settings();
  std::optional<Error> make_here(const UserKey& key, std::uint16_t pid);
  std::optional<Error> make_driver();
  std::optional<Error> make_book(const UserKey& key, std::uint16_t pid);
  std::optional<Error> make_elsewhere(const UserKey& key, std::uint16_t pid);
  std::optional<Error> make_port();
  void watch_memory();
  void warn_of_settings();
  void set_limits() noexcept;
  void drain() noexcept;
  Port& first_port() noexcept;
  void say(LogScope scope, std::string_view line) noexcept;
  static void log_line(void* process, LogScope scope, const char* line);

  Environment environment_;
  NicChoice nic_;
  Parting parting_;
  bool knows_node_ = false;  ///< How many processes of the job are on this node (mpiexec says it).
  ProcessLimits limits_;
  std::mutex said_lock_;
  std::set<std::string, std::less<>> said_;
  // In this order: what is below uses what is above.
  std::vector<std::unique_ptr<Provider>> providers_;
  // One of three.
  std::unique_ptr<HostDriver> host_;
  std::unique_ptr<ThreadDriver> thread_;
  std::unique_ptr<ProcessDriver> process_;
  std::unique_ptr<Introductions> book_;          ///< Null: the processor in another process has it.
  std::unique_ptr<HostTargets> host_targets_;    ///< Of host_.
  TargetPort* port_ = nullptr;                   ///< host_targets_, or the driver's.
  std::unique_ptr<MemoryEvents> memory_events_;  ///< Null: the engine keeps no memory registered.
};

}  // namespace ch3_offload::portals
