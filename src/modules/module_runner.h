// The modules of one client: takes messages to modules from its engine, runs them, and sends what they say.
//
// It stands beside the engine, whatever the driver: with `host` it works when the client calls, else in the
// processor. A client manages its modules by messages to itself (ModuleMessageKind), so no driver has a
// command for that, and no peer can load anything.
//
// ORDER. Messages of one process to another stay in order. All sends of an activation go before its
// deliveries. Who sends slowly holds up only what it has sent itself.
//
// BUDGETS. A module that goes beyond its own is stopped, alone. All modules of a client together have a part
// of the time: when they have used more, messages wait in the engine, whose byte credit holds up their
// senders. Those whose timers are due take turns, and in each turn of the processor little of that begins.
// Nothing waits here for a peer to take something: what is on its way counts as the module's, and beyond its
// budget stops it.
//
// TROUBLE. If a module stops, or is not there, the processes of its group are told, and each tells its client
// in a message with kModuleTroubleTag. Whoever waits for a delivery waits for that, too. Clients of the
// groups of a process that dies are told likewise.
//
// Threads: one, the engine's. Allocation: groups, modules, messages; without memory, what is to be done
// waits.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "modules/module.h"
#include "modules/module_message.h"

namespace ch3_offload {

/// Why ModuleRunner::advance() is to be called. Both are looked at at once, in each turn of a driver.
struct alignas(2) ModuleNews {
  bool messages = false;  ///< EngineConfig::program_news; or there is more to do.
  bool timers = false;    ///< Some module has a timer. ModuleRunner::next_due_ns() says when it is due.
  bool any() const noexcept { return std::bit_cast<std::uint16_t>(*this) != 0; }
};

/// Of the programs beside such an engine.
ModuleBudgets budgets_of(const EngineConfig& config) noexcept;

class ModuleRunner {
 public:
  /// `news`: of that engine, which outlives the runner. advance() must be called when there are any. The
  /// engine is not used before. `processes`: their numbers are below that. `may_register`:
  /// EngineConfig::program_memory_is_watched. Throws std::bad_alloc.
  ModuleRunner(Engine& engine, ModuleNews& news, std::uint32_t processes, bool may_register,
               const ModuleBudgets& budgets = {})
      : engine_(engine),
        news_(news),
        processes_(processes),
        may_register_(may_register),
        budgets_(budgets),
        account_(std::make_shared<std::size_t>(0)) {}
  ModuleRunner(const ModuleRunner&) = delete;
  ModuleRunner& operator=(const ModuleRunner&) = delete;

  /// Does what there is to do, or a part of it: then there are news still. Returns how much.
  std::size_t advance() noexcept;
  /// In how many nanoseconds advance() has something to do that no message tells of. UINT64_MAX: never.
  std::uint64_t next_due_ns() const noexcept;
  /// That peer is down.
  void fail_peer(PeerId peer) noexcept;

 private:
  struct Loaded {
    std::unique_ptr<Module> module;
    std::string stopped;  ///< Why; "": it runs.
  };
  struct Group {
    std::uint32_t rank = 0, size = 0;
    std::uint64_t data_bits = 0, control_bits = 0;
    std::vector<std::uint32_t> peers;  ///< By rank. Empty: the same numbers.
    std::map<std::string, Loaded, std::less<>> modules;
    std::set<std::string, std::less<>> absent;  ///< Names of which the group was told.
    std::size_t troubles = 0;                   ///< That the client has not taken.

    PeerId peer_of(std::uint32_t in_group) const noexcept {
      return PeerId{peers.empty() ? in_group : peers[in_group]};
    }
  };
  /// A message that has arrived, or arrives.
  struct Arrival {
    std::shared_ptr<ModuleMessage> message;
    bool is_here = false;
    Status status = Status::kOk;
  };
  /// Of one process.
  struct Sender {
    std::deque<Arrival> arrivals;  ///< In order. Never moved.
    bool is_ready = false;         ///< It is in `ready_`.
  };
  enum class Leaving : std::uint8_t { kForModule, kForHost, kTrouble };
  /// A message that leaves.
  struct Departure {
    std::shared_ptr<ModuleMessage> message;
    Leaving kind = Leaving::kForModule;
    PeerId peer{};
    MatchKey key{};
    std::uint32_t group = 0;
    std::uint32_t rank = 0;  ///< In the group, of `peer`.
  };
  /// What the engine has under way; its address is the cookie.
  struct Transfer {
    Arrival* arrival = nullptr;  ///< Null: a departure.
    std::uint32_t sender = 0;    ///< Of an arrival.
    Departure departure;
    Piece piece{};
    PayloadLayout layout{};
    std::list<Transfer>::iterator place;
  };

  /// A timer.
  struct Due {
    std::uint64_t ns = UINT64_MAX;  ///< By the clock. UINT64_MAX: there is none.
    std::uint32_t id = 0;           ///< Of the group.
    Group* group = nullptr;
    const std::string* name = nullptr;
    Module* module = nullptr;
  };

