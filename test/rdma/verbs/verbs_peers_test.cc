// Peers that lie, peers that compute, and peers that die.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "rdma/verbs/hostile_peer.h"
#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kHostile = 5;

/// A port whose backlog is full answers nobody.
class FullPort {
 public:
  FullPort() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    SocketAddress there = *socket_address("127.0.0.1", 0);
    EXPECT_EQ(::bind(listener_.get(), there.get(), there.length), 0);
    EXPECT_EQ(::listen(listener_.get(), 0), 0);
    there.length = sizeof there.storage;
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&there.storage), &there.length), 0);
    for (FileDescriptor& filler : fillers_) {
      filler = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      static_cast<void>(::connect(filler.get(), there.get(), there.length));
    }
    port = ntohs(reinterpret_cast<sockaddr_in*>(&there.storage)->sin_port);
  }

  std::uint16_t port = 0;

 private:
  FileDescriptor listener_;
  std::array<FileDescriptor, 4> fillers_;
};

/// 0 is attacked, 1 stands by.
class VerbsPeers : public VerbsProviders {
 protected:
  /// Polls the attacked one until it answers with a frame. None: it closed the connection.
  std::optional<Frame> answer(HostilePeer& peer) {
    std::optional<Frame> frame;
    EXPECT_TRUE(run_until([&] { return (frame = peer.receive()) || peer.closed; }));
    return frame;
  }
  /// Process 0 has talked with four others over two queue pairs: links are parked.
  void make_with_few_queue_pairs() {
    VerbsConfig config;
    config.peer_timeout_ms = 1000;
    config.rail.most_queue_pairs = 2;
    make(5, config);
    for (std::uint32_t to = 1; to < 5; ++to) establish(0, to);
  }
  std::unique_ptr<HostilePeer> make_hostile() {
    return std::make_unique<HostilePeer>(PeerId{kHostile}, verbs_test_secret());
  }
  /// Dials and is answered.
  void introduce(HostilePeer& peer) {
    peer.dial(at(0).local_address());
    peer.send(peer.hello(PeerId{0}));
    const std::optional<Frame> frame = answer(peer);
    EXPECT_TRUE(frame && frame->kind == FrameKind::kHello);
  }
  std::unique_ptr<HostilePeer> make_introduced() {
    std::unique_ptr<HostilePeer> peer = make_hostile();
    introduce(*peer);
    return peer;
  }
  /// The rest of an introduction, for this link.
  void link_up(HostilePeer& peer, std::uint32_t link) {
    peer.make_queue_pair();
    peer.send(peer.offer(link));
    const std::optional<Frame> frame = answer(peer);
    ASSERT_TRUE(frame && frame->kind == FrameKind::kOffer);
    EXPECT_EQ(frame->as<OfferBody>().link, link);
    peer.connect_queue_pair(frame->as<OfferBody>());
    peer.send(make_frame(kLinks, FrameKind::kReady));
    peer.last_link = link;
    run_for(1);
  }
  /// One whose link is up; it may send Link::kFirstWindow slots.
  std::unique_ptr<HostilePeer> make_linked() {
    std::unique_ptr<HostilePeer> peer = make_introduced();
    link_up(*peer, 1);
    return peer;
  }
  void expect_down(Status reason) {
    EXPECT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) != 0; }));
    ASSERT_EQ(sink(0).count(Kind::kPeerDown), 1u);
    EXPECT_EQ(sink(0).events.back().kind, Kind::kPeerDown);
    EXPECT_EQ(sink(0).events.back().peer, PeerId{kHostile});
    EXPECT_EQ(sink(0).events.back().status, reason) << status_name(sink(0).events.back().status);
  }
  void expect_bystander_unharmed() {
    establish(0, 1);
    EXPECT_EQ(sink(0).count(Kind::kPeerDown, PeerId{1}), 0u);
    EXPECT_EQ(sink(1).count(Kind::kPeerDown), 0u);
  }
  /// Polls `who` alone.
  void only(std::uint32_t who, int milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) {
      poll(who);
      std::this_thread::sleep_for(kIdle);
    }
  }
};

// Introductions

