// Runs a check of nodes: starts an agent on each, asks it about its node, and lets them test the ways between
// them.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "check/checked.h"
#include "rdma/status.h"

namespace ch3_offload {

struct CheckOptions {
  std::vector<std::string> hosts{};  ///< At least two.
  std::vector<std::string>
      launcher{};         ///< What runs a program on a host: these words, the host, the program.
  std::string program{};  ///< ch3-offload-info, on each host.
  int limit_ms = 5000;    ///< PairTester.
  bool all_pairs = false;
  bool shows_progress = false;  ///< On standard error.
};

/// "node1,node2", or the name of a file as mpiexec -f takes it: a host on each line, ":" and a number behind
/// it, "#" before what is no host. The error says what is wrong with it.
Result<std::vector<std::string>> hosts_of(const std::string& text);

/// Takes seconds. Waits for no node longer than its limits.
Checked run_check(const CheckOptions& options);

}  // namespace ch3_offload
