// What ch3-offload-info says: of the settings, of this node, and of what the library would choose and why.

#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "ch3_offload/environment.h"
#include "info_choices.h"
#include "node_probe.h"

namespace ch3_offload {

/// One thing that the library needs or can use here.
struct Finding {
  std::string name;
  bool usable;
  std::string detail;
};
std::vector<Finding> findings(const NodeFacts& facts);

/// The ports of RDMA devices, best first.
std::vector<Finding> port_findings(const NodeFacts& facts);

/// `facts` is null when a setting is wrong: then the node was not looked at.
std::string render_text(const Environment& environment, const NodeFacts* facts);

/// The settings as a file of settings. Those that nothing has set are comments.
std::string render_settings_file(const Environment& environment);

/// The text as JSON. Returns 0 or an errno.
int write_json(const Environment& environment, const NodeFacts* facts, std::FILE* out);

}  // namespace ch3_offload