TEST_F(VerbsPeers, WhoIsNoPeerIsTurnedAway) {
  struct Case {
    const char* what;
    std::function<void(Frame&)> change;
  };
  const std::vector<Case> cases = {
      {"receiver", [](Frame& f) { f.as<HelloBody>().receiver = 1; }},
      {"receiver's instance", [](Frame& f) { ++f.as<HelloBody>().receiver_instance; }},
      {"sender's instance", [](Frame& f) { ++f.as<HelloBody>().sender_instance; }},
      {"sender is the receiver", [](Frame& f) { f.as<HelloBody>().sender = 0; }},
      {"sender's number", [](Frame& f) { f.as<HelloBody>().sender = UINT32_MAX; }},
      {"first number that is too great", [](Frame& f) { f.as<HelloBody>().sender = 1u << 20; }},
      {"address", [](Frame& f) { f.as<HelloBody>().address[0] = 'x'; }},
      {"no address", [](Frame& f) { f.as<HelloBody>().address = {}; }},
      {"another fabric", [](Frame& f) { f.as<HelloBody>().address[8] = 'i'; }},
      {"a lane for which there are no rails", [](Frame& f) { f.as<HelloBody>().lane = 1; }},
  };
  make(2);
  for (const Case& one : cases) {
    const std::unique_ptr<HostilePeer> peer = make_hostile();
    peer->dial(at(0).local_address());
    Frame frame = peer->hello(PeerId{0});
    one.change(frame);
    peer->send(frame);
    const std::optional<Frame> reply = answer(*peer);
    ASSERT_TRUE(reply) << one.what;
    EXPECT_EQ(reply->kind, FrameKind::kRefuse) << one.what;
    EXPECT_EQ(reply->as<RefuseBody>().reason, static_cast<std::uint32_t>(Refusal::kStranger)) << one.what;
    EXPECT_FALSE(answer(*peer)) << one.what;
  }
  EXPECT_TRUE(sink(0).events.empty());
  EXPECT_TRUE(logged("refused a connection"));
  EXPECT_LE(world_->lines.size(), 2u) << "nobody fills the log from outside";
  static_cast<void>(make_linked());  // The real one is not harmed.
  expect_bystander_unharmed();
}

// Offers

TEST_F(VerbsPeers, AnOfferOutOfRangeEndsItsIntroductionOnly) {
  const std::function<void(Frame&)> changes[] = {
      [](Frame& f) { f.as<OfferBody>().link = 0; },
      [](Frame& f) { f.as<OfferBody>().link = (1u << 31) + 1; },
      [](Frame& f) { f.as<OfferBody>().queue_pair = 1u << 24; },
      [](Frame& f) { f.as<OfferBody>().packet_sequence = UINT32_MAX; },
      [](Frame& f) { f.as<OfferBody>().mtu = 0; },
      [](Frame& f) { f.as<OfferBody>().mtu = 6; },
      [](Frame& f) {
        f.as<OfferBody>().received = 9;
        f.as<OfferBody>().limit = 8;
      },
  };
  make(2);
  for (const auto& change : changes) {
    const std::unique_ptr<HostilePeer> peer = make_introduced();
    peer->make_queue_pair();
    Frame frame = peer->offer(1);
    change(frame);
    peer->send(frame);
    while (answer(*peer)) {
    }
    EXPECT_TRUE(peer->closed);
  }
  EXPECT_TRUE(sink(0).events.empty());
  EXPECT_EQ(at(0).figures().queue_pairs, 0u);
  static_cast<void>(make_linked());
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, WhoSaysThatItGotWhatWasNeverSentIsCutOff) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_introduced();
  peer->make_queue_pair();
  peer->send(peer->offer(1, 2, 8));
  expect_down(Status::kPeerFailed);
  expect_bystander_unharmed();
  const Result<Endpoint*> again = try_connect(0, kHostile, peer->address.to_string());
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().status, Status::kPeerFailed);
}

