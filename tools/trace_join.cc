#include "trace_join.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace ch3_offload {
namespace {

/// A send and the request to cancel it have one cookie.
enum class Family : std::uint8_t { kSend, kReceive, kCancel };

/// What a step does to its command.
enum class Role : std::uint8_t { kGives, kCrosses, kBegins, kEnds, kTakes, kNothing };

std::pair<Family, Role> part_of(TraceEvent event) noexcept {
  switch (event) {
    case TraceEvent::kSendGiven:
    case TraceEvent::kPacketGiven: return {Family::kSend, Role::kGives};
    case TraceEvent::kSendPosted:
    case TraceEvent::kPacketSent: return {Family::kSend, Role::kBegins};
    case TraceEvent::kSendBuffered:
    case TraceEvent::kSendDone: return {Family::kSend, Role::kEnds};
    case TraceEvent::kSendTaken: return {Family::kSend, Role::kTakes};
    case TraceEvent::kReceiveGiven:
    case TraceEvent::kMatchedReceiveGiven: return {Family::kReceive, Role::kGives};
    case TraceEvent::kReceivePosted:
    case TraceEvent::kMatched: return {Family::kReceive, Role::kBegins};
    case TraceEvent::kReceiveDone:
    case TraceEvent::kReceiveCancelled: return {Family::kReceive, Role::kEnds};
    case TraceEvent::kReceiveTaken: return {Family::kReceive, Role::kTakes};
    case TraceEvent::kCancelGiven: return {Family::kCancel, Role::kGives};
    case TraceEvent::kCancelRequested: return {Family::kCancel, Role::kBegins};
    case TraceEvent::kCancelDecided: return {Family::kCancel, Role::kEnds};
    case TraceEvent::kCancelTaken: return {Family::kCancel, Role::kTakes};
    case TraceEvent::kCommandPublished:
    case TraceEvent::kCommandTaken:
    case TraceEvent::kEventPublished: return {Family::kSend, Role::kCrosses};
    default: return {Family::kSend, Role::kNothing};
  }
}

/// The key of the command at that position of the ring. No cookie has such a value.
constexpr std::uint64_t key_at(std::uint64_t position) noexcept { return ~position; }

/// Gives each step its key.
class KeyMaker {
 public:
  /// `steps`: each side in the order of its file.
  explicit KeyMaker(std::vector<CommandStep>& steps) {
    CommandStep* given = nullptr;  // The last one of the client.
    for (CommandStep& step : steps) {
      if (!step.by_client) {
        of_engine(step);
        continue;
      }
      of_client(step, given);
      given = is_command(step.event.event) ? &step : nullptr;
    }
  }

 private:
  /// From its CommandTaken on, a cookie is that of the command at its position.
  void of_engine(CommandStep& step) {
    std::uint64_t& key = engines_.try_emplace(step.cookie, step.cookie).first->second;
    if (step.event.event == TraceEvent::kCommandTaken) key = key_at(step.event.detail);
    step.key = key;
  }

  /// `given`: the client's command just before the step. Null: there is none.
  void of_client(CommandStep& step, CommandStep* given) {
    if (step.event.event == TraceEvent::kCommandPublished) {
      step.key = key_at(step.event.detail);
      if (given == nullptr) return;
      given->key = step.key;
      const Family family = part_of(given->event.event).first;
      clients_[{step.cookie, family}] = step.key;
      return;
    }
    const Family family = part_of(step.event.event).first;
    if (is_command(step.event.event)) clients_[{step.cookie, family}] = step.cookie;
    step.key = find(step.cookie, family);
    if (family == Family::kCancel) step.sends_key = find(step.cookie, Family::kSend);
  }

  std::uint64_t find(std::uint64_t cookie, Family family) const {
    const auto at = clients_.find({cookie, family});
    return at == clients_.end() ? cookie : at->second;
  }

  std::map<std::uint64_t, std::uint64_t> engines_;                     ///< Key of a cookie.
  std::map<std::pair<std::uint64_t, Family>, std::uint64_t> clients_;  ///< Likewise.
};

class Joiner {
 public:
  Joiner(const RankTrace& rank, std::vector<Command>& commands) : rank_(rank), commands_(commands) {}

  void add(const CommandStep& step) {
    const auto [family, role] = part_of(step.event.event);
    if (role == Role::kCrosses) return cross(step);
    std::vector<std::size_t>& open = open_[{step.key, family}];
    switch (role) {
      case Role::kGives: return give(step, open);
      case Role::kCrosses: return;
      case Role::kBegins: return begin(step, family, open);
      case Role::kEnds: return end(step, open);
      case Role::kTakes: return take(step, family, open);
      case Role::kNothing: return;
    }
  }

