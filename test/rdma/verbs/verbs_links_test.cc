// What happens to messages and writes when queue pairs break, and when there are fewer of them than peers.

#include <poll.h>

#include <cerrno>

#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

constexpr const char* kDevice = "fake0";

class VerbsLinks : public VerbsProviders {
 protected:
  static fake_verbs::Config quick_fake() {
    fake_verbs::Config fake;
    fake.retry_timeout = std::chrono::milliseconds(5);
    fake.devices[0].ports[0].max_message_bytes = 10'000;  // Split writes.
    return fake;
  }
  /// Breaks a random queue pair that is connected.
  static void kill_one(SeededRandom& random) {
    std::vector<fake_verbs::QueuePairInfo> all = fake_verbs::queue_pairs();
    std::erase_if(all, [](const fake_verbs::QueuePairInfo& pair) { return pair.state == IBV_QPS_ERR; });
    if (!all.empty()) fake_verbs::kill_queue_pair(kDevice, all[random.below(all.size())].number);
  }
  /// Often longer than a device tries again.
  void take_down_for_a_while(SeededRandom& random) {
    fake_verbs::set_link(kDevice, false);
    down_until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(2 + random.below(12));
    down_ = true;
  }
  /// Two peers over a device that never reports a loss; all that they sent is known to be acknowledged.
  void make_over_silent_device() {
    fake_verbs::Config fake;
    fake.retry_timeout = std::chrono::hours(1);
    VerbsConfig config;
    config.peer_timeout_ms = 1000;
    make(2, config, fake);
    for (RecordingSink& one : sinks_) one.waits = false;  // Probes would meet the losses that are for others.
    establish(0, 1);
    run_for(600);
  }
  std::uint64_t sent_again() {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < world_->size(); ++i) sum += at(i).figures().links.items_sent_again;
    return sum;
  }
  std::uint64_t links_lost() {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < world_->size(); ++i) sum += at(i).figures().links.lost;
    return sum;
  }
  void expect_sent_again() {
    EXPECT_GT(links_lost(), 0u);
    EXPECT_GT(sent_again(), 0u);
  }
  /// Two peers, traffic both ways, something that goes wrong about every `period` arrivals.
  void run_disturbed(std::uint64_t seed, std::uint32_t messages, std::uint32_t writes, unsigned period,
                     const std::function<void(SeededRandom&)>& harm) {
    SeededRandom random(seed);
    Traffic traffic(*world_, messages, writes, 100'000);
    traffic.add(PeerId{0}, PeerId{1});
    traffic.add(PeerId{1}, PeerId{0});
    std::uint64_t next_harm = 0;
    ASSERT_TRUE(traffic.run(random,
                            [&] {
                              if (down_ && std::chrono::steady_clock::now() > down_until_) {
                                fake_verbs::set_link(kDevice, true);
                                down_ = false;
                              }
                              if (traffic.progress() < next_harm) return;
                              next_harm = traffic.progress() + 1 + random.below(2 * period);
                              harm(random);
                            }))
        << "seed " << seed;
    if (std::exchange(down_, false)) fake_verbs::set_link(kDevice, true);
  }

 private:
  bool down_ = false;
  std::chrono::steady_clock::time_point down_until_;
};

TEST_F(VerbsLinks, ABrokenQueuePairLosesNothing) {
  make(2, {}, quick_fake());
  run_disturbed(1, 3000, 200, 100, [](SeededRandom& random) { kill_one(random); });
  expect_sent_again();
}

TEST_F(VerbsLinks, BothEndsBreakAtOnce) {
  make(2, {}, quick_fake());
  run_disturbed(2, 3000, 200, 150, [](SeededRandom&) {
    for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
      fake_verbs::kill_queue_pair(kDevice, pair.number);
  });
  expect_sent_again();
}

TEST_F(VerbsLinks, ALostAcknowledgementDoesNotDeliverTwice) {
  make(2, {}, quick_fake());
  run_disturbed(3, 2000, 100, 200,
                [](SeededRandom&) { fake_verbs::drop_next(1, fake_verbs::Loss::kAcknowledge); });
  EXPECT_GT(links_lost(), 0u);
}

