// Introductions over loopback and on the node: who gets introduced, who is turned away, what counts as
// evidence of death, and how many descriptors it takes. What the two say is numbers (test_protocol.h).

#include "rdma/introduction/socket_introducer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "rdma/few_descriptors.h"
#include "rdma/introduction/test_protocol.h"
#include "rdma/job_secret.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

using namespace std::chrono_literals;

JobSecret job_secret(unsigned char fill = 0x5A) {
  JobSecret secret;
  secret.fill(static_cast<std::byte>(fill));
  return secret;
}

/// A process: it offers as soon as it may, and keeps what happened. Of two that dial, the lower number
/// counts.
class Process final : public Introducer::Client {
 public:
  struct Contact final : Introducer::Contact {
    std::uint32_t number = 0, purpose = 0;
    std::vector<SocketAddress> addresses;
  };
  struct Options {
    JobSecret secret = job_secret();
    bool is_secret = true;
    bool on_node = false;     ///< It listens at a name of the node.
    bool tells_late = false;  ///< Its Hello does not say who it is: its Offer does.
    bool keeps_connection = false;
    int timeout_ms = 10'000;
  };

  explicit Process(std::uint32_t number) : Process(number, Options{}) {}
  Process(std::uint32_t number, const Options& options) : self(number), tells_late(options.tells_late) {
    static int made = 0;
    at = options.on_node
             ? address_on_node("introducer-test-" + std::to_string(::getpid()) + "-" + std::to_string(made++))
             : *socket_address("127.0.0.1", 0);
    Result<FileDescriptor> listener = listen_for_streams(at);
    EXPECT_TRUE(listener.ok());
    std::vector<FileDescriptor> listeners;
    listeners.push_back(std::move(listener.value()));
    const auto log = [](void* process, LogScope, const char* line) {
      static_cast<Process*>(process)->lines.push_back(line);
    };
    introducer.emplace(SocketIntroducer::Config{.protocol = kNumbers,
                                                .secret = Transcript(options.secret),
                                                .is_secret = options.is_secret,
                                                .timeout_ms = options.timeout_ms,
                                                .guest_ms = options.timeout_ms / 2,
                                                .guests_wait = !options.tells_late,
                                                .keeps_connection = options.keeps_connection,
                                                .knock_ms = options.timeout_ms / 2,
                                                .name = "test: ",
                                                .log = Log(log, this)},
                       std::move(listeners), *this);
  }

  void poll() {
    introducer->service();
    introducer->tick(monotonic_ns());
  }
  Contact& contact(std::uint32_t peer, std::uint32_t purpose = 0) {
    auto& made = contacts[{peer, purpose}];
    if (made == nullptr) {
      introducer->make_room(contacts.size());
      made = std::make_unique<Contact>();
      made->number = peer;
      made->purpose = purpose;
    }
    return *made;
  }
  void seek(std::uint32_t number, std::vector<SocketAddress> addresses) {
    contact(number).addresses = std::move(addresses);
    introducer->seek(contact(number));
  }
  void seek(const Process& other, std::uint32_t purpose = 0) {
    contact(other.self, purpose).addresses = {other.at};
    introducer->seek(contact(other.self, purpose));
  }
  void offer(Introducer::Contact& whom) {
    Frame frame = number_frame(self);
    frame.as<NumberBody>().purpose = of(whom).purpose;
    introducer->offer(whom, frame);
  }

  std::size_t addresses(const Introducer::Contact& whom) const noexcept override {
    return of(whom).addresses.size();
  }
  SocketAddress address(const Introducer::Contact& whom, std::size_t index) const noexcept override {
    return of(whom).addresses[index];
  }
  bool our_dial_counts(const Introducer::Contact& whom) const noexcept override {
    return self < of(whom).number;
  }
  void say_hello(const Introducer::Contact& whom, Frame& hello) const noexcept override {
    hello.as<NumberBody>() = {.number = 1000 * self + of(whom).number, .purpose = of(whom).purpose};
  }
  std::optional<Refusal> meet(const Frame& hello, Introducer::Guest& guest, Frame& answer) override {
    ++met;
    const auto [number, purpose] = hello.as<NumberBody>();
    if (turns_away || number % 1000 != self) return Refusal::kStranger;
    if (!tells_late) guest = {&contact(number / 1000, purpose), number / 1000};
    answer.as<NumberBody>().number = says_wrong_number ? 999 : self;
    return {};
  }
  std::optional<Refusal> identify(const Frame& offer, Introducer::Guest& guest) noexcept override {
    if (is_full) return Refusal::kFull;
    guest.contact = &contact(number_in(offer));
    return {};
  }
  bool on_answer(Introducer::Contact& whom, const Frame& hello) noexcept override {
    if (number_in(hello) != of(whom).number) return false;
    ++answers;
    if (!withholds) offer(whom);
    return true;
  }
  void on_offer(Introducer::Contact& whom, const Frame& frame, bool is_answer) noexcept override {
    EXPECT_EQ(number_in(frame), of(whom).number);
    EXPECT_EQ(frame.as<NumberBody>().purpose, of(whom).purpose);
    ++offers;
    if (is_answer) {
      introducer->ready(whom);
      up.push_back(of(whom).number);
    } else if (!withholds) {
      offer(whom);
    }
  }
  void on_connection(Introducer::Contact& whom, ForkClosedDescriptor socket) noexcept override {
    EXPECT_TRUE(up.empty()) << "the connection comes first";
    EXPECT_FALSE(whom.is_in_use());
    kept.push_back(std::move(socket));
    if (!says_at_once.empty())
      static_cast<void>(!::send(kept.back().get(), says_at_once.data(), says_at_once.size(), MSG_NOSIGNAL));
  }
  void on_ready(Introducer::Contact& whom) noexcept override { up.push_back(of(whom).number); }
  void on_broken(Introducer::Contact&) noexcept override { ++broken; }
  void on_knock(Introducer::Contact& whom, std::uint32_t note) noexcept override {
    EXPECT_EQ(note, of(whom).number);
    ++knocks;
    if (!of(whom).addresses.empty()) introducer->seek(whom);
  }
  void on_gone(Introducer::Contact& whom, Refusal why) noexcept override {
    gone.push_back(of(whom).number);
    reason = why;
    introducer->drop(whom);
  }
  void on_silence(Introducer::Contact&, Introducer::Silence silence) noexcept override {
    ++(silence == Introducer::Silence::kUnreachable ? unreachable : unanswered);
  }

