// Which processes of a job say a line to the user.
//
// What a process finds out about its node, all processes there find out. So each line has a scope, and one
// process says it for all. The site that writes a line chooses the scope by what the line is about.
//
//   scope      the line is about                                          said by
//   kProcess   this process, a peer of it, or a connection                this process
//   kNode      the node: its kernel, limits, devices and their ports      the node's first process of the job
//   kJob       what all processes share: settings, program, libraries     the job's first process
//
// The first process speaks for the others even if it differs from them, as in its limits. Counters count in
// each process, whether it speaks or not.

#pragma once

#include <cstdint>

namespace ch3_offload {

enum class LogScope : std::uint8_t { kProcess, kNode, kJob };

/// Returns whether a process says a line of that scope.
constexpr bool says(LogScope scope, bool is_first_of_node, bool is_first_of_job) noexcept {
  switch (scope) {
    case LogScope::kNode: return is_first_of_node;
    case LogScope::kJob: return is_first_of_job;
    default: return true;
  }
}

}  // namespace ch3_offload
