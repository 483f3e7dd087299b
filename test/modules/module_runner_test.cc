// Modules in processors of every driver: what they send and deliver, and what becomes of others when they stop, are
// not there, or come from a hostile process.

#include "modules/module_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "modules/module_world.h"

namespace ch3_offload {
namespace module_runner_test {

using Driver = ModuleWorld::Driver;
using Kind = ModuleMessageKind;

constexpr const char* kBroadcast =
    "function on_message(m) for _, child in ipairs(tree.children(m.root, 2)) do m:send(child) end "
    "if rank ~= m.root then m:deliver() end end";
constexpr const char* kEcho =
    "function on_message(m) if rank == m.root then m:deliver() else m:send(m.root) end end";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class ModulesOf : public testing::TestWithParam<Driver> {
 protected:
  static constexpr std::uint32_t kSize = 5;
  ModuleWorld world_{GetParam(), kSize, 1};
};
std::string name_of(const testing::TestParamInfo<Driver>& one) {
  return one.param == Driver::kHost ? "host" : one.param == Driver::kThread ? "thread" : "process";
}
INSTANTIATE_TEST_SUITE_P(EachDriver, ModulesOf,
                         testing::Values(Driver::kHost, Driver::kThread, Driver::kProcess), name_of);
/// Each process has its own turns.
class ModulesOverANetwork : public ModulesOf {};
INSTANTIATE_TEST_SUITE_P(EachDriver, ModulesOverANetwork, testing::Values(Driver::kHost, Driver::kThread),
                         name_of);

/// By the clock of the machine: the test waits until they have fired.
TEST_P(ModulesOf, AreCalledByTheirTimers) {
  world_.open();
  world_.load("t",
              "local n = 0 timer(1) function on_message() end function on_timer() n = n + 1 "
              "if n == 3 then new(0, 5):deliver() else timer(1) end end");
  world_.turn_until([&] { return world_.delivered() >= kSize; });
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    ASSERT_EQ(world_.deliveries(rank).size(), 1u);
    EXPECT_EQ(world_.deliveries(rank)[0].tag, 5u);
    EXPECT_TRUE(world_.troubles(rank).empty());
  }
}

TEST_P(ModulesOf, OfWhichATimerFailsAreStoppedAndTheGroupIsTold) {
  world_.open();
  world_.load(
      "t",
      "if rank == 1 then timer(1) end function on_message() end function on_timer() error('late', 0) end");
  world_.turn_until([&] { return !world_.troubles(0).empty(); });
  ASSERT_FALSE(world_.troubles(0).empty());
  EXPECT_TRUE(has(world_.troubles(0)[0], "module t has stopped in the process of rank 1: late"))
      << world_.troubles(0)[0];
}

/// A driver may sleep until a timer is due, and has nothing to do before.
TEST(ModuleTimersOfADriver, LetItSleep) {
  ModuleWorld world(Driver::kHost, 1, 1);
  world.open();
  EXPECT_EQ(world.host(0).next_due_ns(), UINT64_MAX);
  world.load("t", "timer(3600000) function on_message() end function on_timer() end");
  world.run();
  HostDriver& host = world.host(0);
  EXPECT_GT(host.next_due_ns(), 3'000'000'000'000u);
  EXPECT_LE(host.next_due_ns(), 3'600'000'000'000u);
  EXPECT_TRUE(host.at_rest());
  EXPECT_TRUE(host.arm());
  host.disarm();
  EXPECT_EQ(world.ask(0, Kind::kRemove, "t", ""), "");
  EXPECT_EQ(host.next_due_ns(), UINT64_MAX);
}

/// Six that want more than the time that there is: each is called as often as the first.
TEST(ModuleTimersOfADriver, TakeTurns) {
  ModuleWorld world(Driver::kHost, 1, 1);
  world.open();
  for (const std::string name : {"a", "b", "c", "d", "e", "f"}) {
    const std::string when = name == "a" ? "60" : "40";
    world.load(name,
               "local n = 0 timer(1) function on_message() end function on_timer() "
               "for i = 1, 10000 do n = n + 1 end timer(1) "
               "if n == 10000 * " +
                   when + " then new(0, " + when + "):deliver() end end");
  }
  const auto& got = world.deliveries(0);
  world.turn_until([&] { return !got.empty() && got.back().tag == 60; });
  EXPECT_EQ(got.size(), 6u);
  EXPECT_TRUE(world.troubles(0).empty());
}

/// An activation has 250 ns for each of its instructions.
TEST_P(ModulesOf, HaveTheBudgetsOfTheirEngine) {
  EngineConfig config;
  config.program_instructions = 100'000;
  config.program_memory_bytes = std::size_t{64} << 10;
  ModuleWorld world(GetParam(), 1, 1, config);
  world.open();
  world.load("small", "function on_message() end");
  EXPECT_TRUE(has(world.ask(0, Kind::kLoad, "loops", "while true do end"), "its 100000 instructions"));
  EXPECT_TRUE(
      has(world.ask(0, Kind::kLoad, "grows", "t = {} for i = 1, 9000 do t[i] = i end"), "its memory"));
  EXPECT_TRUE(has(world.ask(0, Kind::kList, "", ""), "small\truns"));
}

/// Without time none is loaded, and the client is answered all the same, however often it asks.
TEST_P(ModulesOf, WithoutTimeAreNotLoaded) {
  EngineConfig config;
  config.program_time_percent = 0;
  ModuleWorld world(GetParam(), 2, 1, config);
  world.open();
  for (int i = 0; i < 3000; ++i)
    ASSERT_TRUE(has(world.ask(0, Kind::kLoad, "m", "function on_message() end"), "MODULE_SHARE is 0")) << i;
  world.give(1, 0, "m", 0, 0, "");
  world.turn_until([&] { return !world.troubles(1).empty(); });
  EXPECT_TRUE(has(world.troubles(1).at(0), "is not loaded"));
}

TEST(ModuleBudgetsOfAnEngine, AreTheUsualOnesAndTheTimeOfItsInstructions) {
  EngineConfig config;
  EXPECT_EQ(budgets_of(config).activation_ns, ModuleBudgets().activation_ns);
  EXPECT_EQ(budgets_of(config).instructions, ModuleBudgets().instructions);
  EXPECT_EQ(budgets_of(config).memory_bytes, ModuleBudgets().memory_bytes);
  EXPECT_EQ(budgets_of(config).time_percent, ModuleBudgets().time_percent);
  config.program_instructions *= 3;
  EXPECT_EQ(budgets_of(config).activation_ns, 3 * ModuleBudgets().activation_ns);
  config.program_instructions = 1000;
  EXPECT_EQ(budgets_of(config).activation_ns, kLeastActivationNs);
}

TEST_P(ModulesOf, BroadcastMessagesOfEveryLength) {
  world_.open();
  world_.load("b", kBroadcast);
  std::vector<std::string> sent;
  for (const std::size_t length : {0U, 1U, 40U, 1000U, 2000U, 5000U, 200'000U})
    sent.emplace_back(length, static_cast<char>('a' + sent.size()));
  for (std::uint32_t i = 0; i < sent.size(); ++i) world_.give(2, 2, "b", 2, i, sent[i]);
  world_.run_until_delivered(sent.size() * (kSize - 1));
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    const auto& got = world_.deliveries(rank);
    ASSERT_EQ(got.size(), rank == 2 ? 0 : sent.size()) << rank;
    for (std::uint32_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].tag, i);  // In order.
      EXPECT_EQ(got[i].root, 2U);
      EXPECT_EQ(got[i].payload, sent[i]);
    }
    EXPECT_TRUE(world_.troubles(rank).empty());
  }
}