  const std::uint32_t self;
  const bool tells_late;
  SocketAddress at;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<Contact>> contacts;
  bool withholds = false;          ///< Has nothing to offer yet.
  bool turns_away = false;         ///< Knows nobody.
  bool is_full = false;            ///< identify() refuses.
  bool says_wrong_number = false;  ///< In the Hello that answers.
  std::string says_at_once;        ///< Over the connection that it keeps, behind its last frame.
  int met = 0, answers = 0, offers = 0, broken = 0, knocks = 0, unreachable = 0, unanswered = 0;
  Refusal reason{};  ///< Of the last that is gone.
  std::vector<std::uint32_t> up, gone;
  std::vector<ForkClosedDescriptor> kept;
  std::vector<std::string> lines;
  std::optional<SocketIntroducer> introducer;

 private:
  static Contact& of(Introducer::Contact& whom) { return static_cast<Contact&>(whom); }
  static const Contact& of(const Introducer::Contact& whom) { return static_cast<const Contact&>(whom); }
};

class SocketIntroducers : public testing::Test {
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
  static FileDescriptor connect_to(const SocketAddress& to) {
    FileDescriptor socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
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

TEST_F(SocketIntroducers, TwoProcessesAgree) {
  Process a(0), b(1);
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1 && b.up.size() == 1; }));
  EXPECT_EQ(a.answers, 1);
  EXPECT_EQ(b.offers, 1);
  EXPECT_EQ(a.broken + b.broken, 0);
  run_for({&a, &b}, 10ms);
  EXPECT_EQ(a.introducer->descriptors(), 1u) << "no connection stays";
  EXPECT_EQ(b.introducer->descriptors(), 1u);
  EXPECT_EQ(a.introducer->tick_ns(), 0u) << "and nothing wakes it";
  EXPECT_EQ(b.introducer->tick_ns(), 0u);
}

TEST_F(SocketIntroducers, EachPurposeHasAConnectionOfItsOwn) {
  Process a(0), b(1);
  a.seek(b, 0);
  a.seek(b, 1);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 2 && b.up.size() == 2; }));
}

TEST_F(SocketIntroducers, BothMayDialAtOnce) {
  for (int round = 0; round < 200; ++round) {
    Process a(0), b(1);
    a.seek(b);
    if (round % 3 == 0) a.poll();
    if (round % 5 == 0) b.poll();
    b.seek(a);
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

TEST_F(SocketIntroducers, AnOfferMayComeLate) {
  for (const bool at_dialler : {true, false}) {
    Process a(0), b(1);
    (at_dialler ? a : b).withholds = true;
    a.seek(b);
    ASSERT_TRUE(run_until({&a, &b}, [&] { return at_dialler ? a.answers == 1 : b.offers == 1; }));
    run_for({&a, &b}, 300ms);
    EXPECT_TRUE(a.up.empty() && b.up.empty());
    (at_dialler ? a : b).withholds = false;
    at_dialler ? a.offer(a.contact(1)) : b.offer(b.contact(0));
    ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1 && b.up.size() == 1; }));
  }
}

// Connections that are kept

/// The address of one end of a TCP connection.
SocketAddress end_of(int socket, decltype(&::getpeername) which) {
  SocketAddress address;
  address.length = sizeof address.storage;
  EXPECT_EQ(which(socket, address.get(), &address.length), 0) << std::strerror(errno);
  return address;
}

/// What has come, once `length` bytes have. Nothing comes after the wait.
std::string read_from(int socket, std::size_t length) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (text.size() < length && std::chrono::steady_clock::now() < deadline) {
    char piece[64];
    const ssize_t got = ::recv(socket, piece, sizeof piece, MSG_DONTWAIT);
    if (got > 0) text.append(piece, static_cast<std::size_t>(got));
    if (got == 0) break;
  }
  return text;
}

