// The commands of a rank's client, joined with what its engine did of them.
//
// Both sides record a command's cookie. A cookie comes again when its command is over, so commands with one
// cookie are told apart by their order: the engine takes them up in the order in which they were given.

#pragma once

#include <cstdint>
#include <vector>

#include "trace_job.h"

namespace ch3_offload {

/// An event of either side that names a command.
struct CommandStep {
  JobEvent event;
  std::uint64_t cookie;
  std::uint64_t number;  ///< Of the engine: the message's, 0: none. Of a command: ns until it returned.
  Progressed outcome;    ///< Of a command.
};

/// Whether an event of a trace is such a step. Packets without data have no cookie.
constexpr bool is_step_of_client(TraceEvent event) noexcept {
  return event >= TraceEvent::kSendGiven && event <= TraceEvent::kCancelTaken;
}
constexpr bool takes_part_in_command(TraceEvent event, std::uint64_t cookie) noexcept {
  return is_command(event) || cookie != 0;
}

/// Appends the rank's commands to `commands`, in order of time. `steps`: of both sides, in any order.
void join_commands(const RankTrace& rank, std::vector<CommandStep>& steps, std::vector<Command>& commands);

}  // namespace ch3_offload
