// What ch3-offload-info --check prints.

#pragma once

#include <cstdio>
#include <string>

#include "check/checked.h"

namespace ch3_offload {

/// Tables of nodes and pairs, and the findings.
std::string render(const Checked& checked);
/// The same as JSON. Returns 0 or an errno.
int write_json(const Checked& checked, std::FILE* out);

}  // namespace ch3_offload
