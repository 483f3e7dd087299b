// Polled rings: order over both ways, loss, sleep, death, and peers that lie.

#include <poll.h>

#include <atomic>
#include <cerrno>

#include "rdma/verbs/hostile_peer.h"
#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

constexpr const char* kDevice = "fake0";
constexpr std::uint32_t kHostile = 5;

class VerbsRings : public VerbsProviders {
 protected:
  /// Senders use a ring however long ago they looked: so what goes where does not depend on the machine.
  static VerbsConfig trusting(std::uint32_t rings = 8) {
    VerbsConfig config = patient_config();
    config.most_rings = rings;
    config.ring_trust_us = 1'000'000'000;
    return config;
  }
  static fake_verbs::Config quick_fake(unsigned write_steps = 1) {
    fake_verbs::Config fake;
    fake.retry_timeout = std::chrono::milliseconds(5);
    fake.write_steps = write_steps;
    return fake;
  }
  std::uint64_t by_ring(std::uint32_t from) { return at(from).figures().ring_messages_sent; }
  /// Sends small messages until they go through a ring.
  void open_ring(std::uint32_t from, std::uint32_t to, int most = 5000) {
    const std::uint64_t before = by_ring(from);
    for (int i = 0; i < most && by_ring(from) < before + 2; ++i) {
      send(from, to, Pattern(1).bytes(24));
      poll_all();
    }
    ASSERT_GE(by_ring(from), before + 2) << "no ring";
    run_for(2);
    sink(to).events.clear();
  }
  std::uint64_t sum(std::uint64_t VerbsFigures::*figure) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < world_->size(); ++i) sum += at(i).figures().*figure;
    return sum;
  }
  /// As a caller that waits. True: something was delivered.
  bool sleep(std::uint32_t peer, int milliseconds, int* wakeups = nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (;;) {
      bool found = !at(peer).arm();
      found = at(peer).poll(sink(peer), 64) != 0 || found;
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd waited{.fd = at(peer).descriptor(), .events = POLLIN, .revents = 0};
      if (!found && left.count() > 0 && ::poll(&waited, 1, static_cast<int>(left.count())) > 0 &&
          wakeups != nullptr)
        ++*wakeups;
      at(peer).disarm();
      if (found) return true;
      if (left.count() <= 0) return false;
    }
  }
};

TEST_F(VerbsRings, AHotPeerGetsOne) {
  make(2, trusting());
  connect_both(0, 1);
  const std::size_t registered = at(1).figures().registered_slot_bytes;
  open_ring(0, 1);
  EXPECT_EQ(at(1).figures().rings, 1u);
  EXPECT_EQ(at(1).figures().rings_opened, 1u);
  EXPECT_GE(at(1).figures().ring_messages_received, 2u);
  EXPECT_GE(at(1).figures().registered_slot_bytes, registered + kRingBytes);
  EXPECT_EQ(at(0).figures().rings, 0u) << "1 sent nothing";
  const ProviderCounters counters = at(1).counters();
  EXPECT_EQ(counters.network_rings, 1u);
  EXPECT_GE(counters.network_ring_messages_received, 2u);
  EXPECT_GE(at(0).counters().network_ring_messages_sent, 2u);
}

TEST_F(VerbsRings, NoneWhenOff) {
  make(2, trusting(0));
  connect_both(0, 1);
  for (int i = 0; i < 300; ++i) send(0, 1, Pattern(1).bytes(24));
  ASSERT_TRUE(run_until([&] { return sink(1).events.size() == 300; }));
  EXPECT_EQ(at(1).figures().rings_opened, 0u);
  EXPECT_EQ(by_ring(0), 0u);
}

TEST_F(VerbsRings, WhoHasNotLookedForAWhileSendsPastTheRing) {
  VerbsConfig config = trusting();
  config.ring_trust_us = 0;
  make(2, config);
  connect_both(0, 1);
  for (int i = 0; i < 300; ++i) send(0, 1, Pattern(1).bytes(24));
  ASSERT_TRUE(run_until([&] { return sink(1).events.size() == 300; }));
  EXPECT_EQ(at(1).figures().rings, 1u);
  EXPECT_EQ(by_ring(0), 0u);
}

