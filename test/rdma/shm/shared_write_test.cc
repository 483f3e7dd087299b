// Writes that both processes copy (shared_write.h): who copies what, who finishes, and what may go wrong.

#include <atomic>
#include <cstring>
#include <thread>

#include "rdma/shm/shm_fixture.h"

namespace ch3_offload {
namespace {

using Kind = RecordingSink::Kind;

/// A writes to B. Both have connected to the other, so that B may read.
class SharedWrite : public ShmProviderTest {
 protected:
  static constexpr std::size_t kLength = 100'000;

  void SetUp() override {
    ShmProviderTest::SetUp();
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_TRUE(connect(kB, kA));
    poll_for_ms(kA, 5);
    poll_for_ms(kB, 5);
    sink(kB).shared_landing = target_;
    at_read = [this] { ++reads_; };
  }

  Status write(std::uint32_t immediate = 1) {
    return at(kA).write(endpoint(kA, kB), source_.data(), kLength, {},
                        {reinterpret_cast<std::uintptr_t>(target_.data()), {}}, Immediate{immediate},
                        WorkId{immediate});
  }
  /// Calls `then` while A copies the front half.
  void during_the_front(std::function<void()> then) {
    at_copy = [this, then = std::move(then)] {
      ++copies_;
      if (copies_ == 1) then();
    };
  }
  void expect_arrived(std::size_t writes = 1) {
    ASSERT_TRUE(poll_both_until([&] {
      return sink(kB).count(Kind::kWriteArrived) == writes && sink(kA).count(Kind::kWriteDone) == writes;
    }));
    for (const RecordingSink::Event& event : sink(kB).events) EXPECT_EQ(event.length_bytes, kLength);
    for (const RecordingSink::Event& event : sink(kA).events) EXPECT_EQ(event.status, Status::kOk);
    EXPECT_EQ(target_, source_);
    poll_for_ms(kB, 5);
    EXPECT_EQ(sink(kB).count(Kind::kWriteArrived), writes) << "once";
  }

