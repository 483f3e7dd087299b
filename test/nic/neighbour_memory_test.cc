// Memory of one process that another one maps. Both are this process, except where a test forks.

#include "nic/neighbour_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace ch3_offload {
namespace {

class NeighbourMemoryTest : public testing::Test {
 protected:
  SharedWithNeighbours shared_;
  SharedArena arena_{shared_};
  NeighbourMemory neighbours_;
};

TEST_F(NeighbourMemoryTest, WhatIsWrittenOnOneSideIsReadOnTheOther) {
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{3000}, std::size_t{3'000'000}, SharedArena::kMostKeptBytes + 5}) {
    std::byte* const block = arena_.allocate(length);
    ASSERT_NE(block, nullptr);
    const MemoryPlace place = arena_.locate(block, length);
    ASSERT_TRUE(place.is_somewhere());
    std::byte* const mapped = neighbours_.map(place, length);
    ASSERT_NE(mapped, nullptr);
    EXPECT_NE(mapped, block);
    block[0] = std::byte{3};
    mapped[length - 1] = static_cast<std::byte>(length == 1 ? 3 : 7);
    EXPECT_EQ(mapped[0], std::byte{3});
    EXPECT_EQ(block[length - 1], mapped[length - 1]);
    EXPECT_TRUE(arena_.give_back(block));
    EXPECT_EQ(mapped[0], std::byte{3}) << "it outlives the block";
    neighbours_.unmap(mapped);
  }
}

TEST_F(NeighbourMemoryTest, AnotherProcessMapsIt) {
  std::byte* const block = arena_.allocate(100);
  const MemoryPlace place = arena_.locate(block + 10, 90);
  const pid_t child = fork();
  if (child == 0) {
    std::byte* const mapped = neighbours_.map(place, 90);
    if (mapped == nullptr || mapped == block + 10) _exit(1);
    mapped[0] = std::byte{5};
    block[0] = std::byte{6};  // It has inherited that.
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(block[10], std::byte{5});
  EXPECT_EQ(block[0], std::byte{6});
}

TEST_F(NeighbourMemoryTest, AFileIsMappedOnceForAllThatUseIt) {
  std::byte* const one = arena_.allocate(64);
  std::byte* const other = arena_.allocate(64);
  std::byte* const mapped = neighbours_.map(arena_.locate(one, 64), 64);
  std::byte* const second = neighbours_.map(arena_.locate(other, 64), 64);
  EXPECT_EQ(second - mapped, other - one);
  neighbours_.unmap(mapped);
  second[0] = std::byte{9};
  EXPECT_EQ(other[0], std::byte{9});
  void* const page = second - reinterpret_cast<std::uintptr_t>(second) % 4096;
  EXPECT_EQ(::msync(page, 4096, MS_ASYNC), 0);
  neighbours_.unmap(second);
  EXPECT_EQ(::msync(page, 4096, MS_ASYNC), -1) << "it is still mapped";
}

TEST_F(NeighbourMemoryTest, OnlyTheFileThatWasNamedIsMapped) {
  std::byte* const block = arena_.allocate(100);
  const MemoryPlace good = arena_.locate(block, 100);
  std::vector<MemoryPlace> bad(6, good);
  bad[0].file_number += 1;
  bad[1].file_bytes += 4096;
  bad[2].descriptor = 1 << 20;
  bad[3].process = 0;
  bad[4].offset_bytes = good.file_bytes - 99;
  bad[5].offset_bytes = UINT64_MAX;
  for (const MemoryPlace& place : bad) EXPECT_EQ(neighbours_.map(place, 100), nullptr);
  EXPECT_EQ(neighbours_.map(good, SIZE_MAX), nullptr);

  const FileDescriptor unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  struct stat status {};
  ASSERT_EQ(::fstat(unsealed.get(), &status), 0);
  EXPECT_EQ(neighbours_.map({getpid(), unsealed.get(), status.st_ino, 4096, 0}, 4096), nullptr);
}

TEST_F(NeighbourMemoryTest, MemoryOfOthersIsNowhere) {
  std::byte other[64];
  EXPECT_FALSE(arena_.locate(other, sizeof(other)).is_somewhere());
  std::byte* const block = arena_.allocate(100);
  EXPECT_FALSE(arena_.locate(block, SharedArena::kChunkBytes + 1).is_somewhere());
}

TEST_F(NeighbourMemoryTest, SoManyFilesAreOpenAndNoMore) {
  constexpr std::size_t kLength = SharedArena::kMostFileBytes;
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < SharedArena::kMostOpenFiles; ++i) {
    blocks.push_back(arena_.allocate(kLength));
    ASSERT_NE(blocks.back(), nullptr);
  }
  EXPECT_EQ(arena_.allocate(kLength), nullptr);
  for (std::byte* const block : blocks) EXPECT_TRUE(arena_.give_back(block));
  std::byte* const again = arena_.allocate(100);
  EXPECT_TRUE(arena_.locate(again, 100).is_somewhere());
}

}  // namespace
}  // namespace ch3_offload
