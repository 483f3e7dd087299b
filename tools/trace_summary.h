// Tables over all messages: per pair of ranks, per protocol, per rank.

#pragma once

#include <cstddef>
#include <string>

#include "trace_job.h"

namespace ch3_offload {

/// `most_pairs`: the pairs that moved the most bytes are shown; 0: all.
std::string render_summary(const TraceJob& job, std::size_t most_pairs);

}  // namespace ch3_offload
