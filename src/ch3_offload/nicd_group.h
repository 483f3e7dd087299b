// Processes that a network processor serves and that have their network in common: those of a job
// (nicd_job.h), or one that is of none (nicd_lone_process.h).
//
// A client whose page comes late is in the midst of its turn, in another thread (nic/runner_relay.h): it is
// left alone until then. If it ends meanwhile, its peers hear of it, and it is dropped afterwards.
//
// Threads: one at a time.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ch3_offload/nicd_client.h"
#include "nic/nicd_protocol.h"
#include "nic/waiter.h"
#include "rdma/file_descriptor.h"
#include "rdma/log.h"
#include "rdma/provider.h"
#include "rdma/status.h"

namespace ch3_offload {

class NicdGroup {
 public:
  virtual ~NicdGroup() = default;

  /// Whether a process that says this hello belongs to it.
  virtual bool is_of(const NicdHello& hello) const noexcept = 0;
  /// Takes a process in and answers it. The error's message is for the user.
  virtual std::optional<Error> admit(FileDescriptor socket, pid_t pid, const NicdHello& hello) = 0;

  std::size_t turn() noexcept;
  /// This thread goes on for one whose copy is late.
  void take_over() noexcept;
  void tell_counters() noexcept;
  /// Drops the clients whose sockets have ended.
  void look_at_sockets() noexcept;
  std::size_t clients() const noexcept { return clients_.size(); }
  /// Whether all of its processes have ended, some of them in the midst of their turns, and nothing waits to
  /// leave the node.
  bool is_deserted() const noexcept;
  /// MPIR_CVAR_CH3_OFFLOAD_SPIN, as the first process said it.
  std::int64_t spin_us() const noexcept { return spin_us_; }
  /// Processes of its job, as the first one said it. 0: a lone process.
  std::uint32_t job_size() const noexcept { return job_size_; }
  /// Its processes on the node, as the first one said it. 1: a lone process.
  std::uint32_t local_size() const noexcept { return local_size_; }
  /// Whether its processes have ended, and what they had to say has left the node, or cannot. Does not wait,
  /// and brings that forward: to be called every few milliseconds while is_leaving().
  bool is_over(std::uint64_t now_ns) noexcept;
  /// Its processes have ended, and its network says farewell. It takes none in any more.
  bool is_leaving() const noexcept { return is_leaving_; }

  bool arm() noexcept;
  void disarm() noexcept;
  /// Adds what ends a sleep.
  void add_to(SleepSet& set) const noexcept;

 protected:
  explicit NicdGroup(MemoryCopier& copier) noexcept : copier_(copier) {}
  NicdGroup(const NicdGroup&) = delete;
  NicdGroup& operator=(const NicdGroup&) = delete;

  // What the group shares, and the engines of its clients do not poll. Nothing, where they poll all.

  virtual std::size_t poll_network() noexcept { return 0; }
  virtual bool arm_network() noexcept { return true; }
  virtual void disarm_network() noexcept {}
  virtual void add_network(SleepSet&) const noexcept {}
  /// Whether nothing of it waits to leave.
  virtual bool is_network_at_rest() const noexcept { return true; }

  /// Tells every client: each knows whether it is the one that says the line. Those that come later, too.
  void tell(LogScope scope, const char* line);
  /// Takes in a client that has been welcomed.
  void add(std::unique_ptr<NicdClient> client);
  /// Whether a client is in the midst of its turn.
  bool has_late() const noexcept;

  MemoryCopier& copier_;  ///< Of the clients. Outlives this.
  std::int64_t spin_us_ = -1;
  std::uint32_t job_size_ = 0;
  std::uint32_t local_size_ = 1;
  std::vector<std::unique_ptr<Provider>> providers_;  ///< The network. They leave when all clients have.
  std::vector<std::unique_ptr<NicdClient>> clients_;  ///< A derived class ends them before what they use.

 private:
  void drop(const NicdClient& client, std::string_view why) noexcept;
  bool leave() noexcept;
  std::size_t see_off() noexcept;

  std::vector<std::pair<LogScope, std::string>> lines_;   ///< What was logged: for clients that come later.
  std::uint64_t alone_since_ns_ = 0;                      ///< 0: it has clients.
  std::vector<std::shared_ptr<OwnProviders>> departing_;  ///< Of clients that have ended.
  bool is_leaving_ = false;  ///< Nothing but Provider::leave() is called of the network.
};

}  // namespace ch3_offload
