// A Portals network interface as its engine sees it: tables, event queues, counting events, and who its peers
// are. The client calls it directly: nothing here moves data or speaks to a peer.
//
// Queues and counters are named by ids that tell stale ones. An event for a queue that is gone, or for none,
// is not told.
//
// Threads: one. Allocation: the functions that make something, TargetTable::append(), and identify().

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/pool.h"
#include "engine/targets/target_event_queue.h"
#include "engine/targets/target_table.h"

namespace ch3_offload {

enum class QueueId : std::uint64_t {};
inline constexpr QueueId kNoQueue{0};

struct TargetInterfaceConfig {
  TargetLimits limits{4096, 4096, 4096};
  std::uint32_t most_tables = 64;
  UserId user{};  ///< Of all processes of the job: they have proved that they know its secret.
};

/// What a counting event has counted.
struct TargetCount {
  std::uint64_t success = 0;
  std::uint64_t failure = 0;
  friend bool operator==(const TargetCount&, const TargetCount&) noexcept = default;
};

class TargetInterface {
 public:
  explicit TargetInterface(const TargetInterfaceConfig& config) noexcept;
  TargetInterface(const TargetInterface&) = delete;
  TargetInterface& operator=(const TargetInterface&) = delete;

  /// To be called once, before any other function. kNoMemory.
  Status prepare() noexcept;

  /// A queue for at least so many events. kNoQueue: no memory.
  QueueId make_queue(std::size_t events) noexcept;
  void free_queue(QueueId id) noexcept;
  /// Takes the oldest event of a queue. Returns false if there is none. `lost`: older ones were overwritten.
  bool next_event(QueueId id, TargetEvent& event, bool& lost) noexcept;

  /// A counting event at 0. kNoCounter: no memory.
  CounterId make_counter() noexcept;
  void free_counter(CounterId id) noexcept;
  /// Null: there is none.
  TargetCount* counter(CounterId id) noexcept;

  /// An index of the portal table. kAgain: it is in use. kUnsupported: there is no such index, or flow control
  /// without a queue. kNoMemory.
  Status make_table(std::uint32_t index, QueueId queue, bool has_flow_control) noexcept;
  /// kAgain: entries or operations use it. kUnsupported: there is none.
  Status free_table(std::uint32_t index) noexcept;
  /// Null: there is none.
  TargetTable* table(std::uint32_t index) noexcept;

  TargetResources& resources() noexcept { return resources_; }

  /// Who a peer is to the entries here. A peer of which nothing was said has its number as its rank, and the
  /// user of the interface. Returns false without memory.
  bool identify(std::uint32_t peer, ProcessId process, UserId user) noexcept;

  // For the engine.

  /// Fills in who has sent an operation, and finds its entry. Without such a table it is dropped.
  Placement arrive(std::uint32_t peer, std::uint32_t table_index, TargetHeader& header) noexcept;
  void tell(QueueId queue, const TargetEvent& event) noexcept;
  void count(CounterId id, bool success, std::uint64_t amount) noexcept;

 private:
  struct Counter : TargetCount {
    std::uint64_t pool_id = 0;
  };
  struct Identity {
    ProcessId process{};
    UserId user{};
  };
  /// A table and where its events go.
  struct Index final : TargetListener {
    Index(TargetInterface& interface, const TableConfig& config, QueueId to) noexcept
        : owner(interface), queue(to), table(config, interface.resources_, *this) {}
    void on_event(const TargetEvent& event) noexcept override { owner.tell(queue, event); }
    void on_count(CounterId id, bool success, std::uint64_t amount) noexcept override {
      owner.count(id, success, amount);
    }
    bool reserve(std::size_t events) noexcept override;
    void unreserve(std::size_t events) noexcept override;

    TargetInterface& owner;
    const QueueId queue;
    TargetTable table;
  };

  TargetEventQueue* find(QueueId id) noexcept { return queues_.find(static_cast<std::uint64_t>(id)); }

  const TargetInterfaceConfig config_;
  TargetResources resources_;
  Pool<TargetEventQueue> queues_;
  Pool<Counter> counters_;
  std::vector<std::unique_ptr<Index>> tables_;  ///< By index. Null: not in use.
  std::unordered_map<std::uint32_t, Identity> identities_;
};

}  // namespace ch3_offload
