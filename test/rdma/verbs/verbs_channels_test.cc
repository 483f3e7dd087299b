// Introductions, peers that lie, channels that break, and deaths.

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
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
class VerbsChannels : public VerbsProviders {
 protected:
  /// Polls the attacked one until it answers with a frame. None: it closed the connection.
  std::optional<Frame> answer(HostilePeer& peer) {
    std::optional<Frame> frame;
    EXPECT_TRUE(run_until([&] { return (frame = peer.receive()) || peer.closed; }));
    return frame;
  }
  std::unique_ptr<HostilePeer> make_hostile() {
    return std::make_unique<HostilePeer>(PeerId{kHostile}, verbs_test_secret());
  }
  /// One that introduced itself properly.
  std::unique_ptr<HostilePeer> make_introduced() {
    std::unique_ptr<HostilePeer> peer = make_hostile();
    peer->dial(at(0).local_address());
    peer->send(peer->introduction(PeerId{0}));
    const std::optional<Frame> frame = answer(*peer);
    EXPECT_TRUE(frame && frame->kind == FrameKind::kIntroduce);
    return peer;
  }
  /// One whose link is up; it may send Link::kFirstWindow slots.
  std::unique_ptr<HostilePeer> make_linked() {
    std::unique_ptr<HostilePeer> peer = make_introduced();
    peer->make_queue_pair();
    peer->send(peer->connect_frame(1));
    std::optional<Frame> frame = answer(*peer);
    EXPECT_TRUE(frame && frame->kind == FrameKind::kConnect);
    if (frame) peer->connect_queue_pair(frame->connect);
    frame = answer(*peer);
    EXPECT_TRUE(frame && frame->kind == FrameKind::kReady);
    peer->send_link(FrameKind::kReady, 1);
    run_for(1);
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
  /// Breaks TCP connections of this process that are established, each with the chance 1/`one_of`.
  static void break_channels(SeededRandom& random, std::uint64_t one_of) {
    DIR* const directory = ::opendir("/proc/self/fd");
    ASSERT_NE(directory, nullptr);
    while (const dirent* const entry = ::readdir(directory)) {
      const int descriptor = std::atoi(entry->d_name);
      sockaddr_storage peer{};
      socklen_t length = sizeof peer;
      if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
      if (peer.ss_family != AF_INET || random.below(one_of) != 0) continue;
      ::shutdown(descriptor, random.below(2) == 0 ? SHUT_RDWR : SHUT_WR);
    }
    ::closedir(directory);
  }
};

// Introductions

TEST_F(VerbsChannels, WhoDoesNotIntroduceItselfIsTurnedAway) {
  struct Case {
    const char* what;
    std::function<void(Frame&)> change;
    std::optional<Refusal> refusal;
  };
  const std::vector<Case> cases = {
      {"secret", [](Frame& f) { f.introduce.secret[3] ^= std::byte{1}; }, Refusal::kSecret},
      {"receiver", [](Frame& f) { f.introduce.receiver = 1; }, Refusal::kStranger},
      {"receiver's instance", [](Frame& f) { ++f.introduce.receiver_instance; }, Refusal::kStranger},
      {"sender's instance", [](Frame& f) { ++f.introduce.sender_instance; }, Refusal::kStranger},
      {"sender is the receiver", [](Frame& f) { f.introduce.sender = 0; }, Refusal::kStranger},
      {"sender's number", [](Frame& f) { f.introduce.sender = UINT32_MAX; }, Refusal::kStranger},
      {"first number that is too great", [](Frame& f) { f.introduce.sender = 1u << 20; }, Refusal::kStranger},
      {"address", [](Frame& f) { f.introduce.address[0] = 'x'; }, Refusal::kStranger},
      {"no address", [](Frame& f) { f.introduce.address = {}; }, Refusal::kStranger},
      {"another fabric", [](Frame& f) { f.introduce.address[8] = 'i'; }, Refusal::kStranger},
      {"short slots", [](Frame& f) { f.introduce.slot_bytes = 8191; }, Refusal::kStranger},
      {"version", [](Frame& f) { ++f.version; }, Refusal::kVersion},
      {"magic number", [](Frame& f) { f.magic ^= 1; }, {}},
      {"kind 0", [](Frame& f) { f.kind = FrameKind{}; }, {}},
      {"kind", [](Frame& f) { f.kind = FrameKind::kEnd; }, {}},
      {"Connect", [](Frame& f) { f = make_frame(FrameKind::kConnect); }, {}},
      {"Ready", [](Frame& f) { f = make_frame(FrameKind::kReady); }, {}},
      {"Bye", [](Frame& f) { f = make_frame(FrameKind::kBye); }, {}},
      {"endless address", [](Frame& f) { f.introduce.address.fill('v'); }, {}},
  };
  make(2);
  for (const Case& one : cases) {
    const std::unique_ptr<HostilePeer> peer = make_hostile();
    peer->dial(at(0).local_address());
    Frame frame = peer->introduction(PeerId{0});
    one.change(frame);
    peer->send(frame);
    const std::optional<Frame> reply = answer(*peer);
    ASSERT_EQ(reply.has_value(), one.refusal.has_value()) << one.what;
    if (reply) {
      EXPECT_EQ(reply->kind, FrameKind::kRefuse) << one.what;
      EXPECT_EQ(reply->refuse.reason, static_cast<std::uint32_t>(*one.refusal)) << one.what;
      EXPECT_FALSE(answer(*peer)) << one.what;
    }
    EXPECT_TRUE(peer->closed) << one.what;
  }
  EXPECT_TRUE(sink(0).events.empty());
  EXPECT_TRUE(logged("refused a connection"));
  EXPECT_LE(world_->lines.size(), 2u) << "nobody fills the log from outside";
  static_cast<void>(make_introduced());  // The real one is not harmed.
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, PiecesOfAnIntroductionAreWaitedFor) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_hostile();
  peer->dial(at(0).local_address());
  const Frame frame = peer->introduction(PeerId{0});
  for (std::size_t i = 0; i < sizeof frame; ++i) {
    peer->send_bytes(reinterpret_cast<const std::byte*>(&frame) + i, 1);
    poll(0);
  }
  const std::optional<Frame> reply = answer(*peer);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, FrameKind::kIntroduce);
}

