#include "dme/sharded_counter.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ch3_offload {
namespace {

TEST(ShardedCounterTest, CountsWhatFewThreadsAddExactly) {
  ShardedCounter counter;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 100'000; ++j) counter.increment();
    });
  threads.clear();
  EXPECT_EQ(counter.sum(), 400'000u);
}

}  // namespace
}  // namespace ch3_offload