TEST_F(VerbsLinks, LostDataIsSentAgain) {
  make(2, {}, quick_fake());
  run_disturbed(4, 2000, 100, 200, [](SeededRandom&) { fake_verbs::drop_next(1, fake_verbs::Loss::kData); });
  expect_sent_again();
}

TEST_F(VerbsLinks, ALinkThatGoesDownAndUpLosesNothing) {
  make(2, {}, quick_fake());
  run_disturbed(5, 2000, 100, 100, [&](SeededRandom& random) { take_down_for_a_while(random); });
  EXPECT_GT(links_lost(), 0u);
}

TEST_F(VerbsLinks, ADeviceThatCannotSendWhileItsPortIsDownLosesNothing) {
  fake_verbs::Config fake = quick_fake();
  fake.dead_port_status = IBV_WC_LOC_QP_OP_ERR;
  make(2, {}, fake);
  run_disturbed(6, 2000, 100, 100, [&](SeededRandom& random) { take_down_for_a_while(random); });
  EXPECT_GT(links_lost(), 0u);
}

/// A device may stop a queue pair late. What still comes counts before the peer is told what has arrived.
TEST_F(VerbsLinks, WhatComesThroughALinkThatIsGivenUpIsTaken) {
  make(2);
  establish(0, 1);
  for (int i = 0; i < 200; ++i) {  // The window grows.
    while (try_send(1, 0, Pattern(1).bytes(8)) == Status::kOk) {
    }
    poll_all();
  }
  // So it is known that the device tells when it has stopped one.
  fake_verbs::kill_queue_pair(kDevice, fake_verbs::queue_pairs()[0].number);
  const std::size_t arrived = sink(1).events.size();
  send(0, 1, Pattern(2).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(1).events.size() > arrived; }));
  const std::uint64_t lost = at(0).figures().links.lost;
  const std::size_t before[2] = {sink(0).events.size(), sink(1).events.size()};
  fake_verbs::fail_call("ibv_post_send", 1, ENOMEM);
  fake_verbs::fail_call("ibv_modify_qp", 1, ENOMEM);
  ASSERT_EQ(try_send(0, 1, Pattern(3).bytes(8)), Status::kOk);
  ASSERT_EQ(at(0).figures().links.lost, lost + 1);
  for (int i = 0; i < 20; ++i) poll(0);
  constexpr std::uint32_t kMessages = 2 * Link::kSignalEvery;  // So that the sender knows of the first ones.
  for (std::uint32_t n = 0; n < kMessages; ++n)
    ASSERT_EQ(try_send(1, 0, Pattern(n).bytes(8)), Status::kOk) << n;
  poll(1);
  ASSERT_TRUE(run_until([&] {
    return sink(0).events.size() >= before[0] + kMessages && sink(1).events.size() >= before[1] + 1;
  }));
  for (std::uint32_t n = 0; n < kMessages; ++n)
    EXPECT_EQ(sink(0).events[before[0] + n].bytes, Pattern(n).bytes(8)) << n;
  EXPECT_EQ(sink(1).events[before[1]].bytes, Pattern(3).bytes(8));
}