TEST_F(VerbsChannels, GarbageFromStrangersHarmsNobody) {
  make(2);
  SeededRandom random(1);
  for (int i = 0; i < 300; ++i) {
    const std::unique_ptr<HostilePeer> peer = make_hostile();
    peer->dial(at(0).local_address());
    Frame frame = peer->introduction(PeerId{0});
    auto* const bytes = reinterpret_cast<unsigned char*>(&frame);
    for (std::uint64_t n = random.below(3); n > 0; --n)
      bytes[random.below(sizeof frame)] = static_cast<unsigned char>(random.next());
    frame.introduce.secret[0] = std::byte{0};
    peer->send_bytes(bytes, random.below(2) == 0 ? sizeof frame : random.below(sizeof frame));
    if (random.below(2) == 0) peer->socket.reset();
    poll(0);
  }
  run_for(5);
  EXPECT_TRUE(sink(0).events.empty());
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, ManySilentConnectionsKeepNobodyOut) {
  make(2);
  const VerbsAddress address = *VerbsAddress::parse(at(0).local_address());
  const SocketAddress to = *socket_address(address.hosts[0], address.port);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 1600; ++i) {
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!silent.back().valid()) break;  // A machine with few descriptors.
    ASSERT_EQ(::connect(silent.back().get(), to.get(), to.length), 0);
    if (i % 50 == 0) poll(0);
  }
  run_for(5);
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, SilentConnectionsThatTakeAllDescriptorsKeepNobodyOut) {
  make(2);
  const VerbsAddress address = *VerbsAddress::parse(at(0).local_address());
  const SocketAddress to = *socket_address(address.hosts[0], address.port);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 60; ++i) {
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(silent.back().get(), to.get(), to.length), 0);
  }
  connect(1, 0);  // Its dial has its descriptor.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(FileDescriptor(::dup(0)).get()) + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::vector<std::byte> message = Pattern(1).bytes(9);
  Status status = Status::kAgain;
  const bool sent = run_until([&] { return (status = try_send(1, 0, message)) == Status::kOk; }, 3000);
  const bool arrived = run_until([&] { return sink(0).count(Kind::kMessage) == 1; }, 3000);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(sent && arrived);
}

