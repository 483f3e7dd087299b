// The processor's half of schedules (schedule.h): carries out those of one client.
//
// It gives the steps that send and receive to the client's engine, and hears of their ends before the client
// would: their cookies are of a generation that no client's name has (kStepGeneration). What begins in one
// turn is bounded, and long copies and combinations are cut, so that messages and other clients are not held
// up.
//
// A step for which there is no memory now begins later. Left out, it would let its peer wait for ever.
//
// A peer that fails ends the receives that wait for it. A purge ends what has not begun, too: who revokes a
// communicator waits for no member of it.
//
// A client in another process shares the memory that is combined and copied; that of messages is as in other
// commands. One that names other memory is broken.
//
// Threads: one, the engine's. Allocation: each schedule; tables of the steps under way and of the peers that
// failed, which grow; the memory of another process that a step names.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "engine/intrusive_list.h"
#include "nic/client_memory.h"
#include "nic/port.h"
#include "nic/schedule.h"

namespace ch3_offload {

class ScheduleRunner {
 public:
  /// In the cookie of a step, above its number. No operation of a client may have it.
  static constexpr std::uint32_t kStepGeneration = UINT32_MAX;

  /// `port`: the engine's. `client`: the memory of a client in another process; null: it is in this one. Both
  /// outlive the runner.
  ScheduleRunner(Port& port, ClientMemory* client) noexcept : port_(port), client_(client) {}
  ScheduleRunner(const ScheduleRunner&) = delete;
  ScheduleRunner& operator=(const ScheduleRunner&) = delete;
  ~ScheduleRunner();

  /// Takes a schedule, of which the client hears under `name`. `steps`: as they came, of any length and not
  /// aligned. kOk: advance() begins it. kProtocol: no client of ours gives that. kNoMemory: nothing was done.
  Status begin(OperationId name, const ScheduleMarks& marks, std::span<const std::byte> steps) noexcept;

  /// Takes the end of a step. False: the event is none, but the client's.
  bool take(const Event& event) noexcept;
  /// That peer is down: no receive of a schedule waits for it any more.
  void fail_peer(PeerId peer) noexcept;
  /// The number is not used any more.
  void forget_peer(PeerId peer) noexcept;
  /// As Port::purge(), of what has not begun.
  void purge(PurgeScope scope, std::span<const MatchPattern> doomed, std::span<const MatchPattern> spared,
             Status reason) noexcept;

  /// Does what schedules have to do now, or a part of it. Returns how much.
  std::size_t advance() noexcept;
  /// Whether advance() has something to do.
  bool has_work() const noexcept { return !ready_.empty(); }

  struct Ended {
    OperationId name = kNoOperation;
    Status status = Status::kOk;
  };
  /// Takes a schedule that is over. False: there is none.
  bool next_ended(Ended& ended) noexcept;

 private:
  struct Schedule {
    OperationId name = kNoOperation;
    ScheduleMarks marks;
    std::vector<ScheduleStep> steps;
    std::size_t next = 0;         ///< The first step that has not begun, or is a local one that has to go on.
    std::size_t under_way = 0;    ///< Sends and receives.
    std::size_t moved_bytes = 0;  ///< Of the local step.
    std::size_t received_bytes = 0;  ///< The length of the last message.
    std::size_t counted_bytes = 0;
    Status status = Status::kOk;      ///< The first failure.
    ListHook<Schedule> ready_hook{};  ///< In ready_ or ended_.
    std::list<Schedule>::iterator place;
  };
  /// A send or receive under way, by the number in its cookie.
  struct Running {
    Schedule* schedule = nullptr;  ///< Null: it is free.
    std::size_t step = 0;
    OperationId engines = kNoOperation;
    std::unique_ptr<ClientMemory::Part> part;
    std::uint32_t next_free = 0;  ///< Number. 0: none.
  };
  /// What came of a step.
  enum class Begun : std::uint8_t {
    kBegun,   ///< It is over, or a send or receive under way.
    kGoesOn,  ///< It needs another turn: for the rest, or for memory.
  };
  /// Of a local step, in one turn. Whole elements of every type.
  static constexpr std::size_t kLocalBytes = std::size_t{32} << 10;
  static_assert(kLocalBytes % kMostElementBytes == 0);
  /// Of one turn.
  struct Budget {
    std::size_t steps = 32;
    std::size_t bytes = 2 * kLocalBytes;
    bool is_used() const noexcept { return steps == 0 || bytes == 0; }
  };

  static bool is_sound(const ScheduleStep& step, bool is_of_other_process) noexcept;
  std::size_t run(Schedule& schedule, Budget& budget) noexcept;
  Begun begin_step(Schedule& schedule, ScheduleStep& step) noexcept;
  Begun begin_message(Schedule& schedule, const ScheduleStep& step) noexcept;
  Begun go_on(Schedule& schedule, const ScheduleStep& step) noexcept;
  std::byte* locate(const std::byte* named, std::size_t length_bytes, ClientMemory::Part& part) noexcept;
  bool name_memory(const Payload& named, ClientMemory::Part& part) noexcept;
  Begun put_off(Schedule& schedule) const noexcept;
  std::uint32_t take_running() noexcept;
  void give_back(std::uint32_t number) noexcept;
  void over(std::uint32_t number) noexcept;
  static void received(Schedule& schedule, const Envelope& envelope) noexcept;
  static void note(Schedule& schedule, Status status) noexcept;
  bool has_failed(PeerId peer) const noexcept;

  Port& port_;
  ClientMemory* const client_;
  std::list<Schedule> schedules_;
  IntrusiveList<Schedule, &Schedule::ready_hook> ready_;
  IntrusiveList<Schedule, &Schedule::ready_hook> ended_;
  std::vector<Running> running_;
  std::uint32_t free_ = 0;  ///< Number of one that is free. 0: none.
  std::size_t steps_ = 0;   ///< Of all schedules.
  std::vector<PeerId> failed_peers_;
};

}  // namespace ch3_offload