TEST_F(VerbsPeers, LinkNumbersMayJump) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  for (const std::uint32_t link : {2u, 7u, 263u, (1u << 31) - 1, 1u << 31}) {
    introduce(*peer);
    link_up(*peer, link);
    ASSERT_FALSE(HasFailure()) << link;
    EXPECT_EQ(at(0).figures().queue_pairs, 1u);
  }
  // A number that is not greater is none.
  introduce(*peer);
  peer->send(peer->offer(7));
  while (answer(*peer)) {
  }
  EXPECT_TRUE(sink(0).events.empty());
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, IntroductionsWithoutEndEndNothing) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_hostile();
  for (std::uint32_t link = 1; link <= 100; ++link) {
    peer->last_link = link - 1;
    introduce(*peer);
    peer->send(peer->offer(link));
    const std::optional<Frame> frame = answer(*peer);
    EXPECT_TRUE(frame && frame->kind == FrameKind::kOffer);
  }
  peer->socket.reset();
  run_for(200);
  EXPECT_LE(at(0).figures().queue_pairs, 1u);
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, FramesAndSlotsAtRandom) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    make(2);
    SeededRandom random(seed);
    const std::unique_ptr<HostilePeer> peer = random.below(2) == 0 ? make_introduced() : make_linked();
    peer->says_anything = true;
    const auto small = [&] { return static_cast<std::uint32_t>(random.below(4)); };
    for (std::uint64_t n = random.between(1, 30); n > 0; --n) {
      switch (random.below(7)) {
        case 0: peer->send(make_frame(kLinks, FrameKind::kReady)); break;
        case 1:
          peer->last_link = small();
          peer->dial(at(0).local_address());
          break;
        case 2: peer->send(peer->hello(PeerId{0})); break;
        case 3:
          if (peer->queue_pair != nullptr)
            peer->send_slot({.limit = static_cast<std::uint32_t>(random.next()),
                             .kind = static_cast<std::uint8_t>(1 + random.below(4)),
                             .flags = static_cast<std::uint8_t>(random.below(2))},
                            8 + random.below(2) * 10);
          break;
        case 4: poll(0); break;
        default: {
          Frame frame = peer->offer(small(), small(), random.below(8));
          if (random.below(2) == 0) frame.as<OfferBody>().queue_pair = small();
          peer->send(frame);
        }
      }
      static_cast<void>(peer->receive());
      if (random.below(3) == 0) poll(0);
    }
    if (random.below(3) == 0) static_cast<void>(try_connect(0, kHostile, peer->address.to_string()).ok());
    if (random.below(3) == 0) peer->socket.reset();
    run_for(1);
    EXPECT_LE(sink(0).count(Kind::kPeerDown), 1u) << seed;
    if (seed % 10 == 0) expect_bystander_unharmed();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// Slots

TEST_F(VerbsPeers, SlotsThatAreNoneCutTheirSenderOff) {
  struct Case {
    const char* what;
    SlotHeader header;
    std::size_t length;
  };
  const Case cases[] = {
      {"nothing", {}, 0},
      {"half a header", {.kind = SlotHeader::kMessage}, 7},
      {"no payload", {.kind = SlotHeader::kMessage}, 8},
      {"kind 0", {.kind = 0}, 100},
      {"kind 5", {.kind = 5}, 100},
      {"credit with a payload", {.kind = SlotHeader::kCreditOnly}, 9},
      {"parking with a payload", {.kind = SlotHeader::kPark}, 9},
      {"goodbye with a payload", {.kind = SlotHeader::kBye}, 9},
  };
  for (const Case& one : cases) {
    make(2);
    SCOPED_TRACE(one.what);
    const std::unique_ptr<HostilePeer> peer = make_linked();
    peer->send_slot(one.header, one.length);
    expect_down(Status::kProtocol);
    EXPECT_EQ(sink(0).count(Kind::kMessage), 0u);
    expect_bystander_unharmed();
  }
}

TEST_F(VerbsPeers, WhoSendsMoreThanItsCreditIsCutOff) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  for (std::uint32_t i = 0; i <= Link::kFirstWindow; ++i)
    peer->send_slot({.limit = 4, .kind = SlotHeader::kMessage}, 20);
  expect_down(Status::kProtocol);
  EXPECT_EQ(sink(0).count(Kind::kMessage), Link::kFirstWindow);
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, ASlotLongerThanOursBreaksOnlyItsLink) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->send_slot({.limit = 4, .kind = SlotHeader::kMessage}, 8500);
  run_for(20);
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, AWriteToMemoryThatIsNotTheirsBreaksOnlyItsLink) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->send_slot({}, 64, IBV_WR_RDMA_WRITE);
  run_for(20);
  EXPECT_EQ(sink(0).count(Kind::kWriteArrived), 0u);
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, WhoSendsAfterItHasParkedIsCutOff) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->send_slot({.limit = 4, .kind = SlotHeader::kPark}, 8);
  peer->send_slot({.limit = 4, .kind = SlotHeader::kMessage}, 20);
  expect_down(Status::kProtocol);
  EXPECT_EQ(sink(0).count(Kind::kMessage), 0u);
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, GoodbyeIsTold) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->send_slot({.limit = 4, .kind = SlotHeader::kBye}, 8);
  expect_down(Status::kPeerFailed);
  expect_bystander_unharmed();
}

// No connection is kept

