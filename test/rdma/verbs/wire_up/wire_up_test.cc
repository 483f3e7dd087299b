// Introductions over loopback, without any RDMA device: who gets introduced, who is turned away, what counts
// as evidence of death, and how many descriptors it takes.

#include "rdma/verbs/wire_up/wire_up.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

using namespace std::chrono_literals;

JobSecret job_secret(unsigned char fill = 0x5A) {
  JobSecret secret;
  secret.fill(static_cast<std::byte>(fill));
  return secret;
}

/// A process as the wire-up sees it: it offers as soon as it may, and keeps what happened.
class Process final : public WireUp::Client {
 public:
  explicit Process(std::uint32_t number, const JobSecret& secret = job_secret(), int timeout_ms = 10'000)
      : self(PeerId{number}) {
    address.ethernet = true;
    address.hosts = {"127.0.0.1"};
    address.networks = {0};
    address.slot_bytes = 8192;
    address.instance = 0x1000u + number;
    Result<FileDescriptor> listener = listen_for_streams(address.hosts[0], address.port);
    EXPECT_TRUE(listener.ok());
    std::vector<FileDescriptor> listeners;
    listeners.push_back(std::move(listener.value()));
    const auto log = [](void* process, LogScope, const char* line) {
      static_cast<Process*>(process)->lines.push_back(line);
    };
    wire_up = std::make_unique<WireUp>(WireUp::Config{self, secret, timeout_ms, Log(log, this)}, address,
                                       std::move(listeners), *this);
  }

  void poll() {
    wire_up->service();
    wire_up->tick(monotonic_ns());
  }
  WireUp::Contact& contact(std::uint32_t peer, std::uint8_t lane = 0) {
    auto& made = contacts[{peer, lane}];
    if (made == nullptr) {
      wire_up->make_room(contacts.size());
      made = std::make_unique<WireUp::Contact>(PeerId{peer}, lane);
      made->names = {self, PeerId{peer}};
    }
    return *made;
  }
  void seek(const Process& other, std::uint32_t number, std::uint8_t lane = 0) {
    if (addresses[number] == nullptr) addresses[number] = std::make_unique<VerbsAddress>(other.address);
    wire_up->seek(contact(number, lane), *addresses[number]);
  }

  WireUp::Contact* meet(const HelloBody& body, const VerbsAddress&) override {
    ++met;
    if (turns_away) return nullptr;
    return &contact(body.sender, static_cast<std::uint8_t>(body.lane));
  }
  std::uint32_t last_link(const WireUp::Contact&) const noexcept override { return 3; }
  void on_answer(WireUp::Contact& whom, std::uint32_t link) noexcept override {
    EXPECT_EQ(link, 3u);
    ++answers;
    if (!withholds) wire_up->offer(whom, {.link = 4, .queue_pair = 1, .mtu = 1});
  }
  void on_offer(WireUp::Contact& whom, const OfferBody& offer, bool is_answer) noexcept override {
    EXPECT_EQ(offer.link, 4u);
    ++offers;
    if (is_answer) {
      wire_up->ready(whom);
      up.push_back(index_of(whom.id));
    } else if (!withholds) {
      wire_up->offer(whom, {.link = 4, .queue_pair = 2, .mtu = 1});
    }
  }
  void on_ready(WireUp::Contact& whom) noexcept override { up.push_back(index_of(whom.id)); }
  void on_broken(WireUp::Contact&) noexcept override { ++broken; }
  void on_knock(WireUp::Contact& whom, std::uint32_t) noexcept override {
    ++knocks;
    const auto known = addresses.find(index_of(whom.id));
    if (known != addresses.end()) wire_up->seek(whom, *known->second);
  }
  void on_gone(WireUp::Contact& whom, const char*) noexcept override {
    gone.push_back(index_of(whom.id));
    wire_up->drop(whom);
  }
  void on_silence(WireUp::Contact&, WireUp::Silence silence) noexcept override {
    ++(silence == WireUp::Silence::kUnreachable ? unreachable : unanswered);
  }

  const PeerId self;
  VerbsAddress address;
  std::map<std::pair<std::uint32_t, std::uint8_t>, std::unique_ptr<WireUp::Contact>> contacts;
  std::map<std::uint32_t, std::unique_ptr<VerbsAddress>> addresses;
  bool withholds = false;   ///< Has no queue pair for an offer.
  bool turns_away = false;  ///< Knows nobody.
  int met = 0, answers = 0, offers = 0, broken = 0, knocks = 0, unreachable = 0, unanswered = 0;
  std::vector<std::uint32_t> up, gone;
  std::vector<std::string> lines;
  std::unique_ptr<WireUp> wire_up;
};

class WireUps : public testing::Test {
 protected:
  /// Polls `processes` until `done()`.
  template <class Condition>
  static bool run_until(std::initializer_list<Process*> processes, Condition done,
                        std::chrono::milliseconds wait = 30s) {
    const auto deadline = std::chrono::steady_clock::now() + wait;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      for (Process* const process : processes) process->poll();
      std::this_thread::sleep_for(100us);
    }
    return true;
  }
  static void run_for(std::initializer_list<Process*> processes, std::chrono::milliseconds time) {
    run_until(
        processes, [] { return false; }, time);
  }
  static FileDescriptor connect_to(const VerbsAddress& address) {
    const SocketAddress to = *socket_address(address.hosts[0], address.port);
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), to.get(), to.length), 0) << std::strerror(errno);
    return socket;
  }
  static void say(const FileDescriptor& socket, const void* bytes, std::size_t length) {
    static_cast<void>(!::send(socket.get(), bytes, length, MSG_NOSIGNAL));
  }
  static std::vector<std::byte> hear(const FileDescriptor& socket) {
    std::vector<std::byte> heard(4096);
    const ssize_t got = ::recv(socket.get(), heard.data(), heard.size(), MSG_DONTWAIT);
    heard.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return heard;
  }
};