  std::vector<std::byte> source_ = Pattern(7).bytes(kLength);
  std::vector<std::byte> target_ = std::vector<std::byte>(kLength);
  int copies_ = 0;
  std::atomic<int> reads_ = 0;
};

TEST_F(SharedWrite, AReceiverThatPollsReadsTheBackHalf) {
  std::size_t untouched = 0;
  during_the_front([&] {
    poll(kB);
    while (untouched < kLength && target_[untouched] == std::byte{}) ++untouched;
  });
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(copies_, 1);
  EXPECT_EQ(reads_, 1);
  EXPECT_NEAR(static_cast<double>(untouched), kLength / 2.0, 4096) << "B copied the back, and nothing else";
  expect_arrived();
}

TEST_F(SharedWrite, AWriterWhoseReceiverDoesNotPollCopiesAll) {
  during_the_front([] {});
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(copies_, 2);
  expect_arrived();
  EXPECT_EQ(reads_, 0) << "an offer that was kept is not taken";
}

TEST_F(SharedWrite, AShortWriteIsNotShared) {
  std::array<std::byte, kLeastSharedBytes - 1> from{}, to{};
  sink(kB).shared_landing = to;
  during_the_front([&] { poll(kB); });
  ASSERT_EQ(at(kA).write(endpoint(kA, kB), from.data(), from.size(), {},
                         {reinterpret_cast<std::uintptr_t>(to.data()), {}}, Immediate{1}, WorkId{1}),
            Status::kOk);
  EXPECT_EQ(copies_, 1);
  EXPECT_EQ(reads_, 0);
}

TEST_F(SharedWrite, AnOfferThatWasNotConsumedIsTheOnlyOne) {
  during_the_front([] {});
  for (const std::uint32_t n : {1u, 2u}) ASSERT_EQ(write(n), Status::kOk);
  EXPECT_EQ(copies_, 3) << "the second write is one copy";
  expect_arrived(2);
  copies_ = 0;
  during_the_front([&] { poll(kB); });
  ASSERT_EQ(write(3), Status::kOk);
  EXPECT_EQ(reads_, 1) << "there are offers again";
  expect_arrived(3);
}

TEST_F(SharedWrite, AReceiverWhoseSinkKnowsNoSuchWriteLeavesItToTheWriter) {
  sink(kB).shared_landing = {};
  during_the_front([&] { poll(kB); });
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(copies_, 2);
  EXPECT_EQ(reads_, 0);
  expect_arrived();
}

TEST_F(SharedWrite, AReceiverThatCannotReadLeavesThisWriteAndTheNextToTheWriter) {
  failing_read = {EPERM, 1};
  during_the_front([&] { poll(kB); });
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(copies_, 2);
  expect_arrived();
  copies_ = reads_ = 0;
  during_the_front([&] { poll(kB); });
  ASSERT_EQ(write(2), Status::kOk);
  EXPECT_EQ(copies_, 1) << "nothing is offered any more";
  EXPECT_EQ(reads_, 0);
  expect_arrived(2);
}

TEST_F(SharedWrite, AnOfferEndsWithAFrontThatCannotBeCopied) {
  during_the_front([] {});
  failing_copy = {EFAULT, 1};
  EXPECT_EQ(write(), Status::kUnsupported);
  poll_for_ms(kB, 5);
  EXPECT_EQ(reads_, 0) << "the source is the writer's again";
  EXPECT_TRUE(sink(kB).events.empty());
}

/// B reads in a thread of its own, and its read lasts until a test lets it end.
class SlowReader : public SharedWrite {
 protected:
  void SetUp() override {
    SharedWrite::SetUp();
    at_read = [this] {
      ++reads_;
      while (!may_end_) std::this_thread::yield();
    };
    at_copy = [this] {
      if (++copies_ == 1)
        while (reads_ == 0) std::this_thread::yield();
    };
    reader_ = std::thread([this] {
      while (reads_ == 0) poll(kB);
    });
  }
  void TearDown() override {
    if (reader_.joinable()) end_read();
    SharedWrite::TearDown();
  }
  void end_read() {
    may_end_ = true;
    reader_.join();
  }

