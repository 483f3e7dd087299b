// Random Portals programs, by seed (target_simulation.h).
//
// CH3_OFFLOAD_TARGET_SEEDS=N runs seeds 1 to N (default 30), CH3_OFFLOAD_TARGET_STEPS=N so many steps of each
// (default 600).

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/target_simulation.h"

namespace ch3_offload {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class TargetPrograms : public TargetSimulation {
 protected:
  void run_all(Incident incident) {
    const std::uint64_t seeds = from_environment("CH3_OFFLOAD_TARGET_SEEDS", 30);
    const std::uint64_t steps = from_environment("CH3_OFFLOAD_TARGET_STEPS", 600);
    for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) run(seed, steps, incident);
  }
};

/// Whether the memory of entries and requests is another process's.
class WhereverTheMemoryIs : public TargetPrograms, public testing::WithParamInterface<bool> {
 protected:
  WhereverTheMemoryIs() { is_elsewhere_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Elsewhere, WhereverTheMemoryIs, testing::Bool());

TEST_P(WhereverTheMemoryIs, ProgramsEndAsTheOracleSays) { run_all(Incident::kNone); }
TEST_P(WhereverTheMemoryIs, ProgramsEndWhenAProcessDies) { run_all(Incident::kDeath); }
TEST_P(WhereverTheMemoryIs, ProgramsEndWhenAProcessClosesItsInterface) { run_all(Incident::kClose); }

}  // namespace
}  // namespace ch3_offload
