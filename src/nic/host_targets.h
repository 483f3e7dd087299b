// The second client's port where the engine runs inside the client's calls. With the thread and process
// drivers, who runs the engine has one for each client, and gives it the commands of its ring
// (target_server.h).
//
// It carries out commands: execute(), in target_execution.cc. And it knows which process each peer of the
// book is, tells the open interfaces, and answers the engine's questions for cards. It takes what the engine
// tells of these peers, and leaves all other events to the first client: while those wait, the engine does
// not work.
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
#include "nic/target_addresses.h"
#include "nic/target_port.h"

namespace ch3_offload {

class HostTargets final : public TargetPort, private ProcessBook::Listener {
 public:
  /// All outlive this object. `client`: the memory of a client in another process; null: it is in this one.
  /// REQUIRES: the driver's EngineConfig::first_book_peer is the book's. Throws std::bad_alloc.
  HostTargets(HostDriver& driver, ProcessBook& book, ClientMemory* client = nullptr);

  Status request(ProcessId process, const TargetRequest& request) noexcept override {
    return this->request(process, request, {});
  }
  TargetAnswer ask(const TargetCommand& question, std::span<const std::byte> more) noexcept override;

  std::size_t progress() noexcept override;
  bool idle() const noexcept override { return driver_.idle(); }
  bool arm() noexcept override { return driver_.arm(); }
  void disarm() noexcept override { driver_.disarm(); }
  std::span<const int> descriptors() const noexcept override { return descriptors_; }
  std::uint64_t next_due_ns() const noexcept override { return book_.next_due_ns(); }

  /// Carries out a command; `more` is what follows its head. Returns false for rubbish: nothing was done, and
  /// `answer` says nothing. A request has no answer: if it is refused, its events say so.
  bool execute(const TargetCommand& command, std::span<const std::byte> more, TargetAnswer& answer) noexcept;
  /// Closes all interfaces: the client has gone, or has no port any more. What has not ended touches neither
  /// its board nor its rings of events.
  void close_all() noexcept;

  /// All of progress() but the engine's: for who runs that. Returns how many things happened.
  std::size_t serve() noexcept;
  /// How many things the client was told.
  std::uint64_t told() const noexcept;
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

  TargetInterface* at(unsigned number) noexcept { return interfaces_[number].targets; }

  // Of execute(). Those that return bool return false for rubbish.
  bool open(const TargetCommand& command, std::span<const std::byte> more, TargetAnswer& answer) noexcept;
  Status open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept;
  Status close_interface(unsigned number) noexcept;
  Status set_ranks(const TargetCommand& command) noexcept;
  bool make_queue(const TargetCommand& command, std::span<const std::byte> more,
                  TargetAnswer& answer) noexcept;
  bool change(const TargetCommand& command, std::span<const std::byte> more, TargetAnswer& answer) noexcept;
  bool describe(const TargetCommand& command, std::span<const std::byte> more, TargetAnswer& answer) noexcept;
  bool request(const TargetCommand& command, std::span<const std::byte> more, TargetAnswer& answer) noexcept;
  TargetAnswer of_interface(const TargetCommand& command, TargetInterface& interface) noexcept;
  TargetAnswer of_table(const TargetCommand& command, TargetTable& table) noexcept;
  Status request(ProcessId process, const TargetRequest& request, const TargetHold& hold) noexcept;

  HostDriver& driver_;
  Engine& engine_;
  ProcessBook& book_;
  TargetAddresses addresses_;
  std::vector<int> descriptors_;
  std::array<Interface, kTargetInterfaces> interfaces_;
  std::unordered_map<std::uint32_t, Known> known_;  ///< By peer.
  const bool* is_silent_ = nullptr;                 ///< Null: never.
  std::uint64_t told_before_ = 0;                   ///< By interfaces that are closed.
};

}  // namespace ch3_offload
