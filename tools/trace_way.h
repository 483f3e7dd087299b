// The way of a message: from the call that gave it to its sender's port to the call that took its completion
// from its receiver's port.

#pragma once

#include <string_view>
#include <vector>

#include "trace_job.h"

namespace ch3_offload {

/// The points of the way that are in the files, in order: SendGiven, CommandPublished, CommandTaken, the
/// departure, MessageArrived, ReceiveDone, EventPublished, ReceiveTaken. Without rings there is no publication.
/// Empty for a message that had to wait for a receive: the program's time would be in it.
std::vector<JobEvent> way_of(const Message& message);

/// What a message passes between two points that follow each other in way_of(): "command ring".
std::string_view step_between(TraceEvent from, TraceEvent to) noexcept;

}  // namespace ch3_offload
