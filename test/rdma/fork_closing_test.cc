#include "rdma/fork_closing.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace ch3_offload {
namespace {

std::size_t count_mappings(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(path) != std::string::npos;
  return count;
}

/// A file of one page in /dev/shm, removed at the end.
class MappedFile {
 public:
  MappedFile() : path_("/dev/shm/fork-closing-XXXXXX"), descriptor_(::mkstemp(path_.data())) {
    static_cast<void>(!::ftruncate(descriptor_, page_bytes()));
  }
  ~MappedFile() {
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }
  static long page_bytes() { return ::sysconf(_SC_PAGESIZE); }
  const std::string& path() const { return path_; }
  void* map() const {
    return ::mmap(nullptr, static_cast<std::size_t>(page_bytes()), PROT_READ, MAP_SHARED, descriptor_, 0);
  }

 private:
  std::string path_;
  int descriptor_;
};

TEST(UnmapFiles, UnmapsEveryMappingOfAFileAndNoOther) {
  const MappedFile wanted;
  const MappedFile other;
  // More lines than one read() of /proc/self/maps brings. Those of one file that are adjacent may be one.
  std::vector<void*> mappings;
  for (int i = 0; i < 300; ++i) {
    mappings.push_back(wanted.map());
    mappings.push_back(other.map());
  }
  ASSERT_GE(count_mappings(wanted.path()), 1u);
  const std::size_t others = count_mappings(other.path());
  unmap_files(wanted.path());
  EXPECT_EQ(count_mappings(wanted.path()), 0u);
  EXPECT_EQ(count_mappings(other.path()), others);
  unmap_files(other.path());
  EXPECT_EQ(count_mappings(other.path()), 0u);
}

/// A child that lives on does not hold the descriptor open.
TEST(ForkClosing, AChildHasNoDescriptorThatIsListed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ForkClosedDescriptor listed{FileDescriptor(ends[1])};
  ForkClosedDescriptor moved = std::move(listed);
  EXPECT_FALSE(listed.valid());
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  moved.reset();
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "nobody can write to it";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
}

TEST(UnmapFiles, TakesThePathFromItsBeginning) {
  const MappedFile file;
  file.map();
  unmap_files("/fork-closing-");
  EXPECT_EQ(count_mappings(file.path()), 1u);
  unmap_files("/dev/shm/fork-closing-");
  EXPECT_EQ(count_mappings(file.path()), 0u);
}

}  // namespace
}  // namespace ch3_offload