TEST_F(VerbsLinks, FaultsAtRandom) {
  for (std::uint64_t seed = 100; seed < 112; ++seed) {
    SeededRandom random(seed);
    fake_verbs::Config fake = quick_fake();
    fake.acknowledge_delay = std::chrono::microseconds(random.below(3) * 100);
    fake.transfer_delay = std::chrono::microseconds(random.below(2) * 50);
    fake.purge_destroyed = random.below(2) == 0;
    fake.last_wqe_event = random.below(2) == 0;
    fake.communication_established = random.below(2) == 0;
    fake.devices[0].lowest_number_first = random.below(2) == 0;
    fake.devices[0].max_inline_bytes = random.below(2) == 0 ? 0 : 256;
    VerbsConfig config;
    config.rail.slot_bytes = random.below(2) == 0 ? 512 : 8192;
    config.rail.most_receive_slots = random.below(2) == 0 ? 128 : 2048;
    make(2, config, fake);
    run_disturbed(seed, 1500, 60, 150, [&](SeededRandom& dice) {
      switch (dice.below(6)) {
        case 0: take_down_for_a_while(dice); break;
        case 1: kill_one(dice); break;
        case 2: fake_verbs::drop_next(1, fake_verbs::Loss::kAcknowledge); break;
        case 3:
          fake_verbs::drop_next(1 + static_cast<unsigned>(dice.below(3)), fake_verbs::Loss::kData);
          break;
        case 4: fake_verbs::drop_next(1, fake_verbs::Loss::kOnce); break;
        default: {
          static constexpr const char* kCalls[] = {"ibv_create_qp", "ibv_modify_qp", "ibv_post_send"};
          static constexpr int kErrors[] = {ENOMEM, ETIMEDOUT, ENOMEM};
          const std::size_t which = dice.below(3);
          fake_verbs::fail_call(kCalls[which], 1, kErrors[which]);
        }
      }
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    EXPECT_GT(links_lost(), 0u) << "seed " << seed;
    EXPECT_EQ(at(0).figures().registrations, 0u);
  }
}

/// It loses its timer, as software devices did.
TEST_F(VerbsLinks, ADeviceThatNeverReportsALossKeepsNobodyWaiting) {
  for (const bool asleep : {false, true}) {
    make_over_silent_device();
    fake_verbs::drop_next(1, fake_verbs::Loss::kData);
    send(0, 1, Pattern(3).bytes(9));
    const auto is_over = [&] { return sink(1).count(Kind::kMessage) == 2; };
    if (asleep) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
      while (!is_over() && std::chrono::steady_clock::now() < deadline) {
        if (at(0).arm()) {
          pollfd readable{at(0).descriptor(), POLLIN, 0};
          ::poll(&readable, 1, kWaitMs);  // Nothing but its own alarm, at first.
        }
        poll(0);
        at(0).disarm();
        for (int i = 0; i < 16; ++i) poll(1);
      }
    }
    ASSERT_TRUE(run_until(is_over, asleep ? 0 : kWaitMs)) << asleep;
    EXPECT_TRUE(logged("the device reports no error"));
    EXPECT_EQ(at(0).figures().links.items_sent_again, 1u);
    run_for(600);
    EXPECT_EQ(at(0).figures().links.lost, 1u) << "the new one works";
    EXPECT_EQ(sink(0).count(Kind::kPeerDown) + sink(1).count(Kind::kPeerDown), 0u);
  }
}

/// rxe does so when a send fails behind one that is on its way.
TEST_F(VerbsLinks, WhatADeviceForgotWhileItsPortWasDownIsSentAgainWhenItIsUp) {
  fake_verbs::Config fake;
  fake.retry_timeout = std::chrono::hours(1);
  make(2, patient_config(), fake);
  establish(0, 1);
  fake_verbs::drop_next(1, fake_verbs::Loss::kData);
  send(0, 1, Pattern(3).bytes(9));
  fake_verbs::set_link(kDevice, false);
  run_for(10);
  EXPECT_EQ(links_lost(), 0u) << "without a port there is no other";
  fake_verbs::set_link(kDevice, true);
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kMessage) == 2; }));
  EXPECT_EQ(sink(0).count(Kind::kPeerDown) + sink(1).count(Kind::kPeerDown), 0u);
}

TEST_F(VerbsLinks, ALinkWithNothingOnItsWaySurvivesThatItsPortWasDown) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  establish(0, 1);
  run_for(600);  // All is known to be acknowledged.
  fake_verbs::set_link(kDevice, false);
  run_for(10);
  fake_verbs::set_link(kDevice, true);
  run_for(10);
  send(0, 1, Pattern(3).bytes(9));
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kMessage) == 2; }));
  EXPECT_EQ(links_lost(), 0u);
}

