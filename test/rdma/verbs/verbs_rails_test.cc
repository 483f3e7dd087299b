// Several rails: long writes go over both, peers are spread over them, and what one of them loses the other
// delivers.

#include <cerrno>

#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kDevices[] = {"fake0", "fake1"};

class VerbsRails : public VerbsProviders {
 protected:
  static fake_verbs::Config quick_rails() {
    fake_verbs::Config fake = fake_verbs::two_rails();
    fake.retry_timeout = std::chrono::milliseconds(5);
    return fake;
  }
  /// Connected queue pairs of a device.
  static std::size_t links_on(std::string_view device) {
    return static_cast<std::size_t>(
        std::ranges::count_if(fake_verbs::queue_pairs(), [&](const fake_verbs::QueuePairInfo& pair) {
          return pair.device == device && pair.state == IBV_QPS_RTS;
        }));
  }
  /// One write from 0 to 1, checked.
  void write_once(std::size_t length) {
    connect(0, 1);
    std::vector<std::byte> source = Pattern(length).bytes(length), target(length);
    MemoryRegion source_region, target_region;
    ASSERT_EQ(at(0).register_memory(source.data(), length, Access::kRead, source_region), Status::kOk);
    ASSERT_EQ(at(1).register_memory(target.data(), length, Access::kWrite, target_region), Status::kOk);
    const std::size_t done = sink(0).count(Kind::kWriteDone, PeerId{1});
    const std::size_t before = arrived_bytes();
    Status status = Status::kAgain;
    ASSERT_TRUE(run_until([&] {
      status = at(0).write(endpoint(0, 1), source.data(), length, source_region,
                           {reinterpret_cast<std::uintptr_t>(target.data()), target_region.remote_key},
                           Immediate{7}, WorkId{9});
      return status != Status::kAgain;
    }));
    ASSERT_EQ(status, Status::kOk);
    ASSERT_TRUE(run_until([&] {
      return sink(0).count(Kind::kWriteDone, PeerId{1}) == done + 1 && arrived_bytes() == before + length;
    }));
    EXPECT_EQ(source, target);
    at(0).deregister_memory(source_region);
    at(1).deregister_memory(target_region);
  }
  /// Traffic between two processes both ways; `harm` about every `period` arrivals. Nothing may be lost.
  void run_disturbed(std::uint64_t seed, unsigned period, const std::function<void(SeededRandom&)>& harm) {
    SeededRandom random(seed);
    Traffic traffic(*world_, 2000, 200, 200'000);
    traffic.add(PeerId{0}, PeerId{1});
    traffic.add(PeerId{1}, PeerId{0});
    std::uint64_t next_harm = period;
    ASSERT_TRUE(traffic.run(random,
                            [&] {
                              if (traffic.progress() < next_harm) return;
                              next_harm = traffic.progress() + 1 + random.below(2 * period);
                              harm(random);
                            }))
        << "seed " << seed;
  }

 private:
  std::size_t arrived_bytes() {
    std::size_t sum = 0;
    for (const RecordingSink::Event& event : sink(1).events)
      if (event.kind == Kind::kWriteArrived) sum += event.length_bytes;
    return sum;
  }
};

TEST_F(VerbsRails, ALongWriteGoesOverBoth) {
  make(2, {}, fake_verbs::two_rails());
  ASSERT_EQ(at(0).rail_count(), 2u);
  establish(0, 1);
  write_once(1 << 20);  // Brings the second lane up.
  ASSERT_TRUE(run_until([&] { return links_on("fake0") == 2 && links_on("fake1") == 2; }));
  const std::uint64_t before = at(0).figures().traffic.writes_posted;
  write_once(1 << 20);
  EXPECT_EQ(at(0).figures().traffic.writes_posted, before + 2);
  write_once(60'000);
  EXPECT_EQ(at(0).figures().traffic.writes_posted, before + 3) << "a short one is not split";
}

TEST_F(VerbsRails, PeersAreSpreadOverTheRails) {
  make(4, {}, fake_verbs::two_rails());
  for (std::uint32_t peer = 1; peer < 4; ++peer) establish(0, peer);
  EXPECT_EQ(links_on("fake0") + links_on("fake1"), 6u);
  EXPECT_EQ(links_on("fake0"), 2u);
  EXPECT_EQ(links_on("fake1"), 4u);
}

TEST_F(VerbsRails, OneRailIsEnoughForAPeerThatHasNoMore) {
  for (const char* const device : {"fake0", "fake1"}) {
    make(2, {}, fake_verbs::two_rails(), [&](std::size_t process, VerbsConfig& config) {
      if (process == 1) config.device = device;
    });
    ASSERT_EQ(at(0).rail_count(), 2u);
    ASSERT_EQ(at(1).rail_count(), 1u);
    establish(0, 1);
    write_once(1 << 20);
    write_once(1 << 20);
    EXPECT_EQ(at(0).figures().queue_pairs, 1u);
  }
}

TEST_F(VerbsRails, SettingsKeepToOneRail) {
  VerbsConfig config;
  config.most_rails = 1;
  make(2, config, fake_verbs::two_rails());
  EXPECT_EQ(at(0).rail_count(), 1u);
  establish(0, 1);
  write_once(1 << 20);
  EXPECT_EQ(links_on("fake1"), 0u);
}

TEST_F(VerbsRails, ASlowerPortIsNoSecondRail) {
  // The fake has no rates: a port of the other link layer instead.
  fake_verbs::Config fake;
  fake.devices.push_back(fake.devices[0]);
  fake.devices[1].name = "fake1";
  fake.devices[1].ports = {fake_verbs::infiniband_port(3)};
  make(2, {}, fake);
  EXPECT_EQ(at(0).rail_count(), 1u);
  EXPECT_EQ(at(0).port().device, "fake1") << "InfiniBand goes first";
}

TEST_F(VerbsRails, ASecondDeviceThatDoesNotWorkIsDoneWithout) {
  fake_verbs::reset(fake_verbs::two_rails());
  fake_verbs::fail_call("ibv_create_srq", 2, EIO);
  std::vector<std::string> lines;
  VerbsConfig config;
  config.log = [](void* into, LogScope scope, const char* line) {
    EXPECT_EQ(scope, LogScope::kNode);
    static_cast<std::vector<std::string>*>(into)->push_back(line);
  };
  config.log_context = &lines;
  const auto provider = make_verbs(config);
  ASSERT_NE(provider, nullptr);
  EXPECT_EQ(provider->rail_count(), 1u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("fake1: making a shared receive queue failed"), std::string::npos) << lines[0];
}

TEST_F(VerbsRails, QueuePairsThatBreakOnEitherLoseNothing) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    make(2, {}, quick_rails());
    run_disturbed(seed, 80, [](SeededRandom& random) {
      std::vector<fake_verbs::QueuePairInfo> all = fake_verbs::queue_pairs();
      std::erase_if(all, [](const fake_verbs::QueuePairInfo& pair) { return pair.state == IBV_QPS_ERR; });
      if (all.empty()) return;
      const fake_verbs::QueuePairInfo& victim = all[random.below(all.size())];
      fake_verbs::kill_queue_pair(victim.device, victim.number);
    });
    EXPECT_GT(at(0).figures().links.lost + at(1).figures().links.lost, 0u);
  }
}

