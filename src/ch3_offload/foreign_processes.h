// Processes of other MPI worlds, which meet this one by MPI_Comm_spawn, MPI_Comm_connect and MPI_Comm_accept
// (MPI 4.0, chapter 11). The processes of a job know each other from the start, by ranks and by the job's
// secret. Those of other worlds come and go: each has a name, by which it is introduced
// (nic/introductions.h), and gets a number behind the ranks.
//
//   Channel ── find(name) ──▶ ForeignProcesses ── Introductions ──▶ the other process
//      │                            │ card
//      ▼                            ▼
//     port ◀── add_providers(), introduce(), forget_peer()
//
// They have providers of their own, whose secret is the user's (nic/user_key.h) and not the job's. The port
// gets them when the first other world is to be met, so that nobody else pays for them: no listener, no memory,
// no poll.
//
// Without a key file, only processes of the same user and node meet.
//
// Threads: one, that of the port's client. Blocking: create() only.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ch3_offload/lone_process.h"
#include "nic/introductions.h"
#include "nic/port.h"
#include "nic/process_driver.h"
#include "rdma/provider.h"

namespace ch3_offload {

class ForeignProcesses final : private ProcessBook::Listener {
 public:
  /// Makes the providers, and gives them to `port`, which outlives this object. They outlive the port: the
  /// caller destroys it between close() and the end of this object. `processor`: the same port, if its engine
  /// is in another process, which makes them then; otherwise null. `config`: the job's. Errors: as those of
  /// make_lone_providers() and Introductions::create().
  static Result<std::unique_ptr<ForeignProcesses>> create(const ch3_offload_config_t& config, Port& port,
                                                          ProcessDriver* processor, const LoneLog& log);

  /// By which others find this process: "10.0.0.5/4711". Throws std::bad_alloc.
  std::string name() const;
  /// The number of the process of that name, which is sought from now on. kUnsupported: nobody can have that
  /// name. kNoMemory.
  Status find(std::string_view name, PeerId& peer) noexcept;
  /// Its name. "": nobody has that number. Throws std::bad_alloc.
  std::string name_of(PeerId peer) const;

  /// The port says that it has failed: the number will not be used any more.
  void failed(PeerId peer) noexcept;
  /// The port tells a failure once. Here is one whose number find() has given again since. False: none.
  bool next_failed(PeerId& peer) noexcept;

  /// Introduces, and gives cards to the port. Returns how many things happened.
  std::size_t poll() noexcept { return book_->poll(*this); }
  int descriptor() const noexcept { return book_->descriptor(); }
  std::uint64_t next_due_ns() const noexcept;
  /// Nobody is introduced any more.
  void close() noexcept { book_.reset(); }

 private:
  /// The thread driver stands still while it forgets: so rarely.
  static constexpr std::uint64_t kForgetAgainNs = 10'000'000;

  explicit ForeignProcesses(Port& port) noexcept : port_(port) {}

  void on_process(PeerId peer, ProcessId process, UserId user) noexcept override;
  void on_card(PeerId peer, std::string_view card) noexcept override;
  void on_replaced(PeerId peer) noexcept override { port_.fail_peer(peer); }
  bool on_unused(PeerId peer) noexcept override;

  Port& port_;
  std::vector<std::unique_ptr<Provider>> providers_;  ///< None, if another process has them.
  std::unique_ptr<Introductions> book_;
  std::unordered_map<std::uint32_t, ProcessId> known_;  ///< By number.
  std::set<PeerId> failed_;                             ///< Whose numbers may still be found.
  std::vector<PeerId> found_again_;                     ///< Of these.
  std::uint64_t forget_at_ns_ = 0;
};

/// A name, as ForeignProcesses::name() has it. Nothing: nobody can have that name.
std::optional<PhysicalId> parse_process_name(std::string_view name) noexcept;

}  // namespace ch3_offload
