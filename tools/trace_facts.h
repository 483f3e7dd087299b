// What the events of a message amount to: protocol, length, latency, what went wrong.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trace_job.h"

namespace ch3_offload {

struct MessageFacts {
  std::string_view protocol;               ///< "short", "eager", "optimistic", "rendezvous write", ...
  std::optional<std::uint64_t> bytes;      ///< Length as sent.
  std::optional<std::int64_t> latency_ns;  ///< From SendPosted to ReceiveDone.
  std::optional<std::uint64_t> match_bits;
  bool arrived = false;     ///< MessageArrived was kept.
  bool unexpected = false;  ///< No receive was posted when it arrived.
  bool failed = false;      ///< One side ended with a status that is neither Ok nor Truncated.
  /// Why the message's life is not whole in the files: "unfinished", "no trace of rank 3", ...; empty
  /// if it is whole.
  std::string gap;
};

MessageFacts facts_of(const Message& message, const TraceJob& job);

/// First and last moment of the message in the files.
std::int64_t begin_of(const Message& message) noexcept;
std::int64_t end_of(const Message& message) noexcept;

/// The meaning of an event's detail, for people: "4096 bytes", "status PeerFailed", "context 4 source 0
/// tag 7"; empty if it has none.
std::string describe_detail(const JobEvent& event);

/// What a message does after an event, until the next one on the same side: "waits for a receive".
std::string_view phase_after(TraceEvent event) noexcept;

/// What the call of a command returned: "done at once".
std::string_view outcome_name(Progressed outcome) noexcept;

/// "17 B", "4.0 KiB", "1.5 GiB".
std::string human_bytes(std::uint64_t bytes);

}  // namespace ch3_offload
