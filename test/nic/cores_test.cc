#include "nic/cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace ch3_offload {
namespace {

class CpuQuota : public testing::Test {
 protected:
  CpuQuota() : mounts_(testing::TempDir() + "ch3-offload-cgroup") { std::filesystem::remove_all(mounts_); }
  ~CpuQuota() override { std::filesystem::remove_all(mounts_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = mounts_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  const std::string mounts_;
};

TEST_F(CpuQuota, WithoutGroupsThereIsNone) {
  EXPECT_EQ(quota_cores("", mounts_), std::nullopt);
  EXPECT_EQ(quota_cores("0::/\n", mounts_), std::nullopt);
  EXPECT_EQ(quota_cores("nonsense\n", mounts_), std::nullopt);
}

TEST_F(CpuQuota, OfVersionTwoIsRoundedDown) {
  write("job/cpu.max", "250000 100000");
  EXPECT_EQ(quota_cores("0::/job\n", mounts_), 2U);
  write("job/cpu.max", "50000 100000");
  EXPECT_EQ(quota_cores("0::/job\n", mounts_), 0U);
  write("job/cpu.max", "max 100000");
  EXPECT_EQ(quota_cores("0::/job\n", mounts_), std::nullopt);
}

TEST_F(CpuQuota, TheLeastOfAllAncestorsCounts) {
  write("a/cpu.max", "200000 100000");
  write("a/b/cpu.max", "800000 100000");
  write("a/b/c/cpu.max", "max 100000");
  EXPECT_EQ(quota_cores("0::/a/b/c\n", mounts_), 2U);
}

TEST_F(CpuQuota, OfVersionOneIsInTheCpuHierarchy) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "300000");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  write("cpuset/job/cpu.max", "100000 100000");
  EXPECT_EQ(quota_cores("9:cpuset:/job\n4:cpu,cpuacct:/job\n", mounts_), 3U);
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(quota_cores("9:cpuset:/job\n4:cpu,cpuacct:/job\n", mounts_), std::nullopt);
}

TEST_F(CpuQuota, OfAContainerThatSeesItsHostsPathIsAtTheMount) {
  write("cpu.max", "400000 100000");
  EXPECT_EQ(quota_cores("0::/system.slice/container\n", mounts_), 4U);
}

TEST_F(CpuQuota, FilesThatSayNothingDoNotLimit) {
  write("job/cpu.max", "");
  EXPECT_EQ(quota_cores("0::/job\n", mounts_), std::nullopt);
  write("job/cpu.max", "100000 0");
  EXPECT_EQ(quota_cores("0::/job\n", mounts_), std::nullopt);
}

TEST(UsableCores, AreAtLeastOneForTheProcess) { EXPECT_GE(usable_cores().of_process, 1U); }

}  // namespace
}  // namespace ch3_offload
