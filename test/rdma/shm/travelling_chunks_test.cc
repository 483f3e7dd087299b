// Chunks and records that travel between two processes (travelling_chunks.h, travelling_records.h): where
// messages are, and what a hostile peer can say of them.

#include <cstring>

#include "rdma/shm/shm_fixture.h"

namespace ch3_offload {
namespace {

using Kind = RecordingSink::Kind;

class Chunks : public ShmProviderTest {
 protected:
  static constexpr std::size_t kLong = 10'000;

  void SetUp() override {
    ShmProviderTest::SetUp();
    ASSERT_TRUE(connect(kA, kB));
    ASSERT_TRUE(connect(kB, kA));
    for (const PeerId peer : {kA, kB}) {
      poll_for_ms(peer, 5);
      sink(peer).holds = true;  // Shows where a message is.
    }
    owner_ = smaller();
    other_ = greater();
  }
  /// Returns where the sender has written the message.
  const std::byte* send(PeerId from, PeerId to, std::size_t length = kLong) {
    std::span<std::byte> slot;
    if (at(from).reserve(endpoint(from, to), length, slot) != Status::kOk) return nullptr;
    EXPECT_EQ(slot.size(), length);
    sent_.push_back(pattern_.bytes(length));
    std::memcpy(slot.data(), sent_.back().data(), length);
    at(from).commit(endpoint(from, to), length);
    return slot.data();
  }
  /// Returns where the receiver reads it.
  const std::byte* receive(PeerId at) {
    const std::size_t before = sink(at).events.size();
    EXPECT_TRUE(poll_both_until([&] { return sink(at).events.size() > before; }));
    return sink(at).held.data();
  }
  /// All that was sent to `at`, if only that was sent.
  void expect_all(PeerId at) {
    ASSERT_TRUE(poll_both_until([&] { return sink(at).events.size() == sent_.size(); }));
    for (std::size_t i = 0; i < sent_.size(); ++i) EXPECT_EQ(sink(at).events[i].bytes, sent_[i]) << i;
  }

