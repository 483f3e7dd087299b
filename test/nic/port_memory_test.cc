// The bells: what a client does to its ends does not stop its processor.

#include "nic/port_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <utility>

namespace ch3_offload {
namespace {

class PortMemoryTest : public testing::Test {
 protected:
  PortMemoryTest() : processor_(std::move(PortMemory::make().value())), client_(attach()) {}

  PortMemory attach() {
    std::array<FileDescriptor, PortMemory::kFiles> files;
    for (std::size_t i = 0; i < files.size(); ++i)
      files[i] = FileDescriptor(::fcntl(processor_.files()[i], F_DUPFD_CLOEXEC, 0));
    return std::move(PortMemory::attach(std::move(files)).value());
  }
  /// The client, whose ends these are.
  void let_calls_block() {
    for (const int end : {client_.client_bell().sleeper, client_.nic_bell().sleeper})
      ASSERT_EQ(::fcntl(end, F_SETFL, ::fcntl(end, F_GETFL) & ~O_NONBLOCK), 0);
  }
  void ring_client() {
    processor_.words().client_sleeps = 1;
    PortMemory::ring(processor_.words().client_sleeps, processor_.client_bell(), rung_);
  }
  static bool is_readable(int descriptor) {
    pollfd entry{descriptor, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  /// Whether it returns by itself. Otherwise `release` lets it.
  template <class Call, class Release>
  static bool returns(Call call, Release release) {
    auto over = std::async(std::launch::async, call);
    const bool does = over.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    if (!does) release();
    return does;
  }

  PortMemory processor_;
  PortMemory client_;
  std::uint64_t rung_ = 0;
};

TEST_F(PortMemoryTest, EachSideWakesTheOther) {
  client_.words().client_sleeps = 1;
  ring_client();
  EXPECT_TRUE(is_readable(client_.client_bell().sleeper));
  PortMemory::quiet(client_.words().client_sleeps, client_.client_bell());
  EXPECT_FALSE(is_readable(client_.client_bell().sleeper));
  processor_.words().nic_sleeps = 1;
  PortMemory::ring(client_.words().nic_sleeps, client_.nic_bell(), rung_);
  EXPECT_TRUE(is_readable(processor_.nic_bell().sleeper));
  PortMemory::quiet(processor_.words().nic_sleeps, processor_.nic_bell());
  EXPECT_FALSE(is_readable(processor_.nic_bell().sleeper));
  EXPECT_EQ(rung_, 2U);
}

/// Descriptors may be scarce: these are all.
TEST_F(PortMemoryTest, WithinOneProcessTwoDescriptorsWakeBoth) {
  const PortMemory memory = std::move(PortMemory::make(PortMemory::Client::kHere).value());
  NicWords& words = memory.words();
  for (auto [sleeps, bell] : {std::pair(&words.client_sleeps, memory.client_bell()),
                              std::pair(&words.nic_sleeps, memory.nic_bell())}) {
    *sleeps = 1;
    PortMemory::ring(*sleeps, bell, rung_);
    EXPECT_TRUE(is_readable(bell.sleeper));
    PortMemory::quiet(*sleeps, bell);
    EXPECT_FALSE(is_readable(bell.sleeper));
    EXPECT_EQ(bell.ringer, bell.sleeper);
  }
  EXPECT_EQ(std::ranges::count(memory.files(), -1), 2);
}

TEST_F(PortMemoryTest, ABellOfTheProcessorThatBlocksDoesNotBlockIt) {
  let_calls_block();
  EXPECT_TRUE(returns([&] { PortMemory::quiet(processor_.words().nic_sleeps, processor_.nic_bell()); },
                      [&] {
                        client_.words().nic_sleeps = 1;
                        PortMemory::ring(client_.words().nic_sleeps, client_.nic_bell(), rung_);
                      }));
}

TEST_F(PortMemoryTest, ABellOfAClientThatIsFullAndBlocksDoesNotBlockTheProcessor) {
  let_calls_block();
  std::atomic<bool> ends = false;
  EXPECT_TRUE(returns(
      [&] {
        for (int i = 0; i < 200'000 && !ends; ++i) ring_client();
      },
      [&] {
        ends = true;
        PortMemory::quiet(client_.words().client_sleeps, client_.client_bell());
      }));
  EXPECT_EQ(rung_, 200'000U);
  EXPECT_TRUE(is_readable(client_.client_bell().sleeper));
}

TEST_F(PortMemoryTest, AClientThatHasClosedItsBellIsRung) {
  processor_.close_files();
  { const PortMemory gone = std::move(client_); }
  ring_client();  // No SIGPIPE.
  EXPECT_EQ(rung_, 1U);
}

}  // namespace
}  // namespace ch3_offload