  std::atomic<bool> may_end_ = false;
  std::thread reader_;
};

TEST_F(SlowReader, DeliversTheWriteItselfIfItIsTheLast) {
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(copies_, 1);
  EXPECT_FALSE(at(kA).may_have_work());
  poll_for_ms(kA, 5);
  EXPECT_TRUE(sink(kA).events.empty()) << "B still reads the source";
  end_read();
  EXPECT_EQ(sink(kB).count(Kind::kWriteArrived), 1u) << "without another record";
  EXPECT_TRUE(at(kA).may_have_work());
  expect_arrived();
}

TEST_F(SlowReader, IsWaitedForByTheNextLongWrite) {
  ASSERT_EQ(write(1), Status::kOk);
  EXPECT_EQ(write(2), Status::kAgain);
  poll_for_ms(kA, 5);
  EXPECT_EQ(write(2), Status::kAgain);
  EXPECT_EQ(copies_, 1);
  end_read();
  ASSERT_TRUE(poll_both_until([&] { return sink(kA).count(Kind::kWriteDone) == 1; }));
  ASSERT_EQ(write(2), Status::kOk);
  expect_arrived(2);
}

TEST_F(SlowReader, IsNotWaitedForByAShortWrite) {
  ASSERT_EQ(write(1), Status::kOk);
  std::array<std::byte, kLeastSharedBytes - 1> from{}, to{};
  ASSERT_EQ(at(kA).write(endpoint(kA, kB), from.data(), from.size(), {},
                         {reinterpret_cast<std::uintptr_t>(to.data()), {}}, Immediate{2}, WorkId{2}),
            Status::kOk);
  poll_for_ms(kA, 5);
  ASSERT_EQ(sink(kA).events.size(), 1u);
  EXPECT_EQ(sink(kA).events[0].work, WorkId{2});
  end_read();
}

TEST_F(SlowReader, WakesAWriterThatSleeps) {
  ASSERT_EQ(write(), Status::kOk);
  ASSERT_TRUE(put_to_sleep(kA));
  end_read();
  ASSERT_TRUE(is_readable(kA, kWaitMs));
  EXPECT_NE(poll(kA), 0u);
  EXPECT_EQ(sink(kA).count(Kind::kWriteDone), 1u);
  at(kA).disarm();
}

TEST_F(SlowReader, WakesASleeperForWhomAnotherThreadWrote) {
  ASSERT_TRUE(put_to_sleep(kA));
  ASSERT_EQ(write(), Status::kOk);
  EXPECT_EQ(poll(kA), 0u);
  EXPECT_FALSE(is_readable(kA, 0));
  end_read();
  ASSERT_TRUE(is_readable(kA, kWaitMs));
  EXPECT_NE(poll(kA), 0u);
  EXPECT_EQ(sink(kA).count(Kind::kWriteDone), 1u);
  at(kA).disarm();
}

TEST_F(SlowReader, IsToldOfToTheWriterIfItsReadFails) {
  failing_read = {EFAULT, 1};
  ASSERT_EQ(write(), Status::kOk);
  end_read();
  ASSERT_TRUE(poll_both_until([&] { return sink(kA).count(Kind::kWriteDone) == 1; }));
  EXPECT_EQ(sink(kA).events[0].status, Status::kUnsupported);
  EXPECT_TRUE(sink(kB).events.empty());
  EXPECT_EQ(write(2), Status::kUnsupported) << "it writes to B no more";
}

TEST_F(SlowReader, DeliversNothingOfAWriteThatWasGivenUp) {
  ASSERT_EQ(write(), Status::kOk);
  ASSERT_TRUE(at(kA).end(kB));
  while (sink(kA).count(Kind::kPeerDown) == 0) poll(kA);
  ASSERT_EQ(sink(kA).events.size(), 2u);
  EXPECT_EQ(sink(kA).events[0].kind, Kind::kWriteDone);
  EXPECT_EQ(sink(kA).events[0].status, Status::kPeerFailed);
  end_read();
  ASSERT_TRUE(poll_both_until([&] { return sink(kB).count(Kind::kPeerDown) == 1; }));
  EXPECT_EQ(sink(kB).count(Kind::kWriteArrived), 0u);
}

/// B's neighbour offers by hand.
class ForgedOffer : public SharedWrite {
 protected:
  static constexpr PeerId kHostile{2};

  void offer(SharedWriteRecord record) {
    HandMadeSender sender(at(kB).local_address(), kHostile, kB);
    RingProducer ring = sender.ring();
    ASSERT_TRUE(ring.has_room(sizeof record));
    std::memcpy(ring.payload(), &record, sizeof record);
    ring.publish(RecordKind::kSharedWrite, sizeof record);
    poll_for_ms(kB, 5);
    EXPECT_EQ(reads_, 0);
    word_ = sender.control().shared_write;
    is_refused_ = sender.sees_the_end();
  }

  std::uint32_t word_ = 0;
  bool is_refused_ = false;
};

TEST_F(ForgedOffer, OfNoBackHalfIsRefused) {
  offer({.immediate = 1, .length_bytes = kLength, .front_bytes = kLength});
  EXPECT_TRUE(is_refused_);
}

TEST_F(ForgedOffer, OfAPeerThatThisProcessHasNotConnectedToIsNotTaken) {
  offer({.immediate = 1, .length_bytes = kLength, .front_bytes = 8});
  EXPECT_EQ(word_, 0u);
  EXPECT_FALSE(is_refused_);
}

}  // namespace
}  // namespace ch3_offload
