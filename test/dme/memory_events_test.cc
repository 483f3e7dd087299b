#include "dme/memory_events.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>

namespace ch3_offload {
namespace {

/// Whether one address was reported to be going.
struct Watcher {
  std::atomic<std::uintptr_t> wanted{0};
  std::atomic<int> seen{0};

  static void unmapped(void* self, const void* address, std::size_t length_bytes) noexcept {
    auto& watcher = *static_cast<Watcher*>(self);
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t at = watcher.wanted.load();
    if (at >= begin && at - begin < length_bytes) ++watcher.seen;
  }
};

#if !defined(WITH_UCM) || defined(WITH_ADDRESS_SANITIZER) || defined(WITH_THREAD_SANITIZER)

TEST(MemoryEvents, WhoCannotSeeMemoryGoSaysWhy) {
  Watcher watcher;
  const auto watched = MemoryEvents::watch(&Watcher::unmapped, &watcher);
  ASSERT_FALSE(watched.ok());
  EXPECT_EQ(watched.error().status, Status::kUnsupported);
#ifdef WITH_UCM
  EXPECT_NE(watched.error().message.find("Sanitizer's malloc"), std::string::npos) << watched.error().message;
#else
  EXPECT_NE(watched.error().message.find("without UCX"), std::string::npos) << watched.error().message;
#endif
}

#else

class MemoryEventsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto watched = MemoryEvents::watch(&Watcher::unmapped, &watcher_);
    ASSERT_TRUE(watched.ok()) << watched.error().message;
    events_ = std::move(watched.value());
  }

  std::byte* map(std::size_t pages) {
    void* const memory =
        mmap(nullptr, pages * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return static_cast<std::byte*>(memory);
  }

  template <class Call>
  int reports_of(const void* address, Call call) {
    watcher_.wanted = reinterpret_cast<std::uintptr_t>(address);
    watcher_.seen = 0;
    call();
    return watcher_.seen;
  }

  const std::size_t page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  Watcher watcher_;
  std::unique_ptr<MemoryEvents> events_;
};

TEST_F(MemoryEventsTest, AnUnmapIsReportedForItsPagesOnly) {
  std::byte* const memory = map(3);
  EXPECT_EQ(reports_of(memory, [&] { munmap(memory + page_, page_); }), 0);
  EXPECT_EQ(reports_of(memory + 2 * page_, [&] { munmap(memory + 2 * page_, page_); }), 1);
  EXPECT_EQ(reports_of(memory + page_ - 1, [&] { munmap(memory, page_); }), 1);
}

TEST_F(MemoryEventsTest, WhoStopsWatchingHearsNothing) {
  std::byte* const memory = map(1);
  events_.reset();
  EXPECT_EQ(reports_of(memory, [&] { munmap(memory, page_); }), 0);
}

TEST_F(MemoryEventsTest, TwoCanWatch) {
  Watcher other;
  auto watched = MemoryEvents::watch(&Watcher::unmapped, &other);
  ASSERT_TRUE(watched.ok());
  std::byte* const memory = map(1);
  other.wanted = reinterpret_cast<std::uintptr_t>(memory);
  EXPECT_EQ(reports_of(memory, [&] { munmap(memory, page_); }), 1);
  EXPECT_EQ(other.seen, 1);
}

TEST_F(MemoryEventsTest, RemapMovesMemoryToWhereItIsTold) {
  std::byte* const memory = map(1);
  std::byte* const target = map(1);
  std::memcpy(memory, "moved", 6);
  void* moved = nullptr;
  // Both the old place and what was at the new one are gone.
  EXPECT_GE(
      reports_of(
          memory,
          [&] { moved = MemoryEvents::remap(memory, page_, page_, MREMAP_MAYMOVE | MREMAP_FIXED, target); }),
      1);
  ASSERT_EQ(moved, target);
  EXPECT_STREQ(reinterpret_cast<const char*>(target), "moved");
  std::byte* const third = map(1);
  EXPECT_GE(
      reports_of(
          third,
          [&] { moved = MemoryEvents::remap(target, page_, page_, MREMAP_MAYMOVE | MREMAP_FIXED, third); }),
      1);
  munmap(third, page_);
}

TEST_F(MemoryEventsTest, RemapFailsAsTheSystemCallDoes) {
  std::byte* const memory = map(1);
  errno = 0;
  EXPECT_EQ(MemoryEvents::remap(memory, page_, 2 * page_, MREMAP_FIXED, memory), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  munmap(memory, page_);
}

TEST_F(MemoryEventsTest, SignalsStayTheProgramsOwn) {
  struct sigaction action;
  for (const int signal : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
  }
}

#endif

}  // namespace
}  // namespace ch3_offload