  PeerId owner_{}, other_{};  ///< At first all chunks are the owner's.
  Pattern pattern_{3};
  std::vector<std::vector<std::byte>> sent_;
};

/// Each length has its own way.
class Answers : public Chunks, public testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Lengths, Answers, testing::Values(1, kLongestTravelling, kLeastChunkMessage, 10'000));

TEST_P(Answers, AreWrittenWhereTheMessageWasRead) {
  const std::size_t length = GetParam();
  const std::byte* const written = send(owner_, other_, length);
  const std::byte* const read = receive(other_);
  EXPECT_NE(written, read) << "each has a mapping of its own";
  for (int i = 0; i < 3; ++i) {
    poll(other_);  // The message is held no longer.
    EXPECT_EQ(send(other_, owner_, length), read);
    EXPECT_EQ(receive(owner_), written);
    poll(owner_);
    EXPECT_EQ(send(owner_, other_, length), written);
    EXPECT_EQ(receive(other_), read);
  }
}

TEST_F(Chunks, AMessageThatIsHeldKeepsItsChunk) {
  send(owner_, other_);
  const std::byte* const held = receive(other_);
  const std::byte* const first = send(other_, owner_);
  EXPECT_NE(first, held);
  poll(other_);
  EXPECT_EQ(send(other_, owner_), held);
}

TEST_F(Chunks, WhoHasNoneSendsThroughTheRing) {
  std::vector<const std::byte*> places;
  for (std::uint32_t i = 0; i < kChunks + 3; ++i) places.push_back(send(owner_, other_));
  for (std::uint32_t i = 0; i < kChunks; ++i)
    EXPECT_EQ(std::ranges::count(places, places[0] + std::ptrdiff_t{kChunkStrideBytes} * i), 1) << i;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(places[0]) % kLeastPageBytes, kLeastPageBytes / 2)
      << "near the begin of a page, where programs have their buffers, copies are slow";
  expect_all(other_);
}

/// With the least memory, rings have skips, and there are no chunks.
class Order : public Chunks, public testing::WithParamInterface<std::size_t> {
 protected:
  Order() { memory_bytes = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Memory, Order, testing::Values(1, ShmConfig{}.memory_bytes));

TEST_P(Order, IsKeptWhereverMessagesAre) {
  const std::size_t longest = std::min(kLong, at(owner_).capabilities().max_slot_bytes);
  for (int i = 0; i < 2'000; ++i) {
    const std::size_t length = pattern_.length_between(1, pattern_.next() % 2 == 0 ? 100 : longest);
    std::span<std::byte> slot;
    if (pattern_.next() % 2 == 0)  // And not committed.
      static_cast<void>(at(owner_).reserve(endpoint(owner_, other_), longest, slot));
    while (send(owner_, other_, length) == nullptr) poll(other_);
    if (pattern_.next() % 4 == 0)
      while (poll(other_) != 0) {
      }
    if (pattern_.next() % 4 != 0) continue;
    // An answer: what travels comes back.
    ASSERT_EQ(at(other_).reserve(endpoint(other_, owner_), 8, slot), Status::kOk);
    at(other_).commit(endpoint(other_, owner_), 8);
    for (int turn = 0; turn < 3; ++turn) poll(owner_);
  }
  expect_all(other_);
}

TEST_F(Chunks, ARecordThatTravelsIsOneMessageOnly) {
  const std::byte* const first = send(owner_, other_, 8);
  const std::byte* const second = send(owner_, other_, 8);
  const std::byte* const third = send(owner_, other_, 8);
  EXPECT_NE(second, first) << "it is the other's now";
  EXPECT_EQ(first - second, std::ptrdiff_t{kTravellingOffsets[1]} - std::ptrdiff_t{kTravellingOffsets[0]});
  EXPECT_GE(third, second + kLeastPageBytes) << "in the ring";
  expect_all(other_);
  poll_for_ms(other_, 5);
  EXPECT_EQ(sink(other_).events.size(), 3u);
}

/// As those of two processes that exchange messages: each message is written where the last one was read.
TEST_F(Chunks, MessagesThatCrossEachOtherTravel) {
  send(owner_, other_, 8);
  receive(other_);
  poll(other_);  // Each has one record now.
  const std::byte* read_by_owner = nullptr;
  const std::byte* read_by_other = nullptr;
  for (std::size_t round = 1; round < 5; ++round) {
    const std::byte* const by_owner = send(owner_, other_, 8);
    const std::byte* const by_other = send(other_, owner_, 8);
    if (round > 1) {
      EXPECT_EQ(by_owner, read_by_owner);
      EXPECT_EQ(by_other, read_by_other);
    }
    ASSERT_TRUE(poll_both_until(
        [&] { return sink(owner_).events.size() == round && sink(other_).events.size() == round + 1; }));
    read_by_owner = sink(owner_).held.data();
    read_by_other = sink(other_).held.data();
    poll(owner_);
    poll(other_);
  }
}

/// Numbers of messages have 16 bits. One of the records stays where it is, with an old message in it.
TEST_F(Chunks, AnOldMessageIsNotReadAgainWhenItsNumberComesBack) {
  sink(owner_).holds = sink(other_).holds = false;
  const auto pass = [this](PeerId from, PeerId to) {
    ASSERT_EQ(try_send(from, to), Status::kOk);
    while (poll(to) == 0) {
    }
  };
  for (int i = 0; i < 0x10000; ++i) {
    pass(owner_, other_);
    if (i > 0) pass(other_, owner_);
  }
  poll(other_);
  EXPECT_EQ(sink(other_).count(Kind::kMessage), 0x10000u);
  pass(owner_, other_);
  EXPECT_EQ(sink(other_).count(Kind::kMessage), 0x10001u);
}

/// The rings were made ahead (prepare()).
TEST_F(ShmProviderTest, WhoSaysOneShortMessageAndEndsWasMet) {
  at(kA).prepare(kB, at(kB).local_address());
  at(kB).prepare(kA, at(kA).local_address());
  ASSERT_TRUE(poll_both_until([&] { return at(kA).address_of(kB) != "" && at(kB).address_of(kA) != ""; }));
  poll_for_ms(kA, 5);
  poll_for_ms(kB, 5);
  ASSERT_TRUE(connect(kA, kB));
  ASSERT_EQ(try_send(kA, kB), Status::kOk);
  kill(kA);
  for (int ms = 0; ms < kWaitMs && sink(kB).count(Kind::kPeerDown) == 0; ++ms) poll_for_ms(kB, 1);
  ASSERT_EQ(sink(kB).events.size(), 2u);
  EXPECT_EQ(sink(kB).events[0].kind, Kind::kMessage);
}

TEST_F(Chunks, ASlotThatWasNotCommittedTakesNone) {
  std::span<std::byte> first, second;
  ASSERT_EQ(at(owner_).reserve(endpoint(owner_, other_), kLong, first), Status::kOk);
  ASSERT_EQ(at(owner_).reserve(endpoint(owner_, other_), 8, second), Status::kOk);
  std::memset(second.data(), 1, 8);
  at(owner_).commit(endpoint(owner_, other_), 8);
  EXPECT_EQ(receive(other_)[7], std::byte{1});
  EXPECT_EQ(sink(other_).events[0].bytes.size(), 8u);
  EXPECT_EQ(send(owner_, other_), first.data());
}

TEST_F(Chunks, WhatWasPassedIsReadAfterTheEndOfWhoPassedIt) {
  for (int i = 0; i < 5; ++i) send(owner_, other_);
  kill(owner_);
  while (sink(other_).count(Kind::kPeerDown) == 0) poll(other_);
  ASSERT_EQ(sink(other_).events.size(), 6u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(sink(other_).events[i].bytes, sent_[i]);
  std::span<std::byte> slot;
  EXPECT_EQ(at(other_).reserve(endpoint(other_, owner_), kLong, slot), Status::kPeerFailed);
}

TEST(ChunksOfManyRings, AreNotUsedWhereTheyWouldTakeMuchOfTheMemory) {
  for (const std::size_t processes : {2, 128}) {
    const auto rings_in = [&](std::size_t times) {
      return RingMemory(processes * (processes - 1) * kChunkAreaBytes * times, processes, kLeastRingBytes,
                        4096, 4096);
    };
    EXPECT_TRUE(rings_in(8).has_chunks());
    EXPECT_FALSE(rings_in(7).has_chunks());
  }
}

TEST_F(ShmProviderTest, WhoWasNotReachedHasNothingThatTravels) {
  ShmAddress nobody = *ShmAddress::parse(at(smaller()).local_address());
  nobody.socket_id = {UINT64_MAX, UINT64_MAX};
  EXPECT_FALSE(connect(greater(), smaller(), nobody.to_string()));
  ASSERT_TRUE(connect(greater(), smaller()));
  ASSERT_EQ(try_send(greater(), smaller()), Status::kOk);
  EXPECT_TRUE(poll_both_until([&] { return sink(smaller()).count(Kind::kMessage) == 1; }));
}

/// A peer whose ring's file has what travels, all of which is its own.
class ForgedChunk : public ShmProviderTest {
 protected:
  static constexpr PeerId kHostile{2};

  void SetUp() override {
    ShmProviderTest::SetUp();
    sender_ = std::make_unique<HandMadeSender>(at(kB).local_address(), kHostile, kB);
    ring_ = sender_->ring();
  }
  bool is_refused_after(std::initializer_list<ChunkRecord> records) {
    for (const ChunkRecord& record : records) {
      EXPECT_TRUE(ring_.has_room(sizeof record));
      std::memcpy(ring_.payload(), &record, sizeof record);
      ring_.publish(RecordKind::kChunk, sizeof record);
    }
    poll_for_ms(kB, 5);
    return sender_->sees_the_end();
  }

  std::unique_ptr<HandMadeSender> sender_;
  RingProducer ring_;
};

class ForgedTravelling : public ForgedChunk {
 protected:
  std::size_t messages_after(std::uint64_t header, std::size_t place = 0) {
    std::byte* const record = reinterpret_cast<std::byte*>(&sender_->control()) - kChunkAreaBytes +
                              kTravellingOffsets[place];
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(record)).store(header);
    poll_for_ms(kB, 5);
    EXPECT_FALSE(sender_->sees_the_end());
    return sink(kB).count(Kind::kMessage);
  }
};

TEST_F(ForgedTravelling, AreReadInTheOrderOfTheirNumbers) {
  const auto header = [](std::uint64_t number) {
    return TravellingHeader::pack(0, TravellingKind::kOfMaker, number, kLongestTravelling);
  };
  EXPECT_EQ(messages_after(header(0), 1), 1u);
  EXPECT_EQ(messages_after(header(0), 1), 1u) << "was read before";
  EXPECT_EQ(messages_after(header(2), 0), 1u);
  EXPECT_EQ(messages_after(header(1), 1), 3u);
}

TEST_F(ForgedTravelling, WithAnImpossibleHeaderIsNoMessage) {
  constexpr auto kMakers = TravellingKind::kOfMaker;
  EXPECT_EQ(messages_after(TravellingHeader::pack(0, kMakers, 0, kLongestTravelling + 1)), 0u);
  EXPECT_EQ(messages_after(TravellingHeader::pack(0, kMakers, 0, 0)), 0u);
  EXPECT_EQ(messages_after(TravellingHeader::pack(kLineBytes, kMakers, 0, 8)), 0u)
      << "the ring is not there yet";
  EXPECT_EQ(messages_after(TravellingHeader::pack(0, TravellingKind::kOfOther, 0, 8)), 0u);
}

TEST_F(ForgedChunk, OfThePeersIsRead) {
  EXPECT_FALSE(is_refused_after({{kChunks - 1, kChunkBytes}, {0, 1}}));
  EXPECT_EQ(sink(kB).count(Kind::kMessage), 2u);
}

TEST_F(ForgedChunk, BehindTheLastIsRefused) {
  EXPECT_TRUE(is_refused_after({{kChunks, 8}}));
  EXPECT_EQ(sink(kB).count(Kind::kMessage), 0u);
}

TEST_F(ForgedChunk, LongerThanOneIsRefused) { EXPECT_TRUE(is_refused_after({{0, kChunkBytes + 1}})); }

TEST_F(ForgedChunk, WithNothingInItIsRefused) { EXPECT_TRUE(is_refused_after({{0, 0}})); }

TEST_F(ForgedChunk, ThatWasPassedBeforeIsRefused) {
  EXPECT_TRUE(is_refused_after({{3, 8}, {4, 8}, {3, 8}}));
  EXPECT_EQ(sink(kB).count(Kind::kMessage), 2u);
}

TEST_F(ForgedChunk, OfARingThatThisProcessHasNotMadeIsRefused) {
  const PeerId another{3};
  ShmAddress last;
  last.socket_id = {UINT64_MAX, UINT64_MAX};
  sender_ = std::make_unique<HandMadeSender>(at(kB).local_address(), another, kB, last);
  ring_ = sender_->ring();
  EXPECT_TRUE(is_refused_after({{0, 8}}));
  EXPECT_EQ(sink(kB).count(Kind::kMessage), 0u);
}

}  // namespace
}  // namespace ch3_offload