TEST_F(VerbsRings, OrderHoldsOverBothWays) {
  for (const unsigned steps : {1u, 2u, 3u}) {
    make(2, trusting(), quick_fake(steps));
    SeededRandom random(steps);
    Traffic traffic(*world_, 4000, 100, 50'000);
    traffic.add(PeerId{0}, PeerId{1});
    traffic.add(PeerId{1}, PeerId{0});
    ASSERT_TRUE(traffic.run(random, {})) << steps;
    EXPECT_GT(by_ring(0), 1000u);
    EXPECT_LT(by_ring(0), 4000u);
    EXPECT_EQ(at(1).figures().ring_messages_received, by_ring(0));
  }
}

TEST_F(VerbsRings, LittleCreditAndNoInlineSends) {
  fake_verbs::Config fake = quick_fake(2);
  fake.devices[0].max_inline_bytes = 0;
  fake.acknowledge_delay = std::chrono::microseconds(50);
  VerbsConfig config = trusting();
  config.rail.most_receive_slots = 128;
  config.most_send_slots = 64;
  config.rail.slot_bytes = 192;  // Shorter than an entry.
  make(2, config, fake);
  SeededRandom random(9);
  Traffic traffic(*world_, 2000, 50, 50'000);
  traffic.add(PeerId{0}, PeerId{1});
  traffic.add(PeerId{1}, PeerId{0});
  ASSERT_TRUE(traffic.run(random, {}));
  EXPECT_GT(by_ring(0), 500u);
}

TEST_F(VerbsRings, ManyPeersShareFewRings) {
  constexpr std::uint32_t kPeers = 6;
  make(kPeers, trusting(2), quick_fake());
  SeededRandom random(3);
  {
    Traffic traffic(*world_, 600, 0, 0);
    for (std::uint32_t from = 0; from < kPeers; ++from)
      for (std::uint32_t to = 0; to < kPeers; ++to)
        if (from != to) traffic.add(PeerId{from}, PeerId{to});
    ASSERT_TRUE(traffic.run(random, [&] {
      for (std::uint32_t i = 0; i < kPeers; ++i) ASSERT_LE(at(i).figures().rings, 2u);
    }));
  }
  EXPECT_GT(sum(&VerbsFigures::ring_messages_received), 100u);
  EXPECT_EQ(sum(&VerbsFigures::links_lost), 0u);
}

TEST_F(VerbsRings, AHotPeerTakesTheRingOfOneThatIsQuiet) {
  make(3, trusting(1));
  connect_both(0, 1);
  connect_both(0, 2);
  open_ring(1, 0);
  EXPECT_EQ(at(0).figures().rings, 1u);
  open_ring(2, 0);
  EXPECT_EQ(at(0).figures().rings, 1u);
  EXPECT_EQ(at(0).figures().rings_opened, 2u);
  const std::uint64_t before = by_ring(1);
  send(1, 0, Pattern(3).bytes(20));
  ASSERT_TRUE(run_until([&] { return sink(0).events.size() == 1; }));
  EXPECT_EQ(by_ring(1), before);
}

TEST_F(VerbsRings, OneThatComputesKeepsItsRingAndNobodyElseWaiting) {
  make(4, trusting(2));
  for (const std::uint32_t peer : {1u, 2u, 3u}) connect_both(0, peer);
  establish(0, 3);
  open_ring(1, 0);
  open_ring(2, 0);
  for (int i = 0; i < 5000 && by_ring(3) == 0; ++i) {
    static_cast<void>(try_send(3, 0, Pattern(1).bytes(24)) == Status::kOk);
    for (const std::uint32_t peer : {0u, 2u, 3u}) poll(peer);
  }
  EXPECT_GT(by_ring(3), 0u);
  EXPECT_EQ(at(0).figures().rings, 2u) << "1 has not answered";
}

TEST_F(VerbsRings, ARefusedRingBreaksNothing) {
  make(2, trusting());
  establish(0, 1);
  run_for(5);
  sink(1).events.clear();
  fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM, 1000);
  for (int i = 0; i < 500; ++i) send(0, 1, Pattern(1).bytes(24));
  ASSERT_TRUE(run_until([&] { return sink(1).events.size() == 500; }));
  EXPECT_EQ(at(1).figures().rings_opened, 0u);
  std::size_t told = 0;
  for (const std::string& line : world_->lines)
    told += line.find("a ring for small messages was refused") != std::string::npos;
  EXPECT_EQ(told, 1u);
  fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM, 0);
}

// Loss