TEST_F(VerbsRails, APortThatGoesDownIsReplacedByTheOther) {
  for (const std::string_view device : kDevices) {
    make(2, {}, quick_rails());
    bool down = false;
    run_disturbed(11, 400, [&](SeededRandom&) {
      if (!down) fake_verbs::set_link(device, false);
      down = true;
    });
    EXPECT_EQ(links_on(device), 0u);
    EXPECT_EQ(scope_of("went down; going on without it"), LogScope::kNode);
    // Home again.
    fake_verbs::set_link(device, true);
    ASSERT_TRUE(run_until([&] {
      write_once(1 << 20);
      return HasFailure() || (links_on("fake0") == 2 && links_on("fake1") == 2);
    }));
  }
}

TEST_F(VerbsRails, PortsThatGoDownByTurnsLoseNothing) {
  make(2, {}, quick_rails());
  std::size_t down = 2;
  run_disturbed(12, 200, [&](SeededRandom& random) {
    if (down < 2) fake_verbs::set_link(kDevices[down], true);
    down = random.below(3);
    if (down < 2) fake_verbs::set_link(kDevices[down], false);
  });
  if (down < 2) fake_verbs::set_link(kDevices[down], true);
}

TEST_F(VerbsRails, ANetworkThatGoesSilentIsLeft) {
  for (const std::string_view device : kDevices) {
    make(2, {}, quick_rails());
    bool silent = false;
    run_disturbed(13, 400, [&](SeededRandom&) {
      if (!silent) fake_verbs::set_silent(device, true);
      silent = true;
    });
    EXPECT_GT(at(0).figures().links.lost + at(1).figures().links.lost, 0u);
  }
}

TEST_F(VerbsRails, ADeviceThatDiesIsReplacedByTheOther) {
  for (const std::string_view device : kDevices) {
    make(2, {}, quick_rails());
    bool dead = false;
    run_disturbed(14, 400, [&](SeededRandom&) {
      if (!dead) fake_verbs::kill_device(device);
      dead = true;
    });
    EXPECT_TRUE(logged("does not work any more"));
    EXPECT_TRUE(logged("going on without it"));
  }
}

TEST_F(VerbsRails, WithoutAnyDeviceThePeersAreLost) {
  make(2, {}, quick_rails());
  establish(0, 1);
  for (const std::string_view device : kDevices) fake_verbs::kill_device(device);
  ASSERT_TRUE(run_until([&] {
    return sink(0).count(Kind::kPeerDown, PeerId{1}) == 1 && sink(1).count(Kind::kPeerDown, PeerId{0}) == 1;
  }));
  const Status reasons[] = {sink(0).events.back().status, sink(1).events.back().status};
  EXPECT_TRUE(std::ranges::find(reasons, Status::kDeviceFailed) != std::end(reasons))
      << "who noticed it first";
}

