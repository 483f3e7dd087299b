// The modules of docs/examples/modules in simulated groups, whose messages arrive in an order that a seed chooses.

#include "modules/simulated_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ch3_offload {
namespace simulated_group_test {

std::string example(const std::string& name) {
  const char* const top = std::getenv("top_srcdir");
  std::ifstream file(std::string(top == nullptr ? "." : top) + "/docs/examples/modules/" + name + ".lua");
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Calls `check` with groups of several sizes in which the example is loaded.
template <class Check>
void with_groups(const std::string& name, Check check) {
  const std::string text = example(name);
  for (std::uint32_t size = 1; size <= 20; ++size)
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SimulatedGroup group(size, seed);
      ASSERT_EQ(group.load(name, text), "");
      check(group, size, static_cast<std::uint32_t>(seed % size));
      EXPECT_TRUE(group.lines().empty());
      if (testing::Test::HasFailure()) FAIL() << name << ", size " << size << ", seed " << seed;
    }
}

TEST(ModuleExamples, BatchSendsOneSumOfEachProcessInAWhile) {
  with_groups("batch", [](SimulatedGroup& group, std::uint32_t size, std::uint32_t) {
    for (std::uint32_t round = 0; round < 3; ++round)
      for (std::uint32_t rank = 0; rank < size; ++rank)
        group.give(rank, rank, 0, bytes_of<std::int64_t>({rank, 1}));
    EXPECT_EQ(group.run(1000, 9), "");
    EXPECT_TRUE(group.deliveries().empty()) << "it is not time yet";
    EXPECT_EQ(group.run(1000, 10), "");
    EXPECT_EQ(group.fired(), size);
    ASSERT_EQ(group.deliveries().size(), size);
    for (const auto& one : group.deliveries()) {
      EXPECT_EQ(one.rank, 0u);
      EXPECT_EQ(values_of<std::int64_t>(one.payload), (std::vector<std::int64_t>{3 * one.root + 3, 6}));
    }
    EXPECT_EQ(group.run(1000, 1000), "") << "no timer is left";
    EXPECT_EQ(group.deliveries().size(), size);
  });
}

TEST(SimulatedGroup, TimersFireInTheirOrderAndWithTheClock) {
  SimulatedGroup group(3, 1);
  ASSERT_EQ(group.load("m",
                       "timer(10 * (size - rank)) function on_message() end "
                       "function on_timer() log(rank, clock()) timer(100) end"),
            "");
  EXPECT_EQ(group.run(1000, 115), "");
  EXPECT_EQ(group.lines(), (std::vector<std::string>{"rank 2: 2 10.0", "rank 1: 1 20.0", "rank 0: 0 30.0",
                                                     "rank 2: 2 110.0"}));
  EXPECT_EQ(group.run(10, UINT32_MAX),
            "after 10 messages and timers there are still some on their way, or due");
}

TEST(ModuleExamples, BroadcastReachesAllButTheRoot) {
  with_groups("broadcast", [](SimulatedGroup& group, std::uint32_t size, std::uint32_t root) {
    group.give(root, root, 3, "hello");
    EXPECT_EQ(group.run(1000), "");
    EXPECT_EQ(group.arrived(), size);
    std::set<std::uint32_t> reached;
    for (const auto& one : group.deliveries()) {
      EXPECT_EQ(one.payload, "hello");
      EXPECT_EQ(one.root, root);
      EXPECT_EQ(one.tag, 3U);
      reached.insert(one.rank);
    }
    EXPECT_EQ(reached.size(), size - 1);
    EXPECT_EQ(group.deliveries().size(), size - 1);
    EXPECT_FALSE(reached.contains(root));
  });
}

TEST(ModuleExamples, RingFilterDeliversWhereItBelongs) {
  with_groups("ring_filter", [](SimulatedGroup& group, std::uint32_t size, std::uint32_t root) {
    for (std::int64_t value = 0; value < 30; ++value)
      group.give(root, root, 0, bytes_of(std::vector<std::int64_t>{value}));
    EXPECT_EQ(group.run(1000), "");
    EXPECT_EQ(group.deliveries().size(), 30U);
    for (const auto& one : group.deliveries())
      EXPECT_EQ(values_of<std::int64_t>(one.payload)[0] % size, one.rank);
  });
}

TEST(ModuleExamples, CounterGivesDifferentNumbers) {
  with_groups("counter", [](SimulatedGroup& group, std::uint32_t size, std::uint32_t) {
    for (int i = 0; i < 5; ++i)
      for (std::uint32_t rank = 0; rank < size; ++rank) group.give(0, rank, 9, bytes_of<std::int64_t>({2}));
    EXPECT_EQ(group.run(10'000), "");
    std::vector<std::int64_t> told;
    for (const auto& one : group.deliveries()) {
      EXPECT_EQ(one.rank, one.root);
      told.push_back(values_of<std::int64_t>(one.payload)[0]);
    }
    std::ranges::sort(told);
    EXPECT_EQ(told.size(), 5U * size);
    for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], static_cast<std::int64_t>(2 * i));
  });
}

TEST(ModuleExamples, ChecksumSumsUpEachStream) {
  with_groups("checksum", [](SimulatedGroup& group, std::uint32_t size, std::uint32_t root) {
    for (const std::uint32_t tag : {1U, 2U})
      for (const char* const part : {"ab", "c", ""}) group.give((root + tag) % size, root, tag, part);
    EXPECT_EQ(group.run(100), "");
    ASSERT_EQ(group.deliveries().size(), 2U);
    for (const auto& one : group.deliveries())
      EXPECT_EQ(values_of<std::int64_t>(one.payload), (std::vector<std::int64_t>{3, 294, 195 + 294}));
  });
}

TEST(ModuleExamples, ReduceSumsUpAtTheRoot) {
  with_groups("reduce", [](SimulatedGroup& group, std::uint32_t size, std::uint32_t root) {
    for (const std::uint32_t tag : {1U, 2U})
      for (std::uint32_t rank = 0; rank < size; ++rank)
        group.give(rank, root, tag, bytes_of<double>({double(rank), double(tag), 1}));
    EXPECT_EQ(group.run(1000), "");
    ASSERT_EQ(group.deliveries().size(), 2U);
    for (const auto& one : group.deliveries()) {
      EXPECT_EQ(one.rank, root);
      EXPECT_EQ(values_of<double>(one.payload),
                (std::vector<double>{size * (size - 1) / 2.0, double(one.tag) * size, double(size)}));
    }
  });
}

TEST(ModuleExamples, WorkQueueGivesEachTaskOnce) {
  with_groups("work_queue", [](SimulatedGroup& group, std::uint32_t size, std::uint32_t root) {
    std::multiset<std::string> tasks, taken;
    for (int i = 0; i < 7; ++i) {
      tasks.insert("gave " + std::to_string(i));
      group.give(root, root, 0, "put gave " + std::to_string(i));
    }
    EXPECT_EQ(group.run(1000), "");
    for (std::uint32_t i = 0; i < 7 + 2 * size; ++i) group.give(i % size, i % size, 5, "take");
    EXPECT_EQ(group.run(10'000), "");
    for (const auto& one : group.deliveries()) {
      EXPECT_EQ(one.rank, one.root);
      if (!one.payload.empty()) taken.insert(one.payload);
    }
    EXPECT_EQ(group.deliveries().size(), 7 + 2 * size);
    EXPECT_EQ(taken, tasks);
  });
}

TEST(SimulatedGroups, SayWhoHasFailed) {
  SimulatedGroup group(3, 1);
  ASSERT_EQ(group.load("m", "function on_message(m) if rank == 1 then error('no') end m:send(1) end"), "");
  group.give(0, 0, 0, "");
  EXPECT_EQ(group.run(100), "rank 1: m:1: no");
}

TEST(SimulatedGroups, EndWhereMessagesDoNot) {
  SimulatedGroup group(3, 1);
  ASSERT_EQ(group.load("m", "function on_message(m) m:send((rank + 1) % size) end"), "");
  group.give(0, 0, 0, "");
  EXPECT_EQ(group.run(100), "after 100 messages and timers there are still some on their way, or due");
}

TEST(SimulatedGroups, KeepTheOrderOfTwoProcessesOnly) {
  bool crossed = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimulatedGroup group(3, seed);
    ASSERT_EQ(group.load("m",
                         "function on_message(m) if rank == 2 then m:deliver() else "
                         "for i = 1, 5 do local n = new(2) n:put(rank .. i) n:send(2) end end end"),
              "");
    group.give(0, 0, 0, "");
    group.give(1, 1, 0, "");
    ASSERT_EQ(group.run(100), "");
    std::map<char, char> last;
    std::string all;
    for (const auto& one : group.deliveries()) {
      EXPECT_EQ(one.payload[1], (last[one.payload[0]] == 0 ? '0' : last[one.payload[0]]) + 1);
      last[one.payload[0]] = one.payload[1];
      all += one.payload[0];
    }
    crossed = crossed || (all != "0000011111" && all != "1111100000");
  }
  EXPECT_TRUE(crossed);
}

}  // namespace simulated_group_test
}  // namespace ch3_offload