TEST_F(WireUps, TwoProcessesAgree) {
  Process a(0), b(1);
  a.seek(b, 1);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1 && b.up.size() == 1; }));
  EXPECT_EQ(a.answers, 1);
  EXPECT_EQ(b.offers, 1);
  EXPECT_EQ(a.broken + b.broken, 0);
  run_for({&a, &b}, 10ms);
  EXPECT_EQ(a.wire_up->descriptors(), 1u) << "no connection stays";
  EXPECT_EQ(b.wire_up->descriptors(), 1u);
  EXPECT_EQ(a.wire_up->tick_ns(), 0u) << "and nothing wakes it";
  EXPECT_EQ(b.wire_up->tick_ns(), 0u);
}

TEST_F(WireUps, LanesAreIntroducedBySeparateConnections) {
  Process a(0), b(1);
  a.seek(b, 1, 0);
  a.seek(b, 1, 1);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 2 && b.up.size() == 2; }));
}

TEST(ComesFirst, IsOneOfTwoWhateverTheirNumbers) {
  for (std::uint32_t bits = 0; bits < 64; ++bits) {
    const auto bit = [bits](int n) { return bits >> n & 1; };
    const PeerId one{bit(0)}, other{bit(1)}, one_at_other{bit(2)}, other_at_one{bit(3)};
    const bool first = comes_first(one, bit(4), other_at_one, {one_at_other, other}, bit(5));
    const bool second = comes_first(other, bit(5), one_at_other, {other_at_one, one}, bit(4));
    const bool are_alike = bit(0) == bit(1) && bit(2) == bit(3) && bit(4) == bit(5);
    EXPECT_EQ(first != second, !are_alike) << bits;
  }
  EXPECT_TRUE(comes_first(PeerId{2}, 9, PeerId{5}, {PeerId{2}, PeerId{5}}, 1)) << "the lower rank of a job";
}

TEST_F(WireUps, BothMayDialAtOnce) {
  for (int round = 0; round < 200; ++round) {
    Process a(0), b(1);
    a.seek(b, 1);
    if (round % 3 == 0) a.poll();
    if (round % 5 == 0) b.poll();
    b.seek(a, 0);
    if (round % 2 == 0) b.poll();
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); })) << round;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 900ms) << "nobody waits for a redial";
    EXPECT_EQ(a.up.size(), 1u);
    EXPECT_EQ(b.up.size(), 1u);
    run_for({&a, &b}, 1ms);
    EXPECT_FALSE(a.contact(1).is_sought()) << round;
    EXPECT_FALSE(b.contact(0).is_sought()) << round;
  }
}