TEST_F(SocketIntroducers, BothSidesMayKeepTheConnection) {
  for (const bool on_node : {false, true}) {
    const Process::Options keeping{.on_node = on_node, .keeps_connection = true};
    Process a(0, keeping), b(1, keeping);
    a.seek(b);
    ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1 && b.up.size() == 1; }));
    ASSERT_EQ(a.kept.size(), 1u);
    ASSERT_EQ(b.kept.size(), 1u);
    const int of_a = a.kept[0].get(), of_b = b.kept[0].get();
    if (!on_node) {
      EXPECT_EQ(end_of(of_a, ::getsockname).port(), end_of(of_b, ::getpeername).port());
      EXPECT_EQ(end_of(of_a, ::getpeername).port(), end_of(of_b, ::getsockname).port());
      EXPECT_EQ(end_of(of_a, ::getpeername).port(), b.at.port());
    }
    // The introducers have nothing to do with it any more.
    EXPECT_EQ(a.introducer->descriptors(), 1u);
    EXPECT_EQ(b.introducer->descriptors(), 1u);
    EXPECT_EQ(a.introducer->tick_ns(), 0u);
    EXPECT_EQ(b.introducer->tick_ns(), 0u);
    ASSERT_EQ(::send(of_a, "to b", 4, MSG_NOSIGNAL), 4);
    ASSERT_EQ(::send(of_b, "to a", 4, MSG_NOSIGNAL), 4);
    run_for({&a, &b}, 10ms);
    EXPECT_EQ(read_from(of_b, 4), "to b");
    EXPECT_EQ(read_from(of_a, 4), "to a");
    a.kept.clear();
    run_for({&a, &b}, 10ms);
    EXPECT_EQ(a.broken + b.broken, 0);
    EXPECT_TRUE(a.gone.empty() && b.gone.empty());
  }
}

TEST_F(SocketIntroducers, WhatIsSentRightBehindTheReadyIsStillToBeRead) {
  const Process::Options keeping{.keeps_connection = true};
  Process a(0, keeping), b(1, keeping);
  // As long as a frame and more: none of it is taken for one.
  a.says_at_once = std::string(3 * sizeof(Frame) + 5, 'x');
  a.seek(b);
  // b does not look between the Ready and what follows.
  ASSERT_TRUE(run_until({&a, &b}, [&] { return b.offers == 1; }));
  ASSERT_TRUE(run_until({&a}, [&] { return a.up.size() == 1; }));
  EXPECT_TRUE(b.up.empty());
  ASSERT_TRUE(run_until({&b}, [&] { return b.up.size() == 1; }));
  ASSERT_EQ(b.kept.size(), 1u);
  EXPECT_EQ(read_from(b.kept[0].get(), a.says_at_once.size()), a.says_at_once);
  EXPECT_TRUE(b.lines.empty());
}

TEST_F(SocketIntroducers, OfTwoDialsThatCrossOneConnectionIsKept) {
  const Process::Options keeping{.keeps_connection = true};
  for (int round = 0; round < 50; ++round) {
    Process a(0, keeping), b(1, keeping);
    a.seek(b);
    if (round % 3 == 0) a.poll();
    if (round % 5 == 0) b.poll();
    b.seek(a);
    if (round % 2 == 0) b.poll();
    ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); })) << round;
    run_for({&a, &b}, 1ms);
    ASSERT_EQ(a.kept.size(), 1u) << round;
    ASSERT_EQ(b.kept.size(), 1u) << round;
    ASSERT_EQ(::send(a.kept[0].get(), "x", 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(read_from(b.kept[0].get(), 1), "x") << round;
  }
}

TEST_F(SocketIntroducers, WhoDoesNotKeepItsConnectionsClosesThem) {
  Process a(0, {.keeps_connection = true}), b(1);
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1 && b.up.size() == 1; }));
  EXPECT_TRUE(b.kept.empty());
  ASSERT_EQ(a.kept.size(), 1u);
  char byte;
  ASSERT_TRUE(run_until({&a, &b}, [&] { return ::recv(a.kept[0].get(), &byte, 1, MSG_DONTWAIT) == 0; }));
}

TEST_F(SocketIntroducers, AnIntroductionThatIsGivenUpKeepsNothing) {
  const Process::Options keeping{.keeps_connection = true};
  Process a(0, keeping), b(1, keeping);
  b.withholds = true;
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return b.offers == 1; }));
  a.introducer->drop(a.contact(1));
  ASSERT_TRUE(run_until({&a, &b}, [&] { return b.broken == 1; }));
  EXPECT_TRUE(a.kept.empty() && b.kept.empty());
}

// Who is turned away

TEST_F(SocketIntroducers, WhoKnowsAnotherSecretIsTurnedAway) {
  Process a(0, {.secret = job_secret(1)}), b(1, {.secret = job_secret(2)});
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.gone.empty(); }));
  EXPECT_EQ(b.met, 0) << "whoever does not know the secret is not even looked up";
  EXPECT_TRUE(b.up.empty());
  ASSERT_EQ(b.lines.size(), 1u);
  EXPECT_NE(b.lines[0].find("does not know the secret"), std::string::npos);
}