TEST_F(VerbsChannels, AConnectionThatWaitsTooLongForADescriptorIsRefused) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  connect(1, 0);  // Its dial has its descriptor.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(FileDescriptor(::dup(0)).get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  // Descriptors of our own dials, too, would come from what is freed meanwhile.
  std::vector<FileDescriptor> taken;
  for (FileDescriptor one(::dup(0)); one.valid(); one = FileDescriptor(::dup(0)))
    taken.push_back(std::move(one));
  const bool told =
      run_until([&] { return sink(0).count(Kind::kPeerDown) == 1 && sink(1).count(Kind::kPeerDown) == 1; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(told) << "each may wait for the other";
  EXPECT_TRUE(logged("those that wait are refused"));
}

// Frames

TEST_F(VerbsChannels, WhoBreaksTheProtocolIsCutOff) {
  struct Case {
    const char* what;
    std::function<void(HostilePeer&)> act;
    Status reason = Status::kProtocol;
  };
  const auto raw = [](std::function<void(Frame&)> change) {
    return [change](HostilePeer& peer) {
      Frame frame = peer.connect_frame(1);
      change(frame);
      peer.send(frame);
    };
  };
  const std::vector<Case> cases = {
      {"a second introduction", [](HostilePeer& p) { p.send(p.introduction(PeerId{0})); }},
      {"a refusal",
       [](HostilePeer& p) {
         Frame frame = make_frame(FrameKind::kRefuse);
         frame.refuse.reason = 1;
         p.send(frame);
       }},
      {"another version", raw([](Frame& f) { f.version = Frame::kVersion + 1; })},
      {"no magic number", raw([](Frame& f) { f.magic = 0; })},
      {"an unknown kind", raw([](Frame& f) { f.kind = static_cast<FrameKind>(200); })},
      {"link 0", raw([](Frame& f) { f.connect.link = 0; })},
      {"a link behind the last", raw([](Frame& f) { f.connect.link = (1u << 31) + 1; })},
      {"a long queue pair number", raw([](Frame& f) { f.connect.queue_pair = 1u << 24; })},
      {"a long sequence number", raw([](Frame& f) { f.connect.packet_sequence = UINT32_MAX; })},
      {"mtu 0", raw([](Frame& f) { f.connect.mtu = 0; })},
      {"mtu 6", raw([](Frame& f) { f.connect.mtu = 6; })},
      {"a lane that cannot be", raw([](Frame& f) { f.connect.lane = kMostLanes; })},
      {"a lane for which there are no rails", raw([](Frame& f) { f.connect.lane = 1; })},
      {"a limit below what came", raw([](Frame& f) {
         f.connect.received = 9;
         f.connect.limit = 8;
       })},
      {"items that were never sent", raw([](Frame& f) {
         f.connect.received = 2;
         f.connect.limit = 8;
       }),
       Status::kPeerFailed},
      {"goodbye", [](HostilePeer& p) { p.send(make_frame(FrameKind::kBye)); }, Status::kPeerFailed},
  };
  for (const Case& one : cases) {
    make(2);
    SCOPED_TRACE(one.what);
    const std::unique_ptr<HostilePeer> peer = make_introduced();
    peer->make_queue_pair();
    one.act(*peer);
    expect_down(one.reason);
    expect_bystander_unharmed();
    run_for(2);
    EXPECT_EQ(sink(0).count(Kind::kPeerDown), 1u);
    const Result<Endpoint*> again = try_connect(0, kHostile, peer->address.to_string());
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().status, Status::kPeerFailed);
  }
}