TEST_P(ModulesOf, CountByTheRanksOfTheirGroup) {
  world_.open(true);
  world_.load("b",
              "function on_message(m) local n = new(1, m.tag, m.root) n:put(rank .. '') n:deliver() end");
  for (std::uint32_t rank = 0; rank < kSize; ++rank) world_.give(0, rank, "b", 3, 0, "");
  world_.run_until_delivered(kSize);
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    ASSERT_EQ(world_.deliveries(rank).size(), 1U);
    EXPECT_EQ(world_.deliveries(rank)[0].payload, std::to_string(rank));
    EXPECT_EQ(world_.deliveries(rank)[0].root, 3U);
  }
}

TEST_P(ModulesOf, AnswerWhileOthersSendToThem) {
  world_.open();
  world_.load("echo", kEcho);
  constexpr std::uint32_t kEach = 100;
  for (std::uint32_t i = 0; i < kEach; ++i)
    for (std::uint32_t rank = 0; rank < kSize; ++rank)
      world_.give(rank, (rank + 1 + i % (kSize - 1)) % kSize, "echo", rank, i, std::string(i * 37, 'x'));
  world_.run_until_delivered(std::size_t{kEach} * kSize);
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    std::vector<std::uint32_t> tags;
    for (const auto& one : world_.deliveries(rank)) {
      tags.push_back(one.tag);
      EXPECT_EQ(one.payload, std::string(one.tag * 37, 'x'));
    }
    std::ranges::sort(tags);
    ASSERT_EQ(tags.size(), kEach);
    for (std::uint32_t i = 0; i < kEach; ++i) EXPECT_EQ(tags[i], i);
  }
}

