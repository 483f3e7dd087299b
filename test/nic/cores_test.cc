#include "nic/cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

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

/// As mpiexec binds it: its peers have cores of their own.
TEST(UsableCores, OfTheNodeAreMoreThanThoseOfAProcessThatIsBound) {
  cpu_set_t all, first;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  cpu_set_t of_parent;
  if (::getppid() == 0 || ::sched_getaffinity(::getppid(), sizeof of_parent, &of_parent) != 0 ||
      CPU_COUNT(&of_parent) < 2 || usable_cores().of_node < 2)
    GTEST_SKIP() << "the parent process may use one core only";
  CPU_ZERO(&first);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &first);
  ASSERT_EQ(::sched_setaffinity(0, sizeof first, &first), 0);
  const Cores bound = usable_cores();
  ::sched_setaffinity(0, sizeof all, &all);
  EXPECT_EQ(usable_cores().of_process, static_cast<std::uint32_t>(CPU_COUNT(&all)));
  EXPECT_EQ(bound.of_process, 1U);
  EXPECT_GE(bound.of_node, 2U);
}

}  // namespace
}  // namespace ch3_offload
