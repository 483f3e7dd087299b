// The arena with a processor that notes what it is told.

#include "nic/shared_arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <map>
#include <set>
#include <vector>

namespace ch3_offload {
namespace {

class SharedArenaTest : public testing::Test, protected SharesMemory {
 protected:
  bool share(const std::byte* address, std::size_t length_bytes, const FileDescriptor& file) noexcept override {
    if (refuses_ || !is_sealed_file(file, length_bytes)) return false;
    return shared_.emplace(address, length_bytes).second;
  }
  void unshare(const std::byte* address) noexcept override { shared_.erase(address); }

  static bool is_aligned(const std::byte* block) {
    return reinterpret_cast<std::uintptr_t>(block) % SharedArena::kLeastBytes == 0;
  }

  bool refuses_ = false;
  std::map<const std::byte*, std::size_t> shared_;
  SharedArena arena_{*this};
};

TEST_F(SharedArenaTest, BlocksAreApartAlignedAndShared) {
  std::map<std::byte*, std::size_t> blocks;
  for (const std::size_t length : {0u, 1u, 64u, 65u, 1000u, 4096u, 65'536u, 65'537u, 1u << 20, 3'000'000u}) {
    for (int i = 0; i < 40; ++i) {
      std::byte* const block = arena_.allocate(length);
      ASSERT_NE(block, nullptr);
      EXPECT_TRUE(is_aligned(block));
      EXPECT_TRUE(arena_.contains(block, length));
      if (length > 0) std::memset(block, i, length);
      blocks.emplace(block, length);
    }
  }
  const std::byte* end = nullptr;
  for (const auto& [block, length] : blocks) {
    EXPECT_GE(block, end);
    end = block + length;
  }
}

TEST_F(SharedArenaTest, SmallBlocksShareAFile) {
  std::set<std::byte*> blocks;
  for (std::size_t i = 0; i < SharedArena::kChunkBytes / 64; ++i) blocks.insert(arena_.allocate(64));
  EXPECT_EQ(blocks.size(), SharedArena::kChunkBytes / 64);
  EXPECT_EQ(shared_.size(), 1u);
  EXPECT_NE(arena_.allocate(64), nullptr);
  EXPECT_EQ(shared_.size(), 2u);
}

TEST_F(SharedArenaTest, ABlockThatWasGivenBackIsTheNext) {
  for (const std::size_t length : {100u, 300'000u}) {
    std::byte* const block = arena_.allocate(length);
    ASSERT_TRUE(arena_.give_back(block));
    EXPECT_EQ(arena_.allocate(length), block);
  }
}

TEST_F(SharedArenaTest, LongBlocksBeyondWhatIsKeptAreUnshared) {
  constexpr std::size_t kLength = SharedArena::kMostKeptBytes / 4;
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(arena_.allocate(kLength));
  EXPECT_EQ(shared_.size(), 6u);
  for (std::byte* const block : blocks) EXPECT_TRUE(arena_.give_back(block));
  EXPECT_EQ(shared_.size(), 4u);
  EXPECT_FALSE(arena_.contains(blocks.back(), 1));
  for (int i = 0; i < 4; ++i) EXPECT_NE(arena_.allocate(kLength), nullptr);
  EXPECT_EQ(shared_.size(), 4u);
}

TEST_F(SharedArenaTest, MemoryOfOthersIsNotTakenBack) {
  std::byte other{};
  EXPECT_FALSE(arena_.give_back(&other));
  EXPECT_FALSE(arena_.contains(&other, 1));
  EXPECT_FALSE(arena_.give_back(nullptr));
}

TEST_F(SharedArenaTest, WhatTheProcessorCannotMapIsNoBlock) {
  refuses_ = true;
  EXPECT_EQ(arena_.allocate(100), nullptr);
  EXPECT_EQ(arena_.allocate(1 << 20), nullptr);
  refuses_ = false;
  EXPECT_NE(arena_.allocate(100), nullptr);
}

TEST_F(SharedArenaTest, NoAddressSpaceHasRoomForThat) {
  EXPECT_EQ(arena_.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(arena_.allocate(std::size_t{1} << 56), nullptr);
}

/// A longer file than the user may make ends in an error, and not in SIGXFSZ.
TEST_F(SharedArenaTest, TheLimitOfAFilesSizeIsNoSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = SharedArena::kChunkBytes;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &lower), 0);
  EXPECT_NE(arena_.allocate(100), nullptr);
  EXPECT_EQ(arena_.allocate(2 * SharedArena::kChunkBytes), nullptr);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST_F(SharedArenaTest, MemoryThatSomebodyElseHasMappedIsSharedUntilItIsDisowned) {
  constexpr std::size_t kBytes = 8192;
  const Result<FileDescriptor> file = make_shared_file("test", kBytes);
  const Result<Mapping> mapping = map_shared(file.value(), kBytes, MapAccess::kReadWrite);
  std::byte* const address = mapping.value().address();
  EXPECT_TRUE(arena_.adopt(address, kBytes, file.value()));
  EXPECT_FALSE(arena_.adopt(address, kBytes, file.value()));
  EXPECT_TRUE(arena_.contains(address + 1, kBytes - 1));
  EXPECT_FALSE(arena_.give_back(address)) << "it is no block";
  arena_.disown(address + 1);
  EXPECT_EQ(shared_.size(), 1u);
  arena_.disown(address);
  EXPECT_EQ(shared_.size(), 0u);
  EXPECT_FALSE(arena_.contains(address, 1));
}

TEST_F(SharedArenaTest, WithoutItsProcessorItTakesBlocksBack) {
  constexpr std::size_t kLength = 2 * SharedArena::kMostKeptBytes;
  std::byte* const block = arena_.allocate(kLength);
  ASSERT_NE(block, nullptr);
  arena_.detach();
  EXPECT_TRUE(arena_.give_back(block));
  EXPECT_EQ(shared_.size(), 1u) << "nobody is told";
  EXPECT_EQ(arena_.allocate(kLength), nullptr);
}

/// A program may read it after MPI_Finalize.
TEST_F(SharedArenaTest, ABlockOutlivesTheArena) {
  std::byte* block = nullptr;
  {
    SharedArena arena(*this);
    block = arena.allocate(100);
    std::memset(block, 7, 100);
  }
  EXPECT_EQ(block[99], std::byte{7});
}

}  // namespace
}  // namespace ch3_offload
