#include "dme/cgroup_limit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ch3_offload {
namespace {

class CgroupLimitTest : public testing::Test {
 protected:
  CgroupLimitTest() {
    std::string name = testing::TempDir() + "ch3-offload-cgroup.XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~CgroupLimitTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::size_t limit(const std::string& groups) {
    write("process", groups);
    return cgroup_memory_limit(root_ / "process", root_ / "mounts");
  }

  std::filesystem::path root_;
};

TEST_F(CgroupLimitTest, TheLeastOnTheWayUpCounts) {
  write("mounts/job/step/memory.max", "max\n");
  write("mounts/job/memory.max", "1000000\n");
  write("mounts/memory.max", "2000000\n");
  EXPECT_EQ(limit("0::/job/step/task\n"), 1'000'000u);
  EXPECT_EQ(limit("0::/other\n"), 2'000'000u);
  EXPECT_EQ(limit("0::/\n"), 2'000'000u);
}

TEST_F(CgroupLimitTest, VersionOneHasAMountForMemory) {
  write("mounts/memory/slurm/job/memory.limit_in_bytes", "3000000\n");
  write("mounts/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limit("5:cpu,cpuacct:/slurm/job\n4:hugetlb,memory:/slurm/job\n1:name=systemd:/x\n"), 3'000'000u);
  EXPECT_EQ(limit("4:memory:/elsewhere\n"), SIZE_MAX);
}

TEST_F(CgroupLimitTest, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(cgroup_memory_limit(root_ / "absent", root_), SIZE_MAX);
  for (const char* const nonsense :
       {"", "\n", ":", "::", "0::", "0::x", "0:memory", "memory:/", "0:memory:", "0::///\n"})
    EXPECT_EQ(limit(nonsense), SIZE_MAX) << nonsense;
  write("mounts/memory.max", "lots");
  EXPECT_EQ(limit("0::/\n"), SIZE_MAX);
}

}  // namespace
}  // namespace ch3_offload