TEST_F(VerbsRings, ABrokenQueuePairLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    make(2, trusting(), quick_fake(1 + static_cast<unsigned>(seed % 3)));
    SeededRandom random(seed);
    Traffic traffic(*world_, 4000, 50, 30'000);
    traffic.add(PeerId{0}, PeerId{1});
    traffic.add(PeerId{1}, PeerId{0});
    std::uint64_t next_harm = 0;
    ASSERT_TRUE(
        traffic.run(random,
                    [&] {
                      if (traffic.progress() < next_harm) return;
                      next_harm = traffic.progress() + 1 + random.below(600);
                      switch (random.below(4)) {
                        case 0: fake_verbs::drop_next(1, fake_verbs::Loss::kAcknowledge); break;
                        case 1: fake_verbs::drop_next(1, fake_verbs::Loss::kData); break;
                        case 2: fake_verbs::drop_next(1, fake_verbs::Loss::kOnce); break;
                        default: {
                          const std::vector<fake_verbs::QueuePairInfo> all = fake_verbs::queue_pairs();
                          if (!all.empty())
                            fake_verbs::kill_queue_pair(kDevice, all[random.below(all.size())].number);
                        }
                      }
                    }))
        << "seed " << seed;
    EXPECT_GT(sum(&VerbsFigures::links_lost), 0u);
    EXPECT_GT(sum(&VerbsFigures::rings_opened), 2u);
    EXPECT_GT(sum(&VerbsFigures::ring_messages_received), 500u);
  }
}

TEST_F(VerbsRings, WhatIsInARingWhenItsLinkBreaksIsNeitherLostNorDeliveredTwice) {
  make(2, trusting(), quick_fake());
  connect_both(0, 1);
  for (int round = 0; round < 20; ++round) {
    open_ring(0, 1);
    const std::uint64_t before = by_ring(0);
    int sent = 0;
    while (sent < 5 && try_send(0, 1, Pattern(static_cast<std::uint64_t>(sent)).bytes(30)) == Status::kOk)
      ++sent;
    ASSERT_GT(sent, 0);
    ASSERT_GT(by_ring(0), before);
    for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
      fake_verbs::kill_queue_pair(kDevice, pair.number);
    while (sent < 10) {
      send(0, 1, Pattern(static_cast<std::uint64_t>(sent)).bytes(30));
      ++sent;
    }
    ASSERT_TRUE(run_until([&] { return sink(1).events.size() >= 10; }));
    run_for(5);
    ASSERT_EQ(sink(1).events.size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) ASSERT_EQ(sink(1).events[i].bytes, Pattern(i).bytes(30));
  }
}

TEST_F(VerbsRings, ParkedLinksCloseTheirs) {
  VerbsConfig config = trusting();
  config.rail.most_queue_pairs = 2;
  make(4, config, quick_fake());
  SeededRandom random(4);
  {
    Traffic traffic(*world_, 400, 0, 0);
    for (std::uint32_t from = 0; from < 4; ++from)
      for (std::uint32_t to = 0; to < 4; ++to)
        if (from != to) traffic.add(PeerId{from}, PeerId{to});
    ASSERT_TRUE(traffic.run(random, [&] {
      for (std::uint32_t i = 0; i < 4; ++i) ASSERT_LE(at(i).figures().rings, at(i).figures().queue_pairs);
    }));
  }
  EXPECT_GT(sum(&VerbsFigures::links_parked), 0u);
  EXPECT_EQ(sum(&VerbsFigures::links_lost), 0u);
  EXPECT_GT(sum(&VerbsFigures::ring_messages_received), 100u);
}

// Sleep

TEST_F(VerbsRings, ASleeperIsWokenByWhatFallsIntoARing) {
  make(2, trusting());
  connect_both(0, 1);
  for (int round = 0; round < 5; ++round) {
    open_ring(0, 1);
    EXPECT_TRUE(at(1).arm());
    poll(1);  // Nothing: it asks for the ring to be closed, and sleeps.
    const std::uint64_t before = by_ring(0);
    ASSERT_EQ(try_send(0, 1, Pattern(8).bytes(30)), Status::kOk);
    ASSERT_EQ(by_ring(0), before + 1) << "0 has not seen that";
    at(1).disarm();
    ASSERT_TRUE(sleep(1, kWaitMs));
    ASSERT_EQ(sink(1).events.size(), 1u);
    run_for(2);
    EXPECT_EQ(at(1).figures().rings, 0u) << "closed when 0 looked";
  }
}

