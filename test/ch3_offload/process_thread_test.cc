// The one thread of a process.

#include "ch3_offload/process_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ch3_offload/channel.h"
#include "nic/short_wait.h"

namespace ch3_offload {
namespace {

std::shared_ptr<NicThread> take() {
  Result<std::shared_ptr<NicThread>> found = find_or_start_process_thread(short_wait());
  EXPECT_TRUE(found.ok());
  return std::move(found.value());
}

/// Threads of this process that run engines.
int threads_here() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    count += name == "ch3-offload-nic";
  }
  return count;
}

/// Waits until there are so many: one that was joined may still be there for a moment.
bool has_threads(int count) {
  for (int i = 0; i < 10'000 && threads_here() != count; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads_here() == count;
}

TEST(ProcessThread, IsThatOfTheFirstUntilTheLastHasGone) {
  std::shared_ptr<NicThread> first = take(), second = take();
  EXPECT_EQ(first, second);
  first.reset();
  std::shared_ptr<NicThread> third = take();
  EXPECT_EQ(third, second);
  EXPECT_TRUE(has_threads(1));
  second.reset();
  third.reset();
  EXPECT_TRUE(has_threads(0));
}

/// What is said of it is so when MPI begins again, too.
TEST(ProcessThread, IsSpokenOfOnceInAProcess) {
  static_cast<void>(NicThread::first_to_say());
  EXPECT_FALSE(NicThread::first_to_say());
}

TEST(ProcessThread, ManyThreadsThatAskAtOnceGetOne) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<NicThread>> found(4);
    std::vector<std::thread> askers;
    for (std::shared_ptr<NicThread>& one : found) askers.emplace_back([&one] { one = take(); });
    for (std::thread& asker : askers) asker.join();
    for (const std::shared_ptr<NicThread>& one : found) EXPECT_EQ(one, found[0]);
    EXPECT_TRUE(has_threads(1));
  }
}

#ifndef WITH_THREAD_SANITIZER  // It starts no threads in a child.
TEST(ProcessThread, AChildOfForkHasItsOwn) {
  const std::shared_ptr<NicThread> mine = take();
  const pid_t child = fork();
  if (child == 0) {
    std::shared_ptr<NicThread> its = take();
    const bool is_right = its != mine && threads_here() == 1;
    its.reset();
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(take(), mine);
}
#endif

TEST(ProcessThread, RunsTheEnginesOfAllChannels) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  config.job_size = config.local_size = 2;
  config.nic = "thread";
  std::vector<std::unique_ptr<Channel>> channels;
  for (config.rank = 0; config.rank < 2; ++config.rank) {
    Result<std::unique_ptr<Channel>> made = Channel::create(config);
    ASSERT_TRUE(made.ok()) << made.error().message;
    channels.push_back(std::move(made.value()));
  }
  EXPECT_TRUE(has_threads(1));
  channels.clear();
  EXPECT_TRUE(has_threads(0));
}

}  // namespace
}  // namespace ch3_offload
