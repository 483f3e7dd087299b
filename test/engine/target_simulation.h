// Random Portals programs over a few engines and the fake network, against an oracle of the tables.
//
// A process and the oracle of its table get each request in the same order: the oracle when the provider
// delivers its header, just before the engine. The oracle's operations end at once. So at the end, when
// nothing moves any more, the events of both are the same, in any order. What an initiator hears of each
// request, and the bytes that arrive, follow from what the oracle has decided.
//
// Some requests wait for the counting event of what comes. They begin if, at the end, that has reached their
// threshold, and only then. So do changes of another counting event.
//
// If a process dies, or closes its interface, requests end in ways that depend on time. Then each is told of
// exactly once, and nothing stays in use. Of a process that has closed its interface, nothing touches its
// memory any more.
//
// The memory of entries and requests may be that of another process: then engines reach it by copies of the
// kernel, through TargetAddresses.

#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/observing_provider.h"
#include "engine/target_world.h"
#include "engine/targets/target_oracle.h"
#include "engine/wire.h"
#include "nic/other_memory.h"
#include "nic/target_addresses.h"
#include "rdma/checked/checked_provider.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {

class TargetSimulation : public TargetWorld {
 protected:
  ~TargetSimulation() override;

  /// What happens at some step.
  enum class Incident { kNone, kDeath, kClose };

  /// A whole program.
  void run(std::uint64_t seed, std::uint64_t steps, Incident incident);

  bool is_elsewhere_ = false;  ///< The memory of entries and requests.

 private:
  static constexpr std::uint64_t kSumBits = 1000;   ///< What atomic operations find.
  static constexpr std::uint64_t kReadBits = 2000;  ///< What is only read.
  static constexpr std::size_t kReadBytes = 40'000;

  static constexpr std::byte kMine{0xEE};  ///< In memory that is its client's again.

  /// A request, what is expected of it, and what has come.
  struct Begun {
    bool is_triggered = false;    ///< By the counting event of what comes,
    std::uint64_t threshold = 0;  ///< at that.
    std::vector<std::byte> sent;  ///< The source, if that was overwritten.
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    TargetRequest request;
    std::vector<std::byte> source, destination;
    bool is_decided = false;
    TargetOracle::Operation decision;
    TargetHeader header;  ///< As it arrived.
    int sends = 0, answers = 0;
  };
  struct Linked {
    TargetId id{};
    TargetOracle::EntryPtr entry;
  };
  /// Changes of TargetProcess::initiator_counter that wait for the counting event of what comes.
  struct Waiting {
    std::uint64_t threshold = 0;
    std::uint64_t amount = 0;
  };
  struct Side {
    std::unique_ptr<OtherMemory> memory;  ///< Null: it is not elsewhere.
    std::unique_ptr<TargetAddresses> addresses;
    std::vector<std::weak_ptr<const void>> kept;  ///< What entries and requests keep of that memory.
    bool is_closed = false;
    std::vector<Waiting> waiting;
    std::unique_ptr<CheckedProvider> checked;  ///< Null: without checksums.
    std::unique_ptr<ObservingProvider> observed;
    std::unique_ptr<TargetOracle> oracle;
    std::vector<Linked> linked;
    std::deque<std::vector<std::byte>> memories;
    std::vector<std::byte> readable;
    std::vector<std::byte> sum;
    std::uint64_t expected_sum = 0;
    std::vector<TargetEvent> events;
  };

  Provider* provider_of(std::uint32_t i, FakeProvider& provider) override;
  void arrive(std::uint32_t at, std::uint32_t from, std::span<const std::byte> message);
  void decide(Begun& begun);
  void begin_program(std::uint64_t seed, std::uint64_t steps);
  void append_fixed(std::uint32_t i);
  void append_any(std::uint32_t i);
  Status append_to_table(std::uint32_t i, TargetDescription entry, TargetListKind list, TargetId& id);
  std::size_t kept(std::uint32_t i) const;
  TargetHold hold_of(std::uint32_t i, TargetRequest& request);
  void search(std::uint32_t i);
  void unlink(std::uint32_t i);
  void begin(std::uint32_t from, std::uint32_t to);
  void trigger(std::uint32_t from, std::uint32_t to);
  void close(std::uint32_t i);
  void expect_own_memory(std::uint32_t i);
  bool has_fired(std::uint32_t i, std::uint64_t threshold) {
    return at(i).interface->counted(at(i).target_counter).sum() >= threshold;
  }
  TargetRequest random_request(Begun& begun);
  TargetDescription random_entry(std::uint32_t i);
  void take_events(std::uint32_t i);
  void heard(const TargetEvent& event);
  void check_data(std::uint32_t i, const TargetEvent& event);
  void compare(std::uint32_t i);
  void unlink_all(std::uint32_t i);
  bool is_alive(std::uint32_t i) { return at(i).engine != nullptr && !sides_[i].is_closed; }

  SeededRandom random_{0};
  std::vector<Side> sides_;
  std::deque<Begun> begun_;    ///< The header data of a request is its index.
  bool has_checksums_ = false;  ///< The network damages what it carries.
  bool is_exact_ = true;       ///< Nobody has died.
  bool has_incident_ = false;  ///< A process dies, or closes its interface.
};

}  // namespace ch3_offload