TEST_F(VerbsRings, ASleeperIsWokenByWhatIsSentAtAnyMoment) {
  make(2, trusting());
  connect_both(0, 1);
  open_ring(0, 1);
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> heard{0};
  std::thread sleeper([&] {
    while (!stop) {
      sleep(1, 20);
      heard = sink(1).events.size();
    }
  });
  Pattern random(7);
  std::size_t sent = 0;
  std::chrono::steady_clock::duration longest{};
  for (int round = 0; round < 300; ++round) {
    const std::size_t burst = random.length_between(1, 60);  // Opens one now and then.
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < burst;) {
      if (try_send(0, 1, Pattern(1).bytes(random.length_between(8, 300))) == Status::kOk)
        ++i, ++sent;
      else
        poll(0);
    }
    while (heard < sent && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(kWaitMs)) {
      if (round % 2 == 0) poll(0);  // Else it computes.
      std::this_thread::yield();
    }
    longest = std::max(longest, std::chrono::steady_clock::now() - begin);
    if (heard != sent) break;
    if (round % 7 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random.length_between(1, 3000)));
  }
  stop = true;
  sleeper.join();
  EXPECT_EQ(sink(1).events.size(), sent);
  RecordProperty("longest_us", static_cast<int>(longest / std::chrono::microseconds(1)));
}

TEST_F(VerbsRings, ALongSleepIsNotInterrupted) {
  make(2, trusting());
  connect_both(0, 1);
  open_ring(0, 1);
  run_for(100);  // Nothing of the set-up is left.
  int wakeups = 0;
  EXPECT_FALSE(sleep(1, 2000, &wakeups));  // 0 computes.
  EXPECT_EQ(at(1).figures().rings, 1u);
  EXPECT_LE(wakeups, 60);  // Fewer and fewer.
  poll(0);
  poll(1);
  poll(1);
  EXPECT_EQ(at(1).figures().rings, 0u);
  wakeups = 0;
  EXPECT_FALSE(sleep(1, 300, &wakeups));
  EXPECT_LE(wakeups, 1);  // What was set before.
}

TEST_F(VerbsRings, WhoSleepsOftenPaysLittle) {
  make(2, trusting());
  connect_both(0, 1);
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 100; ++i) {
      send(0, 1, Pattern(1).bytes(24));
      poll_all();
    }
    sink(1).events.clear();
    static_cast<void>(at(1).arm());
    poll(1);
    poll(1);
    at(1).disarm();
    poll_all();
  }
  EXPECT_GE(at(1).figures().rings_opened, 2u);
  EXPECT_LE(at(1).figures().rings_opened, 4u);
}

// Death

TEST_F(VerbsRings, WhatIsInARingIsDeliveredBeforeTheDeathIsTold) {
  for (const unsigned steps : {1u, 3u}) {
    make(2, trusting(), quick_fake(steps));
    connect_both(0, 1);
    open_ring(0, 1);
    const std::uint64_t before = by_ring(0);
    std::size_t sent = 0;
    for (; sent < 20; ++sent) {
      const std::size_t length = sent % 5 == 4 ? 1000 : 30;
      if (try_send(0, 1, Pattern(sent).bytes(length)) != Status::kOk) break;
    }
    ASSERT_GT(sent, 1u);
    ASSERT_GT(by_ring(0), before);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // The device goes on.
    world_->kill(PeerId{0});
    ASSERT_TRUE(run_until([&] { return sink(1).count(Kind::kPeerDown) == 1; }));
    ASSERT_EQ(sink(1).events.size(), sent + 1);
    for (std::size_t i = 0; i < sent; ++i)
      EXPECT_EQ(sink(1).events[i].bytes, Pattern(i).bytes(i % 5 == 4 ? 1000 : 30));
    EXPECT_EQ(at(1).figures().rings, 0u);
  }
}

TEST_F(VerbsRings, WhoLeavesWithARingOpenBreaksNothing) {
  make(2, trusting());
  connect_both(0, 1);
  open_ring(0, 1);
  world_->leave(PeerId{1});
  static_cast<void>(try_send(0, 1, Pattern(3).bytes(8)));
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) == 1; }));
  EXPECT_FALSE(logged("refused what was sent"));
}

// Peers that lie