/// Completions that deliver nothing use the budget up before a message that raises no event any more.
TEST_F(VerbsLinks, WhoIsAboutToSleepLooksAgainWhereTheBudgetEnded) {
  constexpr std::uint32_t kPeers = 5;
  VerbsConfig config = patient_config();
  config.rail.slots_per_slab = config.most_send_slots = 8;
  make(kPeers, config);
  for (std::uint32_t peer = 1; peer < kPeers; ++peer) establish(0, peer);
  run_for(20);
  for (RecordingSink& one : sinks_) one.events.clear();
  for (std::uint32_t peer = 1; peer < kPeers; ++peer)
    while (try_send(0, peer, Pattern(peer).bytes(8)) == Status::kOk) {
    }
  const std::uint64_t sent = at(1).figures().traffic.messages_sent;
  ASSERT_EQ(try_send(1, 0, Pattern(7).bytes(9)), Status::kOk);
  ASSERT_EQ(at(1).figures().traffic.messages_sent, sent + 1);
  static_cast<void>(at(0).arm());
  std::size_t looks = 1;
  while (at(0).poll(sink(0), 1) != 0 && sink(0).events.empty()) ++looks;
  at(0).disarm();
  EXPECT_GT(looks, 1u) << "nothing was before it";
  EXPECT_EQ(sink(0).count(Kind::kMessage), 1u);
}

/// A megabyte has a second more.
TEST_F(VerbsLinks, ALongWriteHasTimeToGetThrough) {
  make_over_silent_device();
  std::vector<std::byte> source = Pattern(4).bytes(3'000'000), target(source.size());
  MemoryRegion from, to;
  ASSERT_EQ(at(0).register_memory(source.data(), source.size(), Access::kRead, from), Status::kOk);
  ASSERT_EQ(at(1).register_memory(target.data(), target.size(), Access::kWrite, to), Status::kOk);
  fake_verbs::drop_next(1, fake_verbs::Loss::kData);
  ASSERT_EQ(
      at(0).write(endpoint(0, 1), source.data(), source.size(), from,
                  {reinterpret_cast<std::uintptr_t>(to.address), to.remote_key}, Immediate{1}, WorkId{1}),
      Status::kOk);
  run_for(3000);
  EXPECT_EQ(links_lost(), 0u);
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kWriteDone) == 1; }));
  EXPECT_EQ(at(0).figures().links.lost, 1u);
  EXPECT_EQ(target, source);
  at(0).deregister_memory(from);
  at(1).deregister_memory(to);
}

/// Its receiver computes and has no receive left, perhaps: that says nothing about the peer.
TEST_F(VerbsLinks, ADeviceThatIsSilentTwiceIsNoDeadPeer) {
  make_over_silent_device();
  fake_verbs::drop_next(2, fake_verbs::Loss::kData);  // On the link, and on the next one.
  send(0, 1, Pattern(3).bytes(9));
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kMessage) == 2; }));
  EXPECT_EQ(at(0).figures().links.lost, 2u);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown) + sink(1).count(Kind::kPeerDown), 0u);
}

/// What was not to be reported is no loss.
TEST_F(VerbsLinks, AnIdleConnectionIsNoStalledOne) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  establish(0, 1);
  send(0, 1, Pattern(3).bytes(9));
  run_for(2000);
  EXPECT_EQ(links_lost(), 0u);
  EXPECT_EQ(sink(1).count(Kind::kMessage), 2u);
}

TEST_F(VerbsLinks, WhoLeavesInGoodOrderBreaksNoConnection) {
  make(2);
  establish(0, 1);
  world_->leave(PeerId{1});
  // Flushed when the goodbye is read.
  ASSERT_EQ(try_send(0, 1, Pattern(3).bytes(8)), Status::kOk);
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) == 1; }));
  EXPECT_FALSE(logged("broke"));
  EXPECT_EQ(at(0).figures().links.lost, 0u);
}

/// Its queue pair breaks, and breaks again, while the other one computes.
TEST_F(VerbsLinks, APeerMayBeginAnewBeforeTheOtherNotices) {
  make(2);
  establish(0, 1);
  for (int round = 0; round < 6; ++round) {
    for (int again = 0; again <= round % 2; ++again) {
      for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
        if (pair.state != IBV_QPS_ERR) fake_verbs::kill_queue_pair(kDevice, pair.number);
      for (int i = 0; i < 300; ++i) poll(0);
      for (int i = 0; i < 3 * again; ++i) poll(1);
    }
    const std::size_t before = sink(1).events.size();
    send(0, 1, Pattern(3).bytes(9));
    ASSERT_TRUE(run_until([&] { return sink(1).events.size() == before + 1; }));
    EXPECT_EQ(sink(1).events.back().kind, Kind::kMessage);
    EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  }
}