TEST_F(SocketIntroducers, AnotherProcessAtTheAddressIsNotMistakenForThePeer) {
  Process a(0), b(1);
  a.seek(2, {b.at});
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.gone.size() == 1; })) << "it says so";
  EXPECT_EQ(a.reason, Refusal::kStranger);
  b.says_wrong_number = true;
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.gone.size() == 2; })) << "its Hello shows it";
  EXPECT_EQ(a.reason, Refusal::kStranger);
  EXPECT_TRUE(a.up.empty() && b.up.empty());
  EXPECT_EQ(a.broken, 0);
}

TEST_F(SocketIntroducers, WhoIsNotKnownAnyMoreIsGone) {
  Process a(0), b(1);
  b.turns_away = true;
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.gone.size() == 1; }));
  run_for({&a, &b}, 300ms);
  EXPECT_EQ(a.gone.size(), 1u);
}

/// Listens at a port of its own, which `a` takes for that of process 1.
FileDescriptor stand_in_for_1(Process& a) {
  std::uint16_t port = 0;
  Result<FileDescriptor> listener = listen_for_streams("127.0.0.1", port);
  EXPECT_TRUE(listener.ok());
  a.seek(1, {*socket_address("127.0.0.1", port)});
  return std::move(listener.value());
}

TEST_F(SocketIntroducers, AListenerThatRecordsADialLearnsNothingThatLetsItJoin) {
  Process a(0), b(1);
  // The port of b, freed and taken by somebody else.
  const FileDescriptor thief = stand_in_for_1(a);
  FileDescriptor taken;
  ASSERT_TRUE(run_until({&a}, [&] {
    int error = 0;
    if (!taken.valid()) taken = accept_stream(thief, error);
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
  const FileDescriptor forged = connect_to(b.at);
  say(forged, recorded.data(), recorded.size());
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.gone.empty(); }));
  EXPECT_TRUE(a.up.empty() && b.up.empty());
  EXPECT_EQ(a.answers + b.offers, 0);
}

/// Stands between two processes, passes on what they say, and keeps what the dialler says.
TEST_F(SocketIntroducers, AReplayedIntroductionIsRefusedAndDisturbsNobody) {
  Process a(0), b(1);
  const FileDescriptor between = stand_in_for_1(a);
  FileDescriptor left;
  const FileDescriptor right = connect_to(b.at);
  std::vector<std::byte> recorded;
  ASSERT_TRUE(run_until({&a, &b}, [&] {
    int error = 0;
    if (!left.valid()) left = accept_stream(between, error);
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
  const FileDescriptor replay = connect_to(b.at);
  say(replay, recorded.data(), recorded.size());
  ASSERT_TRUE(run_until({&b}, [&] { return !b.lines.empty(); }));
  EXPECT_NE(b.lines[0].find("repeats what another process said"), std::string::npos) << b.lines[0];
  run_for({&a, &b}, 10ms);
  EXPECT_EQ(b.offers, offers) << "it changes nothing";
  EXPECT_EQ(b.broken + b.knocks, 0);
  EXPECT_EQ(b.introducer->descriptors(), 1u);
}

TEST_F(SocketIntroducers, TwoThousandSilentConnectionsKeepNobodyOut) {
  Process a(0), b(1);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 2000; ++i) {
    silent.push_back(connect_to(b.at));
    if (i % 100 == 0) b.poll();
  }
  a.seek(b);
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }, 5s));
  EXPECT_LE(b.introducer->descriptors(), SocketIntroducer::kMostGuests + 1);
}

TEST_F(SocketIntroducers, SilentConnectionsThatTakeAllDescriptorsKeepNobodyOut) {
  Process a(0), b(1);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 60; ++i) silent.push_back(connect_to(b.at));
  a.seek(b);  // Its dial has its descriptor.
  const FewDescriptors few(20);
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }, 3s));
}

TEST_F(SocketIntroducers, AShortageOfDescriptorsIsToldAndPasses) {
  Process a(0), b(1);
  a.seek(b);
  {
    const FewDescriptors none(0);
    run_for({&a, &b}, 300ms);
  }
  ASSERT_EQ(b.lines.size(), 1u);
  EXPECT_NE(b.lines[0].find("test: accepting a connection failed"), std::string::npos) << b.lines[0];
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }));
  EXPECT_TRUE(a.gone.empty());
}

/// Without a bound, whoever waits for the peer would wait for ever.
TEST_F(SocketIntroducers, WithoutADescriptorForTheTimeOutADialFailsAndTheLogSaysWhatToDo) {
  Process a(0, {.timeout_ms = 1000}), b(1);
  const FewDescriptors none(0);
  a.seek(b);
  run_for({&a, &b}, 500ms);
  EXPECT_TRUE(a.gone.empty());
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return !a.gone.empty(); }, 5s));
  EXPECT_EQ(a.reason, Refusal::kShort);
  EXPECT_FALSE(a.contact(1).is_in_use());
  ASSERT_EQ(a.lines.size(), 2u);
  EXPECT_NE(a.lines[0].find("raise it with ulimit -n"), std::string::npos) << a.lines[0];
  EXPECT_EQ(
      a.lines[1],
      "test: for 1 s there was no descriptor or memory to dial a process: it counts as dead (told once)");
}

