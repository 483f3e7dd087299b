// RULE ONE CONNECTION (rdma/shm/shm_connection.h): two processes that have connected to each other keep one
// connection, which serves both directions.

#include <sys/stat.h>

#include <utility>

#include "rdma/shm/shm_fixture.h"

namespace ch3_offload {
namespace {

int open_sockets() {
  int count = 0;
  for (int number = 0; number < 1024; ++number) {
    struct stat status {};
    count += ::fstat(number, &status) == 0 && S_ISSOCK(status.st_mode);
  }
  return count;
}

class OneConnection : public ShmProviderTest {
 protected:
  /// The process whose connection stays.
  PeerId keeper() const { return keeper_; }
  PeerId other() const { return keeper_ == kA ? kB : kA; }
  void SetUp() override {
    ShmProviderTest::SetUp();
    keeper_ = at(kA).local_address() < at(kB).local_address() ? kA : kB;
  }
  void connect_both() {
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_TRUE(connect(kB, kA));
    settle();
  }
  void settle() {
    for (int i = 0; i < 3; ++i)
      for (const PeerId peer : {kA, kB}) poll_for_ms(peer, 1);
  }
  std::size_t messages(PeerId at) { return sink(at).count(RecordingSink::Kind::kMessage); }
  std::size_t ends(PeerId at) { return sink(at).count(RecordingSink::Kind::kPeerDown); }