TEST_P(ModulesOf, AreLoadedListedReplacedAndRemoved) {
  world_.open();
  EXPECT_TRUE(has(world_.ask(0, Kind::kLoad, "m", "x = = 1"), "m:1:"));
  EXPECT_EQ(world_.ask(0, Kind::kList, "", ""), "");
  EXPECT_TRUE(has(world_.ask(0, Kind::kLoad, "a b", kEcho), "name"));
  EXPECT_EQ(world_.ask(0, Kind::kLoad, "m", "function on_message(m) log('first') end"), "");
  EXPECT_EQ(world_.ask(0, Kind::kLoad, "n", kEcho), "");
  world_.give(0, 0, "m", 0, 0, "");
  world_.run();
  EXPECT_TRUE(has(world_.ask(0, Kind::kList, "", ""), "m\truns\t1 activations"));
  EXPECT_TRUE(has(world_.ask(0, Kind::kList, "", ""), "n\truns\t0 activations"));
  EXPECT_TRUE(has(world_.ask(0, Kind::kLoad, "m", "rubbish"), "m:1:"));  // The former stays.
  EXPECT_EQ(world_.ask(0, Kind::kLoad, "n", "function on_message(m) log('second') end"), "");
  world_.give(0, 0, "m", 0, 0, "");
  world_.give(0, 0, "n", 0, 0, "");
  world_.run();
  EXPECT_EQ(world_.warnings(0),
            (std::vector<std::string>{"module m: first", "module m: first", "module n: second"}));
  EXPECT_EQ(world_.ask(0, Kind::kRemove, "m", ""), "");
  EXPECT_EQ(world_.ask(0, Kind::kRemove, "m", ""), "there is no such module");
  EXPECT_FALSE(has(world_.ask(0, Kind::kList, "", ""), "m\t"));
}

TEST_P(ModulesOf, ThatStopAreToldToAllAndHarmNoOthers) {
  world_.open();
  world_.load("b", kBroadcast);
  world_.load("bad", "function on_message(m) if rank == 3 then local t = nil; t.x = 1 end m:send(3) end");
  world_.give(0, 0, "bad", 0, 0, "");
  world_.give(1, 1, "b", 1, 8, "good");
  world_.run_until_delivered(kSize - 1);
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    ASSERT_EQ(world_.troubles(rank).size(), 1U) << rank;
    EXPECT_TRUE(has(world_.troubles(rank)[0], "module bad has stopped in the process of rank 3: bad:1:"))
        << world_.troubles(rank)[0];
    EXPECT_EQ(world_.deliveries(rank).size(), rank == 1 ? 0U : 1U);
  }
  ASSERT_EQ(world_.warnings(3).size(), 1U);
  EXPECT_TRUE(has(world_.ask(3, Kind::kList, "", ""), "bad\tstopped\tbad:1:"));
  // Messages to it are dropped; loaded anew, it runs.
  world_.give(0, 3, "bad", 0, 0, "");
  world_.run();
  EXPECT_EQ(world_.troubles(3).size(), 1U);
  EXPECT_EQ(world_.ask(3, Kind::kLoad, "bad", kEcho), "");
  world_.give(3, 3, "bad", 3, 0, "again");
  world_.run();
  EXPECT_EQ(world_.deliveries(3).back().payload, "again");
}

TEST_P(ModulesOf, ThatAreNotThereAreToldToAll) {
  world_.open();
  EXPECT_EQ(world_.ask(0, Kind::kLoad, "b", kBroadcast), "");
  world_.give(0, 0, "b", 0, 0, "x");
  world_.run();
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    ASSERT_EQ(world_.troubles(rank).size(), 2U);  // Ranks 1 and 2 were its children.
    EXPECT_TRUE(has(world_.troubles(rank)[0], "module b is not loaded in the process of rank"));
  }
}