TEST_F(SocketIntroducers, WithoutADescriptorACheckShowsNothing) {
  Process a(0, {.timeout_ms = 1000}), b(1);
  a.contact(1).addresses = {b.at};
  const FewDescriptors none(0);
  a.introducer->check(a.contact(1));
  ASSERT_TRUE(run_until(
      {&a}, [&] { return !a.contact(1).is_sought(); }, 5s));
  EXPECT_TRUE(a.gone.empty());
}

TEST_F(SocketIntroducers, WhoCannotAcceptForTheTimeOutRefusesThoseThatWait) {
  Process a(0, {.timeout_ms = 1000}), b(1, {.timeout_ms = 1000});
  a.seek(b);  // Its dial has its descriptor.
  const FewDescriptors none(0);
  run_for({&a, &b}, 500ms);
  EXPECT_TRUE(a.gone.empty());
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return !a.gone.empty(); }, 5s));
  EXPECT_EQ(a.reason, Refusal::kShort);
  ASSERT_EQ(a.lines.size(), 1u);
  EXPECT_NE(a.lines[0].find("raise ulimit -n where it runs"), std::string::npos) << a.lines[0];
  ASSERT_EQ(b.lines.size(), 2u);
  EXPECT_NE(b.lines[0].find("raise it with ulimit -n"), std::string::npos) << b.lines[0];
  EXPECT_EQ(b.lines[1],
            "test: for 1 s there was no descriptor or memory to accept a connection: those that wait are "
            "refused (told once)");
  EXPECT_EQ(b.met, 0);
}

/// A shortage that passes, and another one much later, are not one long shortage.
TEST_F(SocketIntroducers, ShortagesThatPassDoNotAddUp) {
  Process a(0, {.timeout_ms = 1000}), b(1, {.timeout_ms = 1000});
  FileDescriptor gone = connect_to(b.at);
  for (int round = 0; round < 4; ++round) {
    if (round == 3) a.seek(b);
    {
      const FewDescriptors none(0);
      run_for({&a, &b}, 400ms);
    }
    // The shortage is over when the guest has been accepted.
    const auto has_guests = [&](std::size_t count) {
      return run_until(
          {&b}, [&] { return b.introducer->descriptors() == 1 + count; }, 10s);
    };
    if (gone.valid()) {
      ASSERT_TRUE(has_guests(1));
      gone.reset();
      ASSERT_TRUE(has_guests(0));
    }
    if (round < 2) gone = connect_to(b.at);
  }
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }, 5s));
  EXPECT_TRUE(a.gone.empty());
}

TEST_F(SocketIntroducers, NoMoreThanSixteenAreAcceptedAtOnce) {
  Process b(1);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to(b.at));
  b.introducer->service();
  EXPECT_EQ(b.introducer->descriptors(), 1u + SocketIntroducer::kMostAccepts);
}

TEST_F(SocketIntroducers, WhoSaysNothingIsClosed) {
  Process b(1, {.timeout_ms = 1000});
  const FileDescriptor silent = connect_to(b.at);
  run_for({&b}, 100ms);
  EXPECT_EQ(b.introducer->descriptors(), 2u);
  ASSERT_TRUE(run_until(
      {&b}, [&] { return b.introducer->descriptors() == 1; }, 3s));
}

TEST_F(SocketIntroducers, GarbageIsTurnedAway) {
  Process b(1);
  std::vector<std::byte> garbage(sizeof(Frame), std::byte{0x77});
  for (int i = 0; i < 50; ++i) {
    const FileDescriptor socket = connect_to(b.at);
    say(socket, garbage.data(), garbage.size());
    run_for({&b}, 1ms);
  }
  run_for({&b}, 20ms);
  EXPECT_EQ(b.introducer->descriptors(), 1u);
  EXPECT_EQ(b.lines.size(), 1u) << "nobody fills the log from outside";
}

// Evidence

TEST_F(SocketIntroducers, WhoRefusesADialIsGone) {
  Process a(0);
  auto b = std::make_unique<Process>(1);
  a.seek(*b);
  a.poll();
  b.reset();
  ASSERT_TRUE(run_until({&a}, [&] { return a.gone.size() == 1; }));
  EXPECT_FALSE(a.contact(1).is_sought());
  EXPECT_EQ(a.unreachable + a.unanswered, 0);
}

TEST_F(SocketIntroducers, AProcessThatComputesIsNotGone) {
  Process a(0, {.timeout_ms = 1000}), b(1, {.timeout_ms = 1000});
  a.seek(b);
  run_for({&a}, 1300ms);
  EXPECT_TRUE(a.gone.empty());
  EXPECT_EQ(a.unreachable, 0);
  EXPECT_GE(a.unanswered, 1) << "it is told that the peer keeps it waiting";
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }));
}

/// The kernel drops what the backlog does not hold: no answer at all, as from a dead node.
TEST_F(SocketIntroducers, AFullBacklogIsNoEvidence) {
  Process a(0, {.timeout_ms = 1000}), b(1, {.timeout_ms = 1000});
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
  a.seek(1, {*socket_address("127.0.0.1", port)});
  ASSERT_TRUE(run_until(
      {&a}, [&] { return a.unreachable >= 2; }, 10s));
  EXPECT_TRUE(a.gone.empty());
  EXPECT_TRUE(a.contact(1).is_sought()) << "it goes on";
}