TEST_F(VerbsPeers, NoConnectionIsLeftBesideALink) {
  make(4);
  for (std::uint32_t one = 0; one < 4; ++one)
    for (std::uint32_t other = one + 1; other < 4; ++other) establish(one, other);
  run_for(10);
  for (std::uint32_t one = 0; one < 4; ++one) EXPECT_EQ(at(one).figures().descriptors, 1u) << "the listener";
}

TEST_F(VerbsPeers, AnIdlePairSendsNothing) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  for (RecordingSink& one : sinks_) one.waits = false;
  establish(0, 1);
  run_for(300);  // All is known to be acknowledged.
  const std::uint64_t doorbells = fake_verbs::counters().post_send_calls;
  run_for(1500);
  EXPECT_EQ(fake_verbs::counters().post_send_calls, doorbells);
  EXPECT_EQ(at(0).figures().traffic.probes + at(1).figures().traffic.probes, 0u);
}

TEST_F(VerbsPeers, BothMayDialAtOnce) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    make(4);
    SeededRandom random(seed);
    const auto start = std::chrono::steady_clock::now();
    for (std::uint32_t from = 0; from < 4; ++from)
      for (std::uint32_t to = 0; to < 4; ++to) {
        if (from != to) connect(from, to);
        if (random.below(3) == 0) poll(static_cast<std::uint32_t>(random.below(4)));
      }
    for (std::uint32_t from = 0; from < 4; ++from)
      for (std::uint32_t to = 0; to < 4; ++to)
        if (from != to) send(from, to, Pattern(from).bytes(30));
    ASSERT_TRUE(run_until([&] {
      for (const RecordingSink& one : sinks_)
        if (one.count(Kind::kMessage) != 3) return false;
      return true;
    })) << seed;
    for (const RecordingSink& one : sinks_) ASSERT_EQ(one.events.size(), 3u) << seed;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(900))
        << "nobody waits for a redial";
  }
}

/// The kernel tries for ever longer after a link was down; the peer's own dial gets through meanwhile.
TEST_F(VerbsPeers, ADialThatHasNotArrivedRefusesNobody) {
  make(2);
  const FullPort full;
  const std::unique_ptr<HostilePeer> peer = make_hostile();
  peer->address.port = full.port;
  ASSERT_TRUE(try_connect(0, kHostile, peer->address.to_string()).ok());
  run_for(50);
  introduce(*peer);
}

// One busy group stops nobody

/// 60 peers that do not poll were sent as much as there is credit for. They take no send slot.
TEST_F(VerbsPeers, PeersThatComputeTakeNoSendSlots) {
  constexpr std::uint32_t kPeers = 62;
  VerbsConfig config;
  config.most_send_slots = 64;
  make(kPeers, config);
  establish(0, 1);
  for (std::uint32_t to = 2; to < kPeers; ++to) {
    connect(0, to);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(try_send(0, to, Pattern(to).bytes(100)), Status::kOk) << to;
  }
  EXPECT_LE(at(0).figures().send_slots_taken, Link::kSignalEvery);
  EXPECT_EQ(at(0).figures().waiting_messages, 3u * (kPeers - 2));
  for (int i = 0; i < 200; ++i) {  // Nobody but these two polls.
    ASSERT_EQ(try_send(0, 1, Pattern(7).bytes(100)), Status::kOk) << i;
    const std::size_t before = sink(1).events.size();
    while (sink(1).events.size() == before) {
      poll(0);
      poll(1);
    }
    ASSERT_EQ(try_send(1, 0, Pattern(8).bytes(100)), Status::kOk) << i;
  }
  ASSERT_TRUE(run_until([&] {
    for (std::uint32_t to = 2; to < kPeers; ++to)
      if (sink(to).count(Kind::kMessage) != 3) return false;
    return true;
  }));
  EXPECT_EQ(at(0).figures().waiting_messages, 0u);
}

