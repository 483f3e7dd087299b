// The second client's port where the engine runs inside the client's calls. In the thread driver, the thread
// calls it (target_server.h).
//
// It knows which process each peer of the book is, tells the open interfaces, and answers the engine's
// questions for cards. It takes what the engine tells of these peers, and leaves all other events to the
// first client: while those wait, the engine does not work.
//
// In an interface with ranks, a process that is none of them is a rank that no entry names.
//
// Threads: one, the engine's. Blocking: none.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "nic/host_driver.h"
#include "nic/process_book.h"
#include "nic/target_port.h"

namespace ch3_offload {

class HostTargets final : public TargetPort, private ProcessBook::Listener {
 public:
  /// Both outlive this object. REQUIRES: the driver's EngineConfig::first_book_peer is the book's. Throws
  /// std::bad_alloc.
  HostTargets(HostDriver& driver, ProcessBook& book);

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
                const TargetDescription& description, TargetId& id) noexcept override {
    return append(number, index, list, description, id, {});
  }
  void search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
              const TargetDescription& description) noexcept override;
  TargetTable::Unlinked unlink(unsigned number, std::uint32_t index, TargetId id) noexcept override;

  Status request(ProcessId process, const TargetRequest& request) noexcept override {
    return this->request(process, request, {});
  }
  Status trigger(const TargetTrigger& when, ProcessId process,
                 const TargetRequest& request) noexcept override {
    return trigger(when, process, request, {});
  }
  Status trigger(const TargetTrigger& when, unsigned number,
                 const TargetCountChange& change) noexcept override;
  Status trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index, TargetListKind list,
                        const TargetDescription& description, TargetId& id) noexcept override {
    return trigger_append(when, number, index, list, description, id, {});
  }
  Status trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                        TargetId id) noexcept override;

  std::size_t progress() noexcept override;
  bool idle() const noexcept override { return driver_.idle(); }
  bool arm() noexcept override { return driver_.arm(); }
  void disarm() noexcept override { driver_.disarm(); }
  std::span<const int> descriptors() const noexcept override { return descriptors_; }
  std::uint64_t next_due_ns() const noexcept override { return book_.next_due_ns(); }

  // Of a client in another process: `reach` of an entry's memory, `hold` of a request's.
  Status append(unsigned number, std::uint32_t index, TargetListKind list,
                const TargetDescription& description, TargetId& id, const TargetReach& reach) noexcept;
  Status trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index, TargetListKind list,
                        const TargetDescription& description, TargetId& id,
                        const TargetReach& reach) noexcept;
  Status request(ProcessId process, const TargetRequest& request, const TargetHold& hold) noexcept;
  Status trigger(const TargetTrigger& when, ProcessId process, const TargetRequest& request,
                 const TargetHold& hold) noexcept;

  /// Of interfaces that are opened from now on: TargetInterface::fall_silent_when().
  void fall_silent_when(const bool& is_broken) noexcept { is_silent_ = &is_broken; }
  /// All of progress() but the engine's: for who runs that. Returns how many things happened.
  std::size_t serve() noexcept;
  /// How many things the client was told.
  std::uint64_t told() const noexcept;
  /// A request that was promised its events, and that request() has refused.
  void tell_refused(const TargetRequest& request) noexcept { engine_.tell_refused(request); }
  int book_descriptor() const noexcept { return book_.descriptor(); }

 private:
  /// A peer of the book.
  struct Known {
    bool is_identified = false;
    ProcessId process{};
    UserId user{};
  };
  struct Interface {
    TargetInterface* targets = nullptr;  ///< The engine's. Null: not open.
    bool has_ranks = false;
    std::unordered_map<ProcessId, std::uint32_t> rank_of;
  };

  void on_process(PeerId peer, ProcessId process, UserId user) noexcept override;
  void on_card(PeerId peer, std::string_view card) noexcept override;
  void on_replaced(PeerId peer) noexcept override;
  bool on_unused(PeerId peer) noexcept override;
  void on_event(const Event& event) noexcept;
  std::size_t take_events() noexcept;
  Known* known(PeerId peer) noexcept;
  bool identify(Interface& interface, PeerId peer, ProcessId process, UserId user) noexcept;
  bool identify_all(Interface& interface) noexcept;

  TargetInterface* at(unsigned number) noexcept {
    return number < interfaces_.size() ? interfaces_[number].targets : nullptr;
  }
  TargetTable* table(unsigned number, std::uint32_t index) noexcept {
    TargetInterface* const interface = at(number);
    return interface == nullptr ? nullptr : interface->table(index);
  }

  HostDriver& driver_;
  Engine& engine_;
  ProcessBook& book_;
  std::vector<int> descriptors_;
  std::array<Interface, kTargetInterfaces> interfaces_;
  std::unordered_map<std::uint32_t, Known> known_;  ///< By peer.
  const bool* is_silent_ = nullptr;                 ///< Null: never.
  std::uint64_t told_before_ = 0;                   ///< By interfaces that are closed.
};

}  // namespace ch3_offload
