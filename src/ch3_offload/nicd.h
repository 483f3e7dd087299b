// The network processor of a node as a process (ch3-offload-nicd): runs the engines of all processes of a
// user's jobs on the node, and one network provider for each job. It also serves lone processes (Portals).
//
// A client that ends, gives rubbish, or names memory that it does not have is dropped: its peers hear that it
// has ended, and nobody else notices. A client that stops taking events stops only its own messages.
//
//   nicd_newcomers.h      who has connected, and has not said yet who it is
//   nicd_group.h          processes that have their network in common
//   nicd_job.h            a job
//   nicd_lone_process.h   a process that belongs to no job
//   nicd_client.h         one process
//
// Threads: one at a time (nic/runner_relay.h).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/nicd_group.h"
#include "ch3_offload/nicd_newcomers.h"
#include "nic/nicd_protocol.h"
#include "nic/runner_relay.h"
#include "nic/waiter.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {

class Nicd {
 public:
  struct Options {
    std::string name;        ///< To listen at: nicd_name().
    bool is_of_job = false;  ///< It ends when its last client has ended, or none has come.
  };
  /// kPeerFailed: another one has this name.
  static Result<std::unique_ptr<Nicd>> create(const Options& options);

  /// Serves until it ends by itself, or SIGTERM or SIGINT comes. Returns the exit status.
  int run();

 private:
  Nicd(const Options& options, FileDescriptor listener, FileDescriptor signals);

  bool serve();

  // What Waiter calls.
  friend class Waiter;
  std::size_t turn() noexcept;
  WaitPolicy::Step arm() noexcept;
  void disarm() noexcept;
  void look() noexcept {}
  void pause(WaitPolicy::Step step) noexcept { pause_alone(step); }
  void sleep(SleepSet& set) noexcept;

  void keep_house() noexcept;
  void admit(FileDescriptor socket, const NicdHello& hello) noexcept;
  std::optional<Error> find_or_make_group(const NicdHello& hello, pid_t pid, FileDescriptor socket);
  void choose_waiting() noexcept;

  const Options options_;
  const FileDescriptor signals_;
  RunnerRelay relay_;
  NicdNewcomers newcomers_;
  std::vector<std::unique_ptr<NicdGroup>> groups_;
  Waiter waiter_;                 ///< Its policy is chosen anew when a group comes or ends.
  std::uint64_t alone_since_ns_;  ///< 0: it has clients.
  bool ends_ = false;
};

}  // namespace ch3_offload
