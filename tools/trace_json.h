// Trace-event JSON, for chrome://tracing and Perfetto.
//
// One process per rank. In it, messages are spans on as many lanes as it takes for none to overlap, with
// their phases nested inside; arrows lead from side to side. Format: "Trace Event Format", Google, 2016.

#pragma once

#include <cstdio>

#include "trace_job.h"

namespace ch3_offload {

/// Writes the job to `file`. Returns 0 or errno.
int write_json(const TraceJob& job, std::FILE* file);

}  // namespace ch3_offload
