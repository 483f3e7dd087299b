// The commands of a rank's client, joined with what its engine did of them.
//
// Both sides record a command's cookie. A cookie comes again when its command is over, so commands with one
// cookie are told apart by their order: the engine takes them up in the order in which they were given.
//
// If rings are between the two sides, each side has cookies of its own. Then a command is known by its position
// in the ring, which CommandPublished and CommandTaken have.

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
  bool by_client;
  // Set by join_commands().
  std::uint64_t key = 0;        ///< The same on both sides. 0: what became of the command is not known.
  std::uint64_t sends_key = 0;  ///< Of a cancellation: of its send.
};

/// Whether an event of a trace is such a step. Packets without data have no cookie.
constexpr bool is_step_of_client(TraceEvent event) noexcept {
  return (event >= TraceEvent::kSendGiven && event <= TraceEvent::kCancelTaken) ||
         event == TraceEvent::kCommandPublished;
}
constexpr bool takes_part_in_command(TraceEvent event, std::uint64_t cookie) noexcept {
  return is_command(event) || event == TraceEvent::kCommandPublished || cookie != 0;
}

/// Appends the rank's commands to `commands`, in order of time. `steps`: of both sides, each in the order of
/// its file.
void join_commands(const RankTrace& rank, std::vector<CommandStep>& steps, std::vector<Command>& commands);

}  // namespace ch3_offload