/// What took no try is no silence.
TEST_F(SocketIntroducers, TimeInWhichThisProcessComputesIsNotThePeersSilence) {
  Process a(0, {.timeout_ms = 1000}), b(1);
  a.seek(b);
  a.poll();
  std::this_thread::sleep_for(1500ms);
  a.poll();
  EXPECT_EQ(a.unanswered + a.unreachable, 0);
}

/// One address of the peer's refuses, as a firewall may; at the other one it computes.
TEST_F(SocketIntroducers, OneAddressThatRefusesIsNoEvidence) {
  Process a(0, {.timeout_ms = 1000}), b(1, {.timeout_ms = 1000});
  a.seek(1, {*socket_address("127.0.0.7", b.at.port()), b.at});  // Nobody listens at the first one.
  run_for({&a}, 2600ms);                                         // It is dialled again and again.
  EXPECT_GE(a.introducer->dials_made(), 4u);
  EXPECT_TRUE(a.gone.empty());
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.up.empty() && !b.up.empty(); }));
}

TEST_F(SocketIntroducers, ACheckFindsOutWhetherSomebodyListens) {
  Process a(0);
  auto b = std::make_unique<Process>(1);
  a.contact(1).addresses = {b->at};
  a.introducer->check(a.contact(1));
  ASSERT_TRUE(run_until({&a, b.get()}, [&] { return !a.contact(1).is_sought(); }));
  EXPECT_TRUE(a.gone.empty());
  EXPECT_EQ(b->met, 0);
  b.reset();
  a.introducer->check(a.contact(1));
  ASSERT_TRUE(run_until({&a}, [&] { return a.gone.size() == 1; }));
}

/// Each has found the other one computing, and has hung up.
TEST_F(SocketIntroducers, TwoThatKnockedAtEachOtherMeetAtOnce) {
  constexpr std::uint32_t kOthers = 80;
  Process a(0), b(1);
  std::vector<std::unique_ptr<Process>> others;
  for (std::uint32_t i = 2; i < 2 + kOthers; ++i) others.push_back(std::make_unique<Process>(i));
  a.seek(b);
  for (std::uint32_t i = 0; i < kOthers; ++i) a.seek(*others[i]);
  run_for({&a}, 600ms);  // Its dial of b has made way.
  b.seek(a);
  for (std::uint32_t i = 0; i < kOthers; ++i) b.seek(*others[i]);
  run_for({&b}, 600ms);
  ASSERT_TRUE(run_until(
      {&a, &b}, [&] { return std::ranges::count(a.up, 1u) == 1 && std::ranges::count(b.up, 0u) == 1; }, 1s));
}

// Many peers

/// The dialler has fewer descriptors than there are peers that compute. Those that poll are reached all the
/// same, and the others dial back when they poll.
TEST_F(SocketIntroducers, PeersThatComputeKeepNobodyWaiting) {
  constexpr std::uint32_t kComputing = 150;
  Process a(0), ready(900);
  std::vector<std::unique_ptr<Process>> computing;
  for (std::uint32_t i = 1; i <= kComputing; ++i) {
    computing.push_back(std::make_unique<Process>(i));
    a.seek(*computing.back());
  }
  a.seek(ready);
  ASSERT_TRUE(run_until(
      {&a, &ready}, [&] { return !ready.up.empty(); }, 3s));
  run_until(
      {&a}, [&] { return a.introducer->dials_made() > kComputing; }, 3s);
  EXPECT_LE(a.introducer->descriptors(), SocketIntroducer::kMostDials + 1);
  EXPECT_TRUE(a.gone.empty());
  // They poll now: some answer, some find a knock.
  for (const auto& one : computing) one->contact(0).addresses = {a.at};
  const auto all_up = [&] {
    for (const auto& one : computing) one->poll();
    return a.up.size() == kComputing + 1;
  };
  ASSERT_TRUE(run_until({&a}, all_up, 4s)) << a.up.size();
  int knocks = 0;
  for (const auto& one : computing) knocks += one->knocks;
  EXPECT_GT(knocks, 0);
}

