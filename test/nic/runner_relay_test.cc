// What the loops work with is plain memory: ThreadSanitizer sees whether each thread is the runner when it
// should be.

#include "nic/runner_relay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "nic/late_memory.h"

namespace ch3_offload {
namespace {

class RunnerRelayTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!LateMemory().is_late()) GTEST_SKIP() << "no userfaultfd for this user";
  }
  static bool copy(RunnerRelay& relay, const LateMemory& late) {
    std::array<std::byte, 8> bytes;
    const iovec there{late.address(), bytes.size()};
    return relay.copy(::getpid(), {bytes.data(), bytes.size()}, {&there, 1}, false) == bytes.size();
  }

  RunnerRelay relay_;
};

TEST(RunnerRelay, ALoopThatCopiesNothingLateRunsInItsOwnThread) {
  RunnerRelay relay;
  const auto self = std::this_thread::get_id();
  int turns = 0;
  relay.run([&] {
    EXPECT_EQ(std::this_thread::get_id(), self);
    EXPECT_FALSE(relay.is_asked());
    return ++turns < 0;
  });
  EXPECT_EQ(turns, 1);
  EXPECT_EQ(relay.takeovers(), 0u);
}

/// The kernel copies all the time, or is held up by others that compute.
TEST(RunnerRelay, ALongCopyIsNotALateOne) {
  RunnerRelay relay;
  std::vector<std::byte> from(std::size_t{64} << 20), to(from.size());
  const iovec there{from.data(), from.size()};
  int begun = 0, copied = 0;
  relay.run([&] {
    while (!relay.is_asked()) {
      if (copied == 8) return false;
      if (begun > copied) continue;  // Another thread is in its midst.
      if (++begun % 2 == 0) relay.give_way();
      EXPECT_EQ(relay.copy(::getpid(), {to.data(), to.size()}, {&there, 1}, false),
                static_cast<ssize_t>(to.size()));
      ++copied;
    }
    return true;
  });
  EXPECT_EQ(relay.takeovers(), 0u);
}

/// Each turn begins a copy that is late, the last of which is expected to be.
TEST_F(RunnerRelayTest, TheLoopGoesOnWhileCopiesAreLate) {
  std::array<LateMemory, 3> late;
  std::set<std::thread::id> threads;
  std::size_t begun = 0, copied = 0, turns = 0;
  relay_.run([&] {
    for (; !relay_.is_asked(); ++turns) {
      if (copied == late.size()) return false;
      if (begun < late.size()) {
        const LateMemory& its = late[begun++];
        const auto self = std::this_thread::get_id();
        if (begun == late.size()) relay_.give_way();
        EXPECT_TRUE(copy(relay_, its));
        EXPECT_EQ(std::this_thread::get_id(), self);
        EXPECT_TRUE(threads.insert(self).second) << "this thread was in the midst of another copy";
        ++copied;
      } else if (turns == 1000) {
        for (LateMemory& one : late) {
          EXPECT_TRUE(one.is_wanted());
          EXPECT_TRUE(one.serve());
        }
      }
    }
    return true;
  });
  EXPECT_EQ(copied, late.size());
  EXPECT_EQ(relay_.takeovers(), late.size());
}

/// A copy that begins after both have slept is seen.
TEST_F(RunnerRelayTest, ASpareThreadThatDozesIsWoken) {
  LateMemory late;
  bool is_begun = false, is_copied = false;
  relay_.run([&] {
    while (!relay_.is_asked()) {
      if (is_copied) return false;
      if (!is_begun) {
        is_begun = true;
        relay_.sleeps();
        ::usleep(150'000);
        relay_.wakes();
        is_copied = copy(relay_, late);
      } else if (late.is_wanted()) {
        late.serve();
      }
    }
    return true;
  });
  EXPECT_TRUE(is_copied);
  EXPECT_EQ(relay_.takeovers(), 1u);
}

using RunnerRelayDeathTest = RunnerRelayTest;

TEST_F(RunnerRelayDeathTest, TheProcessEndsWhileACopyIsLate) {
  EXPECT_EXIT(
      {
        RunnerRelay relay;
        LateMemory late;
        bool is_begun = false;
        relay.run([&] {
          if (!std::exchange(is_begun, true)) copy(relay, late);
          return false;
        });
        std::exit(1);  // That was not late.
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ch3_offload