class HostileRings : public VerbsRings {
 protected:
  /// A link of the hostile peer's own making to 0.
  std::unique_ptr<HostilePeer> make_linked() {
    auto peer = std::make_unique<HostilePeer>(PeerId{kHostile}, verbs_test_secret());
    peer->dial(at(0).local_address());
    peer->send(peer->introduction(PeerId{0}));
    const auto answer = [&] {
      std::optional<Frame> frame;
      EXPECT_TRUE(run_until([&] { return (frame = peer->receive()) || peer->closed; }));
      return frame.value_or(Frame{});
    };
    EXPECT_EQ(answer().kind, FrameKind::kIntroduce);
    peer->make_queue_pair();
    peer->send(peer->connect_frame(1));
    const Frame connect = answer();
    EXPECT_EQ(connect.kind, FrameKind::kConnect);
    peer->connect_queue_pair(connect.connect);
    EXPECT_EQ(answer().kind, FrameKind::kReady);
    peer->send_link(FrameKind::kReady, 1);
    run_for(1);
    return peer;
  }
  /// Sends messages until 0 opens a ring.
  RingBody make_hot(HostilePeer& peer) {
    RingBody body;
    for (std::uint32_t i = 0; i < 100 && at(0).figures().rings == 0; ++i) {
      peer.send_slot({.limit = 90, .kind = SlotHeader::kMessage}, 40);
      EXPECT_TRUE(run_until([&] { return sink(0).events.size() == i + 1; }));
      poll(0);
    }
    EXPECT_EQ(at(0).figures().rings, 1u);
    std::memcpy(&body, peer.memory.data() + sizeof(SlotHeader), sizeof body);
    EXPECT_EQ(body.link, 1u);
    EXPECT_EQ(body.entry_bytes, kRingEntryBytes);
    return body;
  }
  void notice(HostilePeer& peer, std::uint8_t kind, const RingBody& body, std::size_t length = 40) {
    struct {
      SlotHeader header;
      RingBody body;
    } slot{.header = {.limit = 20, .kind = kind}, .body = body};
    static_assert(sizeof slot == 40);
    std::memcpy(peer.memory.data() + (1 << 19), &slot, sizeof slot);
    post(peer, IBV_WR_SEND, length);
  }
  void post(HostilePeer& peer, ibv_wr_opcode opcode, std::size_t length, std::uint64_t address = 0,
            std::uint32_t key = 0) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(peer.memory.data()) + (1 << 19),
                  static_cast<std::uint32_t>(length), peer.region->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
    ibv_send_wr* refused = nullptr;
    ASSERT_EQ(ibv_post_send(peer.queue_pair.get(), &request, &refused), 0);
  }
  /// Writes a proper entry for item `number`, with `kind` in it.
  void write_entry(HostilePeer& peer, const RingBody& ring, std::uint64_t number, std::uint8_t kind,
                   std::uint64_t key) {
    std::byte* const slot = peer.memory.data() + (1 << 19);
    const SlotHeader header{.limit = 20, .kind = kind};
    std::memset(slot, 0x44, 64);
    std::memcpy(slot, &header, sizeof header);
    const std::size_t length = seal_ring_entry(slot, 50, key, number);
    post(peer, IBV_WR_RDMA_WRITE, length, ring.address + (number % 64 + 1) * 256 - length, ring.remote_key);
  }
  void expect_down(bool down) {
    run_until([&] { return sink(0).count(Kind::kPeerDown) == 1; }, down ? kWaitMs : 20);
    ASSERT_EQ(sink(0).count(Kind::kPeerDown), down ? 1u : 0u);
    if (down) {
      EXPECT_EQ(sink(0).events.back().status, Status::kProtocol);
    }
    establish(0, 1);
  }
};

TEST_F(HostileRings, NoticesThatFitNothingCutTheirSenderOff) {
  const RingBody good{
      .address = 1 << 20, .key = 3, .remote_key = 4, .entry_bytes = 256, .link = 1, .reserved = 0};
  struct Case {
    const char* what;
    std::uint8_t kind;
    RingBody body;
    std::size_t length;
    bool down;
  };
  RingBody later = good, earlier = good, odd = good;
  later.link = 2;
  earlier.link = 0;
  odd.entry_bytes = 17;
  const Case cases[] = {
      {"a proper one", SlotHeader::kRingOpen, good, 40, false},
      {"too short", SlotHeader::kRingOpen, good, 39, true},
      {"of a link that is over", SlotHeader::kRingOpen, earlier, 40, false},
      {"of a link to come", SlotHeader::kRingOpen, later, 40, true},
      {"of entries that cannot be", SlotHeader::kRingOpen, odd, 40, true},
      {"to close what is not open", SlotHeader::kRingClose, good, 40, true},
      {"an answer to nothing", SlotHeader::kRingClosed, good, 40, true},
      {"of no kind", 6, good, 40, true},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    make(2, trusting());
    const std::unique_ptr<HostilePeer> peer = make_linked();
    notice(*peer, one.kind, one.body, one.length);
    expect_down(one.down);
    if (HasFailure()) return;
  }
}

