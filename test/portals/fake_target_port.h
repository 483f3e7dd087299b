// A port of the second client without an engine: operations of a process to itself, through the tables,
// queues and counters of TargetInterface. Any other process cannot be reached.
//
// An operation takes two steps: it arrives, and it finishes. A step is what progress() does, or the fake's
// own thread. So operations are seen in flight, and a client that does not let the port work sees nothing.
//
// Threads: any, as far as the port's own rules allow.

#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/targets/target_interface.h"
#include "nic/target_port.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload::portals {

class FakeTargetPort final : public TargetPort {
 public:
  struct Config {
    ProcessId self{};
    UserId user{};
    bool works_alone = false;        ///< A thread of its own does the steps.
    std::size_t most_triggered = 8;  ///< Of an interface.
  };

  explicit FakeTargetPort(const Config& config);
  ~FakeTargetPort() override;

  // What tests do to it.

  /// Operations wait, and do not arrive, until release().
  void hold();
  void release();
  /// Does steps until nothing is left to do.
  void settle();
  /// How often a thread has armed it and not disarmed it yet, and how often it was armed.
  bool is_armed();
  unsigned armings();

  // TargetPort.

  Status open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept override;
  void close(unsigned number) noexcept override;
  Status set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept override;
  QueueId make_queue(unsigned number, TargetEventRing& ring) noexcept override;
  void free_queue(unsigned number, QueueId queue) noexcept override;
  CounterId make_counter(unsigned number) noexcept override;
  void free_counter(unsigned number, CounterId counter) noexcept override;
  void change_counter(unsigned number, const TargetCountChange& change) noexcept override;
  void cancel_triggered(unsigned number, CounterId counter) noexcept override;
  Status make_table(unsigned number, std::uint32_t index, QueueId queue,
                    bool has_flow_control) noexcept override;
  Status free_table(unsigned number, std::uint32_t index) noexcept override;
  void enable_table(unsigned number, std::uint32_t index) noexcept override;
  bool disable_table(unsigned number, std::uint32_t index) noexcept override;
  Status append(unsigned number, std::uint32_t index, TargetListKind list,
                const TargetDescription& description, TargetId& id) noexcept override;
  void search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
              const TargetDescription& description) noexcept override;
  TargetTable::Unlinked unlink(unsigned number, std::uint32_t index, TargetId id) noexcept override;
  Status request(ProcessId process, const TargetRequest& request) noexcept override;
  Status trigger(const TargetTrigger& when, ProcessId process,
                 const TargetRequest& request) noexcept override;
  Status trigger(const TargetTrigger& when, unsigned number,
                 const TargetCountChange& change) noexcept override;
  std::size_t progress() noexcept override;
  bool idle() const noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  std::span<const int> descriptors() const noexcept override { return {&bell_number_, 1}; }

 private:
  struct Operation {
    ProcessId process{};
    TargetRequest request;
    std::vector<std::byte> volatile_data;
    bool has_arrived = false;
    TargetHeader header;
    Placement placement;
  };
  struct Waiting {
    TargetTrigger when;
    std::optional<Operation> operation;  ///< Else it is a change.
    TargetCountChange change{};
  };
  struct Side {
    std::unique_ptr<TargetInterface> targets;
    TargetBoard* board = nullptr;
    std::map<QueueId, TargetEventRing*> rings;
    std::vector<CounterId> counters;
    std::vector<Waiting> waiting;
  };

  using Guard = std::lock_guard<std::recursive_mutex>;

  Operation make_operation(ProcessId process, const TargetRequest& request);
  Status wait_for(Side& side, Waiting waiting);
  bool step() noexcept;
  void arrive(Operation& operation);
  void finish(Operation& operation);
  void tell_ends(const TargetRequest& request, TargetFailure failure, std::uint64_t length_bytes,
                 std::uint64_t offset_bytes);
  void change(Side& side, const TargetCountChange& change);
  void pull_triggers(Side& side);
  /// Shows on the board and in the rings what has happened. Returns how many events.
  std::size_t publish();
  void ring_bell();
  void run();

  const Config config_;
  mutable std::recursive_mutex mutex_;
  std::array<Side, 4> sides_;
  std::deque<Operation> operations_;
  bool is_held_ = false;
  bool is_armed_ = false;
  unsigned armings_ = 0;
  FileDescriptor bell_;
  int bell_number_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace ch3_offload::portals
