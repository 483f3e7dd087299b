// What the library would choose on this node with these settings, and why; and why it would not start.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ch3_offload/environment.h"
#include "node_probe.h"

namespace ch3_offload {

/// Why MPI_Init would fail on this node, as it would say. Empty: it would not.
std::vector<std::string> init_errors(const Environment& environment, const NodeFacts& facts);

/// One thing that the library decides by itself.
struct Choice {
  std::string topic;
  std::string choice;
  std::string why;
};
/// Empty: MPI_Init would fail.
std::vector<Choice> choices(const Environment& environment, const NodeFacts& facts);

/// "64 KiB", "1000 bytes"
std::string in_units(std::size_t bytes);

}  // namespace ch3_offload