  /// Payload bytes that wait to be handled, or are on their way here. Memory that nothing was written to yet
  /// takes none.
  static constexpr std::size_t kMostArriving = 16 * kMostModulePayload;
  /// What a message takes here beside its payload, about. Bytes.
  static constexpr std::size_t kArrivalBytes = 512;
  /// Messages that are taken, and handled, in one turn.
  static constexpr std::size_t kMostTaken = 64, kMostHandled = 8;
  /// When so much time is spent in a turn, no more begins in it: what is no module's has its turn.
  /// Nanoseconds.
  static constexpr std::uint64_t kMostSpentNs = 100'000;
  /// Modules save up at most so much time.
  static constexpr std::int64_t kMostSavedNs = 20'000'000;
  /// Of a client. MPICH has fewer communicators.
  static constexpr std::size_t kMostGroups = 4096;
  /// Of a client, in all of its groups.
  static constexpr std::size_t kMostModules = 64;
  /// Names of modules that are not there, of a group. Then it forgets them, and tells of them again.
  static constexpr std::size_t kMostAbsent = 64;
  /// Of all groups whose members have other numbers than their ranks.
  static constexpr std::size_t kMostMembers = 4'000'000;
  /// Of a group. A client that takes none of these hears no more.
  static constexpr std::size_t kMostTroubles = 64;
  /// Of log(), of a client: more would hold up its engine until it takes them.
  static constexpr std::size_t kMostLines = 1000;

  std::size_t take_ends();
  std::size_t take_arrivals();
  bool take_arrival(const MatchKey& key);
  void receive(MessageId id, Transfer& transfer) noexcept;
  void arrived(std::uint32_t sender, Arrival& arrival, Status status);
  std::size_t leave();
  std::size_t handle_arrivals();
  std::size_t fire_timers();
  void note_timers() noexcept;
  Due first_due() noexcept;
  bool may_begin() noexcept;
  void spend() noexcept;
  void handle(PeerId sender, const Arrival& arrival);
  void drop(PeerId sender);
  void handle_own(ModuleMessage& message);
  void handle_data(Group& group, std::shared_ptr<ModuleMessage> message);
  void act(Group& group, std::uint32_t id, const std::string& name, ModuleOutput& output, bool is_good,
           const std::string& error);
  void handle_trouble(Group& group, ModuleMessage& message);
  void open(ModuleMessage& message);
  std::string load(Group& group, const std::string& name, std::string_view source);
  static std::string list(const Group& group);
  void missing(Group& group, std::uint32_t id, const std::string& name);
  void stop(Group& group, std::uint32_t id, const std::string& name, std::string_view reason);
  void tell_group(Group& group, std::uint32_t id, std::string_view name, std::string_view text);
  void tell_trouble(Group& group, std::uint32_t id, std::string_view text);
  void answer(const MatchKey& key, std::string_view text);
  void tell_lost();
  static std::string as_line(std::string_view text);
  static std::string has_failed(std::uint32_t rank);
  std::size_t modules() const noexcept;
  void warn(std::string_view name, std::string_view text);
  void show_lines(const std::string& name, const std::vector<std::string>& lines);
  std::shared_ptr<ModuleMessage> make(std::string_view payload);
  Payload payload_of(Transfer& transfer, std::span<std::byte> bytes) const noexcept;

  Engine& engine_;
  ModuleNews& news_;
  const std::uint32_t processes_;
  const bool may_register_;
  const ModuleBudgets budgets_;
  const BlockAccount account_;  ///< Of what no module has kept or sent.
  std::map<std::uint32_t, Group> groups_;
  std::map<std::uint32_t, Sender> senders_;  ///< By process.
  std::deque<std::uint32_t> ready_;          ///< Senders whose first message is here. They take turns.
  std::size_t arriving_bytes_ = 0;
  Transfer* stuck_ = nullptr;  ///< An arrival for which the engine had no memory. Its message is `stuck_id_`.
  MessageId stuck_id_{};
  std::size_t members_ = 0;  ///< In Group::peers, of all groups.
  std::deque<Departure> departures_;
  std::list<Transfer> transfers_;
  std::set<std::uint32_t> failed_;        ///< Processes.
  std::int64_t saved_ns_ = kMostSavedNs;  ///< Time that modules may use. Below 0: they wait.
  std::uint64_t looked_ns_ = 0;           ///< When that was brought up to date.
  std::uint64_t spent_ns_ = 0;            ///< By modules, in this turn.
  /// By the clock: the first timer. Brought up to date by note_timers().
  std::uint64_t due_ns_ = UINT64_MAX;
  bool timers_are_first_ = false;  ///< In the next turn. Else messages are, and might leave no time for them.
  bool timers_changed_ = false;    ///< A module was activated, loaded or ended since.
  std::size_t lines_ = 0;          ///< Of log(), so far.
  bool has_dropped_ = false;       ///< A message that made no sense. The user was told.
  bool has_lost_ = false;          ///< A message, for want of memory. Nobody was told.
};

}  // namespace ch3_offload
