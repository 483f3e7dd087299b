// What a process that is a job of its own says of the launcher that has started it.

#include "ch3_offload/launcher.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "ch3_offload/channel.h"

namespace ch3_offload {
namespace {

/// Nothing of the launcher that has started the test itself is in the environment.
class SingletonComplaint : public testing::Test {
 protected:
  ~SingletonComplaint() override { clear(); }

  static void clear() {
    for (const char* name : {"PMI_FD", "PMI_PORT", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS",
                             "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
      unsetenv(name);
  }

  static std::string with(std::initializer_list<std::pair<const char*, const char*>> variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    return singleton_complaint();
  }
};

TEST_F(SingletonComplaint, AProgramThatAShellStartedSaysNothing) { EXPECT_EQ(with({}), ""); }

TEST_F(SingletonComplaint, ATaskOfSrunWithoutPmiNamesSrunAndTheOption) {
  EXPECT_EQ(with({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}}),
            "srun has started 4 processes without PMI, by which MPICH's processes find each other: each is a "
            "job of its own, of one process; start the program with srun --mpi=pmi2");
}

TEST_F(SingletonComplaint, TheFirstTaskSpeaksForAll) {
  EXPECT_EQ(with({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}}), "");
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}}), "");
  EXPECT_EQ(with({{"PMIX_RANK", "1"}}), "");
}

TEST_F(SingletonComplaint, OneTaskIsWhatWasAskedFor) {
  EXPECT_EQ(with({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}), "");
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), "");
  EXPECT_EQ(with({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}}), "")
      << "srun --mpi=pmix -n 1";
}

TEST_F(SingletonComplaint, AScriptOfSbatchIsNoStep) {
  EXPECT_EQ(with({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), "");
}

TEST_F(SingletonComplaint, MpichsProcessManagerMayHaveStartedOneProcess) {
  for (const char* name : {"PMI_FD", "PMI_PORT"})
    EXPECT_EQ(with({{name, "5"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}}), "") << name;
}

TEST_F(SingletonComplaint, OtherLaunchersAreNamed) {
  const std::string open_mpi =
      with({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}});
  EXPECT_TRUE(open_mpi.starts_with("the launcher of Open MPI has started 3 processes ")) << open_mpi;
  EXPECT_TRUE(open_mpi.ends_with("; start the program with the mpiexec of this MPICH")) << open_mpi;
  const std::string pmix = with({{"PMIX_RANK", "0"}});
  EXPECT_TRUE(pmix.starts_with("a launcher that speaks PMIx has started this process ")) << pmix;
}

TEST_F(SingletonComplaint, WhatIsNoNumberSaysNothing) {
  EXPECT_EQ(with({{"SLURM_STEP_NUM_TASKS", "many"}, {"SLURM_PROCID", "0"}}), "");
}

TEST_F(SingletonComplaint, IsAWarningOfAJobOfOneProcessOnly) {
  with({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}});
  for (const std::uint32_t size : {1u, 4u}) {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.job_size = config.local_size = size;
    Result<std::unique_ptr<Channel>> made = Channel::create(config);
    ASSERT_TRUE(made.ok()) << made.error().message;
    int complaints = 0;
    for (Event event; made.value()->next_event(event);) {
      if (event.kind != Event::Kind::kWarning) continue;
      const std::string line(reinterpret_cast<const char*>(event.bytes), event.length_bytes);
      complaints += line.starts_with("srun has started 4 processes ");
    }
    EXPECT_EQ(complaints, size == 1 ? 1 : 0);
  }
}

}  // namespace
}  // namespace ch3_offload