TEST_F(VerbsRails, WhoIsReachedByTheLostDeviceAloneIsLost) {
  make(2, {}, quick_rails(), [](std::size_t process, VerbsConfig& config) {
    if (process == 1) config.device = "fake0";
  });
  establish(0, 1);
  fake_verbs::raise_event("fake0", IBV_EVENT_DEVICE_FATAL);  // Its queue pairs still work.
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown, PeerId{1}) == 1; }));
  const Result<Endpoint*> result = at(0).connect(PeerId{1}, at(1).local_address());
  EXPECT_FALSE(result.ok());
}

TEST_F(VerbsRails, ASecondLaneThatCannotBeHarmsNobody) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config, quick_rails());
  establish(0, 1);
  fake_verbs::fail_call("ibv_create_qp", 1, ENOMEM, 1'000'000);
  write_once(1 << 20);
  run_for(1500);
  write_once(1 << 20);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown) + sink(1).count(Kind::kPeerDown), 0u);
  EXPECT_EQ(at(0).figures().queue_pairs, 1u);
  fake_verbs::fail_call("ibv_create_qp", 1, 0, 0);
  ASSERT_TRUE(run_until([&] {
    write_once(1 << 20);
    return HasFailure() || at(0).figures().queue_pairs == 2;
  }));
}

/// A second lane that broke and cannot be made again is no reason to take the peer for lost, now or at the
/// next loss.
TEST_F(VerbsRails, ASecondLaneThatIsGoneIsForgotten) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config, quick_rails());
  establish(0, 1);
  write_once(1 << 20);
  ASSERT_TRUE(run_until([&] { return links_on("fake0") == 2 && links_on("fake1") == 2; }));
  const auto kill_all_on = [](std::string_view device) {
    for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
      if (pair.device == device) fake_verbs::kill_queue_pair(device, pair.number);
  };
  fake_verbs::fail_call("ibv_create_qp", 1, ENOMEM, 1'000'000);
  kill_all_on("fake0");  // The main lane of these two is at home on fake1.
  run_for(1500);
  fake_verbs::fail_call("ibv_create_qp", 1, 0, 0);
  kill_all_on("fake1");
  establish(0, 1);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown) + sink(1).count(Kind::kPeerDown), 0u);
}

TEST_F(VerbsRails, WhatOneDeviceRefusesTheOtherMakes) {
  fake_verbs::Config fake = quick_rails();
  fake.devices[0].max_queue_pairs = 1;
  make(3, {}, fake);
  establish(0, 2);  // At home on fake0, which has one for one of them.
  EXPECT_EQ(links_on("fake1"), 2u);
}

/// Port after port goes down and comes back while the peer computes: it answers late, and is not dead.
TEST_F(VerbsRails, WhoComputesWhilePortsComeAndGoIsNotDead) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config, quick_rails());
  establish(0, 1);
  write_once(1 << 20);
  ASSERT_TRUE(run_until([&] { return at(0).figures().queue_pairs == 2; }));
  const auto only_zero_polls = [&](int milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) poll(0);
  };
  fake_verbs::set_link("fake1", false);
  only_zero_polls(1300);
  fake_verbs::set_link("fake1", true);
  only_zero_polls(100);
  fake_verbs::set_link("fake0", false);
  only_zero_polls(300);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  establish(0, 1);
  write_once(1 << 20);
}

TEST_F(VerbsRails, APeerThatDiesIsToldOnceAndGivesAllBack) {
  make(3, {}, quick_rails());
  establish(0, 1);
  establish(0, 2);
  write_once(1 << 20);
  world_->kill(PeerId{1});
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown, PeerId{1}) == 1; }));
  run_for(20);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 1u);
  EXPECT_EQ(at(0).figures().queue_pairs, 1u);
  EXPECT_LE(at(0).figures().send_slots_taken, Link::kSignalEvery) << "those of the other";
}

TEST_F(VerbsRails, FewQueuePairsForManyPeersAreParkedOnEachRail) {
  VerbsConfig config;
  config.rail.most_queue_pairs = 4;
  make(7, config, fake_verbs::two_rails());
  SeededRandom random(15);
  Traffic traffic(*world_, 60, 4, 200'000);
  for (std::uint32_t from = 0; from < 7; ++from)
    for (std::uint32_t to = 0; to < 7; ++to)
      if (from != to) traffic.add(PeerId{from}, PeerId{to});
  ASSERT_TRUE(traffic.run(random, {}, 60'000));
  EXPECT_GT(at(0).figures().links.parked, 0u);
  EXPECT_LE(at(0).figures().queue_pairs, 4u);
}

}  // namespace
}  // namespace ch3_offload