TEST_F(VerbsChannels, LateFramesAreIgnored) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->send_link(FrameKind::kReady, 1);
  peer->send_link(FrameKind::kReady, 7);
  peer->send_link(FrameKind::kPark, 9);
  peer->send(peer->connect_frame(1));
  run_for(10);
  EXPECT_TRUE(sink(0).events.empty());
  peer->send_slot({.limit = 4, .kind = SlotHeader::kMessage}, 100);
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kMessage) == 1; }));
  EXPECT_EQ(sink(0).events[0].bytes.size(), 92u);
}

TEST_F(VerbsChannels, ReadyBeforeConnectIsIgnored) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_introduced();
  peer->send_link(FrameKind::kReady, 1);
  peer->send_link(FrameKind::kPark, 1, 17);
  run_for(5);
  EXPECT_TRUE(sink(0).events.empty());
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, WhoParksAndLiesIsCutOff) {
  for (const std::uint64_t sent : {std::uint64_t{0}, std::uint64_t{1000}, UINT64_MAX}) {
    make(2);
    const std::unique_ptr<HostilePeer> peer = make_linked();
    peer->send_slot({.limit = 4, .kind = SlotHeader::kMessage}, 100);
    ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kMessage) == 1; }));
    peer->send_link(FrameKind::kPark, 1, sent);
    expect_down(Status::kProtocol);
    expect_bystander_unharmed();
  }
}

TEST_F(VerbsChannels, LinkNumbersMayJump) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  for (const std::uint32_t link : {2u, 7u, 263u, (1u << 31) - 1, 1u << 31}) {
    peer->make_queue_pair();
    peer->send(peer->connect_frame(link));
    for (;;) {  // Frames of the links before may come first.
      const std::optional<Frame> frame = answer(*peer);
      ASSERT_TRUE(frame) << link;
      if (frame->kind == FrameKind::kConnect && frame->connect.link == link) break;
    }
  }
  peer->send(peer->connect_frame(1));
  peer->send(make_frame(FrameKind::kBye));
  expect_down(Status::kPeerFailed);
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, ConnectWithoutEndEndsNothing) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_introduced();
  for (std::uint32_t link = 1; link <= 500; ++link) {
    peer->send(peer->connect_frame(link));
    if (link % 8 == 0) {
      poll_all();
      while (peer->receive()) {
      }
    }
  }
  run_for(20);
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, FramesAtRandom) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    make(2);
    SeededRandom random(seed);
    const std::unique_ptr<HostilePeer> peer = random.below(2) == 0 ? make_introduced() : make_linked();
    const auto small = [&] { return static_cast<std::uint32_t>(random.below(4)); };
    for (std::uint64_t n = random.between(1, 30); n > 0; --n) {
      Frame frame = peer->connect_frame(small(), small(), random.below(8));
      switch (random.below(6)) {
        case 0: peer->send_link(FrameKind::kReady, small()); continue;
        case 1: peer->send_link(FrameKind::kPark, small(), small()); continue;
        case 2:
          if (peer->queue_pair != nullptr)
            peer->send_slot({.limit = static_cast<std::uint32_t>(random.next()),
                             .kind = static_cast<std::uint8_t>(1 + random.below(2)),
                             .flags = static_cast<std::uint8_t>(random.below(2))},
                            8 + random.below(2) * 10);
          continue;
        case 3: poll(0); continue;
        default: break;
      }
      frame.connect.queue_pair = random.below(2) == 0 ? frame.connect.queue_pair : small();
      peer->send(frame);
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

TEST_F(VerbsChannels, SlotsThatAreNoneCutTheirSenderOff) {
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
      {"kind 3", {.kind = 3}, 100},
      {"credit with a payload", {.kind = SlotHeader::kCreditOnly}, 9},
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

TEST_F(VerbsChannels, WhoSendsMoreThanItsCreditIsCutOff) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  for (std::uint32_t i = 0; i <= Link::kFirstWindow; ++i)
    peer->send_slot({.limit = 4, .kind = SlotHeader::kMessage}, 20);
  expect_down(Status::kProtocol);
  EXPECT_EQ(sink(0).count(Kind::kMessage), Link::kFirstWindow);
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, ASlotLongerThanOursBreaksOnlyItsLink) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->send_slot({.limit = 4, .kind = SlotHeader::kMessage}, 8500);
  run_for(20);
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, AWriteToMemoryThatIsNotTheirsBreaksOnlyItsLink) {
  make(2);
  const std::unique_ptr<HostilePeer> peer = make_linked();
  peer->send_slot({}, 64, IBV_WR_RDMA_WRITE);
  run_for(20);
  EXPECT_EQ(sink(0).count(Kind::kWriteArrived), 0u);
  expect_bystander_unharmed();
}