TEST_F(SocketIntroducers, AllToAllAtOnce) {
  constexpr std::uint32_t kProcesses = 24;
  std::vector<std::unique_ptr<Process>> all;
  for (std::uint32_t i = 0; i < kProcesses; ++i) all.push_back(std::make_unique<Process>(i));
  for (std::uint32_t i = 0; i < kProcesses; ++i)
    for (std::uint32_t j = 0; j < kProcesses; ++j)
      if (i != j) all[i]->seek(*all[j]);
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

TEST_F(SocketIntroducers, AnIntroductionThatBreaksIsTriedAgain) {
  Process a(0);
  auto b = std::make_unique<Process>(1);
  b->withholds = true;
  a.seek(*b);
  ASSERT_TRUE(run_until({&a, b.get()}, [&] { return b->offers == 1; }));
  b->introducer->drop(b->contact(0));
  b->withholds = false;
  ASSERT_TRUE(run_until({&a, b.get()}, [&] { return a.up.size() == 1 && b->up.size() == 1; }));
  EXPECT_EQ(a.broken, 1);
}

// Who says what is not due

/// What a process does that is not of this library, at the door of another one.
class Stranger {
 public:
  explicit Stranger(FileDescriptor socket, const JobSecret& secret = job_secret())
      : socket_(std::move(socket)), transcript_(secret) {}
  void say_unsigned(const Frame& frame) const {
    static_cast<void>(!::send(socket_.get(), &frame, sizeof frame, MSG_NOSIGNAL));
  }
  Frame sign(Frame frame) {
    transcript_.sign(Speaker::kDialler, frame);
    return frame;
  }
  void say(const Frame& frame) { say_unsigned(sign(frame)); }
  /// Returns the kind of the next frame; kEnd: the connection was closed; none: nothing came.
  FrameKind hear(Frame& frame) {
    const ssize_t got = ::recv(socket_.get(), &frame, sizeof frame, MSG_DONTWAIT);
    if (got != static_cast<ssize_t>(sizeof frame))
      return got == 0 || (got < 0 && errno == ECONNRESET) ? FrameKind::kEnd : FrameKind{};
    if (frame.kind != FrameKind::kRefuse) {
      EXPECT_TRUE(transcript_.verify(Speaker::kAcceptor, frame));
    }
    return frame.kind;
  }

 private:
  FileDescriptor socket_;
  Transcript transcript_;
};

class HostileGuest : public SocketIntroducers {
 protected:
  FrameKind answer(Process& process, Stranger& guest, Frame& frame) {
    FrameKind kind{};
    run_until({&process}, [&] { return (kind = guest.hear(frame)) != FrameKind{}; });
    return kind;
  }
  Refusal refusal_of(Process& process, Stranger& guest) {
    Frame frame;
    EXPECT_EQ(answer(process, guest, frame), FrameKind::kRefuse);
    const Refusal reason{frame.as<RefuseBody>().reason};
    EXPECT_EQ(answer(process, guest, frame), FrameKind::kEnd) << "it is closed at once";
    return reason;
  }
  /// As far as a replay can go.
  void greet(Process& process, Stranger& guest) {
    guest.say(hello());
    Frame frame;
    EXPECT_EQ(answer(process, guest, frame), FrameKind::kHello);
  }
  static Frame hello() { return number_frame(7001, FrameKind::kHello); }  // Of process 7, to process 1.
};

TEST_F(HostileGuest, AnotherVersionIsTold) {
  Process b(1);
  Stranger guest(connect_to(b.at));
  Frame frame = hello();
  ++frame.version;
  guest.say(frame);
  EXPECT_EQ(refusal_of(b, guest), Refusal::kVersion);
}

TEST_F(HostileGuest, AFrameWithoutProofIsRefused) {
  if (!have_keyed_hash()) GTEST_SKIP() << "without libsodium, the kernel's word is the proof";
  const std::vector<std::function<void(Frame&)>> breaches = {
      [](Frame& f) { f.proof = {}; },
      [](Frame& f) { f.as<NumberBody>().number ^= 1; },
      [](Frame& f) { f.body.back() = std::byte{1}; },
  };
  for (const bool tells_late : {false, true}) {
    Process b(1, {.tells_late = tells_late});
    for (const auto& breach : breaches) {
      Stranger guest(connect_to(b.at));
      greet(b, guest);
      Frame frame = guest.sign(number_frame(7));
      breach(frame);
      guest.say_unsigned(frame);
      EXPECT_EQ(refusal_of(b, guest), Refusal::kSecret);
    }
    Stranger guest(connect_to(b.at));
    const int met = b.met;
    guest.say_unsigned(hello());
    EXPECT_EQ(refusal_of(b, guest), Refusal::kSecret);
    EXPECT_EQ(b.met, met);
    EXPECT_EQ(b.offers, 0);
  }
}

/// Else what was prepared for it would wait for ever.
TEST_F(HostileGuest, AFrameThatIsRefusedAfterAnOfferBreaksTheIntroduction) {
  for (const bool is_of_another_version : {false, true}) {
    Process b(1);
    Stranger guest(connect_to(b.at));
    greet(b, guest);
    guest.say(number_frame(7));
    ASSERT_TRUE(run_until({&b}, [&] { return b.offers == 1; }));
    Frame ready = make_frame(kNumbers, FrameKind::kReady);  // Without a proof.
    ready.version = static_cast<std::uint16_t>(kNumbers.version + is_of_another_version);
    guest.say_unsigned(ready);
    ASSERT_TRUE(run_until({&b}, [&] { return b.introducer->connections() == 0; }));
    EXPECT_EQ(b.broken, 1);
    EXPECT_TRUE(b.up.empty());
  }
}

TEST_F(HostileGuest, AFrameThatIsNotDueEndsTheConnection) {
  Process b(1);
  Stranger guest(connect_to(b.at));
  guest.say(number_frame(7));
  Frame frame;
  EXPECT_EQ(answer(b, guest, frame), FrameKind::kEnd);
}

TEST_F(HostileGuest, WhoIsNotIdentifiedByItsOfferIsRefused) {
  Process b(1, {.tells_late = true});
  b.is_full = true;
  Stranger guest(connect_to(b.at));
  greet(b, guest);
  guest.say(number_frame(7));
  EXPECT_EQ(refusal_of(b, guest), Refusal::kFull);
  EXPECT_TRUE(b.contacts.empty());
}

/// It may be a replay, so it cannot be dialled back either.
TEST_F(HostileGuest, WhoTellsLateWhoItIsLeavesNothingBefore) {
  Process b(1, {.tells_late = true, .timeout_ms = 1000});
  {
    Stranger knock(connect_to(b.at));
    knock.say(hello());
  }
  Stranger guest(connect_to(b.at));
  greet(b, guest);
  EXPECT_EQ(b.introducer->connections(), 1u);
  EXPECT_TRUE(b.contacts.empty());
  ASSERT_TRUE(run_until(
      {&b}, [&] { return b.introducer->connections() == 0; }, 3s))
      << "it has its time and no more";
  Stranger offers(connect_to(b.at));
  greet(b, offers);
  offers.say(number_frame(7));
  ASSERT_TRUE(run_until({&b}, [&] { return b.offers == 1; }));
  ASSERT_TRUE(run_until(
      {&b}, [&] { return b.introducer->connections() == 0; }, 3s))
      << "nor does it wait for Ready";
  EXPECT_EQ(b.broken, 1);
  EXPECT_EQ(b.knocks, 0);
}

TEST_F(HostileGuest, AForkedChildDoesNotKeepTheConnection) {
  auto b = std::make_unique<Process>(1);
  Stranger guest(connect_to(b->at));
  greet(*b, guest);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    for (;;) ::pause();
  }
  ASSERT_GT(child, 0);
  b.reset();
  Frame frame;
  FrameKind kind{};
  run_until({}, [&] { return (kind = guest.hear(frame)) != FrameKind{}; });
  EXPECT_EQ(kind, FrameKind::kEnd);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// On the node, and without a secret

TEST_F(SocketIntroducers, ProcessesOfTheNodeAgreeWithoutASecret) {
  Process a(0, {.is_secret = false, .on_node = true}), b(1, {.is_secret = false, .on_node = true});
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1 && b.up.size() == 1; }));
}