TEST_F(HostileRings, ARingIsOpenedOnceAndClosedByItsKey) {
  const RingBody good{
      .address = 1 << 20, .key = 3, .remote_key = 4, .entry_bytes = 256, .link = 1, .reserved = 0};
  RingBody other = good;
  other.key = 7;
  for (int which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    make(2, trusting());
    const std::unique_ptr<HostilePeer> peer = make_linked();
    notice(*peer, SlotHeader::kRingOpen, good);
    run_for(5);
    if (which == 0) notice(*peer, SlotHeader::kRingOpen, good);
    if (which == 1) notice(*peer, SlotHeader::kRingClose, other);
    if (which == 2) notice(*peer, SlotHeader::kRingClose, good);
    expect_down(which != 2);
  }
}

TEST_F(HostileRings, AnEntryCountsOnlyWhereItIsNextAndWhole) {
  make(2, trusting());
  const std::unique_ptr<HostilePeer> peer = make_linked();
  const RingBody ring = make_hot(*peer);
  const std::size_t before = sink(0).events.size();
  const std::uint64_t next = before;
  write_entry(*peer, ring, next + 1, SlotHeader::kMessage, ring.key);
  write_entry(*peer, ring, next, SlotHeader::kMessage, ring.key + 1);
  run_for(10);
  EXPECT_EQ(sink(0).events.size(), before);
  write_entry(*peer, ring, next, SlotHeader::kMessage, ring.key);
  ASSERT_TRUE(run_until([&] { return sink(0).events.size() == before + 2; })) << "both in turn";
  EXPECT_EQ(sink(0).events.back().bytes.size(), 42u);
  expect_down(false);
}

TEST_F(HostileRings, AnythingButAMessageInARingCutsItsWriterOff) {
  for (const std::uint8_t kind : {SlotHeader::kCreditOnly, SlotHeader::kRingOpen, std::uint8_t{77}}) {
    make(2, trusting());
    const std::unique_ptr<HostilePeer> peer = make_linked();
    const RingBody ring = make_hot(*peer);
    write_entry(*peer, ring, sink(0).events.size(), kind, ring.key);
    expect_down(true);
  }
}

TEST_F(HostileRings, MoreThanItsCreditCutsItsWriterOff) {
  make(2, trusting());
  const std::unique_ptr<HostilePeer> peer = make_linked();
  const RingBody ring = make_hot(*peer);
  const std::uint64_t next = sink(0).events.size();
  for (std::uint64_t i = 0; i < 64; ++i) write_entry(*peer, ring, next + i, SlotHeader::kMessage, ring.key);
  expect_down(true);
}

TEST_F(HostileRings, GarbageInARingIsNothing) {
  make(2, trusting());
  const std::unique_ptr<HostilePeer> peer = make_linked();
  const RingBody ring = make_hot(*peer);
  SeededRandom random(11);
  for (int round = 0; round < 200; ++round) {
    std::byte* const bytes = peer->memory.data() + (1 << 19);
    for (std::size_t i = 0; i < kRingBytes; i += 8) {
      // Numbers and lengths that can be, every other time.
      const std::uint64_t word = i % 256 == 248 && round % 2 == 0
                                     ? sink(0).events.size() | (random.below(300) << 32)
                                     : random.below(UINT64_MAX);
      std::memcpy(bytes + i, &word, 8);
    }
    post(*peer, IBV_WR_RDMA_WRITE, kRingBytes, ring.address, ring.remote_key);
    poll(0);
  }
  const std::size_t before = sink(0).events.size();
  peer->send_slot({.limit = 90, .kind = SlotHeader::kMessage}, 40);
  ASSERT_TRUE(run_until([&] { return sink(0).events.size() == before + 1; }));
  expect_down(false);
}

}  // namespace
}  // namespace ch3_offload