TEST_F(WireUps, AQueuePairMayComeLate) {
  for (const bool at_dialler : {true, false}) {
    Process a(0), b(1);
    (at_dialler ? a : b).withholds = true;
    a.seek(b, 1);
    ASSERT_TRUE(run_until({&a, &b}, [&] { return at_dialler ? a.answers == 1 : b.offers == 1; }));
    run_for({&a, &b}, 300ms);
    EXPECT_TRUE(a.up.empty() && b.up.empty());
    (at_dialler ? a : b).withholds = false;
    (at_dialler ? a : b).wire_up->offer(at_dialler ? a.contact(1) : b.contact(0), {.link = 4, .mtu = 1});
    ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1 && b.up.size() == 1; }));
  }
}

// Who is turned away

TEST_F(WireUps, AnotherJobIsTurnedAway) {
  Process a(0, job_secret(1)), b(1, job_secret(2));
  a.seek(b, 1);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.gone.empty(); }));
  EXPECT_EQ(b.met, 0) << "whoever does not know the secret is not even looked up";
  EXPECT_TRUE(b.up.empty());
  ASSERT_EQ(b.lines.size(), 1u);
  EXPECT_NE(b.lines[0].find("does not know the job's secret"), std::string::npos);
}

TEST_F(WireUps, AnotherProcessAtThePortIsNotMistakenForThePeer) {
  Process a(0), b(1);
  ++b.address.instance;  // What a was told of.
  a.seek(b, 1);
  --b.address.instance;
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.gone.empty(); }));
  EXPECT_TRUE(a.up.empty() && b.up.empty());
}

TEST_F(WireUps, WhoIsNotKnownAnyMoreIsGone) {
  Process a(0), b(1);
  b.turns_away = true;
  a.seek(b, 1);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.gone.size() == 1; }));
  run_for({&a, &b}, 300ms);
  EXPECT_EQ(a.gone.size(), 1u);
}

TEST_F(WireUps, AListenerThatRecordsADialLearnsNothingThatLetsItJoin) {
  Process a(0), b(1);
  // The port of b, freed and taken by somebody else.
  std::uint16_t port = 0;
  Result<FileDescriptor> thief = listen_for_streams("127.0.0.1", port);
  ASSERT_TRUE(thief.ok());
  Process pretended(1);
  pretended.address.port = port;
  a.seek(pretended, 1);
  FileDescriptor taken;
  ASSERT_TRUE(run_until({&a}, [&] {
    int error = 0;
    if (!taken.valid()) taken = accept_stream(thief.value(), error);
    return taken.valid();
  }));
  std::vector<std::byte> recorded;
  ASSERT_TRUE(run_until({&a}, [&] {
    const std::vector<std::byte> more = hear(taken);
    recorded.insert(recorded.end(), more.begin(), more.end());
    return recorded.size() >= sizeof(Frame);
  }));
  const JobSecret secret = job_secret();
  EXPECT_EQ(std::search(recorded.begin(), recorded.end(), secret.begin(), secret.end()), recorded.end());
  // It answers with what it has heard, and dials b with it.
  say(taken, recorded.data(), recorded.size());
  const FileDescriptor forged = connect_to(b.address);
  say(forged, recorded.data(), recorded.size());
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.gone.empty(); }));
  EXPECT_TRUE(a.up.empty() && b.up.empty());
  EXPECT_EQ(a.answers + b.offers, 0);
}

/// Stands between two processes, passes on what they say, and keeps what the dialler says.
TEST_F(WireUps, AReplayedIntroductionIsRefusedAndDisturbsNobody) {
  Process a(0), b(1);
  std::uint16_t port = 0;
  Result<FileDescriptor> between = listen_for_streams("127.0.0.1", port);
  ASSERT_TRUE(between.ok());
  const std::uint16_t real_port = b.address.port;
  b.address.port = port;
  a.seek(b, 1);
  b.address.port = real_port;
  FileDescriptor left;
  const FileDescriptor right = connect_to(b.address);
  std::vector<std::byte> recorded;
  ASSERT_TRUE(run_until({&a, &b}, [&] {
    int error = 0;
    if (!left.valid()) left = accept_stream(between.value(), error);
    if (left.valid()) {
      const std::vector<std::byte> forth = hear(left), back = hear(right);
      recorded.insert(recorded.end(), forth.begin(), forth.end());
      say(right, forth.data(), forth.size());
      say(left, back.data(), back.size());
    }
    return a.up.size() == 1 && b.up.size() == 1;
  }));
  ASSERT_EQ(recorded.size(), 3 * sizeof(Frame));
  const int offers = b.offers;
  const FileDescriptor replay = connect_to(b.address);
  say(replay, recorded.data(), recorded.size());
  ASSERT_TRUE(run_until({&b}, [&] { return !b.lines.empty(); }));
  EXPECT_NE(b.lines[0].find("repeats what another process said"), std::string::npos) << b.lines[0];
  run_for({&a, &b}, 10ms);
  EXPECT_EQ(b.offers, offers) << "it changes nothing";
  EXPECT_EQ(b.broken + b.knocks, 0);
  EXPECT_EQ(b.wire_up->descriptors(), 1u);
}

