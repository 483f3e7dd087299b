#include "ch3_offload/launcher.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ch3_offload/environment.h"

namespace ch3_offload {
namespace {

/// How a launcher tells a process which of its processes it is.
struct Launcher {
  const char* size;  ///< The variable with the number of processes. nullptr: this launcher does not say it.
  const char* rank;  ///< The variable with the number of this process, from 0.
  std::string_view name;
  std::string_view remedy;
};

/// A launcher that says how many it has started stands before the one that does not: srun --mpi=pmix and Open
/// MPI's launcher set PMIX_RANK, too.
constexpr Launcher kLaunchers[] = {
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun", "start the program with srun --mpi=pmi2"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "the launcher of Open MPI",
     "start the program with the mpiexec of this MPICH"},
    {nullptr, "PMIX_RANK", "a launcher that speaks PMIx",
     "start the program with the mpiexec of this MPICH, or with srun --mpi=pmi2"},
};

bool is_there(const Launcher& launcher) {
  return std::getenv(launcher.size != nullptr ? launcher.size : launcher.rank) != nullptr;
}

std::string complaint_about(const Launcher& launcher) {
  const std::uint32_t size = launcher.size != nullptr ? number_in_environment(launcher.size) : 0;
  if (number_in_environment(launcher.rank) != 0 || (launcher.size != nullptr && size <= 1)) return {};
  std::string line(launcher.name);
  line += " has started ";
  line += launcher.size != nullptr ? std::to_string(size) + " processes" : "this process";
  line +=
      " without PMI, by which MPICH's processes find each other: each is a job of its own, of one process; ";
  return line.append(launcher.remedy);
}

}  // namespace

std::string singleton_complaint() {
  if (std::getenv("PMI_FD") != nullptr || std::getenv("PMI_PORT") != nullptr) return {};
  for (const Launcher& launcher : kLaunchers)
    if (is_there(launcher)) return complaint_about(launcher);
  return {};
}

}  // namespace ch3_offload
