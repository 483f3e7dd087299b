// All ranks' traces as one: every message with both its sides, on one clock.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// One message's life. Each side is empty when nothing of it was kept.
struct Message {
  MessageName name;
  std::span<const JobEvent> sent;      ///< The source's events, in order.
  std::span<const JobEvent> received;  ///< The destination's events, in order.
};

struct RankTrace {
  std::uint32_t rank = 0;
  std::uint32_t process_id = 0;
  std::string host;
  std::uint64_t kept_events = 0;
  std::uint64_t lost_events = 0;  ///< Overwritten in the ring before the first one kept.
  std::int64_t start_ns = 0;      ///< The first event kept, or the start of an empty trace.
  std::int64_t end_ns = 0;        ///< The trace was written.
  std::vector<JobEvent> events;   ///< Those that belong to no message.
};

class TraceJob {
 public:
  /// Fails if the files are not one job's: different sizes, a rank twice, years apart.
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
  /// What is missing and what was corrected; one line each, for the user.
  std::span<const std::string> notes() const noexcept { return notes_; }

 private:
  friend class TraceJobBuilder;
  TraceJob() = default;

  std::uint32_t job_size_ = 0;
  std::int64_t realtime_of_zero_ns_ = 0;
  std::vector<RankTrace> ranks_;
  std::vector<JobEvent> events_;  ///< Of messages; Message's spans point here.
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