TEST_F(WireUps, TwoThousandSilentConnectionsKeepNobodyOut) {
  Process a(0), b(1);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 2000; ++i) {
    silent.push_back(connect_to(b.address));
    if (i % 100 == 0) b.poll();
  }
  a.seek(b, 1);
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }, 5s));
  EXPECT_LE(b.wire_up->descriptors(), WireUp::kMostGuests + 1);
}

TEST_F(WireUps, NoMoreThanSixteenAreAcceptedAtOnce) {
  Process b(1);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to(b.address));
  b.wire_up->service();
  EXPECT_EQ(b.wire_up->descriptors(), 1u + WireUp::kMostAccepts);
}

TEST_F(WireUps, WhoSaysNothingIsClosed) {
  Process b(1, job_secret(), 1000);
  const FileDescriptor silent = connect_to(b.address);
  run_for({&b}, 100ms);
  EXPECT_EQ(b.wire_up->descriptors(), 2u);
  ASSERT_TRUE(run_until(
      {&b}, [&] { return b.wire_up->descriptors() == 1; }, 3s));
}

TEST_F(WireUps, GarbageIsTurnedAway) {
  Process b(1);
  std::vector<std::byte> garbage(sizeof(Frame), std::byte{0x77});
  for (int i = 0; i < 50; ++i) {
    const FileDescriptor socket = connect_to(b.address);
    say(socket, garbage.data(), garbage.size());
    run_for({&b}, 1ms);
  }
  run_for({&b}, 20ms);
  EXPECT_EQ(b.wire_up->descriptors(), 1u);
  EXPECT_EQ(b.lines.size(), 1u) << "nobody fills the log from outside";
}

// Evidence

TEST_F(WireUps, WhoRefusesADialIsGone) {
  Process a(0);
  auto b = std::make_unique<Process>(1);
  a.seek(*b, 1);
  a.poll();
  b.reset();
  ASSERT_TRUE(run_until({&a}, [&] { return a.gone.size() == 1; }));
  EXPECT_FALSE(a.contact(1).is_sought());
  EXPECT_EQ(a.unreachable + a.unanswered, 0);
}

TEST_F(WireUps, AProcessThatComputesIsNotGone) {
  Process a(0, job_secret(), 1000), b(1, job_secret(), 1000);
  a.seek(b, 1);
  run_for({&a}, 1300ms);
  EXPECT_TRUE(a.gone.empty());
  EXPECT_EQ(a.unreachable, 0);
  EXPECT_GE(a.unanswered, 1) << "it is told that the peer keeps it waiting";
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }));
}

/// The kernel drops what the backlog does not hold: no answer at all, as from a dead node.
TEST_F(WireUps, AFullBacklogIsNoEvidence) {
  Process a(0, job_secret(), 1000), b(1, job_secret(), 1000);
  std::uint16_t port = 0;
  Result<FileDescriptor> full = listen_for_streams("127.0.0.1", port);
  ASSERT_TRUE(full.ok());
  ASSERT_EQ(::listen(full.value().get(), 0), 0);
  const SocketAddress there = *socket_address("127.0.0.1", port);
  std::vector<FileDescriptor> fillers;
  for (int i = 0; i < 4; ++i) {
    fillers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    static_cast<void>(::connect(fillers.back().get(), there.get(), there.length));
  }
  const std::uint16_t real_port = b.address.port;
  b.address.port = port;
  a.seek(b, 1);
  b.address.port = real_port;
  ASSERT_TRUE(run_until(
      {&a}, [&] { return a.unreachable >= 2; }, 10s));
  EXPECT_TRUE(a.gone.empty());
  EXPECT_TRUE(a.contact(1).is_sought()) << "it goes on";
}