// Channels that break

TEST_F(VerbsChannels, BothMayDialAtOnce) {
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
TEST_F(VerbsChannels, ADialThatHasNotArrivedRefusesNobody) {
  make(2);
  const FullPort full;
  const std::unique_ptr<HostilePeer> peer = make_hostile();
  peer->address.port = full.port;
  ASSERT_TRUE(try_connect(0, kHostile, peer->address.to_string()).ok());
  run_for(50);
  peer->dial(at(0).local_address());
  peer->send(peer->introduction(PeerId{0}));
  const std::optional<Frame> frame = answer(*peer);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, FrameKind::kIntroduce);
}

TEST_F(VerbsChannels, AChannelThatBreaksIsDialledAgain) {
  make(3);
  SeededRandom random(5);
  Traffic traffic(*world_, 4000, 100, 30'000);
  for (std::uint32_t from = 0; from < 3; ++from)
    for (std::uint32_t to = 0; to < 3; ++to)
      if (from != to) traffic.add(PeerId{from}, PeerId{to});
  std::uint64_t next_harm = 0;
  ASSERT_TRUE(traffic.run(random, [&] {
    if (traffic.progress() < next_harm) return;
    next_harm = traffic.progress() + 200;
    break_channels(random, 3);
  }));
}

TEST_F(VerbsChannels, ChannelsAndQueuePairsThatBreakTogether) {
  for (std::uint64_t seed = 20; seed < 26; ++seed) {
    fake_verbs::Config fake;
    fake.retry_timeout = std::chrono::milliseconds(5);
    fake.devices[0].ports[0].max_message_bytes = 10'000;
    VerbsConfig config;
    config.rail.most_queue_pairs = seed % 2 == 0 ? 2 : 256;
    make(4, config, fake);
    SeededRandom random(seed);
    Traffic traffic(*world_, 150, 10, 30'000);
    for (std::uint32_t from = 0; from < 4; ++from)
      for (std::uint32_t to = 0; to < 4; ++to)
        if (from != to) traffic.add(PeerId{from}, PeerId{to});
    std::uint64_t next_harm = 0;
    ASSERT_TRUE(traffic.run(random,
                            [&] {
                              if (traffic.progress() < next_harm) return;
                              next_harm = traffic.progress() + 1 + random.below(200);
                              if (random.below(2) == 0) break_channels(random, 4);
                              for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
                                if (random.below(8) == 0) fake_verbs::kill_queue_pair("fake0", pair.number);
                            }))
        << "seed " << seed;
  }
}

// Deaths

TEST_F(VerbsChannels, DeathAtAnyMomentIsToldOnceAndLeavesNothing) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SeededRandom random(seed);
    fake_verbs::Config fake;
    fake.retry_timeout = std::chrono::milliseconds(random.below(2) == 0 ? 2 : 200);
    fake.devices[0].ports[0].max_message_bytes = 9'000;
    fake.acknowledge_delay = std::chrono::microseconds(random.below(2) * 300);
    make(3, {}, fake);
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

TEST_F(VerbsChannels, AnotherProcessAtThePortOfADeadOneIsNotMistakenForIt) {
  for (const bool introduces : {false, true}) {
    make(2);
    const std::unique_ptr<HostilePeer> peer = make_introduced();
    peer->socket.reset();
    peer->closed = false;
    ASSERT_TRUE(run_until([&] {  // It is dialled.
      int error_number = 0;
      peer->socket = accept_channel(peer->listener, error_number);
      return peer->socket.valid();
    }));
    const std::optional<Frame> frame = answer(*peer);
    ASSERT_TRUE(frame && frame->kind == FrameKind::kIntroduce);
    EXPECT_EQ(frame->introduce.receiver_instance, peer->address.instance);
    Frame reply = make_frame(FrameKind::kRefuse);
    reply.refuse.reason = static_cast<std::uint32_t>(Refusal::kStranger);
    if (introduces) {
      ++peer->address.instance;
      reply = peer->introduction(PeerId{0});
    }
    peer->send(reply);
    expect_down(Status::kPeerFailed);
    expect_bystander_unharmed();
  }
}

TEST_F(VerbsChannels, WhoCannotBeReachedIsDeadAfterTheTimeOut) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  const FullPort full;
  VerbsAddress silent = *VerbsAddress::parse(at(1).local_address());
  silent.hosts = {"127.0.0.1"};
  silent.port = full.port;
  ASSERT_TRUE(try_connect(0, 6, silent.to_string()).ok());
  run_for(850);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) == 1; }, 3000));
  EXPECT_TRUE(logged("has not answered for 1 s"));
  EXPECT_EQ(sink(0).events.back().status, Status::kPeerFailed);
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, WhoDoesNotPollIsNotDead) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  fake_verbs::Config fake;
  fake.retry_timeout = std::chrono::milliseconds(20);
  make(4, config, fake);
  establish(0, 1);
  establish(0, 2);
  connect(0, 3);  // Never answered, as 3 does not poll at all.
  for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
    fake_verbs::kill_queue_pair("fake0", pair.number);  // Nor is 0's new proposal to 1 and 2.
  static_cast<void>(try_send(0, 1, Pattern(4).bytes(20)) == Status::kOk);
  static_cast<void>(try_send(0, 2, Pattern(4).bytes(20)) == Status::kOk);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < until) {
    poll(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 0u);
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
TEST_F(VerbsChannels, WhoDidNotPollForLongTriesBeforeItTakesAnybodyForDead) {
  VerbsConfig config;
  config.peer_timeout_ms = 1000;
  make(2, config);
  establish(0, 1);
  SeededRandom random(1);
  break_channels(random, 1);
  poll(0);  // Sees it.
  for (const fake_verbs::QueuePairInfo& pair : fake_verbs::queue_pairs())
    fake_verbs::kill_queue_pair("fake0", pair.number);
  poll(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // Computes.
  establish(0, 1);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown) + sink(1).count(Kind::kPeerDown), 0u);
}

