// The process driver: the engine runs in a process that serves all ranks of the node, ch3-offload-nicd.
//
// This is the client's half: the rings are memory of that process. It maps what this process shares with it,
// and copies other messages from and to the memory of this one. If it ends, this process cannot go on and
// ends, too, with a line.
//
// A second client of this process, of target entries, has a ring of its own to the same engine
// (attach_targets()). It has an arena of its own, in which the processor tells it.
//
// Threads: as Port, one at a time for both clients. fork: a child has no port, and does not keep the
// connection to the processor open, which so learns of this process's end.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/trace.h"
#include "nic/nicd_protocol.h"
#include "nic/process_targets.h"
#include "nic/ring_port.h"
#include "rdma/fork_closing.h"
#include "rdma/processor_set.h"

namespace ch3_offload {

struct NicdStart {
  std::string program;                         ///< Path of ch3-offload-nicd.
  ProcessorSet processors;                     ///< Where it may run. Empty: where this process may.
  std::uint64_t patience_ns = 30'000'000'000;  ///< For a processor to come up, and to answer.
};

class ProcessDriver final : public RingPort, private NicdProcess {
 public:
  /// Attaches to the processor of the user, else to that of the job, which local rank 0 starts, or to that
  /// of the user's lone processes, which each of them starts if there is none. `hello` says who this is; its
  /// magic, version and probe need not be set. `wait`: how it waits for the processor's answers. `clock`:
  /// stamps the commands; null: they are not stamped.
  /// Waits some seconds for a processor that has just been started. kAgain: a lone process wants a pid that
  /// another process of the node has. kUnreachable, kUnsupported and others: the message says what to do.
  static Result<std::unique_ptr<ProcessDriver>> create(const NicdHello& hello, const NicdStart& start,
                                                       const WaitPolicy& wait, const Trace* clock);
  ~ProcessDriver() override;

  std::size_t progress() noexcept override;
  bool arm() noexcept override;
  std::span<const int> descriptors() const noexcept override { return descriptors_; }
  bool keeps_memory() const noexcept override { return false; }
  void memory_gone(const void*, std::size_t) noexcept override {}
  std::string card() const override { return card_; }

  /// Makes the port of a second client, which is the driver's. Its processes are the ranks of the job
  /// (RankBook), or those that a lone process meets (Introductions). REQUIRES: there is none. kUnsupported:
  /// the processor may not read this process's memory. kNoMemory: the message says of what.
  Result<TargetPort*> attach_targets();
  /// Ends it, with what it has not closed. Has no effect without one.
  void detach_targets() noexcept;

  /// From now on the engine reaches foreign peers, by providers that `key` proves. Returns the card by which
  /// they reach it. Errors: as those of the providers; the message says what to do.
  Result<std::string> reach_foreign(const UserKey& key);
  bool forget_peer(PeerId peer) noexcept override;

  /// What a message to any peer has room for, at least. Bytes.
  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  /// REQUIRES: it is a lone process.
  ProcessId process() const noexcept { return process_; }
  /// Of the network processor.
  pid_t pid() const noexcept { return pid_; }

 private:
  ProcessDriver(std::unique_ptr<PortMemory> memory, FileDescriptor socket, const NicdWelcome& welcome,
                PeerId self, const WaitPolicy& wait, const Trace* clock);
  /// Of both clients.
  void rest_in(ProcessorWait& wait) noexcept override;
  void check_processor() noexcept override;
  int connection() const noexcept override { return socket_.get(); }
  bool send_share(const NicdShare& share, const FileDescriptor& file) noexcept override;
  Result<PortMemory> receive_targets() noexcept;

  struct SecondClient {
    SecondClient(PortMemory its_memory, const WaitPolicy& wait, NicdProcess& processor, SharesMemory& shares)
        : memory(std::move(its_memory)), port(memory, wait, processor, shares) {}
    PortMemory memory;
    ProcessTargets port;
  };

  const std::unique_ptr<PortMemory> memory_;
  const FileDescriptor socket_;
  const ForkClosing fork_closing_;  ///< Of socket_.
  const std::string card_;
  const pid_t pid_;
  const bool must_share_;
  const WaitPolicy wait_;  ///< For a second client.
  const std::size_t slot_bytes_;
  const ProcessId process_;
  const std::array<int, 2> descriptors_;
  std::uint32_t fruitless_ = 0;           ///< Calls of progress() since the processor was looked at.
  std::unique_ptr<SecondClient> second_;  ///< Null: there is none.
};

}  // namespace ch3_offload
