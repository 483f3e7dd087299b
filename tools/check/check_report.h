// What ch3-offload-info --check prints.

#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "check/checked.h"
#include "check/judge.h"

namespace ch3_offload {

/// Tables of nodes and pairs, and the findings, which judge() has of `checked`.
std::string render(const Checked& checked, const std::vector<CheckFinding>& findings);
/// The same as JSON. Returns 0 or an errno.
int write_json(const Checked& checked, const std::vector<CheckFinding>& findings, std::FILE* out);

}  // namespace ch3_offload