/// Messages to peers whose devices are silent take no slots that the credit of others needs.
TEST_F(VerbsPeers, MessagesLeaveSlotsForCredit) {
  fake_verbs::Config fake;
  fake.retry_timeout = std::chrono::hours(1);
  VerbsConfig config;
  config.most_send_slots = 64;
  make(4, config, fake);
  const auto fill = [&](std::uint32_t to) {
    std::uint32_t sent = 0;
    while (try_send(0, to, Pattern(to).bytes(8)) == Status::kOk) ++sent;
    return sent;
  };
  for (std::uint32_t to = 1; to < 4; ++to) establish(0, to);
  for (int i = 0; i < 400; ++i) {  // The windows grow.
    fill(1 + i % 2);
    poll_all();
  }
  run_for(20);
  for (const std::uint32_t to : {1u, 2u}) {
    fake_verbs::drop_next(1, fake_verbs::Loss::kData);
    ASSERT_EQ(try_send(0, to, Pattern(to).bytes(8)), Status::kOk);
  }
  ASSERT_GT(fill(1) + fill(2), 40u);
  ASSERT_EQ(try_send(0, 3, Pattern(3).bytes(8)), Status::kAgain) << "no slot is left for messages";
  constexpr int kMessages = 10 * Link::kFirstWindow;
  const std::size_t before = sink(0).events.size();
  int sent = 0;
  EXPECT_TRUE(run_until(
      [&] {
        while (sent < kMessages && try_send(3, 0, Pattern(3).bytes(8)) == Status::kOk) ++sent;
        return sink(0).events.size() == before + kMessages;
      },
      2000))
      << sent;
}

/// What a broken link holds waits in plain memory, too.
TEST_F(VerbsPeers, ABrokenLinkGivesItsSendSlotsBack) {
  make(3);
  establish(0, 1);
  establish(0, 2);
  for (int i = 0; i < 200; ++i) {  // The window grows.
    while (try_send(0, 1, Pattern(1).bytes(8)) == Status::kOk) {
    }
    poll_all();
  }
  run_for(20);
  const std::size_t before = sink(1).events.size();
  fake_verbs::set_silent("fake0", true);
  std::uint32_t sent = 0;
  while (try_send(0, 1, Pattern(sent).bytes(8)) == Status::kOk) ++sent;
  ASSERT_GT(sent, 20u);
  for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
    fake_verbs::kill_queue_pair("fake0", pair.number);
  fake_verbs::set_silent("fake0", false);
  only(0, 100);  // 1 does not poll: the new link waits.
  EXPECT_LE(at(0).figures().send_slots_taken, Link::kSignalEvery) << "those of the other link";
  EXPECT_GT(at(0).figures().waiting_messages, 0u);
  ASSERT_TRUE(run_until([&] { return sink(1).events.size() == before + sent; }));
  for (std::uint32_t n = 0; n < sent; ++n) EXPECT_EQ(sink(1).events[before + n].bytes, Pattern(n).bytes(8));
}

// Deaths

