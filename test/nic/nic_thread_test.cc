// The thread that runs several works: they come and go while it runs, spins or sleeps.

#include "nic/nic_thread.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "nic/short_wait.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {
namespace {

using namespace std::chrono_literals;

/// Counts what the thread calls. Something happens in a turn as often as the test has said.
class CountingWork final : public NicWork {
 public:
  std::size_t turn() noexcept override {
    ++turns;
    runs_in = std::this_thread::get_id();
    if (to_do == 0) return 0;
    --to_do;
    return 1;
  }
  bool arm() noexcept override {
    EXPECT_FALSE(is_armed);
    if (refuses) {
      ++refused;
      return false;
    }
    is_armed = true;
    return true;
  }
  void disarm() noexcept override {
    EXPECT_TRUE(is_armed.exchange(false));
    std::uint64_t rings;
    static_cast<void>(!read(bell.get(), &rings, sizeof rings));
    ++slept;
  }
  void add_to(SleepSet& set) const noexcept override {
    set.add(bell.get());
    set.end_after(due_ns);
  }
  void tell_counters() noexcept override { told = turns.load(); }

  void ring() {
    const std::uint64_t one = 1;
    ASSERT_EQ(write(bell.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  const FileDescriptor bell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<std::uint64_t> turns{0}, to_do{0}, slept{0}, refused{0}, told{0};
  std::atomic<std::uint64_t> due_ns{UINT64_MAX};
  std::atomic<bool> refuses{false}, is_armed{false};
  std::atomic<std::thread::id> runs_in;
};

class NicThreadTest : public testing::Test {
 protected:
  /// Sleeps as soon as there is nothing to do.
  NicThreadTest() {
    Result<std::shared_ptr<NicThread>> started = NicThread::start(short_wait());
    EXPECT_TRUE(started.ok());
    thread_ = started.value();
  }
  template <class Condition>
  static bool until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return condition();
  }

  std::shared_ptr<NicThread> thread_;
};

TEST_F(NicThreadTest, AllWorksRunInOneThreadThatIsNotTheCallers) {
  CountingWork works[3];
  for (CountingWork& one : works) ASSERT_FALSE(thread_->add(one).has_value());
  for (CountingWork& one : works) {
    EXPECT_TRUE(until([&] { return one.turns > 0; }));
    EXPECT_EQ(one.runs_in.load(), works[0].runs_in.load());
    EXPECT_NE(one.runs_in.load(), std::this_thread::get_id());
  }
  EXPECT_FALSE(thread_->runs_here());
  for (CountingWork& one : works) thread_->remove(one);
}

TEST_F(NicThreadTest, WhatIsRemovedIsNotCalledAnyMoreAndTheOthersAre) {
  CountingWork stays;
  stays.to_do = UINT64_MAX;  // The thread never sleeps.
  ASSERT_FALSE(thread_->add(stays).has_value());
  for (int round = 0; round < 200; ++round) {
    auto comes = std::make_unique<CountingWork>();
    ASSERT_FALSE(thread_->add(*comes).has_value());
    ASSERT_TRUE(until([&] { return comes->turns > 0; }));
    thread_->remove(*comes);
    EXPECT_FALSE(comes->is_armed);
    const std::uint64_t before = stays.turns;
    comes.reset();  // The sanitizers would see a call.
    ASSERT_TRUE(until([&] { return stays.turns > before; }));
  }
  thread_->remove(stays);
}

TEST_F(NicThreadTest, WorksComeAndGoWhileItSleeps) {
  CountingWork stays;
  ASSERT_FALSE(thread_->add(stays).has_value());
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(until([&] { return stays.is_armed.load(); }));
    std::this_thread::sleep_for(200us);
    CountingWork comes;
    ASSERT_FALSE(thread_->add(comes).has_value());
    ASSERT_TRUE(until([&] { return comes.is_armed.load(); }));
    thread_->remove(comes);
    EXPECT_FALSE(comes.is_armed);
  }
  thread_->remove(stays);
}

TEST_F(NicThreadTest, TheBellOfEachWorkEndsItsSleep) {
  CountingWork works[2];
  for (CountingWork& one : works) ASSERT_FALSE(thread_->add(one).has_value());
  for (int round = 0; round < 20; ++round) {
    CountingWork& one = works[round % 2];
    ASSERT_TRUE(until([&] { return works[0].is_armed && works[1].is_armed; }));
    std::this_thread::sleep_for(1ms);
    const std::uint64_t slept = one.slept;
    one.to_do = 5;
    one.ring();
    ASSERT_TRUE(until([&] { return one.to_do == 0 && one.slept > slept; }));
  }
  for (CountingWork& one : works) thread_->remove(one);
}

/// The second work has something to do: the first one is not left armed, and nobody sleeps.
TEST_F(NicThreadTest, ASleepEndsWhenAWorkIsDue) {
  CountingWork quiet, due;
  ASSERT_FALSE(thread_->add(quiet).has_value());
  due.due_ns = 1'000'000;
  ASSERT_FALSE(thread_->add(due).has_value());
  EXPECT_TRUE(until([&] { return due.slept >= 3; }));
  thread_->remove(due);
  thread_->remove(quiet);
}

TEST_F(NicThreadTest, OneThatCannotSleepKeepsTheOthersAwake) {
  CountingWork ready, busy, last;
  busy.refuses = true;
  for (CountingWork* const one : {&ready, &busy, &last}) ASSERT_FALSE(thread_->add(*one).has_value());
  const std::uint64_t refused = busy.refused;
  ASSERT_TRUE(until([&] { return busy.refused > refused + 10; }));
  for (CountingWork* const one : {&busy, &ready, &last}) thread_->remove(*one);
  EXPECT_GE(ready.slept, 10U);
  EXPECT_FALSE(ready.is_armed);
}

TEST_F(NicThreadTest, CountersAreToldBeforeASleep) {
  CountingWork work;
  ASSERT_FALSE(thread_->add(work).has_value());
  work.to_do = 1000;
  work.ring();
  EXPECT_TRUE(until([&] { return work.to_do == 0 && work.told > 1000; }));
  thread_->remove(work);
}

TEST_F(NicThreadTest, RefusesMoreWorksThanItCanRun) {
  std::vector<std::unique_ptr<CountingWork>> works;
  std::optional<Error> error;
  while (!error && works.size() < 1000) {
    works.push_back(std::make_unique<CountingWork>());
    error = thread_->add(*works.back());
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->status, Status::kNoMemory);
  ASSERT_GT(works.size(), 4U);     // MPI, its windows, Portals, and more.
  thread_->remove(*works.back());  // It is not there: no effect.
  EXPECT_EQ(works.back()->turns, 0U);
  works.pop_back();
  for (const auto& one : works) thread_->remove(*one);
}

}  // namespace
}  // namespace ch3_offload
