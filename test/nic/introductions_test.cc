// Books of processes over loopback: who meets, who does not, and what hostile guests cost.

#include "nic/introductions.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <set>

#include "nic/introductions_world.h"

namespace ch3_offload {
namespace {

class IntroductionsTest : public IntroductionsWorld {
 protected:
  /// The two meet: `one` names `other`.
  void meet(BookOwner& one, BookOwner& other) {
    const PeerId there = one.find(other.id());
    ASSERT_TRUE(run_until_card(one, there)) << one.log;
    ASSERT_TRUE(run_until([&] { return !other.record.cards.empty() && all_quiet(); }));
    expect_met(one, there, other, other.find(one.id()));
  }
};

TEST_F(IntroductionsTest, AProcessThatNamesAnotherOneMeetsIt) {
  BookOwner& a = make();
  BookOwner& b = make();
  const PeerId b_at_a = a.find(b.id());
  EXPECT_EQ(b_at_a, PeerId{100});
  EXPECT_EQ(a.book->next_due_ns(), 0u);
  ASSERT_TRUE(run_until_card(a, b_at_a));
  EXPECT_EQ(a.record.processes.at(100), b.id());
  EXPECT_EQ(b.record.processes.at(150), a.id());
  expect_met(a, b_at_a, b, PeerId{150});
  EXPECT_EQ(a.find(b.id()), b_at_a);
  EXPECT_EQ(b.find(a.id()), PeerId{150});
  ASSERT_TRUE(run_until([&] { return all_quiet(); }));
  EXPECT_EQ(a.book->next_due_ns(), UINT64_MAX);
}

TEST_F(IntroductionsTest, BothDialAtOnceAndHaveOneResult) {
  for (int i = 0; i < 20; ++i) {
    BookOwner& a = make();
    BookOwner& b = make(kLoopback2);
    const PeerId b_at_a = a.find(b.id()), a_at_b = b.find(a.id());
    ASSERT_TRUE(run_until_card(a, b_at_a));
    ASSERT_TRUE(run_until_card(b, a_at_b));
    ASSERT_TRUE(run_until([&] { return all_quiet(); }));
    expect_met(a, b_at_a, b, a_at_b);
    EXPECT_EQ(a.record.processes.size(), 1u);
    EXPECT_EQ(b.record.processes.size(), 1u);
  }
}

TEST_F(IntroductionsTest, TheDescriptorTellsOfWork) {
  const auto is_readable = [](const BookOwner& owner) {
    pollfd entry{owner.book->descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  };
  BookOwner& a = make();
  BookOwner& b = make();
  run_for_ms(5);
  EXPECT_FALSE(is_readable(a) || is_readable(b));
  const PeerId there = a.find(b.id());
  EXPECT_TRUE(is_readable(a));
  while (a.book->connections() == 0) a.book->poll(a.record);
  EXPECT_TRUE(is_readable(b)) << "a guest waits";
  ASSERT_TRUE(run_until_card(a, there));
  ASSERT_TRUE(run_until([&] { return all_quiet(); }));
  EXPECT_FALSE(is_readable(a) || is_readable(b));
}

TEST_F(IntroductionsTest, ItselfHasItsOwnNumber) {
  make();
  BookOwner& b = make();
  EXPECT_EQ(b.find(b.id()), PeerId{1});
  run_for_ms(5);
  EXPECT_TRUE(b.record.processes.empty());
}

TEST_F(IntroductionsTest, APidThatIsTakenIsToldApart) {
  BookOwner& a = make();
  Introductions::Config config = config_of();
  config.pid = static_cast<std::uint16_t>(PhysicalId::of(a.id()).pid);
  const Result<std::unique_ptr<Introductions>> second = Introductions::create(config);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().status, Status::kAgain);
  EXPECT_NE(second.error().message.find(PhysicalId::of(a.id()).to_string()), std::string::npos);
  config.nid = kLoopback2;
  EXPECT_TRUE(Introductions::create(config).ok());
}

TEST_F(IntroductionsTest, TheNidIsThatOfTheInterface) {
  Introductions::Config config = config_of(0);
  config.interface = "lo";
  EXPECT_EQ(PhysicalId::of(make(config).id()).nid, kLoopback1);
  config.interface = "";
  EXPECT_NE(PhysicalId::of(make(config).id()).nid, 0u);
  config.interface = "nothing*";
  const Result<std::unique_ptr<Introductions>> none = Introductions::create(config);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message.find("verbs"), std::string::npos) << none.error().message;
}

TEST_F(IntroductionsTest, ACardThatIsTooLongIsRefused) {
  Introductions::Config config = config_of();
  config.card = std::string(kMostProcessCardBytes + 1, 'x');
  EXPECT_FALSE(Introductions::create(config).ok());
  config.card.pop_back();
  EXPECT_TRUE(Introductions::create(config).ok());
}

TEST_F(IntroductionsTest, WhoDoesNotListenIsUnreachableAtOnce) {
  BookOwner& a = make();
  BookOwner& b = make();
  const ProcessId gone = b.id();
  b.book.reset();
  const PeerId there = a.find(gone);
  ASSERT_TRUE(run_until_card(a, there));
  EXPECT_EQ(a.card_of(there), "");
  EXPECT_NE(a.log.find("no process of this user has that id"), std::string::npos) << a.log;
  EXPECT_EQ(a.find(gone), there);
  a.book->forget(there);
  EXPECT_EQ(a.find(gone), there) << "it is not sought again at once";
  EXPECT_TRUE(run_until([&] { return a.find(gone) != there; }));
}

/// Its end is told by the operations that it fails.
TEST_F(IntroductionsTest, TheEndOfAProcessThatWasMetIsNoLine) {
  BookOwner& a = make();
  BookOwner& b = make();
  const PeerId there = a.find(b.id());
  ASSERT_TRUE(run_until_card(a, there));
  const ProcessId gone = b.id();
  b.book.reset();
  a.book->forget(there);
  const PeerId again = a.find(gone);
  ASSERT_NE(again, there);
  ASSERT_TRUE(run_until_card(a, again));
  EXPECT_EQ(a.card_of(again), "");
  EXPECT_EQ(a.log, "");
}

TEST_F(IntroductionsTest, WhoNamesAnAbsentProcessAgainAndAgainUsesFewNumbers) {
  BookOwner& a = make();
  BookOwner& b = make();
  const PhysicalId gone = PhysicalId::of(b.id());
  b.book.reset();
  std::set<std::uint32_t> numbers;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(800);
  while (std::chrono::steady_clock::now() < end) {
    const PeerId there = a.find(gone.process());
    numbers.insert(index_of(there));
    run_for_ms(2);
    if (a.card_of(there) == "") a.book->forget(there);  // The engine has failed it.
  }
  EXPECT_GE(numbers.size(), 2u);
  EXPECT_LE(numbers.size(), 4u);
  const std::size_t line = a.log.find("cannot be reached");
  EXPECT_NE(line, std::string::npos);
  EXPECT_EQ(a.log.find("cannot be reached", line + 1), std::string::npos) << a.log;
  Introductions::Config config = config_of();
  config.pid = static_cast<std::uint16_t>(gone.pid);
  BookOwner& again = make(config);
  const PeerId a_there = again.find(a.id());
  ASSERT_TRUE(run_until_card(again, a_there));
  expect_met(a, a.find(again.id()), again, a_there);
}

TEST_F(IntroductionsTest, IdsThatNoProcessHasAreUnreachable) {
  BookOwner& a = make();
  for (const ProcessId id :
       {ProcessId{0}, make_physical_id(kLoopback1, 0), make_physical_id(kLoopback1, 70000),
        make_physical_id(0, 5), ProcessId{UINT64_MAX}}) {
    const PeerId there = a.find(id);
    ASSERT_TRUE(run_until_card(a, there));
    EXPECT_EQ(a.card_of(there), "");
  }
}

TEST_F(IntroductionsTest, WithoutAKeyFileTheErrorSaysWhatToDo) {
  BookOwner& a = make();
  const PeerId there = a.find(make_physical_id(0x0A00'0001, 4711));
  ASSERT_TRUE(run_until_card(a, there));
  EXPECT_NE(a.log.find("10.0.0.1/4711"), std::string::npos) << a.log;
  EXPECT_NE(a.log.find("key file"), std::string::npos) << a.log;
}

TEST_F(IntroductionsTest, AProcessThatIsStartedAnewGetsANewNumber) {
  BookOwner& a = make();
  BookOwner& b = make();
  meet(a, b);
  const PeerId before = a.find(b.id());
  Introductions::Config config = config_of();
  config.pid = static_cast<std::uint16_t>(PhysicalId::of(b.id()).pid);
  config.first_peer = PeerId{150};  // It numbers others as it did before.
  b.book.reset();
  BookOwner& again = make(config);
  const PeerId a_there = again.find(a.id());
  ASSERT_TRUE(run_until_card(again, a_there));
  const PeerId after = a.find(again.id());
  EXPECT_NE(after, before);
  EXPECT_EQ(a.record.replaced, std::set<std::uint32_t>{index_of(before)});
  expect_met(a, after, again, a_there);
}

TEST_F(IntroductionsTest, ManyProcessesThatComeAndGoUseFewNumbers) {
  BookOwner& a = make();
  std::set<std::uint32_t> numbers, slots;
  for (int i = 0; i < 200; ++i) {
    BookOwner& b = make();
    const PeerId there = a.find(b.id());
    ASSERT_TRUE(run_until_card(a, there));
    EXPECT_TRUE(numbers.insert(index_of(there)).second) << "it is another process";
    slots.insert(slot_of(there));
    b.book.reset();
    a.book->forget(there);
    ASSERT_TRUE(run_until([&] { return !a.record.unused.empty() && a.record.unused.back() == there; }));
  }
  EXPECT_LT(slots.size(), 100u);
}

TEST_F(IntroductionsTest, ANumberThatIsInUseIsNotGivenToAnotherProcess) {
  BookOwner& a = make();
  a.record.is_in_use = true;
  std::set<std::uint32_t> slots;
  for (int i = 0; i < 100; ++i) {
    BookOwner& b = make();
    const PeerId there = a.find(b.id());
    ASSERT_TRUE(run_until_card(a, there));
    EXPECT_TRUE(slots.insert(slot_of(there)).second);
    b.book.reset();
    a.book->forget(there);
  }
  run_for_ms(30);
  a.record.is_in_use = false;
  a.record.unused.clear();
  ASSERT_TRUE(run_until([&] { return a.record.unused.size() == slots.size(); }));
}

TEST_F(IntroductionsTest, AProcessThatWasForgottenIsMetAnewByBoth) {
  BookOwner& a = make();
  BookOwner& b = make();
  meet(a, b);
  const PeerId before = a.find(b.id()), a_before = b.find(a.id());
  a.book->forget(before);
  a.book->forget(before);
  const PeerId after = a.find(b.id());
  EXPECT_NE(after, before);
  ASSERT_TRUE(run_until_card(a, after));
  const PeerId a_after = b.find(a.id());
  EXPECT_NE(a_after, a_before);
  expect_met(a, after, b, a_after);
  for (const std::uint32_t unknown : {0u, 99u, 5000u, UINT32_MAX}) a.book->forget(PeerId{unknown});
}

TEST_F(IntroductionsTest, WhatIsForgottenBeforeItWasToldIsNotTold) {
  BookOwner& a = make();
  BookOwner& b = make();
  a.book->forget(a.find(b.id()));
  run_for_ms(20);
  EXPECT_TRUE(a.record.processes.empty());
  EXPECT_TRUE(all_quiet());
}

TEST_F(IntroductionsTest, NumbersAreBounded) {
  Introductions::Config config = config_of();
  config.peer_limit = index_of(config.first_peer) + 2;
  BookOwner& a = make(config);
  BookOwner& b = make();
  BookOwner& c = make();
  BookOwner& d = make();
  meet(a, b);
  meet(c, a);
  PeerId none{};
  EXPECT_EQ(a.book->find(d.id(), none), Status::kNoMemory);
  const PeerId a_at_d = d.find(a.id());
  ASSERT_TRUE(run_until_card(d, a_at_d));
  EXPECT_EQ(d.card_of(a_at_d), "");
  EXPECT_NE(d.log.find("as many processes as it can number"), std::string::npos) << d.log;
}

TEST_F(IntroductionsTest, HundredsOfProcessesMeetOne) {
  constexpr int kProcesses = 300;
  BookOwner& center = make();
  for (int i = 0; i < kProcesses; ++i) make();
  for (int i = 1; i <= kProcesses; ++i) {
    owners[i]->find(center.id());
    if (i % 3 == 0) center.find(owners[i]->id());
  }
  ASSERT_TRUE(run_until([&] { return center.record.cards.size() == kProcesses && all_quiet(); }));
  std::set<std::uint32_t> numbers;
  for (int i = 1; i <= kProcesses; ++i) {
    const PeerId number = center.find(owners[i]->id());
    numbers.insert(index_of(number));
    expect_met(center, number, *owners[i], owners[i]->find(center.id()));
  }
  EXPECT_EQ(numbers.size(), static_cast<std::size_t>(kProcesses));
}

/// What a process does that is not of this library, at a book's door of the node.
class Visitor {
 public:
  explicit Visitor(ProcessId to) : to_(to) {
    Result<FrameStream> stream =
        FrameStream::dial(PhysicalId::of(to).on_node(UserId{::geteuid()}), kProcesses, 1000);
    EXPECT_TRUE(stream.ok());
    socket_ = duplicate(stream.value().socket());
  }
  void say(Frame frame) {
    transcript_.sign(Speaker::kDialler, frame);
    EXPECT_EQ(::send(socket_.get(), &frame, sizeof frame, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof frame));
  }
  /// Returns the kind of the next frame; kEnd: the connection was closed; none: nothing came.
  FrameKind hear(Frame& frame) {
    const ssize_t got = ::recv(socket_.get(), &frame, sizeof frame, MSG_DONTWAIT);
    if (got != static_cast<ssize_t>(sizeof frame))
      return got == 0 || errno == ECONNRESET ? FrameKind::kEnd : FrameKind{};
    if (frame.kind != FrameKind::kRefuse) {
      EXPECT_TRUE(transcript_.verify(Speaker::kAcceptor, frame));
    }
    return frame.kind;
  }

  Frame hello() const {
    Frame frame = make_frame(kProcesses, FrameKind::kHello);
    frame.as<ProcessHello>().receiver = static_cast<std::uint64_t>(to_);
    return frame;
  }
  Frame card() const {
    Frame frame = make_frame(kProcesses, FrameKind::kOffer);
    auto& card = frame.as<ProcessCard>();
    card.sender = static_cast<std::uint64_t>(make_physical_id(kLoopback1, 9));
    card.receiver = static_cast<std::uint64_t>(to_);
    card.user = ::geteuid();
    std::strcpy(card.card.data(), "v=6;guest");
    return frame;
  }

 private:
  const ProcessId to_;
  Transcript transcript_{UserKey::of_user(UserId{::geteuid()}).bytes()};
  FileDescriptor socket_;
};

class HostileVisitor : public IntroductionsTest {
 protected:
  FrameKind answer(Visitor& guest, Frame& frame) {
    FrameKind kind{};
    run_until([&] {
      if (kind == FrameKind{}) kind = guest.hear(frame);
      return kind != FrameKind{};
    });
    return kind;
  }
  Refusal refusal_of(Visitor& guest) {
    Frame frame;
    EXPECT_EQ(answer(guest, frame), FrameKind::kRefuse);
    return Refusal{frame.as<RefuseBody>().reason};
  }
  /// Goes as far as a guest can that may repeat what somebody said.
  void greet(Visitor& guest) {
    guest.say(guest.hello());
    Frame frame;
    EXPECT_EQ(answer(guest, frame), FrameKind::kHello);
  }
};

TEST_F(HostileVisitor, WhoMeansAnotherProcessIsRefused) {
  BookOwner& a = make();
  Visitor guest(a.id());
  Frame frame = guest.hello();
  ++frame.as<ProcessHello>().receiver;
  guest.say(frame);
  EXPECT_EQ(refusal_of(guest), Refusal::kStranger);
}

TEST_F(HostileVisitor, TheRightCardIsAnsweredEachTime) {
  BookOwner& a = make();
  for (int i = 0; i < 2; ++i) {
    Visitor guest(a.id());
    greet(guest);
    guest.say(guest.card());
    Frame frame;
    ASSERT_EQ(answer(guest, frame), FrameKind::kOffer);
    EXPECT_EQ(frame.as<ProcessCard>().known_as, 100u);
  }
  EXPECT_EQ(a.card_of(PeerId{100}), "v=6;as=0;to=0;guest");
}

TEST_F(HostileVisitor, ACardOfSomebodyElseIsRefused) {
  BookOwner& a = make();
  const std::vector<std::pair<Refusal, std::function<void(ProcessCard&)>>> breaches = {
      {Refusal::kStranger, [&](ProcessCard& c) { c.sender = static_cast<std::uint64_t>(a.id()); }},
      {Refusal::kStranger, [](ProcessCard& c) { c.sender = 0; }},
      {Refusal::kStranger, [](ProcessCard& c) { ++c.receiver; }},
      {Refusal::kUser, [](ProcessCard& c) { ++c.user; }},
  };
  for (const auto& [refusal, breach] : breaches) {
    Visitor guest(a.id());
    greet(guest);
    Frame frame = guest.card();
    breach(frame.as<ProcessCard>());
    guest.say(frame);
    EXPECT_EQ(refusal_of(guest), refusal);
  }
  EXPECT_TRUE(a.record.processes.empty());
}

TEST_F(HostileVisitor, WhoIsMetAsAGuestIsNotDialledAnyMore) {
  BookOwner& a = make();
  BookOwner& b = make();
  const auto run = [&](auto done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    bool is_done = false;
    while (!is_done && std::chrono::steady_clock::now() < end) {
      a.book->poll(a.record);  // Not b.
      is_done = done();
    }
    return is_done;
  };
  const PeerId there = a.find(b.id());
  ASSERT_TRUE(run([&] { return a.book->connections() == 1; }));
  {
    Visitor guest(a.id());
    guest.say(guest.hello());
    Frame frame;
    ASSERT_TRUE(run([&] { return guest.hear(frame) == FrameKind::kHello; }));
    frame = guest.card();
    frame.as<ProcessCard>().sender = static_cast<std::uint64_t>(b.id());
    guest.say(frame);
    ASSERT_TRUE(run([&] { return a.card_of(there) == "v=6;as=0;to=0;guest"; }));
  }
  EXPECT_TRUE(run([&] { return a.book->connections() == 0; }));
  EXPECT_EQ(a.book->next_due_ns(), UINT64_MAX);
}

TEST_F(IntroductionsTest, AProcessThatComputesIsWaitedForAndLoggedOnce) {
  BookOwner& a = make();
  Introductions::Config config = config_of();
  config.patience_ms = 100;
  BookOwner& b = make(config);
  const PeerId there = b.find(a.id());
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < begin + std::chrono::milliseconds(500)) b.book->poll(b.record);
  EXPECT_EQ(b.card_of(there), "nothing");
  const std::size_t line = b.log.find("has not answered yet");
  EXPECT_NE(line, std::string::npos) << b.log;
  EXPECT_EQ(b.log.find("has not answered yet", line + 1), std::string::npos) << b.log;
  ASSERT_TRUE(run_until_card(b, there));
  EXPECT_EQ(b.card_of(there).substr(0, 5), "v=6;a");
}

TEST_F(IntroductionsTest, DialsOfProcessesThatComputeMakeWay) {
  Introductions::Config config = config_of();
  config.patience_ms = 1500;
  BookOwner& a = make(config);
  std::vector<BookOwner*> silent;
  for (std::size_t i = 0; i < SocketIntroducer::kMostDials + 5; ++i) silent.push_back(&make());
  BookOwner& b = make();
  for (const BookOwner* one : silent) a.find(one->id());
  const auto poll_two = [&] {
    a.book->poll(a.record);
    b.book->poll(b.record);
  };
  while (a.book->connections() < SocketIntroducer::kMostDials) poll_two();
  const PeerId there = a.find(b.id());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (a.record.cards.empty() && std::chrono::steady_clock::now() < end) poll_two();
  EXPECT_EQ(a.card_of(there).substr(0, 5), "v=6;a");
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  while (std::chrono::steady_clock::now() < patience) poll_two();
  EXPECT_EQ(a.record.cards.size(), 1u) << "who computes is waited for, also while it is not dialled";
  ASSERT_TRUE(run_until([&] { return a.record.cards.size() == silent.size() + 1; }));
  for (const auto& [peer, card] : a.record.cards) EXPECT_NE(card, "") << peer;
}

TEST_F(IntroductionsTest, AProcessThatDiesInTheMiddleIsUnreachable) {
  BookOwner& a = make();
  BookOwner& b = make();
  const PeerId there = b.find(a.id());
  while (b.book->connections() == 0) b.book->poll(b.record);
  a.book.reset();
  ASSERT_TRUE(run_until_card(b, there));
  EXPECT_EQ(b.card_of(there), "");
}

/// Over TCP.
class IntroductionsOverNet : public IntroductionsTest {
 protected:
  void SetUp() override {
    if (!have_keyed_hash()) GTEST_SKIP() << "this library was built without libsodium";
    key = file_.key();
  }
  BookOwner& make_far(const UserKey& with) {
    Introductions::Config config = config_of(kLoopback2);
    config.key = with;
    config.meets_on_node = false;
    return make(config);
  }
  const KeyFile file_{std::string(32, 'k')};
  const KeyFile other_file_{std::string(32, 'l')};
};

TEST_F(IntroductionsOverNet, ProcessesWithTheSameKeyMeet) {
  BookOwner& a = make_far(key);
  BookOwner& b = make_far(key);
  meet(a, b);
  meet(b, make_far(key));
}

TEST_F(IntroductionsOverNet, AnotherKeyIsRefused) {
  BookOwner& a = make_far(key);
  BookOwner& b = make_far(other_file_.key());
  const PeerId there = a.find(b.id());
  ASSERT_TRUE(run_until_card(a, there));
  EXPECT_EQ(a.card_of(there), "");
  EXPECT_NE(a.log.find("has another key file"), std::string::npos) << a.log;
  EXPECT_TRUE(b.record.processes.empty());
}

TEST_F(IntroductionsOverNet, WhoHasNoKeySaysSo) {
  BookOwner& a = make_far(key);
  BookOwner& b = make_far({});
  const PeerId there = a.find(b.id());
  ASSERT_TRUE(run_until_card(a, there));
  EXPECT_NE(a.log.find("has no key file"), std::string::npos) << a.log;
  EXPECT_TRUE(b.record.processes.empty());
}

TEST_F(IntroductionsOverNet, AKeyCountsOnTheNodeToo) {
  BookOwner& a = make();
  Introductions::Config config = config_of();
  config.key = {};
  BookOwner& b = make(config);
  const PeerId there = a.find(b.id());
  ASSERT_TRUE(run_until_card(a, there));
  EXPECT_NE(a.log.find("has no key file"), std::string::npos) << a.log;
}

TEST_F(IntroductionsOverNet, WhoDoesNotListenIsUnreachableAtOnce) {
  BookOwner& a = make_far(key);
  BookOwner& b = make_far(key);
  const ProcessId gone = b.id();
  b.book.reset();
  const PeerId there = a.find(gone);
  ASSERT_TRUE(run_until_card(a, there));
  EXPECT_EQ(a.card_of(there), "");
  EXPECT_NE(a.log.find("nobody listens there"), std::string::npos) << a.log;
}

TEST_F(IntroductionsOverNet, WhoSaysHelloAndHangsUpGainsNoTime) {
  FileDescriptor door(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(kLoopback2);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(door.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(door.get(), 16), 0);
  ASSERT_EQ(::getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  Introductions::Config config = config_of();
  config.key = key;
  config.patience_ms = 300;
  BookOwner& a = make(config);
  const PeerId there = a.find(make_physical_id(kLoopback2, ntohs(address.sin_port)));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (a.record.cards.empty() && std::chrono::steady_clock::now() < end) {
    a.book->poll(a.record);
    FrameStream guest(FileDescriptor(::accept4(door.get(), nullptr, nullptr, SOCK_NONBLOCK)), kProcesses,
                      1000);
    Frame heard, hello = make_frame(kProcesses, FrameKind::kHello);
    while (guest.is_open() && guest.receive(heard) == FrameStream::Receipt::kNothing) a.book->poll(a.record);
    Transcript transcript(key.bytes());
    static_cast<void>(transcript.verify(Speaker::kDialler, heard));
    transcript.sign(Speaker::kAcceptor, hello);
    guest.send(hello);
  }
  EXPECT_EQ(a.card_of(there), "");
  EXPECT_NE(a.log.find("has not answered"), std::string::npos) << a.log;
}

TEST_F(IntroductionsOverNet, AProcessThatNoKernelAnswersForIsGivenUp) {
  FileDescriptor door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(kLoopback2);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(door.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(door.get(), 0), 0);
  ASSERT_EQ(::getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::vector<FileDescriptor> crowd;  // The backlog is full: the kernel drops what else comes.
  for (int i = 0; i < 4; ++i) {
    crowd.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    static_cast<void>(::connect(crowd.back().get(), reinterpret_cast<sockaddr*>(&address), length));
  }
  run_for_ms(20);
  Introductions::Config config = config_of();
  config.key = key;
  config.patience_ms = 200;
  BookOwner& a = make(config);
  const PeerId there = a.find(make_physical_id(kLoopback2, ntohs(address.sin_port)));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(run_until_card(a, there));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(190));
  EXPECT_EQ(a.card_of(there), "");
}

TEST_F(IntroductionsOverNet, AProcessThatIsStartedAnewTakesItsPidAgain) {
  BookOwner& a = make_far(key);
  BookOwner& b = make_far(key);
  meet(a, b);
  const PeerId before = a.find(b.id());
  Introductions::Config config = config_of(kLoopback2);
  config.pid = static_cast<std::uint16_t>(PhysicalId::of(b.id()).pid);
  config.meets_on_node = false;
  b.book.reset();
  BookOwner& again = make(config);
  const PeerId a_there = again.find(a.id());
  ASSERT_TRUE(run_until_card(again, a_there));
  EXPECT_NE(a.find(again.id()), before);
  expect_met(a, a.find(again.id()), again, a_there);
}

}  // namespace
}  // namespace ch3_offload