TEST_F(VerbsPeers, DeathAtAnyMomentIsToldOnceAndLeavesNothing) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    SeededRandom random(seed);
    fake_verbs::Config fake;
    fake.retry_timeout = std::chrono::milliseconds(random.below(2) == 0 ? 2 : 200);
    fake.devices[0].ports[0].max_message_bytes = 9'000;
    fake.acknowledge_delay = std::chrono::microseconds(random.below(2) * 300);
    VerbsConfig config;
    config.peer_timeout_ms = 1000;
    make(3, config, fake);
    const std::uint32_t dead = random.below(2) == 0 ? 0 : 1;  // Who dialled, or not.
    const std::uint32_t other = 1 - dead;
    std::vector<std::byte> source(50'000), target(50'000);
    MemoryRegion source_region, target_region;
    ASSERT_EQ(at(other).register_memory(source.data(), source.size(), Access::kRead, source_region),
              Status::kOk);
    ASSERT_EQ(at(dead).register_memory(target.data(), target.size(), Access::kWrite, target_region),
              Status::kOk);
    if (random.below(8) != 0) establish(0, 1);
    establish(other, 2);
    connect_both(0, 1);
    std::uint32_t writes = 0;
    for (std::uint64_t n = random.below(60); n > 0; --n) {
      switch (random.below(4)) {
        case 0: static_cast<void>(try_send(other, dead, Pattern(n).bytes(50)) == Status::kOk); break;
        case 1: static_cast<void>(try_send(dead, other, Pattern(n).bytes(50)) == Status::kOk); break;
        case 2:
          writes += at(other).write(
                        endpoint(other, dead), source.data(), random.below(source.size()), source_region,
                        {reinterpret_cast<std::uintptr_t>(target.data()), target_region.remote_key},
                        Immediate{writes}, WorkId{writes}) == Status::kOk;
          break;
        default: poll(static_cast<std::uint32_t>(random.below(3)));
      }
    }
    world_->kill(PeerId{dead});
    if (seed % 16 != 0) static_cast<void>(try_send(other, dead, Pattern(1).bytes(50)) == Status::kOk);
    ASSERT_TRUE(run_until([&] { return sink(other).count(Kind::kPeerDown) == 1; })) << "seed " << seed;
    std::vector<int> done(writes);
    for (const RecordingSink::Event& event : sink(other).events)
      if (event.kind == Kind::kWriteDone) ++done.at(static_cast<std::size_t>(event.work));
    for (const int count : done) ASSERT_EQ(count, 1) << "seed " << seed;
    EXPECT_EQ(sink(other).events.back().kind, Kind::kPeerDown);
    EXPECT_EQ(sink(other).events.back().peer, PeerId{dead});
    at(other).deregister_memory(source_region);
    EXPECT_EQ(at(other).figures().registrations, 0u);
    establish(other, 2);
    EXPECT_EQ(at(other).figures().queue_pairs, 1u);
    // Its own: with slots of all others given back, at most those whose completions nobody asked for are out.
    EXPECT_LE(at(other).figures().send_slots_taken, Link::kSignalEvery);
    EXPECT_EQ(sink(other).count(Kind::kPeerDown), 1u);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_F(VerbsPeers, AnotherProcessAtThePortOfADeadOneIsNotMistakenForIt) {
  for (const bool introduces : {false, true}) {
    make(2);
    const std::unique_ptr<HostilePeer> peer = make_linked();
    peer->queue_pair.reset();  // What it is sent fails, and it is dialled.
    ASSERT_TRUE(try_connect(0, kHostile, peer->address.to_string()).ok());
    ASSERT_EQ(try_send(0, kHostile, Pattern(1).bytes(8)), Status::kOk);
    FileDescriptor socket;
    ASSERT_TRUE(run_until([&] {
      int error_number = 0;
      socket = accept_stream(peer->listener, error_number);
      return socket.valid();
    }));
    peer->take(std::move(socket), Speaker::kAcceptor);
    const std::optional<Frame> frame = answer(*peer);
    ASSERT_TRUE(frame && frame->kind == FrameKind::kHello);
    EXPECT_EQ(frame->as<HelloBody>().receiver_instance, peer->address.instance);
    Frame reply = make_frame(kLinks, FrameKind::kRefuse);
    reply.as<RefuseBody>().reason = static_cast<std::uint32_t>(Refusal::kStranger);
    if (introduces) {
      ++peer->address.instance;
      reply = peer->hello(PeerId{0}, frame->as<HelloBody>().sender_instance);
    }
    peer->send(reply);
    expect_down(Status::kPeerFailed);
    expect_bystander_unharmed();
  }
}

/// Before there was a link, a full backlog, a network that is down and a dead node look alike.
TEST_F(VerbsPeers, WhoCannotBeReachedYetIsWaitedFor) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  const FullPort full;
  VerbsAddress silent = *VerbsAddress::parse(at(1).local_address());
  silent.hosts = {"127.0.0.1"};
  silent.port = full.port;
  ASSERT_TRUE(try_connect(0, 6, silent.to_string()).ok());
  run_for(3000);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  std::size_t told = 0;
  for (const std::string& line : world_->lines)
    told += line.find("no connection with peer 6") != std::string::npos;
  EXPECT_EQ(told, 1u);
  expect_bystander_unharmed();
}

/// After its link failed, silence is evidence.
TEST_F(VerbsPeers, WhoseLinkFailedAndWhoseHostIsSilentIsDeadAfterTheTimeOut) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  const std::unique_ptr<HostilePeer> peer = make_hostile();
  const FullPort full;
  peer->address.port = full.port;
  introduce(*peer);
  link_up(*peer, 1);
  ASSERT_TRUE(try_connect(0, kHostile, peer->address.to_string()).ok());
  peer->queue_pair.reset();
  ASSERT_EQ(try_send(0, kHostile, Pattern(1).bytes(8)), Status::kOk);
  run_for(850);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  expect_down(Status::kPeerFailed);
  EXPECT_TRUE(logged("it is taken for dead"));
  expect_bystander_unharmed();
}

/// The peer's death raises no event here: it is found out because something is awaited.
TEST_F(VerbsPeers, ADeathIsNoticedThoughNothingIsSent) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(3, config);
  establish(0, 1);
  establish(0, 2);
  run_for(300);
  sink(0).waits = false;
  const auto start = std::chrono::steady_clock::now();
  world_->kill(PeerId{1});
  only(0, 1000);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u) << "nobody asks";
  sink(0).waits = true;
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown, PeerId{1}) == 1; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2500));
  EXPECT_GT(at(0).figures().traffic.probes, 0u);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown, PeerId{2}), 0u);
}

