#include "dme/fork_mark.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ch3_offload {
namespace {

bool kernel_wipes_on_fork() {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool does = madvise(page, page_bytes, MADV_WIPEONFORK) == 0;
  munmap(page, page_bytes);
  return does;
}

TEST(ForkMark, TellsAChildFromItsParent) {
  const ForkMark mark;
  EXPECT_EQ(mark.works(), kernel_wipes_on_fork());
  if (!mark.works()) GTEST_SKIP() << "this kernel has no MADV_WIPEONFORK";
  EXPECT_TRUE(mark.is_owner());
  const pid_t child = fork();
  if (child == 0) _exit(mark.is_owner() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(mark.is_owner());
}

TEST(ForkMark, AChildsOwnMarkIsItsOwn) {
  const ForkMark mark;
  const pid_t child = fork();
  if (child == 0) {
    const ForkMark own;
    _exit(own.is_owner() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ch3_offload