/// What took no try is no silence.
TEST_F(WireUps, TimeInWhichThisProcessComputesIsNotThePeersSilence) {
  Process a(0, job_secret(), 1000), b(1);
  a.seek(b, 1);
  a.poll();
  std::this_thread::sleep_for(1500ms);
  a.poll();
  EXPECT_EQ(a.unanswered + a.unreachable, 0);
}

/// One address of the peer's refuses, as a firewall may; at the other one it computes.
TEST_F(WireUps, OneAddressThatRefusesIsNoEvidence) {
  Process a(0, job_secret(), 1000), b(1, job_secret(), 1000);
  const std::vector<std::string> real = b.address.hosts;
  b.address.hosts = {"127.0.0.7", "127.0.0.1"};  // Nobody listens at the first one.
  a.seek(b, 1);
  b.address.hosts = real;
  run_for({&a}, 2600ms);  // It is dialled again and again.
  EXPECT_GE(a.wire_up->dials_made(), 4u);
  EXPECT_TRUE(a.gone.empty());
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }));
}

TEST_F(WireUps, ACheckFindsOutWhetherSomebodyListens) {
  Process a(0);
  auto b = std::make_unique<Process>(1);
  a.wire_up->check(a.contact(1), b->address);
  ASSERT_TRUE(run_until({&a, b.get()}, [&] { return !a.contact(1).is_sought(); }));
  EXPECT_TRUE(a.gone.empty());
  EXPECT_EQ(b->met, 0);
  const VerbsAddress address = b->address;
  b.reset();
  a.wire_up->check(a.contact(1), address);
  ASSERT_TRUE(run_until({&a}, [&] { return a.gone.size() == 1; }));
}

/// Each has found the other one computing, and has hung up.
TEST_F(WireUps, TwoThatKnockedAtEachOtherMeetAtOnce) {
  constexpr std::uint32_t kOthers = 80;
  Process a(0), b(1);
  std::vector<std::unique_ptr<Process>> others;
  for (std::uint32_t i = 2; i < 2 + kOthers; ++i) others.push_back(std::make_unique<Process>(i));
  a.seek(b, 1);
  for (std::uint32_t i = 0; i < kOthers; ++i) a.seek(*others[i], i + 2);
  run_for({&a}, 600ms);  // Its dial of b has made way.
  b.seek(a, 0);
  for (std::uint32_t i = 0; i < kOthers; ++i) b.seek(*others[i], i + 2);
  run_for({&b}, 600ms);
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return std::ranges::count(a.up, 1u) == 1 && std::ranges::count(b.up, 0u) == 1; }, 1s));
}

// Many peers

/// The dialler has fewer descriptors than there are peers that compute. Those that poll are reached all the
/// same, and the others dial back when they poll.
TEST_F(WireUps, PeersThatComputeKeepNobodyWaiting) {
  constexpr std::uint32_t kComputing = 150;
  Process a(0), ready(1000);
  std::vector<std::unique_ptr<Process>> computing;
  for (std::uint32_t i = 1; i <= kComputing; ++i) {
    computing.push_back(std::make_unique<Process>(i));
    a.seek(*computing.back(), i);
  }
  a.seek(ready, 1000);
  ASSERT_TRUE(run_until(
      {&a, &ready}, [&] { return !ready.up.empty(); }, 3s));
  run_until(
      {&a}, [&] { return a.wire_up->dials_made() > kComputing; }, 3s);
  EXPECT_LE(a.wire_up->descriptors(), WireUp::kMostDials + 1);
  EXPECT_TRUE(a.gone.empty());
  // They poll now: some answer, some find a knock.
  for (const auto& one : computing) one->addresses[0] = std::make_unique<VerbsAddress>(a.address);
  const auto all_up = [&] {
    for (const auto& one : computing) one->poll();
    return a.up.size() == kComputing + 1;
  };
  ASSERT_TRUE(run_until({&a}, all_up, 4s)) << a.up.size();
  int knocks = 0;
  for (const auto& one : computing) knocks += one->knocks;
  EXPECT_GT(knocks, 0);
}