TEST_F(SocketIntroducers, WithoutASecretNobodyIsMetOverTcp) {
  Process a(0), b(1, {.is_secret = false});
  a.seek(b);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return !a.gone.empty(); }));
  EXPECT_EQ(a.reason, Refusal::kNoSecret);
  EXPECT_EQ(b.met, 0);
}

TEST_F(SocketIntroducers, AnAddressThatRefusesMakesWayForTheNextAtOnce) {
  Process a(0), b(1);
  a.seek(1, {address_on_node("introducer-test-nobody"), b.at});
  EXPECT_EQ(a.introducer->connections(), 1u);
  ASSERT_TRUE(run_until({&a, &b}, [&] { return a.up.size() == 1; }));
}

/// The kernel says that it is full, so the process lives.
TEST_F(SocketIntroducers, AFullBacklogOnTheNodeIsAnAnswer) {
  SocketAddress at = address_on_node("introducer-test-full-" + std::to_string(::getpid()));
  Result<FileDescriptor> full = listen_for_streams(at);
  ASSERT_TRUE(full.ok());
  ASSERT_EQ(::listen(full.value().get(), 0), 0);
  const FileDescriptor filler = connect_to(at);
  Process a(0, {.timeout_ms = 400});
  a.seek(1, {at});
  run_for({&a}, 1s);
  EXPECT_EQ(a.contact(1).answer(), Introducer::Contact::Answer::kTaken);
  EXPECT_EQ(a.unreachable, 0);
  EXPECT_TRUE(a.gone.empty());
}

/// Whoever takes dials and does not keep them is no process that computes.
TEST_F(SocketIntroducers, WhoHangsUpIsDialledAgain) {
  using Answer = Introducer::Contact::Answer;
  std::uint16_t port = 0;
  Result<FileDescriptor> door = listen_for_streams("127.0.0.1", port);
  ASSERT_TRUE(door.ok());
  Process a(0);
  EXPECT_EQ(a.contact(1).answer(), Answer::kNotDialled);
  a.seek(1, {*socket_address("127.0.0.1", port)});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(run_until({&a}, [&] { return a.contact(1).answer() == Answer::kTaken; }));
    int error = 0;
    FileDescriptor taken = accept_stream(door.value(), error);
    ASSERT_TRUE(taken.valid());
    taken.reset();
    ASSERT_TRUE(run_until({&a}, [&] { return a.contact(1).answer() == Answer::kNone; }));
  }
  EXPECT_TRUE(a.gone.empty());
}

TEST_F(SocketIntroducers, AContactThatIsDroppedIsNotCalledAbout) {
  Process a(0), b(1);
  a.seek(b);
  a.poll();
  a.introducer->drop(a.contact(1));
  run_for({&a, &b}, 20ms);
  EXPECT_EQ(a.answers + a.broken, 0);
  EXPECT_EQ(b.offers, 0);
  EXPECT_EQ(a.introducer->descriptors(), 1u);
}

}  // namespace
}  // namespace ch3_offload