/// Its link was parked, so there is nothing to probe.
TEST_F(VerbsPeers, ADeathIsNoticedThoughThereIsNoLink) {
  make_with_few_queue_pairs();
  ASSERT_LE(at(0).figures().queue_pairs, 2u);
  world_->kill(PeerId{1});  // The least recently used one.
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown, PeerId{1}) == 1; }, 3000));
  run_for(1000);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 1u) << "those that live answer";
}

TEST_F(VerbsPeers, ASleeperWhoseLinksAreParkedWakesToLookAfterItsPeers) {
  make_with_few_queue_pairs();
  run_for(300);
  ASSERT_EQ(at(1).figures().queue_pairs, 0u);
  ASSERT_TRUE(at(1).arm());
  pollfd wait{at(1).descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, kWaitMs), 1);
  at(1).disarm();
}

/// A child of the dead process lives on, as those of Python's multiprocessing do.
TEST_F(VerbsPeers, AForkedChildDoesNotHideTheDeathOfItsParent) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  establish(0, 1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) ::pause();
  world_->kill(PeerId{1});
  const bool told = run_until([&] { return sink(0).count(Kind::kPeerDown) == 1; }, 5000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(told);
}

/// The network over which links are introduced is down, and messages flow.
TEST_F(VerbsPeers, ALinkNeedsNoOtherNetwork) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->listener.reset();  // Nobody could be introduced to it any more.
  peer->socket.reset();
  for (std::uint32_t i = 0; i < 4; ++i) {
    run_for(600);
    if (i < 3) peer->send_slot({.limit = 64, .kind = SlotHeader::kMessage}, 20);
  }
  run_for(20);
  EXPECT_EQ(sink(0).count(Kind::kMessage), 3u);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
}

TEST_F(VerbsPeers, WhoDoesNotPollIsNotDead) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  fake_verbs::Config fake;
  fake.retry_timeout = std::chrono::milliseconds(20);
  make(4, config, fake);
  establish(0, 1);
  establish(0, 2);
  connect(0, 3);  // Never answered, as 3 does not poll at all.
  for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
    fake_verbs::kill_queue_pair("fake0", pair.number);  // Nor are 0's dials to 1 and 2.
  static_cast<void>(try_send(0, 1, Pattern(4).bytes(20)) == Status::kOk);
  static_cast<void>(try_send(0, 2, Pattern(4).bytes(20)) == Status::kOk);
  only(0, 2500);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  EXPECT_TRUE(logged("has not answered for 1 s"));
  fake_verbs::fail_call("ibv_modify_qp", 2, ETIMEDOUT, 2);  // The first try after that is another failure.
  send(0, 1, Pattern(5).bytes(20));
  send(0, 2, Pattern(5).bytes(20));
  send(0, 3, Pattern(5).bytes(20));
  ASSERT_TRUE(run_until([&] { return sink(3).count(Kind::kMessage) == 1; }));
  ASSERT_TRUE(
      run_until([&] { return sink(1).count(Kind::kMessage) == 3 && sink(2).count(Kind::kMessage) == 3; }));
  for (const RecordingSink& one : sinks_) EXPECT_EQ(one.count(Kind::kPeerDown), 0u);
}

/// Its own silence is no evidence against others.
TEST_F(VerbsPeers, WhoDidNotPollForLongTriesBeforeItTakesAnybodyForDead) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  establish(0, 1);
  for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
    fake_verbs::kill_queue_pair("fake0", pair.number);
  only(0, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // Computes.
  establish(0, 1);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown) + sink(1).count(Kind::kPeerDown), 0u);
}

// Goodbye

TEST_F(VerbsPeers, WhatWasCommittedBeforeTheEndArrives) {
  for (int round = 0; round < 10; ++round) {
    fake_verbs::Config fake;
    fake.transfer_delay = std::chrono::microseconds(300);
    fake.acknowledge_delay = std::chrono::microseconds(100);
    make(2, {}, fake);
    if (round % 2 == 0) establish(0, 1);
    connect(0, 1);
    const std::size_t before = sink(1).events.size();
    std::uint32_t sent = 0;
    while (try_send(0, 1, Pattern(sent).bytes(60)) == Status::kOk) ++sent;
    ASSERT_GT(sent, 0u);
    std::atomic<bool> gone{false};
    std::thread receiver([&] {
      while (!gone || sink(1).count(Kind::kPeerDown) == 0) poll(1);
    });
    const auto start = std::chrono::steady_clock::now();
    world_->leave(PeerId{0});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1900));
    gone = true;
    receiver.join();
    ASSERT_EQ(sink(1).events.size(), before + sent + 1);
    for (std::uint32_t n = 0; n < sent; ++n)
      EXPECT_EQ(sink(1).events[before + n].bytes, Pattern(n).bytes(60));
    EXPECT_EQ(sink(1).events.back().kind, Kind::kPeerDown);
  }
}