// Goodbye

TEST_F(VerbsChannels, WhatWasCommittedBeforeTheEndArrives) {
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

TEST_F(VerbsChannels, TheEndDoesNotWaitForEver) {
  make(2);
  establish(0, 1);
  fake_verbs::set_link("fake0", false);
  ASSERT_EQ(try_send(0, 1, Pattern(1).bytes(60)), Status::kOk);
  const auto start = std::chrono::steady_clock::now();
  world_->leave(PeerId{0});
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(took, std::chrono::milliseconds(1500));
  EXPECT_LT(took, std::chrono::milliseconds(4000));
}

// The device

TEST_F(VerbsChannels, AFatalEventEndsEveryConnection) {
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

TEST_F(VerbsChannels, EventsOfThePortAreLogged) {
  make(2);
  establish(0, 1);
  fake_verbs::set_link("fake0", false);
  run_for(3);
  EXPECT_TRUE(logged("the port fake0:1:1 (RoCE v2, 127.0.0.1"));
  EXPECT_TRUE(logged("went down; waiting up to 10 s"));
  fake_verbs::set_link("fake0", true);
  run_for(3);
  EXPECT_TRUE(logged("is up again"));
  for (const ibv_event_type other : {IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
                                     IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE})
    fake_verbs::raise_event("fake0", other);
  expect_bystander_unharmed();
}

TEST_F(VerbsChannels, APoolThatRunsLowGrowsToItsBoundAndNoFurther) {
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