TEST_F(WireUps, AllToAllAtOnce) {
  constexpr std::uint32_t kProcesses = 24;
  std::vector<std::unique_ptr<Process>> all;
  for (std::uint32_t i = 0; i < kProcesses; ++i) all.push_back(std::make_unique<Process>(i));
  for (std::uint32_t i = 0; i < kProcesses; ++i)
    for (std::uint32_t j = 0; j < kProcesses; ++j)
      if (i != j) all[i]->seek(*all[j], j);
  ASSERT_TRUE(run_until({}, [&] {
    bool done = true;
    for (const auto& one : all) {
      one->poll();
      done = done && one->up.size() >= kProcesses - 1;
    }
    return done;
  }));
  for (const auto& one : all) {
    std::sort(one->up.begin(), one->up.end());
    EXPECT_EQ(one->up.size(), kProcesses - 1);
    EXPECT_EQ(std::unique(one->up.begin(), one->up.end()), one->up.end()) << "each once";
  }
}

TEST_F(WireUps, AnIntroductionThatBreaksIsTriedAgain) {
  Process a(0);
  auto b = std::make_unique<Process>(1);
  b->withholds = true;
  a.seek(*b, 1);
  ASSERT_TRUE(run_until({&a, b.get()}, [&] { return b->offers == 1; }));
  b->wire_up->drop(b->contact(0));
  b->withholds = false;
  ASSERT_TRUE(run_until({&a, b.get()}, [&] { return a.up.size() == 1 && b->up.size() == 1; }));
  EXPECT_EQ(a.broken, 1);
}

/// Else the queue pair that was made for it would wait for ever.
TEST_F(WireUps, AFrameThatIsRefusedAfterAnOfferBreaksItsIntroduction) {
  for (const bool is_of_another_version : {false, true}) {
    Process b(1);
    VerbsAddress address = b.address;
    address.instance = 7;
    const FileDescriptor dialler = connect_to(b.address);
    Transcript transcript(job_secret());
    const auto sign_and_say = [&](Frame frame) {
      transcript.sign(Speaker::kDialler, frame);
      say(dialler, &frame, sizeof frame);
    };
    Frame hello = make_frame(kLinks, FrameKind::kHello);
    hello.as<HelloBody>().receiver = hello.as<HelloBody>().known_as = 1;
    hello.as<HelloBody>().sender_instance = address.instance;
    hello.as<HelloBody>().receiver_instance = b.address.instance;
    const std::string text = address.to_string();
    std::memcpy(hello.as<HelloBody>().address.data(), text.data(), text.size());
    sign_and_say(hello);
    std::vector<std::byte> answer;
    ASSERT_TRUE(run_until({&b}, [&] { return !(answer = hear(dialler)).empty(); }));
    Frame heard;
    ASSERT_EQ(check_frame(answer, kLinks, heard), FrameCheck::kValid);
    ASSERT_TRUE(transcript.verify(Speaker::kAcceptor, heard));
    Frame offer = make_frame(kLinks, FrameKind::kOffer);
    offer.as<OfferBody>().link = 4;
    offer.as<OfferBody>().mtu = 1;
    sign_and_say(offer);
    ASSERT_TRUE(run_until({&b}, [&] { return b.offers == 1; }));
    Frame ready = make_frame(kLinks, FrameKind::kReady);  // Without a proof.
    ready.version = static_cast<std::uint16_t>(kLinkVersion + is_of_another_version);
    say(dialler, &ready, sizeof ready);
    ASSERT_TRUE(run_until({&b}, [&] { return b.wire_up->descriptors() == 1; }));
    EXPECT_EQ(b.broken, 1);
    EXPECT_TRUE(b.up.empty());
  }
}

TEST_F(WireUps, AContactThatIsDroppedIsNotCalledAbout) {
  Process a(0), b(1);
  a.seek(b, 1);
  a.poll();
  a.wire_up->drop(a.contact(1));
  run_for({&a, &b}, 20ms);
  EXPECT_EQ(a.answers + a.broken, 0);
  EXPECT_EQ(b.offers, 0);
  EXPECT_EQ(a.wire_up->descriptors(), 1u);
}

}  // namespace
}  // namespace ch3_offload