TEST_F(VerbsLinks, AShortageOfQueuePairsPasses) {
  make(2);
  fake_verbs::fail_call("ibv_create_qp", 1, ENOMEM, 3);
  establish(0, 1);
  EXPECT_TRUE(logged("making a queue pair failed"));
  std::size_t told = 0;
  for (const std::string& line : world_->lines) told += line.find("making a queue pair") != std::string::npos;
  EXPECT_LE(told, 2u) << "once by each process";
}

TEST_F(VerbsLinks, AQueuePairThatCannotBeConnectedIsTriedAgain) {
  make(2);
  fake_verbs::fail_call("ibv_modify_qp", 2, ETIMEDOUT, 3);
  establish(0, 1);
}

// Parking

TEST_F(VerbsLinks, ManyPeersShareFewQueuePairs) {
  for (const std::uint32_t most : {2u, 3u, 6u}) {
    VerbsConfig config;
    config.rail.most_queue_pairs = most;
    config.rail.slot_bytes = 512;
    constexpr std::uint32_t kPeers = 16;
    make(kPeers, config, quick_fake());
    SeededRandom random(most);
    {
      Traffic traffic(*world_, 40, 3, 30'000);
      for (std::uint32_t from = 0; from < kPeers; ++from)
        for (std::uint32_t to = 0; to < kPeers; ++to)
          if (from != to && (from + to) % 2 == 1) traffic.add(PeerId{from}, PeerId{to});
      ASSERT_TRUE(traffic.run(random, [&] {
        for (std::uint32_t i = 0; i < kPeers; ++i) ASSERT_LE(at(i).figures().queue_pairs, most);
      })) << most;
    }
    std::uint64_t parked = 0;
    for (std::uint32_t i = 0; i < kPeers; ++i) parked += at(i).figures().links.parked;
    EXPECT_GT(parked, 0u);
    EXPECT_EQ(links_lost(), 0u) << "parking is no loss";
  }
}

/// Each talks to the next two, which talk to others first: nobody may use all its queue pairs for proposals.
TEST_F(VerbsLinks, ACircleOfProposalsIsAnswered) {
  constexpr std::uint32_t kPeers = 5;
  VerbsConfig config;
  config.rail.most_queue_pairs = 2;
  make(kPeers, config);
  for (std::uint32_t from = 0; from < kPeers; ++from) {
    for (const std::uint32_t step : {1u, 2u}) {
      const std::uint32_t to = (from + step) % kPeers;
      connect(from, to);
      ASSERT_EQ(try_send(from, to, Pattern(from).bytes(9)), Status::kOk);
    }
  }
  // All learn that they may offer before anybody can. So their own proposals come before answers to others'.
  fake_verbs::fail_call("ibv_create_qp", 1, ENOMEM, 1'000'000);
  run_for(50);
  fake_verbs::fail_call("ibv_create_qp", 1'000'000, ENOMEM);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // Now all try again.
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    static_cast<void>(at(i).arm());
    at(i).disarm();  // The next poll looks after everything.
    poll(i);
  }
  ASSERT_TRUE(run_until([&] {
    for (std::uint32_t i = 0; i < kPeers; ++i)
      if (sink(i).count(Kind::kMessage) < 2) return false;
    return true;
  }));
}

