// A port of the second client without an engine: operations of a process to itself, through the tables,
// queues and counters of TargetInterface. Any other process cannot be reached.
//
// An operation takes two steps: it arrives, and it finishes. A step is what progress() does, or the fake's
// own thread. So operations are seen in flight, and a client that does not let the port work sees nothing.
//
// Threads: any, as far as the port's own rules allow.

#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/targets/target_interface.h"
#include "portals/test_port.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload::portals {

class FakeTargetPort final : public TestPort {
 public:
  struct Config {
    ProcessId self{};
    UserId user{};
    bool works_alone = false;  ///< A thread of its own does the steps.
  };

  explicit FakeTargetPort(const Config& config);
  ~FakeTargetPort() override;

  // TestPort.

  void hold() override;
  void release() override;
  void settle() override;
  bool is_armed() override;
  unsigned armings() override;

  // TargetPort.

  Status open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept override;
  bool close(unsigned number) noexcept override;
  Status set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept override;
  QueueId make_queue(unsigned number, const TargetEventRing& ring) noexcept override;
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
  Status trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index, TargetListKind list,
                        const TargetDescription& description, TargetId& id) noexcept override;
  Status trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                        TargetId id) noexcept override;
  std::size_t progress() noexcept override;
  bool idle() const noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  std::span<const int> descriptors() const noexcept override { return {&bell_number_, 1}; }
  std::uint64_t next_due_ns() const noexcept override { return UINT64_MAX; }

 private:
  struct Operation {
    ProcessId process{};
    TargetRequest request;
    std::vector<std::byte> volatile_data;
    bool has_arrived = false;
    TargetHeader header;
    TargetPlacement placement;
  };
  struct Side {
    std::unique_ptr<TargetInterface> targets;
  };

  using Guard = std::lock_guard<std::recursive_mutex>;

  Operation make_operation(ProcessId process, const TargetRequest& request);
  bool step() noexcept;
  void arrive(Operation& operation);
  void finish(Operation& operation);
  /// Where the data of an operation is.
  struct Place {
    std::uint64_t length_bytes = 0;
    std::uint64_t offset_bytes = 0;
    TargetListKind list{};
    bool is_untold = false;
  };
  void tell_ends(const TargetRequest& request, TargetFailure failure, const Place& place);
  /// Begins the triggered operations that are due. Returns how many.
  std::size_t begin_due();
  void ring_bell();
  void run();

  const Config config_;
  mutable std::recursive_mutex mutex_;
  std::size_t due_ = 0;
  std::array<Side, kTargetInterfaces> sides_;
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
