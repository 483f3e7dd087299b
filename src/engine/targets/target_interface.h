// A Portals network interface as its engine sees it: tables, event queues, counting events, triggered
// operations, and who its peers are. The client calls it directly: nothing here moves data or speaks to a
// peer.
//
// Queues and counters are named by ids that tell stale ones. An event for a queue that is gone, or for none,
// is not told. What is told is in the client's memory (target_board.h).
//
// Threads: one. Allocation: the functions that make something, TargetTable::append(), trigger() and
// identify().

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/pool.h"
#include "engine/targets/target_board.h"
#include "engine/targets/target_counters.h"
#include "engine/targets/target_event_ring.h"
#include "engine/targets/target_lock.h"
#include "engine/targets/target_runs.h"
#include "engine/targets/target_table.h"
#include "engine/targets/target_triggers.h"

namespace ch3_offload {

inline constexpr std::size_t kTargetInterfaces = 5;  ///< Of an engine.
inline constexpr std::uint8_t kWindowInterface = 4;  ///< MPI windows. The others are Portals'.

struct TargetInterfaceConfig {
  TargetLimits limits{4096, 4096, 4096};
  std::uint32_t most_tables = 64;
  UserId user{};  ///< Of all processes of the job: they have proved that they know its secret.
  /// A peer of which identify() has said nothing is refused. Otherwise its number is its rank.
  bool identifies_all = false;
  /// Its tables have locks (target_lock.h).
  bool has_locks = false;
};

class TargetInterface {
 public:
  /// `board` outlives the interface, and so does `due`, which counts its triggered operations that are due.
  TargetInterface(const TargetInterfaceConfig& config, TargetBoard& board, std::size_t& due) noexcept;
  TargetInterface(const TargetInterface&) = delete;
  TargetInterface& operator=(const TargetInterface&) = delete;

  /// To be called once, before any other function. kNoMemory.
  Status prepare() noexcept;

  /// The ring's memory is the client's, and stays where it is until free_queue(). kNoQueue: no memory, or it
  /// has no room for what it says.
  QueueId make_queue(const TargetEventRing& ring) noexcept;
  void free_queue(QueueId id) noexcept;

  /// A counting event at 0. kNoCounter: there are as many as may be.
  CounterId make_counter() noexcept { return counters_.make(); }
  /// What waits for it is forgotten.
  void free_counter(CounterId id) noexcept;
  /// 0 and 0 of one that is gone. The client reads the board instead.
  TargetCount counted(CounterId id) const noexcept {
    return counters_.is_live(id) ? counters_.read(id) : TargetCount{};
  }
  void change_counter(const TargetCountChange& change) noexcept;

  /// `action` is due when the counting event reaches the threshold, now if it has. kNoMemory: as many wait as
  /// may, or there is no memory. kUnsupported: there is no such counting event.
  Status trigger(const TargetTrigger& when, const TriggeredAction& action) noexcept;
  /// Appends an entry then. It has its name at once, and is not linked yet. As well kUnsupported: there is no
  /// such table.
  Status trigger_append(const TargetTrigger& when, std::uint32_t table, TargetListKind list,
                        const TargetDescription& description, TargetId& id,
                        const TargetReach& reach = {}) noexcept;
  /// Does what is due, unless that is a request, which is the engine's.
  void carry_out(const TriggeredAction& action) noexcept;
  /// Forgets what waits for that counting event.
  void cancel_triggered(CounterId id) noexcept;
  /// How many triggered operations wait or are due.
  std::size_t triggered() const noexcept { return triggers_.live(); }

  /// An index of the portal table. kAgain: it is in use. kUnsupported: there is no such index, or flow
  /// control without a queue. kNoMemory.
  Status make_table(std::uint32_t index, QueueId queue, bool has_flow_control) noexcept;
  /// kAgain: entries or operations use it, or its lock is in use. kUnsupported: there is none.
  Status free_table(std::uint32_t index) noexcept;
  /// Null: there is none.
  TargetTable* table(std::uint32_t index) noexcept;
  /// Of that table. Null: there is no such table, or the interface has none.
  TargetLock* lock(std::uint32_t index) noexcept;
  bool has_locks() const noexcept { return config_.has_locks; }
  /// Indices are below it.
  std::uint32_t most_tables() const noexcept { return config_.most_tables; }

  TargetResources& resources() noexcept { return resources_; }

  /// Who a peer is to the entries here. A peer of which nothing was said has its number as its rank, and the
  /// user of the interface. Returns false without memory.
  bool identify(std::uint32_t peer, ProcessId process, UserId user) noexcept;
  /// The peer has failed.
  void forget(std::uint32_t peer) noexcept {
    if (peer < identities_.size()) identities_[peer] = {};
  }

  // For the engine.

  /// Fills in who has sent an operation, and finds its entry. Without such a table it is dropped.
  TargetPlacement arrive(std::uint32_t peer, std::uint32_t table_index, TargetHeader& header) noexcept;
  /// The same, of data that may be in runs. They are all within the entry, or the operation is dropped.
  /// REQUIRES: span_bytes() of them is not 0.
  TargetPlacement arrive(std::uint32_t peer, std::uint32_t table_index, TargetHeader& header,
                         TargetRuns runs) noexcept {
    if (!runs.are_many()) [[likely]]
      return arrive(peer, table_index, header);
    return arrive_in_runs(peer, table_index, header, runs);
  }
  /// Tells nothing once `is_broken` is true, which outlives this object: an event would say that bytes are in
  /// the client's memory, and they may not be.
  void fall_silent_when(const bool& is_broken) noexcept { is_silent_ = &is_broken; }
  void tell(QueueId queue, const TargetEvent& event) noexcept;
  void count(CounterId id, bool success, std::uint64_t amount) noexcept;
  /// Takes the oldest triggered operation that is due. Returns false if there is none.
  bool take_due(TriggeredAction& action) noexcept { return triggers_.take(action); }
  std::size_t due() const noexcept { return triggers_.due(); }
  /// How many things the client was told: events and changes of counting events.
  std::uint64_t told() const noexcept { return told_; }

 private:
  TargetPlacement arrive_in_runs(std::uint32_t peer, std::uint32_t table_index, TargetHeader& header,
                                 TargetRuns runs) noexcept;
  struct Identity {
    ProcessId process{};
    UserId user{};
    bool is_known = false;
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
    TargetLock lock;
  };

  TargetEventWriter* find(QueueId id) noexcept { return queues_.find(static_cast<std::uint64_t>(id)); }
  void changed(CounterId id, const TargetCount& count) noexcept;
  void forget(const TriggeredAction& action) noexcept;

  const TargetInterfaceConfig config_;
  TargetResources resources_;
  Pool<TargetEventWriter> queues_;
  TargetCounters counters_;
  TargetTriggers triggers_;
  std::uint64_t told_ = 0;
  const bool* is_silent_ = nullptr;  ///< Null: it never is.
  std::vector<std::unique_ptr<Index>> tables_;  ///< By index. Null: not in use.
  std::vector<Identity> identities_;            ///< By peer.
};

}  // namespace ch3_offload