 private:
  PeerId keeper_{};
};

TEST_F(OneConnection, StaysWhoeverConnectsFirst) {
  for (const bool keeper_is_first : {false, true})
    for (const bool at_once : {false, true}) {
      SetUp();
      const int before = open_sockets();
      const PeerId first = keeper_is_first ? keeper() : other(),
                   second = keeper_is_first ? other() : keeper();
      ASSERT_TRUE(connect(first, second));
      if (!at_once) settle();
      ASSERT_TRUE(connect(second, first));
      ASSERT_EQ(try_send(first, second), Status::kOk);
      ASSERT_EQ(try_send(second, first), Status::kOk);
      settle();
      EXPECT_EQ(open_sockets(), before + 2) << "its two ends";
      for (const PeerId peer : {kA, kB}) {
        EXPECT_EQ(messages(peer), 1u);
        EXPECT_EQ(ends(peer), 0u);
        sink(peer).events.clear();
      }
    }
}

TEST_F(OneConnection, WakesBoth) {
  connect_both();
  for (const auto& [from, to] : {std::pair(kA, kB), std::pair(kB, kA)}) {
    ASSERT_TRUE(put_to_sleep(to));
    ASSERT_EQ(try_send(from, to), Status::kOk);
    EXPECT_TRUE(is_readable(to, kWaitMs));
    at(to).disarm();
    while (try_send(from, to) == Status::kOk) {
    }
    ASSERT_TRUE(put_to_sleep(from));
    poll_for_ms(to, 1);
    EXPECT_TRUE(is_readable(from, kWaitMs)) << "there is room";
    at(from).disarm();
  }
}

TEST_F(OneConnection, TellsEachOfTheOthersEnd) {
  for (const bool keeper_dies : {false, true}) {
    SetUp();
    const PeerId dies = keeper_dies ? keeper() : other(), lives = keeper_dies ? other() : keeper();
    connect_both();
    for (const PeerId peer : {kA, kB}) sink(peer).events.clear();
    for (int i = 0; i < 100; ++i) ASSERT_EQ(try_send(dies, lives), Status::kOk);
    ASSERT_TRUE(put_to_sleep(lives));
    kill(dies);
    EXPECT_TRUE(is_readable(lives, kWaitMs));
    EXPECT_EQ(SmallWrite().post(at(lives), endpoint(lives, dies)), Status::kPeerFailed);
    at(lives).disarm();
    poll_for_ms(lives, 5);
    EXPECT_EQ(messages(lives), 100u);
    EXPECT_EQ(ends(lives), 1u);
  }
}

TEST_F(OneConnection, TellsEachThatTheOtherHasGivenItUp) {
  for (const bool keeper_gives_up : {false, true}) {
    SetUp();
    const PeerId by = keeper_gives_up ? keeper() : other(), whom = keeper_gives_up ? other() : keeper();
    connect_both();
    for (const PeerId peer : {kA, kB}) sink(peer).events.clear();
    ASSERT_TRUE(at(by).end(whom));
    EXPECT_EQ(SmallWrite().post(at(whom), endpoint(whom, by)), Status::kPeerFailed) << "it would write";
    settle();
    EXPECT_EQ(ends(by), 1u);
    EXPECT_EQ(ends(whom), 1u);
  }
}

/// The keeper closes a connection on which the other has just rung, and the other does not look.
TEST_F(OneConnection, NoWakeUpIsLostOnTheOneThatIsClosed) {
  ASSERT_TRUE(connect(other(), keeper()));
  settle();
  ASSERT_TRUE(put_to_sleep(keeper()));
  ASSERT_EQ(try_send(other(), keeper()), Status::kOk);
  ASSERT_TRUE(connect(keeper(), other()));
  EXPECT_TRUE(is_readable(keeper(), kWaitMs)) << "it slept when it closed it";
  ASSERT_EQ(poll(keeper()), 1u);
  ASSERT_TRUE(put_to_sleep(keeper()));
  ASSERT_EQ(try_send(other(), keeper()), Status::kOk);
  EXPECT_FALSE(is_readable(keeper(), 0)) << "there is no connection";
  poll_for_ms(other(), 1);
  EXPECT_TRUE(is_readable(keeper(), kWaitMs)) << "the other has accepted the one that stays";
  at(keeper()).disarm();
  settle();
  EXPECT_EQ(messages(keeper()), 2u);
  EXPECT_EQ(ends(other()) + ends(keeper()), 0u);
}

/// As long as the other has not accepted the connection that stays, it knows nothing of the keeper's end.
TEST_F(OneConnection, AWriteWaitsUntilItIsThere) {
  ASSERT_TRUE(connect(other(), keeper()));
  settle();
  EXPECT_EQ(SmallWrite().post(at(other()), endpoint(other(), keeper())), Status::kOk);
  ASSERT_TRUE(connect(keeper(), other()));
  EXPECT_EQ(SmallWrite().post(at(other()), endpoint(other(), keeper())), Status::kAgain);
  EXPECT_EQ(SmallWrite().post(at(keeper()), endpoint(keeper(), other())), Status::kOk);
  settle();
  EXPECT_EQ(SmallWrite().post(at(other()), endpoint(other(), keeper())), Status::kOk);
}

TEST_F(OneConnection, AKeeperThatDiesBeforeItIsAcceptedIsMissed) {
  ASSERT_TRUE(connect(other(), keeper()));
  settle();
  ASSERT_TRUE(connect(keeper(), other()));
  ASSERT_EQ(try_send(keeper(), other()), Status::kOk);
  kill(keeper());
  for (int ms = 0; ms < kWaitMs && ends(other()) == 0; ++ms) poll_for_ms(other(), 1);
  EXPECT_EQ(messages(other()), 1u);
  EXPECT_EQ(ends(other()), 1u);
}

/// As the last one, and it still copies: the connection that stays tells when it is dead.
TEST_F(OneConnection, AnEndWaitsForACopyThatHasBegun) {
  for (const bool keeper_gives_up : {false, true}) {
    SetUp();
    const PeerId by = keeper_gives_up ? keeper() : other(), whom = keeper_gives_up ? other() : keeper();
    connect_both();
    for (const PeerId peer : {kA, kB}) sink(peer).events.clear();
    bool was_told = true;
    at_copy = [&] {
      EXPECT_TRUE(at(by).end(whom));
      poll_for_ms(by, 2);
      was_told = ends(by) != 0;
    };
    static_cast<void>(SmallWrite().post(at(whom), endpoint(whom, by)));
    at_copy = {};
    EXPECT_FALSE(was_told) << "the writer may still write to its memory";
    poll_for_ms(by, 2);
    EXPECT_EQ(ends(by), 1u);
  }
}

class Prepared : public OneConnection {
 protected:
  void prepare_both() {
    at(kA).prepare(kB, at(kB).local_address());
    at(kB).prepare(kA, at(kA).local_address());
    settle();
  }
};

TEST_F(Prepared, NothingIsMadeForAFirstMessage) {
  prepare_both();
  const int before = open_sockets();
  const int next = FileDescriptor(::dup(0)).get();
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  EXPECT_EQ(open_sockets(), before);
  EXPECT_EQ(FileDescriptor(::dup(0)).get(), next);
  EXPECT_EQ(poll(kB), 1u);
  EXPECT_EQ(messages(kB), 1u);
}

TEST_F(Prepared, BothMeetWithoutAPollAndTheFirstMessageIsThereAtOnce) {
  at(kA).prepare(kB, at(kB).local_address());
  EXPECT_FALSE(at(kA).meet_prepared()) << "B has made nothing";
  EXPECT_TRUE(at(kB).meet_prepared()) << "it was given nobody";
  at(kB).prepare(kA, at(kA).local_address());
  bool met = false;
  for (int i = 0; i < 10 && !met; ++i) {
    met = at(kA).meet_prepared();
    met = at(kB).meet_prepared() && met;
  }
  EXPECT_TRUE(met);
  ASSERT_TRUE(connect(kB, kA));
  ASSERT_EQ(try_send(kB, kA), Status::kOk);
  EXPECT_TRUE(at(kA).meet_prepared()) << "it delivers nothing";
  EXPECT_EQ(messages(kA), 0u);
  EXPECT_EQ(poll(kA), 1u);
  EXPECT_EQ(messages(kA), 1u);
}

TEST_F(Prepared, WhoPreparesNothingIsConnectedTo) {
  at(kA).prepare(kB, at(kB).local_address());
  settle();
  ASSERT_TRUE(connect(kB, kA));
  ASSERT_EQ(try_send(kB, kA), Status::kOk);
  settle();
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  settle();
  EXPECT_EQ(messages(kA), 1u);
  EXPECT_EQ(messages(kB), 1u);
}

/// As if there had been no connection.
TEST_F(Prepared, NobodyHearsOfTheEndOfAProcessThatWasNotMet) {
  prepare_both();
  kill(kB);
  poll_for_ms(kA, 5);
  EXPECT_EQ(sink(kA).events.size(), 0u);
  const Result<Endpoint*> late = at(kA).connect(kB, at(kA).address_of(kB));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().status, Status::kPeerFailed);
}

TEST_F(Prepared, TheEndOfAProcessThatWasMetIsTold) {
  for (const bool has_sent : {false, true}) {
    SetUp();
    prepare_both();
    ASSERT_TRUE(has_sent ? connect(kB, kA) : connect(kA, kB));
    if (has_sent) ASSERT_EQ(try_send(kB, kA), Status::kOk);
    sink(kA).events.clear();
    kill(kB);
    poll_for_ms(kA, 5);
    EXPECT_EQ(ends(kA), 1u) << has_sent;
  }
}

TEST_F(Prepared, WhoIsGivenUpIsTold) {
  prepare_both();
  EXPECT_TRUE(at(kA).end(kB));
  settle();
  EXPECT_EQ(ends(kA), 1u);
}

}  // namespace
}  // namespace ch3_offload
