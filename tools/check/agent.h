// The part of ch3-offload-info --check that runs on each node: it looks at the node, and tests the ways to
// others as it is told.

#pragma once

namespace ch3_offload {

/// Takes lines from standard input and answers on standard output (check_lines.h), until the input ends.
/// Returns the exit status.
int run_agent();

}  // namespace ch3_offload
