#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "dme/memory_events.h"

namespace ch3_offload {
namespace {

TEST(MemoryEventsAbsent, WatchingNamesThePackageThatIsMissing) {
  const auto events = MemoryEvents::watch([](void*, const void*, std::size_t) noexcept {}, nullptr);
  ASSERT_FALSE(events.ok());
  EXPECT_EQ(events.error().status, Status::kUnsupported);
  EXPECT_NE(events.error().message.find("libucx-dev"), std::string::npos) << events.error().message;
}

TEST(MemoryEventsAbsent, RemapMovesMemoryToAGivenAddress) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const old_place = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* const new_place = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(old_place, MAP_FAILED);
  ASSERT_NE(new_place, MAP_FAILED);
  std::memset(old_place, 0x5a, page);
  ASSERT_EQ(MemoryEvents::remap(old_place, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, new_place), new_place);
  EXPECT_EQ(static_cast<unsigned char*>(new_place)[page - 1], 0x5a);
  EXPECT_EQ(munmap(new_place, page), 0);
}

}  // namespace
}  // namespace ch3_offload
