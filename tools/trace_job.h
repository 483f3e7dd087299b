// All ranks' traces as one: every message with both its sides, on one clock.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "trace_file.h"

namespace ch3_offload {

/// One event, on the job's clock.
struct JobEvent {
  std::int64_t time_ns;  ///< Since the earliest event of the job.
  std::uint64_t detail;  ///< See TraceEvent.
  std::uint32_t peer;    ///< The other side.
  TraceEvent event;
};

/// What names a message: as `SRC:DST:NUMBER` on the command line.
struct MessageName {
  std::uint32_t source;
  std::uint32_t destination;
  std::uint64_t number;  ///< From 1, in the order of posting from source to destination.

  auto operator<=>(const MessageName&) const = default;
};

/// "0:1:17".
std::string to_string(const MessageName& name);

/// A command that a client gave to its port, and what became of it on both sides.
struct Command {
  std::uint32_t rank;
  std::uint32_t peer;
  TraceEvent given;      ///< kSendGiven ... kCancelGiven
  Progressed outcome;    ///< What the call returned.
  std::uint64_t detail;  ///< See TraceEvent.
  std::uint64_t cookie;  ///< 0: what became of it is not known (a packet without data).
  std::int64_t given_ns;
  std::int64_t returned_ns;
  // Nothing: not kept, or not there.
  std::optional<JobEvent> published;   ///< It went into the ring. Likewise without rings: nothing.
  std::optional<JobEvent> handed_on;   ///< The processor took it out of the ring, for the engine.
  std::optional<JobEvent> begun;       ///< The engine took it up.
  std::optional<JobEvent> done;        ///< The engine was done with it.
  std::optional<JobEvent> told;        ///< Its event went into the ring.
  std::optional<JobEvent> taken;       ///< The client took its event.
  std::optional<MessageName> message;  ///< Of a send or receive, once the engine knew it.
  bool is_cancelled = false;           ///< No event comes.

  /// Its event was to come, and was not taken.
  bool is_unfinished() const noexcept {
    return outcome == Progressed::kPending && cookie != 0 && !taken && !is_cancelled;
  }
  /// How long it waited for the engine, and its event for the client. Nothing: not known.
  std::optional<std::int64_t> command_wait_ns() const noexcept {
    return begun ? std::optional(begun->time_ns - given_ns) : std::nullopt;
  }
  std::optional<std::int64_t> event_wait_ns() const noexcept {
    // What the engine ends at once has no event of that. The processor tells the client all the same.
    const std::optional<JobEvent>& over = done ? done : told;
    return over && taken ? std::optional(taken->time_ns - over->time_ns) : std::nullopt;
  }
};

/// One message's life. Each side is empty when nothing of it was kept.
struct Message {
  MessageName name;
  std::span<const JobEvent> sent;      ///< The source's events, in order.
  std::span<const JobEvent> received;  ///< The destination's events, in order.
  const Command* send = nullptr;       ///< Null: the source's client has no trace of it.
  const Command* receive = nullptr;    ///< Likewise the destination's.
};

/// What one side of a rank's port recorded.
struct SideTrace {
  bool is_here = false;
  std::uint64_t kept_events = 0;
  std::uint64_t lost_events = 0;  ///< Overwritten in the ring before the first one kept.
  std::int64_t start_ns = 0;      ///< The first event kept, or the start of an empty trace.
  std::int64_t end_ns = 0;        ///< The trace was written.
  std::vector<JobEvent> events;   ///< Those that belong to no message and no command.
};

struct RankTrace {
  std::uint32_t rank = 0;
  std::uint32_t process_id = 0;
  std::string host;
  SideTrace engine;
  SideTrace client;
};

class TraceJob {
 public:
  /// Fails if the files are not one job's: different sizes, a side of a rank twice, years apart.
  static Result<TraceJob> merge(const std::vector<TraceFile>& files);
  TraceJob(TraceJob&&) = default;
  TraceJob& operator=(TraceJob&&) = default;

  std::uint32_t job_size() const noexcept { return job_size_; }
  /// Wall-clock time of the job's time 0, ns since 1970. 0: the job ran on a simulated clock.
  std::int64_t realtime_of_zero_ns() const noexcept { return realtime_of_zero_ns_; }
  /// In order of rank; ranks without a file are not there.
  std::span<const RankTrace> ranks() const noexcept { return ranks_; }
  const RankTrace* find_rank(std::uint32_t rank) const noexcept;
  /// In order of name.
  std::span<const Message> messages() const noexcept { return messages_; }
  const Message* find(const MessageName& name) const noexcept;
  /// What the clients gave, in order of rank, and of time within a rank.
  std::span<const Command> commands() const noexcept { return commands_; }
  /// What is missing and what was corrected; one line each, for the user.
  std::span<const std::string> notes() const noexcept { return notes_; }

 private:
  friend class TraceJobBuilder;
  TraceJob() = default;

  std::uint32_t job_size_ = 0;
  std::int64_t realtime_of_zero_ns_ = 0;
  std::vector<RankTrace> ranks_;
  std::vector<JobEvent> events_;  ///< Of messages; Message's spans point here.
  std::vector<Command> commands_;  ///< Message's pointers point here.
  std::vector<Message> messages_;
  std::vector<std::string> notes_;
};

/// Whether an event belongs to the sending side, the receiving side, or no message.
enum class EventSide : std::uint8_t { kSending, kReceiving, kNone };
EventSide side_of(TraceEvent event) noexcept;

/// The first event of that kind; null if there is none.
const JobEvent* find_event(std::span<const JobEvent> side, TraceEvent event) noexcept;

/// The event with which the message, or its envelope, left its source; null if that is not known.
const JobEvent* departure(const Message& message) noexcept;

}  // namespace ch3_offload
