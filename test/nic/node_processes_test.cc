#include "nic/node_processes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace ch3_offload {
namespace {

/// What `check` returns in each of two children of a new process, which stands for a launcher with a job of
/// `local_size` processes here. True: all of them said so.
template <class Check>
bool in_two_children(Check check) {
  const auto succeeds = [](pid_t process) {
    int status = 0;
    return waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  const pid_t launcher = fork();
  if (launcher != 0) return succeeds(launcher);
  int started[2];  // Closed for writing when both children are there.
  int checked[2];  // A byte from each that has looked.
  int done[2];     // Closed for writing when both have: each finds the other.
  if (pipe(started) != 0 || pipe(checked) != 0 || pipe(done) != 0) _exit(1);
  pid_t children[2];
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    close(started[1]);
    close(done[1]);
    char byte = 0;
    [[maybe_unused]] ssize_t ignored = read(started[0], &byte, 1);
    const bool is_well = check();
    ignored = write(checked[1], &byte, 1);
    ignored = read(done[0], &byte, 1);
    _exit(is_well ? 0 : 1);
  }
  close(started[1]);
  close(checked[1]);
  char byte;
  for (int looked = 0; looked < 2 && read(checked[0], &byte, 1) == 1; ++looked) {
  }
  close(done[1]);
  const bool first = succeeds(children[0]), second = succeeds(children[1]);
  _exit(first && second ? 0 : 1);
}

class NodeProcessesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/proc/self/task/" + std::to_string(gettid()) + "/children"))
      GTEST_SKIP() << "this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)";
  }
};

TEST_F(NodeProcessesTest, AreTheLaunchersChildrenIfThereAreAsMany) {
  EXPECT_TRUE(in_two_children([] {
    const NodeProcesses node = read_node_processes(1, 2);
    return node.masks.size() == 2 && node.masks[0] == node.own && node.local_rank == 1 &&
           !node.launcher.empty();
  }));
}

TEST_F(NodeProcessesTest, AreNotKnownIfTheLauncherHasOtherChildren) {
  EXPECT_TRUE(in_two_children([] { return read_node_processes(0, 1).masks.empty(); }));
  EXPECT_TRUE(in_two_children([] { return read_node_processes(0, 3).masks.empty(); }));
}

TEST(NodeProcesses, ComputeInOneThreadUnlessOpenMpIsToldOtherwise) {
  const auto threads = [](const char* text) {
    setenv("OMP_NUM_THREADS", text, 1);
    const std::uint32_t said = read_node_processes(0, 1).threads;
    unsetenv("OMP_NUM_THREADS");
    return said;
  };
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(read_node_processes(0, 1).threads, 1u);
  EXPECT_EQ(threads("3"), 3u);
  EXPECT_EQ(threads("4,2"), 4u);
  EXPECT_EQ(threads("0"), 1u);
  EXPECT_EQ(threads("many"), 1u);
}

TEST(NodeProcesses, AreAtLeastOne) { EXPECT_EQ(read_node_processes(0, 0).local_size, 1u); }

}  // namespace
}  // namespace ch3_offload