TEST_F(VerbsLinks, FewQueuePairsThatBreakToo) {
  VerbsConfig config;
  config.rail.most_queue_pairs = 4;
  config.rail.slot_bytes = 512;
  constexpr std::uint32_t kPeers = 8;
  make(kPeers, config, quick_fake());
  SeededRandom random(77);
  Traffic traffic(*world_, 60, 5, 30'000);
  for (std::uint32_t from = 0; from < kPeers; ++from)
    for (std::uint32_t to = 0; to < kPeers; ++to)
      if (from != to) traffic.add(PeerId{from}, PeerId{to});
  ASSERT_TRUE(traffic.run(random, [&] {
    if (random.below(300) == 0) kill_one(random);
    for (std::uint32_t i = 0; i < kPeers; ++i) ASSERT_LE(at(i).figures().queue_pairs, 4u);
  }));
}

/// Slots that wait for queue pairs must not keep those from being parked.
TEST_F(VerbsLinks, AllSendSlotsWaitForQueuePairs) {
  VerbsConfig config;
  config.rail.most_queue_pairs = 4;
  config.most_send_slots = 64;
  constexpr std::uint32_t kPeers = 40;
  make(kPeers, config);
  for (std::uint32_t to = 1; to < kPeers; ++to) connect(0, to);
  for (std::uint32_t to = 1; to < 4; ++to) send(0, to, Pattern(to).bytes(9));
  ASSERT_TRUE(run_until([&] { return sink(3).events.size() == 1; }));
  std::vector<int> sent(kPeers);
  ASSERT_TRUE(run_until([&] {
    bool all = true;
    for (std::uint32_t to = 1; to < kPeers; ++to) {
      while (sent[to] < 3 && try_send(0, to, Pattern(to).bytes(10)) == Status::kOk) ++sent[to];
      all = all && sent[to] == 3;
    }
    return all;
  }));
  ASSERT_TRUE(run_until([&] {
    std::size_t arrived = 0;
    for (std::uint32_t to = 1; to < kPeers; ++to) arrived += sink(to).events.size();
    return arrived == 3 * (kPeers - 1) + 3;
  }));
}

/// One that computes and does not park its link keeps nobody else waiting.
TEST_F(VerbsLinks, AVictimThatDoesNotAnswerIsPassedOver) {
  VerbsConfig config;
  config.rail.most_queue_pairs = 4;
  make(6, config);
  establish(0, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  establish(0, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  connect(0, 3);
  connect(0, 4);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  bool sent[2] = {};
  while (sink(3).events.empty() || sink(4).events.empty()) {  // 1, the least recently used, does not poll.
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    if (!sent[0]) sent[0] = try_send(0, 3, Pattern(3).bytes(9)) == Status::kOk;
    if (!sent[1]) sent[1] = try_send(0, 4, Pattern(4).bytes(9)) == Status::kOk;
    for (const std::uint32_t peer : {0u, 2u, 3u, 4u}) poll(peer);
  }
  send(0, 1, Pattern(5).bytes(9));  // Now that it polls again.
  ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kMessage) == 2; }));
}

/// The receiver owes credit when the link is parked; only a new link brings it.
TEST_F(VerbsLinks, ASenderWithoutCreditOnAParkedLinkGetsSome) {
  VerbsConfig config;
  config.rail.most_queue_pairs = 2;
  make(4, config);
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t to = 1; to < 4; ++to) {
      connect(0, to);
      for (int i = 0; i < 7; ++i) {
        const std::size_t before = sink(to).events.size();
        send(0, to, Pattern(to).bytes(9));
        if (i % 2 != 0) continue;
        ASSERT_TRUE(run_until([&] { return sink(to).events.size() > before; }));
      }
    }
  }
}

// Credit windows

TEST_F(VerbsLinks, WhoAnswerEachOtherTellCreditInTheirAnswers) {
  make(2);
  establish(0, 1);
  send(0, 1, Pattern(1).bytes(8));  // Two in a row: now credit is told in a message of its own.
  send(0, 1, Pattern(1).bytes(8));
  run_for(2);
  const auto credit = [&] {
    return at(0).figures().traffic.credit_messages + at(1).figures().traffic.credit_messages;
  };
  const std::uint64_t before = credit();
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::uint32_t from = i % 2;
    const std::size_t arrived = sink(1 - from).events.size();
    send(from, 1 - from, Pattern(1).bytes(8));
    ASSERT_TRUE(run_until([&] { return sink(1 - from).events.size() > arrived; }));
  }
  EXPECT_LE(credit(), before + 20);
}

TEST_F(VerbsLinks, ASenderWithoutCreditIsGivenAWiderWindow) {
  make(2);
  establish(0, 1);
  const auto fill = [&] {
    std::size_t sent = 0;
    while (try_send(0, 1, Pattern(1).bytes(8)) == Status::kOk) ++sent;
    return sent;
  };
  const std::size_t first = fill();
  EXPECT_LE(first, Link::kFirstWindow);
  for (int i = 0; i < 200; ++i) {
    fill();
    poll_all();
  }
  run_for(20);
  EXPECT_GT(fill(), 8 * first);
}

}  // namespace
}  // namespace ch3_offload