TEST_F(VerbsPeers, TheEndDoesNotWaitForEver) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  establish(0, 1);
  fake_verbs::set_link("fake0", false);
  ASSERT_EQ(try_send(0, 1, Pattern(1).bytes(60)), Status::kOk);
  const auto start = std::chrono::steady_clock::now();
  world_->leave(PeerId{0});
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(took, std::chrono::milliseconds(900)) << "as long as the peer may be unreachable";
  EXPECT_LT(took, std::chrono::milliseconds(3000));
}

// The device

TEST_F(VerbsPeers, AFatalEventEndsEveryConnection) {
  for (int how = 0; how < 4; ++how) {
    make(3);
    establish(0, 1);
    establish(0, 2);
    switch (how) {
      case 0: fake_verbs::kill_device("fake0"); break;
      case 1: fake_verbs::raise_event("fake0", IBV_EVENT_DEVICE_FATAL); break;
      case 2: fake_verbs::fail_call("ibv_post_srq_recv", 1, EIO, 1000); break;
      default: fake_verbs::fail_call("ibv_poll_cq", 1, EIO, 1000); break;
    }
    if (how == 2) send(1, 0, Pattern(1).bytes(5));
    ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) == 2; })) << how;
    for (const RecordingSink::Event& event : sink(0).events)
      if (event.kind == Kind::kPeerDown) {
        EXPECT_TRUE(event.status == Status::kDeviceFailed || event.status == Status::kPeerFailed) << how;
      }
    EXPECT_TRUE(logged("the device fake0 does not work any more")) << how;
    const Result<Endpoint*> again = at(0).connect(PeerId{9}, at(1).local_address());
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().status, Status::kUnreachable);
    run_for(5);
  }
}

TEST_F(VerbsPeers, EventsOfThePortAreLogged) {
  make(2);
  establish(0, 1);
  fake_verbs::set_link("fake0", false);
  EXPECT_TRUE(run_until([&] { return logged("went down; waiting for it"); }));
  EXPECT_TRUE(logged("the port fake0:1:1 (RoCE v2, 127.0.0.1"));
  fake_verbs::set_link("fake0", true);
  EXPECT_TRUE(run_until([&] { return logged("is up again"); }));
  EXPECT_EQ(scope_of("is up again"), LogScope::kNode);
  for (const ibv_event_type other : {IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
                                     IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE})
    fake_verbs::raise_event("fake0", other);
  expect_bystander_unharmed();
}

TEST_F(VerbsPeers, APoolThatRunsLowGrowsToItsBoundAndNoFurther) {
  VerbsConfig config;
  config.rail.most_receive_slots = 256;
  config.rail.most_queue_pairs = 14;  // All are in use: no slots are kept for others' first credit.
  config.rail.slot_bytes = 512;
  for (const bool when_armed : {true, false}) {
    fake_verbs::Config fake;
    fake.limit_event_when_armed = when_armed;
    make(15, config, fake);
    for (std::uint32_t from = 1; from < 15; ++from) establish(from, 0);
    const std::size_t bound = (256 + 512) * 512;
    const auto fill_all = [&] {
      for (std::uint32_t from = 1; from < 15; ++from)
        while (try_send(from, 0, Pattern(1).bytes(8)) == Status::kOk) {
        }
    };
    for (int round = 0; round < 300; ++round) {  // The windows grow as far as they may.
      fill_all();
      poll_all();
    }
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 3; ++i) {
        fill_all();
        for (std::uint32_t from = 1; from < 15; ++from) poll(from);
      }
      at(0).poll(sink(0), 1);  // Far too slow: its receives run out.
      static_cast<void>(at(0).arm());
      at(0).poll(sink(0), 1);
      at(0).disarm();
      EXPECT_LE(at(0).figures().registered_slot_bytes, bound);
    }
    EXPECT_GT(at(0).figures().registered_slot_bytes, 2u * 64 * 512);
    run_for(20);
    expect_bystander_unharmed();
  }
}

}  // namespace
}  // namespace ch3_offload