 private:
  void give(const CommandStep& step, std::vector<std::size_t>& open) {
    const JobEvent& event = step.event;
    const std::int64_t returned_ns = event.time_ns + static_cast<std::int64_t>(step.number);
    commands_.push_back({.rank = rank_.rank,
                         .peer = event.peer,
                         .given = event.event,
                         .outcome = step.outcome,
                         .detail = event.detail,
                         .cookie = step.cookie,
                         .given_ns = event.time_ns,
                         .returned_ns = returned_ns,
                         .published = {},
                         .handed_on = {},
                         .begun = {},
                         .done = {},
                         .told = {},
                         .taken = {},
                         .message = {}});
    if (event.event == TraceEvent::kCancelGiven && step.outcome == Progressed::kDone)
      cancelled(step.sends_key);
    // The engine's events before its first one kept are lost: those of this command may be among them.
    const bool engine_knows =
        rank_.engine.is_here && (rank_.engine.lost_events == 0 || event.time_ns >= rank_.engine.start_ns);
    if (!engine_knows) lost_.insert(commands_.size() - 1);
    const bool has_more =
        step.outcome == Progressed::kPending || (step.outcome == Progressed::kDone && engine_knows);
    if (step.key != 0 && has_more) open.push_back(commands_.size() - 1);
    in_ring_[step.key] = commands_.size() - 1;
  }

  /// A command, or its event, goes into a ring or comes out of it.
  void cross(const CommandStep& step) {
    const auto at = in_ring_.find(step.key);
    if (at == in_ring_.end()) return;
    Command& command = commands_[at->second];
    std::optional<JobEvent>& when = step.event.event == TraceEvent::kCommandPublished ? command.published
                                    : step.event.event == TraceEvent::kCommandTaken   ? command.handed_on
                                                                                      : command.told;
    if (!when) when = step.event;
  }

  void begin(const CommandStep& step, Family family, std::vector<std::size_t>& open) {
    // A posted receive is begun by kReceivePosted, and learns its message by kMatched.
    const bool is_match = step.event.event == TraceEvent::kMatched;
    for (auto at = open.begin(); at != open.end(); ++at) {
      Command& command = commands_[*at];
      const bool is_next = is_match ? !command.message : !command.begun;
      if (!is_next || command.done || lost_.contains(*at)) continue;
      if (!command.begun) command.begun = step.event;
      if (step.number != 0 && family != Family::kCancel) {
        command.message = family == Family::kSend ? MessageName{rank_.rank, step.event.peer, step.number}
                                                  : MessageName{step.event.peer, rank_.rank, step.number};
      }
      // One that was over with its call has no other event that is needed.
      if (command.outcome == Progressed::kDone) open.erase(at);
      return;
    }
  }

  void end(const CommandStep& step, std::vector<std::size_t>& open) {
    const auto at = std::find_if(open.begin(), open.end(), [&](std::size_t index) {
      return commands_[index].begun && !commands_[index].done;
    });
    if (at == open.end()) return;
    commands_[*at].done = step.event;
    if (step.event.event != TraceEvent::kReceiveCancelled) return;
    // After a purge its event comes and takes this back.
    commands_[*at].is_cancelled = true;
  }

  void take(const CommandStep& step, Family family, std::vector<std::size_t>& open) {
    if (family == Family::kCancel && step.event.detail != 0) cancelled(step.sends_key);
    const auto at = first_pending(open);
    if (at == open.end()) return;
    commands_[*at].taken = step.event;
    commands_[*at].is_cancelled = false;
    open.erase(at);
  }

  /// The send with this key: its event will not come.
  void cancelled(std::uint64_t key) {
    std::vector<std::size_t>& open = open_[{key, Family::kSend}];
    const auto at = first_pending(open);
    if (at == open.end()) return;
    commands_[*at].is_cancelled = true;
    open.erase(at);
  }

  std::vector<std::size_t>::iterator first_pending(std::vector<std::size_t>& open) const {
    return std::find_if(open.begin(), open.end(), [this](std::size_t index) {
      return commands_[index].outcome == Progressed::kPending;
    });
  }

  const RankTrace& rank_;
  std::vector<Command>& commands_;
  std::set<std::size_t> lost_;  ///< Commands of which the engine's events may be lost.
  std::map<std::pair<std::uint64_t, Family>, std::vector<std::size_t>> open_;  ///< In order of time.
  std::map<std::uint64_t, std::size_t> in_ring_;                               ///< By key.
};

}  // namespace

void join_commands(const RankTrace& rank, std::vector<CommandStep>& steps, std::vector<Command>& commands) {
  KeyMaker give_keys(steps);
  // At one instant, a command is given before the engine takes it up, and is over before its event is taken.
  std::stable_sort(steps.begin(), steps.end(), [](const CommandStep& a, const CommandStep& b) {
    return std::tuple(a.event.time_ns, part_of(a.event.event).second) <
           std::tuple(b.event.time_ns, part_of(b.event.event).second);
  });
  Joiner joiner(rank, commands);
  for (const CommandStep& step : steps) joiner.add(step);
}

}  // namespace ch3_offload