TEST_P(ModulesOf, TellOfDeaths) {
  world_.open();
  world_.load("b", kBroadcast);
  world_.give(0, 0, "b", 0, 0, "before");
  world_.run_until_delivered(kSize - 1);
  world_.kill(1);
  world_.give(0, 0, "b", 0, 1, "after");
  world_.run();
  for (const std::uint32_t rank : {0U, 2U, 3U, 4U}) {
    ASSERT_FALSE(world_.troubles(rank).empty());
    EXPECT_EQ(world_.troubles(rank)[0], "the process of rank 1 has failed");
  }
  EXPECT_EQ(world_.deliveries(2).size(), 2U);  // The other child has it.
}

TEST_P(ModulesOverANetwork, TellOfDeathsThatOnlyItKnows) {
  world_.open();
  world_.load("b", kBroadcast);
  world_.give(0, 0, "b", 0, 0, "before");
  world_.run_until_delivered(kSize - 1);
  world_.kill(1, false);
  world_.run();
  ASSERT_FALSE(world_.troubles(0).empty());  // It had a connection.
  EXPECT_EQ(world_.troubles(0)[0], "the process of rank 1 has failed");
}

TEST_P(ModulesOverANetwork, AnswerTheirClientWhileAPeerIsSlow) {
  world_.open();
  world_.load("echo", kEcho);
  world_.stops(4);  // It has announced a long message, and does not go on.
  world_.give(4, 0, "echo", 4, 0, std::string(500'000, 'x'));
  world_.run();
  EXPECT_TRUE(has(world_.ask(0, Kind::kList, "", ""), "echo\truns\t0 "));
  world_.give(1, 0, "echo", 1, 0, "others pass");
  world_.run_until_delivered(1);
  EXPECT_EQ(world_.deliveries(1).size(), 1U);
}

TEST_P(ModulesOf, EndWithTheirGroup) {
  world_.open();
  world_.load("echo", kEcho);
  EXPECT_EQ(world_.ask(2, Kind::kClose, "", ""), "");
  world_.give(0, 2, "echo", 0, 0, "x");
  world_.run();
  EXPECT_TRUE(world_.deliveries(0).empty());
  ASSERT_EQ(world_.warnings(2).size(), 1U);
  EXPECT_TRUE(has(world_.warnings(2)[0], "process 0"));
}

TEST_P(ModulesOf, AreOfGroupsWhoseNumbersMakeSense) {
  world_.open();
  const auto answer_to = [&](std::uint32_t group, std::uint32_t size, std::vector<std::uint32_t> peers) {
    return world_.try_to_open(group, size, peers);
  };
  EXPECT_EQ(answer_to(1, kSize, {}), "");
  EXPECT_EQ(answer_to(1, kSize, {}), "its numbers make no sense");  // It is open.
  EXPECT_EQ(answer_to(2, kSize + 1, {}), "its numbers make no sense");
  EXPECT_EQ(answer_to(3, 0, {}), "its numbers make no sense");
  EXPECT_EQ(answer_to(4, 2, {0, 1, 2}), "its numbers make no sense");
  EXPECT_EQ(answer_to(5, 2, {0, kSize}), "its processes are not there");
  EXPECT_EQ(answer_to(6, 2, {0, 4}), "");
}

TEST_P(ModulesOf, AreOnlyTheOwnersToLoad) {
  world_.open();
  world_.load("echo", kEcho);
  for (const Kind kind : {Kind::kLoad, Kind::kRemove, Kind::kClose, Kind::kOpen, Kind::kList})
    world_.send(0, 1, world_.header_of(1, kind, "echo"), "function on_message(m) m:deliver() end");
  world_.run();
  world_.give(2, 1, "echo", 2, 0, "still");
  world_.run_until_delivered(1);
  EXPECT_EQ(world_.deliveries(2).size(), 1U);
  EXPECT_TRUE(world_.deliveries(1).empty());
}

TEST_P(ModulesOf, AreNotHarmedByMessagesThatMakeNoSense) {
  world_.open();
  world_.load("echo", kEcho);
  const ModuleHeader good = world_.header_of(0, Kind::kData, "echo");
  std::vector<ModuleHeader> bad(8, good);
  bad[0].version = 2;
  bad[1].kind = Kind::kEnd;
  bad[2].name_length = 255;
  bad[3].group = 78;
  bad[4].root = kSize;
  bad[5].source = 3;  // Another one's.
  bad[6].tag = 0x8000'0000U;
  bad[7].name[1] = '\n';
  for (const ModuleHeader& one : bad) world_.send(0, 1, one, "x");
  for (const std::size_t length : {0U, 1U, 63U}) world_.send_bytes(0, 1, std::string(length, '\xFF'));
  for (const std::uint32_t from : {0U, 1U})  // Its own, too: in another process, it comes in parts.
    world_.send_bytes(from, 1, std::string(kMostModulePayload + sizeof(ModuleHeader) + 1, 'x'));
  world_.run();
  EXPECT_EQ(world_.warnings(1).size(), 1U);
  world_.give(0, 1, "echo", 0, 0, "good");
  world_.run_until_delivered(1);
  ASSERT_EQ(world_.deliveries(0).size(), 1U);
  EXPECT_EQ(world_.deliveries(0)[0].payload, "good");
  EXPECT_TRUE(world_.troubles(1).empty());
}

TEST_P(ModulesOf, ArePassedTroublesOfPeersAsBoundedLines) {
  world_.open();
  world_.send(0, 1, world_.header_of(0, Kind::kTrouble, "m"), "a\nb" + std::string(5000, 'c'));
  for (int i = 0; i < 100; ++i) world_.send(0, 1, world_.header_of(0, Kind::kTrouble, "m"), "more");
  world_.run();
  ASSERT_GT(world_.troubles(1).size(), 64U);  // The client takes them.
  EXPECT_EQ(world_.troubles(1)[0].substr(0, 4), "a bc");
  EXPECT_LE(world_.troubles(1)[0].size(), 1000U);
}

TEST_P(ModulesOf, AreAFewAtMost) {
  world_.open();
  for (int i = 0; i < 64; ++i) EXPECT_EQ(world_.ask(0, Kind::kLoad, "m" + std::to_string(i), kEcho), "");
  EXPECT_TRUE(has(world_.ask(0, Kind::kLoad, "m", kEcho), "64 modules"));
  EXPECT_EQ(world_.ask(0, Kind::kLoad, "m7", kBroadcast), "");
  // Names that a peer invents take no room.
  for (int i = 0; i < 10; ++i) world_.give(1, 0, "n" + std::to_string(i), 1, 0, "");
  world_.run();
  EXPECT_EQ(std::ranges::count(world_.ask(0, Kind::kList, "", ""), '\n'), 64);
}

TEST_P(ModulesOf, RunForEverBesideOthersWithoutHoldingThemUp) {
  world_.open();
  world_.load("ring", "function on_message(m) m:send((rank + 1) % size) end");
  world_.load("echo", kEcho);
  world_.give(0, 0, "ring", 0, 0, "round");
  world_.give(1, 3, "echo", 1, 0, "there and back");
  world_.run_until_delivered(1);
  EXPECT_EQ(world_.deliveries(1).size(), 1U);
  EXPECT_FALSE(has(world_.ask(0, Kind::kList, "", ""), "ring\truns\t0 "));
}

TEST_P(ModulesOf, ThatFloodAHostWhichReceivesNothingAreStopped) {
  world_.open();
  world_.load("flood", "function on_message(m) new(8388608, 0, 0):deliver() end");
  world_.load("pass", "function on_message(m) m:deliver() end");
  world_.receives_no_more(1);
  for (int i = 0; i < 9; ++i) world_.give(0, 1, "flood", 0, 0, "");
  for (int i = 0; i < 200 && world_.troubles(0).empty(); ++i) world_.run();
  ASSERT_EQ(world_.troubles(0).size(), 1U);
  EXPECT_TRUE(has(world_.troubles(0)[0], "bytes of messages")) << world_.troubles(0)[0];
  // What it only passes on counts, too.
  for (int i = 0; i < 9; ++i) world_.give(0, 1, "pass", 0, 0, std::string(std::size_t{15} << 20, 'x'));
  for (int i = 0; i < 200 && world_.troubles(0).size() < 2; ++i) world_.run();
  ASSERT_EQ(world_.troubles(0).size(), 2U);
  EXPECT_TRUE(has(world_.troubles(0)[1], "on their way or kept")) << world_.troubles(0)[1];
}

}  // namespace module_runner_test
}  // namespace ch3_offload
