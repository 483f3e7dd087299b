// What is wrong with nodes that were checked.

#pragma once

#include <string>
#include <vector>

#include "check/checked.h"

namespace ch3_offload {

struct CheckFinding {
  bool is_wrong;  ///< Jobs will fail or hang. Otherwise something that an administrator may want to know.
  std::string text;
};
/// The worst first.
std::vector<CheckFinding> judge(const Checked& checked);

}  // namespace ch3_offload
